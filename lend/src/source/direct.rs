//! The direct method: chunks of free pages.

use std::io;
use std::os::fd::OwnedFd;

use lode_loan::Refusal;

use super::owner::refusal;
use super::{Owner, Source, common};

/// Free pages of a pool.
pub struct Direct<O> {
    owner: O,
    /// Pages that are left to files besides the pool's reserve.
    spared: u64,
}

impl<O: Owner> Direct<O> {
    /// Those of this pool, of which `spared` pages besides its reserve are for files.
    pub fn new(owner: O, spared: u64) -> Self {
        Self { owner, spared }
    }
}

impl<O: Owner> Source for Direct<O> {
    fn take(&self) -> Result<u64, Refusal> {
        let taken = self.owner.with(|pool| pool.lend(self.spared));
        taken.ok_or(Refusal::Ending)?.map_err(refusal)
    }

    fn give(&self, chunk: u64) {
        common::give_back(&self.owner, chunk);
    }

    fn zero(&self, chunk: u64) {
        common::zero(&self.owner, chunk);
    }

    fn locked(&self, chunk: u64) -> bool {
        common::locked(&self.owner, chunk)
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        common::descriptor(&self.owner)
    }
}
