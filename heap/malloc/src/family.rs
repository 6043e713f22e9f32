//! malloc, free and the rest.
use core::ffi::{c_int, c_void};

use lode_heap::SLOT;
use tikv_jemalloc_sys as je;

use crate::arenas::{self, Place};
use crate::early;

/// Blocks of so many bytes are whole chunks.
pub const LARGE: usize = 8 << 20;

/// Where a block is to come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// As its size says.
    BySize,
    /// DRAM, unless it is a large one.
    Dram,
}

/// What jemalloc is told so that a block comes from, or goes to, the other source.
fn flags_of_other() -> c_int {
    je::MALLOCX_ARENA(arenas::other() as usize) | je::MALLOCX_TCACHE_NONE
}

/// A block's kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Main,
    Other,
    Large,
}

fn kind(bytes: usize, source: Source) -> Kind {
    let below = arenas::dram_below();
    if bytes < below {
        Kind::Main
    } else if bytes >= LARGE {
        Kind::Large
    } else if below == 0 && source == Source::BySize {
        Kind::Main
    } else if below == 0 || source == Source::BySize {
        Kind::Other
    } else {
        Kind::Main
    }
}

/// The kind of the block at an address.
fn kind_of(block: usize) -> Kind {
    let main = if arenas::dram_below() == 0 { Place::Pages } else { Place::Dram };
    match arenas::place(block) {
        Place::Blocks => Kind::Large,
        place if place == main => Kind::Main,
        _ => Kind::Other,
    }
}

/// A block at a multiple of `align`, a power of two; null where there is no memory.
fn take(bytes: usize, align: usize, zeros: bool, source: Source) -> *mut c_void {
    if !arenas::are_there()
        && let Some(block) = take_early(bytes, align, zeros)
    {
        return block;
    }
    let found = take_once(bytes, align, zeros, source);
    if !found.is_null() {
        lode_heap::tend();
        return found;
    }
    if bytes <= isize::MAX as usize {
        // What is kept unused elsewhere might do.
        arenas::flush_thread();
        lode_heap::purge();
        let found = take_once(bytes, align, zeros, source);
        if !found.is_null() {
            return found;
        }
    }
    no_memory()
}

/// A block from before the allocator is there; none where it has been set up for this one.
#[cold]
fn take_early(bytes: usize, align: usize, zeros: bool) -> Option<*mut c_void> {
    let first = if arenas::may_wait() { early::first(bytes, align, zeros) } else { 0 };
    if first != 0 {
        return Some(first as *mut c_void);
    }
    if arenas::set_up() {
        return None;
    }
    let block = early::alloc(bytes, align, zeros);
    Some(if block == 0 { no_memory() } else { block as *mut c_void })
}

#[cold]
fn no_memory() -> *mut c_void {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    core::ptr::null_mut()
}

/// Whether blocks of so many bytes are so aligned by themselves.
#[inline]
fn is_plain(align: usize, bytes: usize) -> bool {
    align <= 8 || align == 16 && bytes > 8
}

#[inline]
fn take_once(bytes: usize, align: usize, zeros: bool, source: Source) -> *mut c_void {
    let kind = kind(bytes, source);
    if kind == Kind::Large {
        let block = lode_heap::alloc(bytes, align, zeros);
        return block.map_or(core::ptr::null_mut(), |block| block.as_ptr());
    }
    // SAFETY: sizes are more than 0, alignments powers of two.
    unsafe {
        match (kind, zeros, is_plain(align, bytes)) {
            (Kind::Main, false, true) => je::malloc(bytes),
            (Kind::Main, true, true) => je::calloc(1, bytes),
            _ => {
                let mut flags = if zeros { je::MALLOCX_ZERO } else { 0 };
                flags |= je::MALLOCX_ALIGN(align);
                if kind == Kind::Other {
                    flags |= flags_of_other();
                }
                je::mallocx(bytes.max(1), flags)
            }
        }
    }
}

/// C's `malloc`.
#[inline]
pub fn malloc(bytes: usize, source: Source) -> *mut c_void {
    take(bytes, 1, false, source)
}

/// C's `calloc`.
#[inline]
pub fn calloc(count: usize, bytes: usize, source: Source) -> *mut c_void {
    match count.checked_mul(bytes) {
        Some(all) => take(all, 1, true, source),
        None => no_memory(),
    }
}

