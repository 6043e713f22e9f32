//! One inode of the model.

use std::collections::BTreeMap;

use lode_engine::{Attr, Ino, mode};

use crate::data::Data;

/// The times that POSIX leaves open, so that a comparison must not look at them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loose {
    /// The modification time.
    pub mtime: bool,
    /// The change time.
    pub ctime: bool,
}

/// The entries of a directory, by name and in the order they were made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    by_name: BTreeMap<Vec<u8>, (Ino, u64)>,
    by_cookie: BTreeMap<u64, Vec<u8>>,
    last_cookie: u64,
}

impl Entries {
    pub(crate) fn get(&self, name: &[u8]) -> Option<Ino> {
        self.by_name.get(name).map(|entry| entry.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(crate) fn insert(&mut self, name: &[u8], ino: Ino) {
        self.remove(name);
        self.last_cookie += 1;
        self.by_name.insert(name.to_vec(), (ino, self.last_cookie));
        self.by_cookie.insert(self.last_cookie, name.to_vec());
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        if let Some((_, cookie)) = self.by_name.remove(name) {
            self.by_cookie.remove(&cookie);
        }
    }

    /// Gives all children another view: `view` is taken off their numbers, or added.
    pub(crate) fn move_children(&mut self, view: Ino) {
        for (ino, _) in self.by_name.values_mut() {
            *ino ^= view;
        }
    }

    /// Children, in no stated order.
    pub(crate) fn children(&self) -> impl Iterator<Item = Ino> + '_ {
        self.by_name.values().map(|entry| entry.0)
    }

    /// Cookie, name and child of each entry behind `cookie`.
    pub(crate) fn behind(&self, cookie: u64) -> Vec<(u64, Vec<u8>, Ino)> {
        let behind = self.by_cookie.range(cookie.saturating_add(1)..);
        behind.filter_map(|(&cookie, name)| Some((cookie, name.clone(), self.get(name)?))).collect()
    }
}

/// What an inode is.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    File(Data),
    Directory(Entries),
    Symlink(Vec<u8>),
    Special,
}

/// Extended attributes: values by name.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// An inode: its attributes, what it holds, who keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) ino: Ino,
    pub(crate) mode: u32,
    /// Names of it; of a directory 1 while it has its name.
    pub(crate) names: u32,
    /// It was made without a name, and never had one.
    pub(crate) nameless: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u64,
    pub(crate) atime_ns: i64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    pub(crate) btime_ns: i64,
    pub(crate) loose: Loose,
    /// Times it is open.
    pub(crate) opens: u64,
    /// Maps that there are of it.
    pub(crate) maps: u64,
    /// Of a directory.
    pub(crate) parent: Ino,
    pub(crate) body: Body,
    /// Extended attributes.
    pub(crate) xattrs: Xattrs,
}

impl Node {
    pub(crate) fn is_dir(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    /// Sets the change time.
    pub(crate) fn changed(&mut self, now: i64) {
        self.ctime_ns = now;
        self.loose.ctime = false;
    }

    /// Sets the modification and the change time.
    pub(crate) fn modified(&mut self, now: i64) {
        self.mtime_ns = now;
        self.loose.mtime = false;
        self.changed(now);
    }

    /// As [`Node::modified`], where POSIX allows the times to stay, too.
    pub(crate) fn perhaps_modified(&mut self, now: i64) {
        self.modified(now);
        self.loose = Loose { mtime: true, ctime: true };
    }

    /// What `stat` says; `subdirs` are the directories in this directory.
    pub(crate) fn attr(&self, subdirs: u32) -> Attr {
        let links = match &self.body {
            Body::Directory(_) if self.names == 0 => 0,
            Body::Directory(_) => 2 + subdirs,
            _ => self.names,
        };
        let (size, pages) = match &self.body {
            Body::File(data) => (data.size(), data.page_offsets().len() as u64),
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::Directory(_) | Body::Special => (0, 0),
        };
        Attr {
            ino: self.ino,
            generation: self.ino,
            mode: self.mode,
            links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size,
            pages,
            atime_ns: self.atime_ns,
            mtime_ns: self.mtime_ns,
            ctime_ns: self.ctime_ns,
            btime_ns: self.btime_ns,
            xattrs: self.xattrs.len() as u32,
        }
    }

    /// File type bits.
    pub(crate) fn kind(&self) -> u32 {
        self.mode & mode::TYPE
    }
}
