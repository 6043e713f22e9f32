//! Opening regions and pools for the command, with errors a user can act on.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lode_engine::{AccessTimes, OpenOptions, Pool};
use lode_fuse::control::place;
use lode_host::StdHost;
use lode_pmem::{Mapped, RegionError, RegionOptions};

use crate::args::RegionArgs;
use crate::emulation::EmulationFacts;
use crate::failure::{Failure, Kind, Result};
use crate::mounts;
use crate::output::Output;
use crate::progress::while_working;
use crate::report::{MemoryFacts, RegionFacts};

/// A pool as the command opens it.
pub(crate) type MappedPool = Pool<Mapped, StdHost>;

/// Where sysfs is, if the command line says so.
static SYSFS: OnceLock<PathBuf> = OnceLock::new();

/// Has all regions that are opened from now on look for sysfs there.
///
/// # Errors
/// Where there is no such directory.
pub(crate) fn read_sysfs_at(root: &Path) -> Result<()> {
    // (A server has another working directory.)
    let Some(whole) = root.canonicalize().ok().filter(|root| root.is_dir()) else {
        return Err(Failure::usage("there is no such directory")
            .at(root)
            .advise("--sysfs-root names what stands for /sys; leave it out"));
    };
    // (The command line says it once.)
    let _ = SYSFS.set(whole);
    Ok(())
}

/// Where the command line says that sysfs is.
pub(crate) fn sysfs_root() -> Option<&'static Path> {
    SYSFS.get().map(PathBuf::as_path)
}

/// The options of a region, from the command line.
pub(crate) fn options(args: &RegionArgs, read_only: bool) -> RegionOptions {
    RegionOptions { read_only, windows: args.windows, flush: args.flush, ..RegionOptions::new() }
        .sysfs(sysfs_root())
}

/// Opens the region at `path`.
///
/// # Errors
/// Those of [`explain`].
pub(crate) fn open(path: &Path, options: &RegionOptions) -> Result<Mapped> {
    Mapped::open(path, &options.sysfs(sysfs_root())).map_err(|error| explain(path, &error))
}

/// Opens the pool at `path`, which nobody has mounted, to receive a snapshot into it.
///
/// # Errors
/// Those of [`open_pool`].
pub(crate) fn open_to_receive(path: &Path, output: &Output) -> Result<MappedPool> {
    let region = open(path, &RegionOptions::new())?;
    let index_memory = lode_host::index_memory(None);
    let atime = AccessTimes::Never;
    let options = OpenOptions { receiving: true, atime, index_memory, ..OpenOptions::default() };
    while_working("reading the pool", output.progress, || {
        Pool::open(region, StdHost::new(), &options)
    })
    .map_err(|error| Failure::engine(path, &error))
}

/// Opens the pool at `path` that nobody has mounted.
///
/// # Errors
/// `Busy` where it is mounted, `NotAPool`, `Corrupt`, `Unsupported`, and those of the system.
pub(crate) fn open_pool(path: &Path, read_only: bool, output: &Output) -> Result<MappedPool> {
    open_pool_by(path, &RegionOptions { read_only, ..RegionOptions::new() }, output)
}

/// The same, in a region that is opened so.
///
/// # Errors
/// Those of [`open_pool`].
pub(crate) fn open_pool_by(
    path: &Path,
    options: &RegionOptions,
    output: &Output,
) -> Result<MappedPool> {
    let (region, read_only) = (open(path, options)?, options.read_only);
    let index_memory = lode_host::index_memory(None);
    let options = OpenOptions { read_only, index_memory, ..OpenOptions::default() };
    while_working("reading the pool", output.progress, || {
        Pool::open(region, StdHost::new(), &options)
    })
    .map_err(|error| Failure::engine(path, &error))
}

/// What a region says of itself.
pub(crate) fn facts(region: &Mapped) -> RegionFacts {
    let windows = region.window_mode().to_string();
    RegionFacts {
        durability: region.durability().to_string(),
        flush: region.strategy().to_string(),
        windows: if region.is_read_only() { "read-only".to_owned() } else { windows },
        emulated: region.emulated().map(EmulationFacts::from),
        memory: MemoryFacts::of(region),
    }
}

