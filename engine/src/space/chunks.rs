//! The free pages of one region, chunk by chunk (2 MiB, aligned): a line of bits for each, and how long its longest run is.
//!
//! Guarantees: what is taken or made free in one piece costs a look at its chunks' lines, whatever else is free; memory is taken
//! only for runs of whole ones.
//! Fewer than 512 pages are taken from chunks that are free in part as long as one has a run that is long enough, first from those whose
//! longest run is the shortest, and only then from whole ones, so what is large and aligned stays whole. Whole ones are
//! found by size (see `whole`), those within whole aligned GiB last. A chunk that becomes wholly free is a whole one again by that alone.
//!
//! Page numbers are below 2^52 (the caller checks), so sums of two can't overflow.

use alloc::vec::Vec;

use super::Run;
use super::line::{self, Line};
use super::marks::Marks;
use super::whole::{GIANT, Whole, aligned, spot};
use crate::error::{Error, Result};
use crate::gauges::list_bytes;
use crate::types::PageClass;

/// Pages in a chunk.
const CHUNK: u64 = line::CHUNK as u64;
/// Lengths up to this one are told apart exactly.
const EXACT: u32 = 32;
/// Longer ones by so many pages.
const STEP: u32 = 15;
/// Ranks of lengths.
const RANKS: usize = 64;
/// So many chunks of a rank in which some are long enough are looked at, before less is taken.
const SOME: usize = 64;

/// The free pages of one region.
pub(super) struct Chunks {
    /// The first page of the first chunk.
    first: u64,
    /// Of chunks that are free in part; of others, no bit is set.
    lines: Vec<Line>,
    /// How long the longest free run of each is; all of a chunk for a whole one.
    longest: Vec<u16>,
    /// Chunks that are free in part, by the rank of their longest run.
    ranks: Marks,
    whole: Whole,
    /// Free pages.
    free: u64,
}

/// The rank of runs of so many pages.
fn rank(pages: u32) -> usize {
    let rank = if pages <= EXACT { pages.max(1) - 1 } else { EXACT + (pages - EXACT - 1) / STEP };
    rank as usize
}

const _: () = assert!((EXACT + (line::CHUNK - EXACT - 1) / STEP) as usize == RANKS - 1);

/// The lowest rank of which each run has at least so many pages.
fn rank_above(pages: u32) -> usize {
    rank(pages) + usize::from(pages > 1 && rank(pages - 1) == rank(pages))
}

/// Where in `extent` to take `pages` (at least a chunk's) so that the fewest chunks are touched.
fn place(extent: Run, pages: u64) -> u64 {
    let Some(whole) = aligned(extent, CHUNK) else {
        return extent.page;
    };
    let rest = pages % CHUNK;
    let body = pages - rest;
    if whole.pages >= body {
        if rest == 0 {
            return spot(whole, body);
        }
        if rest <= whole.page - extent.page {
            return whole.page - rest;
        }
        if rest <= extent.end() - whole.end() {
            return whole.end() - body;
        }
        if whole.pages > body {
            return spot(whole, body + CHUNK);
        }
    }
    extent.page
}

/// A part of a run within one chunk: which one, its first page there, and how many.
#[derive(Clone, Copy)]
struct Part {
    chunk: usize,
    page: u32,
    pages: u32,
}

impl Part {
    fn is_whole(self) -> bool {
        self.pages == line::CHUNK
    }
}

impl Chunks {
    /// The chunks of pages `first..end`, none of them free; the first one is a chunk's.
    pub(super) fn new(first: u64, end: u64) -> Result<Self> {
        let count = usize::try_from(end.saturating_sub(first).div_ceil(CHUNK));
        let count = count.map_err(|_| Error::NoMemory)?;
        let (mut lines, mut longest) = (Vec::new(), Vec::new());
        lines.try_reserve_exact(count)?;
        lines.resize(count, Line::NONE);
        longest.try_reserve_exact(count)?;
        longest.resize(count, 0);
        let ranks = Marks::new(RANKS.checked_mul(count).ok_or(Error::NoMemory)?)?;
        Ok(Self { first, lines, longest, ranks, whole: Whole::default(), free: 0 })
    }

