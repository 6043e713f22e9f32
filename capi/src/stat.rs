//! What is known of files.

use std::ffi::{c_char, c_int};

use lode::{Metadata, Pool};

use crate::border::Outcome;
use crate::open::{lode_file, with_file};
use crate::pointers::{path, place};
use crate::pool::{lode_pool, with};

/// A time since 1970.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct lode_timespec {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds of the second.
    pub nsec: i64,
}

/// What is known of a file, directory or symbolic link.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct lode_stat {
    /// A number for the pool.
    pub dev: u64,
    /// Number of the inode.
    pub ino: u64,
    /// Differs between the lives of one inode number.
    pub generation: u64,
    /// Names that it has.
    pub nlink: u64,
    /// Type and permissions: S_ISDIR(mode) and so on.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Zero.
    pub reserved0: u32,
    /// Number of the device that it stands for.
    pub rdev: u64,
    /// Size in bytes.
    pub size: u64,
    /// Bytes that are best read and written at a time.
    pub blksize: u64,
    /// Blocks of 512 bytes that its data takes.
    pub blocks: u64,
    /// When it was read last, as far as that is kept.
    pub atim: lode_timespec,
    /// When its contents changed last.
    pub mtim: lode_timespec,
    /// When it changed last.
    pub ctim: lode_timespec,
    /// When it was made.
    pub btim: lode_timespec,
    /// Zeros, for later versions.
    pub reserved: [u64; 8],
}

impl From<&Metadata> for lode_stat {
    fn from(found: &Metadata) -> Self {
        let time = |sec, nsec| lode_timespec { sec, nsec };
        Self {
            dev: found.dev(),
            ino: found.ino(),
            generation: found.generation(),
            nlink: found.nlink(),
            mode: found.mode(),
            uid: found.uid(),
            gid: found.gid(),
            reserved0: 0,
            rdev: found.rdev(),
            size: found.size(),
            blksize: found.blksize(),
            blocks: found.blocks(),
            atim: time(found.atime(), found.atime_nsec()),
            mtim: time(found.mtime(), found.mtime_nsec()),
            ctim: time(found.ctime(), found.ctime_nsec()),
            btim: birth(found),
            reserved: [0; 8],
        }
    }
}

fn birth(found: &Metadata) -> lode_timespec {
    let epoch = std::time::SystemTime::UNIX_EPOCH;
    let ns = match found.created().duration_since(epoch) {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    };
    const SECOND: i128 = 1_000_000_000;
    lode_timespec { sec: ns.div_euclid(SECOND) as i64, nsec: ns.rem_euclid(SECOND) as i64 }
}

/// Stores what is known.
///
/// # Safety
/// As for [`place`].
pub(crate) unsafe fn store(
    buffer: *mut lode_stat,
    found: lode::Result<Metadata>,
) -> Outcome<c_int> {
    // SAFETY: the caller's promise is this one.
    let buffer = unsafe { place(buffer) }?;
    buffer.write(lode_stat::from(&found?));
    Ok(0)
}

/// Stores what is known of what a path leads to, as stat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_stat(
    pool: *mut lode_pool,
    name: *const c_char,
    buffer: *mut lode_stat,
) -> c_int {
    let work = |pool: &Pool| {
        // SAFETY: a string, and a place for the structure, by C's promise.
        unsafe { store(buffer, pool.metadata(path(name)?)) }
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}

/// The same; of a symbolic link itself, as lstat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_lstat(
    pool: *mut lode_pool,
    name: *const c_char,
    buffer: *mut lode_stat,
) -> c_int {
    let work = |pool: &Pool| {
        // SAFETY: a string, and a place for the structure, by C's promise.
        unsafe { store(buffer, pool.symlink_metadata(path(name)?)) }
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}

/// The same of an open file, as fstat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_fstat(file: *mut lode_file, buffer: *mut lode_stat) -> c_int {
    let work = |file: &lode_file| {
        // SAFETY: a place for the structure, by C's promise.
        unsafe { store(buffer, file.any().metadata()) }
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, -1, work) }
}
