//! Making a pool what it was.
//!
//! The superblock says the epoch that counts. The opening that follows takes later records for ones that did not
//! happen, as it does with transactions that a crash cut off: it erases them, and ends with a superblock that says
//! no more of it. Until that one is durable each opening begins anew. Before the first was, nothing has changed but
//! that later snapshots are deleted: that comes first.

use lode_pmem::{Door, Medium};

use crate::store::Store;
use crate::{Host, OpenOptions, Pool, Result};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Makes a pool that nobody has open what it was when this snapshot was made, and leaves it closed. Later
    /// snapshots are deleted, before all else; this one and older ones stay.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if there is none of this name. Those of [`Pool::open`] and [`Pool::close`].
    pub fn rollback(medium: M, host: H, name: &[u8]) -> Result<()> {
        let door = Door::new(medium).with_wear()?;
        let pool = Self::open_door(door, host, &OpenOptions::default())?;
        let epoch = match pool.epoch_of(name) {
            Ok(epoch) => epoch,
            Err(error) => {
                pool.close()?;
                return Err(error);
            }
        };
        for later in pool.snapshots_said()?.into_iter().rev() {
            if later.entry.epoch > epoch {
                pool.delete_snapshot(&later.name)?;
            }
        }
        pool.go_back(epoch, &OpenOptions::default())?.close()
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
