//! Memory that is lent: chunks of free pages that programs have for themselves.
//!
//! Guarantees: a chunk is lent once, and given back once. No page of it is free, or anybody's anew, until it is given
//! back; what of it was a file's stays the file's, and waits for that when the file gives it up. The medium says nothing
//! of it: to who opens it after a crash, lent pages are free.
//!
//! Order of locks: the one here, then those of free space. Nobody else's are taken under it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lock_api::Mutex;
use lode_pmem::Medium;

use super::Store;
use super::space::Taken;
use crate::space::{Run, Use};
use crate::{Error, Host, LENT_BYTES, PAGE_BYTES, PageClass, Result, Rule};

/// Pages of a chunk.
const PAGES: u64 = LENT_BYTES / PAGE_BYTES;
const _: () = assert!(PAGES == PageClass::Huge.pages());
/// Words of a bit for each.
const WORDS: usize = (PAGES / u64::BITS as u64) as usize;

/// The pages of a chunk that become free when it is given back, a bit each. (A bit that flips in memory makes a page wait for
/// the next opening, and frees none that somebody has.)
#[derive(Clone, Copy)]
struct Owed {
    bits: [u64; WORDS],
    /// What the bits are not. A page is owed of which both say so.
    not: [u64; WORDS],
}

impl Owed {
    const NONE: Self = Self { bits: [0; WORDS], not: [u64::MAX; WORDS] };
    const ALL: Self = Self { bits: [u64::MAX; WORDS], not: [0; WORDS] };

    /// 64 pages.
    fn word(&self, word: u64) -> u64 {
        let of = |words: &[u64; WORDS]| words.get(word as usize).copied();
        of(&self.bits).unwrap_or(0) & !of(&self.not).unwrap_or(u64::MAX)
    }

    fn is_all(&self) -> bool {
        (0..WORDS as u64).all(|word| self.word(word) == u64::MAX)
    }

    /// Adds pages.
    ///
    /// # Errors
    /// The first of them that is there.
    fn add(&mut self, pages: Range<u64>) -> core::result::Result<(), u64> {
        let mut page = pages.start;
        while page < pages.end {
            let (word, bit) = (page / 64, page % 64);
            let count = (64 - bit).min(pages.end - page);
            let mask = u64::MAX >> (64 - count) << bit;
            let there = self.word(word) & mask;
            if there != 0 {
                return Err(page - bit + u64::from(there.trailing_zeros()));
            }
            let words = self.bits.get_mut(word as usize).zip(self.not.get_mut(word as usize));
            if let Some((bits, not)) = words {
                *bits |= mask;
                *not &= !mask;
            }
            page += count;
        }
        Ok(())
    }

    /// The first page from this one on that is there (or else is not, where not `there`); `PAGES` where none is.
    fn next(&self, from: u64, there: bool) -> u64 {
        let mut page = from;
        while page < PAGES {
            let word = self.word(page / 64);
            let rest = if there { word } else { !word } >> (page % 64);
            if rest != 0 {
                return page + u64::from(rest.trailing_zeros());
            }
            page = (page / 64 + 1) * 64;
        }
        PAGES
    }

    /// Calls `each` with the longest runs of them; the chunk begins at `page`.
    fn for_each_run(&self, page: u64, each: &mut dyn FnMut(Run) -> Result<()>) -> Result<()> {
        let mut from = self.next(0, true);
        while from < PAGES {
            let end = self.next(from, false);
            each(Run { page: page + from, pages: end - from })?;
            from = self.next(end, true);
        }
        Ok(())
    }
}

/// The chunks that are lent.
pub(crate) struct Lent<H: Host> {
    /// By number: offset in the region, in chunks.
    chunks: Mutex<H::Mutex, BTreeMap<u64, Owed>>,
    /// How many.
    count: AtomicU64,
    /// Those of which not all pages are owed: others may still give some.
    partial: AtomicU64,
    /// Of this opening.
    pub(crate) life: Arc<()>,
}

impl<H: Host> Lent<H> {
    pub(super) fn new() -> Self {
        let chunks = Mutex::new(BTreeMap::new());
        let (count, partial) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { chunks, count, partial, life: Arc::new(()) }
    }

    /// Takes in a chunk that nothing is owed of yet; says whether it is new.
    pub(crate) fn hold(&self, chunk: u64) -> bool {
        let mut chunks = self.chunks.lock();
        let is_new = !chunks.contains_key(&chunk);
        if is_new {
            chunks.insert(chunk, Owed::NONE);
            self.count.fetch_add(1, Relaxed);
            self.partial.fetch_add(1, Relaxed);
        }
        is_new
    }

    /// Whether anything is lent.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Whether pages of a lent chunk may be given by others.
    #[inline]
    pub(crate) fn is_partial(&self) -> bool {
        self.partial.load(Relaxed) > 0
    }

    /// Whether a page of this run is in a lent chunk.
    pub(crate) fn touches(&self, run: Run) -> bool {
        if !self.any() || run.pages == 0 {
            return false;
        }
        let last = (run.end() - 1) / PAGES;
        self.chunks.lock().range(run.page / PAGES..=last).next().is_some()
    }

    /// The chunks, in order.
    pub(crate) fn list(&self) -> Result<Vec<u64>> {
        let chunks = self.chunks.lock();
        let mut list = Vec::new();
        list.try_reserve_exact(chunks.len())?;
        list.extend(chunks.keys());
        Ok(list)
    }

    /// Calls `each` with the runs that are owed, in order.
    pub(crate) fn for_each_owed(&self, each: &mut dyn FnMut(Run) -> Result<()>) -> Result<()> {
        let chunks = self.chunks.lock();
        chunks.iter().try_for_each(|(chunk, owed)| owed.for_each_run(chunk * PAGES, each))
    }

