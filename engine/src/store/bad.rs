//! Bad memory that is known: pages with lines that can't be loaded.
//!
//! Guarantees: a page of the list that nobody uses is given to nobody. A line of a file that is on it is lost, whatever the
//! memory gives for it later, until the page is given up; what is stored over it goes to another page. The list outlives
//! the session: it is stored behind the superblocks, under their fences. Nothing that is safe rests on it alone: what is not
//! on it is met by the load that fails. A bit of it that flips in memory changes nothing of that: each page is there twice.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

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

/// A page of the list, as it is kept: twice, each time with a sum.
struct Known([Summed; 2]);

#[derive(Clone, Copy)]
struct Summed {
    /// Its number, twice, and one more where it is part of something.
    place: u64,
    lines: u64,
    sum: u64,
}

impl Summed {
    fn of(bad: BadPage) -> Self {
        let place = bad.page << 1 | u64::from(bad.in_use);
        Self { place, lines: bad.lines, sum: super::sum_of(place, bad.lines) }
    }

    /// It, if it is what was put there.
    fn get(&self) -> Option<BadPage> {
        let bad = BadPage { page: self.place >> 1, lines: self.lines, in_use: self.place & 1 != 0 };
        (self.sum == super::sum_of(self.place, self.lines)).then_some(bad)
    }
}

impl Known {
    fn new(bad: BadPage) -> Self {
        Self([Summed::of(bad); 2])
    }

    /// It; with a place that is no page's, should neither of the two be what was put there.
    fn get(&self) -> BadPage {
        let Self([first, second]) = self;
        first.get().or_else(|| second.get()).unwrap_or_default()
    }

    fn set(&mut self, bad: BadPage) {
        *self = Self::new(bad);
    }
}

/// The bad pages that are known.
pub(crate) struct Bad<H: Host> {
    /// How many, and in the upper half what that is not: so that no bit makes none of some.
    count: AtomicU64,
    /// In order.
    pages: Mutex<H::Mutex, Vec<Known>>,
    /// The medium has another list, if any bit is set.
    changed: AtomicU32,
}

/// What is in [`Bad::count`].
const fn counted(pages: usize) -> u64 {
    let low = pages as u32;
    (!low as u64) << 32 | low as u64
}

impl<H: Host> Bad<H> {
    /// These. What can't be anybody's is not kept from use, either.
    pub(super) fn new(pages: &[BadPage], geometry: &Geometry) -> Result<Self> {
        let mut list = Vec::new();
        list.try_reserve_exact(pages.len())?;
        list.extend(pages.iter().map(|bad| {
            let in_use = bad.in_use || !geometry.holds(bad.page, 1);
            Known::new(BadPage { in_use, ..*bad })
        }));
        let count = AtomicU64::new(counted(list.len()));
        Ok(Self { count, pages: Mutex::new(list), changed: AtomicU32::new(0) })
    }

