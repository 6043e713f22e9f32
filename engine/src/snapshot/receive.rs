//! A snapshot that comes from elsewhere, piece by piece, and is there wholly or not at all.
//!
//! An entry of the list is the *mark*: under the name that the snapshot will have, with the epoch of what the pool was
//! before. While it is there, nobody else opens the pool for writing, and who opens it read-only sees what was
//! before, by the means of a rollback. One record, which replaces that entry, makes it the snapshot: so the end is atomic. Giving it up is a
//! rollback: that the superblock names the epoch of the mark is what begins it, in one step. Whoever opens such a pool for writing ends it: the mark
//! says so before the superblock names that epoch no more, as nothing must go on from a pool that is as it was; then it goes.

use alloc::vec::Vec;

use lode_pmem::{Door, Medium};

use super::entry::{Entry, Listed, SnapshotId};
use crate::{Error, Host, OpenOptions, Pool, Result, Rule, XattrChange, XattrWhen};

/// Bytes that who receives a snapshot may note, at most.
const NOTE_BYTES_MAX: usize = 256;

/// A snapshot that is being received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receiving {
    /// The name that it will have.
    pub name: Vec<u8>,
    /// Which snapshot it is.
    pub id: SnapshotId,
    /// What was noted last.
    pub note: Vec<u8>,
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// What is being received into the pool, if anything is.
    pub fn receiving(&self) -> Result<Option<Receiving>> {
        if self.options.read_only && self.opening.given_up {
            // Its mark is only still to be taken away.
            return Ok(None);
        }
        let Some(Listed { name, entry }) = self.mark()? else { return Ok(None) };
        Ok(Some(Receiving { name, id: entry.id([0; 16]), note: entry.note }))
    }

    fn mark(&self) -> Result<Option<Listed>> {
        Ok(self.listed()?.into_iter().find(|one| one.entry.is_mark()))
    }

    /// Begins to receive snapshot `id` as `name`: from now on the pool is as it is now for all who do not receive,
    /// until [`Pool::finish_receiving`]. `note`, of at most 256 bytes, is kept with it.
    ///
    /// # Errors
    /// [`Error::Receiving`] if another one is being received; those of [`Pool::create_snapshot`].
    pub fn begin_receiving(&self, name: &[u8], id: &SnapshotId, note: &[u8]) -> Result<()> {
        if self.mark()?.is_some() {
            return Err(Error::Receiving);
        }
        let _changing = self.begin_change(name)?;
        self.keep_now(name, XattrWhen::Absent, &mut |epoch| {
            Ok(Entry::mark(epoch, id, noted(note)?))
        })
    }

    /// Changes the note, atomically and durably.
    ///
    /// # Errors
    /// [`Error::NotFound`] if nothing is being received.
    pub fn note_receiving(&self, note: &[u8]) -> Result<()> {
        let Listed { name, entry } = self.mark()?.ok_or(Error::NotFound)?;
        self.set_mark(&name, &entry.with_note(noted(note)?))
    }

    fn set_mark(&self, name: &[u8], entry: &Entry) -> Result<()> {
        let value = entry.value()?;
        let change = XattrChange { name, value: Some(&value), when: XattrWhen::Present };
        self.setxattr(self.store.snapshots.home(), &change)
    }

    /// Ends receiving: what is in the pool now is the snapshot, and there for all. One atomic step.
    ///
    /// # Errors
    /// [`Error::NotFound`] if nothing is being received.
    pub fn finish_receiving(&self) -> Result<()> {
        self.store.before_operation()?;
        let _changing = self.store.snapshots.changing.lock();
        let Listed { name, entry } = self.mark()?.ok_or(Error::NotFound)?;
        let (before, id) = (entry.epoch, entry.id([0; 16]));
        let home = self.store.snapshots.home();
        let in_two = self.store.host.leaves_out(Rule::ReceivedInOne);
        if in_two {
            self.setxattr(home, &removal_of(&name))?;
        }
        let when = if in_two { XattrWhen::Absent } else { XattrWhen::Present };
        self.keep_now(&name, when, &mut |epoch| Ok(Entry::received(epoch, &id)))?;
        self.end_views_of(before);
        Ok(())
    }

    /// Gives up what is being received into a pool that nobody has open, and leaves it closed, as it was before.
    ///
    /// # Errors
    /// [`Error::NotFound`] if nothing is. Those of [`Pool::open`] and [`Pool::close`].
    pub fn abandon_receiving(medium: M, host: H) -> Result<()> {
        let options = OpenOptions { receiving: true, ..OpenOptions::default() };
        let pool = Self::open_door(Door::new(medium).with_wear()?, host, &options)?;
        match pool.mark()? {
            Some(Listed { entry, .. }) => pool.go_back(entry.epoch, &options)?.close(),
            None => {
                pool.close()?;
                Err(Error::NotFound)
            }
        }
    }

    /// Ends that what was received is given up, in a pool that is what it was again.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_given_up(&self) -> Result<()> {
        let Some(Listed { name, entry }) = self.mark()? else { return Ok(()) };
        let before = entry.epoch;
        let says = !entry.is_abandoned() && !self.store.host.leaves_out(Rule::AbandonSaid);
        if says {
            self.set_mark(&name, &entry.abandoned())?;
        }
        let mut superblock = self.store.superblock.lock();
        if superblock.rollback != 0 {
            self.store.change_superblock(&mut superblock, |superblock| superblock.rollback = 0)?;
        }
        drop(superblock);
        self.setxattr(self.store.snapshots.home(), &removal_of(&name))?;
        self.end_views_of(before);
        Ok(())
    }
}

pub(super) fn removal_of(name: &[u8]) -> XattrChange<'_> {
    XattrChange { name, value: None, when: XattrWhen::Present }
}

fn noted(note: &[u8]) -> Result<Vec<u8>> {
    if note.len() > NOTE_BYTES_MAX {
        return Err(Error::TooLong);
    }
    let mut noted = Vec::new();
    noted.try_reserve_exact(note.len())?;
    noted.extend_from_slice(note);
    Ok(noted)
}
