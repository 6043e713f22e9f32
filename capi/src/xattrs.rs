//! Extended attributes.

use std::ffi::{OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

use lode::{Pool, XattrWhen};

use crate::border::{Failure, Outcome};
use crate::open::{lode_file, with_file};
use crate::pointers::{bytes, bytes_mut, path, text};
use crate::pool::{lode_pool, with};

/// Fail with EEXIST where there is one of this name: XATTR_CREATE.
pub const LODE_XATTR_CREATE: c_int = 1;
/// Fail with ENODATA where there is none of this name: XATTR_REPLACE.
pub const LODE_XATTR_REPLACE: c_int = 2;

const _: () =
    assert!(LODE_XATTR_CREATE == libc::XATTR_CREATE && LODE_XATTR_REPLACE == libc::XATTR_REPLACE);

/// Stores the value of an extended attribute, as getxattr(2). Returns its length; stores nothing if `size` is 0; fails with
/// ERANGE if it is too small, with ENODATA if there is no such attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_getxattr(
    pool: *mut lode_pool,
    name: *const c_char,
    attribute: *const c_char,
    value: *mut c_void,
    size: usize,
) -> i64 {
    let work = |pool: &Pool| {
        // SAFETY: strings, by C's promise.
        let found = pool.get_xattr(unsafe { path(name) }?, unsafe { text(attribute) }?)?;
        // SAFETY: a buffer of this size, by C's promise.
        unsafe { store(&found.ok_or(Failure::Number(libc::ENODATA))?, value, size) }
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}

/// The same of an open file, as fgetxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_fgetxattr(
    file: *mut lode_file,
    attribute: *const c_char,
    value: *mut c_void,
    size: usize,
) -> i64 {
    let work = |file: &lode_file| {
        // SAFETY: a string, by C's promise.
        let found = file.any().get_xattr(unsafe { text(attribute) }?)?;
        // SAFETY: a buffer of this size, by C's promise.
        unsafe { store(&found.ok_or(Failure::Number(libc::ENODATA))?, value, size) }
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

/// Sets an extended attribute, as setxattr(2): `flags` is 0, LODE_XATTR_CREATE or LODE_XATTR_REPLACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_setxattr(
    pool: *mut lode_pool,
    name: *const c_char,
    attribute: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    let work = |pool: &Pool| {
        // SAFETY: strings, and so many bytes, by C's promise.
        let (name, attribute, value) =
            unsafe { (path(name)?, text(attribute)?, bytes(value, size)?) };
        Ok(pool.set_xattr_when(name, attribute, value, when(flags)?).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}

/// The same of an open file, as fsetxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_fsetxattr(
    file: *mut lode_file,
    attribute: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    let work = |file: &lode_file| {
        // SAFETY: a string, and so many bytes, by C's promise.
        let (attribute, value) = unsafe { (text(attribute)?, bytes(value, size)?) };
        Ok(file.any().set_xattr_when(attribute, value, when(flags)?).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

/// Stores the names of all extended attributes, a NUL behind each, as listxattr(2). Returns their length; stores nothing if
/// `size` is 0; fails with ERANGE if it is too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_listxattr(
    pool: *mut lode_pool,
    name: *const c_char,
    list: *mut c_char,
    size: usize,
) -> i64 {
    let work = |pool: &Pool| {
        // SAFETY: a string, by C's promise.
        let names = pool.list_xattr(unsafe { path(name) }?)?;
        // SAFETY: a buffer of this size, by C's promise.
        unsafe { store(&joined(&names), list.cast(), size) }
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}

/// The same of an open file, as flistxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_flistxattr(
    file: *mut lode_file,
    list: *mut c_char,
    size: usize,
) -> i64 {
    let work = |file: &lode_file| {
        let names = file.any().list_xattr()?;
        // SAFETY: a buffer of this size, by C's promise.
        unsafe { store(&joined(&names), list.cast(), size) }
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

/// Removes an extended attribute, as removexattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_removexattr(
    pool: *mut lode_pool,
    name: *const c_char,
    attribute: *const c_char,
) -> c_int {
    let work = |pool: &Pool| {
        // SAFETY: strings, by C's promise.
        let (name, attribute) = unsafe { (path(name)?, text(attribute)?) };
        Ok(pool.remove_xattr(name, attribute).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}

/// The same of an open file, as fremovexattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_fremovexattr(
    file: *mut lode_file,
    attribute: *const c_char,
) -> c_int {
    let work = |file: &lode_file| {
        // SAFETY: a string, by C's promise.
        Ok(file.any().remove_xattr(unsafe { text(attribute) }?).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}

fn when(flags: c_int) -> Outcome<XattrWhen> {
    match flags {
        0 => Ok(XattrWhen::Always),
        LODE_XATTR_CREATE => Ok(XattrWhen::Absent),
        LODE_XATTR_REPLACE => Ok(XattrWhen::Present),
        _ => Err(Failure::Argument(libc::EINVAL, "no such flags for attributes")),
    }
}

fn joined(names: &[OsString]) -> Vec<u8> {
    names.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect()
}

/// Stores a value, or tells how long it is.
///
/// # Safety
/// As for [`bytes_mut`].
unsafe fn store(value: &[u8], into: *mut c_void, size: usize) -> Outcome<i64> {
    if size > 0 {
        // SAFETY: the caller's promise is this one.
        let into = unsafe { bytes_mut(into, size) }?;
        let into = into.get_mut(..value.len()).ok_or(Failure::Number(libc::ERANGE))?;
        into.copy_from_slice(value);
    }
    Ok(value.len() as i64)
}
