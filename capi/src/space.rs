//! Size, space and holes.

use std::ffi::c_int;

use crate::border::Failure;
use crate::data::offset;
use crate::open::{lode_file, with_file};

/// The size stays: FALLOC_FL_KEEP_SIZE.
pub const LODE_FALLOC_KEEP_SIZE: c_int = 1;
/// The bytes become a hole: FALLOC_FL_PUNCH_HOLE. Only with LODE_FALLOC_KEEP_SIZE.
pub const LODE_FALLOC_PUNCH_HOLE: c_int = 2;
/// The bytes become zeros: FALLOC_FL_ZERO_RANGE.
pub const LODE_FALLOC_ZERO_RANGE: c_int = 0x10;

const _: () = assert!(
    LODE_FALLOC_KEEP_SIZE == libc::FALLOC_FL_KEEP_SIZE
        && LODE_FALLOC_PUNCH_HOLE == libc::FALLOC_FL_PUNCH_HOLE
        && LODE_FALLOC_ZERO_RANGE == libc::FALLOC_FL_ZERO_RANGE
);

/// Cuts a file, or lets it grow by a hole, as ftruncate(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_ftruncate(file: *mut lode_file, size: i64) -> c_int {
    let work = |file: &lode_file| {
        // The system's word for a file that is not open for writing, here.
        let file = file.writable().map_err(|_| Failure::Number(libc::EINVAL))?;
        Ok(file.set_len(offset(size)?).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

/// Backs `size` bytes at `at` with memory, so that writing them later needs no space; or, with LODE_FALLOC_...
/// flags, makes them a hole or zeros; as Linux's fallocate(2). Other flags fail with EOPNOTSUPP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_fallocate(
    file: *mut lode_file,
    flags: c_int,
    at: i64,
    size: i64,
) -> c_int {
    const PUNCH: c_int = LODE_FALLOC_PUNCH_HOLE | LODE_FALLOC_KEEP_SIZE;
    let work = |file: &lode_file| {
        let (at, size) = (offset(at)?, offset(size)?);
        let keep_size = flags & LODE_FALLOC_KEEP_SIZE != 0;
        match flags {
            0 | LODE_FALLOC_KEEP_SIZE => file.writable()?.allocate(at, size, keep_size)?,
            PUNCH => file.writable()?.punch_hole(at, size)?,
            _ if flags & !LODE_FALLOC_KEEP_SIZE == LODE_FALLOC_ZERO_RANGE => {
                file.writable()?.zero_range(at, size, keep_size)?;
            }
            _ => return Err(Failure::Number(libc::EOPNOTSUPP)),
        }
        Ok(0)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}
