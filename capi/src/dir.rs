//! Listings.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null, null_mut};

use lode::{DirEntry, FileType, Pool, ReadDir};

use crate::border::{call, set_errno};
use crate::pointers::{exclusive, path, take};
use crate::pool::{lode_pool, with};

/// A directory that is listed.
pub struct lode_dir {
    entries: ReadDir,
    /// What the last entry's name points to.
    name: Vec<u8>,
    entry: lode_dirent,
}

/// An entry of a directory. Later versions may have more fields at its end.
#[repr(C)]
pub struct lode_dirent {
    /// Number of the inode.
    pub ino: u64,
    /// What kind of file it is, as in lode_stat: S_ISDIR(entry->mode), for example. It has no permissions.
    pub mode: u32,
    /// Bytes of the name.
    pub length: u32,
    /// The name, with a NUL at its end.
    pub name: *const c_char,
}

impl lode_dir {
    pub(crate) fn new(entries: ReadDir) -> Self {
        let entry = lode_dirent { ino: 0, mode: 0, length: 0, name: null() };
        Self { entries, name: Vec::new(), entry }
    }

    fn show(&mut self, entry: &DirEntry) -> *const lode_dirent {
        let name = entry.file_name_ref().as_bytes();
        self.name.clear();
        self.name.extend_from_slice(name);
        self.name.push(0);
        self.entry = lode_dirent {
            ino: entry.ino(),
            mode: kind_bits(entry.file_type()),
            length: name.len() as u32,
            name: self.name.as_ptr().cast(),
        };
        &self.entry
    }
}

fn kind_bits(kind: FileType) -> u32 {
    match kind {
        kind if kind.is_dir() => libc::S_IFDIR,
        kind if kind.is_symlink() => libc::S_IFLNK,
        kind if kind.is_fifo() => libc::S_IFIFO,
        kind if kind.is_socket() => libc::S_IFSOCK,
        kind if kind.is_block_device() => libc::S_IFBLK,
        kind if kind.is_char_device() => libc::S_IFCHR,
        _ => libc::S_IFREG,
    }
}

/// Opens a directory to list it, as opendir(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_opendir(pool: *mut lode_pool, name: *const c_char) -> *mut lode_dir {
    let work = |pool: &Pool| {
        // SAFETY: a string, by C's promise.
        let entries = pool.read_dir(unsafe { path(name) }?)?;
        Ok(Box::into_raw(Box::new(lode_dir::new(entries))))
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, null_mut(), work) }
}

/// The next entry of a directory, in no stated order, without "." and "..", as readdir(3). It is valid until the next call
/// with this `dir`, of which one thread at a time makes use.
///
/// Returns NULL at the end, with errno 0, and where it fails, with another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_readdir(dir: *mut lode_dir) -> *const lode_dirent {
    call(null(), || {
        // SAFETY: a handle that nobody else uses meanwhile, by C's promise.
        let dir = unsafe { exclusive(dir) }?;
        match dir.entries.next().transpose()? {
            Some(entry) => Ok(dir.show(&entry)),
            None => {
                set_errno(0);
                Ok(null())
            }
        }
    })
}

/// Ends a listing. `dir` can't be used any more, whatever is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_closedir(dir: *mut lode_dir) -> c_int {
    call(-1, || {
        // SAFETY: a handle that nobody uses from here on, by C's promise.
        drop(unsafe { take(dir) }?);
        Ok(0)
    })
}
