//! Making a damaged pool sound: what can't be read is given up, the rest is kept and named.
//!
//! `tables` finds inode tables that nothing leads to any more.
//! `discard` drops inodes whose logs are damaged, on the medium, after `listing` has read what
//! there is of the directories among them; then the pool opens. `tree` makes names and inodes fit
//! each other again, by transactions of `change`: entries that lead nowhere go, what nothing
//! leads to is put into `lost+found`, directories that were lost are made again with the
//! names that could be read. `tell` says what that did, when every path is whole.
//!
//! A directory that is made again has the rights of its owner alone: nobody knows what a damaged record
//! took from others.
//!
//! Each step leaves a pool that the next salvage goes on from: it can be cut off anywhere.

mod change;
mod discard;
mod listing;
mod report;
mod tables;
mod tell;
mod tree;

use lode_pmem::{Door, Medium};

use crate::{Host, OpenOptions, Pool, Result};

pub use report::Salvage;

/// What indexes may take besides what is found: each inode is looked at a few times.
const INDEX_MEMORY: u64 = 256 << 20;

impl<M: Medium, H: Host> Pool<M, H> {
    /// Makes a damaged pool sound that nobody has open, and leaves it closed. What could not be
    /// read is lost; `told` hears of each step.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] where both superblocks are damaged, or the inode table that the root directory
    /// is in is not found: then nothing was written. [`crate::Error::NoSpace`] where there is no room for names;
    /// what was done by then stays.
    pub fn salvage(medium: M, host: H, told: &mut dyn FnMut(Salvage<'_>)) -> Result<()> {
        let (door, host, lost) = discard::discard(Door::new(medium), host, told)?;
        let options = OpenOptions { index_memory: Some(INDEX_MEMORY), ..OpenOptions::default() };
        let pool = Self::open_beside(door, host, &options, (&[], true))?;
        let mut tree = tree::Tree::new(&pool);
        let mended = tree.mend(lost);
        // Of what was done before that failed, too.
        let said = tell::tell(&mut tree, told);
        mended.and(said)?;
        pool.close()
    }
}
