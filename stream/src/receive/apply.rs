//! One change of a stream, made in the tree of a pool by ordinary operations, each atomic. Each can be made twice.

use lode_engine::{
    Error as Engine, Fallocate, Host, Ino, NewInode, Pool, RenameMode, SetAttr, XattrChange,
    XattrWhen, mode,
};
use lode_pmem::Medium;

use crate::error::Doing;
use crate::wire::Change;
use crate::{Error, Result};

type EngineResult<T> = std::result::Result<T, Engine>;

/// The tree of a pool.
pub(super) struct Tree<'p, M: Medium, H: Host> {
    pool: &'p Pool<M, H>,
    /// Name of the directory in the root for what moves.
    staging: Vec<u8>,
    /// The last path that data was for, and its inode.
    last: Option<(Vec<u8>, Ino)>,
}

/// The path of the directory of an entry, and its name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default()),
        None => (&[], path),
    }
}

fn name_of(number: u64) -> Vec<u8> {
    format!("{number:x}").into_bytes()
}

/// Whether something is there.
fn found<T>(result: EngineResult<T>) -> EngineResult<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Engine::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

fn ignoring(result: EngineResult<()>, what: Engine) -> EngineResult<()> {
    if result == Err(what) { Ok(()) } else { result }
}

fn kind_of(bits: u32) -> u32 {
    bits & mode::TYPE
}

impl<'p, M: Medium, H: Host> Tree<'p, M, H> {
    /// The tree of this pool; what moves is in a directory of this name.
    pub(super) fn new(pool: &'p Pool<M, H>, staging: &[u8]) -> Self {
        Self { pool, staging: staging.to_vec(), last: None }
    }

    /// Makes a change, which is told behind `offset` of the stream.
    ///
    /// # Errors
    /// [`Error::Impossible`] for what is no change of a tree; [`Error::Pool`].
    pub(super) fn apply(&mut self, change: &Change, offset: u64) -> Result<()> {
        let impossible = |what| Error::Impossible { offset, what };
        let path = change.path();
        if path.split(|byte| *byte == b'/').next() == Some(self.staging.as_slice()) {
            return Err(impossible("it names its own directory for what moves"));
        }
        match change {
            Change::Make { mode, target, .. } => {
                let is_symlink = kind_of(*mode) == mode::SYMLINK;
                if *mode > mode::ALL || is_symlink == target.is_empty() {
                    return Err(impossible("an inode of no known kind"));
                }
                self.last = None;
                self.make(change).doing("making", path)
            }
            Change::Clear => self.clear(&impossible),
            Change::End { .. } => Ok(()),
            Change::Size { .. }
            | Change::Write { .. }
            | Change::Zero { .. }
            | Change::Allocate { .. }
            | Change::Punch { .. }
            | Change::SetXattr { .. }
            | Change::RemoveXattr { .. }
            | Change::Attr { .. } => {
                let ino = self.find_again(path).doing("looking for", path)?;
                self.change(ino, change).doing("changing", path)
            }
            _ => {
                self.last = None;
                self.rename(change).doing("moving", path)
            }
        }
    }

    fn find(&self, path: &[u8]) -> EngineResult<Ino> {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(self.pool.root(), |dir, name| {
            self.pool.lookup(dir, name).map(|attr| attr.ino)
        })
    }

    /// The same, of what is asked for again and again.
    fn find_again(&mut self, path: &[u8]) -> EngineResult<Ino> {
        match &self.last {
            Some((last, ino)) if last == path => Ok(*ino),
            _ => {
                let ino = self.find(path)?;
                self.last = Some((path.to_vec(), ino));
                Ok(ino)
            }
        }
    }

