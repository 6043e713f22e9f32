//! Taking pages, with what can be done before the answer is "no space".

use lode_pmem::Medium;

use super::Store;
use crate::space::Run;
use crate::{Error, Host, PageClass, Result};

impl<M: Medium, H: Host> Store<M, H> {
    /// Takes exactly `pages` contiguous pages, aligned for `class`.
    pub(crate) fn take(&self, pages: u64, class: PageClass) -> Result<Run> {
        let lane = self.lane();
        match self.space.take(lane, pages, class) {
            Err(Error::NoSpace) if self.reclaim()? => self.space.take(lane, pages, class),
            result => result,
        }
    }

    /// Takes 1 to `pages` contiguous pages.
    pub(crate) fn take_some(&self, pages: u64) -> Result<Run> {
        let lane = self.lane();
        match self.space.take_some(lane, pages) {
            Err(Error::NoSpace) if self.reclaim()? => self.space.take_some(lane, pages),
            result => result,
        }
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
