//! Lanes: each runs one transaction at a time (PROTOCOL I4).
//!
//! A lane's sequence rises by one with each transaction and is not reused in a
//! session; `fenced` is the last sequence whose fence has ended, the most that a
//! watermark may cover.

use alloc::vec::Vec;
use core::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use lock_api::{Mutex, MutexGuard};
use lode_pmem::{Counters, Line, Tally};

use crate::layout::Geometry;
use crate::{Host, PAGE_BYTES, Result};

/// Transactions of a lane since its last watermark that make a round worth its fence; in a small
/// pool as many as it has pages.
const UNSETTLED_MAX: u64 = 8192;

/// Sequences have 40 bits; near the end the session is raised.
pub(crate) const SEQUENCE_MAX: u64 = (1 << 40) - 1;

/// Lines that can wait for streamed bytes: with more of them these are fenced at once.
const WAITING: usize = 2;

/// What the holder of a lane has.
pub(crate) struct Turn {
    /// Sequence of its next transaction.
    pub(crate) next: u64,
    /// How many lines wait for streamed bytes.
    pub(super) waits: usize,
    /// These lines and their offsets. (Here, not on the stack: a kernel's is small.)
    pub(super) waiting: [(u64, Line); WAITING],
    /// For a page that is put together before it is stored, or what is copied from one.
    page: Vec<u8>,
}

impl Turn {
    /// The place of a line that waits and belongs at `at`, if there is one more.
    #[inline]
    pub(super) fn place(&mut self, at: u64) -> Option<&mut Line> {
        let place = self.waiting.get_mut(self.waits)?;
        self.waits += 1;
        place.0 = at;
        Some(&mut place.1)
    }
}

/// The transactions of one lane.
pub(crate) struct Lane<H: Host> {
    pub(crate) turn: Mutex<H::Mutex, Turn>,
    fenced: AtomicU64,
    /// The sequence of the last watermark that was stored.
    settled: AtomicU64,
    counters: Counters,
    /// Of those who hold the lane.
    held: Counters,
}

/// A lane that this thread holds: its next transaction, and what it counts on meanwhile.
pub(crate) struct Held<'s, H: Host> {
    pub(super) number: u8,
    pub(super) lane: &'s Lane<H>,
    pub(super) turn: MutexGuard<'s, H::Mutex, Turn>,
    /// The epoch when it was taken: that of the transaction.
    pub(super) epoch: u32,
}

impl<'s, H: Host> Held<'s, H> {
    /// What is counted while the lane is held.
    pub(crate) fn counters(&self) -> &'s Counters {
        self.lane.held()
    }

    /// The epoch of what is stored with it.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Room for a page.
    pub(crate) fn page(&mut self) -> &mut [u8] {
        &mut self.turn.page
    }
}

/// All lanes in use by this run.
pub(crate) struct Lanes<H: Host> {
    lanes: Vec<Lane<H>>,
    unsettled_max: u64,
}

impl<H: Host> Lane<H> {
    /// The last sequence whose fence has ended.
    pub(crate) fn fenced(&self) -> u64 {
        self.fenced.load(Acquire)
    }

    /// Notes that the transaction's fence has ended.
    pub(crate) fn set_fenced(&self, sequence: u64) {
        self.fenced.store(sequence, Release);
    }

    /// The sequence of the last watermark that was stored.
    pub(crate) fn settled(&self) -> u64 {
        self.settled.load(Relaxed)
    }

    /// Notes that a watermark was stored.
    pub(crate) fn set_settled(&self, sequence: u64) {
        self.settled.store(sequence, Relaxed);
    }

    /// What is counted while the lane is held.
    pub(super) fn held(&self) -> &Counters {
        &self.held
    }
}

impl<H: Host> Lanes<H> {
    /// `used` lanes of such a pool, each at its first sequence.
    #[inline(never)]
    pub(crate) fn new(used: usize, geometry: &Geometry) -> Result<Self> {
        let mut lanes = Vec::new();
        lanes.try_reserve_exact(used)?;
        for _ in 0..used {
            let mut page = Vec::new();
            page.try_reserve_exact(PAGE_BYTES as usize)?;
            page.resize(PAGE_BYTES as usize, 0);
            let waiting = [(0, Line::ZERO); WAITING];
            lanes.push(Lane {
                turn: Mutex::new(Turn { next: 1, waits: 0, waiting, page }),
                fenced: AtomicU64::new(0),
                settled: AtomicU64::new(0),
                counters: Counters::new(),
                held: Counters::exclusive(),
            });
        }
        for lane in &mut lanes {
            lane.held.hold_wear(geometry.pages * PAGE_BYTES)?;
        }
        Ok(Self { lanes, unsettled_max: geometry.pages.min(UNSETTLED_MAX) })
    }

    /// How many lanes this run uses.
    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.lanes.len()
    }

    /// The lanes in order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lane<H>> {
        self.lanes.iter()
    }

    /// The counters of a lane.
    #[inline]
    pub(crate) fn counters(&self, lane: usize) -> &Counters {
        &self.lanes[lane % self.lanes.len()].counters
    }

    /// Whether so much has happened in a lane since the last round that recovery, which
    /// has to judge all of it, would be slow.
    #[inline]
    pub(crate) fn round_is_due(&self, lane: usize) -> bool {
        let lane = &self.lanes[lane % self.lanes.len()];
        lane.fenced().saturating_sub(lane.settled()) >= self.unsettled_max
    }

    /// What all lanes have counted.
    pub(crate) fn tally(&self) -> Tally {
        let tallies = self.lanes.iter().flat_map(|lane| [lane.counters.read(), lane.held.read()]);
        tallies.fold(Tally::default(), |a, b| a + b)
    }

    /// Calls `each` with the counters of each lane's holders, of whom there are none meanwhile.
    pub(crate) fn for_each_held(&self, each: &mut dyn FnMut(&Counters)) {
        for lane in &self.lanes {
            let _turn = lane.turn.lock();
            each(&lane.held);
        }
    }

    /// Takes a free lane, the preferred one first; waits for that one if none is free. Only then looks
    /// which epoch it is: who has waited until each lane was free knows that no transaction of an earlier
    /// one is left.
    pub(crate) fn hold(&self, preferred: usize, epoch: &AtomicU32) -> Held<'_, H> {
        let count = self.lanes.len();
        for step in 0..count {
            let number = (preferred + step) % count;
            let lane = &self.lanes[number];
            if let Some(turn) = lane.turn.try_lock() {
                return Held { number: number as u8, lane, turn, epoch: epoch.load(Acquire) };
            }
        }
        let number = preferred % count;
        let lane = &self.lanes[number];
        let turn = lane.turn.lock();
        Held { number: number as u8, lane, turn, epoch: epoch.load(Acquire) }
    }
}