    /// Takes in what of a run that nobody has any more is in lent chunks; calls `each` with the rest.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a page that is owed already, and those of `each`.
    #[cold]
    #[inline(never)]
    pub(crate) fn keep(&self, run: Run, each: &mut dyn FnMut(Run) -> Result<()>) -> Result<()> {
        let mut page = run.page;
        while page < run.end() {
            let chunk = page / PAGES;
            let end = run.end().min((chunk + 1) * PAGES);
            let part = Run { page, pages: end - page };
            if !self.owe(chunk, part)? {
                each(part)?;
            }
            page = end;
        }
        Ok(())
    }

    /// Adds pages to what is owed of a chunk; says whether it is lent.
    fn owe(&self, chunk: u64, part: Run) -> Result<bool> {
        let mut chunks = self.chunks.lock();
        let Some(owed) = chunks.get_mut(&chunk) else { return Ok(false) };
        let first = chunk * PAGES;
        owed.add(part.page - first..part.end() - first)
            .map_err(|page| Error::corrupt("page freed twice", (first + page) * PAGE_BYTES))?;
        if owed.is_all() {
            self.partial.fetch_sub(1, Relaxed);
        }
        Ok(true)
    }
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Takes in the chunks that others hold locks on.
    pub(super) fn hold_locked(&self) {
        if self.host.leaves_out(Rule::HeldKept) {
            return;
        }
        let end = self.geometry.pages.div_ceil(PAGES);
        self.door.for_each_held(&mut |at, len| {
            let first = at / LENT_BYTES;
            let behind = at.saturating_add(len).div_ceil(LENT_BYTES).min(end);
            for chunk in first..behind {
                self.lent.hold(chunk);
            }
        });
    }

    /// Takes a chunk of free pages, if `spared` pages are left besides the reserve.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn lend(&self, spared: u64) -> Result<u64> {
        match self.lend_once(spared) {
            Err(Error::NoSpace) if self.reclaim()? => self.lend_once(spared),
            result => result,
        }
    }

    /// (One at a time: what is left is looked at and taken in one step.)
    #[inline(never)]
    fn lend_once(&self, spared: u64) -> Result<u64> {
        let mut chunks = self.lent.chunks.lock();
        let kept = spared.saturating_add(self.reserve()).saturating_add(PAGES);
        let run = self.take_good(Taken::Alone, || match self.space.has(kept) {
            true => self.space.take(self.lane(), PAGES, PageClass::Huge),
            false => Err(Error::NoSpace),
        })?;
        let chunk = run.page / PAGES;
        if self.host.leaves_out(Rule::LentApart) {
            self.give_loaded(run, Use::Data)?;
            chunks.insert(chunk, Owed::NONE);
            self.lent.partial.fetch_add(1, Relaxed);
            self.lent.count.fetch_add(1, Relaxed);
            return Ok(chunk);
        }
        chunks.insert(chunk, Owed::ALL);
        self.lent.count.fetch_add(1, Relaxed);
        Ok(chunk)
    }

    /// Takes back a chunk.
    ///
    /// # Errors
    /// [`Error::NotLent`]; [`Error::Corrupt`] for a page of it that is free: the pool takes no more changes then.
    pub(crate) fn give_back(&self, chunk: u64) -> Result<()> {
        let mut chunks = self.lent.chunks.lock();
        let owed = chunks.remove(&chunk).ok_or(Error::NotLent)?;
        self.lent.count.fetch_sub(1, Relaxed);
        if !owed.is_all() {
            self.lent.partial.fetch_sub(1, Relaxed);
        }
        let mut give = |run| self.give_loaded(run, Use::Data);
        let given = owed.for_each_run(chunk * PAGES, &mut give);
        if given.is_err() {
            self.set_writable(false);
        }
        given
    }

    /// Makes all free that is lent, for the checkpoint of a session that changes nothing any more: whoever has memory then has
    /// it still. Which chunks that was is known still.
    pub(crate) fn end_lending(&self) -> Result<()> {
        if !self.lent.any() || self.host.leaves_out(Rule::LentFree) {
            return Ok(());
        }
        self.set_writable(false);
        self.lent.for_each_owed(&mut |run| self.give_loaded(run, Use::Data))
    }

    /// Asks programs for pages, if there is any hope. Says whether some have come.
    #[cold]
    #[inline(never)]
    pub(crate) fn ask(&self, pages: u64) -> bool {
        self.lent.any() && self.host.spare(pages.max(1))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    fn runs(owed: &Owed) -> Vec<Range<u64>> {
        let mut all = Vec::new();
        let noted = owed.for_each_run(0, &mut |run| {
            all.push(run.page..run.end());
            Ok(())
        });
        noted.unwrap();
        all
    }

    #[test]
    fn a_bit_that_flips_frees_no_page_that_is_not_owed() {
        let mut owed = Owed::NONE;
        for part in [3..5, 60..70, 511..512] {
            owed.add(part).unwrap();
        }
        assert_eq!(runs(&owed), [3..5, 60..70, 511..512]);
        let mut again = owed;
        assert_eq!(again.add(0..4), Err(3));
        for (word, bit) in (0..WORDS).flat_map(|word| (0..64).map(move |bit| (word, bit))) {
            for of_not in [false, true] {
                let mut flipped = owed;
                let words = if of_not { &mut flipped.not } else { &mut flipped.bits };
                words[word] ^= 1 << bit;
                let is_owed = |page: &u64| runs(&owed).iter().any(|run| run.contains(page));
                assert!(runs(&flipped).into_iter().flatten().all(|page| is_owed(&page)));
                let found: u64 = runs(&flipped).iter().map(|run| run.end - run.start).sum();
                assert!(found >= 12, "{found} of 13 pages");
            }
        }
    }
}
