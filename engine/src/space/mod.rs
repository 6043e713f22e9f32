//! The free pages of the pool, in memory, rebuilt at each open.
//!
//! Guarantees: a page is handed out only while it is free, to one taker; the number of free
//! pages is exact; freeing a page that is free, or one outside the pool's data pages, is an
//! error and changes nothing (a bitmap of free pages, one bit each, sees it wherever the page
//! is). What memory has lost is noticed by that, too (NOVA-Fortis 4.2.5): a page that chunks and bitmap do not both
//! call free is had by nobody, and a session whose free space is in doubt leaves no checkpoint, so that
//! the next one finds it out from the logs.
//! Large aligned runs stay whole while smaller ones will do (see `chunks`). Taking or giving
//! one page normally touches the lane's own memory only and never allocates.
//!
//! Pages lie in *regions*, address-ordered, each under its own lock; a lane has a home
//! region. On top, each lane has *magazines* of ready single pages, each under its lock: one for
//! data and one for logs, so that a file that grows page by page lies in one piece though its log
//! grows meanwhile. The page of data that came last is at hand without that lock: what is overwritten gives one
//! for each that it takes. Order of locks: one magazine, then one region. No two of a kind are ever held at once.
//!
//! Where metadata has twins, its pages are taken and given with them (`twins`).

mod chunks;
mod claims;
mod count;
mod line;
mod magazine;
mod marks;
mod moved;
#[cfg(test)]
pub(crate) mod tests;
mod twins;
mod whole;

pub(crate) use claims::Claims;
pub(crate) use magazine::Use;
pub(crate) use moved::Moved;

use crate::error::{Error, Result};
use crate::gauges::{FreeExtents, list_bytes};
use crate::host::Host;
use crate::types::{PAGE_BYTES, PageClass};
use alloc::boxed::Box;
use alloc::vec::Vec;
use chunks::Chunks;
use core::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
};
use count::{Balance, Total};
use lock_api::Mutex;
use magazine::{Batch, Magazine};
pub(crate) use twins::Sparing;
use twins::Twins;

/// Contiguous pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// The first page.
    pub page: u64,
    /// How many.
    pub pages: u64,
}

/// Pages that are not seen any more, and the epoch they were born in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) run: Run,
    pub(crate) born: u32,
}

/// Where pages for more of a file are best.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Near {
    /// The page behind the last one it has; 0 for none.
    pub(crate) behind: u64,
    /// Otherwise, where so many pages are free in one piece: it may go on growing.
    pub(crate) room: u64,
}

impl Near {
    /// Wherever they do the least harm.
    pub(crate) const ANY: Self = Self { behind: 0, room: 0 };
}

impl Run {
    /// The page behind the last.
    pub(crate) fn end(self) -> u64 {
        self.page.saturating_add(self.pages)
    }
}

/// Pages are numbered below this: 2^64 bytes.
const PAGES_MAX: u64 = 1 << 52;
/// The number of none.
const NO_PAGE: u64 = u64::MAX;
/// A region has at least this many pages where there are several: 2 GiB.
const REGION_LEAST: u64 = 2 * PageClass::Giant.pages();

/// One part of the page range.
#[repr(align(128))]
struct Region<H: Host> {
    chunks: Mutex<H::Mutex, Chunks>,
    /// Free pages in them, for a look without the lock.
    free: AtomicU64,
}

impl<H: Host> Region<H> {
    /// Runs `what` on the chunks, under the lock.
    fn with<R>(&self, what: impl FnOnce(&mut Chunks) -> R) -> R {
        let mut chunks = self.chunks.lock();
        let result = what(&mut chunks);
        self.free.store(chunks.free(), Relaxed);
        result
    }
}

/// What a lane has for itself.
#[repr(align(128))]
struct Lane<H: Host> {
    /// The page of data that was given back last, unless it has been taken since, or [`NO_PAGE`]. Free by the bitmap, and not in the balance.
    at_hand: AtomicU64,
    magazines: [Mutex<H::Mutex, Magazine>; 2],
    /// Pages given minus pages taken through this lane: the sum over all lanes is the number of free pages but for those at hand.
    balance: Balance,
}

impl<H: Host> Lane<H> {
    fn magazine(&self, of: Use) -> &Mutex<H::Mutex, Magazine> {
        let [data, log] = &self.magazines;
        match of {
            Use::Data => data,
            Use::Log => log,
        }
    }

