//! Making a pool what it was.
//!
//! The superblock says the epoch that counts. The opening that follows takes later records for ones that did not
//! happen, as it does with transactions that a crash cut off: it erases them, takes later snapshots off the list, and ends with a
//! superblock that says no more of it. Until that one is durable each opening begins anew; before the first was, nothing has
//! changed. So it is one step.

use lode_pmem::{Door, Medium};

use super::receive::removal_of;
use crate::recovery::stands_rollback;
use crate::rule::Rule;
use crate::store::Store;
use crate::{Error, Host, OpenOptions, Pool, Result};

/// A snapshot that a pool is about to become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Back(u32);

impl<M: Medium, H: Host> Pool<M, H> {
    /// Makes a pool that nobody has open what it was when this snapshot was made, and leaves it closed: in one step, in which later
    /// snapshots go as well. This one and older ones stay. All metadata is read first.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none of this name. [`Error::Corrupt`] where something of the snapshot is lost
    /// ([`Pool::lost_in_snapshot`] tells what), or the pool would not stand the opening that this needs: then nothing was written. Those of
    /// [`Pool::open`] and [`Pool::close`].
    pub fn rollback(medium: M, host: H, name: &[u8]) -> Result<()> {
        let reads = OpenOptions { read_only: true, ..OpenOptions::default() };
        let pool = Self::open_door(Door::new(medium), host, &reads)?;
        if let Some(lost) = pool.lost_in_snapshot(name)?.named.first() {
            return Err(Error::Corrupt(lost.damage));
        }
        let epoch = pool.epoch_of(name)?;
        let Store { door, host, .. } = *pool.store;
        let (door, host) = stands_rollback(door, host, epoch)?;
        Self::roll_back_in(door, host, name)
    }

    /// The same where something of the snapshot is lost: the pool is then what the rest of it was.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the pool can't be opened again before [`Pool::salvage`] has given up what is lost. Else those of
    /// [`Pool::rollback`].
    pub fn rollback_to_rest(medium: M, host: H, name: &[u8]) -> Result<()> {
        Self::roll_back_in(Door::new(medium), host, name)
    }

    fn roll_back_in(door: Door<M>, host: H, name: &[u8]) -> Result<()> {
        let pool = Self::open_door(door.with_wear()?, host, &OpenOptions::default())?;
        match pool.begin_rollback(name) {
            Ok(back) => pool.finish_rollback(back)?.close(),
            Err(error) => {
                pool.close()?;
                Err(error)
            }
        }
    }

    /// The first half of the same for a pool that is open, which changes nothing yet, and asks for nothing that is lost: who wants to
    /// know asks [`Pool::lost_in_snapshot`] before.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none of this name; [`Error::ReadOnly`]; [`Error::Busy`] while a program has a
    /// file mapped whose stores nobody can hold ([`Pool::map`]).
    pub fn begin_rollback(&self, name: &[u8]) -> Result<Back> {
        self.store.before_operation()?;
        let back = Back(self.epoch_of(name)?);
        match self.store.snapshots.shows.read().has_bare() {
            true => Err(Error::Busy),
            false => Ok(back),
        }
    }

    /// The second half: gives the pool as the snapshot has it, opened as this one was. No number of an inode
    /// in a snapshot, and nothing else that this one has given, means anything to it. Where this fails the medium has the pool as
    /// it was before or as the snapshot has it, and whoever opens it next finds it so.
    ///
    /// # Errors
    /// Those of [`Pool::close`] and [`Pool::open`].
    pub fn finish_rollback(self, back: Back) -> Result<Self> {
        let options = self.options;
        self.go_back(back.0, &options)
    }

    /// Closes the pool, and opens it again as the snapshot of this epoch has it.
    pub(super) fn go_back(self, epoch: u32, options: &OpenOptions) -> Result<Self> {
        self.close()?;
        let store: Store<M, H> = *self.store;
        // Whoever has memory of this pool has it of that one.
        let lent = store.lent.list()?;
        let mut superblock = store.superblock.lock().clone();
        superblock.rollback = epoch;
        superblock.checkpoint = 0;
        superblock.update += 1;
        crate::store::write_superblock(&store.door, &store.host, &superblock, store.counters())?;
        let Store { door, host, .. } = store;
        Self::open_beside(door, host, options, (&lent, false))
    }

    /// Ends a rollback, in a pool that is what it was: later snapshots are taken off the list (what they alone had is nobody's already).
    #[cold]
    #[inline(never)]
    pub(crate) fn end_rollback(&self) -> Result<()> {
        let epoch = self.store.superblock.lock().rollback;
        for later in self.snapshots_said()? {
            if later.entry.epoch > epoch && !self.store.host.leaves_out(Rule::LaterEnded) {
                self.setxattr(self.store.snapshots.home(), &removal_of(&later.name))?;
            }
        }
        let mut superblock = self.store.superblock.lock();
        self.store.change_superblock(&mut superblock, |superblock| superblock.rollback = 0)
    }
}
