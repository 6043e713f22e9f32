//! What this CPU can do, asked of it once.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

use super::{LineStore, WriteBack};

/// The features of the CPU that matter to a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuFeatures {
    /// `movdir64b`.
    pub movdir64b: bool,
    /// AVX-512 foundation, with its registers switched on by the operating system.
    pub avx512: bool,
    /// `clwb`.
    pub clwb: bool,
    /// `clflushopt`.
    pub clflushopt: bool,
    /// Protection keys, switched on by the operating system.
    pub protection_keys: bool,
}

const LEAF_FEATURES: u32 = 1;
const LEAF_EXTENDED: u32 = 7;
const FEATURES_ECX_OSXSAVE: u32 = 1 << 27;
const EXTENDED_EBX_AVX512F: u32 = 1 << 16;
const EXTENDED_EBX_CLFLUSHOPT: u32 = 1 << 23;
const EXTENDED_EBX_CLWB: u32 = 1 << 24;
const EXTENDED_ECX_OSPKE: u32 = 1 << 4;
const EXTENDED_ECX_MOVDIR64B: u32 = 1 << 28;
/// xmm, ymm, mask registers, upper halves of zmm0-15, zmm16-31.
const XCR0_AVX512: u64 = 1 << 1 | 1 << 2 | 1 << 5 | 1 << 6 | 1 << 7;

impl CpuFeatures {
    /// Those of the CPU that this runs on.
    pub fn get() -> Self {
        static FOUND: OnceLock<CpuFeatures> = OnceLock::new();
        *FOUND.get_or_init(detect)
    }

    pub(crate) fn has_line_store(self, line_store: LineStore) -> bool {
        match line_store {
            LineStore::Movdir64b => self.movdir64b,
            LineStore::Avx512 => self.avx512,
            LineStore::Sse2 => true,
        }
    }

    pub(crate) fn has_write_back(self, write_back: WriteBack) -> bool {
        match write_back {
            WriteBack::Clwb => self.clwb,
            WriteBack::Clflushopt => self.clflushopt,
            WriteBack::Clflush | WriteBack::None => true,
        }
    }
}

#[allow(unused_unsafe)]
fn detect() -> CpuFeatures {
    // SAFETY: every x86-64 CPU has cpuid and its leaves 0 and 1; leaf 7 only if leaf 0 says so.
    let (basic, extended) = unsafe {
        if __cpuid(0).eax < LEAF_EXTENDED {
            return CpuFeatures::default();
        }
        (__cpuid(LEAF_FEATURES), __cpuid_count(LEAF_EXTENDED, 0))
    };
    let zmm_on = basic.ecx & FEATURES_ECX_OSXSAVE != 0 && {
        // SAFETY: OSXSAVE says that xgetbv is switched on.
        let enabled = unsafe { xgetbv0() };
        enabled & XCR0_AVX512 == XCR0_AVX512
    };
    CpuFeatures {
        movdir64b: extended.ecx & EXTENDED_ECX_MOVDIR64B != 0,
        avx512: zmm_on && extended.ebx & EXTENDED_EBX_AVX512F != 0,
        clwb: extended.ebx & EXTENDED_EBX_CLWB != 0,
        clflushopt: extended.ebx & EXTENDED_EBX_CLFLUSHOPT != 0,
        protection_keys: extended.ecx & EXTENDED_ECX_OSPKE != 0,
    }
}

/// # Safety
/// The CPU has xgetbv and the operating system has switched it on.
unsafe fn xgetbv0() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a control register, says the caller.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high,
             options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}
