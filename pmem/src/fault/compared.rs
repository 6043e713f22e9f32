//! Loads of strips that are compared with what is kept of them, in assembly, for the reasons of [`load`](super::load).
//!
//! Each register goes to the caller's buffer and into the checksum of its strip ([`wide`]). What is left of the sums of all
//! strips is found at once, in the lanes of registers. All of it is as few instructions as can be: who reads at random waits
//! for memory, and while he does the processor looks for what to ask for next, as far ahead as some hundred instructions. Where the
//! next read is farther away than that, nothing is asked for meanwhile, and each read takes the memory's latency longer.
//!
//! Who reads on has the next strips asked for, each line of them beside the one as far in front: what is asked for does not wait
//! in the processor for its line, as loads do, and the sums, of which there are too many for it to look far ahead, take no time of
//! their own then.

use std::arch::global_asm;
use std::ops::Range;

use super::load::{Loaded, poisoned};
use crate::crc32c::wide::{FACTORS, Factors, LEFT, Left, PART};
use crate::{LINE_BYTES, MediaError};

/// Strips that are loaded at a time.
const STRIPS: usize = 8;

/// What a line asks for, of what is loaded next: nothing, or the line a page ahead.
macro_rules! asks {
    (alone, $strip:literal, $at:literal) => {
        ""
    };
    (followed, $strip:literal, $at:literal) => {
        concat!("prefetcht0 [rsi + 4096 + 512 * ", $strip, " + ", $at, "]\n")
    };
}

/// A line of a strip: to the buffer, and into the strip's sum by this factor, through these three registers.
macro_rules! line {
    ($how:ident, $strip:literal, $at:literal, $factor:literal, [$line:literal, $low:literal, $high:literal], $add:expr) => {
        concat!(
            asks!($how, $strip, $at),
            "vmovdqa64 ",
            $line,
            ", [rsi + 512 * ",
            $strip,
            " + ",
            $at,
            "]\n",
            "vmovdqu64 [rdi + 512 * ",
            $strip,
            " + ",
            $at,
            "], ",
            $line,
            "\n",
            "vpclmulqdq ",
            $low,
            ", ",
            $line,
            ", ",
            $factor,
            ", 0x00\n",
            "vpclmulqdq ",
            $high,
            ", ",
            $line,
            ", ",
            $factor,
            ", 0x11\n",
            $add,
        )
    };
    ($how:ident, $sum:literal, $strip:literal, $at:literal, $factor:literal, even) => {
        line!(
            $how,
            $strip,
            $at,
            $factor,
            ["zmm24", "zmm25", "zmm26"],
            concat!("vpternlogq ", $sum, ", zmm25, zmm26, 0x96\n")
        )
    };
    ($how:ident, $sum:literal, $strip:literal, $at:literal, $factor:literal, odd) => {
        line!(
            $how,
            $strip,
            $at,
            $factor,
            ["zmm27", "zmm28", "zmm29"],
            concat!("vpternlogq ", $sum, ", zmm28, zmm29, 0x96\n")
        )
    };
}

/// A strip, whose sum goes to this register.
macro_rules! strip {
    ($how:ident, $sum:literal, $strip:literal) => {
        concat!(
            line!(
                $how,
                $strip,
                "0",
                "zmm0",
                ["zmm24", "zmm25", "zmm26"],
                concat!("vpxorq ", $sum, ", zmm25, zmm26\n")
            ),
            line!($how, $sum, $strip, "64", "zmm1", odd),
            line!($how, $sum, $strip, "128", "zmm2", even),
            line!($how, $sum, $strip, "192", "zmm3", odd),
            line!($how, $sum, $strip, "256", "zmm4", even),
            line!($how, $sum, $strip, "320", "zmm5", odd),
            line!($how, $sum, $strip, "384", "zmm6", even),
            line!($how, $sum, $strip, "448", "zmm7", odd),
        )
    };
}

