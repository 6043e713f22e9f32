//! What each lane has a part of, in lines of memory of its own: who changes one part keeps nobody from another.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Result;

/// Alone in its lines. (A processor brings two at a time.)
#[repr(align(128))]
pub(super) struct Apart<T>(pub(super) T);

/// A part for each lane.
pub(crate) struct Spread<T>(Vec<Apart<T>>);

impl<T> Spread<T> {
    /// For so many lanes, but for one at least.
    #[inline(never)]
    pub(crate) fn new(lanes: usize, make: impl Fn() -> T) -> Result<Self> {
        let (lanes, mut parts) = (lanes.max(1), Vec::new());
        parts.try_reserve_exact(lanes)?;
        parts.resize_with(lanes, || Apart(make()));
        Ok(Self(parts))
    }

    /// A lane's part; lanes that are more than there are parts share them.
    #[inline]
    pub(crate) fn of(&self, lane: usize) -> &T {
        let count = self.0.len();
        // (Nearly always there is one: dividing takes a while.)
        &self.0[if lane < count { lane } else { lane % count }].0
    }

    /// The part of this lane, if it has one of its own.
    pub(crate) fn get(&self, lane: usize) -> Option<&T> {
        self.0.get(lane).map(|part| &part.0)
    }

    /// All parts, by lane.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|part| &part.0)
    }

    /// Bytes of memory that they take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        crate::gauges::list_bytes::<Apart<T>>(self.0.capacity())
    }
}

impl Spread<AtomicU64> {
    /// Takes what was counted in any lane off, or adds it, in this one.
    #[inline]
    pub(crate) fn count(&self, lane: usize, up: bool) {
        let by = if up { 1 } else { 1_u64.wrapping_neg() };
        self.of(lane).fetch_add(by, Relaxed);
    }

    /// What all lanes have counted together.
    pub(crate) fn sum(&self) -> u64 {
        self.iter().fold(0, |sum, part| sum.wrapping_add(part.load(Relaxed)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_one_lane_counts_another_takes_off() {
        let counts = Spread::new(3, || AtomicU64::new(0)).unwrap();
        (0..5).for_each(|lane| counts.count(lane, true));
        counts.count(2, false);
        counts.count(2, false);
        assert_eq!(counts.sum(), 3);
        assert_eq!(Spread::new(0, || ()).unwrap().iter().count(), 1);
    }
}
