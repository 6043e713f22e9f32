//! Asking for memory before it is wanted.

/// Asks for the line that `place` begins in, so that it is there when it is looked at: a hint, which
/// waits for nothing.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    address(core::ptr::from_ref(place).cast());
}

/// The same of an address, whatever is there: what is not, or may not be loaded, is not asked for.
#[inline(always)]
pub(crate) fn address(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch changes nothing and never faults; the instruction is in every CPU of this kind.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Asks for the first lines of `place`, from the one that it begins in: as many as `bytes` of it lie in.
#[inline(always)]
pub fn prefetch_bytes<T>(place: &T, bytes: usize) {
    for at in (0..bytes.min(size_of::<T>())).step_by(crate::LINE_BYTES) {
        address(core::ptr::from_ref(place).cast::<u8>().wrapping_add(at));
    }
}

/// The same, to store to it: no other processor keeps it meanwhile.
#[inline(always)]
pub fn prefetch_to_store<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes nothing and never faults; where the instruction is not known it does nothing, on every CPU of this kind.
    unsafe {
        let place = core::ptr::from_ref(place);
        core::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
