//! Pages of metadata that has twins: taken and given two at a time.
//!
//! Guarantees: a run is handed out only with its twin, and both become free together; what is kept
//! for operations that free space is had by no other. Runs lie on the lower side of the border between
//! twins, their twins on the upper one. A run taken singly normally touches the lane's own memory only.
//!
//! In a full pool few pages are free whose twins are, too; so that it can be emptied, some are set aside
//! ([`Space::keep_twins`]), and what was used of them is set aside again before anything grows.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lock_api::Mutex;

use super::magazine::{BATCH, Batch, Magazine};
use super::{Run, Space, filled};
use crate::error::{Error, Result};
use crate::host::Host;

/// How much of what is set aside is not for an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sparing {
    /// All of it.
    All,
    /// Half of it.
    Half,
    /// Nothing: it frees space.
    Nothing,
}

/// What is ready, and what is set aside. (Of each page the twin is, too.)
pub(super) struct Twins<H: Host> {
    /// Pages between twins; 0 where there are none.
    apart: u64,
    magazines: Vec<Mutex<H::Mutex, Magazine>>,
    /// Never more pages than it has room for.
    kept: Mutex<H::Mutex, Vec<u64>>,
    /// Where to look first: free pages are behind it, most likely.
    from: AtomicU64,
}

impl<H: Host> Twins<H> {
    pub(super) fn new(lanes: usize, apart: u64) -> Result<Self> {
        let lanes = if apart == 0 { 0 } else { lanes };
        let magazines = filled(lanes, || Ok(Mutex::new(Magazine::new()?)))?;
        let kept = Mutex::new(Vec::new());
        Ok(Self { apart, magazines, kept, from: AtomicU64::new(0) })
    }
}

impl<H: Host> Space<H> {
    fn twin(&self, run: Run) -> Run {
        Run { page: run.page ^ self.twins.apart, ..run }
    }

    /// Takes a page with its twin.
    pub(crate) fn take_page_twins(&self, lane: usize, sparing: Sparing) -> Result<u64> {
        loop {
            let page = self.find_page_twins(lane, sparing)?;
            if self.book_twins(lane, Run { page, pages: 1 })? {
                return Ok(page);
            }
        }
    }

    fn find_page_twins(&self, lane: usize, sparing: Sparing) -> Result<u64> {
        let mut found = self.take_free_twins(lane, sparing)?;
        if found.is_none() {
            self.settle();
            found = self.take_free_twins(lane, sparing)?;
        }
        found.or_else(|| self.take_kept(sparing)).ok_or(Error::NoSpace)
    }

    fn take_free_twins(&self, lane: usize, sparing: Sparing) -> Result<Option<u64>> {
        if sparing == Sparing::All {
            self.keep_again(lane)?;
        }
        Ok(self.take_ready_twins(lane)?.or_else(|| self.steal_twins(lane)))
    }

    /// A page of those that are kept, if it may be had.
    fn take_kept(&self, sparing: Sparing) -> Option<u64> {
        let mut kept = self.twins.kept.lock();
        let spared = match sparing {
            Sparing::All => return None,
            Sparing::Half => kept.capacity() / 2,
            Sparing::Nothing => 0,
        };
        if kept.len() > spared { kept.pop() } else { None }
    }

    /// Sets pages aside again, as far as there are any, in the place of those that were used.
    fn keep_again(&self, lane: usize) -> Result<()> {
        let is_full = || {
            let kept = self.twins.kept.lock();
            kept.len() == kept.capacity()
        };
        while !is_full()
            && let Some(page) = self.take_ready_twins(lane)?
        {
            if !self.keep(lane, page) {
                self.put_twins(page);
                return Ok(());
            }
        }
        Ok(())
    }

    /// A page of any lane's magazine.
    fn steal_twins(&self, lane: usize) -> Option<u64> {
        let lanes = self.twins.magazines.len();
        (0..lanes).find_map(|step| self.twins_of(lane + step)?.lock().pop())
    }

    /// Takes a run of `pages` pages, a power of two, aligned to its size, with its twin.
    pub(crate) fn take_twins(&self, lane: usize, pages: u64) -> Result<Run> {
        if !pages.is_power_of_two() || pages > self.twins.apart {
            return Err(Error::Invalid);
        }
        for _ in 0..2 {
            let mut page = self.first.next_multiple_of(pages);
            while let Some(found) =
                self.freed.next_with_twins((page, self.end), self.twins.apart, 1)
            {
                let run = Run { page: found.page / pages * pages, pages };
                page = run.end();
                let (inside, twin) = (run.page >= self.first, self.twin(run));
                let free = inside && self.freed.holds(run) && self.freed.holds(twin);
                if free && self.cut(run)? && self.book_twins(lane, run)? {
                    return Ok(run);
                }
            }
            self.settle();
        }
        Err(Error::NoSpace)
    }

