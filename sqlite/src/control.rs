//! What SQLite says and asks of an open file beside reading and writing.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libsqlite3_sys as ffi;

use crate::error::{Outcome, last_errno};
use crate::handle::Handle;
use crate::locks::Level;

/// Answers `op`.
///
/// # Safety
/// `argument` is what SQLite says it is for `op`.
pub(crate) unsafe fn control(
    handle: &Handle,
    name: &CStr,
    op: c_int,
    argument: *mut c_void,
) -> Outcome<()> {
    let number = argument.cast::<c_int>();
    let size = argument.cast::<i64>();
    // SAFETY: for each operation SQLite says what the argument points to: an `int`, a 64-bit size, or
    // a place for a string from its allocator. The caller promises that it is that.
    unsafe {
        match op {
            ffi::SQLITE_FCNTL_LOCKSTATE => {
                let level = handle.member.as_ref().map_or(Level::None, |member| member.level());
                *number = level as c_int;
            }
            ffi::SQLITE_FCNTL_LAST_ERRNO => *number = last_errno(),
            ffi::SQLITE_FCNTL_SIZE_HINT => {
                return handle.body.reserve(u64::try_from(*size).unwrap_or(0));
            }
            ffi::SQLITE_FCNTL_PERSIST_WAL => switch(&handle.keep_log, &mut *number),
            ffi::SQLITE_FCNTL_POWERSAFE_OVERWRITE => switch(&handle.powersafe, &mut *number),
            ffi::SQLITE_FCNTL_VFSNAME => {
                let text = ffi::sqlite3_mprintf(c"%s".as_ptr(), name.as_ptr());
                *argument.cast::<*mut c_char>() = text;
            }
            ffi::SQLITE_FCNTL_HAS_MOVED => *number = handle.has_moved().into(),
            // Nothing is mapped: pages move when they are written.
            ffi::SQLITE_FCNTL_MMAP_SIZE => *size = 0,
            // Nobody outside this process has it open.
            ffi::SQLITE_FCNTL_EXTERNAL_READER => *number = 0,
            _ => return Err(ffi::SQLITE_NOTFOUND),
        }
    }
    Ok(())
}

/// Sets what is asked for, or tells it where the question is negative.
fn switch(bit: &AtomicBool, number: &mut c_int) {
    match *number {
        ..0 => *number = bit.load(Relaxed).into(),
        wanted => bit.store(wanted != 0, Relaxed),
    }
}
