//! Operations, counted by kind and lane.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lode_pmem::count_here;

use crate::{Collected, Op, Result};

#[repr(align(128))]
struct Counts {
    ops: [AtomicU64; Op::COUNT],
    /// Where the bytes end that were read last.
    read_to: AtomicU64,
}

/// Counters of operations, one set per lane, and of what collection, which is rare, gave back.
pub(crate) struct OpCounts {
    lanes: Vec<Counts>,
    fast_pages: AtomicU64,
    thorough_pages: AtomicU64,
}

impl OpCounts {
    pub(crate) fn new(lanes: usize) -> Result<Self> {
        let mut counts = Vec::new();
        counts.try_reserve_exact(lanes)?;
        counts.resize_with(lanes, || Counts {
            ops: [const { AtomicU64::new(0) }; Op::COUNT],
            read_to: AtomicU64::new(0),
        });
        let (fast_pages, thorough_pages) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { lanes: counts, fast_pages, thorough_pages })
    }

    #[inline]
    pub(crate) fn add(&self, lane: usize, op: Op) {
        if let Some(count) = self.lanes.get(lane).and_then(|counts| counts.ops.get(op as usize)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// As [`OpCounts::add`], with no barrier: one of two may be lost where a thread changes its processor in between.
    #[inline]
    pub(crate) fn add_here(&self, lane: usize, op: Op) {
        if let Some(count) = self.lanes.get(lane).and_then(|counts| counts.ops.get(op as usize)) {
            count_here(count);
        }
    }

    /// Notes that `len` bytes at `at` of the pool are read here; says whether they follow those that were read last.
    #[inline]
    pub(crate) fn reads_on(&self, lane: usize, at: u64, len: u64) -> bool {
        let Some(counts) = self.lanes.get(lane) else { return false };
        let follows = counts.read_to.load(Relaxed) == at;
        counts.read_to.store(at + len, Relaxed);
        follows
    }

    /// Takes back what [`OpCounts::add_here`] added, maybe in another lane: their sum is right.
    #[cold]
    pub(crate) fn take_back(&self, lane: usize, op: Op) {
        if let Some(count) = self.lanes.get(lane).and_then(|counts| counts.ops.get(op as usize)) {
            count.fetch_sub(1, Relaxed);
        }
    }

    /// Notes that a collection of this kind gave pages back.
    pub(crate) fn add_collected(&self, op: Op, pages: u64) {
        let count = if op == Op::CollectFast { &self.fast_pages } else { &self.thorough_pages };
        count.fetch_add(pages, Relaxed);
    }

    /// Pages that collections gave back.
    pub(crate) fn collected(&self) -> Collected {
        let (fast, thorough) = (&self.fast_pages, &self.thorough_pages);
        Collected { fast_pages: fast.load(Relaxed), thorough_pages: thorough.load(Relaxed) }
    }

    pub(crate) fn read(&self) -> [u64; Op::COUNT] {
        let mut sums = [0_u64; Op::COUNT];
        for counts in &self.lanes {
            for (sum, count) in sums.iter_mut().zip(&counts.ops) {
                *sum = sum.wrapping_add(count.load(Relaxed));
            }
        }
        sums
    }
}
