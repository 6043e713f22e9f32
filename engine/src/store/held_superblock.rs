//! The superblock that counts, in memory.
//!
//! What this file guarantees: what is stored of it later is what was put here, also where a bit of it has flipped meanwhile. Both
//! copies on the medium are written from here, so none of them could tell.

use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};

use lock_api::{Mutex, MutexGuard};
use lode_pmem::crc32c;

use crate::Host;
use crate::layout::{SUPERBLOCK_BYTES, Superblock};

/// It, twice.
struct Copies {
    first: Box<Superblock>,
    second: Box<Superblock>,
    sum: u32,
}

/// A superblock behind a lock.
pub(crate) struct HeldSuperblock<H: Host> {
    copies: Mutex<H::Mutex, Copies>,
}

/// What is locked.
pub(crate) struct SuperblockGuard<'a, H: Host> {
    copies: MutexGuard<'a, H::Mutex, Copies>,
    is_changed: bool,
}

impl Copies {
    #[inline(never)]
    fn sum_of(superblock: &Superblock) -> u32 {
        let mut raw = [0; SUPERBLOCK_BYTES];
        superblock.encode(&mut raw);
        // (With the sum that it ends in, all of them have the same one.)
        crc32c(0, raw.split_last_chunk::<8>().map_or(&raw[..], |(fields, _)| fields))
    }

    /// Makes the first one what was put there, if it is not, and something is.
    #[inline(never)]
    fn settle(&mut self) {
        if Self::sum_of(&self.first) != self.sum && Self::sum_of(&self.second) == self.sum {
            self.first.clone_from(&self.second);
        }
    }

    /// The first one is what counts.
    #[inline(never)]
    fn put(&mut self) {
        self.second.clone_from(&self.first);
        self.sum = Self::sum_of(&self.first);
    }
}

/// Not on its caller's stack.
#[inline(never)]
fn boxed(superblock: &Superblock) -> Box<Superblock> {
    Box::new(superblock.clone())
}

impl<H: Host> HeldSuperblock<H> {
    pub(super) fn new(superblock: &Superblock) -> Self {
        let [first, second] = [superblock; 2].map(boxed);
        Self { copies: Mutex::new(Copies { first, second, sum: Copies::sum_of(superblock) }) }
    }

    pub(crate) fn lock(&self) -> SuperblockGuard<'_, H> {
        let mut copies = self.copies.lock();
        copies.settle();
        SuperblockGuard { copies, is_changed: false }
    }

    /// Something of what is there flips.
    #[cfg(test)]
    pub(crate) fn flip(&self, flip: impl FnOnce(&mut Superblock)) {
        flip(&mut self.copies.lock().first);
    }
}

impl<H: Host> Deref for SuperblockGuard<'_, H> {
    type Target = Superblock;

    fn deref(&self) -> &Superblock {
        &self.copies.first
    }
}

impl<H: Host> DerefMut for SuperblockGuard<'_, H> {
    fn deref_mut(&mut self) -> &mut Superblock {
        self.is_changed = true;
        &mut self.copies.first
    }
}

impl<H: Host> Drop for SuperblockGuard<'_, H> {
    fn drop(&mut self) {
        if self.is_changed {
            self.copies.put();
        }
    }
}
