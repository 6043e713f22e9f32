//! Work on a thread that holds none of the process's open files.
//!
//! A server that waits for an answer of its own mount must not keep the connection
//! open that the answer comes through: if it were killed while it waits, the
//! connection would never end, and neither would the wait, the process or the mount.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Does `work` on a thread of its own that has no file of this process open, and waits
/// for it, at most `patience`; none if it takes longer or can't be done. `work` can open
/// files for itself.
pub fn apart<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (tell, told) = mpsc::channel();
    let spawned = thread::Builder::new().name("lode-apart".into()).spawn(move || {
        if let Err(error) = leave_files() {
            tracing::error!(%error, "a thread can't let go of the process's files");
            return;
        }
        let _ = tell.send(work());
    });
    spawned.ok()?;
    told.recv_timeout(patience).ok()
}

/// Gives this thread a table of open files of its own, and closes all in it but the
/// standard ones.
#[allow(unsafe_code)]
fn leave_files() -> std::io::Result<()> {
    // SAFETY: takes no memory; a table of open files of its own takes nothing from the
    // others.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: takes no memory; the table is this thread's alone, and the thread has just
    // begun, so that it owns no descriptor in it.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
    if closed != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn files_stay_open_here_and_are_closed_there() {
        let file = File::open("/proc/self/status").unwrap();
        let number = file.as_raw_fd();
        let there = apart(Duration::from_secs(5), move || {
            std::fs::read_link(format!("/proc/thread-self/fd/{number}")).is_ok()
        });
        assert_eq!(there, Some(false));
        assert!(file.metadata().is_ok());
    }

    #[test]
    fn what_takes_too_long_is_not_waited_for() {
        let slow = apart(Duration::from_millis(10), || thread::sleep(Duration::from_secs(2)));
        assert_eq!(slow, None);
    }
}
