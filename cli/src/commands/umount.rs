//! `lode umount`: takes a mount away and waits until its server has closed the pool.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::args::UmountArgs;
use crate::failure::{Failure, Kind, Result};
use crate::mounts::{self, Mount};
use crate::output::Output;
use crate::progress::while_working;
use crate::report::UmountReport;
use crate::server;

/// A server that takes longer than this to write its checkpoint is stuck.
const SERVER_ENDS_WITHIN: Duration = Duration::from_secs(120);

/// Runs it.
///
/// # Errors
/// `Busy` with who uses it, `NotMounted`, and what the system says.
pub(crate) fn run(args: &UmountArgs, output: &Output) -> Result<()> {
    let mount = mounts::lode_at(&args.dir)?;
    let server = if mount.is_dead() { None } else { server_of(&mount) };
    take_away(&mount, args.lazy)?;
    let mut clean = false;
    let mut pid = None;
    if let Some((server_pid, handle)) = server {
        pid = Some(server_pid);
        while_working("closing the pool", output.progress, || wait_for_end(&mount, server_pid, &handle))?;
        clean = server::closed_cleanly(&mount.source)?;
    }
    output.print(&UmountReport {
        dir: mount.dir.display().to_string(),
        pool: mount.source.display().to_string(),
        pid,
        clean,
    })
}

/// The server's process, held so that its end can be waited for.
fn server_of(mount: &Mount) -> Option<(u32, OwnedFd)> {
    let pid = server::pid_of(mount)?;
    let handle = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
    Some((pid, handle))
}

fn take_away(mount: &Mount, lazy: bool) -> Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match unmount(&mount.dir, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => by_helper(mount, lazy),
        Err(error) => Err(refused(mount, &error.into())),
    }
}

/// Users other than root unmount their own mounts by the set-user-id helper of FUSE.
fn by_helper(mount: &Mount, lazy: bool) -> Result<()> {
    let mut helper = Command::new("fusermount3");
    helper.arg("-u").args(lazy.then_some("-z")).arg("--").arg(&mount.dir);
    match helper.output() {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            if said.contains("busy") {
                return Err(refused(mount, &Errno::BUSY.into()));
            }
            Err(Failure::new(Kind::Denied, format!("fusermount3 refused: {said}")).at(&mount.dir))
        }
        Err(error) => Err(Failure::io("running fusermount3", &mount.dir, &error)
            .advise("install it (package fuse3), or unmount as root")),
    }
}

fn refused(mount: &Mount, error: &io::Error) -> Failure {
    if error.kind() != io::ErrorKind::ResourceBusy {
        return Failure::io("unmounting", &mount.dir, error);
    }
    let users = mounts::users(&mount.dir);
    let who: Vec<String> = users.iter().map(|(pid, name)| format!("{pid} ({name})")).collect();
    let what = if who.is_empty() {
        "the mount is in use".to_owned()
    } else {
        format!("the mount is in use by process {}", who.join(", "))
    };
    Failure::new(Kind::Busy, what)
        .at(&mount.dir)
        .advise("end these programs or change their directory, then try again; --lazy detaches it now")
}

fn wait_for_end(mount: &Mount, pid: u32, server: &OwnedFd) -> Result<()> {
    let deadline = Instant::now() + SERVER_ENDS_WITHIN;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().min(3600) as i64, tv_nsec: 0 };
        match poll(&mut [PollFd::new(server, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(stuck(mount, pid)),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Failure::io("waiting for the server", &mount.dir, &error.into())),
        }
    }
}

fn stuck(mount: &Mount, pid: u32) -> Failure {
    let seconds = SERVER_ENDS_WITHIN.as_secs();
    Failure::new(Kind::Failed, format!("unmounted, but its server (process {pid}) has not ended within {seconds} s"))
        .at(Path::new(&mount.source))
        .advise("wait for it; if it is ended by force, the next mount recovers the pool")
}
