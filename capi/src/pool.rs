//! Pools: opened, made, closed.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use lode::Pool;

use crate::border::{Failure, Outcome, call};
use crate::options::{
    LODE_POOL_READ_ONLY, LODE_POOL_RELAXED, format_options, lode_format_options, lode_pool_options,
    pool_options,
};
use crate::pointers::{handle, path, place, take};

/// An open pool.
pub struct lode_pool(Pool);

/// Space and inodes of a pool.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct lode_statfs {
    /// Bytes of a block.
    pub bsize: u64,
    /// Blocks of the pool.
    pub blocks: u64,
    /// Blocks that hold nothing.
    pub bfree: u64,
    /// Blocks that can be had: the others are kept so that a full pool can be emptied.
    pub bavail: u64,
    /// Inodes, used and free.
    pub files: u64,
    /// Inodes that could still be made.
    pub ffree: u64,
    /// Bytes of the longest name.
    pub namemax: u64,
    /// LODE_POOL_READ_ONLY where changes are refused, asked for or since the medium failed; LODE_POOL_RELAXED
    /// where overwrites may be torn.
    pub flags: u64,
    /// Zeros, for later versions.
    pub reserved: [u64; 8],
}

/// Calls `work` with a pool.
///
/// # Safety
/// As for [`handle`].
pub(crate) unsafe fn with<T>(
    pool: *mut lode_pool,
    failed: T,
    work: impl FnOnce(&Pool) -> Outcome<T>,
) -> T {
    // SAFETY: the caller's promise is this one.
    call(failed, || work(&unsafe { handle(pool) }?.0))
}

/// Gives a pool to C.
fn give(pool: Pool) -> *mut lode_pool {
    Box::into_raw(Box::new(lode_pool(pool)))
}

/// Opens the pool in a file or device of the system, and recovers it if it was not closed.
/// `options` may be NULL: read-write.
///
/// Returns NULL with errno EBUSY where somebody else has it open, this process or another; EINVAL
/// for what is no pool; EIO for one that is damaged (`lode fsck` tells more).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_pool_open(
    file: *const c_char,
    options: *const lode_pool_options,
) -> *mut lode_pool {
    call(null_mut(), || {
        // SAFETY: strings and options are what they should be by C's promise.
        let (file, options) = unsafe { (path(file)?, pool_options(options)?) };
        Ok(give(options.open(file)?))
    })
}

/// Makes a pool of `bytes` bytes in a file or device of the system, and opens it. What is there is
/// replaced only with LODE_POOL_OVERWRITE, and when the new pool is finished. (A device is always
/// there; all of it is taken for 0 bytes.) `options` and `format` may be NULL.
///
/// Returns NULL with errno EEXIST, ENOSPC, EINVAL for what can't become a pool, and as
/// lode_pool_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_pool_create(
    file: *const c_char,
    bytes: u64,
    options: *const lode_pool_options,
    format: *const lode_format_options,
) -> *mut lode_pool {
    call(null_mut(), || {
        // SAFETY: strings and options are what they should be by C's promise.
        let (file, options, format) =
            unsafe { (path(file)?, pool_options(options)?, format_options(format)?) };
        Ok(give(options.create(file, bytes, &format)?))
    })
}

/// Makes a pool of `bytes` bytes in memory that is nobody else's, and gone when it is closed: for
/// tests, and for what need not be kept. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_pool_in_memory(
    bytes: u64,
    options: *const lode_pool_options,
) -> *mut lode_pool {
    call(null_mut(), || {
        // SAFETY: options are what they should be by C's promise.
        let options = unsafe { pool_options(options) }?;
        Ok(give(options.in_memory(bytes)?))
    })
}

/// Closes a pool: its next opening has nothing to recover. `pool` can't be used any more, whatever
/// is returned.
///
/// Fails with EBUSY where files, directories, maps, logs, entries of logs, kept heaps or snapshots are open: they can be
/// used on, and the pool is closed with the last of them. Whatever the error, nothing that a call had done is lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_pool_close(pool: *mut lode_pool) -> c_int {
    call(-1, || {
        // SAFETY: a handle that nobody uses from here on, by C's promise.
        let pool = unsafe { take(pool) }?;
        pool.0.close()?;
        Ok(0)
    })
}

/// Nothing to do: what has returned is durable. Fails with EIO if the pool is not all right any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_pool_sync(pool: *mut lode_pool) -> c_int {
    let work = |pool: &Pool| Ok(pool.sync().map(|()| 0)?);
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}

/// Space and inodes, as statvfs(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_statfs(pool: *mut lode_pool, buffer: *mut lode_statfs) -> c_int {
    let work = |pool: &Pool| {
        // SAFETY: a place for the structure, by C's promise.
        let buffer = unsafe { place(buffer) }?;
        let space = pool.statfs()?;
        let read_only = if pool.is_read_only()? { LODE_POOL_READ_ONLY } else { 0 };
        let relaxed = if pool.is_relaxed()? { LODE_POOL_RELAXED } else { 0 };
        buffer.write(lode_statfs {
            bsize: 4096,
            blocks: space.pages,
            bfree: space.pages_free,
            bavail: space.pages_available,
            files: space.inodes.saturating_add(space.inodes_free),
            ffree: space.inodes_free,
            namemax: 255,
            flags: read_only | relaxed,
            reserved: [0; 8],
        });
        Ok(0)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}

/// Calls `work` with a pool and a path.
///
/// # Safety
/// As for [`handle`] and [`path`].
pub(crate) unsafe fn with_path(
    pool: *mut lode_pool,
    name: *const c_char,
    work: impl FnOnce(&Pool, &std::path::Path) -> lode::Result<()>,
) -> c_int {
    let work = |pool: &Pool| {
        // SAFETY: the caller's promise is this one.
        work(pool, unsafe { path(name) }?)?;
        Ok::<_, Failure>(0)
    };
    // SAFETY: the caller's promise is this one.
    unsafe { with(pool, -1, work) }
}
