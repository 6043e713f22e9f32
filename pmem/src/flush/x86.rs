//! The instructions themselves.
//!
//! All are assembly, not Rust stores: the memory behind is shared with other
//! threads, other mappings and the medium, and streaming stores are no part of
//! the language's memory model. Each is a barrier to the compiler.

use core::arch::asm;
use core::arch::x86_64::__m128i;

use super::{LineStore, WriteBack};
use crate::{LINE_BYTES, Line};

/// Streams lines, from anywhere.
///
/// # Safety
/// `to` is the aligned address of as many lines of a region open for stores, and
/// the CPU has the instruction.
#[inline(always)]
pub(crate) unsafe fn stream_lines(how: LineStore, to: *mut u8, lines: &[[u8; LINE_BYTES]]) {
    // The strategy is looked at once, not for each line.
    // SAFETY: as the caller promises; each line goes to its own place.
    unsafe {
        match how {
            LineStore::Movdir64b => each_line(to, lines, |to, from| movdir64b(to, from)),
            LineStore::Avx512 => each_line(to, lines, |to, from| avx512(to, from)),
            LineStore::Sse2 => each_line(to, lines, |to, from| sse2(to, from)),
        }
    }
}

#[inline(always)]
fn each_line(to: *mut u8, lines: &[[u8; LINE_BYTES]], store: impl Fn(*mut u8, *const u8)) {
    for (i, line) in lines.iter().enumerate() {
        store(to.wrapping_add(i * LINE_BYTES), line.as_ptr());
    }
}

#[inline(always)]
pub(super) unsafe fn movdir64b(to: *mut u8, from: *const u8) {
    // SAFETY: as `stream_lines` was promised.
    unsafe {
        asm!("movdir64b {to}, [{from}]", to = in(reg) to, from = in(reg) from,
             options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub(super) unsafe fn avx512(to: *mut u8, from: *const u8) {
    // zmm16 and above leave no dirty upper halves that slow SSE code down.
    // SAFETY: as `stream_lines` was promised.
    unsafe {
        asm!("vmovdqu64 zmm16, [{from}]", "vmovntdq [{to}], zmm16",
             to = in(reg) to, from = in(reg) from, out("zmm16") _,
             options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub(super) unsafe fn sse2(to: *mut u8, from: *const u8) {
    // SAFETY: as `stream_lines` was promised; a line holds four quarters.
    unsafe {
        let quarters = from.cast::<__m128i>();
        asm!("movntdq [{to}], {a}", "movntdq [{to} + 16], {b}",
             "movntdq [{to} + 32], {c}", "movntdq [{to} + 48], {d}",
             to = in(reg) to,
             a = in(xmm_reg) quarters.read_unaligned(),
             b = in(xmm_reg) quarters.add(1).read_unaligned(),
             c = in(xmm_reg) quarters.add(2).read_unaligned(),
             d = in(xmm_reg) quarters.add(3).read_unaligned(),
             options(nostack, preserves_flags));
    }
}

/// Stores a line through the cache.
///
/// # Safety
/// `to` is the aligned address of a line of a region open for stores.
#[inline(always)]
pub(crate) unsafe fn store_line(to: *mut u8, line: &Line) {
    let quarters = line.0.as_ptr().cast::<__m128i>();
    // SAFETY: as the caller promises; a Line holds four quarters.
    unsafe {
        asm!("movdqa [{to}], {a}", "movdqa [{to} + 16], {b}",
             "movdqa [{to} + 32], {c}", "movdqa [{to} + 48], {d}",
             to = in(reg) to, a = in(xmm_reg) *quarters, b = in(xmm_reg) *quarters.add(1),
             c = in(xmm_reg) *quarters.add(2), d = in(xmm_reg) *quarters.add(3),
             options(nostack, preserves_flags));
    }
}

/// Streams a word.
///
/// # Safety
/// `to` is the aligned address of a word of a region open for stores.
#[inline(always)]
pub(crate) unsafe fn stream_word(to: *mut u8, value: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!("movnti [{to}], {value}", to = in(reg) to, value = in(reg) value,
             options(nostack, preserves_flags));
    }
}

/// Stores a word through the cache.
///
/// # Safety
/// `to` is the aligned address of a word of a region open for stores.
#[inline(always)]
pub(crate) unsafe fn store_word(to: *mut u8, value: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!("mov [{to}], {value}", to = in(reg) to, value = in(reg) value,
             options(nostack, preserves_flags));
    }
}

/// Stores words through the cache, each in one piece.
///
/// # Safety
/// `to` is the aligned address of as many words of a region open for stores.
#[inline(always)]
pub(crate) unsafe fn store_words(to: *mut u8, words: &[[u8; 8]]) {
    // SAFETY: as the caller promises. (`rep movsq` stores no less than words.)
    unsafe {
        asm!("rep movsq", inout("rcx") words.len() => _, inout("rdi") to => _,
             inout("rsi") words.as_ptr() => _, options(nostack, preserves_flags));
    }
}

/// Stores a byte through the cache.
///
/// # Safety
/// `to` is the address of a byte of a region open for stores.
#[inline(always)]
pub(crate) unsafe fn store_byte(to: *mut u8, value: u8) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!("mov [{to}], {value}", to = in(reg) to, value = in(reg_byte) value,
             options(nostack, preserves_flags));
    }
}

/// Starts the write-back of the line that holds `at`.
///
/// # Safety
/// `at` is an address of a mapped region, and the CPU has the instruction.
#[inline(always)]
pub(crate) unsafe fn write_back(how: WriteBack, at: *mut u8) {
    // SAFETY: as the caller promises.
    unsafe {
        match how {
            WriteBack::Clwb => {
                asm!("clwb [{at}]", at = in(reg) at, options(nostack, preserves_flags));
            }
            WriteBack::Clflushopt => {
                asm!("clflushopt [{at}]", at = in(reg) at, options(nostack, preserves_flags));
            }
            WriteBack::Clflush => {
                asm!("clflush [{at}]", at = in(reg) at, options(nostack, preserves_flags));
            }
            WriteBack::None => {}
        }
    }
}

/// Waits until streamed stores and write-backs are accepted by the memory.
#[inline(always)]
pub(crate) fn fence() {
    // SAFETY: every x86-64 CPU has it; it touches nothing.
    unsafe {
        asm!("sfence", options(nostack, preserves_flags));
    }
}
