//! Streaming strips, their sum and their CRCs in one pass: each register is loaded once, and goes to the medium, into the
//! parity and into the CRC.
// Arrays of registers, by their numbers.
#![allow(clippy::indexing_slicing)]

use core::arch::asm;
use core::arch::x86_64::{__m512i, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512};

use super::{LineStore, x86};
use crate::crc32c::wide::{self, PART, REGISTERS, WIDE};
use crate::{LINE_BYTES, Line};

/// The most strips at a time.
pub(crate) const STRIPS: usize = 8;

/// Streams strips of `piece` bytes to the first of `to`, their sum (exclusive or) to the second, and gives the CRC32C of
/// each.
///
/// # Safety
/// Both are aligned addresses of as many lines of a region open for stores; `lines` are whole strips, no more than
/// [`STRIPS`]; the CPU has the instruction, and [`wide::takes`] has returned true of `piece`.
#[target_feature(enable = "avx512f,vpclmulqdq")]
pub(crate) unsafe fn stream(
    how: LineStore,
    to: [*mut u8; 2],
    lines: &[[u8; LINE_BYTES]],
    piece: usize,
    each: impl FnMut(u32),
) {
    let mut crcs = [0; STRIPS];
    // SAFETY: as the caller promises; a line is where it is said to be, in the register and in memory.
    unsafe {
        match how {
            // (As of many lines: `LineStore::of_many`.)
            LineStore::Movdir64b | LineStore::Avx512 => {
                strips(to, lines, piece, &mut crcs, |to, _, line| {
                    asm!("vmovntdq [{to}], {line}", to = in(reg) to, line = in(zmm_reg) line,
                     options(nostack, preserves_flags));
                })
            }
            LineStore::Sse2 => {
                strips(to, lines, piece, &mut crcs, |to, from, _| x86::sse2(to, from));
            }
        }
    }
    crcs.into_iter().take(lines.len() * LINE_BYTES / piece).for_each(each);
}

/// # Safety
/// As of [`stream`]. `store` gets the place of a line, where it is in memory, and in a register.
#[target_feature(enable = "avx512f,vpclmulqdq")]
unsafe fn strips(
    [to, parity_to]: [*mut u8; 2],
    lines: &[[u8; LINE_BYTES]],
    piece: usize,
    crcs: &mut [u32; STRIPS],
    store: impl Fn(*mut u8, *const u8, __m512i),
) {
    let from = lines.as_flattened().as_ptr();
    let count = (lines.len() * LINE_BYTES / piece).min(STRIPS);
    let mut sums = [_mm512_setzero_si512(); STRIPS];
    for part in 0..piece / PART {
        let mut parity = [_mm512_setzero_si512(); REGISTERS];
        for (strip, sum) in sums.iter_mut().enumerate().take(count) {
            let skip = strip * piece + part * PART;
            let (from, to) = (from.wrapping_add(skip), to.wrapping_add(skip));
            let take = |number: usize, line: __m512i| {
                let at = number * WIDE;
                parity[number] = _mm512_xor_si512(parity[number], line);
                store(to.wrapping_add(at), from.wrapping_add(at), line);
            };
            // SAFETY: strips are whole parts.
            let more = unsafe { wide::sum_of(from, take) };
            *sum = wide::behind(part, *sum, more);
        }
        for (number, parity) in parity.into_iter().enumerate() {
            let mut line = Line::ZERO;
            // SAFETY: a line is as long as a register.
            unsafe { _mm512_storeu_si512(line.0.as_mut_ptr().cast(), parity) };
            store(parity_to.wrapping_add(part * PART + number * WIDE), line.0.as_ptr(), parity);
        }
    }
    let inversion = wide::inversion_of(piece);
    for (crc, sum) in crcs.iter_mut().zip(sums).take(count) {
        // SAFETY: who has the instructions has `crc32`.
        *crc = unsafe { wide::crc_of(sum) } ^ inversion;
    }
}
