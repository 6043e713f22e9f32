//! Names: lookup, create, symlink, link, unlink, rmdir, readdir.

use lode_engine::{Attr, DirEntry, Error, Ino, NAME_MAX, NewInode, Result, SYMLINK_MAX, mode};

use crate::node::{Body, Entries, Loose, Node};
use crate::{Model, State};

impl Model {
    /// The inode under a name; `.` and `..` work.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
        let state = self.lock();
        let ino = state.child(dir, name)?.ok_or(Error::NotFound)?;
        state.attr(ino)
    }

    /// Makes a file, directory, FIFO, socket or device.
    pub fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Attr> {
        let mut state = self.lock();
        state.vacant(dir, name)?;
        let body = State::new_body(new.mode & mode::TYPE).ok_or(Error::Invalid)?;
        state.make(dir, name, new, body)
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        dir: Ino,
        name: &[u8],
        target: &[u8],
        uid: u32,
        gid: u32,
    ) -> Result<Attr> {
        let mut state = self.lock();
        if target.len() > SYMLINK_MAX {
            return Err(Error::NameTooLong);
        }
        state.vacant(dir, name)?;
        let new = NewInode { mode: mode::SYMLINK | 0o777, uid, gid, rdev: 0 };
        state.make(dir, name, &new, Body::Symlink(target.to_vec()))
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        match &self.lock().node(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Error::Invalid),
        }
    }

    /// Gives an inode that is not a directory another name.
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
        let mut state = self.lock();
        state.vacant(dir, name)?;
        let now = state.now;
        let node = state.node_mut(ino)?;
        if node.is_dir() {
            return Err(Error::DirectoryLink);
        }
        if node.names == 0 && !node.nameless {
            return Err(Error::NotFound);
        }
        node.names += 1;
        node.nameless = false;
        node.changed(now);
        state.insert(dir, name, ino)?;
        state.attr(ino)
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&self, dir: Ino, name: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let ino = state.child(dir, name)?.ok_or(Error::NotFound)?;
        if state.node(ino)?.is_dir() {
            return Err(Error::IsDirectory);
        }
        state.remove(dir, name)?;
        state.unname(ino)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let ino = state.child(dir, name)?.ok_or(Error::NotFound)?;
        if !state.entries(ino)?.is_empty() {
            return Err(Error::NotEmpty);
        }
        state.remove(dir, name)?;
        state.unname(ino)
    }

    /// Lists a directory from behind `cookie` until `each` returns false.
    pub fn readdir(
        &self,
        dir: Ino,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let state = self.lock();
        for (cookie, name, ino) in state.entries(dir)?.behind(cookie) {
            let kind = state.node(ino)?.kind();
            if !each(DirEntry { ino, kind, cookie, name: &name }) {
                break;
            }
        }
        Ok(())
    }

    /// The parent of a directory.
    pub fn parent(&self, dir: Ino) -> Result<Ino> {
        let state = self.lock();
        state.entries(dir)?;
        Ok(state.node(dir)?.parent)
    }
}

impl State {
    /// The entries of a directory; `NotDirectory` for anything else.
    pub(crate) fn entries(&self, dir: Ino) -> Result<&Entries> {
        match &self.node(dir)?.body {
            Body::Directory(entries) => Ok(entries),
            _ => Err(Error::NotDirectory),
        }
    }

    fn entries_mut(&mut self, dir: Ino) -> Result<&mut Entries> {
        match &mut self.node_mut(dir)?.body {
            Body::Directory(entries) => Ok(entries),
            _ => Err(Error::NotDirectory),
        }
    }

    /// The child under a name, if there is one.
    pub(crate) fn child(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let entries = self.entries(dir)?;
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        Ok(match name {
            b"." => Some(dir),
            b".." => Some(self.node(dir)?.parent),
            _ => entries.get(name),
        })
    }

    /// Fails unless `name` can be made in `dir`.
    pub(crate) fn vacant(&self, dir: Ino, name: &[u8]) -> Result<()> {
        if self.child(dir, name)?.is_some() {
            return Err(Error::Exists);
        }
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return Err(Error::Invalid);
        }
        // A directory that was removed and is still open takes nothing in.
        if self.node(dir)?.names == 0 {
            return Err(Error::NotFound);
        }
        Ok(())
    }

    pub(crate) fn make(
        &mut self,
        dir: Ino,
        name: &[u8],
        new: &NewInode,
        body: Body,
    ) -> Result<Attr> {
        let ino = self.node_of(dir, new, body);
        self.insert(dir, name, ino)?;
        self.attr(ino)
    }

    /// A new inode for a directory, without a name as yet.
    pub(crate) fn node_of(&mut self, dir: Ino, new: &NewInode, body: Body) -> Ino {
        self.last_ino += 1;
        let (ino, now) = (self.last_ino, self.now);
        let is_device = matches!(new.mode & mode::TYPE, mode::BLOCK | mode::CHARACTER);
        let node = Node {
            ino,
            mode: new.mode,
            names: 1,
            nameless: false,
            uid: new.uid,
            gid: new.gid,
            rdev: if is_device { new.rdev } else { 0 },
            atime_ns: now,
            mtime_ns: now,
            ctime_ns: now,
            btime_ns: now,
            loose: Loose::default(),
            opens: 0,
            maps: 0,
            parent: dir,
            body,
            xattrs: Default::default(),
        };
        self.nodes.insert(ino, node);
        ino
    }

    /// Enters a name; the directory is modified now.
    pub(crate) fn insert(&mut self, dir: Ino, name: &[u8], ino: Ino) -> Result<()> {
        let now = self.now;
        self.entries_mut(dir)?.insert(name, ino);
        self.node_mut(dir)?.modified(now);
        Ok(())
    }

    /// Removes a name; the directory is modified now.
    pub(crate) fn remove(&mut self, dir: Ino, name: &[u8]) -> Result<()> {
        let now = self.now;
        self.entries_mut(dir)?.remove(name);
        self.node_mut(dir)?.modified(now);
        Ok(())
    }

    /// An inode has lost a name.
    pub(crate) fn unname(&mut self, ino: Ino) -> Result<()> {
        let now = self.now;
        let node = self.node_mut(ino)?;
        node.names = node.names.saturating_sub(1);
        node.changed(now);
        self.drop_if_dead(ino);
        Ok(())
    }
}
