//! Logs: entries that are durable when they are appended, for one fence.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use lode::{Entries, Log, Pool};

use crate::border::{Outcome, call, set_errno};
use crate::data::offset;
use crate::pointers::{bytes, exclusive, handle, items, path, take};
use crate::pool::{lode_pool, with};

/// A log in a file of a pool. It keeps the pool open.
pub struct lode_log(Log);

/// Entries of a log that are being read. They keep the pool open.
pub struct lode_entries {
    entries: Entries,
    /// What the last entry's data points to.
    data: Vec<u8>,
    entry: lode_entry,
}

/// Some bytes, to be appended as an entry.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lode_data {
    /// Where they are.
    pub data: *const c_void,
    /// How many.
    pub size: usize,
}

/// An entry of a log. Later versions may have more fields at its end.
#[repr(C)]
pub struct lode_entry {
    /// Where it is: positions grow with each entry.
    pub position: i64,
    /// Its bytes.
    pub data: *const c_void,
    /// How many.
    pub size: usize,
}

/// Calls `work` with a log.
///
/// # Safety
/// As for [`handle`].
#[inline]
unsafe fn with_log<T>(log: *mut lode_log, failed: T, work: impl FnOnce(&Log) -> Outcome<T>) -> T {
    // SAFETY: the caller's promise is this one.
    call(failed, || work(&unsafe { handle(log) }?.0))
}

/// Opens the log in a file of a pool, or makes it, with room for `capacity` bytes: each entry takes its own and 16, up to the next
/// multiple of 64. It grows when they are full. Finding its end reads all entries: it ends before the first that is not whole, as
/// a crash leaves the last one, and so does damage; what is appended then takes the place of those behind.
///
/// Returns NULL with errno as lode_open() and lode_mmap() of the file; EINVAL for a file that holds something else, EBUSY while the
/// log is open already, by whatever name; EFBIG for more than a file can have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_log_open(
    pool: *mut lode_pool,
    name: *const c_char,
    capacity: u64,
) -> *mut lode_log {
    let work = |pool: &Pool| {
        // SAFETY: a string, by C's promise.
        let log = Log::open(pool, unsafe { path(name) }?, capacity)?;
        Ok(Box::into_raw(Box::new(lode_log(log))))
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, null_mut(), work) }
}

/// Closes a log. `log` can't be used any more, whatever is returned; entries that are being read can.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_log_close(log: *mut lode_log) -> c_int {
    call(-1, || {
        // SAFETY: a handle that nobody uses from here on, by C's promise.
        drop(unsafe { take(log) }?);
        Ok(0)
    })
}

/// Appends an entry of `size` bytes, durable when this returns; a crash leaves it wholly or not at all. Returns its position.
/// It makes no system call, unless the log grows, or the pool is in an ordinary file.
///
/// Fails with EMSGSIZE for 4 GiB and more; with ENOSPC or ENOMEM where the log has to grow, and nothing is appended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_log_append(
    log: *mut lode_log,
    data: *const c_void,
    size: usize,
) -> i64 {
    // SAFETY: so many bytes, by C's promise.
    let work = |log: &Log| Ok(log.append(unsafe { bytes(data, size) }?)? as i64);
    // SAFETY: a handle, by C's promise.
    unsafe { with_log(log, -1, work) }
}

/// Appends `count` entries under one fence, durable when this returns; a crash before leaves the first of them, any
/// number. Returns the position of the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_log_append_all(
    log: *mut lode_log,
    entries: *const lode_data,
    count: usize,
) -> i64 {
    let work = |log: &Log| {
        // SAFETY: so many of them, each with as many bytes as it says, by C's promise.
        let given = unsafe { items(entries, count) }?.iter();
        // SAFETY: the same.
        let entries: Outcome<Vec<_>> =
            given.map(|given| unsafe { bytes(given.data, given.size) }).collect();
        Ok(log.append_all(&entries?)? as i64)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_log(log, -1, work) }
}

/// Where the next entry will be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_log_position(log: *mut lode_log) -> i64 {
    // SAFETY: a handle, by C's promise.
    unsafe { with_log(log, -1, |log| Ok(log.end() as i64)) }
}

/// Empties a log, in one atomic and durable step; its space stays taken. Entries that are being read end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_log_clear(log: *mut lode_log) -> c_int {
    // SAFETY: a handle, by C's promise.
    unsafe { with_log(log, -1, |log| Ok(log.clear().map(|()| 0)?)) }
}

/// Begins to read the entries from `position` on, as many as there are now: 0 for the first, or one that lode_log_append() has
/// returned. Returns NULL with errno EINVAL where no entry can begin; where none does, lode_entries_next() fails with EIO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_log_read(log: *mut lode_log, position: i64) -> *mut lode_entries {
    let work = |log: &Log| {
        let entries = log.entries(offset(position)?)?;
        let entry = lode_entry { position: 0, data: null(), size: 0 };
        Ok(Box::into_raw(Box::new(lode_entries { entries, data: Vec::new(), entry })))
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_log(log, null_mut(), work) }
}

/// The next entry, in the order of their appending. It is valid until the next call with these `entries`, of which one thread
/// at a time makes use.
///
/// Returns NULL at the end, with errno 0, and where it fails, with another: EIO for an entry that is damaged, behind which nothing is read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_entries_next(entries: *mut lode_entries) -> *const lode_entry {
    call(null(), || {
        // SAFETY: a handle that nobody else uses meanwhile, by C's promise.
        let reading = unsafe { exclusive(entries) }?;
        let Some((position, data)) = reading.entries.next().transpose()? else {
            set_errno(0);
            return Ok(null());
        };
        reading.data = data;
        let (data, size) = (reading.data.as_ptr().cast(), reading.data.len());
        reading.entry = lode_entry { position: position as i64, data, size };
        Ok(&reading.entry)
    })
}

/// Ends reading. `entries` can't be used any more, whatever is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_entries_close(entries: *mut lode_entries) -> c_int {
    call(-1, || {
        // SAFETY: a handle that nobody uses from here on, by C's promise.
        drop(unsafe { take(entries) }?);
        Ok(0)
    })
}
