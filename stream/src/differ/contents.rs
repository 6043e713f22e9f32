//! What differs in inodes: sizes, data, extended attributes, permissions, owners and times.

use std::collections::{BTreeSet, HashSet};

use lode_engine::{Attr, Host, Ino, Pool, ino_beside, mode};
use lode_pmem::Medium;

use super::Trees;
use super::data::{Data, plan};
use super::tree::{Step, Walk, there};
use crate::Result;
use crate::error::Doing;
use crate::wire::Change;

/// The third phase.
pub(super) struct Contents {
    walk: Walk,
    /// Inodes with several names that were looked at.
    seen: HashSet<Ino>,
    /// The file whose data is being told.
    filling: Option<Filling>,
    begun: bool,
}

struct Filling {
    data: Data,
    last: Change,
}

impl Contents {
    /// Of the newer tree.
    pub(super) fn new<M: Medium, H: Host>(pool: &Pool<M, H>, trees: &Trees) -> Result<Self> {
        let walk = Walk::new(pool, trees.new, None)?;
        Ok(Self { walk, seen: HashSet::new(), filling: None, begun: false })
    }

    /// Tells of one inode, or of a part of its data. `false` at the end.
    pub(super) fn step<M: Medium, H: Host>(
        &mut self,
        pool: &Pool<M, H>,
        trees: &mut Trees,
    ) -> Result<bool> {
        if let Some(filling) = &mut self.filling {
            if !filling.data.step(pool, &mut trees.found)? {
                let last = self.filling.take().map(|filling| filling.last);
                trees.found.extend(last);
            }
            return Ok(true);
        }
        if !self.begun {
            self.begun = true;
            self.inode(pool, trees.new, trees)?;
            return Ok(true);
        }
        match self.walk.step()? {
            Step::End => return Ok(false),
            Step::Left(_) => {}
            Step::Child(child) => {
                self.inode(pool, child.ino, trees)?;
                if child.is_directory {
                    self.walk.enter(pool, child.ino)?;
                }
            }
        }
        Ok(true)
    }

    fn inode<M: Medium, H: Host>(
        &mut self,
        pool: &Pool<M, H>,
        ino: Ino,
        trees: &mut Trees,
    ) -> Result<()> {
        let path = if ino == trees.new { &[] } else { self.walk.path() };
        let new = pool.getattr(ino).doing("looking at", path)?;
        let is_directory = new.mode & mode::TYPE == mode::DIRECTORY;
        if new.links > 1 && !is_directory && !self.seen.insert(ino) {
            return Ok(());
        }
        let old = there(pool, ino, trees.old, path)?;
        let mut changes = xattrs(pool, path, &new, old.as_ref())?;
        let last = attributes(path, &new);
        let is_touched = trees.touched.contains(&ino_beside(ino, 0));
        let same = !is_touched && old.is_some_and(|old| is_same(&old, &new, trees.access_times));
        let mut data = None;
        if new.mode & mode::TYPE == mode::FILE {
            let planned = plan(pool, path, &new, old.as_ref(), &mut changes)?;
            data = Some(planned).filter(|data| !data.is_empty());
        }
        if changes.is_empty() && data.is_none() && same {
            return Ok(());
        }
        trees.found.extend(changes);
        match data {
            Some(data) => self.filling = Some(Filling { data, last }),
            None => trees.found.push_back(last),
        }
        Ok(())
    }
}

fn is_same(old: &Attr, new: &Attr, access_times: bool) -> bool {
    let told = |attr: &Attr| (attr.mode, attr.uid, attr.gid, attr.mtime_ns);
    told(old) == told(new) && (!access_times || old.atime_ns == new.atime_ns)
}

fn attributes(path: &[u8], attr: &Attr) -> Change {
    Change::Attr {
        path: path.to_vec(),
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        atime_ns: attr.atime_ns,
        mtime_ns: attr.mtime_ns,
    }
}

fn names<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    path: &[u8],
    attr: Option<&Attr>,
) -> Result<BTreeSet<Vec<u8>>> {
    match attr.filter(|attr| attr.xattrs > 0) {
        Some(attr) => {
            let names = pool.listxattr(attr.ino).doing("listing attributes of", path)?;
            Ok(names.into_iter().collect())
        }
        None => Ok(BTreeSet::new()),
    }
}

/// Extended attributes that differ.
fn xattrs<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    path: &[u8],
    new: &Attr,
    old: Option<&Attr>,
) -> Result<Vec<Change>> {
    let (new_names, old_names) = (names(pool, path, Some(new))?, names(pool, path, old)?);
    let mut changes = Vec::new();
    for name in old_names.difference(&new_names) {
        changes.push(Change::RemoveXattr { path: path.to_vec(), name: name.clone() });
    }
    let value = |attr: &Attr, name: &[u8]| {
        pool.getxattr(attr.ino, name).doing("reading an attribute of", path)
    };
    for name in new_names {
        let wanted = value(new, &name)?;
        let there = match old.filter(|_| old_names.contains(&name)) {
            Some(old) => Some(value(old, &name)?),
            None => None,
        };
        if there.as_ref() != Some(&wanted) {
            changes.push(Change::SetXattr { path: path.to_vec(), name, value: wanted });
        }
    }
    Ok(changes)
}
