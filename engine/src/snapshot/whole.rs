//! Whether all of a snapshot is there: asked before a pool becomes it, as nobody can go back from that.
//!
//! Its tree is gone through by its names. So what is told has the path that it has there, and what only other snapshots see is not
//! looked at. It takes as long as to load all inodes of the snapshot; no file data is read.

use alloc::vec::Vec;

use lode_pmem::Medium;

use crate::inode::{NameTarget, load_name, load_xattr_value, target_of};
use crate::scrub::joined;
use crate::{Corruption, Error, Host, Ino, NAME_MAX, Pool, Result, mode};

/// Losses that are named.
const NAMED_MAX: usize = 100;

/// Something of a snapshot that can't be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotLoss {
    /// Its path in the snapshot, without a slash in front; empty for the root directory.
    pub path: Vec<u8>,
    /// What is wrong, and where.
    pub damage: Corruption,
}

/// What of a snapshot can't be read: contents of files apart, which nobody has looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SnapshotLosses {
    /// The first 100.
    pub named: Vec<SnapshotLoss>,
    /// How many there are. What is below a directory that can't be read is not counted.
    pub count: u64,
}

impl SnapshotLosses {
    fn note(&mut self, path: Vec<u8>, error: Error) -> Result<()> {
        let damage = error.into_damage()?;
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            self.named.try_reserve(1)?;
            self.named.push(SnapshotLoss { path, damage });
        }
        Ok(())
    }
}

/// A name, and what it has to lead to.
struct Named {
    path: Vec<u8>,
    target: NameTarget,
    at: u64,
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// What of a snapshot can't be read. The pool may be in use.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none of this name, or none any more.
    pub fn lost_in_snapshot(&self, name: &[u8]) -> Result<SnapshotLosses> {
        let epoch = self.epoch_of(name)?;
        let root = self.snapshot_root(name)?;
        let (mut lost, mut todo) = (SnapshotLosses::default(), Vec::new());
        todo.try_reserve(1)?;
        todo.push((root, Vec::new()));
        // (A directory that is damaged may lead back to itself.)
        let mut left = self.store.table.used() + self.store.table.free();
        while let Some((dir, path)) = todo.pop().filter(|_| left > 0) {
            left -= 1;
            let names = match self.names_of(dir, &path, &mut lost) {
                Ok(names) => names,
                Err(error) => {
                    lost.note(path, error)?;
                    continue;
                }
            };
            for named in names {
                let looked = self.look_whole(&named);
                let Named { path, target, .. } = named;
                match looked {
                    Ok(()) if u32::from(target.kind) << 12 == mode::DIRECTORY => {
                        todo.try_reserve(1)?;
                        todo.push((target.ino, path));
                    }
                    Ok(()) => {}
                    Err(error) => lost.note(path, error)?,
                }
            }
        }
        // Of a snapshot that was deleted meanwhile all is lost.
        if self.epoch_of(name)? == epoch { Ok(lost) } else { Err(Error::NotFound) }
    }

    #[inline(never)]
    fn names_of(&self, dir: Ino, path: &[u8], lost: &mut SnapshotLosses) -> Result<Vec<Named>> {
        let node = self.node(dir)?;
        let state = node.read(&self.store)?;
        let entries = &state.directory()?.entries;
        let mut names = Vec::new();
        names.try_reserve_exact(entries.len())?;
        let mut name = [0u8; NAME_MAX];
        for entry in entries.iter() {
            let (parsed, len) = match load_name(&self.store, &state, &entry, &mut name) {
                Ok(loaded) => loaded,
                Err(error) => {
                    lost.note(joined(path, b"?")?, error)?;
                    continue;
                }
            };
            let Some(target) = target_of(&entry, &parsed) else { continue };
            let path = joined(path, name.get(..len).unwrap_or_default())?;
            names.push(Named { path, target, at: entry.at });
        }
        Ok(names)
    }

    /// Looks at what a name leads to.
    #[inline(never)]
    fn look_whole(&self, named: &Named) -> Result<()> {
        let Named { target, at, .. } = named;
        let no_inode = Error::corrupt_inode("entry leads to no inode", *at, target.ino);
        let told = |error| if error == Error::Stale { no_inode } else { error };
        let node = self.node(target.ino).map_err(told)?;
        let state = node.read(&self.store).map_err(told)?;
        if !target.means(&state) {
            let what = "entry leads to another inode than it says";
            return Err(Error::corrupt_inode(what, *at, target.ino));
        }
        for xattr in state.xattrs.iter() {
            load_xattr_value(&self.store, &state, xattr)?;
        }
        Ok(())
    }
}
