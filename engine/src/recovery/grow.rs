//! Making a pool larger, and giving it another label: both are one update of the superblocks.
//!
//! The second superblock is in the last page, wherever that is. So the new last page gets it first, and
//! only then the first superblock and the locator say how many pages there are. Until that, and in the
//! middle of it, one of the two is good, and found: the first one tells where the second is, and
//! without it the locator does. The page where it was becomes free when the pool is opened again.
//!
//! That opening reads all logs: nothing is written to a pool that it would not read to the end.

use alloc::boxed::Box;

use lode_pmem::{Door, Medium};

use super::sound::stands_recovery;
use crate::layout::{POOL_PAGES_MOST, Superblock};
use crate::store::{Store, write_copy, write_locator, write_superblock};
use crate::{Error, Host, LABEL_MAX, OpenOptions, PAGE_BYTES, Pool, Result, Rule};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Finds out whether a pool that nobody has open can grow, and writes nothing.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for damage that the opening after the growth would meet, and those of
    /// [`Pool::open`].
    pub fn check_growth(medium: M, host: H) -> Result<()> {
        stands_recovery(Door::new(medium), host).map(|_| ())
    }

    /// Makes a pool that nobody has open as large as its region is by now, and leaves it closed.
    ///
    /// # Errors
    /// Those of [`Pool::check_growth`], and [`Error::Invalid`] where the region has no more room than
    /// the pool, or more than a pool can have: then nothing was written. Those of [`Pool::open`] and
    /// [`Pool::close`].
    pub fn grow(medium: M, host: H) -> Result<()> {
        let (door, host, pages_before) = stands_recovery(Door::new(medium), host)?;
        let pages = door.bytes() / PAGE_BYTES;
        if pages <= pages_before || pages > POOL_PAGES_MOST {
            return Err(Error::Invalid);
        }
        let pool = Self::open_door(door.with_wear()?, host, &OpenOptions::default())?;
        let store: Store<M, H> = *pool.store;
        let mut superblock: Box<Superblock> = Box::new(store.superblock.lock().clone());
        superblock.pages = pages;
        superblock.update += 1;
        let (door, counters) = (&store.door, store.counters());
        let [first, last] = Superblock::places(pages);
        write_copy(door, &superblock, last, counters);
        if !store.host.leaves_out(Rule::GrowOrder) {
            door.fence(counters)?;
        }
        write_locator(door, pages, counters);
        write_copy(door, &superblock, first, counters);
        // No fence yet: until that of the next opening nothing is different but these lines.
        let Store { door, host, .. } = store;
        let grown = Self::open_door(door, host, &OpenOptions::default())?;
        grown.close()
    }

    /// Gives the pool another label, of at most 64 bytes.
    ///
    /// # Errors
    /// [`Error::NameTooLong`]; [`Error::Invalid`] for a NUL in it; [`Error::ReadOnly`].
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > LABEL_MAX {
            return Err(Error::NameTooLong);
        }
        if label.contains(&0) {
            return Err(Error::Invalid);
        }
        self.store.before_operation()?;
        let mut superblock = self.store.superblock.lock();
        superblock.label = [0; LABEL_MAX];
        for (to, from) in superblock.label.iter_mut().zip(label) {
            *to = *from;
        }
        superblock.update += 1;
        write_superblock(&self.store.door, &self.store.host, &superblock, self.store.counters())
    }
}