/// A block at a multiple of `align`; null, with `errno`, where that is no power of two.
pub fn aligned(align: usize, bytes: usize, zeros: bool, source: Source) -> *mut c_void {
    if !align.is_power_of_two() {
        // SAFETY: this thread's errno.
        unsafe { *libc::__errno_location() = libc::EINVAL };
        return core::ptr::null_mut();
    }
    take(bytes, align, zeros, source)
}

/// C's `free`.
///
/// # Safety
/// The block is of this family, and nobody uses it any more; or null.
#[inline]
pub unsafe fn free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    // SAFETY: as the caller says; each kind goes back to where it came from.
    unsafe {
        match kind_of(block as usize) {
            Kind::Main => je::free(block),
            Kind::Large => {
                lode_heap::free(block as usize);
            }
            Kind::Other if early::has(block as usize) => early::free(block as usize),
            Kind::Other => je::dallocx(block, je::MALLOCX_TCACHE_NONE),
        }
    }
}

/// C's `malloc_usable_size`.
///
/// # Safety
/// The block is of this family; or null.
pub unsafe fn usable_bytes(block: *mut c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    match kind_of(block as usize) {
        Kind::Large => lode_heap::block_bytes(block as usize).unwrap_or(0),
        Kind::Other if early::has(block as usize) => early::bytes(block as usize),
        // SAFETY: as the caller says.
        _ => unsafe { je::sallocx(block, 0) },
    }
}

/// C's `realloc`. A large block keeps its pages.
///
/// # Safety
/// The block is of this family; or null. Nobody uses it by its old address any more, unless null is returned.
pub unsafe fn realloc(block: *mut c_void, bytes: usize, source: Source) -> *mut c_void {
    if block.is_null() {
        return malloc(bytes, source);
    }
    if bytes == 0 {
        // SAFETY: as the caller says.
        unsafe { free(block) };
        return core::ptr::null_mut();
    }
    let was = kind_of(block as usize);
    let early = was == Kind::Other && early::has(block as usize);
    if early && early::extend(block as usize, bytes) {
        return block;
    }
    // What was DRAM's because of who asked for it stays so.
    let source = if arenas::place(block as usize) == Place::Dram && arenas::dram_below() == 0 {
        Source::Dram
    } else if was == Kind::Main {
        Source::BySize
    } else {
        source
    };
    let is = kind(bytes, source);
    if was != is || early {
        // SAFETY: as the caller says.
        return unsafe { by_copying(block, bytes, 1, source) };
    }
    // SAFETY: as the caller says; each kind by its own way.
    let made = unsafe {
        match was {
            Kind::Main => je::realloc(block, bytes),
            Kind::Other => je::rallocx(block, bytes, flags_of_other()),
            Kind::Large => match lode_heap::resize(block as usize, bytes) {
                Ok(block) => block.as_ptr(),
                Err(_) => core::ptr::null_mut(),
            },
        }
    };
    if made.is_null() {
        // SAFETY: as the caller says: the old block is as it was.
        return unsafe { by_copying(block, bytes, 1, source) };
    }
    lode_heap::tend();
    made
}

/// As [`realloc`], at a multiple of `align`, a power of two. A large block keeps its pages where that is a chunk or less.
///
/// # Safety
/// As [`realloc`]; `bytes` are more than 0.
pub unsafe fn realloc_aligned(
    block: *mut c_void,
    bytes: usize,
    align: usize,
    source: Source,
) -> *mut c_void {
    let stays_large =
        || kind_of(block as usize) == Kind::Large && kind(bytes, source) == Kind::Large;
    // SAFETY: as the caller says.
    unsafe {
        if is_plain(align, bytes) || align <= SLOT && stays_large() {
            realloc(block, bytes, source)
        } else {
            by_copying(block, bytes, align, source)
        }
    }
}

/// # Safety
/// As [`realloc`].
#[cold]
unsafe fn by_copying(
    block: *mut c_void,
    bytes: usize,
    align: usize,
    source: Source,
) -> *mut c_void {
    let made = take(bytes, align, false, source);
    if !made.is_null() {
        // SAFETY: both blocks have so many bytes, and they are different ones.
        unsafe {
            let old = usable_bytes(block);
            core::ptr::copy_nonoverlapping(block.cast::<u8>(), made.cast::<u8>(), old.min(bytes));
            free(block);
        }
    }
    made
}

/// Gives back to the owner what nobody uses: bytes.
pub fn purge() -> u64 {
    if !arenas::are_there() {
        return 0;
    }
    arenas::flush_thread();
    lode_heap::purge()
}

const _: () = assert!(LARGE.is_multiple_of(SLOT), "large blocks are whole chunks");
