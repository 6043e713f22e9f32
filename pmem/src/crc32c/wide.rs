//! CRC32C of strips by carry-less multiplication in registers of 64 bytes.
//!
//! A CRC is what is left of the bytes, as a polynomial, divided by another one. What comes first can be moved behind what comes
//! later by a multiplication with what is left of x^n (V. Gopal et al., Fast CRC Computation Using PCLMULQDQ, Intel 2009). Here each
//! 16 bytes of a part of 512 have a factor of their own, which moves them to the part's end, where all are added: so no
//! multiplication waits for another, and how many the processor can start decides. Of the 16 bytes that are left the
//! instruction `crc32` makes the end.
//!
//! Only where there is an operating system: a kernel would have to save these registers.
// A table of factors that is made when this is compiled, by numbers.
#![allow(clippy::indexing_slicing)]

use core::arch::x86_64::{
    __m128i, __m512i, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_xor_si128, _mm256_castsi256_si128,
    _mm256_extracti128_si256, _mm256_xor_si256, _mm512_castsi512_si256, _mm512_clmulepi64_epi128,
    _mm512_extracti64x4_epi64, _mm512_loadu_si512, _mm512_set_epi64, _mm512_setzero_si512,
    _mm512_ternarylogic_epi64,
};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::table;
use super::x86::step_word;

/// Bytes of a register.
pub(crate) const WIDE: usize = 64;
/// Registers of a part.
pub(crate) const REGISTERS: usize = PART / WIDE;
/// Bytes that are summed up at a time.
pub(crate) const PART: usize = 512;
/// Bytes of the strips that this is for, each of whole parts.
const STRIPS: [usize; 3] = [PART, 2 * PART, 4 * PART];
/// What the start from all ones, and the inversion at the end, make of the CRC of so many bytes.
const INVERSIONS: [u32; 3] = [inversion(STRIPS[0]), inversion(STRIPS[1]), inversion(STRIPS[2])];

/// Without its x^32.
const POLYNOMIAL: u32 = 0x1edc_6f41;

const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

static INSTRUCTIONS: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether strips of `piece` bytes can be summed up here: this CPU has the instructions, and the system saves their
/// registers. Asked once.
#[inline]
pub(crate) fn takes(piece: usize) -> bool {
    let available = match INSTRUCTIONS.load(Relaxed) {
        UNKNOWN => detect(),
        known => known == PRESENT,
    };
    available && STRIPS.contains(&piece)
}

#[cold]
fn detect() -> bool {
    let present = std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512vl")
        && std::arch::is_x86_feature_detected!("vpclmulqdq")
        && std::arch::is_x86_feature_detected!("bmi2")
        && super::x86::available();
    INSTRUCTIONS.store(if present { PRESENT } else { ABSENT }, Relaxed);
    present
}

/// What is left of x^n, divided by the polynomial: bits reversed, as the instruction takes them.
const fn power(n: i32) -> i64 {
    (power_of(n).reverse_bits() as i64) << 1
}

/// A factor for 64 bits that moves them by so many, to no more than 96 bits.
const fn narrow(bits: i32) -> i64 {
    (power_of(bits - 1).reverse_bits() as i64) << 32
}

/// The whole part of x^64 divided by the polynomial, and the polynomial: bits reversed, without the last one, in an upper word.
const INVERSE: i64 = {
    let (mut left, mut quotient, mut bit) = (1u128 << 64, 0u64, 64);
    while bit >= 32 {
        if left >> bit & 1 == 1 {
            quotient |= 1 << (bit - 32);
            left ^= (1 << 32 | POLYNOMIAL as u128) << (bit - 32);
        }
        bit -= 1;
    }
    (((quotient >> 1) as u32).reverse_bits() as i64) << 32
};
const DIVISOR: i64 = ((1 << 31 | POLYNOMIAL >> 1).reverse_bits() as i64) << 32;

/// The same, as it is.
const fn power_of(n: i32) -> u32 {
    let (mut left, mut step) = (1u32, 0);
    while step < n {
        left = if left >> 31 == 1 { left << 1 ^ POLYNOMIAL } else { left << 1 };
        step += 1;
    }
    while step > n {
        left = if left & 1 == 1 { (left ^ POLYNOMIAL) >> 1 | 1 << 31 } else { left >> 1 };
        step -= 1;
    }
    left
}

/// Two factors that move 16 bytes by so many bits.
const fn factors(bits: i32) -> [i64; 2] {
    [power(bits + 32), power(bits - 32)]
}

/// Factors that move each lane of 16 bytes of each register of a part to the part's end.
#[repr(C, align(64))]
pub(crate) struct Factors([[[i64; 2]; WIDE / 16]; REGISTERS]);

/// These.
pub(crate) static FACTORS: Factors = Factors({
    let mut all = [[[0; 2]; WIDE / 16]; REGISTERS];
    let mut lane = 0;
    while lane < PART / 16 {
        all[lane / 4][lane % 4] = factors(8 * (PART - 16 - lane * 16) as i32);
        lane += 1;
    }
    all
});