    /// Frees a run that was taken with its twin.
    pub(crate) fn give_twins(&self, lane: usize, run: Run) -> Result<()> {
        let twin = self.twin(run);
        self.mark(run)?;
        if let Err(error) = self.mark(twin) {
            self.freed.release(run);
            return Err(error);
        }
        if run.pages > 1 || !self.keep(lane, run.page) {
            self.put_back(run);
            self.put_back(twin);
        }
        self.lane(lane)?.balance.give(2 * run.pages, &self.total);
        Ok(())
    }

    /// Sets so many pages aside, with their twins, for operations that free space: as many as there are,
    /// and later what is freed. They count as free.
    pub(crate) fn keep_twins(&self, pages: u64) -> Result<()> {
        if self.twins.apart == 0 {
            return Ok(());
        }
        let room = usize::try_from(pages).map_err(|_| Error::NoMemory)?;
        let mut kept = Vec::new();
        kept.try_reserve_exact(room)?;
        let mut page = self.first;
        while kept.len() < room
            && let Some(found) = self.freed.next_with_twins((page, self.end), self.twins.apart, 1)
        {
            if self.cut(found)? {
                kept.push(found.page);
            }
            page = found.end();
        }
        *self.twins.kept.lock() = kept;
        Ok(())
    }

    /// Puts a freed page where it is found again with its twin; `false` where there is no such place.
    fn keep(&self, lane: usize, page: u64) -> bool {
        let page = page & !self.twins.apart;
        let mut kept = self.twins.kept.lock();
        if kept.len() < kept.capacity() {
            kept.push(page);
            return true;
        }
        drop(kept);
        let Some(mut magazine) = self.twins_of(lane).map(Mutex::lock) else { return false };
        if let Some(mut oldest) = magazine.push_over(page) {
            self.put_batch_twins(&mut oldest);
        }
        true
    }

    fn twins_of(&self, lane: usize) -> Option<&Mutex<H::Mutex, Magazine>> {
        self.twins.magazines.get(lane.checked_rem(self.twins.magazines.len())?)
    }

    /// Books a run and its twin; says whether both may be had.
    fn book_twins(&self, lane: usize, run: Run) -> Result<bool> {
        let lane = self.lane(lane)?;
        Ok(self.taken(lane, run).is_some() && self.taken(lane, self.twin(run)).is_some())
    }

    /// Takes a run and its twin out of the region that they lie in, if both are free there.
    fn cut(&self, run: Run) -> Result<bool> {
        let number = (run.page - self.base) / self.region_pages;
        let region = usize::try_from(number).ok().and_then(|number| self.regions.get(number));
        let region = region.ok_or(Error::Invalid)?;
        let twin = self.twin(run);
        region.with(|chunks| {
            if chunks.cut(run).is_none() {
                return Ok(false);
            }
            if chunks.cut(twin).is_some() {
                return Ok(true);
            }
            chunks.insert(run).map_err(super::freed_twice)?;
            Ok(false)
        })
    }

    /// Takes a page from the lane's magazine, loading it first where it is empty.
    fn take_ready_twins(&self, lane: usize) -> Result<Option<u64>> {
        let mut magazine = self.twins_of(lane).ok_or(Error::Invalid)?.lock();
        if let Some(page) = magazine.pop() {
            return Ok(Some(page));
        }
        let from = self.twins.from.load(Relaxed).clamp(self.first, self.end);
        for (from, end) in [(from, self.end), (self.first, from)] {
            let mut page = from;
            while let Some(left) = BATCH.checked_sub(magazine.count()).filter(|&left| left > 0)
                && let Some(found) =
                    self.freed.next_with_twins((page, end), self.twins.apart, left as u64)
            {
                self.load_twins(&mut magazine, found)?;
                page = found.end();
                self.twins.from.store(page, Relaxed);
            }
        }
        magazine.reverse();
        Ok(magazine.pop())
    }

    /// Loads a magazine with a run that is free with its twin: at once, or page by page where some wait in other magazines.
    fn load_twins(&self, magazine: &mut Magazine, found: Run) -> Result<()> {
        let at_once = self.cut(found)?;
        for page in found.page..found.end() {
            if at_once || self.cut(Run { page, pages: 1 })? {
                magazine.push(page);
            }
        }
        Ok(())
    }

    /// Moves all pages that are ready into the regions; those set aside stay so.
    pub(super) fn settle_twins(&self) {
        let mut batch = Batch::new();
        for magazine in &self.twins.magazines {
            let mut magazine = magazine.lock();
            while magazine.count() > 0 {
                magazine.drain(&mut batch);
                self.put_batch_twins(&mut batch);
            }
        }
    }

    /// Gives up what is set aside, at the end of a session.
    pub(crate) fn end_keeping(&self) {
        let kept = core::mem::take(&mut *self.twins.kept.lock());
        kept.iter().for_each(|&page| self.put_twins(page));
    }

    /// Puts a batch of pages back into their regions, and their twins.
    fn put_batch_twins(&self, batch: &mut Batch) {
        self.put_batch(batch);
        batch.turn(self.twins.apart);
        self.put_batch(batch);
    }

    fn put_twins(&self, page: u64) {
        self.put_back(Run { page, pages: 1 });
        self.put_back(Run { page: page ^ self.twins.apart, pages: 1 });
    }
}
