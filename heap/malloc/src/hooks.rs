//! Where jemalloc's memory comes from: address space when it wants some, memory in it when it commits pages. Nothing that it gives up is
//! address space: that stays its own.
use core::ffi::{c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use lode_heap::{Area, PAGE};
use tikv_jemalloc_sys::extent_hooks_t;

use crate::arenas::is_ours;

#[allow(non_camel_case_types, reason = "the name is C's")]
type c_bool = bool;

/// While arenas are made, what they keep of themselves lies in DRAM.
pub(crate) static STARTING: AtomicBool = AtomicBool::new(true);
/// jemalloc has had something since then, and may keep some of it.
pub(crate) static GAVE: AtomicBool = AtomicBool::new(false);
/// There is nothing.
pub(crate) static CLOSED: AtomicBool = AtomicBool::new(false);

pub(crate) static POOL: extent_hooks_t = with(alloc_pool);
pub(crate) static DRAM: extent_hooks_t = with(alloc_dram);

type Alloc = unsafe extern "C" fn(
    *mut extent_hooks_t,
    *mut c_void,
    usize,
    usize,
    *mut c_bool,
    *mut c_bool,
    c_uint,
) -> *mut c_void;

const fn with(alloc: Alloc) -> extent_hooks_t {
    extent_hooks_t {
        alloc: Some(alloc),
        dalloc: Some(keep_address_space),
        destroy: None,
        commit: Some(commit),
        decommit: Some(decommit),
        purge_lazy: None,
        purge_forced: Some(purge_foreign),
        split: Some(split),
        merge: Some(merge),
    }
}

unsafe extern "C" fn alloc_pool(
    _: *mut extent_hooks_t,
    at: *mut c_void,
    bytes: usize,
    align: usize,
    zero: *mut c_bool,
    commit: *mut c_bool,
    _: c_uint,
) -> *mut c_void {
    let area = if STARTING.load(Ordering::Relaxed) { Area::Dram } else { Area::Pages };
    // SAFETY: jemalloc's own places.
    unsafe { extent(area, at, (bytes, align), zero, commit) }
}

unsafe extern "C" fn alloc_dram(
    _: *mut extent_hooks_t,
    at: *mut c_void,
    bytes: usize,
    align: usize,
    zero: *mut c_bool,
    commit: *mut c_bool,
    _: c_uint,
) -> *mut c_void {
    // SAFETY: jemalloc's own places.
    unsafe { extent(Area::Dram, at, (bytes, align), zero, commit) }
}

/// # Safety
/// `zero` and `wanted` are jemalloc's, to be read and written.
unsafe fn extent(
    area: Area,
    at: *mut c_void,
    (bytes, align): (usize, usize),
    zero: *mut c_bool,
    wanted: *mut c_bool,
) -> *mut c_void {
    if !at.is_null() || CLOSED.load(Ordering::Relaxed) {
        return core::ptr::null_mut();
    }
    let Some(found) = lode_heap::cut(area, bytes, align) else {
        return core::ptr::null_mut();
    };
    if !STARTING.load(Ordering::Relaxed) {
        GAVE.store(true, Ordering::Relaxed);
    }
    // SAFETY: as the caller says.
    unsafe {
        if *wanted && !lode_heap::commit(found, bytes) {
            return core::ptr::null_mut();
        }
        // Pages are zeros when they are committed.
        *zero = true;
    }
    found as *mut c_void
}

/// Says no: jemalloc decommits then, and keeps the address space.
unsafe extern "C" fn keep_address_space(
    _: *mut extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: c_bool,
    _: c_uint,
) -> c_bool {
    true
}

unsafe extern "C" fn commit(
    _: *mut extent_hooks_t,
    at: *mut c_void,
    _: usize,
    offset: usize,
    bytes: usize,
    _: c_uint,
) -> c_bool {
    !lode_heap::commit(at as usize + offset, bytes)
}

unsafe extern "C" fn decommit(
    _: *mut extent_hooks_t,
    at: *mut c_void,
    _: usize,
    offset: usize,
    bytes: usize,
    _: c_uint,
) -> c_bool {
    let at = at as usize + offset;
    // SAFETY: jemalloc gives up what nobody uses.
    !(is_ours(at) && unsafe { lode_heap::decommit(at, bytes) })
}

/// For what jemalloc has mapped itself before it had these hooks. What is ours it decommits.
unsafe extern "C" fn purge_foreign(
    _: *mut extent_hooks_t,
    at: *mut c_void,
    _: usize,
    offset: usize,
    bytes: usize,
    _: c_uint,
) -> c_bool {
    let at = at as usize + offset;
    if is_ours(at) || !at.is_multiple_of(PAGE) {
        return true;
    }
    // SAFETY: jemalloc's own anonymous memory, which nobody uses.
    unsafe { libc::syscall(libc::SYS_madvise, at, bytes, libc::MADV_DONTNEED) != 0 }
}

unsafe extern "C" fn split(
    _: *mut extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: c_bool,
    _: c_uint,
) -> c_bool {
    false
}

/// Extents that both are ours, or both aren't, can be one.
unsafe extern "C" fn merge(
    _: *mut extent_hooks_t,
    first: *mut c_void,
    _: usize,
    second: *mut c_void,
    _: usize,
    _: c_bool,
    _: c_uint,
) -> c_bool {
    is_ours(first as usize) != is_ours(second as usize)
}
