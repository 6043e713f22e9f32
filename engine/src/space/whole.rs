//! Whole free chunks, in runs, found by size: those within whole aligned giants (1 GiB) apart from the others, so that these stay whole.

use alloc::collections::{BTreeMap, BTreeSet};

use super::Run;
use crate::gauges::tree_bytes;
use crate::types::PageClass;

/// Pages in a giant.
pub(super) const GIANT: u64 = PageClass::Giant.pages();

/// Runs by size: (pages, first page).
type BySize = BTreeSet<(u64, u64)>;

/// Runs of whole free chunks. None touch: touching ones are one.
#[derive(Default)]
pub(super) struct Whole {
    /// All of them: first page to pages.
    runs: BTreeMap<u64, u64>,
    /// The same.
    by_size: BySize,
    /// Parts of them that lie outside whole giants.
    loose: BySize,
    /// Giant-aligned parts of them.
    giants: BySize,
}

/// The part of `run` made of whole aligned blocks of `block` pages.
pub(super) fn aligned(run: Run, block: u64) -> Option<Run> {
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

/// Where in the run `whole` of whole chunks to take `pages` so that giants stay whole if possible.
pub(super) fn spot(whole: Run, pages: u64) -> u64 {
    match aligned(whole, GIANT) {
        Some(giant) if giant.page - whole.page < pages && whole.end() - giant.end() >= pages => {
            whole.end() - pages
        }
        _ => whole.page,
    }
}

impl Whole {
    /// Adds a run to all indexes, or takes it out of them.
    fn index(&mut self, run: Run, present: bool) {
        if run.pages == 0 {
            return;
        }
        if present {
            self.runs.insert(run.page, run.pages);
        } else {
            self.runs.remove(&run.page);
        }
        note(&mut self.by_size, run, present);
        let Some(giant) = aligned(run, GIANT) else {
            note(&mut self.loose, run, present);
            return;
        };
        for part in around(run, giant) {
            note(&mut self.loose, part, present);
        }
        note(&mut self.giants, giant, present);
    }

    /// Adds chunks that are not there.
    pub(super) fn insert(&mut self, run: Run) {
        let mut joined = run;
        let before = self.runs.range(..run.page).next_back();
        let before = before.map(|(&page, &pages)| Run { page, pages });
        if let Some(before) = before.filter(|before| before.end() == run.page) {
            self.index(before, false);
            joined = Run { page: before.page, pages: before.pages + joined.pages };
        }
        if let Some(&pages) = self.runs.get(&run.end()) {
            self.index(Run { page: run.end(), pages }, false);
            joined.pages += pages;
        }
        self.index(joined, true);
    }

    /// Takes chunks out, if they are a part of one run; says whether they were.
    pub(super) fn cut(&mut self, piece: Run) -> bool {
        let Some((&page, &pages)) = self.runs.range(..=piece.page).next_back() else {
            return false;
        };
        let run = Run { page, pages };
        if run.end() < piece.end() {
            return false;
        }
        self.index(run, false);
        for part in around(run, piece) {
            self.index(part, true);
        }
        true
    }

    /// Where `pages`, whole chunks, would be taken.
    pub(super) fn find(&self, pages: u64) -> Option<u64> {
        match best(&self.loose, pages) {
            Some(run) => Some(run.page),
            None => best(&self.by_size, pages).map(|run| spot(run, pages)),
        }
    }

    /// Where `pages`, whole giants, would be taken.
    pub(super) fn find_giants(&self, pages: u64) -> Option<u64> {
        best(&self.giants, pages).map(|run| run.page)
    }

    /// The largest run.
    pub(super) fn largest(&self) -> Option<Run> {
        let &(pages, page) = self.by_size.last()?;
        Some(Run { page, pages })
    }

    /// All runs, in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs.iter().map(|(&page, &pages)| Run { page, pages })
    }

    /// Bytes of memory that the indexes take.
    pub(super) fn memory_bytes(&self) -> u64 {
        let entry = size_of::<(u64, u64)>();
        let by_size = [&self.by_size, &self.loose, &self.giants];
        let indexes: u64 = by_size.iter().map(|runs| tree_bytes(runs.len(), entry)).sum();
        tree_bytes(self.runs.len(), entry) + indexes
    }

    /// A bit of where a run lies flips, or of how long it is.
    #[cfg(test)]
    pub(super) fn flip(&mut self, at: usize, in_page: bool, bit: u64) {
        let Some((&page, &pages)) = self.runs.iter().nth(at) else { return };
        self.runs.remove(&page);
        let (page, pages) = if in_page { (page ^ bit, pages) } else { (page, pages ^ bit) };
        self.runs.insert(page, pages);
    }

    /// Asserts that every index says what the runs say.
    #[cfg(test)]
    pub(super) fn verify(&self) {
        let mut fresh = Self::default();
        let mut end = 0;
        for run in self.runs() {
            assert!(run.pages > 0 && (run.page > end || end == 0), "runs touch or overlap");
            end = run.end();
            fresh.index(run, true);
        }
        assert_eq!(fresh.by_size, self.by_size);
        assert_eq!(fresh.loose, self.loose);
        assert_eq!(fresh.giants, self.giants);
    }
}
