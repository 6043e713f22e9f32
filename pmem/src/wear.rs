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
/// Regions that may wait behind a fence, at most.
const STAYING: usize = 512;
/// Regions that wait for a fence: file data's, its parity's and both of the tables of its checksums, and a record's and its copy's.
const LEAVING: usize = 6;

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
    region: AtomicU64,
    bytes: AtomicU64,
}

impl Stored {
    const fn none() -> Self {
        Self { region: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    #[inline]
    fn put(&self, region: u64, bytes: u64) {
        self.region.store(region, Relaxed);
        self.bytes.store(bytes, Relaxed);
    }

    #[inline]
    fn get(&self) -> (u64, u64) {
        (self.region.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// What windows have stored that ended, of who counts alone: kept by loads and stores, so that what is computed before
/// the fence does not wait for what was stored.
///
/// It stays there until all is asked for, or another region needs the place: a counter that two processors add to with each
/// fence takes each of them 70 ns (measured for volumes, where all sectors' lines are in one region), and one that one processor has
/// takes time, too, as the addition is locked.
#[derive(Debug)]
pub(crate) struct Pending {
    /// A region has one place; a power of two of them, or none.
    staying: Vec<Stored>,
    leaving: [Stored; LEAVING],
    /// So many of them.
    count: AtomicUsize,
}

impl Default for Pending {
    fn default() -> Self {
        Self::none()
    }
}

impl Pending {
    /// Nothing, and no place for anything.
    pub(crate) const fn none() -> Self {
        let leaving = [const { Stored::none() }; LEAVING];
        Self { staying: Vec::new(), leaving, count: AtomicUsize::new(0) }
    }

    /// Makes places for the regions of a medium of so many bytes, or the most of them, where there is nothing yet.
    pub(crate) fn make_places(&mut self, bytes: u64) -> Result<(), TryReserveError> {
        let regions = usize::try_from(bytes.div_ceil(WEAR_REGION_BYTES)).unwrap_or(STAYING);
        let places = regions.clamp(1, STAYING).next_power_of_two();
        self.staying.try_reserve_exact(places)?;
        self.staying.resize_with(places, Stored::none);
        Ok(())
    }

    /// Bytes of memory that the places take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.staying.capacity() * size_of::<Stored>()) as u64
    }

    #[inline]
    fn hold(&self, wear: &Wear, region: u64, bytes: u64) {
        let place = region as usize & self.staying.len().wrapping_sub(1);
        let Some(place) = self.staying.get(place) else { return wear.add(region, bytes) };
        let (other, more) = place.get();
        if other == region || more == 0 {
            return place.put(region, more + bytes);
        }
        place.put(region, bytes);
        self.leave(wear, other, more);
    }

    /// Has a region wait for the next fence.
    fn leave(&self, wear: &Wear, region: u64, bytes: u64) {
        let count = self.count.load(Relaxed);
        let Some(place) = self.leaving.get(count) else { return wear.add(region, bytes) };
        place.put(region, bytes);
        self.count.store(count + 1, Relaxed);
        // (Another processor may have had the line last: it comes while the fence is waited for.)
        wear.count(region).into_iter().for_each(prefetch_to_store);
    }

    /// After a fence: brings what gave its place to `wear`.
    #[inline]
    pub(crate) fn settle(&self, wear: &Wear) {
        if self.count.load(Relaxed) > 0 {
            self.settle_left(wear);
        }
    }

    #[inline(never)]
    fn settle_left(&self, wear: &Wear) {
        for one in self.leaving.iter().take(self.count.load(Relaxed)) {
            let (region, bytes) = one.get();
            wear.add(region, bytes);
        }
        self.count.store(0, Relaxed);
    }

    /// Brings all there is to `wear`.
    pub(crate) fn settle_all(&self, wear: &Wear) {
        self.settle_left(wear);
        for one in &self.staying {
            let (region, bytes) = one.get();
            if bytes > 0 {
                wear.add(region, bytes);
                one.put(region, 0);
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
