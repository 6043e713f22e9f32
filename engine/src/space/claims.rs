//! A bitmap of the pool's pages with atomic test-and-set.
//!
//! Guarantees: of any number of threads that claim a page, one gets it; a claim is all or
//! nothing (while two overlapping claims race, a third may be refused for a page that is
//! released a moment later); long runs cost one atomic operation for 64 pages. One bit a page:
//! 32 MiB of memory for a pool of 1 TiB.

use super::Run;
use crate::error::{Error, Result};
use crate::gauges::list_bytes;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pages in a word.
pub(super) const WORD: u64 = u64::BITS as u64;

/// Words of a block, within which they lie in another order.
pub(super) const BLOCK: usize = 512;
/// What follows each other is so many words apart there: more than two lines. (Odd, so that each has a place of its own.)
const APART: usize = 17;

/// Where a word lies: those of pages that follow each other, which several threads take, are in different lines.
#[inline]
pub(super) fn place(word: usize) -> usize {
    word & !(BLOCK - 1) | word.wrapping_mul(APART) & (BLOCK - 1)
}

/// A bitmap of pages, each claimed or not.
pub(crate) struct Claims {
    words: Vec<AtomicU64>,
    pages: u64,
}

/// The words that `run` touches: number of the word and mask of the run's bits in it.
fn masks(run: Run) -> impl Iterator<Item = (u64, u64)> {
    let end = run.end();
    let words = if run.pages == 0 { 0..0 } else { run.page / WORD..end.div_ceil(WORD) };
    words.map(move |word| {
        let low = run.page.saturating_sub(word * WORD);
        let high = (end - word * WORD).min(WORD);
        // 0 <= low < high <= 64
        (word, (u64::MAX >> (WORD - (high - low))) << low)
    })
}

impl Claims {
    /// A bitmap for `pages` pages, none claimed.
    pub(crate) fn new(pages: u64) -> Result<Self> {
        let count = usize::try_from(pages.div_ceil(WORD)).map_err(|_| Error::NoMemory)?;
        let count = count.checked_next_multiple_of(BLOCK).ok_or(Error::NoMemory)?;
        let mut words = Vec::new();
        words.try_reserve_exact(count)?;
        words.resize_with(count, || AtomicU64::new(0));
        Ok(Self { words, pages })
    }

    /// The word with this number.
    fn word(&self, word: u64) -> Option<&AtomicU64> {
        self.words.get(place(usize::try_from(word).ok()?))
    }

    /// The part of `run` inside the pool.
    fn inside(&self, run: Run) -> Run {
        let page = run.page.min(self.pages);
        Run { page, pages: run.end().min(self.pages) - page }
    }

    /// Claims all pages of `run`, or none: `Err(page)` is its first page that is claimed
    /// already or lies outside the pool.
    #[inline]
    pub(crate) fn claim(&self, run: Run) -> core::result::Result<(), u64> {
        if run.pages == 1
            && run.page < self.pages
            && let Some(bits) = self.word(run.page / WORD)
        {
            let bit = 1 << (run.page % WORD);
            return if bits.fetch_or(bit, Relaxed) & bit == 0 { Ok(()) } else { Err(run.page) };
        }
        self.claim_all(run)
    }

    fn claim_all(&self, run: Run) -> core::result::Result<(), u64> {
        let inside = self.inside(run);
        if run.pages > 1 && inside.pages > 0 {
            let taken = self.next(inside.page, inside.end(), true);
            if taken < inside.end() {
                return Err(taken);
            }
        }
        if inside.pages != run.pages {
            return Err(run.page.max(self.pages));
        }
        for (word, mask) in masks(inside) {
            let Some(bits) = self.word(word) else {
                return Err(word * WORD);
            };
            let old = bits.fetch_or(mask, Relaxed);
            if old & mask == 0 {
                continue;
            }
            // Another claim came in between: take back what this one has set.
            bits.fetch_and(!(mask & !old), Relaxed);
            let set = (word * WORD).saturating_sub(inside.page);
            self.release(Run { page: inside.page, pages: set });
            return Err(word * WORD + u64::from((old & mask).trailing_zeros()));
        }
        Ok(())
    }

    /// Gives up the claim on all pages of `run` (those outside the pool are left out).
    #[inline]
    pub(crate) fn release(&self, run: Run) {
        if run.pages == 1
            && run.page < self.pages
            && let Some(bits) = self.word(run.page / WORD)
        {
            bits.fetch_and(!(1 << (run.page % WORD)), Relaxed);
            return;
        }
        for (word, mask) in masks(self.inside(run)) {
            if let Some(bits) = self.word(word) {
                bits.fetch_and(!mask, Relaxed);
            }
        }
    }

