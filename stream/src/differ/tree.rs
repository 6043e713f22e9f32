//! Walking a tree: directories with their entries in order of names, and the same directory in the other tree.

use std::collections::HashMap;

use lode_engine::{Attr, Error as Engine, Host, Ino, Pool, ino_beside, mode};
use lode_pmem::Medium;

use crate::error::{Doing, shown};
use crate::{Error, Result};

/// Bytes of a path, at most.
const PATH_MAX: usize = 65_535;

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Child {
    pub(super) name: Vec<u8>,
    pub(super) ino: Ino,
    pub(super) is_directory: bool,
}

/// A directory on the way.
pub(super) struct Level {
    /// Its number.
    pub(super) dir: Ino,
    children: Vec<Child>,
    next: usize,
    /// What the same directory has in the other tree, where it is there.
    others: HashMap<Vec<u8>, Ino>,
    /// Bytes of its path.
    path_len: usize,
}

impl Level {
    /// Whether the directory has this entry in the other tree, too.
    pub(super) fn has_other(&self, child: &Child) -> bool {
        let there = self.others.get(&child.name);
        there.is_some_and(|ino| ino_beside(*ino, 0) == ino_beside(child.ino, 0))
    }
}

/// Directories that are gone through, the root first.
pub(super) struct Walk {
    levels: Vec<Level>,
    path: Vec<u8>,
    /// Root of the other tree, if there is one.
    other: Option<Ino>,
}

/// What a walk comes to.
pub(super) enum Step {
    /// An entry. [`Walk::enter`] goes on below it.
    Child(Child),
    /// The end of a directory that was an entry of what is now the last level.
    Left(Child),
    /// The end of the root.
    End,
}

impl Walk {
    /// A walk from `root` on, beside the tree of `other`.
    pub(super) fn new<M: Medium, H: Host>(
        pool: &Pool<M, H>,
        root: Ino,
        other: Option<Ino>,
    ) -> Result<Self> {
        let mut walk = Self { levels: Vec::new(), path: Vec::new(), other };
        walk.enter(pool, root)?;
        Ok(walk)
    }

    /// Goes on in a directory, whose path is the last one.
    pub(super) fn enter<M: Medium, H: Host>(&mut self, pool: &Pool<M, H>, dir: Ino) -> Result<()> {
        let mut children = children(pool, dir, &self.path)?;
        children.sort_unstable();
        let mut others = HashMap::new();
        if let Some(other) = there(pool, dir, self.other, &self.path)? {
            let all = self::children(pool, other.ino, &self.path)?;
            others.extend(all.into_iter().map(|child| (child.name, child.ino)));
        }
        let path_len = self.path.len();
        self.levels.push(Level { dir, children, next: 0, others, path_len });
        Ok(())
    }

    /// What comes next.
    pub(super) fn step(&mut self) -> Result<Step> {
        let Some(level) = self.levels.last_mut() else { return Ok(Step::End) };
        self.path.truncate(level.path_len);
        if let Some(child) = level.children.get_mut(level.next) {
            level.next += 1;
            let child = child.clone();
            if level.path_len > 0 {
                self.path.push(b'/');
            }
            self.path.extend(&child.name);
            if self.path.len() > PATH_MAX {
                let path = shown(&self.path);
                return Err(Error::PathTooLong { path, bytes: self.path.len() });
            }
            return Ok(Step::Child(child));
        }
        self.levels.pop();
        let left = self.levels.last().and_then(|level| level.children.get(level.next - 1));
        Ok(left.cloned().map_or(Step::End, Step::Left))
    }

    /// The path that it has come to.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// The directory that it is in.
    pub(super) fn level(&self) -> Option<&Level> {
        self.levels.last()
    }
}

fn children<M: Medium, H: Host>(pool: &Pool<M, H>, dir: Ino, path: &[u8]) -> Result<Vec<Child>> {
    let mut children = Vec::new();
    pool.readdir(dir, 0, &mut |entry| {
        let is_directory = entry.kind == mode::DIRECTORY;
        children.push(Child { name: entry.name.to_vec(), ino: entry.ino, is_directory });
        true
    })
    .doing("listing", path)?;
    Ok(children)
}

/// An inode as the other tree has it, if it is in there. (What has no name is not, though it may be open.)
pub(super) fn there<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    other: Option<Ino>,
    path: &[u8],
) -> Result<Option<Attr>> {
    let Some(other) = other else { return Ok(None) };
    match pool.getattr(ino_beside(ino, other)) {
        Ok(attr) => Ok((attr.links > 0).then_some(attr)),
        Err(Engine::Stale | Engine::NotFound) => Ok(None),
        Err(error) => Err(error).doing("looking at", path),
    }
}
