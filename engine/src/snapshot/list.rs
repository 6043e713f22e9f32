//! Which snapshots there are: an extended attribute each, of an inode that no name leads to, whose place the
//! superblock says. Its log is a log like any other, but no snapshot sees it, and no rollback reaches it.

use alloc::vec::Vec;

use lode_pmem::Medium;

use super::entry::{Entry, Listed, SnapshotId};
use crate::inode::{State, load_for_scan, load_xattr_name, load_xattr_value};
use crate::layout::{FEATURE_SNAPSHOTS, Superblock, slot_at};
use crate::log::{Walk, read_identity};
use crate::rule::Rule;
use crate::store::{Item, Store};
use crate::{Error, Host, Ino, NewInode, Pool, Result, mode};

/// Bytes of a name, at most.
pub(super) const NAME_BYTES_MAX: usize = 128;

/// A snapshot, and what is kept for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotInfo {
    /// Its name.
    pub name: Vec<u8>,
    /// The epoch that it ended.
    pub epoch: u32,
    /// When it was made, in nanoseconds since 1970.
    pub created_ns: i64,
    /// Pages that are kept for it and for older ones: those that are free when all these are deleted.
    pub pages: u64,
    /// Pages of these that it alone sees: those that are free when it is deleted.
    pub pages_alone: u64,
}

/// All that the list says of what counts.
fn all_in<M: Medium, H: Host>(store: &Store<M, H>, state: &State) -> Result<Vec<Listed>> {
    let (mut all, mut order) = (Vec::new(), Vec::new());
    all.try_reserve_exact(state.xattrs.len())?;
    order.try_reserve_exact(state.xattrs.len())?;
    for xattr in state.xattrs.iter() {
        let name = load_xattr_name(store, state, xattr)?;
        let entry = Entry::parse(&load_xattr_value(store, state, xattr)?);
        let entry = entry.filter(|entry| entry.epoch > 0 && entry.epoch < store.epoch());
        let impossible = Error::corrupt_inode("snapshot that can not be", xattr.at, state.log.ino);
        let entry = entry.ok_or(impossible)?;
        // (Snapshots later than what a pool is rolled back to are no more: whoever opens it for writing ends them.)
        if entry.epoch > store.counted && !store.host.leaves_out(Rule::LaterEnded) {
            continue;
        }
        order.push(u64::from(entry.epoch) << 32 | all.len() as u64);
        all.push(Listed { name, entry });
    }
    // (By numbers: sorting the names themselves would take a large frame of the stack.)
    order.sort_unstable();
    if order.windows(2).any(|two| matches!(two, [one, other] if one >> 32 == other >> 32)) {
        let at = slot_at(state.log.ino);
        return Err(Error::corrupt_inode("two snapshots of one epoch", at, state.log.ino));
    }
    let mut sorted = Vec::new();
    sorted.try_reserve_exact(all.len())?;
    for number in order {
        let taken = all.get_mut(number as u32 as usize).map(core::mem::take);
        sorted.extend(taken);
    }
    Ok(sorted)
}

/// Reads which snapshots a pool has that is being opened, before anything else is read of it.
///
/// # Errors
/// [`Error::Corrupt`] where the list is lost or damaged.
pub(crate) fn read_list<M: Medium, H: Host>(
    store: &Store<M, H>,
    superblock: &Superblock,
) -> Result<()> {
    let home = superblock.snapshots;
    if home == 0 {
        return Ok(());
    }
    store.snapshots.set_home(home);
    let mut is_there = superblock.rollback == 0;
    for Listed { entry, .. } in load_list(store, superblock)? {
        is_there |= entry.epoch == superblock.rollback;
        store.snapshots.add(entry.epoch)?;
    }
    if is_there { Ok(()) } else { Err(lost(home)) }
}

fn lost(home: Ino) -> Error {
    Error::corrupt_inode("the list of snapshots is lost", slot_at(home), home)
}

/// The list of a pool that has one, from its log.
#[inline(never)]
fn load_list<M: Medium, H: Host>(
    store: &Store<M, H>,
    superblock: &Superblock,
) -> Result<Vec<Listed>> {
    let home = superblock.snapshots;
    let (identity, head, _, seal) = read_identity(store, home)?.ok_or(lost(home))?;
    if identity.nonce != superblock.snapshots_nonce {
        return Err(lost(home));
    }
    let walk = Walk::new(store, &identity, head, seal)?;
    let scanned = load_for_scan(store, walk, None, &mut |_| ())?;
    all_in(store, &*scanned.state.ok_or(lost(home))?)
}

/// What is being received into a pool, or given up.
#[derive(Clone, Copy)]
pub(crate) struct Over {
    /// The epoch of what the pool was before.
    pub(crate) before: u32,
    /// The pool is that again.
    pub(crate) is_abandoned: bool,
}

