//! The calls of SQLite on open files.

use std::ffi::{CStr, c_int, c_void};
use std::slice;

use libsqlite3_sys::{self as ffi, sqlite3_file, sqlite3_io_methods};

use crate::error::{Outcome, answer};
use crate::handle::Handle;
use crate::locks::Level;
use crate::node::Member;
use crate::shared_memory::Which;

/// What SQLite has for an open file: as large as the VFS says, with SQLite's part first.
#[repr(C)]
pub(crate) struct OpenFile {
    base: sqlite3_file,
    /// From a box, until the file is closed.
    handle: *mut Handle,
    /// Name of the VFS, which stays for ever.
    name: &'static CStr,
}

impl OpenFile {
    /// A file that is open: SQLite will close it.
    pub(crate) fn new(handle: Handle, name: &'static CStr) -> Self {
        let base = sqlite3_file { pMethods: &METHODS };
        Self { base, handle: Box::into_raw(Box::new(handle)), name }
    }

    /// Not even its closing will be called.
    pub(crate) const CLOSED: sqlite3_file = sqlite3_file { pMethods: std::ptr::null() };
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 3,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};

/// The handle of an open file.
///
/// # Safety
/// `file` is one that this VFS has opened and SQLite has not closed, for all of `'a`.
unsafe fn opened<'a>(file: *mut sqlite3_file) -> &'a Handle {
    // SAFETY: such a file is an `OpenFile`, whose handle is there until it is closed, and shared.
    unsafe { &*(*file.cast::<OpenFile>()).handle }
}

fn offset(value: i64, failed: c_int) -> Outcome<u64> {
    u64::try_from(value).map_err(|_| failed)
}

/// What is shared of a database; other files have no index.
fn member(handle: &Handle, failed: c_int) -> Outcome<&Member> {
    handle.member.as_ref().ok_or(failed)
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once, and nobody has its handle meanwhile: it is from a box.
    let handle = unsafe { Box::from_raw((*file.cast::<OpenFile>()).handle) };
    // SAFETY: it is still SQLite's memory for the file.
    unsafe { (*file).pMethods = std::ptr::null() };
    answer(ffi::SQLITE_IOERR_CLOSE, || {
        drop(handle);
        Ok(())
    })
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    into: *mut c_void,
    amount: c_int,
    at: i64,
) -> c_int {
    let amount = usize::try_from(amount).unwrap_or(0);
    // SAFETY: SQLite calls this on an open file, with so much memory that is its own meanwhile.
    let (handle, into) =
        unsafe { (opened(file), slice::from_raw_parts_mut(into.cast::<u8>(), amount)) };
    answer(ffi::SQLITE_IOERR_READ, || {
        let read = handle.body.read(into, offset(at, ffi::SQLITE_IOERR_READ)?)?;
        if read < amount { Err(ffi::SQLITE_IOERR_SHORT_READ) } else { Ok(()) }
    })
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    amount: c_int,
    at: i64,
) -> c_int {
    let amount = usize::try_from(amount).unwrap_or(0);
    // SAFETY: SQLite calls this on an open file, with so many bytes that don't change meanwhile.
    let (handle, data) =
        unsafe { (opened(file), slice::from_raw_parts(from.cast::<u8>(), amount)) };
    answer(ffi::SQLITE_IOERR_WRITE, || {
        handle.body.write(data, offset(at, ffi::SQLITE_IOERR_WRITE)?)
    })
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite calls this on an open file.
    let handle = unsafe { opened(file) };
    answer(ffi::SQLITE_IOERR_TRUNCATE, || {
        handle.body.truncate(offset(size, ffi::SQLITE_IOERR_TRUNCATE)?)
    })
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: SQLite calls this on an open file.
    let handle = unsafe { opened(file) };
    answer(ffi::SQLITE_IOERR_FSYNC, || handle.body.sync())
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    // SAFETY: SQLite calls this on an open file, with a place for the size.
    let (handle, size) = unsafe { (opened(file), &mut *size) };
    answer(ffi::SQLITE_IOERR_FSTAT, || {
        *size = i64::try_from(handle.body.size()?).map_err(|_| ffi::SQLITE_IOERR_FSTAT)?;
        Ok(())
    })
}

