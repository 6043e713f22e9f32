//! `fork` for who runs on a stack that it has by `malloc`: that is the pool's, and shared with the child until the child has copied it. So
//! parent and child run on another stack until both have memory of their own.
//!
//! What libc forks by itself (`daemon`, `forkpty`) does not come this way: the handler that runs before a fork ends such a program.
use core::ffi::c_int;

use lode_malloc::maps;

/// Bytes of that stack, of which those at its end are no memory.
const STACK: usize = 1 << 20;
const GUARD: usize = 4096;

unsafe extern "C" {
    /// Libc's `fork`, by the name that nobody puts another one's in the place of.
    fn __fork() -> c_int;
}

/// As libc's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn fork() -> c_int {
    let here = 0_u8;
    let at = (&raw const here) as usize;
    // (Of a stack that the program has mapped, the library's handler sees to the pages in use.)
    if cfg!(target_arch = "x86_64") && maps::is_of_blocks(at, 1) && !maps::meets(at, 1) {
        return fork_elsewhere();
    }
    // SAFETY: as libc has it.
    unsafe { __fork() }
}

#[inline(never)]
fn fork_elsewhere() -> c_int {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    // SAFETY: new memory, of nobody; past this library's own `mmap`.
    let stack = unsafe { libc::syscall(libc::SYS_mmap, 0, STACK, rights, flags, -1, 0) };
    if stack == -1 {
        // SAFETY: as libc has it.
        return unsafe { __fork() };
    }
    let end = stack as usize + STACK;
    // SAFETY: the memory is as large, ends at a multiple of 16, is used by nobody else, and is there until both have come back, each from
    // a copy of its own.
    unsafe {
        libc::syscall(libc::SYS_mprotect, stack, GUARD, libc::PROT_NONE);
        let child = on_stack(end, __fork);
        libc::syscall(libc::SYS_munmap, stack, STACK);
        child
    }
}

/// Calls a function on another stack, which ends at `end`.
///
/// # Safety
/// As the function has it, and `end` is the end of memory that is large enough and nobody's, at a multiple of 16.
#[cfg(target_arch = "x86_64")]
unsafe fn on_stack(end: usize, call: unsafe extern "C" fn() -> c_int) -> c_int {
    let result: c_int;
    // SAFETY: as the caller says; r12 stays over the call, and with it this stack's pointer.
    unsafe {
        core::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {end}",
            "call {call}",
            "mov rsp, r12",
            end = in(reg) end,
            call = in(reg) call,
            out("r12") _,
            out("rax") result,
            clobber_abi("C"),
        );
    }
    result
}

/// Nobody has written that: the handler that runs before a fork ends the program, and says why.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn on_stack(_: usize, call: unsafe extern "C" fn() -> c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe { call() }
}
