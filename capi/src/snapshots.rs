//! Snapshots: made, listed, deleted, looked into, returned to.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use lode::{Pool, Snapshot, SnapshotInfo};

use crate::border::{Outcome, call, set_errno};
use crate::dir::lode_dir;
use crate::names::store_target;
use crate::open::lode_file;
use crate::options::{lode_pool_options, pool_options};
use crate::pointers::{exclusive, handle, path, take};
use crate::pool::{lode_pool, with, with_path};
use crate::stat::{lode_stat, lode_timespec, store};

const PAGE_BYTES: u64 = 4096;

/// Keeps what is in a pool now, under a name of 1 to 128 bytes without a slash. It takes a moment, and a page or two:
/// what is changed or removed from then on is kept for it. It can be made while files are mapped, and logs and kept heaps
/// are open: of what is stored there it has what was stored before.
///
/// Fails with EEXIST for a name that there is; ENOMEM where the system can't keep stores out of a map; EINVAL and
/// ENAMETOOLONG for names that can't be; ENOSPC and EROFS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_snapshot_create(pool: *mut lode_pool, name: *const c_char) -> c_int {
    // SAFETY: a handle and a string, by C's promise.
    unsafe { with_path(pool, name, |pool, name| pool.create_snapshot(name)) }
}

/// Deletes a snapshot (ENOENT if there is none of this name). What it alone kept becomes free in the background, or when it
/// is needed. Calls with a file of it that is open fail with ESTALE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_snapshot_delete(pool: *mut lode_pool, name: *const c_char) -> c_int {
    // SAFETY: a handle and a string, by C's promise.
    unsafe { with_path(pool, name, |pool, name| pool.delete_snapshot(name)) }
}

/// Makes the pool in a file or device of the system, which nobody has open, what it was when a snapshot was made, in one
/// atomic step. What came later is lost; later snapshots go as well. Of `options`, which may be
/// NULL, the flush strategy and the windows count.
///
/// Fails with ENOENT if there is no such snapshot, with EIO where something of it is lost (then nothing has changed), with EBUSY and so
/// on as lode_pool_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_snapshot_rollback(
    file: *const c_char,
    name: *const c_char,
    options: *const lode_pool_options,
) -> c_int {
    call(-1, || {
        // SAFETY: strings and options are what they should be by C's promise.
        let (file, name, options) = unsafe { (path(file)?, path(name)?, pool_options(options)?) };
        Ok(options.rollback(file, name).map(|()| 0)?)
    })
}

/// The snapshots of a pool, to be listed.
pub struct lode_snapshots {
    left: std::vec::IntoIter<SnapshotInfo>,
    /// What the last one's name points to.
    name: Vec<u8>,
    info: lode_snapshot_info,
}

/// A snapshot, and what is kept for it. Later versions may have more fields at its end.
#[repr(C)]
pub struct lode_snapshot_info {
    /// The name, with a NUL at its end.
    pub name: *const c_char,
    /// Bytes of the name.
    pub length: u32,
    /// The epoch that it ended: those of later snapshots are higher.
    pub epoch: u32,
    /// When it was made.
    pub created: lode_timespec,
    /// Bytes that are kept for it and for older ones: free when all these are deleted.
    pub bytes: u64,
    /// Bytes of these that it alone sees: free when it is deleted.
    pub bytes_alone: u64,
}

impl lode_snapshots {
    fn show(&mut self, one: &SnapshotInfo) -> *const lode_snapshot_info {
        const SECOND: i64 = 1_000_000_000;
        self.name.clear();
        self.name.extend_from_slice(&one.name);
        self.name.push(0);
        let created = lode_timespec {
            sec: one.created_ns.div_euclid(SECOND),
            nsec: one.created_ns.rem_euclid(SECOND),
        };
        self.info = lode_snapshot_info {
            name: self.name.as_ptr().cast(),
            length: one.name.len() as u32,
            epoch: one.epoch,
            created,
            bytes: one.pages.saturating_mul(PAGE_BYTES),
            bytes_alone: one.pages_alone.saturating_mul(PAGE_BYTES),
        };
        &self.info
    }
}

/// Begins a list of a pool's snapshots, as they are now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_snapshots_open(pool: *mut lode_pool) -> *mut lode_snapshots {
    let work = |pool: &Pool| {
        let left = pool.snapshots()?.into_iter();
        let info = lode_snapshot_info {
            name: null(),
            length: 0,
            epoch: 0,
            created: lode_timespec::default(),
            bytes: 0,
            bytes_alone: 0,
        };
        Ok(Box::into_raw(Box::new(lode_snapshots { left, name: Vec::new(), info })))
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, null_mut(), work) }
}

