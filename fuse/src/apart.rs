//! System calls that may wait for a mount, made by a process of their own.
//!
//! A server that waits for an answer of its own mount must not keep the connection open that the
//! answer comes through: if it were killed while it waits, the connection would never end, and
//! neither would the wait, the process or the mount. What keeps it open are descriptors of it, and
//! a mapping of a ring that requests come through. So not a thread waits but a child, which has
//! neither.

use std::ffi::{CString, c_int};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::mount::UnmountFlags;
use rustix::process::Resource;

/// Files that are closed one by one, at most.
const FILES_MOST: u64 = 1 << 20;

/// Does `work` on a thread of its own and waits for it, at most `patience`; none if it takes longer
/// or can't be done.
pub fn within<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (tell, told) = mpsc::channel();
    let spawned = thread::Builder::new().name("lode-waits".into()).spawn(move || {
        let _ = tell.send(work());
    });
    spawned.ok()?;
    told.recv_timeout(patience).ok()
}

/// Asks the file system at `path` for its space.
pub fn statfs(path: &Path) -> io::Result<()> {
    in_child(path, |path| {
        let mut space = std::mem::MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: a string that ends with NUL, and room for what is asked, which nobody reads.
        #[allow(unsafe_code)]
        unsafe {
            libc::statfs(path.as_ptr(), space.as_mut_ptr())
        }
    })
}

/// Takes a mount off.
pub fn unmount(point: &Path, flags: UnmountFlags) -> io::Result<()> {
    let flags = flags.bits().cast_signed();
    in_child(point, move |point| {
        // SAFETY: a string that ends with NUL.
        #[allow(unsafe_code)]
        unsafe {
            libc::umount2(point.as_ptr(), flags)
        }
    })
}

/// Has the kernel write out all of the file system at `path`.
pub fn sync(path: &Path) -> io::Result<()> {
    in_child(path, |path| {
        // SAFETY: a string that ends with NUL; the descriptor is this process's own.
        #[allow(unsafe_code)]
        unsafe {
            match libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) {
                -1 => -1,
                root => libc::syncfs(root),
            }
        }
    })
}

/// Makes a system call in a child that has none of this process's files but the standard ones, and
/// waits for it. `call` returns -1 where it failed; it must do nothing but system calls.
#[allow(unsafe_code)]
fn in_child(path: &Path, call: impl Fn(&CString) -> c_int) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let files = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(FILES_MOST);
    let done = |result: c_int| match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: a process with memory of its own; it tells nobody when it ends (no signal's number), so that it
    // stays to be asked, whatever this process does with signals of children. Of the threads it has but this
    // one, whose locks nobody will let go of: until it ends it makes system calls and nothing else, which
    // take no lock and no memory.
    match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
        // Better here than not at all.
        -1 => done(call(&path)),
        0 => unsafe {
            if libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) != 0 {
                // Linux before 5.9.
                (3..files.min(FILES_MOST) as c_int).for_each(|file| _ = libc::close(file));
            }
            let code = match call(&path) {
                -1 => *libc::__errno_location(),
                _ => 0,
            };
            libc::_exit(code)
        },
        child => outcome(child as libc::pid_t),
    }
}

/// How a child's call ended.
#[allow(unsafe_code)]
fn outcome(child: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: room for a status.
    while unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) } == -1 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    if !libc::WIFEXITED(status) {
        return Err(io::Error::other("the process that made the call was killed"));
    }
    match libc::WEXITSTATUS(status) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
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
        #[allow(unsafe_code)]
        // SAFETY: takes no memory.
        let there = in_child(Path::new("/"), |_| unsafe { libc::fcntl(number, libc::F_GETFD) });
        assert_eq!(there.unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(file.metadata().is_ok());
    }

    #[test]
    fn calls_end_as_they_would_here() {
        statfs(Path::new("/")).unwrap();
        sync(Path::new("/proc")).unwrap();
        let absent = Path::new("/no such directory");
        for ended in [statfs(absent), sync(absent), unmount(absent, UnmountFlags::empty())] {
            assert!(matches!(ended.unwrap_err().raw_os_error(), Some(libc::ENOENT | libc::EPERM)));
        }
        assert!(statfs(Path::new("a\0b")).is_err());
    }

    #[test]
    fn what_takes_too_long_is_not_waited_for() {
        let slow = within(Duration::from_millis(10), || thread::sleep(Duration::from_secs(2)));
        assert_eq!(slow, None);
    }
}
