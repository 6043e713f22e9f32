//! Locks of open file descriptions on parts of a file.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The system call `fcntl` with this lock, which it may change.
fn fcntl(file: BorrowedFd<'_>, what: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    loop {
        // SAFETY: takes a descriptor and a lock that lives as long as the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), what, std::ptr::from_mut(lock)) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A lock of this type on `part`, bytes of a file.
fn of(kind: libc::c_int, part: &Range<u64>) -> io::Result<libc::flock> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    // (A length of 0 would mean all that follows.)
    let len = part.end.checked_sub(part.start).filter(|len| *len > 0);
    let len = len.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: part.start.try_into().map_err(invalid)?,
        l_len: len.try_into().map_err(invalid)?,
        l_pid: 0,
    })
}

/// Locks bytes `part` of a file that is open to be written, for this open file description; says whether that could be
/// done: another one may have locked some of them.
///
/// # Errors
/// Those of the system.
pub fn lock(file: BorrowedFd<'_>, part: Range<u64>) -> io::Result<bool> {
    match fcntl(file, libc::F_OFD_SETLK, &mut of(libc::F_WRLCK, &part)?) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Ends what [`lock`] has begun.
///
/// # Errors
/// Those of the system.
pub fn unlock(file: BorrowedFd<'_>, part: Range<u64>) -> io::Result<()> {
    fcntl(file, libc::F_OFD_SETLK, &mut of(libc::F_UNLCK, &part)?)
}

/// Some part of bytes `part` that another open file description, or a process, has locked.
fn any_lock(file: BorrowedFd<'_>, part: &Range<u64>) -> io::Result<Option<Range<u64>>> {
    let mut found = of(libc::F_WRLCK, part)?;
    fcntl(file, libc::F_OFD_GETLK, &mut found)?;
    if i32::from(found.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let start = u64::try_from(found.l_start).unwrap_or(0);
    let len = u64::try_from(found.l_len).ok().filter(|len| *len > 0);
    let end = len.map_or(u64::MAX, |len| start.saturating_add(len));
    Ok(Some(start.max(part.start)..end.min(part.end)))
}

/// Calls `each` with the parts of bytes `part` of a file that others have locked, in no order, each byte once.
///
/// # Errors
/// Those of the system.
pub fn locked_by_others(
    file: BorrowedFd<'_>,
    part: Range<u64>,
    each: &mut dyn FnMut(Range<u64>),
) -> io::Result<()> {
    // The system tells of one lock, whichever: what is before and behind it is still to be asked for.
    let mut parts = vec![part];
    while let Some(part) = parts.pop() {
        if part.is_empty() {
            continue;
        }
        if let Some(found) = any_lock(file, &part)?.filter(|found| !found.is_empty()) {
            parts.push(part.start..found.start);
            parts.push(found.end..part.end);
            each(found);
        }
    }
    Ok(())
}
