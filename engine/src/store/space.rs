//! Taking pages, with what can be done before the answer is "no space".

use lode_pmem::Medium;

use super::Store;
use crate::space::Run;
use crate::{Error, Host, PageClass, Result};

/// One page of so many is kept for operations that free space.
const RESERVE_PART: u64 = 64;
/// In a small pool so many pages are kept, ...
const RESERVE_LEAST: u64 = 8;
/// ... but no larger part of it than this.
const RESERVE_PART_MOST: u64 = 8;
/// The most pages that are kept.
const RESERVE_MAX: u64 = 1024;

/// What an operation does to space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// It takes some.
    Grows,
    /// It frees some: it may use the reserve, so that a full pool can be emptied.
    Frees,
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Pages kept for operations that free space.
    pub(crate) fn reserve(&self) -> u64 {
        let least = (self.geometry.pages / RESERVE_PART_MOST).min(RESERVE_LEAST);
        (self.geometry.pages / RESERVE_PART).clamp(least, RESERVE_MAX)
    }

    /// Takes exactly `pages` contiguous pages, aligned for `class`.
    pub(crate) fn take(&self, pages: u64, class: PageClass) -> Result<Run> {
        self.take_by(pages, &|lane| self.space.take(lane, pages, class))
    }

    /// Takes 1 to `pages` contiguous pages.
    pub(crate) fn take_some(&self, pages: u64) -> Result<Run> {
        self.take_by(1, &|lane| self.space.take_some(lane, pages))
    }

    /// Takes a whole aligned chunk of `class`, unless space is so short that the rest of it
    /// is better left to others.
    pub(crate) fn take_chunk(&self, class: PageClass) -> Option<Run> {
        let left = self.space.free_pages().checked_sub(class.pages())?;
        if left < 2 * self.reserve() {
            return None;
        }
        self.space.take(self.lane(), class.pages(), class).ok()
    }

    /// Takes a page for the log of an operation with this purpose.
    pub(crate) fn take_log_page(&self, purpose: Purpose) -> Result<u64> {
        let run = match purpose {
            Purpose::Grows => self.take(1, PageClass::Small)?,
            Purpose::Frees => match self.space.take(self.lane(), 1, PageClass::Small) {
                Err(Error::NoSpace) if self.reclaim()? => {
                    self.space.take(self.lane(), 1, PageClass::Small)?
                }
                result => result?,
            },
        };
        Ok(run.page)
    }

    /// Takes above the reserve, after reclaiming where that is needed.
    fn take_by(&self, least: u64, take: &dyn Fn(usize) -> Result<Run>) -> Result<Run> {
        let left = || self.space.free_pages() >= least.saturating_add(self.reserve());
        if left() {
            match take(self.lane()) {
                Err(Error::NoSpace) => {}
                result => return result,
            }
        }
        if self.reclaim()? && left() { take(self.lane()) } else { Err(Error::NoSpace) }
    }

    /// Gives pages back that nothing on the medium speaks of any more (PROTOCOL I9).
    /// A page that was free already means damage: the pool takes no more writes.
    pub(crate) fn give(&self, run: Run) {
        if self.space.give(self.lane(), run).is_err() {
            self.set_writable(false);
        }
    }

    /// Frees what a round and empty table pieces hold. Says whether that was anything.
    pub(crate) fn reclaim(&self) -> Result<bool> {
        let before = self.space.free_pages();
        if self.quarantine_holds() {
            self.round()?;
        }
        self.release_empty_pieces()?;
        Ok(self.space.free_pages() > before)
    }
}
