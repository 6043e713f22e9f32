//! The calls of SQLite on the pool: opening, removing, looking; and what it wants of the system.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::slice;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libsqlite3_sys::{self as ffi, sqlite3_file, sqlite3_vfs};

use crate::error::{Outcome, answer, last_errno, path};
use crate::handle::Handle;
use crate::io::OpenFile;
use crate::node::Databases;
use crate::{extensions, paths};

/// Longest path.
const PATH_MAX: c_int = 4096;

/// Milliseconds from the beginning of SQLite's days to that of Unix's seconds.
const JULIAN_MS: i64 = 210_866_760_000_000;

/// What a VFS is, beside SQLite's part of it.
pub(crate) struct Application {
    name: CString,
    /// Whoever has registered it has these, and each open file.
    databases: Weak<Databases>,
}

impl Application {
    fn databases(&self) -> Outcome<Arc<Databases>> {
        self.databases.upgrade().ok_or(ffi::SQLITE_CANTOPEN)
    }
}

/// Makes a VFS. It is there for ever: a connection may remember it that has nothing open.
pub(crate) fn make(name: CString, databases: &Arc<Databases>) -> &'static mut sqlite3_vfs {
    let application = Application { name, databases: Arc::downgrade(databases) };
    let application: &'static Application = Box::leak(Box::new(application));
    Box::leak(Box::new(sqlite3_vfs {
        iVersion: 2,
        szOsFile: size_of::<OpenFile>() as c_int,
        mxPathname: PATH_MAX,
        pNext: std::ptr::null_mut(),
        zName: application.name.as_ptr(),
        pAppData: std::ptr::from_ref(application).cast_mut().cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: Some(extensions::open),
        xDlError: Some(extensions::error),
        xDlSym: Some(extensions::symbol),
        xDlClose: Some(extensions::close),
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(get_last_error),
        xCurrentTimeInt64: Some(current_time_ms),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }))
}

/// What belongs to a VFS.
///
/// # Safety
/// `vfs` is from [`make`].
unsafe fn application(vfs: *mut sqlite3_vfs) -> &'static Application {
    // SAFETY: so it was made, and is never freed; nobody has it exclusively.
    unsafe { &*(*vfs).pAppData.cast::<Application>() }
}

/// A name that SQLite gives; `None` where it gives none.
///
/// # Safety
/// `name` is null or a string that stays as it is for all of `'a`.
unsafe fn text<'a>(name: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    came_true: *mut c_int,
) -> c_int {
    // SAFETY: SQLite has so much memory for the file as the VFS said. Until it is open it is closed.
    unsafe { file.write(OpenFile::CLOSED) };
    // SAFETY: SQLite calls this on a VFS that was made here, with a name that stays.
    let (application, text) = unsafe { (application(vfs), text(name)) };
    answer(ffi::SQLITE_CANTOPEN, || {
        let databases = application.databases()?;
        let (handle, flags) = Handle::open(&databases, text.map(path), flags)?;
        if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 && flags & ffi::SQLITE_OPEN_URI != 0 {
            // SAFETY: names of databases have their URI's parameters behind them.
            let wanted = unsafe { ffi::sqlite3_uri_boolean(name, c"psow".as_ptr(), 1) };
            handle.powersafe.store(wanted != 0, std::sync::atomic::Ordering::Relaxed);
        }
        // SAFETY: the file's memory is as large as this, and aligned; the place for flags may be null.
        unsafe {
            file.cast::<OpenFile>().write(OpenFile::new(handle, &application.name));
            if let Some(place) = came_true.as_mut() {
                *place = flags;
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, _sync: c_int) -> c_int {
    // SAFETY: SQLite calls this on a VFS that was made here, with a name that stays.
    let (application, text) = unsafe { (application(vfs), text(name)) };
    answer(ffi::SQLITE_IOERR_DELETE, || {
        let text = text.ok_or(ffi::SQLITE_IOERR_DELETE)?;
        paths::delete(&application.databases()?.pool, path(text))
    })
}

unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    wanted: c_int,
    result: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls this on a VFS that was made here, with a name that stays and a place for
    // the answer.
    let (application, text, result) = unsafe { (application(vfs), text(name), &mut *result) };
    answer(ffi::SQLITE_IOERR_ACCESS, || {
        let text = text.ok_or(ffi::SQLITE_IOERR_ACCESS)?;
        *result = paths::access(&application.databases()?.pool, path(text), wanted)?.into();
        Ok(())
    })
}

unsafe extern "C" fn full_pathname(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    size: c_int,
    full: *mut c_char,
) -> c_int {
    let size = usize::try_from(size).unwrap_or(0);
    // SAFETY: SQLite calls this on a VFS that was made here, with a name that stays and so much memory
    // for the answer.
    let (application, text, full) = unsafe {
        (application(vfs), text(name), slice::from_raw_parts_mut(full.cast::<u8>(), size))
    };
    answer(ffi::SQLITE_CANTOPEN_FULLPATH, || {
        let text = text.ok_or(ffi::SQLITE_CANTOPEN_FULLPATH)?;
        let (found, linked) = paths::full(&application.databases()?.pool, path(text))?;
        let bytes = found.as_os_str().as_bytes();
        let Some((end, place)) = full.get_mut(..=bytes.len()).and_then(<[u8]>::split_last_mut)
        else {
            return Err(ffi::SQLITE_CANTOPEN_FULLPATH);
        };
        place.copy_from_slice(bytes);
        *end = 0;
        if linked { Err(ffi::SQLITE_OK_SYMLINK) } else { Ok(()) }
    })
}

unsafe extern "C" fn randomness(_vfs: *mut sqlite3_vfs, count: c_int, into: *mut c_char) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: SQLite passes so much memory.
    let into = unsafe { slice::from_raw_parts_mut(into.cast::<u8>(), count) };
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => done += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    done as c_int
}

unsafe extern "C" fn sleep(_vfs: *mut sqlite3_vfs, microseconds: c_int) -> c_int {
    std::thread::sleep(Duration::from_micros(u64::try_from(microseconds).unwrap_or(0)));
    microseconds
}

/// Milliseconds since SQLite's days began.
fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    JULIAN_MS.saturating_add(i64::try_from(now.as_millis()).unwrap_or(0))
}

unsafe extern "C" fn current_time_ms(_vfs: *mut sqlite3_vfs, now: *mut i64) -> c_int {
    // SAFETY: SQLite passes a place for the answer.
    unsafe { *now = now_ms() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time(_vfs: *mut sqlite3_vfs, days: *mut f64) -> c_int {
    // SAFETY: SQLite passes a place for the answer.
    unsafe { *days = now_ms() as f64 / 86_400_000.0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn get_last_error(
    _vfs: *mut sqlite3_vfs,
    _size: c_int,
    _text: *mut c_char,
) -> c_int {
    last_errno()
}
