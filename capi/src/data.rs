//! Reading and writing.

use std::ffi::{c_int, c_void};
use std::io::{Read, Seek, SeekFrom, Write};

use crate::border::{Failure, Outcome};
use crate::open::{lode_file, with_file};
use crate::pointers::{bytes, bytes_mut};

/// SEEK_SET.
pub const LODE_SEEK_SET: c_int = 0;
/// SEEK_CUR.
pub const LODE_SEEK_CUR: c_int = 1;
/// SEEK_END.
pub const LODE_SEEK_END: c_int = 2;
/// SEEK_DATA.
pub const LODE_SEEK_DATA: c_int = 3;
/// SEEK_HOLE.
pub const LODE_SEEK_HOLE: c_int = 4;

const _: () = assert!(
    LODE_SEEK_SET == libc::SEEK_SET
        && LODE_SEEK_CUR == libc::SEEK_CUR
        && LODE_SEEK_END == libc::SEEK_END
        && LODE_SEEK_DATA == libc::SEEK_DATA
        && LODE_SEEK_HOLE == libc::SEEK_HOLE
);

/// An offset that can be.
pub(crate) fn offset(given: i64) -> Outcome<u64> {
    u64::try_from(given).map_err(|_| Failure::Argument(libc::EINVAL, "the offset is negative"))
}

/// Reads up to `size` bytes at the file's position, which moves, as read(2). Returns how many: fewer only at the
/// end of the file, 0 there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_read(file: *mut lode_file, buffer: *mut c_void, size: usize) -> i64 {
    let work = |file: &lode_file| {
        let mut file = file.readable()?;
        // SAFETY: a buffer of this size, by C's promise.
        Ok(file.read(unsafe { bytes_mut(buffer, size) }?)? as i64)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

/// The same at `at`, and the position stays, as pread(2). It makes no system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_pread(
    file: *mut lode_file,
    buffer: *mut c_void,
    size: usize,
    at: i64,
) -> i64 {
    let work = |file: &lode_file| {
        let at = offset(at)?;
        // SAFETY: a buffer of this size, by C's promise.
        Ok(file.readable()?.read_at(unsafe { bytes_mut(buffer, size) }?, at)? as i64)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

/// Writes `size` bytes at the file's position, which moves, as write(2): in one atomic and durable step, whatever
/// their number. Where there is not room for all, their beginning is written so. Returns how many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_write(file: *mut lode_file, data: *const c_void, size: usize) -> i64 {
    let work = |file: &lode_file| {
        let mut file = file.writable()?;
        // SAFETY: so many bytes, by C's promise.
        Ok(file.write(unsafe { bytes(data, size) }?)? as i64)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

/// The same at `at`, and the position stays, as pwrite(2). (At the end of a file that was opened with
/// O_APPEND: so does Linux.) It makes no system call. The times of a file that several threads overwrite again and
/// again may be some milliseconds older than its last write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_pwrite(
    file: *mut lode_file,
    data: *const c_void,
    size: usize,
    at: i64,
) -> i64 {
    let work = |file: &lode_file| {
        let at = offset(at)?;
        // SAFETY: so many bytes, by C's promise.
        Ok(file.writable()?.write_at(unsafe { bytes(data, size) }?, at)? as i64)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

/// Writes all `size` bytes at the end of the file in one atomic and durable step, or nothing. Returns the
/// offset they are at. Appends of many threads never overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_append(
    file: *mut lode_file,
    data: *const c_void,
    size: usize,
) -> i64 {
    let work = |file: &lode_file| {
        // SAFETY: so many bytes, by C's promise.
        Ok(file.writable()?.append(unsafe { bytes(data, size) }?)? as i64)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

/// Moves the file's position, as lseek(2): LODE_SEEK_SET, _CUR, _END, _DATA or _HOLE, which are those of
/// <unistd.h>. Returns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_lseek(file: *mut lode_file, at: i64, whence: c_int) -> i64 {
    let work = |file: &lode_file| {
        let mut file = file.any();
        // Before the beginning there is nothing to be found.
        let from = || u64::try_from(at).map_err(|_| Failure::Number(libc::ENXIO));
        let to = match whence {
            LODE_SEEK_SET => SeekFrom::Start(offset(at)?),
            LODE_SEEK_CUR => SeekFrom::Current(at),
            LODE_SEEK_END => SeekFrom::End(at),
            LODE_SEEK_DATA => SeekFrom::Start(file.seek_data(from()?)?),
            LODE_SEEK_HOLE => SeekFrom::Start(file.seek_hole(from()?)?),
            _ => return Err(Failure::Argument(libc::EINVAL, "no such place to seek from")),
        };
        Ok(file.seek(to)? as i64)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

/// Nothing to do: what has returned is durable. Fails with EIO if the pool is not all right any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_fsync(file: *mut lode_file) -> c_int {
    let work = |file: &lode_file| Ok(file.any().sync_all().map(|()| 0)?);
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}
