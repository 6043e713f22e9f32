//! A lane's magazines: a few ready single pages in a fixed array.
//!
//! Guarantees: never allocates; pages come out in the order they were loaded in, and those put
//! back singly come out last in, first out; what is drained is the oldest.

use alloc::vec::Vec;

use super::Run;
use super::chunks::Chunks;
use super::claims::WORD;
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
const CAPACITY: usize = 96;
/// Pages drained at once, or loaded with their twins.
pub(super) const BATCH: usize = 32;
/// Pages loaded at once: as many as one word of the bitmap of free pages has.
const LOAD: usize = WORD as usize;

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

/// Where pages end that are loaded of `run`, which was taken out of `chunks`: what is behind the end of its first word goes back there.
fn end_in_word(chunks: &mut Chunks, run: Run) -> u64 {
    let end = (run.page / WORD + 1).saturating_mul(WORD).min(run.end());
    let rest = Run { page: end, pages: run.end() - end };
    // (Where these would not have it, the magazine does.)
    if rest.pages > 0 && chunks.insert(rest).is_err() { run.end() } else { end }
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

    /// Loads an empty magazine from a region; `None` where it has nothing. Where pages in one piece are to be had, they are those
    /// of one word of the bitmap, so that no other lane has to wait for it with its next page.
    pub(super) fn load(&mut self, chunks: &mut Chunks) -> Option<()> {
        while let Some(left) = LOAD.checked_sub(self.count()).filter(|&left| left > 0) {
            let Some(run) = chunks.take_some(left as u64, 0) else {
                break;
            };
            let end = if left == LOAD { end_in_word(chunks, run) } else { run.end() };
            for page in run.page..end {
                self.push(page);
            }
            if end < run.end() {
                break;
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
