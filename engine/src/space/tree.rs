//! The free pages of one region: coalesced extents, found by size in tiers.
//!
//! Guarantees: free extents never overlap and never touch (touching ones are one extent);
//! every operation takes a constant number of O(log n) tree steps. A free extent is seen as
//! *fragments* (its parts outside whole 512-page-aligned chunks), *chunks* (the aligned part)
//! and *giants* (the part made of whole aligned GiB). Fewer than 512 pages are taken from
//! fragments as long as one is long enough, chunks from outside giants as long as those are
//! long enough, so what is large and aligned stays whole. A chunk that becomes wholly free is
//! in the chunk tier again by that alone.
//!
//! Page numbers are below 2^52 (the caller checks), so sums of two can't overflow.

use super::Run;
use crate::gauges::tree_bytes;
use crate::types::PageClass;
use alloc::collections::{BTreeMap, BTreeSet};

/// Pages in a chunk.
const CHUNK: u64 = PageClass::Huge.pages();
/// Pages in a giant.
const GIANT: u64 = PageClass::Giant.pages();

/// Runs by size: (pages, first page).
type BySize = BTreeSet<(u64, u64)>;

/// The free pages of one region.
#[derive(Default)]
pub(super) struct Tree {
    /// All free extents: first page to pages.
    extents: BTreeMap<u64, u64>,
    /// Parts of extents outside whole chunks.
    fragments: BySize,
    /// Chunk-aligned parts of extents that lie outside whole giants.
    loose: BySize,
    /// Chunk-aligned parts of extents.
    chunks: BySize,
    /// Giant-aligned parts of extents.
    giants: BySize,
    /// Extents that have a chunk, as a whole.
    long: BySize,
    /// Free pages.
    free: u64,
}

/// The part of `run` made of whole aligned blocks of `block` pages.
fn aligned(run: Run, block: u64) -> Option<Run> {
    let low = run.page.div_ceil(block) * block;
    let high = run.end() / block * block;
    (high > low).then(|| Run { page: low, pages: high - low })
}

/// What `run` has before and behind its part `inner`.
fn around(run: Run, inner: Run) -> [Run; 2] {
    [
        Run { page: run.page, pages: inner.page - run.page },
        Run { page: inner.end(), pages: run.end() - inner.end() },
    ]
}

/// The smallest run of at least `pages`.
fn best(runs: &BySize, pages: u64) -> Option<Run> {
    let &(pages, page) = runs.range((pages, 0)..).next()?;
    Some(Run { page, pages })
}

/// The largest run.
fn largest(runs: &BySize) -> Option<Run> {
    let &(pages, page) = runs.last()?;
    Some(Run { page, pages })
}

/// Adds a run to an index, or takes it out.
fn note(runs: &mut BySize, run: Run, present: bool) {
    if run.pages == 0 {
        return;
    }
    if present {
        runs.insert((run.pages, run.page));
    } else {
        runs.remove(&(run.pages, run.page));
    }
}

