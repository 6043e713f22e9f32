//! `lode mount -o remount`: other options for what is mounted.
//!
//! The kernel keeps them and needs no server for it: whether changes, devices, set-user-id bits
//! and programs work. All others were decided when the pool was opened, and stay.

use std::io;
use std::time::{Duration, Instant};

use lode_fuse::mountpoint::{self, Mounted};
use rustix::mount::MountFlags;

use crate::args::MountArgs;
use crate::ask::{Asked, ServerFacts};
use crate::failure::{Failure, Kind, Result};
use crate::mounts;
use crate::options::MountOptions;
use crate::output::Output;
use crate::report::MountReport;
use crate::sizes::page_class_name;

/// How long a server may take to hear that a file was closed.
const RELEASED_WITHIN: Duration = Duration::from_millis(500);

/// Runs it.
///
/// # Errors
/// `NotMounted`; `Busy` where files are open for writing; `Denied` for all but root; `Usage` where
/// another pool is named, the pool was opened read-only and changes are wanted, or something else is
/// to change that does not.
pub(crate) fn run(args: &MountArgs, options: &MountOptions, output: &Output) -> Result<()> {
    let mount = mounts::lode_at(&args.dir)?;
    mounts::must_answer(&mount)?;
    same_pool(args, &mount)?;
    let before = Asked::at(&mount.point)?.info()?;
    if options.read_only == Some(false) && before.opened_read_only {
        let what = "the pool was opened read-only: no remount lets it be changed";
        return Err(Failure::usage(what)
            .at(&mount.point)
            .advise("unmount it, and mount it again without ro"));
    }
    if let Some(what) = unchangeable(&mount, &before, options) {
        return Err(Failure::usage(format!("no remount changes {what}"))
            .at(&mount.point)
            .advise("leave this option out, or unmount it, and mount it again with it"));
    }
    remount(&mount, flags(&mount, options)).map_err(|error| explain(&mount, &error))?;
    let server = Asked::at(&mount.point)?.info()?;
    output.print(&MountReport {
        dir: mount.point.display().to_string(),
        pid: server.pid,
        log: None,
        read_only: server.read_only,
        snapshot: server.snapshot(),
        relaxed: server.relaxed,
        pool: server.pool,
        region: server.region,
        opening: server.opening,
    })
}

/// What was decided when the pool was opened, and is asked for otherwise. (What is asked for as it is
/// is no change: mount(8) hands on what fstab says.)
fn unchangeable(
    mount: &Mounted,
    before: &ServerFacts,
    asked: &MountOptions,
) -> Option<&'static str> {
    fn differs<T: PartialEq>(asked: Option<T>, before: T) -> bool {
        asked.is_some_and(|asked| asked != before)
    }
    let (was, region) = (&before.options, &before.region);
    let pages = was.page_class.map(page_class_name).unwrap_or(&before.pool.page_size);
    let others = was.allow_other || mount.owner == Some(0);
    // Said as it was said, or as it is.
    let windows = asked.windows.filter(|_| asked.windows != was.windows);
    let flush = asked.flush.filter(|_| asked.flush != was.flush);
    let all = [
        (asked.relaxed && !before.relaxed, "how data is written: this was mounted without relaxed"),
        (
            differs(asked.atime, was.atime.unwrap_or_default()),
            "how access times are kept (noatime, relatime, strictatime)",
        ),
        (differs(asked.page_class.map(page_class_name), pages), "the page size of new files"),
        (
            asked.index_memory.is_some() && asked.index_memory != was.index_memory,
            "how much memory the indexes may take",
        ),
        (
            asked.snapshot.is_some() && asked.snapshot != was.snapshot,
            "which snapshot is mounted (snapshot=)",
        ),
        (
            differs(asked.scrub, was.scrub.unwrap_or_default())
                || differs(asked.scrub_rate, was.scrub_rate.unwrap_or(lode_fuse::SCRUB_RATE)),
            "when the pool is scrubbed (scrub=, scrub-rate=)",
        ),
        (differs(windows.map(|it| it.to_string()), region.windows.clone()), "write windows"),
        (differs(flush.map(|it| it.to_string()), region.flush.clone()), "how stores are flushed"),
        (
            [asked.heap.limit, asked.heap.program_limit, asked.heap.reserve, asked.heap.ready]
                .into_iter()
                .zip([was.heap.limit, was.heap.program_limit, was.heap.reserve, was.heap.ready])
                .any(|(asked, was)| asked.is_some() && asked != was),
            "how much memory is lent to programs (heap_limit=, heap_program_limit=, heap_reserve=)",
        ),
        (was.emulation.join(&asked.emulation) != was.emulation, "what medium is emulated"),
        (asked.allow_other && !others, "who may use the mount (allow_other)"),
        (
            differs(asked.awake, was.awake.unwrap_or_default()),
            "whether processors are kept awake (awake, noawake)",
        ),
        (differs(asked.io_uring, before.io_uring), "how requests come (io_uring, noio_uring)"),
        (asked.noviews && !was.noviews, "whether there is a directory .lode (noviews)"),
    ];
    all.into_iter().find_map(|(differs, what)| differs.then_some(what))
}

/// What is named is what is mounted. (A name that leads nowhere names nothing: mount(8) hands on
/// what fstab says, and the pool may have moved since.)
fn same_pool(args: &MountArgs, mount: &Mounted) -> Result<()> {
    match args.pool.canonicalize() {
        Ok(named) if named != mount.source => {
            let what = format!("{} is mounted here, not this", mount.source.display());
            Err(Failure::usage(what)
                .at(&args.pool)
                .advise("name the pool that is mounted there, or the directory of this one"))
        }
        _ => Ok(()),
    }
}

/// The kernel tells a server of a closed file when the program goes on already: for as long, one that
/// is unlinked counts as open.
fn remount(mount: &Mounted, flags: MountFlags) -> io::Result<()> {
    let end = Instant::now() + RELEASED_WITHIN;
    loop {
        match mountpoint::remount(&mount.point, flags) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

/// What the mount has, but for what is said.
fn flags(mount: &Mounted, options: &MountOptions) -> MountFlags {
    let mut flags = mount.flags;
    let said = [
        (MountFlags::RDONLY, options.read_only),
        (MountFlags::NODEV, options.dev.map(|works| !works)),
        (MountFlags::NOSUID, options.suid.map(|counts| !counts)),
        (MountFlags::NOEXEC, options.noexec),
    ];
    for (flag, on) in said {
        if let Some(on) = on {
            flags.set(flag, on);
        }
    }
    flags
}

fn explain(mount: &Mounted, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let failure = Failure::new(Kind::Denied, "only root may change a mount");
            failure.at(&mount.point).advise("run as root, or unmount it and mount it again")
        }
        io::ErrorKind::ResourceBusy => {
            let users = mounts::users(&mount.point);
            let named: Vec<String> =
                users.iter().map(|(pid, name)| format!("{pid} ({name})")).collect();
            let what = "files are open for writing, so it can't become read-only";
            Failure::new(Kind::Busy, what)
                .at(&mount.point)
                .advise(format!("end who has them open; it is used by: {}", named.join(", ")))
        }
        _ => Failure::io("remounting", &mount.point, error),
    }
}
