//! What of the newer tree comes: parents before their children.

use std::collections::HashMap;

use lode_engine::{Host, Ino, Pool, ino_beside, mode};
use lode_pmem::Medium;

use super::Trees;
use super::tree::{Child, Step, Walk, there};
use crate::Result;
use crate::error::Doing;
use crate::wire::Change;

/// Finds which inodes, directories apart, were there and get a name that they had not, before the first phase.
pub(super) struct Held {
    walk: Walk,
    /// Root of the older tree.
    pub(super) old: Ino,
}

impl Held {
    /// Of the newer tree, beside the one at `old`.
    pub(super) fn new<M: Medium, H: Host>(
        pool: &Pool<M, H>,
        trees: &Trees,
        old: Ino,
    ) -> Result<Self> {
        Ok(Self { walk: Walk::new(pool, trees.new, Some(old))?, old })
    }

    /// Looks at one entry. `false` at the end.
    pub(super) fn step<M: Medium, H: Host>(
        &mut self,
        pool: &Pool<M, H>,
        trees: &mut Trees,
    ) -> Result<bool> {
        match self.walk.step()? {
            Step::End => return Ok(false),
            Step::Left(_) => {}
            Step::Child(child) if child.is_directory => self.walk.enter(pool, child.ino)?,
            Step::Child(child) => {
                let comes = self.walk.level().is_some_and(|level| !level.has_other(&child));
                if comes && there(pool, child.ino, trees.old, self.walk.path())?.is_some() {
                    trees.held.insert(ino_beside(child.ino, 0));
                }
            }
        }
        Ok(true)
    }
}

/// The second phase.
pub(super) struct Arrive {
    walk: Walk,
    /// The first paths of new inodes that have several names.
    made: HashMap<Ino, Vec<u8>>,
}

impl Arrive {
    /// Of the newer tree.
    pub(super) fn new<M: Medium, H: Host>(pool: &Pool<M, H>, trees: &Trees) -> Result<Self> {
        Ok(Self { walk: Walk::new(pool, trees.new, trees.old)?, made: HashMap::new() })
    }

    /// Looks at one entry. `false` at the end.
    pub(super) fn step<M: Medium, H: Host>(
        &mut self,
        pool: &Pool<M, H>,
        trees: &mut Trees,
    ) -> Result<bool> {
        match self.walk.step()? {
            Step::End => return Ok(false),
            Step::Left(_) => {}
            Step::Child(child) => {
                if let Some(level) = self.walk.level().filter(|level| !level.has_other(&child)) {
                    trees.touched.insert(ino_beside(level.dir, 0));
                    let change = self.change(pool, &child, trees)?;
                    trees.found.push_back(change);
                }
                if child.is_directory {
                    self.walk.enter(pool, child.ino)?;
                }
            }
        }
        Ok(true)
    }

    fn change<M: Medium, H: Host>(
        &mut self,
        pool: &Pool<M, H>,
        child: &Child,
        trees: &Trees,
    ) -> Result<Change> {
        let (path, number) = (self.walk.path().to_vec(), ino_beside(child.ino, 0));
        if there(pool, child.ino, trees.old, &path)?.is_some() {
            return Ok(match child.is_directory {
                true => Change::Come { path, number },
                false => Change::Attach { path, number },
            });
        }
        if let Some(existing) = self.made.get(&number) {
            return Ok(Change::Link { path, existing: existing.clone() });
        }
        let attr = pool.getattr(child.ino).doing("looking at", &path)?;
        if attr.links > 1 && !child.is_directory {
            self.made.insert(number, path.clone());
        }
        let target = match attr.mode & mode::TYPE {
            mode::SYMLINK => pool.readlink(child.ino).doing("reading the target of", &path)?,
            _ => Vec::new(),
        };
        Ok(Change::Make { path, mode: attr.mode, rdev: attr.rdev, target })
    }
}
