//! A snapshot that comes from elsewhere, piece by piece, and is there wholly or not at all.
//!
//! An entry of the list is the *mark*: under the name that the snapshot will have, with the epoch of what the pool was
//! before. While it is there, nobody else opens the pool for writing, and who opens it read-only sees what was
//! before, by the means of a rollback. One record, which replaces that entry, makes it the snapshot: so the end is atomic. Giving it up is a
//! rollback; the mark says so first, as nothing goes on from a pool that may be as it was already.

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
    /// It is being given up.
    pub is_abandoned: bool,
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// What is being received into the pool, if anything is.
    pub fn receiving(&self) -> Result<Option<Receiving>> {
        let Some(Listed { name, entry }) = self.mark()? else { return Ok(None) };
        let id = entry.id([0; 16]);
        let is_abandoned = entry.is_abandoned();
        Ok(Some(Receiving { name, id, is_abandoned, note: entry.note }))
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
    /// [`Error::NotFound`] if nothing is being received; [`Error::Receiving`] if it is being given up.
    pub fn finish_receiving(&self) -> Result<()> {
        self.store.before_operation()?;
        let _changing = self.store.snapshots.changing.lock();
        let Listed { name, entry } = self.mark()?.ok_or(Error::NotFound)?;
        if entry.is_abandoned() {
            return Err(Error::Receiving);
        }
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
        let Some(Listed { name, entry }) = pool.mark()? else {
            pool.close()?;
            return Err(Error::NotFound);
        };
        let before = entry.epoch;
        if !pool.store.host.leaves_out(Rule::AbandonSaid) {
            pool.set_mark(&name, &entry.abandoned())?;
        }
        let pool = pool.go_back(before, &options)?;
        pool.end_mark()?;
        pool.close()
    }

    /// Says that what was received is given up, which a salvage has begun to do: the superblock has the epoch of what was
    /// before until then.
    #[cold]
    #[inline(never)]
    pub(crate) fn say_abandoned(&self) -> Result<()> {
        if let Some(Listed { name, entry }) = self.mark()? {
            self.set_mark(&name, &entry.abandoned())?;
        }
        let mut superblock = self.store.superblock.lock();
        self.store.change_superblock(&mut superblock, |superblock| superblock.rollback = 0)
    }

    /// Takes the mark away, where there is one.
    pub(crate) fn end_mark(&self) -> Result<()> {
        if let Some(Listed { name, entry }) = self.mark()? {
            self.setxattr(self.store.snapshots.home(), &removal_of(&name))?;
            self.end_views_of(entry.epoch);
        }
        Ok(())
    }
}

fn removal_of(name: &[u8]) -> XattrChange<'_> {
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