/// What is being received into a pool. `None` of any other, and where the list can't be read: whoever opens the pool
/// meets that again.
///
/// # Errors
/// [`Error::NoMemory`].
pub(crate) fn received_over<M: Medium, H: Host>(
    store: &Store<M, H>,
    superblock: &Superblock,
) -> Result<Option<Over>> {
    if superblock.snapshots == 0 {
        return Ok(None);
    }
    // (Of it all records count.)
    store.snapshots.set_home(superblock.snapshots);
    let all = match load_list(store, superblock) {
        Ok(all) => all,
        Err(error) => return error.into_damage().map(|_| None),
    };
    let mark = all.into_iter().find(|one| one.entry.is_mark());
    Ok(mark.map(|Listed { entry, .. }| Over {
        before: entry.epoch,
        is_abandoned: entry.is_abandoned(),
    }))
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// All snapshots, the oldest first.
    pub fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        let mut infos = Vec::new();
        let said = self.snapshots_said()?;
        infos.try_reserve_exact(said.len())?;
        let mut before = 0;
        for Listed { name, entry: Entry { epoch, created_ns, .. } } in said {
            infos.push(SnapshotInfo { name, epoch, created_ns, pages: 0, pages_alone: 0 });
        }
        let twice = if self.store.geometry.twin_pages == 0 { 1 } else { 2 };
        self.store.snapshots.for_each(&mut |epoch, items: &[Item]| {
            let pages = |item: &Item| match item.run() {
                Some(run) if item.kind() == crate::store::Kept::Log => twice * run.pages,
                run => run.map_or(0, |run| run.pages),
            };
            let at = infos.binary_search_by_key(&epoch, |info| info.epoch);
            if let Some(info) = at.ok().and_then(|at| infos.get_mut(at)) {
                info.pages = items.iter().map(pages).sum();
                let alone = items.iter().filter(|item| item.born() > before);
                info.pages_alone = alone.map(pages).sum();
            }
            before = epoch;
            Ok(())
        })?;
        Ok(infos)
    }

    /// Names of all snapshots, the oldest first, each with the epoch that it ended.
    pub fn snapshot_names(&self) -> Result<Vec<(Vec<u8>, u32)>> {
        let said = self.snapshots_said()?;
        let mut names = Vec::new();
        names.try_reserve_exact(said.len())?;
        names.extend(said.into_iter().map(|one| (one.name, one.entry.epoch)));
        Ok(names)
    }

    /// All snapshots, the oldest first; not what is only being received.
    pub(super) fn snapshots_said(&self) -> Result<Vec<Listed>> {
        let mut all = self.listed()?;
        all.retain(|one| !one.entry.is_mark());
        Ok(all)
    }

    /// All entries of the list, the oldest first.
    pub(super) fn listed(&self) -> Result<Vec<Listed>> {
        let home = self.store.snapshots.home();
        if home == 0 {
            return Ok(Vec::new());
        }
        let node = self.node(home)?;
        let state = node.read(&self.store)?;
        all_in(&self.store, &state)
    }

    /// What the list says of a name.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn listed_as(&self, name: &[u8]) -> Result<Entry> {
        let home = self.store.snapshots.home();
        if home == 0 {
            return Err(Error::NotFound);
        }
        match self.getxattr(home, name) {
            Ok(value) => Entry::parse(&value).ok_or(Error::corrupt("snapshot that can not be", 0)),
            Err(Error::NoAttribute) => Err(Error::NotFound),
            Err(error) => Err(error),
        }
    }

    /// The epoch of a snapshot.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn epoch_of(&self, name: &[u8]) -> Result<u32> {
        let entry = self.listed_as(name)?;
        if entry.is_mark() { Err(Error::NotFound) } else { Ok(entry.epoch) }
    }

    /// What snapshot it is, wherever it is: its own, or that of the one that it was received as.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn snapshot_id(&self, name: &[u8]) -> Result<SnapshotId> {
        let entry = self.listed_as(name)?;
        if entry.is_mark() {
            return Err(Error::NotFound);
        }
        let own = self.store.superblock.lock().uuid;
        Ok(entry.id(own))
    }

    /// The inode with the list, which is made if there is none.
    pub(super) fn home_of_snapshots(&self) -> Result<Ino> {
        let home = self.store.snapshots.home();
        if home != 0 {
            return Ok(home);
        }
        // Until the superblock says what it is for, it is a file without a name: a crash ends it.
        let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
        let made = self.create_nameless(self.root(), &new, &[])?;
        let mut superblock = self.store.superblock.lock();
        self.store.change_superblock(&mut superblock, |superblock| {
            (superblock.snapshots, superblock.snapshots_nonce) = (made.ino, made.generation);
            superblock.features[1] |= FEATURE_SNAPSHOTS;
        })?;
        self.store.snapshots.set_home(made.ino);
        Ok(made.ino)
    }
}