    /// Takes the page that is at hand. (Where there is none, that is seen without a write.)
    #[inline]
    fn take_at_hand(&self) -> Option<u64> {
        let is_there = self.at_hand.load(Relaxed) != NO_PAGE;
        let page = if is_there { self.at_hand.swap(NO_PAGE, Acquire) } else { NO_PAGE };
        (page != NO_PAGE).then_some(page)
    }

    /// Has this page at hand; returns the one before.
    #[inline]
    fn put_at_hand(&self, page: u64) -> Option<u64> {
        let before = self.at_hand.swap(page, AcqRel);
        (before != NO_PAGE).then_some(before)
    }
}

/// The free pages of the pool.
pub(crate) struct Space<H: Host> {
    /// Data pages of the pool.
    first: u64,
    end: u64,
    /// First page of the first region, aligned to 1 GiB.
    base: u64,
    /// Pages in a region; a multiple of 1 GiB.
    region_pages: u64,
    regions: Vec<Region<H>>,
    lanes: Vec<Lane<H>>,
    /// What lanes have told of their balances.
    total: Box<Total>,
    /// The pages that are free, in regions, magazines or at hand.
    freed: Claims,
    /// What is known of free pages and the bitmap did not say the same.
    doubted: AtomicBool,
    twins: Box<Twins<H>>,
}

impl<H: Host> Space<H> {
    /// The space of data pages `first_page..end_page`, none of them free yet; metadata and its twins
    /// are `twin_pages` apart, where that is not 0.
    pub(crate) fn new(
        host_lanes: usize,
        first_page: u64,
        end_page: u64,
        twin_pages: u64,
    ) -> Result<Self> {
        if first_page > end_page || end_page > PAGES_MAX {
            return Err(Error::Invalid);
        }
        let lane_count = host_lanes.max(1);
        let giant = PageClass::Giant.pages();
        let base = first_page / giant * giant;
        let span = end_page - base;
        let most = u64::try_from(lane_count).unwrap_or(u64::MAX);
        let wanted = (span / REGION_LEAST).clamp(1, most);
        let region_pages = span.div_ceil(wanted).div_ceil(giant).max(1) * giant;
        let region_count = span.div_ceil(region_pages).max(1);
        let region_count = usize::try_from(region_count).map_err(|_| Error::NoMemory)?;

        let mut begin = base;
        let regions = filled(region_count, || {
            let end = begin.saturating_add(region_pages).min(end_page);
            let chunks = Mutex::new(Chunks::new(begin, end)?);
            begin = end;
            Ok(Region { chunks, free: AtomicU64::new(0) })
        })?;
        let lanes = filled(lane_count, || {
            let magazines = [Mutex::new(Magazine::new()?), Mutex::new(Magazine::new()?)];
            Ok(Lane { at_hand: AtomicU64::new(NO_PAGE), magazines, balance: Balance::default() })
        })?;
        let (freed, total) = (Claims::new(end_page)?, Box::default());
        let twins = Box::new(Twins::new(lane_count, twin_pages)?);
        let (first, end) = (first_page, end_page);
        let doubted = AtomicBool::new(false);
        Ok(Self { first, end, base, region_pages, regions, lanes, total, freed, doubted, twins })
    }

    /// The lane with this number; numbers wrap around.
    fn lane(&self, lane: usize) -> Result<&Lane<H>> {
        let lane = lane.checked_rem(self.lanes.len()).and_then(|lane| self.lanes.get(lane));
        lane.ok_or(Error::Invalid)
    }

    /// The home region of a lane.
    fn home(&self, lane: usize) -> usize {
        lane.checked_rem(self.lanes.len())
            .and_then(|lane| lane.checked_rem(self.regions.len()))
            .unwrap_or(0)
    }

    /// The region with the most free pages.
    fn fullest(&self) -> usize {
        let free = self.regions.iter().map(|region| region.free.load(Relaxed)).enumerate();
        free.max_by_key(|&(_, free)| free).map_or(0, |(region, _)| region)
    }

