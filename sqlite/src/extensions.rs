//! Loading extensions of SQLite: they are files of the system, not of the pool, so that SQLite's own VFS
//! does it.

use std::ffi::{c_char, c_int, c_void};

use libsqlite3_sys::{self as ffi, sqlite3_vfs};

type Symbol = Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void, *const c_char)>;

/// SQLite's own VFS.
fn system() -> *mut sqlite3_vfs {
    // SAFETY: it may be called at any time; there is none of that name elsewhere than on Unix.
    unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) }
}

pub(crate) unsafe extern "C" fn open(_vfs: *mut sqlite3_vfs, name: *const c_char) -> *mut c_void {
    let system = system();
    // SAFETY: what SQLite asks of one VFS is asked of another; that one stays as long as SQLite is there.
    let open = unsafe { system.as_ref() }.and_then(|system| system.xDlOpen);
    // SAFETY: as above.
    open.map_or(std::ptr::null_mut(), |open| unsafe { open(system, name) })
}

pub(crate) unsafe extern "C" fn error(_vfs: *mut sqlite3_vfs, size: c_int, text: *mut c_char) {
    let system = system();
    // SAFETY: as in `open`.
    if let Some(error) = unsafe { system.as_ref() }.and_then(|system| system.xDlError) {
        // SAFETY: as in `open`.
        unsafe { error(system, size, text) };
    }
}

pub(crate) unsafe extern "C" fn symbol(
    _vfs: *mut sqlite3_vfs,
    library: *mut c_void,
    name: *const c_char,
) -> Symbol {
    let system = system();
    // SAFETY: as in `open`.
    let symbol = unsafe { system.as_ref() }.and_then(|system| system.xDlSym)?;
    // SAFETY: as in `open`; the library is that VFS's.
    unsafe { symbol(system, library, name) }
}

pub(crate) unsafe extern "C" fn close(_vfs: *mut sqlite3_vfs, library: *mut c_void) {
    let system = system();
    // SAFETY: as in `open`.
    if let Some(close) = unsafe { system.as_ref() }.and_then(|system| system.xDlClose) {
        // SAFETY: as in `open`; the library is that VFS's.
        unsafe { close(system, library) };
    }
}