fn level(value: c_int) -> Level {
    match value {
        ..=ffi::SQLITE_LOCK_NONE => Level::None,
        ffi::SQLITE_LOCK_SHARED => Level::Shared,
        ffi::SQLITE_LOCK_RESERVED => Level::Reserved,
        ffi::SQLITE_LOCK_PENDING => Level::Pending,
        _ => Level::Exclusive,
    }
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, wanted: c_int) -> c_int {
    // SAFETY: SQLite calls this on an open file.
    let handle = unsafe { opened(file) };
    answer(ffi::SQLITE_IOERR_LOCK, || {
        // Nobody else has a file that is no database.
        let got = handle.member.as_ref().is_none_or(|member| member.raise(level(wanted)));
        if got { Ok(()) } else { Err(ffi::SQLITE_BUSY) }
    })
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, wanted: c_int) -> c_int {
    // SAFETY: SQLite calls this on an open file.
    let handle = unsafe { opened(file) };
    answer(ffi::SQLITE_IOERR_UNLOCK, || {
        if let Some(member) = &handle.member {
            member.lower(level(wanted));
        }
        Ok(())
    })
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, reserved: *mut c_int) -> c_int {
    let failed = ffi::SQLITE_IOERR_CHECKRESERVEDLOCK;
    // SAFETY: SQLite calls this on an open file, with a place for the answer.
    let (handle, reserved) = unsafe { (opened(file), &mut *reserved) };
    answer(failed, || {
        *reserved = handle.member.as_ref().is_some_and(Member::is_reserved).into();
        Ok(())
    })
}

unsafe extern "C" fn file_control(
    file: *mut sqlite3_file,
    op: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: SQLite calls this on an open file, which is an `OpenFile`.
    let (handle, name) = unsafe { (opened(file), (*file.cast::<OpenFile>()).name) };
    // SAFETY: SQLite passes on what its documentation asks for.
    answer(ffi::SQLITE_IOERR, || unsafe { crate::control::control(handle, name, op, argument) })
}

/// What a journal's parts are aligned to. Nothing here has sectors: the least that SQLite takes.
unsafe extern "C" fn sector_size(_file: *mut sqlite3_file) -> c_int {
    512
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite calls this on an open file.
    unsafe { opened(file) }.characteristics()
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    bytes: c_int,
    make: c_int,
    memory: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite calls this on an open file, with a place for the answer.
    let (handle, memory) = unsafe { (opened(file), &mut *memory) };
    *memory = std::ptr::null_mut();
    answer(ffi::SQLITE_IOERR_SHMMAP, || {
        let (Ok(region), Ok(bytes)) = (usize::try_from(region), usize::try_from(bytes)) else {
            return Err(ffi::SQLITE_IOERR_SHMMAP);
        };
        *memory = member(handle, ffi::SQLITE_IOERR_SHMOPEN)?.map((region, bytes), make != 0)?;
        Ok(())
    })
}

unsafe extern "C" fn shm_lock(
    file: *mut sqlite3_file,
    from: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: SQLite calls this on an open file.
    let handle = unsafe { opened(file) };
    answer(ffi::SQLITE_IOERR_SHMLOCK, || {
        let member = member(handle, ffi::SQLITE_IOERR_SHMLOCK)?;
        let which = Which::new(from, count)?;
        if flags & ffi::SQLITE_SHM_LOCK != 0 {
            return member.lock_memory(which, flags & ffi::SQLITE_SHM_EXCLUSIVE != 0);
        }
        member.unlock_memory(which);
        Ok(())
    })
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: SQLite calls this on an open file.
    let handle = unsafe { opened(file) };
    answer(ffi::SQLITE_IOERR, || {
        member(handle, ffi::SQLITE_IOERR)?.barrier();
        Ok(())
    });
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, _delete: c_int) -> c_int {
    // SAFETY: SQLite calls this on an open file.
    let handle = unsafe { opened(file) };
    answer(ffi::SQLITE_IOERR_SHMMAP, || {
        member(handle, ffi::SQLITE_IOERR_SHMMAP)?.leave_memory();
        Ok(())
    })
}

unsafe extern "C" fn fetch(
    _file: *mut sqlite3_file,
    _at: i64,
    _amount: c_int,
    memory: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite passes a place for the answer: there is none, it reads instead.
    unsafe { *memory = std::ptr::null_mut() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn unfetch(_file: *mut sqlite3_file, _at: i64, _memory: *mut c_void) -> c_int {
    ffi::SQLITE_OK
}