    /// What `what` finds in the home region of `lane`, the fullest one, or any other.
    fn search<R>(&self, lane: usize, mut what: impl FnMut(&mut Chunks) -> Option<R>) -> Option<R> {
        let mut look = |number: usize| {
            let region = self.regions.get(number)?;
            if region.free.load(Relaxed) == 0 { None } else { region.with(&mut what) }
        };
        let home = self.home(lane);
        if let Some(found) = look(home) {
            return Some(found);
        }
        let fullest = self.fullest();
        if fullest != home
            && let Some(found) = look(fullest)
        {
            return Some(found);
        }
        let mut others = (0..self.regions.len()).filter(|&n| n != home && n != fullest);
        others.find_map(look)
    }

    /// Puts a run into the regions it lies in.
    fn put(&self, run: Run) -> Result<()> {
        let mut rest = run;
        while rest.pages > 0 {
            let number = (rest.page - self.base) / self.region_pages;
            let border = self.base + (number + 1) * self.region_pages;
            let part = Run { page: rest.page, pages: rest.pages.min(border - rest.page) };
            let region = usize::try_from(number).ok().and_then(|number| self.regions.get(number));
            let region = region.ok_or(Error::corrupt("page outside the pool freed", 0))?;
            region.with(|chunks| chunks.insert(part)).map_err(freed_twice)?;
            rest = Run { page: part.end(), pages: rest.pages - part.pages };
        }
        Ok(())
    }

    /// Puts a run back that the bitmap knows as free. Where a region knows better, memory has lost
    /// something: nobody gets the run.
    fn put_back(&self, run: Run) {
        if self.put(run).is_err() {
            self.doubted.store(true, Relaxed);
        }
    }

    /// Puts a batch of single pages back into their regions.
    fn put_batch(&self, batch: &mut Batch) {
        let mut run = Run { page: 0, pages: 0 };
        for &page in batch.sorted() {
            if run.pages > 0 && run.end() == page {
                run.pages += 1;
            } else {
                self.put_back(run);
                run = Run { page, pages: 1 };
            }
        }
        self.put_back(run);
    }

    /// Checks that `run` is made of data pages that are not free, and marks them free.
    fn mark(&self, run: Run) -> Result<()> {
        let end = run.page.checked_add(run.pages);
        if run.page < self.first || end.is_none_or(|end| end > self.end) {
            let at = run.page.saturating_mul(PAGE_BYTES);
            return Err(Error::corrupt("page outside the pool freed", at));
        }
        self.freed.claim(run).map_err(freed_twice)
    }

    /// Books `run` as taken through `lane`. `None` where it is not free by the bitmap: then one of the two
    /// is not what was stored there, and nobody gets the pages ([`Space::is_whole`]).
    #[inline]
    fn taken(&self, lane: &Lane<H>, run: Run) -> Option<Run> {
        if !self.freed.give_up(run) {
            self.doubted.store(true, Relaxed);
            return None;
        }
        lane.balance.take(run.pages, &self.total);
        Some(run)
    }

    /// Makes a run free while the space is built.
    pub(crate) fn add_free(&self, run: Run) -> Result<()> {
        self.mark(run)?;
        self.put(run)?;
        self.lane(0)?.balance.give(run.pages, &self.total);
        Ok(())
    }

    /// Takes exactly `pages` contiguous pages, the first aligned to the class. Room is looked
    /// for in whole pages of the class.
    pub(crate) fn take(&self, lane: usize, pages: u64, class: PageClass) -> Result<Run> {
        if pages == 0 {
            return Err(Error::Invalid);
        }
        if pages == 1 && class == PageClass::Small {
            return self.take_one(lane, Use::Data);
        }
        self.take_run(lane, |chunks| chunks.take(pages, class))
    }

    /// Takes 1 to `pages` contiguous pages, as many as can be had without breaking up what is
    /// large and aligned; whole chunks where the request is that large. (One page is taken from those that
    /// are ready, which follow each other.)
    pub(crate) fn take_some(&self, lane: usize, pages: u64, near: Near) -> Result<Run> {
        let behind = Run { page: near.behind, pages };
        match pages {
            0 => Err(Error::Invalid),
            1 => self.take_one(lane, Use::Data),
            _ if near.behind != 0 && self.take_at(lane, behind)? => Ok(behind),
            _ => self.take_run(lane, |chunks| chunks.take_some(pages, near.room)),
        }
    }

