//! One user of a region at a time, by `flock`.
//!
//! What this file guarantees: while a region is open for stores nobody else has it
//! open, in this process or another, by any path; readers share it. The lock ends
//! when the region is dropped. If the process dies instead it ends with the last copy
//! of the file descriptor: a child of `fork` that lives on without `exec` keeps it. Nor is it opened while somebody has pages of an owner
//! that is gone (`loan::kept`). (Two nodes of
//! one device, as containers have their own, are two files to `flock`: who makes them keeps them apart.)

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::RegionError;

/// A locked file.
#[derive(Debug)]
pub(crate) struct Locked {
    file: File,
    /// Who locked it: not a child that has inherited it.
    process: u32,
}

impl Locked {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // To close the file is not enough while a child, on its way to `exec`, has it too.
        if std::process::id() == self.process {
            // SAFETY: takes a descriptor and a number.
            unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
        }
    }
}

/// Locks `file`.
pub(super) fn lock(file: File, path: &Path, shared: bool) -> Result<Locked, RegionError> {
    let mode = if shared { libc::LOCK_SH } else { libc::LOCK_EX };
    loop {
        // SAFETY: takes a descriptor and a number.
        if unsafe { libc::flock(file.as_raw_fd(), mode | libc::LOCK_NB) } == 0 {
            let process = std::process::id();
            let locked = Locked { file, process };
            // Who has pages of an owner that is gone stores to them until it sees that.
            return match super::loan::is_left(locked.file.as_fd()) {
                true => Ok(locked),
                false => Err(RegionError::Busy { path: path.to_owned(), holder: None }),
            };
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => {
                return Err(RegionError::Busy { path: path.to_owned(), holder: holder(&file) });
            }
            _ => return Err(RegionError::io("locking", path, error)),
        }
    }
}

/// The process that holds the lock, as well as the system can tell.
fn holder(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let (device, inode) = (metadata.dev(), metadata.ino());
    holder_in(&locks, libc::major(device), libc::minor(device), inode)
}

/// Finds it in lines like `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`.
fn holder_in(locks: &str, major: u32, minor: u32, inode: u64) -> Option<u32> {
    let id = format!("{major:02x}:{minor:02x}:{inode}");
    let line = locks.lines().find(|line| {
        let mut fields = line.split_whitespace().skip(1);
        // A line with "->" waits for the lock.
        fields.next() == Some("FLOCK") && fields.any(|field| field == id)
    })?;
    line.split_whitespace().nth(4)?.parse().ok().filter(|&pid| pid != 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::holder_in;

    #[test]
    fn holder_is_read_from_the_systems_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:1a:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 00:1a:78 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 4321 00:1a:77 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 13 00:1a:77 0 EOF\n\
                     4: FLOCK  ADVISORY  READ 0 00:1a:99 0 EOF\n";
        assert_eq!(holder_in(locks, 0, 0x1a, 77), Some(4321));
        assert_eq!(holder_in(locks, 0, 0x1a, 99), None);
        assert_eq!(holder_in(locks, 8, 0x1a, 77), None);
        assert_eq!(holder_in("", 0, 0x1a, 77), None);
    }
}
