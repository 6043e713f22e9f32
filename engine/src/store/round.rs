//! Rounds (PROTOCOL I10, I11): before the bytes of dead inodes and log pages are used
//! again, watermarks make certain that no transaction still needs them as evidence.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lock_api::Mutex;
use lode_pmem::{Door, Medium};

use super::Store;
use super::spread::{Apart, Spread};
use crate::gauges::list_bytes;
use crate::layout::{Geometry, LINE, PoolSeed, SLOT_BYTES, Watermark};
use crate::space::Run;
use crate::{Host, PAGE_BYTES, Result, Rule};

/// Quarantined inode slots that make a round worth its fence; in a small pool fewer: the slots of
/// one page for each [`SMALL_PAGES`] that it has.
const SLOTS_WORTH_A_ROUND: u64 = 512;
const SMALL_PAGES: u64 = 64;

/// What waits in memory to be free: with a sum, as what is freed must be what has waited.
struct Waiting<T> {
    what: T,
    sum: u64,
}

impl Waiting<u64> {
    fn slot(ino: u64) -> Self {
        Self { what: ino, sum: !ino }
    }

    /// The slot, if it is what was put there.
    fn get(&self) -> Option<u64> {
        (self.sum == !self.what).then_some(self.what)
    }
}

impl Waiting<Run> {
    fn run(run: Run) -> Self {
        Self { what: run, sum: Self::sum_of(run) }
    }

    fn sum_of(run: Run) -> u64 {
        super::sum_of(run.page, run.pages)
    }

    /// The pages, if they are what was put there.
    fn get(&self) -> Option<Run> {
        (self.sum == Self::sum_of(self.what)).then_some(self.what)
    }
}

/// Slots and log pages of dead inodes, waiting for a round. (What a flipped bit has made of them stays unused until the pool is
/// opened again.)
#[derive(Default)]
struct Quarantine {
    slots: Vec<Waiting<u64>>,
    pages: Vec<Waiting<Run>>,
}

impl Quarantine {
    /// Takes in what another holds. Where there is no memory for that, it stays there.
    fn append(&mut self, other: &mut Self) {
        if self.slots.is_empty() {
            mem::swap(&mut self.slots, &mut other.slots);
        }
        if self.slots.try_reserve(other.slots.len()).is_ok() {
            self.slots.append(&mut other.slots);
        }
        if self.pages.is_empty() {
            mem::swap(&mut self.pages, &mut other.pages);
        }
        if self.pages.try_reserve(other.pages.len()).is_ok() {
            self.pages.append(&mut other.pages);
        }
    }
}

/// The watermark versions of all lanes of the medium; its lock lets one round run at a time.
pub(super) struct Rounds {
    versions: Vec<u64>,
}

/// What makes numbers and places of lives unique, and what may be used again after a round.
pub(super) struct Reuse<H: Host> {
    pub(super) next_nonce: Apart<AtomicU64>,
    quarantine: Spread<Mutex<H::Mutex, Quarantine>>,
    quarantined_pages: AtomicU64,
    pub(super) rounds: Mutex<H::Mutex, Rounds>,
}

impl<H: Host> Reuse<H> {
    /// Of a pool in which so many lanes are used; there are no nonces before its session is raised.
    #[inline(never)]
    pub(super) fn boxed<M: Medium>(
        door: &Door<M>,
        host: &H,
        seed: &PoolSeed,
        geometry: &Geometry,
        lanes: usize,
    ) -> Result<Box<Self>> {
        Ok(Box::new(Self {
            next_nonce: Apart(AtomicU64::new(0)),
            quarantine: Spread::new(lanes, Mutex::default)?,
            quarantined_pages: AtomicU64::new(0),
            rounds: Mutex::new(Rounds::read(door, host, seed, geometry)?),
        }))
    }
}

/// What is wrong with a lane of which neither line is valid.
pub(crate) const NO_WATERMARK: &str = "both watermarks of a lane are damaged";