    /// Takes what `what` finds in a region, if need be after the magazines have been emptied.
    fn take_run(
        &self,
        lane: usize,
        mut what: impl FnMut(&mut Chunks) -> Option<Run>,
    ) -> Result<Run> {
        let own = self.lane(lane)?;
        for settled in [false, true] {
            if settled {
                self.settle();
            }
            while let Some(run) = self.search(lane, &mut what) {
                if let Some(run) = self.taken(own, run) {
                    return Ok(run);
                }
            }
        }
        Err(Error::NoSpace)
    }

    /// Takes just this run, if all of it is free and none of it waits in a magazine; says whether it did.
    pub(crate) fn take_at(&self, lane: usize, run: Run) -> Result<bool> {
        let number = run.page.saturating_sub(self.base) / self.region_pages;
        let region = usize::try_from(number).ok().and_then(|number| self.regions.get(number));
        let free = self.freed.holds(run);
        if !free || region.and_then(|region| region.with(|chunks| chunks.cut(run))).is_none() {
            return Ok(false);
        }
        Ok(self.taken(self.lane(lane)?, run).is_some())
    }

    /// Takes a page from the lane's magazine, loading it first where it is empty.
    fn take_ready(&self, lane: usize, own: &Lane<H>, of: Use) -> Option<u64> {
        let mut magazine = own.magazine(of).lock();
        if let Some(page) = magazine.pop() {
            return Some(page);
        }
        self.search(lane, |chunks| magazine.load(chunks))?;
        magazine.pop()
    }

    /// Takes one page.
    pub(crate) fn take_one(&self, lane: usize, of: Use) -> Result<Run> {
        let own = self.lane(lane)?;
        if of == Use::Data
            && let Some(run) = self.take_at_hand(own)
        {
            return Ok(run);
        }
        loop {
            let page = match self.take_ready(lane, own, of) {
                Some(page) => page,
                None => self.take_last(lane, own, of)?.ok_or(Error::NoSpace)?,
            };
            if let Some(run) = self.taken(own, Run { page, pages: 1 }) {
                return Ok(run);
            }
        }
    }

    /// Takes the page of data that the lane has at hand, if it has one.
    #[inline]
    fn take_at_hand(&self, own: &Lane<H>) -> Option<Run> {
        let page = own.take_at_hand()?;
        let run = Run { page, pages: 1 };
        if self.freed.give_up(run) {
            return Some(run);
        }
        self.doubt();
        None
    }

    /// Takes a page where no region has any: one that waits in a magazine, at last one that waits with
    /// its twin.
    #[cold]
    fn take_last(&self, lane: usize, own: &Lane<H>, of: Use) -> Result<Option<u64>> {
        if let Some(page) = self.steal(lane).or_else(|| self.take_ready(lane, own, of)) {
            return Ok(Some(page));
        }
        self.settle_twins();
        Ok(self.take_ready(lane, own, of))
    }

    /// Takes a page from any magazine, or that is at hand.
    fn steal(&self, lane: usize) -> Option<u64> {
        self.put_away();
        let mut lanes = (0..self.lanes.len()).map(|step| self.lane(lane.wrapping_add(step)));
        lanes.find_map(|lane| {
            let lane = lane.ok()?;
            lane.magazines.iter().find_map(|magazine| magazine.lock().pop())
        })
    }

    /// Moves the pages that are at hand into the magazines.
    fn put_away(&self) {
        for lane in &self.lanes {
            if let Some(page) = lane.take_at_hand() {
                self.make_ready(lane, page, Use::Data);
            }
        }
    }

    /// Puts a page into a magazine of the lane, and counts it there.
    fn make_ready(&self, lane: &Lane<H>, page: u64, of: Use) {
        let mut magazine = lane.magazine(of).lock();
        if let Some(mut oldest) = magazine.push_over(page) {
            self.put_batch(&mut oldest);
        }
        drop(magazine);
        lane.balance.give(1, &self.total);
    }

    /// Frees a run that was of this use; a single page is at hand, or goes to a magazine of the lane.
    pub(crate) fn give(&self, lane: usize, run: Run, of: Use) -> Result<()> {
        let own = self.lane(lane)?;
        self.mark(run)?;
        match of {
            _ if run.pages != 1 => {
                self.put_back(run);
                own.balance.give(run.pages, &self.total);
            }
            Use::Log => self.make_ready(own, run.page, of),
            Use::Data => {
                if let Some(before) = own.put_at_hand(run.page) {
                    self.make_ready(own, before, of);
                }
            }
        }
        Ok(())
    }

