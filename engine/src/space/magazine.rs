//! A lane's magazines: a few ready single pages in a fixed array.
//!
//! Guarantees: never allocates; pages come out in the order they were loaded in, and those put
//! back singly come out last in, first out; what is drained is the oldest.

use alloc::vec::Vec;

use super::tree::Tree;
use crate::error::Result;

/// What single pages are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Contents of files.
    Data,
    /// Logs.
    Log,
}

/// Pages a magazine can hold.
pub(super) const CAPACITY: usize = 64;
/// Pages loaded or drained at once.
pub(super) const BATCH: usize = CAPACITY / 2;

/// Pages drained at once, and how many of them count.
pub(super) struct Batch {
    pages: [u64; BATCH],
    count: usize,
}

impl Batch {
    /// An empty batch.
    pub(super) fn new() -> Self {
        Self { pages: [0; BATCH], count: 0 }
    }

    /// Each page becomes the one that is so many pages apart, a power of two, on the other side.
    pub(super) fn turn(&mut self, apart: u64) {
        let pages = self.pages.get_mut(..self.count).unwrap_or_default();
        pages.iter_mut().for_each(|page| *page ^= apart);
    }

    /// The pages, ascending.
    pub(super) fn sorted(&mut self) -> &[u64] {
        let pages = self.pages.get_mut(..self.count).unwrap_or_default();
        pages.sort_unstable();
        pages
    }
}

/// Ready single pages.
pub(super) struct Magazine {
    /// Never more than it has room for from the beginning.
    pages: Vec<u64>,
}

impl Magazine {
    /// An empty magazine.
    pub(super) fn new() -> Result<Self> {
        let mut pages = Vec::new();
        pages.try_reserve_exact(CAPACITY)?;
        Ok(Self { pages })
    }

    /// Pages in it.
    pub(super) fn count(&self) -> usize {
        self.pages.len()
    }

    /// Takes the newest page.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<u64> {
        self.pages.pop()
    }

    /// Puts a page in; `false` where the magazine is full and nothing was done.
    #[inline]
    pub(super) fn push(&mut self, page: u64) -> bool {
        let room = self.pages.len() < CAPACITY;
        if room {
            self.pages.push(page);
        }
        room
    }

    /// Puts a page in. Where the magazine is full, its oldest pages come out, to be put elsewhere.
    #[inline]
    pub(super) fn push_over(&mut self, page: u64) -> Option<Batch> {
        if self.push(page) {
            return None;
        }
        let mut batch = Batch::new();
        self.drain(&mut batch);
        self.push(page);
        Some(batch)
    }

    /// Loads an empty magazine with a batch from a region; `None` where it has nothing.
    pub(super) fn load(&mut self, tree: &mut Tree) -> Option<()> {
        while let Some(left) = BATCH.checked_sub(self.count()).filter(|&left| left > 0) {
            let Some(run) = tree.take_some(left as u64, 0) else {
                break;
            };
            for page in run.page..run.end() {
                self.push(page);
            }
        }
        self.reverse();
        (self.count() > 0).then_some(())
    }

    /// Turns the order around in which pages come out.
    pub(super) fn reverse(&mut self) {
        self.pages.reverse();
    }

    /// A bit of a page that waits here flips.
    #[cfg(test)]
    pub(super) fn flip(&mut self, at: usize, bit: u64) {
        if let Some(page) = self.pages.get_mut(at) {
            *page ^= bit;
        }
    }

    /// Moves the oldest pages, a batch at most, out.
    pub(super) fn drain(&mut self, batch: &mut Batch) {
        let count = self.count().min(BATCH);
        if let (Some(to), Some(from)) = (batch.pages.get_mut(..count), self.pages.get(..count)) {
            to.copy_from_slice(from);
        }
        batch.count = count;
        self.pages.drain(..count);
    }
}
