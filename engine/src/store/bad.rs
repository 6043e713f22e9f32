//! Bad memory that is known: pages with lines that can't be loaded.
//!
//! Guarantees: a page of the list that nobody uses is given to nobody. A line of a file that is on it is lost, whatever the
//! memory gives for it later, until the page is given up; what is stored over it goes to another page. The list outlives
//! the session: it is stored behind the superblocks, under their fences. Nothing that is safe rests on it alone: what is not
//! on it is met by the load that fails.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use lock_api::Mutex;
use lode_pmem::{MediaError, Medium};

use super::Store;
use crate::layout::{BAD_PAGES_MOST, BadPage, Geometry, LINE};
use crate::space::{Run, Use};
use crate::{Error, Host, PAGE_BYTES, Result};

/// Lines of a page.
const PAGE_LINES: u64 = PAGE_BYTES / LINE;

/// Which lines are looked at of those that bytes lie in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Looked {
    /// Each of them.
    All,
    /// Those of which they are a part.
    Parts,
}

/// The bad pages that are known.
pub(crate) struct Bad<H: Host> {
    /// How many.
    count: AtomicUsize,
    /// In order.
    pages: Mutex<H::Mutex, Vec<BadPage>>,
    /// The medium has another list.
    changed: AtomicBool,
}

impl<H: Host> Bad<H> {
    /// These. What can't be anybody's is not kept from use, either.
    pub(super) fn new(pages: &[BadPage], geometry: &Geometry) -> Result<Self> {
        let mut list = Vec::new();
        list.try_reserve_exact(pages.len())?;
        list.extend_from_slice(pages);
        for bad in &mut list {
            bad.in_use |= !geometry.holds(bad.page, 1);
        }
        let (changed, count) = (AtomicBool::new(false), AtomicUsize::new(list.len()));
        Ok(Self { count, pages: Mutex::new(list), changed })
    }

    /// Whether there is any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    /// A copy of the list.
    pub(crate) fn list(&self) -> Result<Vec<BadPage>> {
        let pages = self.pages.lock();
        let mut list = Vec::new();
        list.try_reserve_exact(pages.len())?;
        list.extend_from_slice(&pages);
        Ok(list)
    }

    /// Whether a line of the bytes `at .. at + len` is bad.
    #[inline]
    pub(crate) fn touches(&self, at: u64, len: u64) -> bool {
        self.first(at, len).is_some()
    }

    /// Whether a line of these pages is bad.
    #[inline]
    pub(crate) fn touches_run(&self, run: Run) -> bool {
        self.touches(run.page * PAGE_BYTES, run.pages * PAGE_BYTES)
    }

