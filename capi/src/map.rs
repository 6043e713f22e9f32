//! Files as memory.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr::null_mut;

use lode::{Map, MapOptions, Staging};

use crate::border::{Failure, Outcome, call};
use crate::data::offset;
use crate::open::{lode_file, with_file};
use crate::opening::class;
use crate::pointers::{bytes, bytes_mut, handle, items, take};

/// Bytes of a file as memory. It keeps the file's contents, and the pool, open.
pub struct lode_map(Map);

/// Some bytes of a map.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lode_range {
    /// Where they begin, from the beginning of the map.
    pub offset: i64,
    /// How many.
    pub size: u64,
}

/// It can be stored to.
pub const LODE_MAP_WRITE: c_int = 1;
/// All pages are mapped at once: no later access waits for the system.
pub const LODE_MAP_POPULATE: c_int = 2;

/// Staged pages hold what the file's do.
pub const LODE_STAGE_COPIED: c_int = 0;
/// Staged pages hold zeros: for who stores all of them.
pub const LODE_STAGE_ZEROED: c_int = 1;

/// Calls `work` with a map.
///
/// # Safety
/// As for [`handle`].
#[inline]
unsafe fn with_map<T>(map: *mut lode_map, failed: T, work: impl FnOnce(&Map) -> Outcome<T>) -> T {
    // SAFETY: the caller's promise is this one.
    call(failed, || work(&unsafe { handle(map) }?.0))
}

/// Some bytes; that they are in the map is looked at by the library.
fn range(at: i64, size: u64) -> Outcome<Range<u64>> {
    let at = offset(at)?;
    Ok(at..at.saturating_add(size))
}

/// Maps `size` bytes of a file at `at`, a multiple of 4096, as memory of this process: the file's own pages, no copy.
/// Holes are backed with memory first. `flags` are LODE_MAP_...; to be stored to, the file has to be open for
/// reading and writing. The address is aligned as `at` is, to 2 MiB for maps of that length, to 1 GiB for
/// maps of that length. The map stays when the file is closed, or removed.
///
/// Snapshots can be made meanwhile: the first store to each page after that costs a fault and a copy, and is a SIGSEGV where there
/// is no space for it. A system call that stores to such a page fails with EFAULT until the program has stored there.
///
/// Stores by lode_map_address() are in the file at once, and durable when lode_map_persist() of them has
/// returned; of others a crash leaves some, each aligned word wholly. While a file is mapped, writing it
/// changes its pages in place: durable when it returns, but a crash may leave a part. Bad memory below is a SIGBUS, and
/// EIO of lode_map_load(). At protection level full, what a map to store to shows is without checksums until the last map
/// of the file ends, or the pool is opened after a crash.
///
/// Returns NULL with errno EBADF, EINVAL for a range that is empty, begins inside a page or ends behind the
/// file's last one, EOPNOTSUPP for a pool in memory, EIO at level full for what is damaged, EROFS, ENOSPC, ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_mmap(
    file: *mut lode_file,
    at: i64,
    size: u64,
    flags: c_int,
) -> *mut lode_map {
    let work = |file: &lode_file| {
        if flags & !(LODE_MAP_WRITE | LODE_MAP_POPULATE) != 0 {
            return Err(Failure::Argument(libc::EINVAL, "no such flags for maps"));
        }
        let write = flags & LODE_MAP_WRITE != 0;
        let mut options = MapOptions::new();
        options.write(write).populate(flags & LODE_MAP_POPULATE != 0);
        if write {
            file.writable()?;
        }
        let map = file.readable()?.map(offset(at)?, size, &options)?;
        Ok(Box::into_raw(Box::new(lode_map(map))))
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_file(file, null_mut(), work) }
}

/// Ends a map: nothing may use its memory any more, nor `map`, whatever is returned. What is staged and was not
/// committed is forgotten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_munmap(map: *mut lode_map) -> c_int {
    call(-1, || {
        // SAFETY: a handle that nobody uses from here on, by C's promise.
        drop(unsafe { take(map) }?);
        Ok(0)
    })
}

/// Where a map is, for as long as it is there. Without LODE_MAP_WRITE a store there is a SIGSEGV.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_map_address(map: *mut lode_map) -> *mut c_void {
    // SAFETY: a handle, by C's promise.
    unsafe { with_map(map, null_mut(), |map| Ok(map.as_ptr().cast())) }
}

/// Bytes in a map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_map_length(map: *mut lode_map) -> i64 {
    // SAFETY: a handle, by C's promise.
    unsafe { with_map(map, -1, |map| Ok(map.len() as i64)) }
}

/// What survives what, once lode_map_persist() has returned: LODE_DURABLE_...
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_map_durability(map: *mut lode_map) -> c_int {
    // SAFETY: a handle, by C's promise.
    unsafe { with_map(map, -1, |map| Ok(class(map.durability()))) }
}