    /// Moves all pages that are ready, in magazines or at hand, into the regions.
    pub(crate) fn settle(&self) {
        self.settle_twins();
        self.put_away();
        let mut batch = Batch::new();
        for magazine in self.lanes.iter().flat_map(|lane| &lane.magazines) {
            let mut magazine = magazine.lock();
            while magazine.count() > 0 {
                magazine.drain(&mut batch);
                self.put_batch(&mut batch);
            }
        }
    }

    /// A bit of the bitmap flips.
    #[cfg(test)]
    pub(crate) fn flip(&self, page: u64) {
        self.freed.flip(page);
    }

    /// Something that was to be free is not known any more: this session leaves no checkpoint.
    #[cold]
    pub(crate) fn doubt(&self) {
        self.doubted.store(true, Relaxed);
    }

    /// Whether all that is known of free space says the same: regions, bitmap and count. Where it does not,
    /// something has changed that nobody stored, and what is free is to be found out anew. For the end of
    /// a session: nobody takes or gives meanwhile, nothing is set aside.
    pub(crate) fn is_whole(&self) -> bool {
        self.settle();
        if self.doubted.load(Relaxed) {
            return false;
        }
        let (mut free, mut page) = (0, self.first);
        for (number, region) in (1..).zip(&self.regions) {
            let border = (self.base + number * self.region_pages).min(self.end);
            let chunks = region.chunks.lock();
            if !chunks.agrees() {
                return false;
            }
            for extent in chunks.extents() {
                let apart = self.freed.is_clear(page, extent.page) && extent.page >= page;
                if !(apart && extent.end() <= border && self.freed.holds(extent)) {
                    return false;
                }
                (free, page) = (free + extent.pages, extent.end());
            }
            if !self.freed.is_clear(page, border) {
                return false;
            }
            page = page.max(border);
        }
        free == self.free_pages()
    }

    /// Free pages, those in magazines and at hand included.
    pub(crate) fn free_pages(&self) -> u64 {
        let balances = self.lanes.iter().map(|lane| lane.balance.pages());
        let at_hand =
            self.lanes.iter().filter(|lane| lane.at_hand.load(Relaxed) != NO_PAGE).count();
        let sum = balances.fold(at_hand as u64, u64::wrapping_add);
        // While others take and give, the sum may be off by what they move, even below zero.
        u64::try_from(sum.cast_signed()).unwrap_or(0).min(self.end - self.first)
    }

    /// Whether at least so many pages are free: as [`Space::free_pages`] says, but where there are plenty without
    /// a look at what each lane has counted.
    #[inline]
    pub(crate) fn has(&self, pages: u64) -> bool {
        self.total.has(pages, self.lanes.len()) || self.free_pages() >= pages
    }

    /// Calls `each` with every free extent, in address order: read off the bitmap, so pages that are ready
    /// are there, too. What others take and give meanwhile may be seen or not.
    pub(crate) fn for_each_free(&self, each: &mut dyn FnMut(Run) -> Result<()>) -> Result<()> {
        self.freed.for_each_run(self.first, self.end, true, each)
    }

    /// Free extents by size, pages that are ready included: read off the bitmap, so that nobody has
    /// to wait, whatever the number of extents.
    pub(crate) fn extents(&self) -> FreeExtents {
        let mut extents = FreeExtents::default();
        // Nothing in it fails.
        let _ = self.for_each_free(&mut |run| {
            extents.add(run.page, run.end());
            Ok(())
        });
        extents
    }

    /// Bytes of memory that this takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let chunks = self.regions.iter().map(|region| region.chunks.lock().memory_bytes());
        let fixed = list_bytes::<Region<H>>(self.regions.capacity())
            + list_bytes::<Lane<H>>(self.lanes.capacity());
        chunks.sum::<u64>() + fixed + self.freed.memory_bytes()
    }
}

/// A vector of `count` things; a function of its own to keep the stack frames small.
#[inline(never)]
fn filled<T>(count: usize, mut make: impl FnMut() -> Result<T>) -> Result<Vec<T>> {
    let mut things = Vec::new();
    things.try_reserve_exact(count)?;
    for _ in 0..count {
        things.push(make()?);
    }
    Ok(things)
}

/// The error for a page that was free already.
fn freed_twice(page: u64) -> Error {
    Error::corrupt("page freed twice", page.saturating_mul(PAGE_BYTES))
}
