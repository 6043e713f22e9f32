//! What of the older tree goes, or leaves its place: children before their parents.

use std::collections::HashSet;

use lode_engine::{Host, Ino, Pool, ino_beside};
use lode_pmem::Medium;

use super::Trees;
use super::tree::{Child, Step, Walk, there};
use crate::Result;
use crate::wire::Change;

/// The first phase.
pub(super) struct Leave {
    walk: Walk,
    /// Those that wait under a name more.
    waiting: HashSet<Ino>,
}

impl Leave {
    /// Of the tree at `old`.
    pub(super) fn new<M: Medium, H: Host>(
        pool: &Pool<M, H>,
        trees: &Trees,
        old: Ino,
    ) -> Result<Self> {
        Ok(Self { walk: Walk::new(pool, old, Some(trees.new))?, waiting: HashSet::new() })
    }

    /// Looks at one entry. `false` at the end.
    pub(super) fn step<M: Medium, H: Host>(
        &mut self,
        pool: &Pool<M, H>,
        trees: &mut Trees,
    ) -> Result<bool> {
        match self.walk.step()? {
            Step::End => return Ok(false),
            Step::Child(child) if child.is_directory => self.walk.enter(pool, child.ino)?,
            Step::Child(child) => self.file(&child, trees),
            Step::Left(child) => self.directory(pool, &child, trees)?,
        }
        Ok(true)
    }

    fn file(&mut self, child: &Child, trees: &mut Trees) {
        let number = ino_beside(child.ino, 0);
        if trees.held.contains(&number) && self.waiting.insert(number) {
            trees.waits = true;
            trees.found.push_back(Change::Hold { path: self.walk.path().to_vec(), number });
        }
        if self.goes(child, trees) {
            let path = self.walk.path().to_vec();
            trees.found.push_back(Change::Remove { path, is_directory: false });
        }
    }

    fn directory<M: Medium, H: Host>(
        &mut self,
        pool: &Pool<M, H>,
        child: &Child,
        trees: &mut Trees,
    ) -> Result<()> {
        if !self.goes(child, trees) {
            return Ok(());
        }
        let path = self.walk.path().to_vec();
        let change = if there(pool, child.ino, Some(trees.new), &path)?.is_some() {
            trees.waits = true;
            trees.touched.insert(ino_beside(child.ino, 0));
            Change::Leave { path, number: ino_beside(child.ino, 0) }
        } else {
            Change::Remove { path, is_directory: true }
        };
        trees.found.push_back(change);
        Ok(())
    }

    /// Whether the newer tree lacks this entry of the last directory.
    fn goes(&self, child: &Child, trees: &mut Trees) -> bool {
        let Some(level) = self.walk.level().filter(|level| !level.has_other(child)) else {
            return false;
        };
        trees.touched.insert(ino_beside(level.dir, 0));
        true
    }
}
