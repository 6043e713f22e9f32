//! Kept heaps: blocks in a file that outlive the program.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use lode::{Content, KeptHeap, Pool};

use crate::border::{Failure, Outcome, call};
use crate::data::offset;
use crate::pointers::{bytes, handle, items, path, place, take};
use crate::pool::{lode_pool, with};

/// A heap in a file of a pool, whose blocks outlive the program. It keeps the pool open.
pub struct lode_kept(KeptHeap);

/// A word of a kept heap, and what it becomes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lode_kept_word {
    /// Where it is: LODE_KEPT_ROOT, or an aligned word of a block.
    pub place: i64,
    /// What it becomes: the offset of a block, or any number.
    pub value: u64,
}

/// Figures of a kept heap, in bytes. All blocks are counted for it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct lode_kept_stats {
    /// Of the file, in use.
    pub bytes: u64,
    /// How many blocks there are.
    pub blocks: u64,
    /// Of blocks.
    pub used: u64,
    /// Of pages without a block.
    pub free: u64,
}

/// The root of a kept heap: a place to name a block in, as a word of a block is.
pub const LODE_KEPT_ROOT: i64 = 64;
const _: () = assert!(LODE_KEPT_ROOT as u64 == lode::ROOT);

/// The block holds zeros when it is named.
pub const LODE_KEPT_ZEROED: c_int = 1;

/// Calls `work` with a heap.
///
/// # Safety
/// As for [`handle`].
#[inline]
unsafe fn with_kept<T>(
    kept: *mut lode_kept,
    failed: T,
    work: impl FnOnce(&KeptHeap) -> Outcome<T>,
) -> T {
    // SAFETY: the caller's promise is this one.
    call(failed, || work(&unsafe { handle(kept) }?.0))
}

/// Opens the heap in a file of a pool, or makes it, in one atomic step. What a crash has cut off is done or undone by that.
///
/// A block has an offset, which stays its name, and an address, which is another one at each opening: what is stored in blocks are
/// offsets. An address is good until the heap is closed. Calls may come from any thread; those that change the heap take turns.
///
/// Returns NULL with errno as lode_open() and lode_mmap() of the file; EBUSY while it is open already, EINVAL for a file that holds something
/// else, EIO for a heap that is damaged or cut short, which lode_last_error() tells.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_open(
    pool: *mut lode_pool,
    name: *const c_char,
) -> *mut lode_kept {
    let work = |pool: &Pool| {
        // SAFETY: a string, by C's promise.
        let kept = KeptHeap::open(pool, unsafe { path(name) }?)?;
        Ok(Box::into_raw(Box::new(lode_kept(kept))))
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, null_mut(), work) }
}

/// Opens the heap in the file at `name` of a pool that another process has open, a mount or "lode heap serve", whose control socket is at
/// `socket`; or makes it, in one step. `name` is of names from the pool's root on, or the mount's where that is a directory of it, with no link among
/// them, and UTF-8. All else is as for a heap of lode_kept_open().
///
/// When the owner of the pool is gone, by whatever end, each call fails with ENOTCONN, and what is stored by an address reaches the pool no more: the heap is
/// to be closed, and opened again. While it is open the pool is not rolled back, and no snapshot is made.
///
/// Returns NULL with errno as lode_kept_open(), EBUSY while anybody has it open; those of connecting; ELOOP for a link, EPROTO from who is no owner of a pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_attach(
    socket: *const c_char,
    name: *const c_char,
) -> *mut lode_kept {
    call(null_mut(), || {
        // SAFETY: strings, by C's promise.
        let (socket, name) = unsafe { (path(socket)?, path(name)?) };
        let kept = KeptHeap::attach(socket, name)?;
        Ok(Box::into_raw(Box::new(lode_kept(kept))))
    })
}

/// Closes a heap. `kept` and addresses of its blocks can't be used any more, whatever is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_close(kept: *mut lode_kept) -> c_int {
    call(-1, || {
        // SAFETY: a handle that nobody uses from here on, by C's promise.
        unsafe { take(kept) }?.0.close()?;
        Ok(0)
    })
}

/// Allocates a block of `size` bytes at least and names it in the word at `place`: LODE_KEPT_ROOT, or an aligned word of a block. Both,
/// durably when this returns; after a crash, both or neither. What the word held is overwritten. `flags` are LODE_KEPT_...; without
/// LODE_KEPT_ZEROED the block holds anything. Returns its offset, a multiple of 16; of 4096 for more than 2016 bytes.
///
/// Fails with EFAULT for what is no place, EFBIG, and where the heap has to grow with ENOSPC or ENOMEM: nothing has changed then. After EIO
/// it may be done or not, and the heap has to be opened again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_alloc_into(
    kept: *mut lode_kept,
    place: i64,
    size: u64,
    flags: c_int,
) -> i64 {
    let work = |kept: &KeptHeap| {
        let content = match flags {
            0 => Content::Stale,
            LODE_KEPT_ZEROED => Content::Zeros,
            _ => return Err(Failure::Argument(libc::EINVAL, "no such flags for blocks")),
        };
        Ok(kept.alloc_into(offset(place)?, size, content)? as i64)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_kept(kept, -1, work) }
}

