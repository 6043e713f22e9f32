//! CRC32C by the `crc32` instruction of SSE4.2, on general registers alone.
//!
//! The instruction takes three cycles but one can start in each, so long inputs
//! are taken as three streams side by side. Joining two streams means to move a
//! CRC past the bytes of the other, which tables made for one length do.
// Tables of 256 entries, by bytes, and what is left of a slice that was cut in pieces.
#![allow(clippy::indexing_slicing)]

use core::arch::asm;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::table;

/// Words of one of the three streams: 3 x 168 bytes fit in a strip of 512.
const STREAM_WORDS: usize = 21;
const STREAM_BYTES: usize = STREAM_WORDS * 8;

const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

static INSTRUCTION: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether this CPU has the instruction. Asked of the CPU once.
#[inline]
pub(crate) fn available() -> bool {
    match INSTRUCTION.load(Relaxed) {
        UNKNOWN => detect(),
        known => known == PRESENT,
    }
}

#[cold]
fn detect() -> bool {
    const LEAF_FEATURES: u32 = 1;
    const ECX_SSE4_2: u32 = 1 << 20;
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 CPU has cpuid and this leaf.
    let features = unsafe { core::arch::x86_64::__cpuid(LEAF_FEATURES) };
    let present = features.ecx & ECX_SSE4_2 != 0;
    INSTRUCTION.store(if present { PRESENT } else { ABSENT }, Relaxed);
    present
}

/// Takes `bytes` into a running (inverted) CRC.
///
/// # Safety
/// [`available`] has returned true.
#[inline]
pub(super) unsafe fn update(crc: u32, bytes: &[u8]) -> u32 {
    let mut crc = crc;
    let mut rest = bytes;
    if rest.len() >= 3 * STREAM_BYTES {
        // SAFETY: as the caller promises.
        (crc, rest) = unsafe { update_long(crc, rest) };
    }
    let (words, tail) = rest.as_chunks::<8>();
    let mut running = u64::from(crc);
    for word in words {
        // SAFETY: as the caller promises.
        running = unsafe { step_word(running, u64::from_le_bytes(*word)) };
    }
    crc = running as u32;
    for &byte in tail {
        // SAFETY: as the caller promises.
        crc = unsafe { step_byte(crc, byte) };
    }
    crc
}

/// The CRCs of four pieces of equal length, side by side.
///
/// # Safety
/// [`available`] has returned true.
pub(super) unsafe fn four(pieces: [&[u8]; 4]) -> [u32; 4] {
    let mut crcs = [u64::from(u32::MAX); 4];
    let [(a, e), (b, f), (c, g), (d, h)] = pieces.map(|piece| piece.as_chunks::<8>());
    for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
        // SAFETY: as the caller promises.
        crcs = unsafe {
            [
                step_word(crcs[0], u64::from_le_bytes(*a)),
                step_word(crcs[1], u64::from_le_bytes(*b)),
                step_word(crcs[2], u64::from_le_bytes(*c)),
                step_word(crcs[3], u64::from_le_bytes(*d)),
            ]
        };
    }
    let mut running = crcs.map(|crc| crc as u32);
    for (crc, tail) in running.iter_mut().zip([e, f, g, h]) {
        for &byte in tail {
            // SAFETY: as the caller promises.
            *crc = unsafe { step_byte(*crc, byte) };
        }
    }
    running.map(|crc| !crc)
}

/// Takes as many blocks of three streams as there are; returns what is left.
///
/// # Safety
/// [`available`] has returned true.
#[inline(never)]
unsafe fn update_long(crc: u32, bytes: &[u8]) -> (u32, &[u8]) {
    let mut crc = u64::from(crc);
    let (words, tail) = bytes.as_chunks::<8>();
    let mut blocks = words.chunks_exact(3 * STREAM_WORDS);
    for block in blocks.by_ref() {
        let (first, others) = block.split_at(STREAM_WORDS);
        let (second, third) = others.split_at(STREAM_WORDS);
        let (mut b, mut c) = (0, 0);
        for ((x, y), z) in first.iter().zip(second).zip(third) {
            // SAFETY: as the caller promises.
            unsafe {
                crc = step_word(crc, u64::from_le_bytes(*x));
                b = step_word(b, u64::from_le_bytes(*y));
                c = step_word(c, u64::from_le_bytes(*z));
            }
        }
        crc = u64::from(past_stream(crc as u32)) ^ b;
        crc = u64::from(past_stream(crc as u32)) ^ c;
    }
    let left = blocks.remainder().len() * 8 + tail.len();
    (crc as u32, &bytes[bytes.len() - left..])
}

/// # Safety
/// [`available`] has returned true.
#[inline(always)]
pub(super) unsafe fn step_word(mut crc: u64, word: u64) -> u64 {
    // SAFETY: registers only; the CPU has the instruction, says the caller.
    unsafe {
        asm!("crc32 {crc}, {word}", crc = inout(reg) crc, word = in(reg) word,
             options(pure, nomem, nostack, preserves_flags));
    }
    crc
}

/// # Safety
/// [`available`] has returned true.
#[inline(always)]
unsafe fn step_byte(mut crc: u32, byte: u8) -> u32 {
    // SAFETY: registers only; the CPU has the instruction, says the caller.
    unsafe {
        asm!("crc32 {crc:e}, {byte}", crc = inout(reg) crc, byte = in(reg_byte) byte,
             options(pure, nomem, nostack, preserves_flags));
    }
    crc
}

/// The running CRC `crc` after `STREAM_BYTES` more bytes of zero.
#[inline]
fn past_stream(crc: u32) -> u32 {
    let [a, b, c, d] = crc.to_le_bytes();
    PAST[0][a as usize] ^ PAST[1][b as usize] ^ PAST[2][c as usize] ^ PAST[3][d as usize]
}

/// [`past_stream`] of each value of each byte of a CRC; the whole is their sum,
/// because a CRC is linear.
static PAST: [[u32; 256]; 4] = {
    let mut of_bit = [0u32; 32];
    let mut bit = 0;
    while bit < 32 {
        let mut crc = 1u32 << bit;
        let mut zeros = 0;
        while zeros < STREAM_BYTES {
            crc = table::step(crc, 0);
            zeros += 1;
        }
        of_bit[bit] = crc;
        bit += 1;
    }
    let mut past = [[0u32; 256]; 4];
    let mut byte = 0;
    while byte < 4 {
        let mut value = 0;
        while value < 256 {
            let mut bit = 0;
            while bit < 8 {
                if value >> bit & 1 == 1 {
                    past[byte][value] ^= of_bit[byte * 8 + bit];
                }
                bit += 1;
            }
            value += 1;
        }
        byte += 1;
    }
    past
};