/// The factors, whose address is in rcx.
macro_rules! factors {
    () => {
        "vmovdqa64 zmm0, [rcx]
         vmovdqa64 zmm1, [rcx + 64]
         vmovdqa64 zmm2, [rcx + 128]
         vmovdqa64 zmm3, [rcx + 192]
         vmovdqa64 zmm4, [rcx + 256]
         vmovdqa64 zmm5, [rcx + 320]
         vmovdqa64 zmm6, [rcx + 384]
         vmovdqa64 zmm7, [rcx + 448]
         "
    };
}

/// The four lanes of each of four registers added up, as a lane of the first; four others are used up.
macro_rules! lanes {
    ($a:literal, $b:literal, $c:literal, $d:literal, $w:literal, $x:literal) => {
        concat!(
            "vshufi64x2 ",
            $w,
            ", ",
            $a,
            ", ",
            $b,
            ", 0x44\n",
            "vshufi64x2 ",
            $a,
            ", ",
            $a,
            ", ",
            $b,
            ", 0xee\n",
            "vpxorq ",
            $a,
            ", ",
            $a,
            ", ",
            $w,
            "\n",
            "vshufi64x2 ",
            $x,
            ", ",
            $c,
            ", ",
            $d,
            ", 0x44\n",
            "vshufi64x2 ",
            $c,
            ", ",
            $c,
            ", ",
            $d,
            ", 0xee\n",
            "vpxorq ",
            $c,
            ", ",
            $c,
            ", ",
            $x,
            "\n",
            "vshufi64x2 ",
            $w,
            ", ",
            $a,
            ", ",
            $c,
            ", 0x88\n",
            "vshufi64x2 ",
            $a,
            ", ",
            $a,
            ", ",
            $c,
            ", 0xdd\n",
            "vpxorq ",
            $a,
            ", ",
            $a,
            ", ",
            $w,
            "\n",
        )
    };
}

/// What is left of each lane ([`Left`]): in the last word of a lane of the first register, with the second word of the second one added to it.
macro_rules! left {
    ($lanes:literal, $quotients:literal, $x:literal) => {
        concat!(
            "vpclmulqdq ",
            $x,
            ", ",
            $lanes,
            ", zmm0, 0x00\n",
            "vpclmulqdq ",
            $lanes,
            ", ",
            $lanes,
            ", zmm0, 0x11\n",
            "vpxorq ",
            $lanes,
            ", ",
            $lanes,
            ", ",
            $x,
            "\n",
            "vpclmulqdq ",
            $x,
            ", ",
            $lanes,
            ", zmm1, 0x00\n",
            // The first, and of the others what both have.
            "vpternlogq ",
            $x,
            ", ",
            $lanes,
            ", zmm2, 0x78\n",
            "vpclmulqdq ",
            $quotients,
            ", ",
            $x,
            ", zmm3, 0x01\n",
            "vpclmulqdq ",
            $lanes,
            ", ",
            $quotients,
            ", zmm4, 0x00\n",
            "vpxorq ",
            $lanes,
            ", ",
            $lanes,
            ", ",
            $x,
            "\n",
        )
    };
}