/// By a whole part.
const BY_PART: [i64; 2] = factors(8 * PART as i32);

const fn inversion(len: usize) -> u32 {
    let (mut crc, mut at) = (u32::MAX, 0);
    while at < len {
        crc = table::step(crc, 0);
        at += 1;
    }
    !crc
}

/// The CRC of each strip of `piece` bytes of `bytes`, from 0.
///
/// # Safety
/// [`takes`] has returned true of `piece`.
#[target_feature(enable = "avx512f,vpclmulqdq")]
pub(super) unsafe fn pieces(bytes: &[u8], piece: usize, mut each: impl FnMut(u32)) {
    let inversion = inversion_of(piece);
    for strip in bytes.chunks_exact(piece) {
        let mut sum = _mm512_setzero_si512();
        for (number, part) in strip.as_chunks::<PART>().0.iter().enumerate() {
            // SAFETY: a part is so long.
            let more = unsafe { sum_of(part.as_ptr(), |_, _| ()) };
            sum = behind(number, sum, more);
        }
        // SAFETY: as the caller promises.
        each(unsafe { crc_of(sum) } ^ inversion);
    }
}

/// What finds out what is left of lanes of 16 bytes, four of them in a register, times x^32, in strips of a part.
///
/// A lane is made 96 bits long, then 64, by factors; of these the quotient is found by a multiplication with the inverse of the
/// polynomial (P. Barrett), and the quotient times the polynomial is added. (Factors are without their last bit, and moved up by a
/// word, so that nothing has to be masked: it would add the quotient itself.)
#[repr(C, align(64))]
pub(crate) struct Left {
    moves: [[[i64; 2]; WIDE / 16]; 5],
    /// Of eight lanes in two registers the last words, and the second ones.
    words: [[u32; WIDE / 4]; 2],
    inversions: [u32; WIDE / 4],
}

/// These.
pub(crate) static LEFT: Left = Left {
    moves: [
        [[narrow(96), narrow(32)]; 4],
        [[narrow(64), 0]; 4],
        // (What is added: the upper half.)
        [[0, -1]; 4],
        [[INVERSE, 0]; 4],
        [[DIVISOR, 0]; 4],
    ],
    words: [
        [3, 7, 11, 15, 19, 23, 27, 31, 0, 0, 0, 0, 0, 0, 0, 0],
        [1, 5, 9, 13, 17, 21, 25, 29, 0, 0, 0, 0, 0, 0, 0, 0],
    ],
    inversions: [INVERSIONS[0]; 16],
};

/// What has to be added to the CRC of strips of so many bytes.
pub(crate) fn inversion_of(piece: usize) -> u32 {
    let known = STRIPS.iter().zip(INVERSIONS).find(|(bytes, _)| **bytes == piece);
    known.map_or(0, |(_, inversion)| inversion)
}

/// The sum of the part at `part`; `each` gets its registers, one by one, with their numbers.
///
/// # Safety
/// There are as many bytes.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
pub(crate) unsafe fn sum_of(part: *const u8, mut each: impl FnMut(usize, __m512i)) -> __m512i {
    let mut sum = _mm512_setzero_si512();
    for (number, factors) in FACTORS.0.iter().enumerate() {
        // SAFETY: the caller promises the bytes; factors are as long as a register.
        let (bytes, factors) = unsafe {
            let bytes = _mm512_loadu_si512(part.add(number * WIDE).cast());
            (bytes, _mm512_loadu_si512(factors.as_ptr().cast()))
        };
        each(number, bytes);
        sum = fold(bytes, factors, sum);
    }
    sum
}

/// The sum of a strip so far, and of its part with this number.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
pub(crate) fn behind(number: usize, sum: __m512i, part: __m512i) -> __m512i {
    let [low, high] = BY_PART;
    match number {
        0 => part,
        _ => fold(sum, _mm512_set_epi64(high, low, high, low, high, low, high, low), part),
    }
}

/// `sum`, moved by these factors, and `more`.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(sum: __m512i, factors: __m512i, more: __m512i) -> __m512i {
    const XOR_OF_THREE: i32 = 0x96;
    let low = _mm512_clmulepi64_epi128::<0x00>(sum, factors);
    let high = _mm512_clmulepi64_epi128::<0x11>(sum, factors);
    _mm512_ternarylogic_epi64::<XOR_OF_THREE>(low, high, more)
}

/// What is left of a sum.
///
/// # Safety
/// The CPU has the instruction `crc32`.
#[inline]
#[target_feature(enable = "avx512f,avx2,sse4.1")]
pub(crate) unsafe fn crc_of(sum: __m512i) -> u32 {
    let half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum));
    let left: __m128i =
        _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
    let (low, high) = (_mm_cvtsi128_si64(left), _mm_extract_epi64::<1>(left));
    // SAFETY: as the caller promises.
    let crc = unsafe { step_word(step_word(0, low.cast_unsigned()), high.cast_unsigned()) };
    crc as u32
}