/// Where in the aligned run `whole` to take `pages` so that giants stay whole if possible.
fn spot(whole: Run, pages: u64) -> u64 {
    match aligned(whole, GIANT) {
        Some(giant) if giant.page - whole.page < pages && whole.end() - giant.end() >= pages => {
            whole.end() - pages
        }
        _ => whole.page,
    }
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

impl Tree {
    /// Free pages.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Bytes of memory that the indexes take.
    pub(super) fn memory_bytes(&self) -> u64 {
        let by_size = [&self.fragments, &self.loose, &self.chunks, &self.giants, &self.long];
        let entry = size_of::<(u64, u64)>();
        let indexes: u64 = by_size.iter().map(|runs| tree_bytes(runs.len(), entry)).sum();
        tree_bytes(self.extents.len(), entry) + indexes
    }

    /// All free extents, in order.
    pub(super) fn extents(&self) -> impl Iterator<Item = Run> + '_ {
        self.extents.iter().map(|(&page, &pages)| Run { page, pages })
    }

    /// The first free extent that starts at `page` or behind it.
    pub(super) fn next_from(&self, page: u64) -> Option<Run> {
        let (&page, &pages) = self.extents.range(page..).next()?;
        Some(Run { page, pages })
    }

    /// Adds an extent to all indexes, or takes it out of them.
    fn index(&mut self, extent: Run, present: bool) {
        if extent.pages == 0 {
            return;
        }
        if present {
            self.extents.insert(extent.page, extent.pages);
        } else {
            self.extents.remove(&extent.page);
        }
        let Some(whole) = aligned(extent, CHUNK) else {
            note(&mut self.fragments, extent, present);
            return;
        };
        for part in around(extent, whole) {
            note(&mut self.fragments, part, present);
        }
        note(&mut self.long, extent, present);
        note(&mut self.chunks, whole, present);
        let Some(giant) = aligned(whole, GIANT) else {
            note(&mut self.loose, whole, present);
            return;
        };
        for part in around(whole, giant) {
            note(&mut self.loose, part, present);
        }
        note(&mut self.giants, giant, present);
    }

    /// Makes `run` free. `Err(page)` is the first page of it that is free already, and nothing
    /// has changed.
    pub(super) fn insert(&mut self, run: Run) -> core::result::Result<(), u64> {
        if run.pages == 0 {
            return Ok(());
        }
        let before = self.extents.range(..=run.page).next_back();
        let before = before.map(|(&page, &pages)| Run { page, pages });
        let behind = self.next_from(run.page);
        if before.is_some_and(|before| before.end() > run.page) {
            return Err(run.page);
        }
        if let Some(behind) = behind.filter(|behind| behind.page < run.end()) {
            return Err(behind.page);
        }
        let mut joined = run;
        if let Some(before) = before.filter(|before| before.end() == run.page) {
            self.index(before, false);
            joined = Run { page: before.page, pages: before.pages + joined.pages };
        }
        if let Some(behind) = behind.filter(|behind| behind.page == run.end()) {
            self.index(behind, false);
            joined.pages += behind.pages;
        }
        self.index(joined, true);
        self.free += run.pages;
        Ok(())
    }

    /// Takes `piece` out, if it is a part of one free extent.
    pub(super) fn cut(&mut self, piece: Run) -> Option<Run> {
        let (&page, &pages) = self.extents.range(..=piece.page).next_back()?;
        let extent = Run { page, pages };
        if extent.end() < piece.end() {
            return None;
        }
        self.index(extent, false);
        for part in around(extent, piece) {
            self.index(part, true);
        }
        // (Where memory has lost something, no sum is certain: `Space::is_whole`.)
        self.free = self.free.saturating_sub(piece.pages);
        Some(piece)
    }

    /// Where exactly `pages` of `class` would be taken.
    fn find(&self, pages: u64, class: PageClass) -> Option<u64> {
        if pages == 0 || pages > self.free {
            return None;
        }
        match class {
            PageClass::Giant => {
                best(&self.giants, pages.div_ceil(GIANT) * GIANT).map(|run| run.page)
            }
            PageClass::Huge => self.find_chunks(pages.div_ceil(CHUNK) * CHUNK),
            PageClass::Small => match best(&self.fragments, pages) {
                Some(fragment) => Some(fragment.page),
                None if pages < CHUNK => self.find_chunks(CHUNK),
                None => best(&self.long, pages).map(|extent| place(extent, pages)),
            },
        }
    }

    /// Where a run of chunks with `pages` (whole chunks) would be taken.
    fn find_chunks(&self, pages: u64) -> Option<u64> {
        match best(&self.loose, pages) {
            Some(run) => Some(run.page),
            None => best(&self.chunks, pages).map(|run| spot(run, pages)),
        }
    }

    /// Takes exactly `pages` contiguous pages, aligned to the class. A number of pages that is
    /// no multiple of the class needs room for the next multiple, but takes only `pages`.
    pub(super) fn take(&mut self, pages: u64, class: PageClass) -> Option<Run> {
        let page = self.find(pages, class)?;
        self.cut(Run { page, pages })
    }

    /// Takes 1 to `pages` contiguous pages: all of them from one fragment; else whole chunks
    /// for the part of the request that is whole chunks; else the largest fragment; and only
    /// where no fragment is left, from a chunk broken up for it. Rather from a fragment of `room` pages, or
    /// the largest there is, than from one where nothing is left behind them.
    pub(super) fn take_some(&mut self, pages: u64, room: u64) -> Option<Run> {
        if pages == 0 {
            return None;
        }
        if room > pages
            && let Some(fragment) = best(&self.fragments, room).or(largest(&self.fragments))
            && fragment.pages >= pages
        {
            return self.cut(Run { page: fragment.page, pages });
        }
        if let Some(fragment) = best(&self.fragments, pages) {
            return self.cut(Run { page: fragment.page, pages });
        }
        let body = pages / CHUNK * CHUNK;
        if body > 0 {
            if let Some(page) = self.find_chunks(body) {
                return self.cut(Run { page, pages: body });
            }
            if let Some(run) = largest(&self.chunks) {
                return self.cut(run);
            }
        }
        match largest(&self.fragments) {
            Some(fragment) => self.cut(fragment),
            None => {
                let page = self.find_chunks(CHUNK)?;
                self.cut(Run { page, pages })
            }
        }
    }

    /// Pages in whole free chunks.
    #[cfg(test)]
    pub(super) fn chunk_pages(&self) -> u64 {
        self.chunks.iter().map(|&(pages, _)| pages).sum()
    }

    /// A bit of where an extent lies flips, or of how long it is.
    #[cfg(test)]
    pub(super) fn flip(&mut self, at: usize, in_page: bool, bit: u64) {
        let Some((&page, &pages)) = self.extents.iter().nth(at) else { return };
        self.extents.remove(&page);
        let (page, pages) = if in_page { (page ^ bit, pages) } else { (page, pages ^ bit) };
        self.extents.insert(page, pages);
    }

    /// Asserts that every index says what the extents say.
    #[cfg(test)]
    pub(super) fn verify(&self) {
        let mut fresh = Tree::default();
        let mut end = 0;
        for (&page, &pages) in &self.extents {
            assert!(pages > 0 && (page > end || end == 0), "extents touch or overlap");
            end = page + pages;
            fresh.index(Run { page, pages }, true);
            fresh.free += pages;
        }
        assert_eq!(fresh.free, self.free);
        assert_eq!(fresh.fragments, self.fragments);
        assert_eq!(fresh.loose, self.loose);
        assert_eq!(fresh.chunks, self.chunks);
        assert_eq!(fresh.giants, self.giants);
        assert_eq!(fresh.long, self.long);
    }
}