/// Loads `size` bytes at `at`: as by the address, but fails with EFAULT outside the map, and with EIO for bad memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_map_load(
    map: *mut lode_map,
    at: i64,
    buffer: *mut c_void,
    size: usize,
) -> c_int {
    let work = |map: &Map| {
        let at = offset(at)?;
        // SAFETY: a buffer of this size, by C's promise.
        Ok(map.load(at, unsafe { bytes_mut(buffer, size) }?).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_map(map, -1, work) }
}

/// Stores `size` bytes at `at`, through the caches: as by the address, but fails with EFAULT outside the map,
/// and where it can't be stored to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_map_store(
    map: *mut lode_map,
    at: i64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let work = |map: &Map| {
        let at = offset(at)?;
        // SAFETY: so many bytes, by C's promise.
        Ok(map.store(at, unsafe { bytes(data, size) }?).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_map(map, -1, work) }
}

/// The same past the caches: the fastest way for what is not read soon. It is durable after lode_map_fence()
/// of it by the same thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_map_stream(
    map: *mut lode_map,
    at: i64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let work = |map: &Map| {
        let at = offset(at)?;
        // SAFETY: so many bytes, by C's promise.
        Ok(map.stream(at, unsafe { bytes(data, size) }?).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_map(map, -1, work) }
}

/// Makes `size` bytes at `at` durable, whoever stored them: writes back the lines they are in, and fences. It makes no
/// system call, but in an ordinary file. Fails with EFAULT outside the map; with EIO where the system could not write it, and
/// from then on always: the pool has to be opened again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_map_persist(map: *mut lode_map, at: i64, size: u64) -> c_int {
    let work = |map: &Map| Ok(map.persist(range(at, size)?).map(|()| 0)?);
    // SAFETY: a handle, by C's promise.
    unsafe { with_map(map, -1, work) }
}

/// Starts to write back the lines that `size` bytes at `at` are in: lode_map_fence() by the same thread completes that,
/// for many of them at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_map_write_back(map: *mut lode_map, at: i64, size: u64) -> c_int {
    let work = |map: &Map| Ok(map.write_back(range(at, size)?).map(|()| 0)?);
    // SAFETY: a handle, by C's promise.
    unsafe { with_map(map, -1, work) }
}

/// Completes what this thread has streamed to, and written back of, `size` bytes at `at`: then they are durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_map_fence(map: *mut lode_map, at: i64, size: u64) -> c_int {
    let work = |map: &Map| Ok(map.fence(range(at, size)?).map(|()| 0)?);
    // SAFETY: a handle, by C's promise.
    unsafe { with_map(map, -1, work) }
}

/// Puts pages of the map's own in the place of `size` bytes at `at`, whole pages (or up to the end of the map): what
/// is stored there from now on is seen in this map alone, until lode_map_commit() makes it the file's. A crash, or the end of
/// the map, forgets it. `how` is LODE_STAGE_COPIED or LODE_STAGE_ZEROED.
///
/// Fails with EBADF for a map without LODE_MAP_WRITE, EINVAL for a range that is not of whole pages of the map, or staged in part
/// already, or where the file has another map; with ENOSPC, ENOMEM. What was staged before stays so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_map_stage(
    map: *mut lode_map,
    at: i64,
    size: u64,
    how: c_int,
) -> c_int {
    let work = |map: &Map| {
        let how = match how {
            LODE_STAGE_COPIED => Staging::Copied,
            LODE_STAGE_ZEROED => Staging::Zeroed,
            _ => return Err(Failure::Argument(libc::EINVAL, "no such way to stage")),
        };
        Ok(map.stage(range(at, size)?, how).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_map(map, -1, work) }
}

/// Makes what was stored to `count` staged ranges the file's, all of them in one atomic and durable step, without a
/// copy. What other threads have streamed there they have fenced. From then on these pages are the file's own.
///
/// Fails with EBADF for a map without LODE_MAP_WRITE, EINVAL where a page of a range is not staged, and nothing has changed; with
/// ENOSPC, EIO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_map_commit(
    map: *mut lode_map,
    ranges: *const lode_range,
    count: usize,
) -> c_int {
    let work = |map: &Map| {
        // SAFETY: so many ranges, by C's promise.
        let given = unsafe { items(ranges, count) }?;
        let ranges: Outcome<Vec<_>> =
            given.iter().map(|given| range(given.offset, given.size)).collect();
        Ok(map.commit(&ranges?).map(|()| 0)?)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_map(map, -1, work) }
}

/// Forgets all that is staged and was not committed: the map shows the file again. Where the file has given up its pages since
/// (it is truncated, punched), what was staged stays in the map, and belongs to nobody.
///
/// Fails with ENOMEM: some of it is still staged, and can be discarded again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_map_discard(map: *mut lode_map) -> c_int {
    // SAFETY: a handle, by C's promise.
    unsafe { with_map(map, -1, |map| Ok(map.discard().map(|()| 0)?)) }
}