/// The same for a block that holds `size` bytes from `data` when it is named.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_copy_into(
    kept: *mut lode_kept,
    place: i64,
    data: *const c_void,
    size: usize,
) -> i64 {
    let work = |kept: &KeptHeap| {
        // SAFETY: so many bytes, by C's promise.
        let content = Content::Bytes(unsafe { bytes(data, size) }?);
        Ok(kept.alloc_into(offset(place)?, size as u64, content)? as i64)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_kept(kept, -1, work) }
}

/// Frees the block that the word at `place` names, which is 0 then: both, or neither. Returns the offset that it had.
///
/// Fails with EFAULT for what is no place, EINVAL where it names no block, EIO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_free_from(kept: *mut lode_kept, place: i64) -> i64 {
    let work = |kept: &KeptHeap| Ok(kept.free_from(offset(place)?)? as i64);
    // SAFETY: a handle, by C's promise.
    unsafe { with_kept(kept, -1, work) }
}

/// Changes up to 15 words in one atomic step, durable when this returns: so blocks are moved from one place to another, or a list is
/// linked at both ends.
///
/// Fails with EFAULT for what is no place, EINVAL for a root that is no block, EFBIG for more words, EIO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_change(
    kept: *mut lode_kept,
    words: *const lode_kept_word,
    count: usize,
) -> c_int {
    let work = |kept: &KeptHeap| {
        // SAFETY: so many of them, by C's promise.
        let words = unsafe { items(words, count) }?.iter();
        let words: Outcome<Vec<_>> =
            words.map(|word| Ok((offset(word.place)?, word.value))).collect();
        kept.change(&words?)?;
        Ok(0)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_kept(kept, -1, work) }
}

/// The word at `place`: the offset of the block that it names, as a rule. 0 is none; -1 with an errno if it fails, with EFAULT outside of the heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_named(kept: *mut lode_kept, place: i64) -> i64 {
    let work = |kept: &KeptHeap| Ok(kept.word(offset(place)?)? as i64);
    // SAFETY: a handle, by C's promise.
    unsafe { with_kept(kept, -1, work) }
}

/// Bytes that may be used of the block at an offset; EINVAL where none begins.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_usable_size(kept: *mut lode_kept, block: i64) -> i64 {
    let work = |kept: &KeptHeap| Ok(kept.usable_size(offset(block)?)? as i64);
    // SAFETY: a handle, by C's promise.
    unsafe { with_kept(kept, -1, work) }
}

/// The first block that begins behind an offset: from 0 on, all of them in turn. 0 behind the last one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_next(kept: *mut lode_kept, at: i64) -> i64 {
    let work = |kept: &KeptHeap| {
        let block = kept.block_behind(offset(at)?);
        Ok(block.map_or(0, |block| block.offset as i64))
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_kept(kept, -1, work) }
}

/// Where the byte at an offset is, until the heap is closed. The bytes of a block are one behind the other; those of two blocks may be apart. NULL
/// with errno EFAULT outside of the heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_address(kept: *mut lode_kept, at: i64) -> *mut c_void {
    let work = |kept: &KeptHeap| {
        let outside = Failure::Argument(libc::EFAULT, "the heap has no such offset");
        Ok(kept.pointer(offset(at)?).ok_or(outside)?.cast())
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_kept(kept, null_mut(), work) }
}

/// The offset of what is at an address; EFAULT where that is not in the heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_offset(kept: *mut lode_kept, address: *const c_void) -> i64 {
    let work = |kept: &KeptHeap| {
        let outside = Failure::Argument(libc::EFAULT, "the address is not in the heap");
        Ok(kept.offset(address.cast()).ok_or(outside)? as i64)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_kept(kept, -1, work) }
}

/// Makes `size` bytes of a block durable, whoever stored them. Of stores by addresses for which this has not returned a crash leaves some,
/// each aligned word wholly. (It has to be this call: a change of the heap that was of the same words would come again after a crash otherwise.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_persist(
    kept: *mut lode_kept,
    address: *const c_void,
    size: usize,
) -> c_int {
    let work = |kept: &KeptHeap| {
        let outside = Failure::Argument(libc::EFAULT, "the address is not in the heap");
        let at = kept.offset(address.cast()).ok_or(outside)?;
        kept.persist(at..at.saturating_add(size as u64))?;
        Ok(0)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_kept(kept, -1, work) }
}

/// Figures of now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_kept_get_stats(
    kept: *mut lode_kept,
    stats: *mut lode_kept_stats,
) -> c_int {
    let work = |kept: &KeptHeap| {
        let lode::HeapStats { bytes, blocks, used, free } = kept.stats();
        // SAFETY: a place of this type, by C's promise.
        unsafe { place(stats) }?.write(lode_kept_stats { bytes, blocks, used, free });
        Ok(0)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with_kept(kept, -1, work) }
}
