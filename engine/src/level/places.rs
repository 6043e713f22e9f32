//! The places that second copies of metadata, or tables of strips, will take, while what is there moves away.
//!
//! Guarantees: a page that is held is had by nobody else, until the pool is opened again.

use lode_pmem::Medium;

use crate::layout::{Geometry, LINE};
use crate::space::{Claims, Run};
use crate::store::Store;
use crate::{Error, Host, PAGE_BYTES, Result};

/// What is known of the places.
pub(super) struct Places {
    /// The pool as it will be.
    geometry: Geometry,
    /// Free pages taken for copies, and free pages that no metadata can have because they have no twin.
    held: Claims,
    /// Pages that somebody has, and must not have.
    busy: Claims,
    /// Pages without a twin among those held: file data may have them.
    spare: alloc::vec::Vec<Run>,
    /// Where the next free page with a free twin is looked for.
    next: u64,
}

impl Places {
    /// For copies `apart` pages away, and the tables of the geometry's strips.
    pub(super) fn new(geometry: Geometry, apart: u64) -> Result<Self> {
        let claims = || Claims::new(geometry.pages);
        let (held, busy) = (claims()?, claims()?);
        let geometry = Geometry { twin_pages: apart, ..geometry };
        Ok(Self { geometry, held, busy, spare: alloc::vec::Vec::new(), next: 0 })
    }

    /// The same places, of which nothing is known yet.
    pub(super) fn afresh(&self) -> Result<Self> {
        Self::new(self.geometry, self.geometry.twin_pages)
    }

    /// The twin of pages.
    pub(super) fn twin(&self, run: Run) -> Run {
        Run { page: run.page ^ self.geometry.twin_pages, ..run }
    }

    /// The pages before the first one that can be allocated.
    pub(super) fn fixed(&self) -> Run {
        Run { page: 0, pages: self.geometry.first_page() }
    }

    /// Forgets what was to be moved, to look anew.
    pub(super) fn forget(&mut self) -> Result<()> {
        self.busy = Claims::new(self.geometry.pages)?;
        Ok(())
    }

    /// Metadata is in these pages: their twins are wanted; a page that can't have one must be left.
    pub(super) fn want(&self, run: Run) {
        for page in run.page..run.end() {
            let one = Run { page, pages: 1 };
            let has_twin =
                page < self.geometry.first_page() || self.geometry.holds_metadata(page, 1);
            self.want_one(if has_twin { self.twin(one) } else { one });
        }
    }

    /// The tables of strips are wanted.
    pub(super) fn want_tables(&self) {
        for (page, pages) in self.geometry.strips.reserved(self.geometry.end_page()) {
            (page..page + pages).for_each(|page| self.want_one(Run { page, pages: 1 }));
        }
    }

    fn want_one(&self, wanted: Run) {
        if !self.held.holds(wanted) {
            // (Two may want the same: of two pages of logs each may be where the other's copy goes.)
            let _ = self.busy.claim(wanted);
        }
    }

    /// Whether tables of strips are wanted, and not second copies.
    pub(super) fn are_for_tables(&self) -> bool {
        self.geometry.strips.are_kept()
    }

    /// Takes what is free of the wanted pages, and free pages that have no twin.
    pub(super) fn hold<M: Medium, H: Host>(&mut self, store: &Store<M, H>) -> Result<()> {
        store.space.settle();
        let all = |claims: &Claims, each: &mut dyn FnMut(Run) -> Result<()>| {
            claims.for_each_run(0, self.geometry.pages, true, each)
        };
        let mut taken = alloc::vec::Vec::new();
        all(&self.busy, &mut |run| {
            for page in run.page..run.end() {
                let one = Run { page, pages: 1 };
                if store.space.take_at(store.lane(), one)? {
                    taken.try_reserve(1)?;
                    taken.push(one);
                }
            }
            Ok(())
        })?;
        for one in taken {
            self.busy.release(one);
            self.keep(one)?;
        }
        self.hold_lonely(store)
    }

    /// Takes free pages that have no twin: no log is to grow there.
    fn hold_lonely<M: Medium, H: Host>(&mut self, store: &Store<M, H>) -> Result<()> {
        let mut lonely = alloc::vec::Vec::new();
        store.space.for_each_free(&mut |run| {
            for page in run.page..run.end() {
                if !self.geometry.holds_metadata(page, 1) {
                    lonely.try_reserve(1)?;
                    lonely.push(Run { page, pages: 1 });
                }
            }
            Ok(())
        })?;
        for one in lonely {
            if store.space.take_at(store.lane(), one)? {
                self.keep(one)?;
                if self.geometry.holds(one.page, 1) {
                    self.spare.try_reserve(1)?;
                    self.spare.push(one);
                }
            }
        }
        Ok(())
    }

    fn keep(&self, one: Run) -> Result<()> {
        let twice = |page: u64| Error::corrupt("page is free and held", page * PAGE_BYTES);
        self.held.claim(one).map_err(twice)
    }

    /// A page for file data that moves, if one is held that is good for nothing else.
    pub(super) fn take_spare(&mut self) -> Option<Run> {
        let one = self.spare.pop()?;
        self.held.release(one);
        Some(one)
    }

    /// Takes a page for a log whose copy has its place free, too, if there is one; that is held. So what is written there
    /// wants nothing more to be moved.
    pub(super) fn take_pair<M: Medium, H: Host>(
        &mut self,
        store: &Store<M, H>,
    ) -> Result<Option<u64>> {
        while self.next < self.geometry.end_page() {
            let one = Run { page: self.next, pages: 1 };
            let twin = self.twin(one);
            self.next += 1;
            let is_first = one.page < twin.page && self.geometry.holds_metadata(one.page, 1);
            if !is_first || !store.space.take_at(store.lane(), one)? {
                continue;
            }
            // (A log that goes on in memory that can't be loaded could not be read.)
            let lines = (one.page * PAGE_BYTES..one.end() * PAGE_BYTES).step_by(LINE as usize);
            let is_good = lines.clone().all(|at| store.door.load_word(at).is_ok());
            if is_good && store.space.take_at(store.lane(), twin)? {
                self.keep(twin)?;
                return Ok(Some(one.page));
            }
            store.give(one);
        }
        Ok(None)
    }

    /// Takes in pages that were given up: `false` where they are not wanted.
    pub(super) fn give(&self, page: u64) -> bool {
        let one = Run { page, pages: 1 };
        if !self.busy.holds(one) {
            return false;
        }
        self.busy.release(one);
        self.held.claim(one).is_ok()
    }

    /// Whether this page must be left.
    pub(super) fn is_busy(&self, page: u64) -> bool {
        self.busy.holds(Run { page, pages: 1 })
    }

    /// Whether any of these pages must be left.
    pub(super) fn is_any_busy(&self, run: Run) -> bool {
        (run.page..run.end()).any(|page| self.is_busy(page))
    }

    /// How many pages must be left.
    pub(super) fn busy_pages(&self) -> Result<u64> {
        let mut pages = 0;
        self.busy.for_each_run(0, self.geometry.pages, true, &mut |run| {
            pages += run.pages;
            Ok(())
        })?;
        Ok(pages)
    }

    /// Whether everything has been moved.
    pub(super) fn is_all_held(&self) -> bool {
        self.busy_pages() == Ok(0)
    }
}