/// Reads a lane's watermark: the valid line with the higher version (odd ones are in line 1, so
/// that the next is stored over the older one); `None` if neither is valid.
pub(crate) fn read_watermark<M: Medium, H: Host>(
    door: &Door<M>,
    host: &H,
    seed: &PoolSeed,
    geometry: &Geometry,
    lane: u32,
) -> Result<Option<Watermark>> {
    let mut best: Option<Watermark> = None;
    let copies = (0..2).map(|copy| (copy, geometry.lane_at(lane) + copy * LINE));
    let twins = |(copy, at)| [Some(at), door.twin_of(at)].map(|place| (copy, at, place));
    for (copy, at, place) in copies.flat_map(twins) {
        let Some(place) = place else { continue };
        let found = match door.load_line(place) {
            Ok(line) if host.leaves_out(Rule::WatermarkSeal) => Watermark::parse_unsealed(&line),
            Ok(line) => Watermark::parse(&line, seed, at),
            Err(lode_pmem::MediaError::Poisoned { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let found = found.filter(|found| found.version & 1 == copy);
        if found.is_some_and(|found| best.is_none_or(|best| found.version > best.version)) {
            best = found;
        }
    }
    Ok(best)
}

impl Rounds {
    pub(super) fn read<M: Medium, H: Host>(
        door: &Door<M>,
        host: &H,
        seed: &PoolSeed,
        geometry: &Geometry,
    ) -> Result<Self> {
        let lanes = geometry.lanes as usize;
        let mut versions = Vec::new();
        versions.try_reserve_exact(lanes)?;
        for lane in 0..geometry.lanes {
            let mark = read_watermark(door, host, seed, geometry, lane)?;
            versions.push(mark.map_or(0, |mark| mark.version));
        }
        Ok(Self { versions })
    }
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Stores again what of the watermarks is damaged in one copy or differs in two; the caller fences.
    pub(crate) fn mend_watermarks(&self) {
        // (It gives back what `each` does.)
        let _ = self.compare_watermarks(true, &mut |_, _| Ok(()));
    }

    /// Calls `each` with where a watermark is damaged in one copy or differs in two, and whether both are the same now: it is stored again where
    /// that `mends`, and the caller fences.
    ///
    /// # Errors
    /// Those of `each`.
    pub(crate) fn compare_watermarks(
        &self,
        mends: bool,
        each: &mut dyn FnMut(u64, bool) -> Result<()>,
    ) -> Result<()> {
        // (Nobody is in the middle of storing some.)
        let _rounds = self.reuse.rounds.lock();
        for lane in 0..self.geometry.lanes {
            for at in [0, LINE].map(|copy| self.geometry.lane_at(lane) + copy) {
                let Some(twin) = self.door.twin_of(at) else { return Ok(()) };
                let both = || (self.watermark_in(at, at), self.watermark_in(twin, at));
                let (first, second) = both();
                let later = first.iter().chain(&second).max_by_key(|mark| mark.version);
                if let Some(mark) = later.filter(|_| first != second) {
                    if mends {
                        let line = mark.line(&self.seed, at);
                        self.door.window(LINE, self.counters()).store_line(at, &line);
                    }
                    let (first, second) = both();
                    each(at, first == second)?;
                }
            }
        }
        Ok(())
    }

    /// The watermark line for `at` that is in `place`, if it is valid.
    #[inline(never)]
    fn watermark_in(&self, place: u64, at: u64) -> Option<Watermark> {
        Watermark::parse(&self.door.load_line(place).ok()?, &self.seed, at)
    }

    /// Takes in the slot of a dead inode. Where the host has no memory left to
    /// remember it, it stays unused until the pool is opened again.
    pub(crate) fn quarantine_slot(&self, ino: u64) {
        if self.host.leaves_out(Rule::RoundForSlots) {
            return self.table.give_slot(ino);
        }
        let mut quarantine = self.reuse.quarantine.of(self.lane()).lock();
        if quarantine.slots.try_reserve(1).is_ok() {
            quarantine.slots.push(Waiting::slot(ino));
        }
    }

    /// Takes in log pages of a dead inode, as [`Store::quarantine_slot`].
    pub(crate) fn quarantine_pages(&self, run: Run) {
        if self.host.leaves_out(Rule::RoundForDeadPages) {
            return self.give_metadata(run);
        }
        let mut quarantine = self.reuse.quarantine.of(self.lane()).lock();
        if quarantine.pages.try_reserve(1).is_ok() {
            quarantine.pages.push(Waiting::run(run));
            self.reuse.quarantined_pages.fetch_add(run.pages, Relaxed);
        }
    }

    /// Pages that the next round frees, with their twins where they have such.
    pub(crate) fn quarantined_pages(&self) -> u64 {
        let copies = if self.geometry.twin_pages == 0 { 1 } else { 2 };
        self.reuse.quarantined_pages.load(Relaxed).saturating_mul(copies)
    }

    /// Whether enough slots wait that a round is better than a new piece of table.
    pub(crate) fn round_is_due(&self) -> bool {
        let slots_a_page = PAGE_BYTES / SLOT_BYTES;
        let worth = self.geometry.pages.div_ceil(SMALL_PAGES) * slots_a_page;
        self.waiting().0 >= worth.min(SLOTS_WORTH_A_ROUND)
    }

    /// Slots that wait for a round, and the bytes of memory that all that waits takes.
    pub(crate) fn waiting(&self) -> (u64, u64) {
        let (mut waiting, mut bytes) = (0, self.reuse.quarantine.memory_bytes());
        for quarantine in self.reuse.quarantine.iter() {
            let Quarantine { slots, pages } = &*quarantine.lock();
            waiting += slots.len() as u64;
            bytes += list_bytes::<Waiting<u64>>(slots.capacity())
                + list_bytes::<Waiting<Run>>(pages.capacity());
        }
        (waiting, bytes)
    }

    /// Whether anything waits for a round.
    pub(crate) fn quarantine_holds(&self) -> bool {
        let holds = |it: &Quarantine| !it.slots.is_empty() || !it.pages.is_empty();
        self.reuse.quarantine.iter().any(|quarantine| holds(&quarantine.lock()))
    }

    /// Calls `each` with the pages that wait.
    pub(crate) fn for_each_quarantined(&self, each: &mut dyn FnMut(Run)) {
        for quarantine in self.reuse.quarantine.iter() {
            let quarantine = quarantine.lock();
            quarantine.pages.iter().filter_map(|waiting| self.waited(waiting)).for_each(&mut *each);
        }
    }

    /// The pages that have waited, if they are those that were put there; else nobody knows what is free now.
    fn waited(&self, waiting: &Waiting<Run>) -> Option<Run> {
        let run = waiting.get();
        if run.is_none() {
            self.space.doubt();
        }
        run
    }

    /// Takes out what is in quarantine now.
    fn take_quarantined(&self, into: &mut Quarantine) {
        self.reuse.quarantine.iter().for_each(|quarantine| into.append(&mut quarantine.lock()));
    }

    /// Stores the watermarks under one fence, then frees what was in quarantine before.
    #[track_caller]
    #[inline(never)]
    pub(crate) fn round(&self) -> Result<()> {
        let mut rounds = self.reuse.rounds.lock();
        let mut batch = Quarantine::default();
        self.take_quarantined(&mut batch);
        self.store_watermarks(&mut rounds);
        let rounds = (!self.host.leaves_out(Rule::OneRound)).then_some(rounds);
        self.door.fence(self.counters())?;
        if self.host.leaves_out(Rule::BatchBeforeFence) {
            self.take_quarantined(&mut batch);
        }
        drop(rounds);
        self.end_quarantine(batch)
    }

    fn store_watermarks(&self, rounds: &mut Rounds) {
        let session = self.session();
        let counters = self.counters();
        let alone = self.host.leaves_out(Rule::RoundEveryLane).then(|| self.lane());
        let same_copy = self.host.leaves_out(Rule::WatermarkCopies);
        let mut window = self.door.window(self.lanes.used() as u64 * LINE, counters);
        for (number, lane) in self.lanes.iter().enumerate() {
            let sequence = lane.fenced();
            let Some(version) = rounds.versions.get_mut(number) else { continue };
            if sequence == lane.settled() || alone.is_some_and(|alone| alone != number) {
                continue;
            }
            *version += if same_copy { 2 } else { 1 };
            lane.set_settled(sequence);
            let at = self.geometry.lane_at(number as u32) + (*version & 1) * LINE;
            let line = Watermark { session, sequence, version: *version }.line(&self.seed, at);
            window.store_line(at, &line);
        }
    }

    fn end_quarantine(&self, batch: Quarantine) -> Result<()> {
        batch
            .slots
            .iter()
            .filter_map(Waiting::<u64>::get)
            .for_each(|ino| self.table.give_slot(ino));
        let mut first_error = Ok(());
        for run in batch.pages.iter().filter_map(|waiting| self.waited(waiting)) {
            self.reuse.quarantined_pages.fetch_sub(run.pages, Relaxed);
            if let Err(error) = self.try_give_metadata(run) {
                first_error = Err(error);
            }
        }
        first_error
    }

    /// A bit of what waits flips: of a slot, or of pages.
    #[cfg(test)]
    pub(crate) fn flip_waiting(
        &self,
        of_slots: bool,
        roll: &mut dyn FnMut(u64) -> u64,
    ) -> Option<()> {
        let mut quarantine = self.reuse.quarantine.of(0).lock();
        // (One that makes a neighbour of it.)
        let bit = 1 << roll(4);
        let Quarantine { slots, pages } = &mut *quarantine;
        let count = if of_slots { slots.len() } else { pages.len() };
        let at = (count > 0).then(|| roll(count as u64) as usize)?;
        match of_slots {
            true => slots.get_mut(at)?.what ^= bit,
            false => pages.get_mut(at)?.what.page ^= bit,
        }
        Some(())
    }
}
