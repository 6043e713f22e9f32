//! Names: made, given, taken away.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use lode::{Pool, RenameMode};

use crate::border::{Failure, Outcome};
use crate::open::{lode_file, with_file};
use crate::pointers::{bytes_mut, path};
use crate::pool::{lode_pool, with, with_path};

/// Fail with EEXIST where something has the new name: RENAME_NOREPLACE.
pub const LODE_RENAME_NOREPLACE: c_uint = 1;
/// Exchange the two: RENAME_EXCHANGE.
pub const LODE_RENAME_EXCHANGE: c_uint = 2;

const _: () = assert!(
    LODE_RENAME_NOREPLACE == libc::RENAME_NOREPLACE
        && LODE_RENAME_EXCHANGE == libc::RENAME_EXCHANGE
);

/// Makes a directory with permissions `mode`, less the umask, as mkdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_mkdir(pool: *mut lode_pool, name: *const c_char, mode: u32) -> c_int {
    // SAFETY: a handle and a string, by C's promise.
    unsafe { with_path(pool, name, |pool, name| pool.create_dir_with_mode(name, mode)) }
}

/// Removes an empty directory, as rmdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_rmdir(pool: *mut lode_pool, name: *const c_char) -> c_int {
    // SAFETY: a handle and a string, by C's promise.
    unsafe { with_path(pool, name, |pool, name| pool.remove_dir(name)) }
}

/// Removes a name that is not a directory's (EISDIR), as unlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_unlink(pool: *mut lode_pool, name: *const c_char) -> c_int {
    // SAFETY: a handle and a string, by C's promise.
    unsafe { with_path(pool, name, |pool, name| pool.remove_file(name)) }
}

/// Gives what `from` names the name `to`, in place of what is there, in one atomic step, as Linux's renameat2(2):
/// `flags` is 0, LODE_RENAME_NOREPLACE or LODE_RENAME_EXCHANGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_rename(
    pool: *mut lode_pool,
    from: *const c_char,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    let work = |pool: &Pool| {
        // SAFETY: strings, by C's promise.
        let (from, to) = unsafe { (path(from)?, path(to)?) };
        let how = match flags {
            0 => RenameMode::Replace,
            LODE_RENAME_NOREPLACE => RenameMode::NoReplace,
            LODE_RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Failure::Argument(libc::EINVAL, "no such way to rename")),
        };
        Ok(pool.rename_with(from, to, how).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}

/// Gives a file the further name `name`, as link(2); of a symbolic link, the link itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_link(
    pool: *mut lode_pool,
    original: *const c_char,
    name: *const c_char,
) -> c_int {
    let work = |pool: &Pool| {
        // SAFETY: strings, by C's promise.
        let (original, name) = unsafe { (path(original)?, path(name)?) };
        Ok(pool.hard_link(original, name).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}

/// Gives an open file a name: so a file of O_TMPFILE gets its first, with all that was written, in one atomic
/// step. ENOENT for a file whose last name was removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_flink(file: *mut lode_file, name: *const c_char) -> c_int {
    let work = |file: &lode_file| {
        // SAFETY: a string, by C's promise.
        Ok(file.any().link(unsafe { path(name) }?).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

/// Makes a symbolic link at `name` to `target`, which need not be there, as symlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_symlink(
    pool: *mut lode_pool,
    target: *const c_char,
    name: *const c_char,
) -> c_int {
    let work = |pool: &Pool| {
        // SAFETY: strings, by C's promise.
        let (target, name) = unsafe { (path(target)?, path(name)?) };
        Ok(pool.symlink(target, name).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}

/// Stores the target of a symbolic link, as much of it as `size` bytes hold, without a NUL at its end, as readlink(2).
/// Returns how many bytes these are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_readlink(
    pool: *mut lode_pool,
    name: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    let work = |pool: &Pool| {
        // SAFETY: a string, and a buffer of this size, by C's promise.
        unsafe {
            let name = path(name)?;
            store_target(buffer.cast::<c_void>(), size, || pool.read_link(name))
        }
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}

/// Stores as much of a link's target as there is room for.
///
/// # Safety
/// As for [`bytes_mut`].
pub(crate) unsafe fn store_target(
    buffer: *mut c_void,
    size: usize,
    read: impl FnOnce() -> lode::Result<PathBuf>,
) -> Outcome<i64> {
    if size == 0 {
        return Err(Failure::Argument(libc::EINVAL, "the buffer is of 0 bytes"));
    }
    // SAFETY: the caller's promise is this one.
    let buffer = unsafe { bytes_mut(buffer, size) }?;
    let target = read()?;
    let pairs = buffer.iter_mut().zip(target.as_os_str().as_bytes());
    Ok(pairs.map(|(to, from)| *to = *from).count() as i64)
}
