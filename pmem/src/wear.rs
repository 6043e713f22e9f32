//! How much was stored where: the wear of the medium, made visible.
//!
//! What this file guarantees: the lines of all windows that have ended are counted, each in the
//! region it lies in, whatever number of threads stores at once. (A window counts when it ends; that of who counts alone with
//! a later fence, and when it is asked for at the latest; what a cache writes back twice, or not at all, is known to nobody here.)

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::{LINE_BYTES, prefetch_to_store};

/// Bytes of a region that stores are counted for.
pub const WEAR_REGION_BYTES: u64 = 2 << 20;

const LINE: u64 = LINE_BYTES as u64;
/// Regions whose counters are kept together, on as many lines as one line has counters.
const BLOCK: u64 = 64;

/// Bytes stored to each region of [`WEAR_REGION_BYTES`], in whole lines: what the medium takes.
#[derive(Debug, Default)]
pub struct Wear {
    counts: Vec<AtomicU64>,
    regions: u64,
}

/// Where the count of a region is: neighbours, which threads use side by side, share no line.
fn place(region: u64) -> u64 {
    let (row, column) = (region % 8, region / 8 % 8);
    region - region % BLOCK + row * 8 + column
}

impl Wear {
    /// Counters of `bytes` bytes, at zero.
    pub(crate) fn new(bytes: u64) -> Result<Self, TryReserveError> {
        let regions = bytes.div_ceil(WEAR_REGION_BYTES);
        let count = usize::try_from(regions.next_multiple_of(BLOCK)).unwrap_or(usize::MAX);
        let mut counts = Vec::new();
        counts.try_reserve_exact(count)?;
        counts.resize_with(count, || AtomicU64::new(0));
        Ok(Self { counts, regions })
    }

    /// How many regions there are; 0 where nothing is counted.
    pub fn regions(&self) -> u64 {
        self.regions
    }

    /// Bytes stored to a region so far: 64 for each line that a store touched.
    pub fn stored_bytes(&self, region: u64) -> u64 {
        self.count(region).map_or(0, |count| count.load(Relaxed))
    }

    /// Bytes of memory that the counters take.
    pub fn memory_bytes(&self) -> u64 {
        (self.counts.len() * size_of::<AtomicU64>()) as u64
    }

    #[inline]
    fn count(&self, region: u64) -> Option<&AtomicU64> {
        self.counts.get(usize::try_from(place(region)).ok()?)
    }

    #[inline]
    fn add(&self, region: u64, bytes: u64) {
        if let Some(count) = self.count(region) {
            count.fetch_add(bytes, Relaxed);
        }
    }
}

/// Regions that a window remembers: few operations store to more under one window.
const HELD: usize = 4;
/// Regions that may go on waiting behind a fence.
const STAYING: usize = 4;
/// Regions that wait for a fence: beside those, file data's, its parity's and both of the tables of its checksums, and a record's and its
/// copy's.
const PENDING: usize = STAYING + 6;

/// What a window has stored and not yet brought to [`Wear`]. It waits for the window's end, or better
/// for a fence ([`Pending`]), because an atomic addition waits until all streaming stores before it
/// have reached the memory: measured side by side on a Zen 5, three lines took 190 ns more; this way it
/// is 2 to 9 ns.
#[derive(Default)]
pub(crate) struct Worn {
    held: [(u64, u64); HELD],
}

/// A region that was stored to, and how much.
#[derive(Debug)]
struct Stored {
    /// The region, and in the lowest bit whether it was stored to again since it was looked at last.
    word: AtomicU64,
    bytes: AtomicU64,
}

