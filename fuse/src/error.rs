//! What can go wrong with a mount as a whole.

use std::io;
use std::path::PathBuf;

use crate::wire::InitError;

/// Result of an operation on a mount.
pub type Result<T> = std::result::Result<T, MountError>;

/// An error of mounting, serving or unmounting: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point can't be used.
    #[error("can't mount at {}: {source}", path.display())]
    MountPoint {
        /// The mount point as given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The mount point is no directory.
    #[error("can't mount at {}: it is not a directory; name an existing directory", .0.display())]
    NotADirectory(PathBuf),
    /// A live Lode file system is mounted there.
    #[error("{} is busy: a Lode pool is mounted there already; unmount it first (lode umount {})",
            .0.display(), .0.display())]
    Busy(PathBuf),
    /// A dead mount is in the way and can't be taken off.
    #[error("the server of the file system at {} is gone, and the mount point can't be taken off: \
             {source}; try: umount -l {}", path.display(), path.display())]
    DeadMount {
        /// The mount point.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The kernel, or its FUSE device, refused.
    #[error("the kernel refused to mount at {}: {source}{}", path.display(), hint(source))]
    Kernel {
        /// The mount point.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel and this server have no version of the protocol in common.
    #[error("can't serve a mount at {}: {source}", path.display())]
    Protocol {
        /// The mount point.
        path: PathBuf,
        /// Why.
        source: InitError,
    },
    /// Processors can't be kept awake.
    #[error("processors can't be kept awake: {0}")]
    Asleep(io::Error),
    /// The mount does not answer.
    #[error("the file system at {} did not answer within {seconds} s", path.display())]
    NoAnswer {
        /// The mount point.
        path: PathBuf,
        /// How long it was waited for, in seconds.
        seconds: u64,
    },
    /// Unmounting failed.
    #[error("can't unmount {}: {source}{}", path.display(), busy_hint(source))]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing of Lode's is mounted there.
    #[error("no Lode pool is mounted at {}", .0.display())]
    NotMounted(PathBuf),
    /// The server could not go on.
    #[error("the server of {} stopped: {source}", path.display())]
    Session {
        /// The mount point.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A request made the server panic; the pool was left as it was, as after a crash.
    #[error("a request failed inside the server of {}: the mount was given up and the pool left as \
             after a crash; mounting it again recovers it", .0.display())]
    Panicked(PathBuf),
    /// The pool could not be closed.
    #[error(
        "the pool could not be closed cleanly: {0}; nothing that was acknowledged is lost, and \
             mounting it again recovers it"
    )]
    Close(lode_engine::Error),
    /// Something on the way of the control socket.
    #[error("{what} {}: {source}", path.display())]
    Control {
        /// What was tried, as a verb phrase ending before the path.
        what: &'static str,
        /// The socket, or the directory it is in.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The directory for control sockets can't be trusted.
    #[error("{} can't hold control sockets: {why}; remove it", path.display())]
    ControlPlace {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No server answers for this mount or pool.
    #[error("no server of {} can be reached: is it mounted, and by you?", .0.display())]
    NoServer(PathBuf),
    /// The server answered something else than expected, or an error.
    #[error("the server at {} answered: {answer}", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What it said.
        answer: String,
    },
    /// Signals can't be handled, or a thread can't be started.
    #[error("can't {what}: {source}")]
    System {
        /// What was tried, as a verb phrase.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; is there a /dev/fuse (modprobe fuse) and fusermount3?",
        io::ErrorKind::PermissionDenied => "; be root, or install fusermount3 (package fuse3)",
        _ => "",
    }
}

fn busy_hint(error: &io::Error) -> &'static str {
    if error.raw_os_error() == Some(libc::EBUSY) {
        "; a program has a file or directory of it open"
    } else {
        ""
    }
}