    /// The directory of an entry, and its name.
    fn place<'a>(&self, path: &'a [u8]) -> EngineResult<(Ino, &'a [u8])> {
        let (dir, name) = split(path);
        Ok((self.find(dir)?, name))
    }

    /// The directory for what moves.
    fn staging(&self) -> EngineResult<Ino> {
        let (pool, root) = (self.pool, self.pool.root());
        if let Some(there) = found(pool.lookup(root, &self.staging))? {
            return Ok(there.ino);
        }
        let new = NewInode { mode: mode::DIRECTORY | 0o700, uid: 0, gid: 0, rdev: 0 };
        pool.create(root, &self.staging, &new).map(|made| made.ino)
    }

    fn make(&self, change: &Change) -> EngineResult<()> {
        let Change::Make { path, mode: bits, rdev, target } = change else { return Ok(()) };
        let (dir, name) = self.place(path)?;
        if let Some(there) = found(self.pool.lookup(dir, name))? {
            let same = kind_of(there.mode) == kind_of(*bits);
            return if same { Ok(()) } else { Err(Engine::Exists) };
        }
        if kind_of(*bits) == mode::SYMLINK {
            return self.pool.symlink(dir, name, target, 0, 0).map(drop);
        }
        let new = NewInode { mode: kind_of(*bits) | 0o600, uid: 0, gid: 0, rdev: *rdev };
        self.pool.create(dir, name, &new).map(drop)
    }

    /// Entries that go and come.
    fn rename(&self, change: &Change) -> EngineResult<()> {
        let (pool, how) = (self.pool, RenameMode::NoReplace);
        match change {
            Change::Leave { path, number } => {
                let (staging, name) = (self.staging()?, name_of(*number));
                if found(pool.lookup(staging, &name))?.is_some() {
                    return Ok(());
                }
                let (dir, old) = self.place(path)?;
                pool.rename(dir, old, staging, &name, how)
            }
            Change::Hold { path, number } => {
                let (staging, name) = (self.staging()?, name_of(*number));
                if found(pool.lookup(staging, &name))?.is_some() {
                    return Ok(());
                }
                pool.link(self.find(path)?, staging, &name).map(drop)
            }
            Change::Remove { path, is_directory } => {
                let (dir, name) = self.place(path)?;
                let removed = match is_directory {
                    true => pool.rmdir(dir, name),
                    false => pool.unlink(dir, name),
                };
                ignoring(removed, Engine::NotFound)
            }
            Change::Come { path, number } => {
                let (dir, new) = self.place(path)?;
                let (staging, name) = (self.staging()?, name_of(*number));
                match found(pool.lookup(staging, &name))? {
                    Some(_) => pool.rename(staging, &name, dir, new, how),
                    None => pool.lookup(dir, new).map(drop),
                }
            }
            Change::Attach { path, number } => {
                let attr = pool.lookup(self.staging()?, &name_of(*number))?;
                self.link(attr.ino, path)
            }
            Change::Link { path, existing } => self.link(self.find(existing)?, path),
            _ => Ok(()),
        }
    }

    fn link(&self, ino: Ino, path: &[u8]) -> EngineResult<()> {
        let (dir, name) = self.place(path)?;
        match found(self.pool.lookup(dir, name))? {
            Some(there) if there.ino == ino => Ok(()),
            Some(_) => Err(Engine::Exists),
            None => self.pool.link(ino, dir, name).map(drop),
        }
    }

    /// Data and attributes of an inode.
    fn change(&self, ino: Ino, change: &Change) -> EngineResult<()> {
        let pool = self.pool;
        match change {
            Change::Size { size, .. } => {
                pool.setattr(ino, &SetAttr { size: Some(*size), ..SetAttr::default() }).map(drop)
            }
            Change::Write { offset, data, .. } => pool.write(ino, *offset, data),
            Change::Zero { offset, len, .. } => {
                pool.fallocate(ino, Fallocate::Zero { keep_size: true }, *offset, *len)
            }
            Change::Allocate { offset, len, .. } => {
                pool.fallocate(ino, Fallocate::Allocate { keep_size: true }, *offset, *len)
            }
            Change::Punch { offset, len, .. } => {
                pool.fallocate(ino, Fallocate::Punch, *offset, *len)
            }
            Change::SetXattr { name, value, .. } => {
                let change = XattrChange { name, value: Some(value), when: XattrWhen::Always };
                pool.setxattr(ino, &change)
            }
            Change::RemoveXattr { name, .. } => {
                pool.setxattr(ino, &XattrChange { name, value: None, when: XattrWhen::Always })
            }
            Change::Attr { mode: bits, uid, gid, atime_ns, mtime_ns, .. } => {
                let changes = SetAttr {
                    mode: Some(bits & mode::ALL & !mode::TYPE),
                    uid: Some(*uid),
                    gid: Some(*gid),
                    size: None,
                    atime_ns: Some(*atime_ns),
                    mtime_ns: Some(*mtime_ns),
                };
                pool.setattr(ino, &changes).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Entries of a directory: names, and whether they are directories.
    fn entries(&self, dir: Ino) -> EngineResult<Vec<(Vec<u8>, bool)>> {
        let mut entries = Vec::new();
        self.pool.readdir(dir, 0, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.kind == mode::DIRECTORY));
            true
        })?;
        Ok(entries)
    }

    /// Nothing waits any more.
    fn clear(&mut self, impossible: &dyn Fn(&'static str) -> Error) -> Result<()> {
        let (pool, root) = (self.pool, self.pool.root());
        let path = self.staging.as_slice();
        let Some(dir) = found(pool.lookup(root, path)).doing("looking for", path)? else {
            return Ok(());
        };
        for (name, is_directory) in self.entries(dir.ino).doing("listing", path)? {
            if is_directory {
                return Err(impossible("a directory that left has not come"));
            }
            pool.unlink(dir.ino, &name).doing("clearing", path)?;
        }
        pool.rmdir(root, path).doing("clearing", path)
    }

    /// Removes all that there is.
    pub(super) fn empty(&self) -> Result<()> {
        self.remove_all().doing("emptying", b"")
    }

    fn remove_all(&self) -> EngineResult<()> {
        let (pool, root) = (self.pool, self.pool.root());
        for name in pool.listxattr(root)? {
            let change = XattrChange { name: &name, value: None, when: XattrWhen::Always };
            pool.setxattr(root, &change)?;
        }
        // Directories on the way, each with its name and the directories in it that are still there.
        let mut way = vec![(root, Vec::new(), self.unlink_files(root)?)];
        while let Some((dir, _, below)) = way.last_mut() {
            if let Some(name) = below.pop() {
                let ino = pool.lookup(*dir, &name)?.ino;
                way.push((ino, name, self.unlink_files(ino)?));
            } else if let Some((_, name, _)) = way.pop()
                && let Some((parent, ..)) = way.last()
            {
                pool.rmdir(*parent, &name)?;
            }
        }
        Ok(())
    }

    /// Removes all but directories from a directory; returns their names.
    fn unlink_files(&self, dir: Ino) -> EngineResult<Vec<Vec<u8>>> {
        let mut directories = Vec::new();
        for (name, is_directory) in self.entries(dir)? {
            if is_directory {
                directories.push(name);
            } else {
                self.pool.unlink(dir, &name)?;
            }
        }
        Ok(directories)
    }
}
