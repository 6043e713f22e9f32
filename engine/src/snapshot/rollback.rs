//! Making a pool what it was.
//!
//! The superblock says the epoch that counts. The opening that follows takes later records for ones that did not
//! happen, as it does with transactions that a crash cut off: it erases them, and ends with a superblock that says
//! no more of it. Until that one is durable each opening begins anew. Before the first was, nothing has changed but
//! that later snapshots are deleted: that comes first.

use lode_pmem::{Door, Medium};

use crate::store::Store;
use crate::{Host, OpenOptions, Pool, Result};

/// A snapshot that a pool is about to become. Later ones are deleted already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Back(u32);

impl<M: Medium, H: Host> Pool<M, H> {
    /// Makes a pool that nobody has open what it was when this snapshot was made, and leaves it closed. Later
    /// snapshots are deleted, before all else; this one and older ones stay.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if there is none of this name. Those of [`Pool::open`] and [`Pool::close`].
    pub fn rollback(medium: M, host: H, name: &[u8]) -> Result<()> {
        let door = Door::new(medium).with_wear()?;
        let pool = Self::open_door(door, host, &OpenOptions::default())?;
        match pool.begin_rollback(name) {
            Ok(back) => pool.finish_rollback(back)?.close(),
            Err(error) => {
                pool.close()?;
                Err(error)
            }
        }
    }

    /// The first step of the same for a pool that is open, which nobody else uses from here on: deletes the
    /// snapshots later than this one. The pool is not changed in any other way yet.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if there is none of this name; [`crate::Error::ReadOnly`].
    pub fn begin_rollback(&self, name: &[u8]) -> Result<Back> {
        self.store.before_operation()?;
        let epoch = self.epoch_of(name)?;
        for later in self.snapshots_said()?.into_iter().rev() {
            if later.entry.epoch > epoch {
                self.delete_snapshot(&later.name)?;
            }
        }
        Ok(Back(epoch))
    }

    /// The second and last step: gives the pool as the snapshot has it, opened as this one was. No number of an inode
    /// in a snapshot, and nothing else that this one has given, means anything to it. Where this fails the medium has the pool as
    /// it was before or as the snapshot has it, and whoever opens it next finds it so.
    ///
    /// # Errors
    /// Those of [`Pool::close`] and [`Pool::open`].
    pub fn finish_rollback(self, back: Back) -> Result<Self> {
        let options = self.options;
        self.go_back(back.0, &options)
    }

    /// Closes the pool, and opens it again as the latest snapshot has it, which is of this epoch.
    pub(super) fn go_back(self, epoch: u32, options: &OpenOptions) -> Result<Self> {
        self.close()?;
        let store: Store<M, H> = *self.store;
        let mut superblock = store.superblock.lock().clone();
        superblock.rollback = epoch;
        superblock.checkpoint = 0;
        superblock.update += 1;
        crate::store::write_superblock(&store.door, &store.host, &superblock, store.counters())?;
        let Store { door, host, .. } = store;
        Self::open_door(door, host, options)
    }
}
