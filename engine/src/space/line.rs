//! Which pages of a chunk are free: one bit each, a line of memory.

use crate::types::PageClass;

/// Pages in a chunk.
pub(super) const CHUNK: u32 = PageClass::Huge.pages() as u32;
/// Pages in a word.
const WORD: u32 = u64::BITS;
const WORDS: usize = (CHUNK / WORD) as usize;

/// The free pages of a chunk, numbered from its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(64))]
pub(super) struct Line([u64; WORDS]);

const _: () = assert!(size_of::<Line>() == 64 && CHUNK.is_multiple_of(WORD));

impl Line {
    /// No page is free.
    pub(super) const NONE: Self = Self([0; WORDS]);
    /// All of them are.
    pub(super) const ALL: Self = Self([u64::MAX; WORDS]);

    /// The first page from `from` on that is free (or is not); the chunk's end if there is none.
    #[inline]
    pub(super) fn next(&self, from: u32, free: bool) -> u32 {
        let flip = if free { 0 } else { u64::MAX };
        let mut mask = u64::MAX << (from % WORD);
        for (word, bits) in (0..).zip(&self.0).skip((from / WORD) as usize) {
            let found = (bits ^ flip) & mask;
            if found != 0 {
                return word * WORD + found.trailing_zeros();
            }
            mask = u64::MAX;
        }
        CHUNK
    }

    /// Where the run of free pages begins that goes on at `page`.
    fn begin(&self, page: u32) -> u32 {
        let mut mask = !(u64::MAX << (page % WORD));
        for (word, bits) in (0..CHUNK / WORD).zip(&self.0).take((page / WORD) as usize + 1).rev() {
            let used = !bits & mask;
            if used != 0 {
                return word * WORD + WORD - used.leading_zeros();
            }
            mask = u64::MAX;
        }
        0
    }

    /// The whole run of free pages that these, which are free, are a part of: its first page, and how many.
    pub(super) fn around(&self, page: u32, pages: u32) -> (u32, u32) {
        let begin = self.begin(page);
        (begin, self.next(page + pages, false) - begin)
    }

    /// All runs of free pages: their first pages, and how many.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut from = 0;
        core::iter::from_fn(move || {
            let page = self.next(from, true);
            from = self.next(page, false);
            (page < CHUNK).then(|| (page, from - page))
        })
    }

    /// How long the longest of them is, that have `most` pages at most.
    pub(super) fn longest(&self, most: u32) -> u32 {
        let mut longest = 0;
        for (_, pages) in self.runs() {
            longest = longest.max(pages);
            if longest >= most {
                break;
            }
        }
        longest
    }

    /// The shortest run of at least so many pages, the first of several.
    pub(super) fn shortest(&self, least: u32) -> Option<(u32, u32)> {
        let mut best = None;
        for (page, pages) in self.runs() {
            if pages == least {
                return Some((page, pages));
            }
            if pages > least && best.is_none_or(|(_, before)| pages < before) {
                best = Some((page, pages));
            }
        }
        best
    }

    /// Whether all of these pages are free.
    pub(super) fn holds(&self, page: u32, pages: u32) -> bool {
        self.next(page, false) >= page + pages
    }

    /// Makes pages free, or not.
    #[inline]
    pub(super) fn set(&mut self, page: u32, pages: u32, free: bool) {
        let end = (page + pages).min(CHUNK);
        for (word, bits) in (0..).zip(&mut self.0) {
            let (low, high) = (page.max(word * WORD), end.min(word * WORD + WORD));
            if low < high {
                let mask = (u64::MAX >> (WORD - (high - low))) << (low % WORD);
                *bits = if free { *bits | mask } else { *bits & !mask };
            }
        }
    }

    /// How many pages are free.
    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|bits| bits.count_ones()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::Dice;
    use alloc::vec::Vec;

    #[test]
    fn a_line_says_what_a_list_would() {
        let mut dice = Dice(77);
        for round in 0..300 {
            let (mut line, mut list) = (Line::NONE, [false; CHUNK as usize]);
            for _ in 0..1 + round / 5 {
                let page = dice.roll(CHUNK.into()) as u32;
                let pages = 1 + dice.roll(u64::from(CHUNK - page).min(80)) as u32;
                let free = dice.roll(2) == 0;
                line.set(page, pages, free);
                list[page as usize..(page + pages) as usize].fill(free);
            }
            let mut runs: Vec<(u32, u32)> = Vec::new();
            for page in (0..CHUNK).filter(|&page| list[page as usize]) {
                match runs.last_mut() {
                    Some((first, pages)) if *first + *pages == page => *pages += 1,
                    _ => runs.push((page, 1)),
                }
            }
            assert_eq!(line.runs().collect::<Vec<_>>(), runs);
            assert_eq!(line.longest(CHUNK), runs.iter().map(|run| run.1).max().unwrap_or(0));
            assert_eq!(line.count(), runs.iter().map(|run| run.1).sum::<u32>());
            for &(page, pages) in &runs {
                let inner = (page + pages / 3, pages - pages / 3 - pages / 4);
                assert_eq!(
                    line.around(inner.0, inner.1.max(1).min(page + pages - inner.0)),
                    (page, pages)
                );
                assert!(line.holds(page, pages));
                assert!(page + pages == CHUNK || !line.holds(page, pages + 1));
                let best = runs.iter().filter(|run| run.1 >= pages).min_by_key(|run| run.1);
                assert_eq!(line.shortest(pages), best.copied());
            }
            assert_eq!(
                line.shortest(CHUNK),
                if list == [true; 512] { Some((0, CHUNK)) } else { None }
            );
        }
        assert_eq!(Line::ALL.around(7, 1), (0, CHUNK));
        assert_eq!((Line::ALL.longest(CHUNK), Line::NONE.next(0, true)), (CHUNK, CHUNK));
    }
}