    /// Whether there is any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Relaxed) != counted(0)
    }

    /// How many there are.
    fn len(&self) -> usize {
        self.pages.lock().len()
    }

    /// There are so many now, and others.
    fn has_changed(&self, pages: usize) {
        self.count.store(counted(pages), Relaxed);
        self.changed.store(u32::MAX, Relaxed);
    }

    /// A copy of the list.
    pub(crate) fn list(&self) -> Result<Vec<BadPage>> {
        let pages = self.pages.lock();
        let mut list = Vec::new();
        list.try_reserve_exact(pages.len())?;
        list.extend(pages.iter().map(Known::get));
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
        let from = pages.partition_point(|bad| bad.get().page < first / PAGE_LINES);
        let near = pages.iter().skip(from).map(Known::get);
        near.take_while(|bad| bad.page <= last / PAGE_LINES).find_map(|bad| {
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
                let at = pages.partition_point(|bad| bad.get().page < page);
                if let Some(known) = pages.get_mut(at).filter(|bad| bad.get().page < end) {
                    let next = known.get();
                    if next.in_use {
                        known.set(BadPage { in_use: false, ..next });
                        self.changed.store(u32::MAX, Relaxed);
                    }
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
        let found = pages.binary_search_by_key(&page, |bad| bad.get().page);
        match found {
            Ok(at) => {
                let Some(known) = pages.get_mut(at) else { return Ok(false) };
                let bad = known.get();
                if bad.lines | lines == bad.lines {
                    return Ok(false);
                }
                known.set(BadPage { lines: bad.lines | lines, ..bad });
            }
            Err(_) if lines == 0 => return Ok(false),
            Err(at) => {
                pages.try_reserve(1)?;
                pages.insert(at, Known::new(BadPage { page, lines, in_use: true }));
            }
        }
        self.has_changed(pages.len());
        Ok(found.is_err())
    }

    /// What a file has in the line of `at` is lost, though that can be loaded.
    pub(crate) fn lose(&self, at: u64) -> Result<()> {
        self.add(at / PAGE_BYTES, 1 << (at % PAGE_BYTES / LINE)).map(|_| ())
    }

    /// Lines of a page are good again. Says whether all of it is, and was kept from use.
    fn remove(&self, page: u64, lines: u64) -> bool {
        let mut pages = self.pages.lock();
        let Ok(at) = pages.binary_search_by_key(&page, |bad| bad.get().page) else { return false };
        let Some(known) = pages.get_mut(at) else { return false };
        let bad = known.get();
        let left = bad.lines & !lines;
        match left {
            0 => _ = pages.remove(at),
            lines => known.set(BadPage { lines, ..bad }),
        }
        self.has_changed(pages.len());
        left == 0 && !bad.in_use
    }

    /// The line of metadata at `at` has been stored as a whole, and can be loaded.
    pub(crate) fn renewed(&self, at: u64) {
        if self.any() {
            self.remove(at / PAGE_BYTES, 1 << (at % PAGE_BYTES / LINE));
        }
    }

    /// Forgets which pages are kept from use: who finds out what is free says so again.
    pub(crate) fn forget_kept(&self) {
        for known in self.pages.lock().iter_mut().filter(|known| !known.get().in_use) {
            known.set(BadPage { in_use: true, ..known.get() });
            self.changed.store(u32::MAX, Relaxed);
        }
    }

    /// Whether the list on the medium, once it is stored, says that this page is bad, also when nobody uses it any more.
    pub(crate) fn has_room_for(&self, page: u64) -> bool {
        let pages = self.pages.lock();
        let comes_before = |bad: &BadPage| !bad.in_use || bad.page < page;
        let before = pages.iter().map(Known::get).filter(comes_before);
        pages.len() <= BAD_PAGES_MOST || before.count() < BAD_PAGES_MOST
    }

    /// Whether the list on the medium has room for all.
    pub(crate) fn fits(&self) -> bool {
        self.len() <= BAD_PAGES_MOST
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
            let known = if self.bad.any() { self.bad.len() } else { 0 };
            match work() {
                Err(Error::Media { .. }) if self.bad.len() > known => {}
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
        if self.bad.changed.swap(0, Relaxed) == 0 {
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
        if stored.is_err() {
            self.bad.changed.store(u32::MAX, Relaxed);
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    extern crate std;

    use std::vec;

    use super::*;
    use crate::space::tests::TestHost;

    const PAGES: [BadPage; 3] = [
        BadPage { page: 300, lines: 1 << 63 | 1, in_use: true },
        BadPage { page: 301, lines: 0xF0, in_use: false },
        BadPage { page: 4000, lines: 2, in_use: true },
    ];

    fn list() -> Bad<TestHost> {
        let known = PAGES.map(Known::new).into_iter().collect();
        let count = AtomicU64::new(counted(PAGES.len()));
        Bad { count, pages: Mutex::new(known), changed: AtomicU32::new(u32::MAX) }
    }

    /// Each bit of what is kept of a page.
    fn flip(known: &mut Known, bit: usize) {
        let Known(copies) = known;
        let [word, bit] = [bit / 64, bit % 64];
        let of = &mut copies[word / 3];
        let words = [&mut of.place, &mut of.lines, &mut of.sum];
        for (_, word) in words.into_iter().enumerate().filter(|(number, _)| *number == word % 3) {
            *word ^= 1 << bit;
        }
    }

    fn says_what_it_did(bad: &Bad<TestHost>) {
        assert!(bad.any() && bad.fits());
        assert_eq!(bad.list().unwrap(), PAGES);
        assert_eq!(bad.first(300 * PAGE_BYTES, 3 * PAGE_BYTES), Some(300 * PAGE_BYTES));
        assert_eq!(bad.first(301 * PAGE_BYTES, 256), None);
        assert!(bad.touches(4000 * PAGE_BYTES + 64, 1) && !bad.touches(4001 * PAGE_BYTES, 4096));
        let mut given = vec![];
        let run = Run { page: 299, pages: 4 };
        bad.for_each_given(run, &mut |run| {
            given.push((run.page, run.pages));
            Ok(())
        })
        .unwrap();
        assert_eq!(given, [(299, 1), (302, 1)]);
        assert!(bad.list().unwrap()[..2].iter().all(|one| !one.in_use));
        assert!(!bad.remove(300, 1) && bad.remove(300, 1 << 63), "kept from use, and good");
        assert!(bad.add(300, 1).unwrap() && !bad.add(4000, 4).unwrap());
        let lines: vec::Vec<u64> = bad.list().unwrap().iter().map(|one| one.lines).collect();
        assert_eq!(lines, [1, 0xF0, 6]);
    }

    #[test]
    fn a_bit_that_flips_changes_nothing_of_what_is_known_to_be_bad() {
        says_what_it_did(&list());
        for number in 0..PAGES.len() {
            for bit in 0..2 * 3 * 64 {
                let bad = list();
                flip(&mut bad.pages.lock()[number], bit);
                says_what_it_did(&bad);
            }
        }
        for bit in 0..64 {
            let bad = list();
            bad.count.fetch_xor(1 << bit, Relaxed);
            says_what_it_did(&bad);
            let bad = list();
            bad.changed.fetch_xor(1 << (bit % 32), Relaxed);
            assert_ne!(bad.changed.load(Relaxed), 0);
        }
    }
}
