//! Making and ending snapshots.
//!
//! A snapshot is made in the moment when the epoch is raised: transactions that began before are in it, and are
//! waited for; later ones are not. Nobody waits for that. It is durable with the record that tells its name;
//! a crash before leaves none, and an epoch more.

use core::sync::atomic::Ordering::{Release, SeqCst};

use lode_pmem::Medium;

use super::list::{NAME_BYTES_MAX, value_of};
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
    /// [`Error::Exists`]; [`Error::Busy`] while a program has a file mapped; [`Error::NoSpace`];
    /// [`Error::Invalid`] and [`Error::NameTooLong`] for names that can't be.
    pub fn create_snapshot(&self, name: &[u8]) -> Result<()> {
        valid_name(name)?;
        self.store.before_operation()?;
        let store = &self.store;
        let _changing = store.snapshots.changing.lock();
        let home = self.home_of_snapshots()?;
        match self.epoch_of(name) {
            Ok(_) => return Err(Error::Exists),
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        // (Who maps a file waits until this is over.)
        if store.snapshots.mapped.load(SeqCst) > 0 {
            return Err(Error::Busy);
        }
        let epoch = store.epoch();
        store.allow_epoch(epoch + 1)?;
        // In this order: who sees the new epoch knows of the snapshot.
        store.snapshots.add(epoch)?;
        store.epoch.store(epoch + 1, Release);
        store.wait_for_lanes();
        let value = value_of((epoch, self.now_ns()));
        let made = XattrChange { name, value: Some(&value), when: XattrWhen::Absent };
        let result = self.setxattr(home, &made);
        if result.is_err() {
            store.snapshots.remove(epoch);
        }
        result
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
    fn end_views_of(&self, epoch: u32) {
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
