//! Taking pages, with what can be done before the answer is "no space".

use lode_pmem::Medium;

use super::{Looked, Store};
use crate::space::{Near, Run, Sparing, Use};
use crate::{Error, Host, PAGE_BYTES, PageClass, Result, Rule};

/// How often programs are asked for one taking: each time some pages have come.
const ASKS_MOST: u32 = 64;
/// One page of so many is kept for operations that free space.
const RESERVE_PART: u64 = 64;
/// In a small pool so many pages are kept, ...
const RESERVE_LEAST: u64 = 8;
/// ... but no larger part of it than this.
const RESERVE_PART_MOST: u64 = 8;
/// The most pages that are kept.
const RESERVE_MAX: u64 = 1024;

/// What an operation does to space: how much of the reserve is not for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// It takes some.
    Grows,
    /// It puts pages in the place of others, which it frees: only the log may grow, where an extent
    /// is cut. So what a program has allocated can be overwritten in a full pool.
    Replaces,
    /// It changes what is there: a log grows by what can be collected.
    Changes,
    /// It frees some: it may use all of the reserve, so that a full pool can be emptied.
    Frees,
}

/// Whether pages are taken with their twins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    Alone,
    WithTwins,
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Pages kept for operations that take no space for good.
    pub(crate) fn reserve(&self) -> u64 {
        let least = (self.geometry.pages / RESERVE_PART_MOST).min(RESERVE_LEAST);
        let reserve = (self.geometry.pages / RESERVE_PART).clamp(least, RESERVE_MAX);
        // With twins a log page is two.
        if self.geometry.twin_pages == 0 { reserve } else { 2 * reserve }
    }

    /// Pages with twins that are set aside: half of the reserve, in a small pool all of it, as to take
    /// names out of each directory matters most.
    pub(crate) fn kept_twins(&self) -> u64 {
        let reserve = self.reserve();
        if reserve <= 4 * RESERVE_LEAST { reserve / 2 } else { reserve / 4 }
    }

    /// Whether part of the reserve is taken.
    pub(crate) fn is_short(&self) -> bool {
        !self.space.has(self.reserve())
    }

    /// The part of the reserve that is kept from operations with this purpose.
    fn kept_from(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Grows => self.reserve(),
            Purpose::Replaces => self.reserve() / 2,
            Purpose::Changes => self.reserve() / 4,
            Purpose::Frees => 0,
        }
    }

    /// Takes a page.
    pub(crate) fn take_page(&self, purpose: Purpose, of: Use) -> Result<u64> {
        let take = |lane, _| self.space.take_one(lane, of);
        let run = self.take_by((purpose, 1), Taken::Alone, take);
        run.map(|run| run.page)
    }

    /// Takes a page for a log, with its twin where metadata has such.
    pub(crate) fn take_log_page(&self, purpose: Purpose) -> Result<u64> {
        if self.geometry.twin_pages == 0 {
            return self.take_readable(&|| self.take_page(purpose, Use::Log));
        }
        let sparing = match purpose {
            Purpose::Grows => Sparing::All,
            Purpose::Replaces | Purpose::Changes => Sparing::Half,
            Purpose::Frees => Sparing::Nothing,
        };
        let run = self.take_by((purpose, 2), Taken::WithTwins, |lane, most| match most {
            1 => Err(Error::NoSpace),
            _ => self.space.take_page_twins(lane, sparing).map(|page| Run { page, pages: 1 }),
        });
        run.map(|run| run.page)
    }

    /// Takes a page for the log of a collection: what it frees is more.
    pub(crate) fn take_spare_page(&self) -> Result<u64> {
        if self.geometry.twin_pages == 0 {
            return self.take_readable(&|| Ok(self.space.take_one(self.lane(), Use::Log)?.page));
        }
        let run = self.take_good(Taken::WithTwins, || {
            let page = self.space.take_page_twins(self.lane(), Sparing::Nothing)?;
            Ok(Run { page, pages: 1 })
        });
        run.map(|run| run.page)
    }

    /// Takes a page for a log, of which there is no other copy: one that can be loaded. (The lines of bad memory become good one
    /// by one, as they are stored; a log that went on there could not be read before the last one was.)
    #[inline(never)]
    fn take_readable(&self, take: &dyn Fn() -> Result<u64>) -> Result<u64> {
        loop {
            let run = Run { page: take()?, pages: 1 };
            if let Err(error) = self.look_ahead(run.page * PAGE_BYTES, PAGE_BYTES, Looked::All) {
                self.give(run);
                return Err(error);
            }
            if self.is_good(run, Taken::Alone)? {
                return Ok(run.page);
            }
        }
    }

    /// How metadata is taken.
    fn taken_metadata(&self) -> Taken {
        if self.geometry.twin_pages == 0 { Taken::Alone } else { Taken::WithTwins }
    }

    /// Takes pages for a piece of inode table, aligned to their number, a power of two.
    pub(crate) fn take_table_pages(&self, pages: u64) -> Result<Run> {
        let huge = pages == PageClass::Huge.pages();
        let class = if huge { PageClass::Huge } else { PageClass::Small };
        let of = self.taken_metadata();
        self.take_good(of, || match of {
            Taken::WithTwins => self.space.take_twins(self.lane(), pages),
            Taken::Alone => self.space.take(self.lane(), pages, class),
        })
    }

    /// Takes 1 to `pages` contiguous pages.
    pub(crate) fn take_some(&self, pages: u64, purpose: Purpose) -> Result<Run> {
        self.take_near(pages, purpose, Near::ANY)
    }

    /// The same, if possible where they are best for a file.
    pub(crate) fn take_near(&self, pages: u64, purpose: Purpose, near: Near) -> Result<Run> {
        let take = |lane, most| self.space.take_some(lane, pages.min(most), near);
        self.take_by((purpose, pages), Taken::Alone, take)
    }

    /// Takes so many contiguous pages, or none.
    pub(crate) fn take_whole(&self, pages: u64, purpose: Purpose) -> Result<Run> {
        let take = |lane, most| match pages <= most {
            true => self.space.take(lane, pages, PageClass::Small),
            false => Err(Error::NoSpace),
        };
        self.take_by((purpose, pages), Taken::Alone, take)
    }

    /// Takes a whole aligned chunk of `class`, unless space is so short that the rest of it
    /// is better left to others.
    pub(crate) fn take_chunk(&self, class: PageClass) -> Option<Run> {
        let left = self.space.free_pages().checked_sub(class.pages())?;
        if left < 2 * self.reserve() {
            return None;
        }
        let run = self.space.take(self.lane(), class.pages(), class).ok()?;
        self.is_good(run, Taken::Alone).ok()?.then_some(run)
    }

    /// Takes what leaves the reserve alone, after reclaiming, and asking programs, where that is needed. `take` gets the
    /// lane and how many pages there are; so many are wanted.
    #[inline]
    fn take_by(
        &self,
        (purpose, wanted): (Purpose, u64),
        of: Taken,
        take: impl Fn(usize, u64) -> Result<Run>,
    ) -> Result<Run> {
        let kept = self.kept_from(purpose);
        let taken = || match self.space.has(kept + wanted) {
            true => take(self.lane(), wanted),
            false => match self.space.free_pages().saturating_sub(kept) {
                0 => Err(Error::NoSpace),
                most => take(self.lane(), most),
            },
        };
        self.take_good(of, || match taken() {
            Err(Error::NoSpace) => self.take_short(kept + wanted, &taken),
            result => result,
        })
    }

    /// Takes, so that `wanted` pages have to be there, after what can be done for it.
    #[cold]
    #[inline(never)]
    fn take_short(&self, wanted: u64, taken: &dyn Fn() -> Result<Run>) -> Result<Run> {
        let first = if self.reclaim()? { taken() } else { Err(Error::NoSpace) };
        self.again(first, wanted, taken)
    }

    /// What `taken` gives, where it had no space, after asking programs until `wanted` pages are free.
    #[cold]
    pub(super) fn again<T>(
        &self,
        first: Result<T>,
        wanted: u64,
        taken: &dyn Fn() -> Result<T>,
    ) -> Result<T> {
        let mut result = first;
        for _ in 0..ASKS_MOST {
            if !matches!(result, Err(Error::NoSpace)) || !self.ask_for(wanted) {
                break;
            }
            result = taken();
        }
        result
    }

    /// Asks programs for what is missing to `wanted` free pages until enough are there; says whether they are.
    #[cold]
    #[inline(never)]
    pub(crate) fn ask_until(&self, wanted: u64, enough: &dyn Fn() -> bool) -> bool {
        (0..ASKS_MOST).any(|_| enough() || !self.ask_for(wanted)) && enough()
    }

    /// Asks programs for what is missing to `wanted` free pages. Says whether some have come.
    #[cold]
    pub(crate) fn ask_for(&self, wanted: u64) -> bool {
        self.ask(wanted.saturating_sub(self.space.free_pages()))
    }

    /// Takes until nothing of it is known to be bad.
    #[inline]
    pub(super) fn take_good(&self, of: Taken, take: impl Fn() -> Result<Run>) -> Result<Run> {
        loop {
            let run = take()?;
            if self.is_good(run, of)? {
                return Ok(run);
            }
        }
    }

    /// Whether nothing of what was taken is known to be bad; else it is given back, and what is bad is kept from use.
    #[inline]
    fn is_good(&self, run: Run, of: Taken) -> Result<bool> {
        if !self.bad.any() {
            return Ok(true);
        }
        let twin = self.twin_run(run).filter(|_| of == Taken::WithTwins);
        if !self.bad.touches_run(run) && !twin.is_some_and(|twin| self.bad.touches_run(twin)) {
            return Ok(true);
        }
        // (What was free a moment ago is not lent.)
        for run in twin.into_iter().chain([run]) {
            self.give_loaded(run, Use::Data)?;
        }
        Ok(false)
    }

    /// Gives pages back that nothing on the medium speaks of any more (PROTOCOL I9).
    /// A page that was free already means damage: the pool takes no more writes.
    pub(crate) fn give(&self, run: Run) {
        self.give_of(run, Use::Data);
    }

    /// The same of a page for what a journal streams.
    pub(crate) fn give_journal_page(&self, page: u64) {
        self.give_of(Run { page, pages: 1 }, Use::Log);
    }

    /// The same of metadata, and of its twin where it has one.
    pub(crate) fn give_metadata(&self, run: Run) {
        if self.try_give_metadata(run).is_err() {
            self.set_writable(false);
        }
    }

    /// As [`Store::give_metadata`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a page that was free already.
    pub(crate) fn try_give_metadata(&self, run: Run) -> Result<()> {
        let Some(twin) = self.twin_run(run) else { return self.give_good(run, Use::Log) };
        let is_lent = |run| self.lent.is_partial() && self.lent.touches(run);
        let is_odd = |run| self.bad.touches_run(run) || is_lent(run);
        if is_odd(run) || is_odd(twin) {
            self.give_good(run, Use::Data)?;
            return self.give_good(twin, Use::Data);
        }
        self.space.give_twins(self.lane(), run)
    }

    /// Gives back what of a run can be loaded, and is not in memory that is lent; the rest is for nobody.
    #[inline]
    pub(super) fn give_good(&self, run: Run, of: Use) -> Result<()> {
        if self.lent.is_partial() { self.give_beside(run, of) } else { self.give_loaded(run, of) }
    }

    /// The same, where other memory is lent.
    #[cold]
    #[inline(never)]
    fn give_beside(&self, run: Run, of: Use) -> Result<()> {
        if self.host.leaves_out(Rule::LentOwed) {
            return self.give_loaded(run, of);
        }
        self.lent.keep(run, &mut |run| self.give_loaded(run, of))
    }

    #[inline]
    pub(super) fn give_loaded(&self, run: Run, of: Use) -> Result<()> {
        self.bad.for_each_given(run, &mut |run| self.space.give(self.lane(), run, of))
    }

    /// Makes a run free while the pool is opened, but for what can't be loaded, and what is lent.
    pub(crate) fn add_free(&self, run: Run) -> Result<()> {
        let mut add = |run| self.bad.for_each_given(run, &mut |run| self.space.add_free(run));
        if self.lent.any() { self.lent.keep(run, &mut add) } else { add(run) }
    }

    /// The same of a log page.
    pub(crate) fn give_log_page(&self, page: u64) {
        self.give_metadata(Run { page, pages: 1 });
    }

    fn give_of(&self, run: Run, of: Use) {
        if self.give_good(run, of).is_err() {
            self.set_writable(false);
        }
    }

    /// Frees what a round and empty table pieces hold. Says whether that was anything.
    pub(crate) fn reclaim(&self) -> Result<bool> {
        let before = self.space.free_pages();
        self.end_snapshots();
        if self.quarantine_holds() {
            self.round()?;
        }
        self.release_empty_pieces()?;
        Ok(self.space.free_pages() > before)
    }
}