    /// The first of the bytes `at .. at + len` that is in a bad line.
    #[inline]
    pub(crate) fn first(&self, at: u64, len: u64) -> Option<u64> {
        if self.any() && len > 0 { self.find(at, len) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn find(&self, at: u64, len: u64) -> Option<u64> {
        let (first, last) = (at / LINE, (at + len - 1) / LINE);
        let pages = self.pages.lock();
        let from = pages.partition_point(|bad| bad.page < first / PAGE_LINES);
        let near = pages.iter().skip(from).take_while(|bad| bad.page <= last / PAGE_LINES);
        near.into_iter().find_map(|bad| {
            let start = bad.page * PAGE_LINES;
            let (from, to) = (first.max(start) - start, last.min(start + PAGE_LINES - 1) - start);
            let lines = bad.lines & (u64::MAX << from) & (u64::MAX >> (PAGE_LINES - 1 - to));
            let line = start + u64::from(lines.trailing_zeros());
            (lines != 0).then_some((line * LINE).max(at))
        })
    }

    /// Calls `each` with the parts of a run that have no bad line; nobody uses the other pages any more, nor is to.
    pub(crate) fn for_each_given(
        &self,
        run: Run,
        each: &mut dyn FnMut(Run) -> Result<()>,
    ) -> Result<()> {
        if !self.any() {
            return each(run);
        }
        let mut page = run.page;
        while page < run.end() {
            let mut end = run.end();
            {
                let mut pages = self.pages.lock();
                let at = pages.partition_point(|bad| bad.page < page);
                if let Some(next) = pages.get_mut(at).filter(|bad| bad.page < end) {
                    self.changed.fetch_or(next.in_use, Relaxed);
                    next.in_use = false;
                    end = next.page;
                }
            }
            if page < end {
                each(Run { page, pages: end - page })?;
            }
            page = end + 1;
        }
        Ok(())
    }

    /// Takes in bad lines of a page. Says whether it was not known to be bad before.
    fn add(&self, page: u64, lines: u64) -> Result<bool> {
        let mut pages = self.pages.lock();
        let found = pages.binary_search_by_key(&page, |bad| bad.page);
        match found {
            Ok(at) => {
                let Some(bad) = pages.get_mut(at).filter(|bad| bad.lines | lines != bad.lines)
                else {
                    return Ok(false);
                };
                bad.lines |= lines;
            }
            Err(_) if lines == 0 => return Ok(false),
            Err(at) => {
                pages.try_reserve(1)?;
                pages.insert(at, BadPage { page, lines, in_use: true });
            }
        }
        self.count.store(pages.len(), Relaxed);
        self.changed.store(true, Relaxed);
        Ok(found.is_err())
    }

    /// What a file has in the line of `at` is lost, though that can be loaded.
    pub(crate) fn lose(&self, at: u64) -> Result<()> {
        self.add(at / PAGE_BYTES, 1 << (at % PAGE_BYTES / LINE)).map(|_| ())
    }

    /// Lines of a page are good again. Says whether all of it is, and was kept from use.
    fn remove(&self, page: u64, lines: u64) -> bool {
        let mut pages = self.pages.lock();
        let Ok(at) = pages.binary_search_by_key(&page, |bad| bad.page) else { return false };
        let Some(bad) = pages.get_mut(at) else { return false };
        bad.lines &= !lines;
        let (is_good, in_use) = (bad.lines == 0, bad.in_use);
        if is_good {
            pages.remove(at);
        }
        self.count.store(pages.len(), Relaxed);
        self.changed.store(true, Relaxed);
        is_good && !in_use
    }

    /// The line of metadata at `at` has been stored as a whole, and can be loaded.
    pub(crate) fn renewed(&self, at: u64) {
        if self.any() {
            self.remove(at / PAGE_BYTES, 1 << (at % PAGE_BYTES / LINE));
        }
    }

    /// Forgets which pages are kept from use: who finds out what is free says so again.
    pub(crate) fn forget_kept(&self) {
        for bad in self.pages.lock().iter_mut().filter(|bad| !bad.in_use) {
            bad.in_use = true;
            self.changed.store(true, Relaxed);
        }
    }

    /// Whether the list on the medium, once it is stored, says that this page is bad, also when nobody uses it any more.
    pub(crate) fn has_room_for(&self, page: u64) -> bool {
        let pages = self.pages.lock();
        let comes_before = |bad: &&BadPage| !bad.in_use || bad.page < page;
        pages.len() <= BAD_PAGES_MOST || pages.iter().filter(comes_before).count() < BAD_PAGES_MOST
    }

    /// Whether the list on the medium has room for all.
    pub(crate) fn fits(&self) -> bool {
        self.count.load(Relaxed) <= BAD_PAGES_MOST
    }
}

impl<M: Medium, H: Host> Store<M, H> {
    /// The lines of a page that can't be loaded, a bit each.
    fn bad_lines_of(&self, page: u64) -> u64 {
        let at = |line: u64| page * PAGE_BYTES + line * LINE;
        let is_bad = |line: &u64| self.door.load_line(at(*line)).is_err();
        (0..PAGE_LINES).filter(is_bad).fold(0, |lines, line| lines | 1 << line)
    }

    /// Takes in all of the page at whose byte `at` a load has failed.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    #[cold]
    #[inline(never)]
    pub(crate) fn met_bad(&self, at: u64) -> Result<()> {
        let run = Run { page: at / PAGE_BYTES, pages: 1 };
        let is_new = self.bad.add(run.page, self.bad_lines_of(run.page))?;
        // If it is free, nobody is to get it.
        if is_new
            && self.writable().is_ok()
            && self.geometry.holds(run.page, 1)
            && self.space.take_at(self.lane(), run)?
        {
            self.bad.for_each_given(run, &mut |_| Ok(()))?;
        }
        Ok(())
    }

    /// Loads a word of each line that holds some of the bytes `at .. at + len`, or only of the first and the last where they
    /// hold others, too: what of them is bad is known then. (Parts of those are about to be stored, and that must not
    /// be done to bad memory.)
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    #[inline(never)]
    pub(crate) fn look_ahead(&self, at: u64, len: u64, lines: Looked) -> Result<()> {
        let (end, last) = (at + len, (at + len).saturating_sub(1) / LINE * LINE);
        let mut line = at - at % LINE;
        while line < end {
            let is_part = line < at || line + LINE > end;
            if (is_part || lines == Looked::All)
                && let Err(MediaError::Poisoned { at }) = self.door.load_word(line)
            {
                self.met_bad(at)?;
            }
            line = if lines == Looked::All || line == last { line + LINE } else { last };
        }
        Ok(())
    }

    /// Takes in what the system knows to be bad before it is loaded.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    #[inline(never)]
    pub(crate) fn take_listed_bad(&self) -> Result<()> {
        let mut result = Ok(());
        let bytes = self.geometry.pages * PAGE_BYTES;
        self.door.for_each_listed_bad(&mut |at, len| {
            let end = at.saturating_add(len).min(bytes);
            let mut pages = at / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
            let taken = pages.try_for_each(|page| self.met_bad(page * PAGE_BYTES));
            result = core::mem::replace(&mut result, Ok(())).and(taken);
        });
        result
    }

    /// Makes the list on the medium what it is in memory, if the system knew of something.
    ///
    /// # Errors
    /// Those of a fence.
    pub(crate) fn keep_listed_bad(&self) -> Result<()> {
        let mut any = false;
        self.door.for_each_listed_bad(&mut |_, _| any = true);
        if any { self.keep_bad() } else { Ok(()) }
    }

    /// Does what takes fresh pages: again, as long as what fails is that some have turned out to be bad, which nobody gets
    /// from then on.
    pub(crate) fn on_good_pages<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let known = self.bad.count.load(Relaxed);
            match work() {
                Err(Error::Media { .. }) if self.bad.count.load(Relaxed) > known => {}
                result => return result,
            }
        }
    }

