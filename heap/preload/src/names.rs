//! The names that programs call.
use core::ffi::{c_int, c_void};

use lode_malloc as family;

use crate::callers::source;

/// A function of the family that hands on, behind its own arguments, who calls it.
#[cfg(target_arch = "x86_64")]
macro_rules! named {
    ($name:ident($($argument:ident: $kind:ty),*), $register:literal => $to:ident) => {
        /// As libc's function of this name.
        ///
        /// # Safety
        /// As libc has it.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> *mut c_void {
            core::arch::naked_asm!(
                "endbr64",
                concat!("mov ", $register, ", [rsp]"),
                "jmp {to}",
                to = sym $to,
            )
        }
    };
}

named!(malloc(bytes: usize), "rsi" => malloc_for);
named!(calloc(count: usize, bytes: usize), "rdx" => calloc_for);
named!(realloc(block: *mut c_void, bytes: usize), "rdx" => realloc_for);
named!(reallocarray(block: *mut c_void, count: usize, bytes: usize), "rcx" => reallocarray_for);
named!(memalign(align: usize, bytes: usize), "rdx" => aligned_for);
named!(aligned_alloc(align: usize, bytes: usize), "rdx" => aligned_for);

extern "C" fn malloc_for(bytes: usize, caller: usize) -> *mut c_void {
    family::malloc(bytes, source(caller))
}

extern "C" fn calloc_for(count: usize, bytes: usize, caller: usize) -> *mut c_void {
    family::calloc(count, bytes, source(caller))
}

unsafe extern "C" fn realloc_for(block: *mut c_void, bytes: usize, caller: usize) -> *mut c_void {
    // SAFETY: as libc has it.
    unsafe { family::realloc(block, bytes, source(caller)) }
}

unsafe extern "C" fn reallocarray_for(
    block: *mut c_void,
    count: usize,
    bytes: usize,
    caller: usize,
) -> *mut c_void {
    let Some(all) = count.checked_mul(bytes) else {
        // SAFETY: this thread's errno.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return core::ptr::null_mut();
    };
    // SAFETY: as libc has it.
    unsafe { family::realloc(block, all, source(caller)) }
}

/// Any alignment is asked for here, as libc has it: it becomes the next power of two.
extern "C" fn aligned_for(align: usize, bytes: usize, caller: usize) -> *mut c_void {
    let align = align.max(1).checked_next_power_of_two().unwrap_or(0);
    family::aligned(align, bytes, false, source(caller))
}

/// As libc's function of this name.
///
/// # Safety
/// As libc has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: as libc has it.
    unsafe { family::free(block) };
}

/// As libc's function of this name.
///
/// # Safety
/// As libc has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    // SAFETY: this thread's errno, which this function is not to change.
    let errno = unsafe { *libc::__errno_location() };
    let block = family::aligned(align, bytes, false, family::Source::BySize);
    // SAFETY: as above; and as libc has it.
    unsafe {
        *libc::__errno_location() = errno;
        if block.is_null() {
            return libc::ENOMEM;
        }
        *to = block;
    }
    0
}

const PAGE: usize = 4096;

/// As libc's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(bytes: usize) -> *mut c_void {
    family::aligned(PAGE, bytes, false, family::Source::BySize)
}

/// As libc's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    let whole = bytes.checked_next_multiple_of(PAGE).unwrap_or(bytes);
    family::aligned(PAGE, whole, false, family::Source::BySize)
}

/// As libc's function of this name.
///
/// # Safety
/// As libc has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: as libc has it.
    unsafe { family::usable_bytes(block) }
}

/// As libc's function of this name: what is not used goes back to the pool's owner.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_: usize) -> c_int {
    c_int::from(family::purge() > 0)
}