global_asm!(
    ".pushsection .text.lode_pmem_compared, \"ax\", @progbits",
    // (rdi: to, rsi: from, aligned, rdx: strips, 1 to 8, rcx: factors, r8: what is kept of them, r9: factors of what is left)
    // -> rax: whether all are the same, rdx: address of a fault or 0
    ".p2align 6",
    ".globl lode_pmem_compared",
    ".hidden lode_pmem_compared",
    ".type lode_pmem_compared, @function",
    "lode_pmem_compared:",
    ".cfi_startproc",
    "mov r10, r8",
    "mov r11, r9",
    "mov eax, edx",
    "shl edx, 9",
    "mov r8, rsi",
    "lea r9, [rsi + rdx]",
    "xor edx, edx",
    factors!(),
    "mov ecx, 0xff",
    "cmp eax, 8",
    "je 2f",
    // What is not asked for is zeros, and not compared.
    "bzhi ecx, ecx, eax",
    "vpxord xmm17, xmm17, xmm17",
    "vpxord xmm18, xmm18, xmm18",
    "vpxord xmm19, xmm19, xmm19",
    "vpxord xmm20, xmm20, xmm20",
    "vpxord xmm21, xmm21, xmm21",
    "vpxord xmm22, xmm22, xmm22",
    "vpxord xmm23, xmm23, xmm23",
    "2:",
    "kmovw k1, ecx",
    strip!(alone, "zmm16", "0"),
    "cmp eax, 1",
    "je 3f",
    "21:",
    strip!(alone, "zmm17", "1"),
    "cmp eax, 2",
    "je 3f",
    "22:",
    strip!(alone, "zmm18", "2"),
    "cmp eax, 3",
    "je 3f",
    "23:",
    strip!(alone, "zmm19", "3"),
    "cmp eax, 4",
    "je 3f",
    "24:",
    strip!(alone, "zmm20", "4"),
    "cmp eax, 5",
    "je 3f",
    "25:",
    strip!(alone, "zmm21", "5"),
    "cmp eax, 6",
    "je 3f",
    "26:",
    strip!(alone, "zmm22", "6"),
    "cmp eax, 7",
    "je 3f",
    "27:",
    strip!(alone, "zmm23", "7"),
    "3:",
    "mov r8, r10",
    "lea r9, [r10 + rax * 4]",
    "vmovdqu32 ymm31{{k1}}{{z}}, [r10]",
    "vmovdqa64 zmm0, [r11]",
    "vmovdqa64 zmm1, [r11 + 64]",
    "vmovdqa64 zmm2, [r11 + 128]",
    "vmovdqa64 zmm3, [r11 + 192]",
    "vmovdqa64 zmm4, [r11 + 256]",
    "vmovdqa64 zmm5, [r11 + 320]",
    "vmovdqa64 zmm6, [r11 + 384]",
    lanes!("zmm16", "zmm17", "zmm18", "zmm19", "zmm24", "zmm25"),
    lanes!("zmm20", "zmm21", "zmm22", "zmm23", "zmm26", "zmm27"),
    left!("zmm16", "zmm17", "zmm24"),
    left!("zmm20", "zmm21", "zmm26"),
    // All last words, and all second ones.
    "vpermt2d zmm16, zmm5, zmm20",
    "vpermt2d zmm17, zmm6, zmm21",
    "vpternlogd ymm31, ymm16, ymm17, 0x96",
    "vpxord ymm31, ymm31, [r11 + 448]",
    "vptestmd k2{{k1}}, ymm31, ymm31",
    "kmovw ecx, k2",
    "xor eax, eax",
    "test ecx, ecx",
    "sete al",
    "vzeroupper",
    "ret",
    ".cfi_endproc",
    ".size lode_pmem_compared, . - lode_pmem_compared",
    // The same of 8 strips, while some of those behind them are asked for (rdx: how many, 1 to 8).
    ".p2align 6",
    ".globl lode_pmem_compared_on",
    ".hidden lode_pmem_compared_on",
    ".type lode_pmem_compared_on, @function",
    "lode_pmem_compared_on:",
    ".cfi_startproc",
    "mov r10, r8",
    "mov r11, r9",
    "mov r8, rsi",
    "lea r9, [rsi + 4096]",
    factors!(),
    "mov ecx, 0xff",
    "kmovw k1, ecx",
    "mov ecx, edx",
    "xor edx, edx",
    "mov eax, 8",
    strip!(followed, "zmm16", "0"),
    "cmp ecx, 1",
    "je 21b",
    strip!(followed, "zmm17", "1"),
    "cmp ecx, 2",
    "je 22b",
    strip!(followed, "zmm18", "2"),
    "cmp ecx, 3",
    "je 23b",
    strip!(followed, "zmm19", "3"),
    "cmp ecx, 4",
    "je 24b",
    strip!(followed, "zmm20", "4"),
    "cmp ecx, 5",
    "je 25b",
    strip!(followed, "zmm21", "5"),
    "cmp ecx, 6",
    "je 26b",
    strip!(followed, "zmm22", "6"),
    "cmp ecx, 7",
    "je 27b",
    strip!(followed, "zmm23", "7"),
    "jmp 3b",
    ".cfi_endproc",
    ".size lode_pmem_compared_on, . - lode_pmem_compared_on",
    // Where the handler sends a load that it ends: rdx has been set.
    ".globl lode_pmem_compared_ended",
    ".hidden lode_pmem_compared_ended",
    "lode_pmem_compared_ended:",
    "vzeroupper",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    static lode_pmem_compared_ended: u8;
    fn lode_pmem_compared(
        to: *mut u8,
        from: *const u8,
        strips: usize,
        factors: *const Factors,
        crcs: *const u8,
        left: *const Left,
    ) -> Loaded;
    fn lode_pmem_compared_on(
        to: *mut u8,
        from: *const u8,
        strips: usize,
        factors: *const Factors,
        crcs: *const u8,
        left: *const Left,
    ) -> Loaded;
}

