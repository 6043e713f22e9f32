//! Loads from a region, in assembly, that a signal handler can end.
//!
//! Why assembly: the memory may change under a load and may refuse one, which
//! the language has no words for. The routines keep where they load from in r8
//! and r9 and leave the stack alone, so that the handler can tell a fault of
//! theirs by its address and return for them. An aligned word is loaded in one
//! piece by all of them (`rep movsq` works in words, and a load of an aligned line is made of
//! whole words).
// Registers have constant places in the array that the kernel fills.
#![allow(clippy::indexing_slicing)]

use std::arch::global_asm;

use super::compared;
use crate::flush::CpuFeatures;
use crate::{LINE_BYTES, MediaError};

/// Bytes from which on `rep movsq`, or AVX-512 where there is some, is faster than a loop.
const BULK_BYTES: usize = 512;

/// How far ahead lines are asked for.
const AHEAD_BYTES: usize = 4096;

global_asm!(
    ".pushsection .text.lode_pmem_loads, \"ax\", @progbits",
    ".p2align 6",
    ".globl lode_pmem_loads_begin",
    ".hidden lode_pmem_loads_begin",
    "lode_pmem_loads_begin:",
    // (rdi: from) -> rax: value, rdx: address of a fault or 0
    ".globl lode_pmem_load_word",
    ".hidden lode_pmem_load_word",
    ".type lode_pmem_load_word, @function",
    "lode_pmem_load_word:",
    ".cfi_startproc",
    "mov r8, rdi",
    "lea r9, [rdi + 8]",
    "xor edx, edx",
    "mov rax, [rdi]",
    "ret",
    ".cfi_endproc",
    ".size lode_pmem_load_word, . - lode_pmem_load_word",
    // (rdi: to, rsi: from, aligned) -> rdx: address of a fault or 0
    ".p2align 5",
    ".globl lode_pmem_load_line",
    ".hidden lode_pmem_load_line",
    ".type lode_pmem_load_line, @function",
    "lode_pmem_load_line:",
    ".cfi_startproc",
    "mov r8, rsi",
    "lea r9, [rsi + 64]",
    "xor edx, edx",
    "movdqa xmm0, [rsi]",
    "movdqa xmm1, [rsi + 16]",
    "movdqa xmm2, [rsi + 32]",
    "movdqa xmm3, [rsi + 48]",
    "movdqu [rdi], xmm0",
    "movdqu [rdi + 16], xmm1",
    "movdqu [rdi + 32], xmm2",
    "movdqu [rdi + 48], xmm3",
    "ret",
    ".cfi_endproc",
    ".size lode_pmem_load_line, . - lode_pmem_load_line",
    // (rdi: to, rsi: from, rdx: bytes, rcx: whether there is AVX-512) -> rdx: address of a fault or 0
    ".p2align 5",
    ".globl lode_pmem_load_bytes",
    ".hidden lode_pmem_load_bytes",
    ".type lode_pmem_load_bytes, @function",
    "lode_pmem_load_bytes:",
    ".cfi_startproc",
    "mov r8, rsi",
    "lea r9, [rsi + rdx]",
    "mov r10, rdx",
    "mov r11, rcx",
    "xor edx, edx",
    // Bytes until an aligned word starts.
    "2:",
    "test esi, 7",
    "jz 3f",
    "test r10, r10",
    "jz 9f",
    "mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec r10",
    "jmp 2b",
    "3:",
    "cmp r10, {bulk}",
    "jae 6f",
    // Words, four at a time and then one.
    "11:",
    "sub r10, 32",
    "jb 12f",
    "8:",
    "mov rax, [rsi]",
    "mov rcx, [rsi + 8]",
    "mov [rdi], rax",
    "mov [rdi + 8], rcx",
    "mov rax, [rsi + 16]",
    "mov rcx, [rsi + 24]",
    "mov [rdi + 16], rax",
    "mov [rdi + 24], rcx",
    "add rsi, 32",
    "add rdi, 32",
    "sub r10, 32",
    "jae 8b",
    "12:",
    "add r10, 32",
    "4:",
    "sub r10, 8",
    "jb 5f",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "jmp 4b",
    // Bytes that are left, up to seven.
    "5:",
    "and r10d, 7",
    "7:",
    "jz 9f",
    "mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec r10d",
    "jmp 7b",
    "6:",
    "test r11, r11",
    "jz 10f",
    // Words until a line starts, then lines, four at a time.
    "13:",
    "test esi, 63",
    "jz 14f",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "sub r10, 8",
    "jmp 13b",
    "14:",
    "sub r10, 256",
    // While more than a page is left, the lines that are a page ahead are asked for.
    "cmp r10, {page}",
    "jb 15f",
    "16:",
    "prefetcht0 [rsi + {page}]",
    "vmovdqa64 zmm16, [rsi]",
    "prefetcht0 [rsi + {page} + 64]",
    "vmovdqa64 zmm17, [rsi + 64]",
    "prefetcht0 [rsi + {page} + 128]",
    "vmovdqa64 zmm18, [rsi + 128]",
    "prefetcht0 [rsi + {page} + 192]",
    "vmovdqa64 zmm19, [rsi + 192]",
    "vmovdqu64 [rdi], zmm16",
    "vmovdqu64 [rdi + 64], zmm17",
    "vmovdqu64 [rdi + 128], zmm18",
    "vmovdqu64 [rdi + 192], zmm19",
    "add rsi, 256",
    "add rdi, 256",
    "sub r10, 256",
    "cmp r10, {page}",
    "jae 16b",
    "15:",
    "vmovdqa64 zmm16, [rsi]",
    "vmovdqa64 zmm17, [rsi + 64]",
    "vmovdqa64 zmm18, [rsi + 128]",
    "vmovdqa64 zmm19, [rsi + 192]",
    "vmovdqu64 [rdi], zmm16",
    "vmovdqu64 [rdi + 64], zmm17",
    "vmovdqu64 [rdi + 128], zmm18",
    "vmovdqu64 [rdi + 192], zmm19",
    "add rsi, 256",
    "add rdi, 256",
    "sub r10, 256",
    "jae 15b",
    "add r10, 256",
    "jmp 11b",
    "10:",
    "mov rcx, r10",
    "shr rcx, 3",
    "rep movsq",
    "jmp 5b",
    "9:",
    "ret",
    ".cfi_endproc",
    ".size lode_pmem_load_bytes, . - lode_pmem_load_bytes",
    ".globl lode_pmem_loads_end",
    ".hidden lode_pmem_loads_end",
    "lode_pmem_loads_end:",
    // Where the handler sends a load that it ends: rdx has been set.
    "ret",
    ".popsection",
    bulk = const BULK_BYTES,
    page = const AHEAD_BYTES,
);