/// The next snapshot of a list, the oldest first. It is valid until the next call with this `list`, of which one thread at
/// a time makes use. Returns NULL at the end, with errno 0, and where it fails, with another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_snapshots_next(
    list: *mut lode_snapshots,
) -> *const lode_snapshot_info {
    call(null(), || {
        // SAFETY: a handle that nobody else uses meanwhile, by C's promise.
        let list = unsafe { exclusive(list) }?;
        match list.left.next() {
            Some(one) => Ok(list.show(&one)),
            None => {
                set_errno(0);
                Ok(null())
            }
        }
    })
}

/// Ends a list. `list` can't be used any more, whatever is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_snapshots_close(list: *mut lode_snapshots) -> c_int {
    call(-1, || {
        // SAFETY: a handle that nobody uses from here on, by C's promise.
        drop(unsafe { take(list) }?);
        Ok(0)
    })
}

/// A snapshot, to look into it. It keeps the pool open.
pub struct lode_snapshot(Snapshot);

/// Calls `work` with a snapshot and a path in it.
///
/// # Safety
/// As for [`handle`] and [`path`].
unsafe fn with_snapshot<T>(
    snapshot: *mut lode_snapshot,
    name: *const c_char,
    failed: T,
    work: impl FnOnce(&Snapshot, &Path) -> Outcome<T>,
) -> T {
    // SAFETY: the caller's promise is this one.
    call(failed, || unsafe { work(&handle(snapshot)?.0, path(name)?) })
}

/// A snapshot, to look into it: paths lead to what they led to when it was made. ENOENT if there is none of this
/// name; once it is deleted, calls with it fail with ENOENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_snapshot_open(
    pool: *mut lode_pool,
    name: *const c_char,
) -> *mut lode_snapshot {
    let work = |pool: &Pool| {
        // SAFETY: a string, by C's promise.
        let snapshot = pool.snapshot(unsafe { path(name) }?)?;
        Ok(Box::into_raw(Box::new(lode_snapshot(snapshot))))
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, null_mut(), work) }
}

/// Ends looking into a snapshot, which stays; files and directories of it that are open stay open. `snapshot` can't be used
/// any more, whatever is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_snapshot_close(snapshot: *mut lode_snapshot) -> c_int {
    call(-1, || {
        // SAFETY: a handle that nobody uses from here on, by C's promise.
        drop(unsafe { take(snapshot) }?);
        Ok(0)
    })
}

/// Opens a file of a snapshot to read it, as lode_open() with LODE_O_RDONLY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_snapshot_open_file(
    snapshot: *mut lode_snapshot,
    name: *const c_char,
) -> *mut lode_file {
    let work = |snapshot: &Snapshot, name: &Path| {
        let file = lode_file::to_read(snapshot.open_file(name)?);
        Ok(Box::into_raw(Box::new(file)))
    };
    // SAFETY: a handle and a string, by C's promise.
    unsafe { with_snapshot(snapshot, name, null_mut(), work) }
}

/// Opens a directory of a snapshot to list it, for lode_readdir() and lode_closedir().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_snapshot_opendir(
    snapshot: *mut lode_snapshot,
    name: *const c_char,
) -> *mut lode_dir {
    let work = |snapshot: &Snapshot, name: &Path| {
        Ok(Box::into_raw(Box::new(lode_dir::new(snapshot.read_dir(name)?))))
    };
    // SAFETY: a handle and a string, by C's promise.
    unsafe { with_snapshot(snapshot, name, null_mut(), work) }
}

/// As lode_stat(), in a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_snapshot_stat(
    snapshot: *mut lode_snapshot,
    name: *const c_char,
    buffer: *mut lode_stat,
) -> c_int {
    // SAFETY: a place for the structure, by C's promise.
    let work = |snapshot: &Snapshot, name: &Path| unsafe { store(buffer, snapshot.metadata(name)) };
    // SAFETY: a handle and a string, by C's promise.
    unsafe { with_snapshot(snapshot, name, -1, work) }
}

/// As lode_lstat(), in a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_snapshot_lstat(
    snapshot: *mut lode_snapshot,
    name: *const c_char,
    buffer: *mut lode_stat,
) -> c_int {
    // SAFETY: a place for the structure, by C's promise.
    let work = |snapshot: &Snapshot, name: &Path| unsafe {
        store(buffer, snapshot.symlink_metadata(name))
    };
    // SAFETY: a handle and a string, by C's promise.
    unsafe { with_snapshot(snapshot, name, -1, work) }
}

/// As lode_readlink(), in a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_snapshot_readlink(
    snapshot: *mut lode_snapshot,
    name: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    // SAFETY: a buffer of this size, by C's promise.
    let work = |snapshot: &Snapshot, name: &Path| unsafe {
        store_target(buffer.cast::<c_void>(), size, || snapshot.read_link(name))
    };
    // SAFETY: a handle and a string, by C's promise.
    unsafe { with_snapshot(snapshot, name, -1, work) }
}
