//! Making and ending snapshots.
//!
//! A snapshot is made in the moment when the epoch is raised: transactions that began before are in it, and are
//! waited for; later ones are not. Nobody waits for that. It is durable with the record that tells its name;
//! a crash before leaves none, and an epoch more.

use core::sync::atomic::Ordering::Release;

use lock_api::MutexGuard;
use lode_pmem::Medium;

use super::entry::Entry;
use super::list::NAME_BYTES_MAX;
use super::view::index_of;
use crate::{Error, Host, Pool, Result, Rule, XattrChange, XattrWhen};

/// Checks a name that came from outside.
fn valid_name(name: &[u8]) -> Result<()> {
    let odd = name.is_empty() || name == b"." || name == b"..";
    if odd || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(Error::Invalid);
    }
    if name.len() > NAME_BYTES_MAX { Err(Error::NameTooLong) } else { Ok(()) }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Makes a snapshot of all that is in the pool, with a name of 1 to 128 bytes, without `/` and NUL.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Busy`] while a program has a file mapped whose stores nobody can hold ([`Pool::map`]); [`Error::NoSpace`];
    /// what [`Shown::protect`](crate::Shown::protect) says;
    /// [`Error::Invalid`] and [`Error::NameTooLong`] for names that can't be.
    pub fn create_snapshot(&self, name: &[u8]) -> Result<()> {
        let _changing = self.begin_change(name)?;
        let created_ns = self.now_ns();
        self.keep_now(name, XattrWhen::Absent, &mut |epoch| Ok(Entry::own(epoch, created_ns)))
    }

    /// Locks the list, to put this new name into it.
    pub(super) fn begin_change(&self, name: &[u8]) -> Result<MutexGuard<'_, H::Mutex, ()>> {
        valid_name(name)?;
        self.store.before_operation()?;
        let changing = self.store.snapshots.changing.lock();
        match self.listed_as(name) {
            Ok(_) => Err(Error::Exists),
            Err(Error::NotFound) => Ok(changing),
            Err(error) => Err(error),
        }
    }

    /// Ends the epoch, and puts what `entry` says of it into the list, which is locked.
    pub(super) fn keep_now(
        &self,
        name: &[u8],
        when: XattrWhen,
        entry: &mut dyn FnMut(u32) -> Result<Entry>,
    ) -> Result<()> {
        let store = &self.store;
        let home = self.home_of_snapshots()?;
        let epoch = store.epoch();
        let value = entry(epoch)?.value()?;
        store.allow_epoch(epoch + 1)?;
        self.make_shown_whole()?;
        self.end_epoch(epoch)?;
        store.wait_for_lanes();
        let result = self.setxattr(home, &XattrChange { name, value: Some(&value), when });
        if result.is_err() {
            store.snapshots.remove(epoch);
        }
        result
    }

    /// The moment: what is stored through maps before it is in the snapshot, and programs that store later wait until it is
    /// over. So of what each of them stores, in one file or many, the snapshot has a beginning.
    fn end_epoch(&self, epoch: u32) -> Result<()> {
        let store = &self.store;
        let shows = store.snapshots.shows.write();
        if !store.host.leaves_out(Rule::MapsProtected) {
            shows.protect()?;
        }
        // In this order: who sees the new epoch knows of the snapshot.
        store.snapshots.add(epoch)?;
        store.epoch.store(epoch + 1, Release);
        Ok(())
    }

    /// Deletes a snapshot. What it alone sees becomes free in the background ([`Pool::maintain`]), or when it is
    /// needed.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn delete_snapshot(&self, name: &[u8]) -> Result<()> {
        self.store.before_operation()?;
        let store = &self.store;
        let _changing = store.snapshots.changing.lock();
        let epoch = self.epoch_of(name)?;
        let early = store.host.leaves_out(Rule::EndedFirst);
        if early {
            store.snapshots.remove(epoch);
            store.end_snapshots();
        }
        let removed = XattrChange { name, value: None, when: XattrWhen::Present };
        self.setxattr(store.snapshots.home(), &removed)?;
        self.end_views_of(epoch);
        Ok(())
    }

    /// Ends what is in memory of a snapshot that is no more. In one step: nobody begins to look into it meanwhile.
    pub(super) fn end_views_of(&self, epoch: u32) {
        let mut views = self.store.snapshots.views.write();
        if let Some(at) = views.iter().position(|view| *view == epoch) {
            self.nodes.end_views(&self.store.room, &|ino| index_of(ino) == Some(at));
            if let Some(view) = views.get_mut(at) {
                *view = 0;
            }
        }
        self.store.snapshots.remove(epoch);
    }
}