impl Stored {
    const fn none() -> Self {
        Self { word: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    #[inline]
    fn region(&self) -> u64 {
        self.word.load(Relaxed) >> 1
    }

    #[inline]
    fn put(&self, word: u64, bytes: u64) {
        self.word.store(word, Relaxed);
        self.bytes.store(bytes, Relaxed);
    }

    /// Whether it was stored to again, which is not so from now on.
    #[inline]
    fn take_again(&self) -> bool {
        let word = self.word.load(Relaxed);
        self.word.store(word & !1, Relaxed);
        word & 1 == 1
    }
}

/// What windows have stored that ended, of who counts alone: kept by loads and stores, so that what is computed before
/// the fence does not wait for what was stored.
///
/// A few regions stay behind the fence, those that are stored to again and again: a counter that two processors add to with each
/// fence takes each of them 70 ns (measured for volumes, where all sectors' lines are in one region).
#[derive(Debug)]
pub(crate) struct Pending {
    held: [Stored; PENDING],
    /// So many of them.
    count: AtomicUsize,
    /// Which of them is the next to go.
    next: AtomicUsize,
}

impl Default for Pending {
    fn default() -> Self {
        Self::new()
    }
}

impl Pending {
    /// Nothing.
    pub(crate) const fn new() -> Self {
        let (count, next) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { held: [const { Stored::none() }; PENDING], count, next }
    }

    #[inline]
    fn held(&self) -> &[Stored] {
        self.held.get(..self.count.load(Relaxed)).unwrap_or_default()
    }

    #[inline]
    fn hold(&self, wear: &Wear, region: u64, bytes: u64) {
        let held = self.held();
        match held.iter().find(|one| one.region() == region) {
            Some(one) => one.put(region << 1 | 1, one.bytes.load(Relaxed) + bytes),
            None => self.hold_more(held, wear, region, bytes),
        }
    }

    fn hold_more(&self, held: &[Stored], wear: &Wear, region: u64, bytes: u64) {
        match self.held.get(held.len()) {
            Some(place) => place.put(region << 1, bytes),
            None => return wear.add(region, bytes),
        }
        self.count.store(held.len() + 1, Relaxed);
        if held.len() == STAYING {
            self.choose(held, wear);
        }
    }

    /// Chooses the next to go: the first of these that was not stored to again.
    fn choose(&self, held: &[Stored], wear: &Wear) {
        let first = self.next.load(Relaxed) + 1;
        let mut around = (first..held.len()).chain(0..first);
        let is_other = |at: &usize| held.get(*at).is_some_and(|one| !one.take_again());
        let next = around.find(is_other).unwrap_or_default();
        self.next.store(next, Relaxed);
        // (Another processor may have had the line last: it comes while the fence is waited for.)
        let count = held.get(next).and_then(|one| wear.count(one.region()));
        count.into_iter().for_each(prefetch_to_store);
    }

    /// After a fence: brings what was not stored to again to `wear`, but for a few.
    #[inline]
    pub(crate) fn settle(&self, wear: &Wear) {
        if self.count.load(Relaxed) > STAYING {
            self.settle_to(STAYING, wear);
        }
    }

    /// Brings all there is to `wear`.
    pub(crate) fn settle_all(&self, wear: &Wear) {
        self.settle_to(0, wear);
    }

    #[inline(never)]
    fn settle_to(&self, most: usize, wear: &Wear) {
        while let [others @ .., last] = self.held()
            && others.len() >= most
        {
            let one = others.get(self.next.load(Relaxed)).unwrap_or(last);
            wear.add(one.region(), one.bytes.load(Relaxed));
            one.put(last.word.load(Relaxed), last.bytes.load(Relaxed));
            self.count.store(others.len(), Relaxed);
            if others.len() > most {
                self.choose(others, wear);
            }
        }
    }
}

impl Worn {
    /// Takes in a store to `at .. at + len`, which is inside the medium.
    #[inline]
    pub(crate) fn store(&mut self, wear: &Wear, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (first, end) = (at / LINE * LINE, (at + len).next_multiple_of(LINE));
        let region = first / WEAR_REGION_BYTES;
        if end <= (region + 1) * WEAR_REGION_BYTES {
            return self.hold(wear, region, end - first);
        }
        self.store_across(wear, first, end);
    }

    /// The same, where it ends in another region than it begins in.
    #[inline(never)]
    fn store_across(&mut self, wear: &Wear, first: u64, end: u64) {
        let mut at = first;
        while at < end {
            let region = at / WEAR_REGION_BYTES;
            let part = end.min((region + 1) * WEAR_REGION_BYTES) - at;
            self.hold(wear, region, part);
            at += part;
        }
    }

    #[inline]
    fn hold(&mut self, wear: &Wear, region: u64, bytes: u64) {
        let free = self.held.iter_mut().find(|held| held.1 == 0 || held.0 == region);
        match free {
            Some(held) => *held = (region, held.1 + bytes),
            None => wear.add(region, bytes),
        }
    }

    /// Brings what there is to `wear`, or to what is pending.
    #[inline]
    pub(crate) fn settle(&mut self, wear: &Wear, pending: Option<&Pending>) {
        for (region, bytes) in &mut self.held {
            if *bytes == 0 {
                break;
            }
            match pending {
                Some(pending) => pending.hold(wear, *region, *bytes),
                None => wear.add(*region, *bytes),
            }
            *bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_region_has_a_place_of_its_own_off_its_neighbours_line() {
        let mut places: Vec<u64> = (0..1024).map(place).collect();
        assert!((0..1023).all(|region| place(region) / 8 != place(region + 1) / 8));
        places.sort_unstable();
        assert_eq!(places, (0..1024).collect::<Vec<_>>());
    }
}
