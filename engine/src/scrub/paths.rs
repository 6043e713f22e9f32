//! The names of what was found.
//!
//! Names lead from directories to inodes, and not back: who wants a path looks through the tree. That is a search that its
//! caller takes on by some directories at a time, each of which is locked for reading while it is looked through.

use alloc::vec::Vec;

use lode_pmem::Medium;

use crate::VIEW;
use crate::inode::load_name;
use crate::{Error, Host, Ino, NAME_MAX, Pool, Result, mode};

/// A search for paths of inodes: see [`Pool::search_paths`].
#[derive(Debug)]
pub struct PathSearch {
    wanted: Vec<Ino>,
    found: Vec<(Ino, Vec<u8>)>,
    todo: Vec<(Ino, Vec<u8>)>,
    /// Directories that can still come: in a damaged pool one may lead back to itself.
    left: u64,
}

impl PathSearch {
    /// What was found so far: a path of an inode each, from the root of its tree, without a slash in front.
    pub fn into_found(self) -> Vec<(Ino, Vec<u8>)> {
        self.found
    }

    fn is_over(&self) -> bool {
        self.left == 0 || self.todo.is_empty() || self.found.len() >= self.wanted.len()
    }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// A path of each of these inodes, from the root, without a slash in front; nothing for those that none is
    /// found of: they have no name any more, or a directory on the way can't be read. Looks at the whole tree, if
    /// need be, and moves no access time.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn paths_of(&self, inos: &[Ino]) -> Result<Vec<(Ino, Vec<u8>)>> {
        let mut search = self.begin_paths(inos)?;
        while self.search_paths(&mut search, usize::MAX)? {}
        Ok(search.into_found())
    }

    /// Begins to look for paths of these inodes. Those in a snapshot are looked for there.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn begin_paths(&self, inos: &[Ino]) -> Result<PathSearch> {
        let (wanted, found, todo) = (Vec::new(), Vec::new(), Vec::new());
        let mut search = PathSearch { wanted, found, todo, left: 0 };
        let slots = self.store.table.used() + self.store.table.free();
        search.wanted.try_reserve_exact(inos.len())?;
        search.found.try_reserve_exact(inos.len())?;
        for ino in inos {
            if search.wanted.contains(ino) {
                continue;
            }
            search.wanted.push(*ino);
            let root = self.root_of(*ino);
            if root == *ino {
                search.found.push((root, Vec::new()));
            }
            if search.todo.iter().all(|(dir, _)| *dir != root) {
                search.todo.try_reserve(1)?;
                search.todo.push((root, Vec::new()));
                search.left += slots;
            }
        }
        Ok(search)
    }

    /// Looks through so many more directories. Says whether there is more to be done.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn search_paths(&self, search: &mut PathSearch, directories: usize) -> Result<bool> {
        for _ in 0..directories {
            if search.is_over() {
                return Ok(false);
            }
            let Some((dir, path)) = search.todo.pop() else { return Ok(false) };
            search.left -= 1;
            if let Err(Error::NoMemory) = self.names_in(dir, &path, search) {
                return Err(Error::NoMemory);
            }
            // What can't be read has no names.
        }
        Ok(!search.is_over())
    }

    /// The root directory of the tree that an inode's number is of: the pool's, or that of a snapshot.
    pub fn root_of(&self, ino: Ino) -> Ino {
        self.root() | (ino & !(VIEW - 1))
    }

    #[inline(never)]
    fn names_in(&self, dir: Ino, path: &[u8], search: &mut PathSearch) -> Result<()> {
        let node = self.node(dir)?;
        let state = node.read(&self.store)?;
        let PathSearch { wanted, found, todo, .. } = search;
        let mut name = [0u8; NAME_MAX];
        for entry in state.directory()?.entries.after(0) {
            let ino = entry.ino | state.view;
            let is_directory = u32::from(entry.kind) << 12 == mode::DIRECTORY;
            let is_new = wanted.contains(&ino) && found.iter().all(|(other, _)| *other != ino);
            if !is_directory && !is_new {
                continue;
            }
            let Ok((_, len)) = load_name(&self.store, &state, &entry, &mut name) else { continue };
            let joined = || joined(path, name.get(..len).unwrap_or_default());
            if is_new {
                found.try_reserve(1)?;
                found.push((ino, joined()?));
            }
            if is_directory {
                todo.try_reserve(1)?;
                todo.push((ino, joined()?));
            }
        }
        Ok(())
    }
}

/// The path of a name below another.
pub(crate) fn joined(path: &[u8], name: &[u8]) -> Result<Vec<u8>> {
    let mut joined = Vec::new();
    joined.try_reserve_exact(path.len() + 1 + name.len())?;
    joined.extend_from_slice(path);
    if !path.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    Ok(joined)
}
