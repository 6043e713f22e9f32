//! Memory from the pool: pages that no file needs, lent to programs.
//!
//! Two ways. A chunk of free pages ([`Pool::lend`]); or one that is part of a file without a name, which its maker
//! backs with pages and then says to be lent ([`Pool::lend_part`]). In both nothing on the medium says who has it: a crash
//! leaves the pages free, and who opens the pool beside programs that still have some takes them in as lent
//! before anything is free.

use alloc::vec::Vec;

use lode_pmem::Medium;

use super::{Handle, Life, Pool};
use crate::space::Run;
use crate::{Error, Host, LENT_BYTES, PAGE_BYTES, Result};

/// Pages of a chunk.
const PAGES: u64 = LENT_BYTES / PAGE_BYTES;

impl<M: Medium, H: Host> Pool<M, H> {
    /// Lends a chunk of [`LENT_BYTES`] bytes, aligned so in the region, if no file needs it: `spared` pages are left free
    /// then besides the reserve. What it holds is what was there last. Returns its number: its offset in the region, in
    /// chunks. Nobody is asked for memory ([`Host::spare`]).
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::ReadOnly`], and those of a fence.
    pub fn lend(&self, spared: u64) -> Result<u64> {
        self.store.before_operation()?;
        self.store.lend(spared)
    }

    /// Says that the [`LENT_BYTES`] bytes at `offset` of this file are lent, which are one chunk; returns its number. The file has
    /// no name, is never to have one, and from now on is neither read nor written. Its pages are compared with nothing, and
    /// stay where they are. When the file gives them up they are still lent, until [`Pool::give_back`].
    ///
    /// # Errors
    /// [`Error::Invalid`] where that is no such file, or where its pages are not an aligned chunk; [`Error::Busy`] for a chunk that is lent
    /// already; [`Error::ReadOnly`].
    pub fn lend_part(&self, file: &Handle<H>, offset: u64) -> Result<u64> {
        self.store.before_operation()?;
        let state = file.node.write(&self.store)?;
        if !state.is_nameless() || !offset.is_multiple_of(LENT_BYTES) {
            return Err(Error::Invalid);
        }
        let from = offset / PAGE_BYTES;
        let extent = state.file()?.extents.find(from).ok_or(Error::Invalid)?;
        let page = extent.page + (from - extent.file_page);
        if extent.end() < from + PAGES || !page.is_multiple_of(PAGES) {
            return Err(Error::Invalid);
        }
        let chunk = page / PAGES;
        if self.store.lent.hold(chunk) { Ok(chunk) } else { Err(Error::Busy) }
    }

    /// Takes back a chunk that is lent: the program that had it can't store there any more. Its pages are free, but for
    /// those that a file has.
    ///
    /// # Errors
    /// [`Error::NotLent`]; [`Error::Corrupt`] for pages of it that are free already: the pool takes no more changes then.
    pub fn give_back(&self, chunk: u64) -> Result<()> {
        self.store.give_back(chunk)
    }

    /// The chunks that are lent, in order: those that programs had when the pool was opened, too.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn lent(&self) -> Result<Vec<u64>> {
        self.store.lent.list()
    }

    /// Whether this chunk is lent.
    pub fn is_lent(&self, chunk: u64) -> bool {
        let page = chunk.saturating_mul(PAGES);
        self.store.lent.touches(Run { page, pages: 1 })
    }

    /// This opening of the pool: what a [`Handle`] means anything in.
    pub fn life(&self) -> Life {
        self.life.clone()
    }

    /// The world around it.
    pub fn host(&self) -> &H {
        &self.store.host
    }
}