/// A region's error for the user.
pub(crate) fn explain(path: &Path, error: &RegionError) -> Failure {
    let (kind, what, advice) = match error {
        RegionError::Busy { holder, .. } => return busy(path, *holder, "the pool"),
        RegionError::NoSpace { bytes, .. } => (
            Kind::NoSpace,
            format!("the file system below has no space for the pool's {bytes} bytes"),
            "free space there, choose a smaller --size, or another place",
        ),
        RegionError::Exists { .. } => {
            (Kind::Exists, "the file exists already".to_owned(), "pass --force to overwrite it")
        }
        RegionError::DanglingLink { .. } => {
            (Kind::NotFound, error.to_string(), "name the file itself, or remove the link")
        }
        RegionError::TooSmall { bytes, bytes_min, .. } => (
            Kind::NotAPool,
            format!("not a Lode pool: {bytes} bytes are too few, at least {bytes_min} are needed"),
            "check the path; `lode mkfs POOL --size 1G` makes a new pool",
        ),
        RegionError::Misaligned { bytes, page_bytes, .. } => (
            Kind::Usage,
            format!(
                "the device is mapped by pages of {page_bytes} bytes: {bytes} bytes are no multiple of that, {} are",
                bytes - bytes % page_bytes
            ),
            "choose a --size of whole pages, at most as large as the device",
        ),
        RegionError::TooLarge { bytes, bytes_max, .. } => (
            Kind::Usage,
            format!("{bytes} bytes are too many, at most {bytes_max} are possible"),
            "choose a smaller --size",
        ),
        RegionError::NotARegion { .. } if is_block_device(path) => (
            Kind::NotAPool,
            "a block device can't be mapped as memory".to_owned(),
            "of persistent memory, use a file on it (mounted with -o dax) or its DAX device (/dev/dax0.0)",
        ),
        RegionError::NotARegion { .. } if path.is_dir() => (
            Kind::NotAPool,
            "a directory, where a pool that is not mounted is asked for".to_owned(),
            "give the path of the pool, a file or a DAX device; one that is mounted there is unmounted by `lode umount DIR` first",
        ),
        RegionError::NotARegion { .. } => (
            Kind::NotAPool,
            "not a file or DAX device".to_owned(),
            "give the path of a pool: a file or a DAX device",
        ),
        RegionError::NotInSysfs { sysfs, .. } => (
            Kind::Failed,
            format!("nothing of this device is in {}", sysfs.display()),
            "mount sysfs there (mount -t sysfs sysfs /sys): it tells what a DAX device is, and how large",
        ),
        RegionError::NoSuchInstruction { .. } | RegionError::NoMsync { .. } => {
            (Kind::Usage, error.to_string(), "leave --flush out: the best one is chosen")
        }
        RegionError::NoWindows { .. } => (
            Kind::Usage,
            error.to_string(),
            // (Pools are opened with --windows, -o windows= and --protect-io.)
            "leave the mode out: the best one is chosen, and `lode info` says which",
        ),
        RegionError::Io { doing, source, .. } => return Failure::io(doing, path, source),
        other => (Kind::Failed, other.to_string(), "check the path"),
    };
    Failure::new(kind, what).at(path).advise(advice)
}

fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// The pool, or what else it is called, is in use: by whom, as far as can be told.
pub(crate) fn busy(path: &Path, holder: Option<u32>, called: &str) -> Failure {
    let mounted = path.canonicalize().ok().and_then(|clean| mounts::of_pool(&clean).ok().flatten());
    if let Some(mount) = mounted {
        let dir = mount.point.display();
        return Failure::new(Kind::Busy, format!("the pool is mounted at {dir}")).at(path).advise(
            format!("`lode umount {dir}` first; `lode info {dir}` works while it is mounted"),
        );
    }
    let server = path.canonicalize().ok().and_then(|clean| {
        let records = place::records_of_pool(&place::directory(), &clean);
        records.into_iter().find(|record| holder.is_none_or(|pid| pid == record.pid))
    });
    let server = server.filter(|server| mounts::is_running(server.pid));
    if let Some(server) = server.as_ref().filter(|server| server.mount == server.pool) {
        let what =
            format!("its memory is lent to programs by process {} (lode heap serve)", server.pid);
        return Failure::new(Kind::Busy, what).at(path).advise(format!(
            "`lode heap stats {}` shows to whom; `kill {}` ends it",
            path.display(),
            server.pid
        ));
    }
    if let Some(server) = server {
        let what = format!(
            "the pool is no longer mounted at {}, but detached and still in use by its server, \
             process {}",
            server.mount, server.pid
        );
        return Failure::new(Kind::Busy, what).at(path).advise(
            "end the programs that still use its files: the pool is closed when the last one ends",
        );
    }
    let by = match holder {
        Some(pid) => format!("by process {pid} ({})", mounts::process_name(pid)),
        None => "by another process".to_owned(),
    };
    let (what, waits) =
        (format!("{called} is in use {by}"), "wait until that process ends, or end it");
    let Some(user) = holder.and_then(mounts::other_user) else {
        return Failure::new(Kind::Busy, what).at(path).advise(waits);
    };
    Failure::new(Kind::Busy, format!("{what} of user {user}")).at(path).advise(format!(
        "{waits}; what it serves is used as that user: `lode heap run` has memory of servers of its own user alone"
    ))
}
