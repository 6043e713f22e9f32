//! CRC32C of pieces of one length by carry-less multiplication in registers of 64 bytes.
//!
//! A CRC is what is left of the bytes, as a polynomial, divided by another one. What comes first can be moved behind what comes
//! later by a multiplication with what is left of x^n (V. Gopal et al., Fast CRC Computation Using PCLMULQDQ, Intel 2009): so
//! pieces are folded, 256 bytes at a time, until 16 bytes are left, of which the instruction `crc32` makes the end.
//!
//! Only where there is an operating system: a kernel would have to save these registers.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_xor_si128,
    _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_set_epi64,
    _mm512_ternarylogic_epi64, _mm512_xor_si512,
};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::x86::step_word;

/// Bytes of a register.
const WIDE: usize = 64;
/// Bytes that are folded at a time; pieces are multiples of it.
pub(super) const BLOCK: usize = 4 * WIDE;

const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

static INSTRUCTIONS: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether this CPU has the instructions, and the system saves their registers. Asked once.
#[inline]
pub(super) fn available() -> bool {
    match INSTRUCTIONS.load(Relaxed) {
        UNKNOWN => detect(),
        known => known == PRESENT,
    }
}

#[cold]
fn detect() -> bool {
    let present = std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("vpclmulqdq")
        && super::x86::available();
    INSTRUCTIONS.store(if present { PRESENT } else { ABSENT }, Relaxed);
    present
}

/// What is left of x^n, divided by the polynomial: bits reversed, as the instruction takes them.
const fn power(n: u32) -> i64 {
    const POLYNOMIAL: u32 = 0x1edc_6f41;
    let (mut left, mut step) = (1u32, 0);
    while step < n {
        left = if left >> 31 == 1 { left << 1 ^ POLYNOMIAL } else { left << 1 };
        step += 1;
    }
    (left.reverse_bits() as i64) << 1
}

/// Two factors that move 16 bytes by so many bits.
const fn factors(bits: u32) -> [i64; 2] {
    [power(bits + 32), power(bits - 32)]
}

/// By four registers, three, two, one.
const BY_BLOCK: [i64; 2] = factors(2048);
const BY_THREE: [i64; 2] = factors(1536);
const BY_TWO: [i64; 2] = factors(1024);
const BY_ONE: [i64; 2] = factors(512);
/// Within a register: by three lanes, two, one.
const LANES: [[i64; 2]; 3] = [factors(384), factors(256), factors(128)];

/// The CRC of a piece of whole blocks, from 0.
///
/// # Safety
/// [`available`] has returned true, and `piece` is of one block or more and has no rest.
#[target_feature(enable = "avx512f,vpclmulqdq")]
pub(super) unsafe fn crc(piece: &[u8]) -> u32 {
    let load = |at: usize| {
        // SAFETY: the caller promises whole blocks, and goes through them by `at`.
        unsafe { _mm512_loadu_si512(piece.as_ptr().add(at).cast()) }
    };
    let inverted = _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, 0xffff_ffff);
    let mut sums =
        [_mm512_xor_si512(load(0), inverted), load(WIDE), load(2 * WIDE), load(3 * WIDE)];
    let by_block = everywhere(BY_BLOCK);
    for at in (BLOCK..piece.len()).step_by(BLOCK) {
        for (number, sum) in sums.iter_mut().enumerate() {
            *sum = fold(*sum, by_block, load(at + number * WIDE));
        }
    }
    let [first, second, third, last] = sums;
    let sum = fold(first, everywhere(BY_THREE), last);
    let sum = fold(second, everywhere(BY_TWO), sum);
    let sum = fold(third, everywhere(BY_ONE), sum);
    let [[a, b], [c, d], [e, f]] = LANES;
    let moved = fold(
        sum,
        _mm512_set_epi64(0, 0, f, e, d, c, b, a),
        _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, 0),
    );
    let lanes = _mm_xor_si128(
        _mm_xor_si128(_mm512_extracti32x4_epi32::<0>(moved), _mm512_extracti32x4_epi32::<1>(moved)),
        _mm_xor_si128(_mm512_extracti32x4_epi32::<2>(moved), _mm512_extracti32x4_epi32::<3>(sum)),
    );
    // SAFETY: `available` asks for that instruction, too.
    unsafe { last_16(lanes) }
}

/// The same factors for each lane.
#[target_feature(enable = "avx512f")]
fn everywhere([low, high]: [i64; 2]) -> __m512i {
    _mm512_set_epi64(high, low, high, low, high, low, high, low)
}

/// `sum`, moved by these factors, and `more`.
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(sum: __m512i, factors: __m512i, more: __m512i) -> __m512i {
    const XOR_OF_THREE: i32 = 0x96;
    let low = _mm512_clmulepi64_epi128::<0x00>(sum, factors);
    let high = _mm512_clmulepi64_epi128::<0x11>(sum, factors);
    _mm512_ternarylogic_epi64::<XOR_OF_THREE>(low, high, more)
}

/// # Safety
/// The CPU has the instruction `crc32`.
#[target_feature(enable = "avx512f,sse4.1")]
unsafe fn last_16(left: __m128i) -> u32 {
    let (low, high) = (_mm_cvtsi128_si64(left), _mm_extract_epi64::<1>(left));
    // SAFETY: as the caller promises.
    let crc = unsafe { step_word(step_word(0, low.cast_unsigned()), high.cast_unsigned()) };
    !(crc as u32)
}
