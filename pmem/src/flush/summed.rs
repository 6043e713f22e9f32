//! Streaming strips, their sum and their CRCs in one pass: each line is loaded once, and goes to the medium, into the
//! parity and into the CRC, which are computed while the memory takes what has been streamed.
// Arrays of registers, by their numbers.
#![allow(clippy::indexing_slicing)]

use core::arch::asm;
use core::arch::x86_64::{
    __m512i, _mm_crc32_u64, _mm_loadu_si128, _mm_setzero_si128, _mm_xor_si128,
    _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::{LineStore, x86};
use crate::crc32c::wide::{self, PART, REGISTERS, WIDE};
use crate::crc32c::x86::available;
use crate::{LINE_BYTES, Line};

/// The most strips at a time.
pub(crate) const STRIPS: usize = 8;

/// As many strips as pages have: by the instruction `crc32` others are not taken.
const PAGES: [usize; 3] = [2, 4, 8];

/// Bytes of a small register, and how many a line has.
const QUARTER: usize = 16;
const QUARTERS: usize = LINE_BYTES / QUARTER;

/// Whether this CPU does it with so many strips of `piece` bytes, by one way or the other.
#[inline]
pub(crate) fn takes(strips: usize, piece: usize) -> bool {
    match wide::takes(piece) {
        true => strips <= STRIPS,
        false => available() && PAGES.contains(&strips),
    }
}

/// Streams strips of `piece` bytes to the first of `to`, their sum (exclusive or) to the second, and gives the CRC32C of
/// each.
///
/// # Safety
/// Both are aligned addresses of as many lines of a region open for stores; `lines` are whole strips; the CPU has the instruction to store by, and [`takes`] has returned true.
#[inline]
pub(crate) unsafe fn stream(
    how: LineStore,
    to: [*mut u8; 2],
    lines: &[[u8; LINE_BYTES]],
    piece: usize,
    each: impl FnMut(u32),
) {
    let mut crcs = [0; STRIPS];
    // SAFETY: as the caller promises.
    unsafe {
        if wide::takes(piece) {
            stream_wide(how, to, lines, piece, &mut crcs);
        } else {
            stream_by_words(how, to, lines, piece, &mut crcs);
        }
    }
    crcs.into_iter().take(lines.len() * LINE_BYTES / piece).for_each(each);
}

/// # Safety
/// As of [`stream`], and [`wide::takes`] has returned true of `piece`.
#[target_feature(enable = "avx512f,vpclmulqdq")]
unsafe fn stream_wide(
    how: LineStore,
    to: [*mut u8; 2],
    lines: &[[u8; LINE_BYTES]],
    piece: usize,
    crcs: &mut [u32; STRIPS],
) {
    // SAFETY: as the caller promises; a line is where it is said to be, in the register and in memory.
    unsafe {
        match how {
            // (As of many lines: `LineStore::of_many`.)
            LineStore::Movdir64b | LineStore::Avx512 => {
                strips(to, lines, piece, crcs, |to, _, line| {
                    asm!("vmovntdq [{to}], {line}", to = in(reg) to, line = in(zmm_reg) line,
                     options(nostack, preserves_flags));
                })
            }
            LineStore::Sse2 => strips(to, lines, piece, crcs, |to, from, _| x86::sse2(to, from)),
        }
    }
}

/// # Safety
/// As of [`stream_wide`]. `store` gets the place of a line, where it is in memory, and in a register.
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

/// # Safety
/// As of [`stream`], of as many strips as [`PAGES`] has.
#[target_feature(enable = "sse4.2")]
unsafe fn stream_by_words(
    how: LineStore,
    to: [*mut u8; 2],
    lines: &[[u8; LINE_BYTES]],
    piece: usize,
    crcs: &mut [u32; STRIPS],
) {
    // SAFETY: as the caller promises; a line is where it is said to be.
    unsafe {
        match how.of_many() {
            LineStore::Movdir64b => {
                by_words(to, lines, piece, crcs, |to, from| x86::movdir64b(to, from));
            }
            LineStore::Avx512 => by_words(to, lines, piece, crcs, |to, from| x86::avx512(to, from)),
            LineStore::Sse2 => by_words(to, lines, piece, crcs, |to, from| x86::sse2(to, from)),
        }
    }
}

/// # Safety
/// As of [`stream_by_words`]. `store` gets the place of a line, and where it is.
#[inline]
#[target_feature(enable = "sse4.2")]
unsafe fn by_words(
    to: [*mut u8; 2],
    lines: &[[u8; LINE_BYTES]],
    piece: usize,
    crcs: &mut [u32; STRIPS],
    store: impl Fn(*mut u8, *const u8),
) {
    // SAFETY: as the caller promises.
    unsafe {
        match lines.len() * LINE_BYTES / piece {
            8 => columns::<8>(to, lines, crcs, store),
            4 => columns::<4>(to, lines, crcs, store),
            _ => columns::<2>(to, lines, crcs, store),
        }
    }
}

/// Line by line of `COUNT` strips side by side: the instruction takes three cycles, but one of another strip can start in
/// each, and a line of the parity stays in registers, as all CRCs do.
///
/// # Safety
/// As of [`by_words`]; there are so many strips.
#[inline]
#[target_feature(enable = "sse4.2")]
unsafe fn columns<const COUNT: usize>(
    [to, parity_to]: [*mut u8; 2],
    lines: &[[u8; LINE_BYTES]],
    crcs: &mut [u32; STRIPS],
    store: impl Fn(*mut u8, *const u8),
) {
    let in_strip = lines.len() / COUNT;
    let mut running = [u64::from(u32::MAX); COUNT];
    for number in 0..in_strip {
        let mut parity = [_mm_setzero_si128(); QUARTERS];
        for (strip, crc) in running.iter_mut().enumerate() {
            let at = strip * in_strip + number;
            // SAFETY: strips are as many, and each has so many lines.
            let line = unsafe { lines.get_unchecked(at) };
            for (sum, quarter) in parity.iter_mut().zip(line.as_chunks::<QUARTER>().0) {
                // SAFETY: a quarter is as long as a register.
                let quarter = unsafe { _mm_loadu_si128(quarter.as_ptr().cast()) };
                *sum = _mm_xor_si128(*sum, quarter);
            }
            store(to.wrapping_add(at * LINE_BYTES), line.as_ptr());
            for word in line.as_chunks().0 {
                *crc = _mm_crc32_u64(*crc, u64::from_le_bytes(*word));
            }
        }
        store(parity_to.wrapping_add(number * LINE_BYTES), parity.as_ptr().cast());
    }
    for (crc, running) in crcs.iter_mut().zip(running) {
        *crc = !(running as u32);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::crc32c::crc32c;

    /// Streams a page in strips, by words or as is usual here; gives what was stored of it, its parity and its CRCs.
    fn streamed(
        page: &[[u8; LINE_BYTES]],
        piece: usize,
        by_words: bool,
    ) -> (Vec<Line>, Vec<Line>, Vec<u32>) {
        let mut to = vec![Line::ZERO; page.len()];
        let mut parity = vec![Line([0xee; LINE_BYTES]); piece / LINE_BYTES];
        let places = [to.as_mut_ptr().cast(), parity.as_mut_ptr().cast()];
        let mut crcs = Vec::new();
        unsafe {
            if by_words {
                let mut all = [0; STRIPS];
                stream_by_words(LineStore::Sse2, places, page, piece, &mut all);
                crcs.extend(all.into_iter().take(page.len() * LINE_BYTES / piece));
            } else {
                stream(LineStore::Sse2, places, page, piece, |crc| crcs.push(crc));
            }
            x86::fence();
        }
        (to, parity, crcs)
    }

    #[test]
    fn both_ways_store_a_page_and_compute_the_same() {
        let page: Vec<[u8; LINE_BYTES]> = (0..64u32)
            .map(|line| core::array::from_fn(|at| (line * line / 3 + at as u32 * 7) as u8))
            .collect();
        for piece in [512, 1024, 2048] {
            if !takes(4096 / piece, piece) {
                println!("skipped: this CPU has no instruction for CRC32C");
                return;
            }
            let strips: Vec<&[u8]> = page.as_flattened().chunks_exact(piece).collect();
            let sum = |at: usize| strips.iter().fold(0, |sum, strip| sum ^ strip[at]);
            for by_words in [true, false] {
                let (stored, parity, crcs) = streamed(&page, piece, by_words);
                assert!(stored.iter().map(|line| &line.0).eq(&page), "{piece}");
                let parity = parity.iter().flat_map(|line| line.0);
                assert!(parity.eq((0..piece).map(sum)), "{piece}");
                let each = strips.iter().map(|strip| crc32c(0, strip));
                assert!(crcs.into_iter().eq(each), "{piece}");
            }
        }
    }
}
