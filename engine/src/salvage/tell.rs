//! What was done to names and inodes, told when all names are right: then every path is whole.

use alloc::vec::Vec;

use hashbrown::HashMap;
use lode_pmem::Medium;

use super::tree::{Done, Tree, copied, numbered};
use super::{Salvage, report::Told};
use crate::inode::{Mix, load_name};
use crate::{Host, Ino, NAME_MAX, Result, mode};

/// Tells all that was done.
pub(super) fn tell<M: Medium, H: Host>(tree: &mut Tree<'_, M, H>, told: Told<'_>) -> Result<()> {
    let done = core::mem::take(&mut tree.done);
    let removed = core::mem::take(&mut tree.removed);
    let names = names_of_files(tree, &done)?;
    let mut paths = Paths { tree, names, last: None };
    for done in &done {
        match *done {
            Done::Made { was, ino, ref attributes } => {
                let path = paths.of_dir(ino)?;
                told(Salvage::DirectoryMade { ino: was, path: &path, attributes });
            }
            Done::Attached { ino, dir, ref name } => {
                let dir = paths.of_dir(dir)?;
                told(Salvage::Attached { ino, dir: &dir, name });
            }
            Done::Links { ino, links } => {
                let path = paths.of(ino)?;
                told(Salvage::LinksSet { ino, path: path.as_deref(), links });
            }
            Done::Attribute { ino, ref name, group_cleared } => {
                let path = paths.of(ino)?;
                let path = path.as_deref();
                told(Salvage::AttributeRemoved { ino, path, name, group_cleared });
            }
        }
    }
    for entry in removed.iter().filter(|entry| !entry.is_back) {
        let dir = paths.of_dir(entry.dir)?;
        told(Salvage::EntryRemoved { dir: &dir, name: &entry.name, ino: entry.child });
    }
    Ok(())
}

/// Names that lead to inodes: directory and name.
type Names = HashMap<Ino, Option<(Ino, Vec<u8>)>, Mix>;

/// A name of each inode that is told of by its number alone: directories are looked through
/// only where there is one.
fn names_of_files<M: Medium, H: Host>(tree: &Tree<'_, M, H>, done: &[Done]) -> Result<Names> {
    let mut names = Names::with_hasher(Mix::default());
    for done in done {
        if let Done::Links { ino, .. } | Done::Attribute { ino, .. } = *done {
            names.try_reserve(1)?;
            names.insert(ino, None);
        }
    }
    let is_dir = |ino: &&Ino| tree.seen.get(*ino).is_some_and(|seen| seen.kind == mode::DIRECTORY);
    let mut name = [0; NAME_MAX];
    let dirs: &[Ino] = if names.is_empty() { &[] } else { &tree.inos };
    for dir in dirs.iter().filter(is_dir) {
        let node = tree.pool.node(*dir)?;
        let state = node.read(&tree.pool.store)?;
        let Ok(directory) = state.directory() else { continue };
        for entry in directory.entries.iter() {
            let Some(wanted) = names.get_mut(&entry.ino).filter(|name| name.is_none()) else {
                continue;
            };
            let (_, len) = load_name(&tree.pool.store, &state, &entry, &mut name)?;
            *wanted = Some((*dir, copied(name.get(..len).unwrap_or_default())?));
        }
    }
    Ok(names)
}

/// Finds paths.
struct Paths<'t, 'p, M: Medium, H: Host> {
    tree: &'t Tree<'p, M, H>,
    names: Names,
    /// That of a directory that was asked for last.
    last: Option<(Ino, Vec<u8>)>,
}

impl<M: Medium, H: Host> Paths<'_, '_, M, H> {
    /// A path of an inode that has a name in `names`.
    fn of(&mut self, ino: Ino) -> Result<Option<Vec<u8>>> {
        if ino == self.tree.pool.store.root {
            return self.of_dir(ino).map(Some);
        }
        let Some((dir, name)) = self.names.get_mut(&ino).and_then(Option::take) else {
            return Ok(None);
        };
        let mut path = self.of_dir(dir)?;
        path.try_reserve(name.len() + 1)?;
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        self.names.insert(ino, Some((dir, name)));
        Ok(Some(path))
    }

    /// The path of a directory. It begins with a number where names do not lead to it from the root: of
    /// a salvage that failed.
    fn of_dir(&mut self, dir: Ino) -> Result<Vec<u8>> {
        if let Some((_, path)) = self.last.as_ref().filter(|(ino, _)| *ino == dir) {
            return copied(path);
        }
        let root = self.tree.pool.store.root;
        let (mut path, mut at) = (Vec::new(), dir);
        for _ in 0..self.tree.seen.len() {
            let Some(seen) = self.tree.seen.get(&at).filter(|_| at != root) else { break };
            let Some(name) = self.tree.name_of(seen.parent, at)? else { break };
            path.try_reserve(name.len() + 1)?;
            path.splice(0..0, [b'/'].into_iter().chain(name));
            at = seen.parent;
        }
        if at != root {
            let number = numbered(at)?;
            path.try_reserve(number.len())?;
            path.splice(0..0, number);
        } else if path.is_empty() {
            path = copied(b"/")?;
        }
        self.last = Some((dir, copied(&path)?));
        Ok(path)
    }
}
