//! The calls by which programs map memory themselves. What is none of the pool's goes on to the system as it came.
//!
//! Libc's own mappings, stacks of threads among them, do not come this way; those of this library (jemalloc's) do,
//! and are passed on: so `mmap` looks at who calls, as the malloc family does.
use core::ffi::{c_int, c_uchar, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use lode_malloc::maps::{self, Moved, Wanted};

use crate::callers;

/// Mappings of so many bytes and more come from the pool; 0 until the library has started.
static FROM: AtomicUsize = AtomicUsize::new(NOT_YET);
const NOT_YET: usize = 0;

/// Begins to take mappings, of so many bytes and more.
pub(crate) fn start(from: Option<usize>) {
    FROM.store(from.unwrap_or(usize::MAX).max(1), Ordering::Release);
}

fn fail(error: c_int) {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = error };
}

fn address(done: Result<usize, i32>) -> *mut c_void {
    done.map_or_else(
        |error| {
            fail(error);
            libc::MAP_FAILED
        },
        |at| at as *mut c_void,
    )
}

fn status(done: Result<(), i32>) -> c_int {
    done.map_or_else(
        |error| {
            fail(error);
            -1
        },
        |()| 0,
    )
}

/// A function of six arguments that hands on, behind them, who calls it.
macro_rules! named {
    ($name:ident) => {
        /// As libc's function of this name.
        ///
        /// # Safety
        /// As libc has it.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            at: *mut c_void,
            bytes: usize,
            rights: c_int,
            flags: c_int,
            file: c_int,
            offset: i64,
        ) -> *mut c_void {
            core::arch::naked_asm!(
                "endbr64",
                ".cfi_startproc",
                "push qword ptr [rsp]",
                ".cfi_adjust_cfa_offset 8",
                "call {to}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_endproc",
                to = sym mmap_for,
            )
        }
    };
}

named!(mmap);
named!(mmap64);

unsafe extern "C" fn mmap_for(
    at: *mut c_void,
    bytes: usize,
    rights: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
    caller: usize,
) -> *mut c_void {
    let from = FROM.load(Ordering::Acquire);
    if from == NOT_YET || callers::is_own(caller) {
        // SAFETY: as libc has it.
        return unsafe {
            libc::syscall(libc::SYS_mmap, at, bytes, rights, flags, file, offset) as *mut c_void
        };
    }
    let (at, offset) = (at as usize, offset as usize);
    let wanted = Wanted { at, bytes, rights, flags, file, offset };
    if maps::takes(&wanted, from) {
        // (A small program has done without until now.)
        lode_malloc::start();
    }
    address(maps::map(wanted, from))
}

/// As libc's function of this name.
///
/// # Safety
/// As libc has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, bytes: usize) -> c_int {
    if maps::concerns(at as usize, bytes) {
        return status(maps::unmap(at as usize, bytes));
    }
    // SAFETY: as libc has it.
    unsafe { libc::syscall(libc::SYS_munmap, at, bytes) as c_int }
}

/// As libc's function of this name.
///
/// # Safety
/// As libc has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    at: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let asked = Moved { at: at as usize, old, new, flags, to: to as usize };
    let fixed = flags & libc::MREMAP_FIXED != 0;
    if maps::meets(asked.at, old) || (fixed && maps::meets(asked.to, new)) {
        return address(maps::remap(asked));
    }
    // SAFETY: as libc has it.
    let found = unsafe { libc::syscall(libc::SYS_mremap, at, old, new, flags, to) } as *mut c_void;
    if found != libc::MAP_FAILED && FROM.load(Ordering::Relaxed) != NOT_YET {
        maps::remapped(asked, found as usize);
    }
    found
}

/// As libc's function of this name.
///
/// # Safety
/// As libc has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(at: *mut c_void, bytes: usize, rights: c_int) -> c_int {
    if maps::meets(at as usize, bytes) {
        return status(maps::protect(at as usize, bytes, rights));
    }
    if maps::is_of_blocks(at as usize, bytes) {
        return status(maps::protect_block(at as usize, bytes, rights));
    }
    // SAFETY: as libc has it.
    unsafe { libc::syscall(libc::SYS_mprotect, at, bytes, rights) as c_int }
}

/// As libc's function of this name.
///
/// # Safety
/// As libc has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(
    at: *mut c_void,
    bytes: usize,
    rights: c_int,
    key: c_int,
) -> c_int {
    if maps::meets(at as usize, bytes) {
        if key == -1 {
            return status(maps::protect(at as usize, bytes, rights));
        }
        // Keys are not kept page by page: such memory is the program's own from now on.
        if let Err(error) = maps::leave(at as usize, bytes) {
            return status(Err(error));
        }
    }
    if key == -1 {
        // SAFETY: as libc has it.
        return unsafe { libc::syscall(libc::SYS_mprotect, at, bytes, rights) as c_int };
    }
    // SAFETY: as libc has it.
    unsafe { libc::syscall(libc::SYS_pkey_mprotect, at, bytes, rights, key) as c_int }
}

/// As libc's function of this name.
///
/// # Safety
/// As libc has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    if maps::meets(at as usize, bytes) {
        return status(maps::advise(at as usize, bytes, advice));
    }
    if maps::is_of_blocks(at as usize, bytes) {
        return status(maps::advise_block(at as usize, bytes, advice));
    }
    // SAFETY: as libc has it.
    unsafe { libc::syscall(libc::SYS_madvise, at, bytes, advice) as c_int }
}

/// As libc's function of this name.
///
/// # Safety
/// As libc has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msync(at: *mut c_void, bytes: usize, flags: c_int) -> c_int {
    if maps::meets(at as usize, bytes) {
        return status(maps::sync(at as usize, bytes, flags));
    }
    // SAFETY: as libc has it.
    unsafe { libc::syscall(libc::SYS_msync, at, bytes, flags) as c_int }
}

/// As libc's function of this name.
///
/// # Safety
/// As libc has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mincore(at: *mut c_void, bytes: usize, to: *mut c_uchar) -> c_int {
    if maps::meets(at as usize, bytes) && !maps::is_resident(at as usize, bytes) {
        return status(Err(libc::ENOMEM));
    }
    // SAFETY: as libc has it.
    unsafe { libc::syscall(libc::SYS_mincore, at, bytes, to) as c_int }
}