/// Where the routine is, and behind it where a load of it ends with an error.
pub(super) fn routine() -> Range<u64> {
    lode_pmem_compared as *const () as u64..(&raw const lode_pmem_compared_ended) as u64
}

/// Loads strips of [`PART`] bytes from offset `at` of the region at `base`, and says whether the CRC32C of each, of what has been
/// stored to `into`, is the one that is kept from `crcs_at` on, if that can be loaded. What follows is asked for meanwhile: strips, and
/// the `ahead` bytes behind them.
///
/// # Safety
/// All lies in the mapped region, the strips from a line's begin on, and the SIGBUS handler is installed; `into` is whole
/// strips; [`takes`](crate::crc32c::wide::takes) has returned true of [`PART`].
#[inline]
pub(crate) unsafe fn strips(
    base: *const u8,
    at: u64,
    into: &mut [u8],
    crcs_at: u64,
    ahead: u64,
) -> Result<bool, MediaError> {
    let (mut at, mut crcs_at, mut rest) = (at, crcs_at, into);
    let mut are_same = true;
    while let Some((now, more)) = rest.split_at_mut_checked(rest.len().min(STRIPS * PART))
        && !now.is_empty()
    {
        let next = ahead.saturating_add(more.len() as u64);
        // (The checksums of what is asked for now are there, or nearly.)
        crate::prefetch::address(base.wrapping_add(crcs_at as usize + LINE_BYTES));
        // SAFETY: as the caller promises.
        are_same &= unsafe { some(base, at, now, crcs_at, next) }?;
        at += now.len() as u64;
        crcs_at += (now.len() / PART * size_of::<u32>()) as u64;
        rest = more;
    }
    Ok(are_same)
}

/// The same of up to [`STRIPS`] strips, one at least. Where they are as many, the `ahead` bytes behind them are asked for
/// meanwhile, as far as they are no more.
///
/// # Safety
/// As [`strips`].
#[inline]
unsafe fn some(
    base: *const u8,
    at: u64,
    into: &mut [u8],
    crcs_at: u64,
    ahead: u64,
) -> Result<bool, MediaError> {
    let strips = into.len() / PART;
    let (to, factors, left) = (into.as_mut_ptr(), &raw const FACTORS, &raw const LEFT);
    // SAFETY: as the caller promises; what is asked for ahead need not be there.
    let loaded = unsafe {
        let (from, crcs) = (base.add(at as usize), base.add(crcs_at as usize));
        if ahead > 0 && strips == STRIPS {
            let asked = ahead.div_ceil(PART as u64).min(STRIPS as u64) as usize;
            lode_pmem_compared_on(to, from, asked, factors, crcs, left)
        } else {
            lode_pmem_compared(to, from, strips, factors, crcs, left)
        }
    };
    if loaded.fault != 0 {
        return ended(base, at, into.len(), loaded.fault);
    }
    Ok(loaded.value as u8 != 0)
}

/// What could not be loaded: the strips, or what is kept of them.
#[cold]
#[inline(never)]
fn ended(base: *const u8, at: u64, len: usize, fault: u64) -> Result<bool, MediaError> {
    let begin = (base as u64).saturating_add(at);
    // (A fault is told of where it is, or of what was loaded, if it is in front of that.)
    match (begin..begin + len as u64).contains(&fault) {
        true => Err(poisoned(base, at, fault)),
        false => Ok(false),
    }
}