    /// Free pages.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Bytes of memory that this takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let lists =
            list_bytes::<Line>(self.lines.capacity()) + list_bytes::<u16>(self.longest.capacity());
        lists + self.ranks.memory_bytes() + self.whole.memory_bytes()
    }

    /// The page behind the last chunk.
    fn end(&self) -> u64 {
        self.first + self.lines.len() as u64 * CHUNK
    }

    /// The page of the region that this one of a chunk is.
    fn page(&self, chunk: usize, page: u32) -> u64 {
        self.first + chunk as u64 * CHUNK + u64::from(page)
    }

    /// The parts of a run in its chunks. (Outside the region there are none.)
    fn parts(&self, run: Run) -> impl Iterator<Item = Part> + use<> {
        let inside = run.page >= self.first && run.end() <= self.end();
        let (mut from, end) =
            (run.page.wrapping_sub(self.first), run.end().wrapping_sub(self.first));
        core::iter::from_fn(move || {
            let pages = end.checked_sub(from)?.min(CHUNK - from % CHUNK);
            let part = Part {
                chunk: (from / CHUNK) as usize,
                page: (from % CHUNK) as u32,
                pages: pages as u32,
            };
            from += pages;
            (inside && pages > 0).then_some(part)
        })
    }

    /// How long the longest run of a chunk is; none where there is no such chunk.
    fn longest(&self, chunk: usize) -> Option<u32> {
        self.longest.get(chunk).map(|&pages| u32::from(pages))
    }

    /// Notes how long the longest run of a chunk is now.
    fn set_longest(&mut self, chunk: usize, pages: u32) {
        let count = self.lines.len();
        let Some(known) = self.longest.get_mut(chunk) else { return };
        let before = u32::from(*known);
        *known = pages as u16;
        let ranked = |pages: u32| (1..line::CHUNK).contains(&pages).then(|| rank(pages));
        let (from, to) = (ranked(before), ranked(pages));
        if from != to {
            from.into_iter().for_each(|rank| self.ranks.remove(rank * count + chunk));
            to.into_iter().for_each(|rank| self.ranks.add(rank * count + chunk));
        }
    }

    /// The first page of `from..end`, of the region, that is free, or is not; `end` if there is none.
    fn next(&self, from: u64, end: u64, free: bool) -> u64 {
        let mut page = from;
        while page < end {
            let (chunk, at) = ((page - self.first) / CHUNK, (page - self.first) % CHUNK);
            let (chunk, at) = (chunk as usize, at as u32);
            let found = match (self.longest(chunk), self.lines.get(chunk)) {
                (Some(line::CHUNK), _) if free => at,
                (Some(line::CHUNK), _) | (_, None) => line::CHUNK,
                (Some(0), _) if free => line::CHUNK,
                (_, Some(line)) => line.next(at, free),
            };
            if found < line::CHUNK {
                return self.page(chunk, found).min(end);
            }
            page = self.page(chunk, line::CHUNK);
        }
        end
    }

    /// All free extents, in order.
    pub(super) fn extents(&self) -> impl Iterator<Item = Run> + '_ {
        let mut from = self.first;
        core::iter::from_fn(move || {
            let page = self.next(from, self.end(), true);
            from = self.next(page, self.end(), false);
            (page < self.end()).then(|| Run { page, pages: from - page })
        })
    }

    /// Makes `run` free. `Err(page)` is the first page of it that is free already, or in no chunk, and nothing
    /// has changed.
    pub(super) fn insert(&mut self, run: Run) -> core::result::Result<(), u64> {
        if run.pages == 0 {
            return Ok(());
        }
        if run.page < self.first || run.end() > self.end() {
            return Err(run.page);
        }
        let taken = self.next(run.page, run.end(), true);
        if taken < run.end() {
            return Err(taken);
        }
        let mut whole = Run { page: 0, pages: 0 };
        for part in self.parts(run) {
            if self.free_part(part) {
                let page = self.page(part.chunk, 0);
                let begin = if whole.pages == 0 { page } else { whole.page };
                whole = Run { page: begin, pages: page + CHUNK - begin };
            }
        }
        if whole.pages > 0 {
            self.whole.insert(whole);
        }
        self.free += run.pages;
        Ok(())
    }

    /// Makes a part of a chunk free; says whether all of the chunk is then.
    fn free_part(&mut self, part: Part) -> bool {
        let Part { chunk, page, pages } = part;
        let Some(line) = self.lines.get_mut(chunk) else { return false };
        line.set(page, pages, true);
        let (_, joined) = line.around(page, pages);
        let is_whole = joined == line::CHUNK;
        if is_whole {
            *line = Line::NONE;
        }
        let before = self.longest(chunk).unwrap_or_default();
        self.set_longest(chunk, joined.max(before));
        is_whole
    }

    /// Whether all of a part is free.
    fn is_free(&self, part: Part) -> bool {
        let whole = self.longest(part.chunk) == Some(line::CHUNK);
        whole || self.lines.get(part.chunk).is_some_and(|line| line.holds(part.page, part.pages))
    }

    /// Takes `piece` out, if all of it is free.
    pub(super) fn cut(&mut self, piece: Run) -> Option<Run> {
        let inside = piece.page >= self.first && piece.end() <= self.end();
        if !inside || piece.pages == 0 || !self.parts(piece).all(|part| self.is_free(part)) {
            return None;
        }
        let is_whole = |this: &Self, part: &Part| this.longest(part.chunk) == Some(line::CHUNK);
        let mut whole = self.parts(piece).filter(|part| is_whole(self, part));
        if let Some(begin) = whole.next() {
            let end = whole.last().unwrap_or(begin);
            let page = self.page(begin.chunk, 0);
            let run = Run { page, pages: self.page(end.chunk, line::CHUNK) - page };
            if !self.whole.cut(run) {
                return None;
            }
        }
        for part in self.parts(piece) {
            self.take_part(part);
        }
        // (Where memory has lost something, no sum is certain: `Space::is_whole`.)
        self.free = self.free.saturating_sub(piece.pages);
        Some(piece)
    }

    /// Takes a part of a chunk, which is free, out of it.
    fn take_part(&mut self, part: Part) {
        let Part { chunk, page, pages } = part;
        let Some(before) = self.longest(chunk) else { return };
        let Some(line) = self.lines.get_mut(chunk) else { return };
        if before == line::CHUNK {
            *line = if part.is_whole() { Line::NONE } else { Line::ALL };
        }
        let (_, run) = line.around(page, pages);
        line.set(page, pages, false);
        if run >= before {
            let longest = line.longest(before);
            self.set_longest(chunk, longest);
        }
    }

    /// The shortest free run of at least so many pages in a chunk that is free in part, one of those that have
    /// the shortest longest run. Of chunks of which not all have one, so many are looked at.
    fn best(&mut self, pages: u64, most: usize) -> Option<Run> {
        let least = u32::try_from(pages).ok().filter(|&least| least < line::CHUNK)?;
        let mark = match self.ranks.next(rank_above(least) * self.lines.len()) {
            Some(mark) => mark,
            None => self.among(rank(least), least, most)?,
        };
        self.run_of(mark, least)
    }

    /// The mark of a chunk of a rank that has a run of so many pages, where not all have.
    #[cold]
    fn among(&self, rank: usize, least: u32, most: usize) -> Option<usize> {
        let (count, mut from) = (self.lines.len(), rank * self.lines.len());
        for _ in 0..most {
            let mark = self.ranks.next(from).filter(|&mark| mark < (rank + 1) * count)?;
            if self.longest(mark - rank * count)? >= least {
                return Some(mark);
            }
            from = mark + 1;
        }
        None
    }

    /// One of the longest free runs in chunks that are free in part. (They may differ by some pages.)
    fn largest(&mut self) -> Option<Run> {
        let mark = self.ranks.last()?;
        let chunk = mark.checked_rem(self.lines.len())?;
        self.run_of(mark, self.longest(chunk)?)
    }

    /// A run of so many pages in a marked chunk. Where there is none, memory has lost something: what is known of the chunk
    /// is found out anew, for who looks next.
    fn run_of(&mut self, mark: usize, least: u32) -> Option<Run> {
        let chunk = mark.checked_rem(self.lines.len())?;
        let line = *self.lines.get(chunk)?;
        if let Some((page, pages)) = line.shortest(least) {
            return Some(Run { page: self.page(chunk, page), pages: pages.into() });
        }
        self.ranks.remove(mark);
        self.set_longest(chunk, 0);
        self.set_longest(chunk, line.longest(line::CHUNK));
        None
    }

    /// Where exactly `pages` of `class` would be taken.
    fn find(&mut self, pages: u64, class: PageClass) -> Option<u64> {
        if pages == 0 || pages > self.free {
            return None;
        }
        match class {
            PageClass::Giant => self.whole.find_giants(pages.div_ceil(GIANT) * GIANT),
            PageClass::Huge => self.whole.find(pages.div_ceil(CHUNK) * CHUNK),
            PageClass::Small if pages < CHUNK => {
                let found = self.best(pages, usize::MAX).map(|run| run.page);
                found.or_else(|| self.whole.find(CHUNK)).or_else(|| self.find_across(pages))
            }
            PageClass::Small => self.find_across(pages),
        }
    }

    /// The same where it has to be looked for across chunks: in the smallest extent that has so many. Only by how long runs
    /// are, but where they may be long enough together.
    #[cold]
    fn find_across(&self, pages: u64) -> Option<u64> {
        let (mut before, mut best) = (0, None::<Run>);
        for chunk in 0..=self.lines.len() {
            let longest = u64::from(self.longest(chunk).unwrap_or_default());
            if longest == CHUNK {
                before += CHUNK;
                continue;
            }
            if before > 0 && before + longest >= pages {
                let extent = self.across(chunk);
                if extent.pages >= pages && best.is_none_or(|best| extent.pages < best.pages) {
                    best = Some(extent);
                }
            }
            before = longest;
        }
        best.map(|extent| place(extent, pages))
    }

    /// The free pages on both sides of where a chunk begins.
    fn across(&self, chunk: usize) -> Run {
        let border = self.page(chunk, 0);
        let mut begin = border;
        for before in (0..chunk).rev() {
            if self.longest(before) == Some(line::CHUNK) {
                begin = self.page(before, 0);
                continue;
            }
            let line = self.lines.get(before).filter(|line| line.holds(line::CHUNK - 1, 1));
            if let Some(line) = line {
                begin = self.page(before, line.around(line::CHUNK - 1, 1).0);
            }
            break;
        }
        Run { page: begin, pages: self.next(border, self.end(), false) - begin }
    }

    /// Takes exactly `pages` contiguous pages, aligned to the class. A number of pages that is
    /// no multiple of the class needs room for the next multiple, but takes only `pages`.
    pub(super) fn take(&mut self, pages: u64, class: PageClass) -> Option<Run> {
        let page = self.find(pages, class)?;
        self.cut(Run { page, pages })
    }

    /// Takes 1 to `pages` contiguous pages: all of them from a chunk that is free in part; else whole chunks
    /// for the part of the request that is whole chunks; else as many as there are in one piece in such a chunk; and only
    /// where there is none, from a whole one broken up for it. Rather from a run of `room` pages, or
    /// the longest there is, than from one where nothing is left behind them.
    pub(super) fn take_some(&mut self, pages: u64, room: u64) -> Option<Run> {
        if pages == 0 {
            return None;
        }
        if room > pages
            && let Some(run) = self.best(room, SOME).or_else(|| self.largest())
            && run.pages >= pages
        {
            return self.cut(Run { page: run.page, pages });
        }
        if let Some(run) = self.best(pages, SOME) {
            return self.cut(Run { page: run.page, pages });
        }
        let body = pages / CHUNK * CHUNK;
        if body > 0 {
            if let Some(page) = self.whole.find(body) {
                return self.cut(Run { page, pages: body });
            }
            if let Some(run) = self.whole.largest() {
                return self.cut(run);
            }
        }
        match self.largest() {
            // (It may be as long as was asked for: not all were looked at.)
            Some(run) => self.cut(Run { pages: run.pages.min(pages), ..run }),
            None => {
                let page = self.whole.find(CHUNK)?;
                self.cut(Run { page, pages })
            }
        }
    }

    /// Whether all that is kept of chunks is what their lines say, and all that is kept of whole ones what is kept of chunks.
    pub(super) fn agrees(&self) -> bool {
        let (mut free, mut ranked) = (0, 0);
        for (chunk, (line, &longest)) in self.lines.iter().zip(&self.longest).enumerate() {
            let longest = u32::from(longest);
            let said = if longest == line::CHUNK { 0 } else { longest };
            let is_ranked = said == 0 || self.ranks.has(rank(said) * self.lines.len() + chunk);
            if line.longest(line::CHUNK) != said || !is_ranked {
                return false;
            }
            ranked += u64::from(said > 0);
            free += u64::from(if longest == line::CHUNK { longest } else { line.count() });
        }
        let mut chunks = (0..).zip(&self.longest);
        let whole = core::iter::from_fn(|| {
            let is_whole = |&(_, longest): &(usize, &u16)| u32::from(*longest) == line::CHUNK;
            let (begin, _) = chunks.find(is_whole)?;
            let more = chunks.clone().take_while(is_whole).count();
            chunks.by_ref().take(more).for_each(drop);
            Some(Run { page: self.page(begin, 0), pages: (more as u64 + 1) * CHUNK })
        });
        whole.eq(self.whole.runs()) && free == self.free && ranked == self.ranks.count()
    }

    /// Pages in whole free chunks.
    #[cfg(test)]
    pub(super) fn chunk_pages(&self) -> u64 {
        self.whole.runs().map(|run| run.pages).sum()
    }

    /// A bit of a chunk's line flips.
    #[cfg(test)]
    pub(super) fn flip(&mut self, page: u64) {
        let page = page - self.first;
        let (chunk, at) = ((page / CHUNK) as usize, (page % CHUNK) as u32);
        let free = self.lines[chunk].holds(at, 1);
        self.lines[chunk].set(at, 1, !free);
    }

    /// A bit of how long a chunk's longest run is, as it is known, flips.
    #[cfg(test)]
    pub(super) fn flip_longest(&mut self, page: u64, bit: u16) {
        let chunk = ((page - self.first) / CHUNK) as usize;
        self.longest[chunk] ^= bit;
    }

    /// A bit of where a run of whole chunks lies flips, or of how long it is; none where there are no such.
    #[cfg(test)]
    pub(super) fn flip_whole(&mut self, dice: u64, in_page: bool, bit: u64) -> Option<()> {
        let runs = self.whole.runs().count() as u64;
        self.whole.flip(dice.checked_rem(runs)? as usize, in_page, bit);
        Some(())
    }

    /// Asserts that all of it says the same.
    #[cfg(test)]
    pub(super) fn verify(&self) {
        assert!(self.agrees());
        self.whole.verify();
    }
}