    /// Takes in what loads have met.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    #[inline(never)]
    pub(crate) fn take_met(&self) -> Result<()> {
        let mut result = Ok(());
        self.door.take_bad(&mut |at| {
            let met = self.met_bad(at);
            result = core::mem::replace(&mut result, Ok(())).and(met);
        });
        result?;
        // (To look whether lines are bad is to meet them.)
        self.door.take_bad(&mut |_| ());
        Ok(())
    }

    /// Takes in what loads have met, and makes the list on the medium what it is in memory.
    ///
    /// # Errors
    /// [`Error::NoMemory`], and those of a fence.
    #[inline(never)]
    pub(crate) fn keep_bad(&self) -> Result<()> {
        self.take_met()?;
        if self.writable().is_err() { Ok(()) } else { self.store_bad() }
    }

    /// Makes the list on the medium what it is in memory. (One at a time: the last that is stored is the latest.)
    fn store_bad(&self) -> Result<()> {
        let mut superblock = self.superblock.lock();
        if !self.bad.changed.swap(false, Relaxed) {
            return Ok(());
        }
        let stored = self.bad.list().and_then(|mut list| {
            // (What nobody uses is kept from use by the list alone, and comes first.)
            let kept = list.iter().filter(|bad| !bad.in_use).count().min(BAD_PAGES_MOST);
            let mut room = [kept, BAD_PAGES_MOST - kept];
            list.retain(|bad| {
                let [kept, used] = &mut room;
                let left = if bad.in_use { used } else { kept };
                let has_room = *left > 0;
                *left = left.saturating_sub(1);
                has_room
            });
            self.change_superblock(&mut superblock, |superblock| superblock.bad = list)
        });
        self.bad.changed.fetch_or(stored.is_err(), Relaxed);
        stored
    }

    /// Makes durable what of files is lost though it can be loaded, at `at` among others.
    ///
    /// # Errors
    /// [`Error::Media`] where there is no room for it; those of a fence.
    #[cold]
    #[inline(never)]
    pub(crate) fn keep_lost(&self, at: u64) -> Result<()> {
        self.store_bad()?;
        if self.bad.fits() { Ok(()) } else { Err(Error::Media { at }) }
    }

    /// Looks again at each page that is kept from use: what can be loaded by now is free.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`crate::Error::Corrupt`] for a page that was free already.
    pub(crate) fn retest_bad(&self) -> Result<()> {
        let mut good = self.bad.list()?;
        good.retain(|bad| {
            let lines = if bad.in_use { 0 } else { bad.lines & !self.bad_lines_of(bad.page) };
            lines != 0 && self.bad.remove(bad.page, lines)
        });
        // Nobody gets one of which the medium says that it is bad.
        self.store_bad()?;
        let mut given = good.into_iter().map(|bad| Run { page: bad.page, pages: 1 });
        given.try_for_each(|run| self.give_good(run, Use::Data))
    }
}
