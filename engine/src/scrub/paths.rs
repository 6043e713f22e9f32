//! The names of what was found.

use alloc::vec::Vec;

use lode_pmem::Medium;

use crate::inode::load_name;
use crate::{Error, Host, Ino, NAME_MAX, Pool, Result, mode};

impl<M: Medium, H: Host> Pool<M, H> {
    /// A path of each of these inodes, from the root, without a slash in front; nothing for those that none is
    /// found of: they have no name any more, or a directory on the way can't be read. Looks at the whole tree, if
    /// need be, and moves no access time.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn paths_of(&self, inos: &[Ino]) -> Result<Vec<(Ino, Vec<u8>)>> {
        let mut found: Vec<(Ino, Vec<u8>)> = Vec::new();
        found.try_reserve_exact(inos.len())?;
        let mut todo: Vec<(Ino, Vec<u8>)> = Vec::new();
        todo.try_reserve(1)?;
        todo.push((self.root(), Vec::new()));
        while found.len() < inos.len()
            && let Some((dir, path)) = todo.pop()
        {
            match self.names_in(dir, &path, inos, &mut found, &mut todo) {
                Err(Error::NoMemory) => return Err(Error::NoMemory),
                // What can't be read has no names.
                _ => continue,
            }
        }
        Ok(found)
    }

    #[inline(never)]
    fn names_in(
        &self,
        dir: Ino,
        path: &[u8],
        inos: &[Ino],
        found: &mut Vec<(Ino, Vec<u8>)>,
        todo: &mut Vec<(Ino, Vec<u8>)>,
    ) -> Result<()> {
        let node = self.node(dir)?;
        let state = node.read(&self.store)?;
        let mut name = [0u8; NAME_MAX];
        for entry in state.directory()?.entries.after(0) {
            let is_directory = u32::from(entry.kind) << 12 == mode::DIRECTORY;
            let is_new =
                inos.contains(&entry.ino) && found.iter().all(|(ino, _)| *ino != entry.ino);
            if !is_directory && !is_new {
                continue;
            }
            let Ok((_, len)) = load_name(&self.store, &state, &entry, &mut name) else { continue };
            let joined = || joined(path, name.get(..len).unwrap_or_default());
            if is_new {
                found.try_reserve(1)?;
                found.push((entry.ino, joined()?));
            }
            if is_directory {
                todo.try_reserve(1)?;
                todo.push((entry.ino, joined()?));
            }
        }
        Ok(())
    }
}

fn joined(path: &[u8], name: &[u8]) -> Result<Vec<u8>> {
    let mut joined = Vec::new();
    joined.try_reserve_exact(path.len() + 1 + name.len())?;
    joined.extend_from_slice(path);
    if !path.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    Ok(joined)
}
