//! `lode umount`: takes a mount away and waits until its server has closed the pool and is gone.

use std::path::Path;
use std::time::Duration;

use lode_fuse::MountError;
use lode_fuse::mountpoint::{self, Life, Mounted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::args::UmountArgs;
use crate::ask::Asked;
use crate::explain::mount_failure;
use crate::failure::{Failure, Kind, Result};
use crate::mounts;
use crate::output::Output;
use crate::progress::while_working;
use crate::report::UmountReport;

/// A server that takes longer than this to close its pool is stuck.
const CLOSES_WITHIN: Duration = Duration::from_secs(300);
/// Its process ends soon after the pool is closed.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Runs it.
///
/// # Errors
/// `Busy` with who uses it, `NotMounted`, and what the server says of closing the pool.
pub(crate) fn run(args: &UmountArgs, output: &Output) -> Result<()> {
    let mount = mounts::lode_at(&args.dir)?;
    let life = mounts::life(&mount);
    if life == Life::Alive && !args.lazy {
        only_here(&mount)?;
    }
    // Before: afterwards there is nobody to ask.
    let pid = match life {
        Life::Alive => Asked::at(&mount.point)
            .and_then(|mut server| server.info())
            .ok()
            .map(|server| server.pid),
        Life::Silent if !args.lazy => return Err(mounts::silent(&mount)),
        Life::Silent => {
            mountpoint::detach(&mount.point)
                .map_err(|error| Failure::io("detaching the mount", &mount.point, &error))?;
            return output.print(&report(&mount, life, None, true));
        }
        Life::Dead => None,
    };
    let process = pid.and_then(process);
    while_working("closing the pool", output.progress, || {
        lode_fuse::unmount(&mount.point, args.lazy, CLOSES_WITHIN)
    })
    .map_err(|error| explain(&mount, &error))?;
    if let (Some(process), false) = (process, args.lazy) {
        wait_for_end(&process);
    }
    output.print(&report(&mount, life, pid, args.lazy))
}

/// With one place of several gone the pool would stay open, and nobody could wait for its end.
fn only_here(mount: &Mounted) -> Result<()> {
    let others = mounts::elsewhere(mount)?;
    if others.is_empty() {
        return Ok(());
    }
    let others: Vec<String> = others.iter().map(|other| other.display().to_string()).collect();
    let what = format!("the pool is mounted elsewhere, too: {}", others.join(", "));
    Err(Failure::new(Kind::Busy, what).at(&mount.point).advise(format!(
        "take that off first: umount {}; --lazy detaches this one now, and the pool stays in use",
        others.join(" ")
    )))
}

fn report(mount: &Mounted, life: Life, pid: Option<u32>, lazy: bool) -> UmountReport {
    UmountReport {
        dir: mount.point.display().to_string(),
        pool: mount.source.display().to_string(),
        pid,
        unasked: life != Life::Dead && pid.is_none(),
        clean: pid.is_some() && !lazy,
        lazy,
    }
}

/// A process, held so that its end can be waited for.
pub(crate) fn process(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()
}

/// Waits for the end of a process whose work is done: a while, as nothing depends on it.
pub(crate) fn wait_for_end(process: &OwnedFd) {
    let timeout = Timespec { tv_sec: ENDS_WITHIN.as_secs() as i64, tv_nsec: 0 };
    let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout));
}

fn explain(mount: &Mounted, error: &MountError) -> Failure {
    match error {
        MountError::Unmount { source, .. } if source.kind() == std::io::ErrorKind::ResourceBusy => {
            busy(&mount.point)
        }
        MountError::Answer { answer, .. } => Failure::new(
            Kind::Failed,
            format!("unmounted, but the pool could not be closed cleanly: {answer}"),
        )
        .at(&mount.source)
        .advise(
            "nothing acknowledged is lost: the next mount recovers the pool; `lode fsck` checks it",
        ),
        other => mount_failure(&mount.point, other),
    }
}

fn busy(dir: &Path) -> Failure {
    let loops = mounts::loops_of(dir);
    if let Some(all) = (!loops.is_empty()).then(|| loops.join(" ")) {
        return Failure::new(Kind::Busy, format!("files of the mount are loop devices: {all}"))
            .at(dir)
            .advise(format!(
                "unmount what is mounted of them, then end them: `lode block detach`, or `losetup -d {all}`"
            ));
    }
    let users = mounts::users(dir);
    let who: Vec<String> = users.iter().map(|(pid, name)| format!("{pid} ({name})")).collect();
    let what = match who.len() {
        0 => "the mount is in use".to_owned(),
        1 => format!("the mount is in use by process {}", who.join("")),
        _ => format!("the mount is in use by processes {}", who.join(", ")),
    };
    Failure::new(Kind::Busy, what).at(dir).advise(
        "end them or let them change their directory, then try again; --lazy detaches it now",
    )
}