/// What a load routine returns in two registers.
#[repr(C)]
pub(super) struct Loaded {
    pub(super) value: u64,
    /// The address that could not be loaded, or 0.
    pub(super) fault: u64,
}

unsafe extern "C" {
    static lode_pmem_loads_begin: u8;
    static lode_pmem_loads_end: u8;
    fn lode_pmem_load_word(from: *const u8) -> Loaded;
    fn lode_pmem_load_line(to: *mut u8, from: *const u8) -> Loaded;
    fn lode_pmem_load_bytes(to: *mut u8, from: *const u8, bytes: usize, avx512: bool) -> Loaded;
}

/// Loads the aligned word at offset `at` of the region at `base`.
///
/// # Safety
/// The word lies in the mapped region, and the SIGBUS handler is installed.
#[inline]
pub(crate) unsafe fn word(base: *const u8, at: u64) -> Result<u64, MediaError> {
    // SAFETY: as the caller promises.
    let loaded = unsafe { lode_pmem_load_word(base.add(at as usize)) };
    if loaded.fault != 0 {
        return Err(poisoned(base, at, loaded.fault));
    }
    Ok(loaded.value)
}

/// Loads `into.len()` bytes from offset `at` of the region at `base`.
///
/// # Safety
/// The bytes lie in the mapped region, and the SIGBUS handler is installed.
#[inline]
pub(crate) unsafe fn bytes(base: *const u8, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
    // SAFETY: as the caller promises.
    let loaded = unsafe {
        let from = base.add(at as usize);
        if into.len() == LINE_BYTES && (from as usize).is_multiple_of(LINE_BYTES) {
            lode_pmem_load_line(into.as_mut_ptr(), from)
        } else {
            let avx512 = into.len() >= BULK_BYTES && CpuFeatures::get().avx512;
            lode_pmem_load_bytes(into.as_mut_ptr(), from, into.len(), avx512)
        }
    };
    if loaded.fault != 0 {
        return Err(poisoned(base, at, loaded.fault));
    }
    Ok(())
}

#[cold]
pub(super) fn poisoned(base: *const u8, at: u64, fault: u64) -> MediaError {
    MediaError::Poisoned { at: fault.saturating_sub(base as u64).max(at) }
}

/// For the signal handler: if `context` is within a load, and the `unit` bytes around
/// `address` touch what it loads, lets the load return that address.
pub(super) fn end_with_error(context: &mut libc::ucontext_t, address: u64, unit: u64) -> bool {
    let place = |label: *const u8| label as u64;
    let plain = place(&raw const lode_pmem_loads_begin)..place(&raw const lode_pmem_loads_end);
    let registers = &mut context.uc_mcontext.gregs;
    let at = registers[libc::REG_RIP as usize] as u64;
    let Some(routines) = [plain, compared::routine()].into_iter().find(|all| all.contains(&at))
    else {
        return false;
    };
    let from = registers[libc::REG_R8 as usize] as u64;
    let to = registers[libc::REG_R9 as usize] as u64;
    let bad = address - address % unit;
    if bad >= to || bad.saturating_add(unit) <= from {
        return false;
    }
    registers[libc::REG_RDX as usize] = address.max(from) as i64;
    registers[libc::REG_RIP as usize] = routines.end as i64;
    true
}