    /// A bit flips.
    #[cfg(test)]
    pub(crate) fn flip(&self, page: u64) {
        if let Some(bits) = self.word(page / WORD) {
            bits.fetch_xor(1 << (page % WORD), Relaxed);
        }
    }

    /// Whether `page` is claimed; pages outside the pool always are.
    #[cfg(test)]
    pub(crate) fn is_claimed(&self, page: u64) -> bool {
        page >= self.pages
            || self
                .word(page / WORD)
                .is_none_or(|bits| bits.load(Relaxed) >> (page % WORD) & 1 != 0)
    }

    /// Gives up the claim on all pages of `run`, if all of them are claimed; says whether they were.
    #[inline]
    pub(super) fn give_up(&self, run: Run) -> bool {
        if run.pages == 1
            && run.page < self.pages
            && let Some(bits) = self.word(run.page / WORD)
        {
            let bit = 1 << (run.page % WORD);
            return bits.fetch_and(!bit, Relaxed) & bit != 0;
        }
        let all = self.holds(run);
        if all {
            self.release(run);
        }
        all
    }

    /// The first page from `from` on that is claimed (or is not), or `end`.
    fn next(&self, from: u64, end: u64, claimed: bool) -> u64 {
        let flip = if claimed { 0 } else { u64::MAX };
        let mut mask = u64::MAX << (from % WORD);
        for word in from / WORD..end.div_ceil(WORD) {
            let Some(bits) = self.word(word) else { break };
            let found = (bits.load(Relaxed) ^ flip) & mask;
            if found != 0 {
                return end.min(word * WORD + u64::from(found.trailing_zeros()));
            }
            mask = u64::MAX;
        }
        end
    }

    /// Whether no page of `from..end` is claimed.
    pub(super) fn is_clear(&self, from: u64, end: u64) -> bool {
        from >= end || self.next(from, end, true) >= end
    }

    /// Whether all pages of `run` are claimed.
    pub(crate) fn holds(&self, run: Run) -> bool {
        run.end() <= self.pages && self.next(run.page, run.end(), false) >= run.end()
    }

    /// The first pages from `from` on, before `end`, on the lower side of the border between twins
    /// `apart` pages apart, that are claimed with their twins: some that follow each other, `most` at most.
    pub(super) fn next_with_twins(
        &self,
        (from, end): (u64, u64),
        apart: u64,
        most: u64,
    ) -> Option<Run> {
        let mut page = from;
        loop {
            page = self.next(page, end, true);
            if page >= end {
                return None;
            }
            if page & apart != 0 {
                page = (page | (apart - 1)) + 1;
                continue;
            }
            // As many pages as the words of both sides have in common.
            let width = WORD.min(apart);
            let from = page / width * width;
            let both = self.bits(from, width) & self.bits(from | apart, width);
            let both = both >> (page - from);
            if both != 0 {
                let skip = both.trailing_zeros();
                let page = page + u64::from(skip);
                let pages = u64::from((both >> skip).trailing_ones()).min(most);
                return (page < end).then(|| Run { page, pages: pages.min(end - page) });
            }
            page = from + width;
        }
    }

    /// The bits of `width` pages from `from` on, a divisor of it, of 64.
    fn bits(&self, from: u64, width: u64) -> u64 {
        let bits = self.word(from / WORD).map_or(0, |bits| bits.load(Relaxed));
        (bits >> (from % WORD)) & (u64::MAX >> (WORD - width))
    }

    /// Calls `each` with every longest run of unclaimed pages in `first..end`, in address order.
    pub(crate) fn for_each_unclaimed(
        &self,
        first: u64,
        end: u64,
        each: &mut dyn FnMut(Run) -> Result<()>,
    ) -> Result<()> {
        self.for_each_run(first, end, false, each)
    }

    /// Calls `each` with every longest run of pages in `first..end` that are claimed (or are
    /// not), in address order.
    pub(crate) fn for_each_run(
        &self,
        first: u64,
        end: u64,
        claimed: bool,
        each: &mut dyn FnMut(Run) -> Result<()>,
    ) -> Result<()> {
        let end = end.min(self.pages);
        let mut from = first;
        while from < end {
            let page = self.next(from, end, claimed);
            from = self.next(page, end, !claimed);
            if page < from {
                each(Run { page, pages: from - page })?;
            }
        }
        Ok(())
    }

    /// Bytes of memory that the bitmap takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        list_bytes::<AtomicU64>(self.words.capacity())
    }
}
