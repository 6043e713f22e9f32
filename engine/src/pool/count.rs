//! Operations, counted by kind and lane.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Op, Result};

#[repr(align(128))]
struct Counts([AtomicU64; Op::COUNT]);

/// Counters of operations, one set per lane.
pub(crate) struct OpCounts(Vec<Counts>);

impl OpCounts {
    pub(crate) fn new(lanes: usize) -> Result<Self> {
        let mut counts = Vec::new();
        counts.try_reserve_exact(lanes)?;
        counts.resize_with(lanes, || Counts([const { AtomicU64::new(0) }; Op::COUNT]));
        Ok(Self(counts))
    }

    #[inline]
    pub(crate) fn add(&self, lane: usize, op: Op) {
        if let Some(count) = self.0.get(lane).and_then(|counts| counts.0.get(op as usize)) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn read(&self) -> [u64; Op::COUNT] {
        let mut sums = [0; Op::COUNT];
        for counts in &self.0 {
            for (sum, count) in sums.iter_mut().zip(&counts.0) {
                *sum += count.load(Relaxed);
            }
        }
        sums
    }
}
