//! Calls of a VFS, without SQLite in between.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null;

use libsqlite3_sys::{self as ffi, sqlite3_file, sqlite3_io_methods, sqlite3_vfs};

use super::Place;

pub const MADE: c_int = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE;
pub const DATABASE: c_int = MADE | ffi::SQLITE_OPEN_MAIN_DB;
pub const JOURNAL: c_int = MADE | ffi::SQLITE_OPEN_MAIN_JOURNAL;

pub fn vfs(place: &Place) -> *mut sqlite3_vfs {
    // SAFETY: the name lives as long as the call.
    let found = unsafe { ffi::sqlite3_vfs_find(place.vfs.name().as_ptr()) };
    assert!(!found.is_null());
    found
}

/// An open file, closed when it is dropped.
pub struct Raw {
    memory: Box<[u64]>,
    pub flags: c_int,
}

impl Raw {
    pub fn open(place: &Place, name: Option<&str>, flags: c_int) -> Result<Self, c_int> {
        let vfs = vfs(place);
        let name = name.map(|name| CString::new(name).unwrap());
        // SAFETY: the VFS is registered; the memory is as large as it says, the name as SQLite has it.
        unsafe {
            let size = usize::try_from((*vfs).szOsFile).unwrap().div_ceil(8);
            let mut raw = Self { memory: vec![u64::MAX; size].into(), flags: 0 };
            let name = name.as_ref().map_or(null(), |name| name.as_ptr());
            let file = raw.file();
            let code = ((*vfs).xOpen.unwrap())(vfs, name, file, flags, &raw mut raw.flags);
            assert_eq!(code == ffi::SQLITE_OK, !(*file).pMethods.is_null());
            if code == ffi::SQLITE_OK { Ok(raw) } else { Err(code) }
        }
    }

    pub fn database(place: &Place, name: &str) -> Self {
        Self::open(place, Some(name), DATABASE).unwrap()
    }

    pub fn file(&mut self) -> *mut sqlite3_file {
        self.memory.as_mut_ptr().cast()
    }

    pub fn call(
        &mut self,
        work: impl FnOnce(&sqlite3_io_methods, *mut sqlite3_file) -> c_int,
    ) -> c_int {
        let file = self.file();
        // SAFETY: the file is open.
        work(unsafe { &*(*file).pMethods }, file)
    }

    pub fn write(&mut self, data: &[u8], at: i64) -> c_int {
        // SAFETY: the file is open, and the data there.
        self.call(|methods, file| unsafe {
            methods.xWrite.unwrap()(file, data.as_ptr().cast(), data.len() as c_int, at)
        })
    }

    pub fn read(&mut self, count: usize, at: i64) -> (c_int, Vec<u8>) {
        let mut into = vec![0xaa; count];
        // SAFETY: the file is open, and the place for what is read there.
        let code = self.call(|methods, file| unsafe {
            methods.xRead.unwrap()(file, into.as_mut_ptr().cast(), count as c_int, at)
        });
        (code, into)
    }

    pub fn size(&mut self) -> i64 {
        let mut size = -1;
        // SAFETY: the file is open.
        let code =
            self.call(|methods, file| unsafe { methods.xFileSize.unwrap()(file, &mut size) });
        assert_eq!(code, ffi::SQLITE_OK);
        size
    }

    pub fn truncate(&mut self, size: i64) -> c_int {
        // SAFETY: the file is open.
        self.call(|methods, file| unsafe { methods.xTruncate.unwrap()(file, size) })
    }

    pub fn lock(&mut self, level: c_int) -> c_int {
        // SAFETY: the file is open.
        self.call(|methods, file| unsafe { methods.xLock.unwrap()(file, level) })
    }

    pub fn unlock(&mut self, level: c_int) -> c_int {
        // SAFETY: the file is open.
        self.call(|methods, file| unsafe { methods.xUnlock.unwrap()(file, level) })
    }

    pub fn is_reserved(&mut self) -> bool {
        let mut reserved = -1;
        // SAFETY: the file is open.
        let code = self.call(|methods, file| unsafe {
            methods.xCheckReservedLock.unwrap()(file, &mut reserved)
        });
        assert_eq!(code, ffi::SQLITE_OK);
        reserved == 1
    }

    pub fn control<T>(&mut self, op: c_int, argument: &mut T) -> c_int {
        // SAFETY: the file is open; each test passes what the operation takes.
        self.call(|methods, file| unsafe {
            methods.xFileControl.unwrap()(file, op, (&raw mut *argument).cast::<c_void>())
        })
    }

    pub fn characteristics(&mut self) -> c_int {
        // SAFETY: the file is open.
        self.call(|methods, file| unsafe { methods.xDeviceCharacteristics.unwrap()(file) })
    }

    pub fn shm(&mut self, from: c_int, count: c_int, flags: c_int) -> c_int {
        // SAFETY: the file is open.
        self.call(|methods, file| unsafe { methods.xShmLock.unwrap()(file, from, count, flags) })
    }

    pub fn map(&mut self, region: c_int, make: bool) -> *mut u8 {
        let mut memory: *mut c_void = 1 as _;
        // SAFETY: the file is open.
        let code = self.call(|methods, file| unsafe {
            methods.xShmMap.unwrap()(file, region, 32 << 10, make.into(), &mut memory)
        });
        assert_eq!(code, ffi::SQLITE_OK);
        memory.cast()
    }

    pub fn unmap(&mut self) {
        // SAFETY: the file is open.
        let code = self.call(|methods, file| unsafe { methods.xShmUnmap.unwrap()(file, 1) });
        assert_eq!(code, ffi::SQLITE_OK);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // An opening that failed has no methods, and needs no closing.
        let file = self.file();
        // SAFETY: the file is open, if it has methods.
        unsafe {
            if let Some(methods) = (*file).pMethods.as_ref() {
                assert_eq!(methods.xClose.unwrap()(file), ffi::SQLITE_OK);
            }
        }
    }
}
