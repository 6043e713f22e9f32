//! The oracle: a small, obviously right POSIX file system in memory.
//!
//! It has the calls of [`lode_engine::Pool`] under the same names and shares only
//! plain types with it. One lock, no cleverness, inode numbers that count up. It is
//! itself checked against a real tmpfs by the same random operations.
//!
//! Time stands still until [`Model::set_now`] moves it, so that every time stamp can be
//! compared. Where POSIX leaves a time open, [`Model::loose`] says so.

mod data;
mod file;
mod namespace;
mod node;
mod rename;
mod snapshot;
mod xattr;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lode_engine::{Attr, Error, Ino, Result, SetAttr, mode};

pub use node::Loose;

use data::Data;
use node::{Body, Entries, Node};

/// Inode number of the root directory.
pub const ROOT: Ino = 1;

/// The file system.
#[derive(Debug)]
pub struct Model {
    state: Mutex<State>,
}

#[derive(Clone, Debug)]
struct State {
    nodes: BTreeMap<Ino, Node>,
    last_ino: Ino,
    now: i64,
    snapshots: Vec<snapshot::Snapshot>,
    last_view: Ino,
}

impl Clone for Model {
    fn clone(&self) -> Self {
        Self { state: Mutex::new(self.lock().clone()) }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// An empty file system whose root is 0755 and belongs to user 0.
    pub fn new() -> Self {
        let root = Node {
            ino: ROOT,
            mode: mode::DIRECTORY | 0o755,
            names: 1,
            nameless: false,
            uid: 0,
            gid: 0,
            rdev: 0,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            btime_ns: 0,
            loose: Loose { mtime: true, ctime: true },
            opens: 0,
            maps: 0,
            parent: ROOT,
            body: Body::Directory(Entries::default()),
            xattrs: BTreeMap::new(),
        };
        let nodes = BTreeMap::from([(ROOT, root)]);
        let state = State { nodes, last_ino: ROOT, now: 0, snapshots: Vec::new(), last_view: 0 };
        Self { state: Mutex::new(state) }
    }

    /// Sets the time of all that follows, in nanoseconds since 1970.
    pub fn set_now(&self, now_ns: i64) {
        self.lock().now = now_ns;
    }

    /// The root directory.
    pub fn root(&self) -> Ino {
        ROOT
    }

    /// The times of an inode that must not be compared.
    pub fn loose(&self, ino: Ino) -> Loose {
        self.lock().nodes.get(&ino).map(|node| node.loose).unwrap_or_default()
    }

    /// Offsets of the pages of a file that were written, in order.
    pub fn page_offsets(&self, ino: Ino) -> Vec<u64> {
        match self.lock().nodes.get(&ino).map(|node| &node.body) {
            Some(Body::File(data)) => data.page_offsets(),
            _ => Vec::new(),
        }
    }

    /// Inodes in use: named, or open.
    pub fn inodes(&self) -> u64 {
        self.lock().nodes.range(..snapshot::VIEW).count() as u64
    }

    /// Ends all opens, as a crash or a new mount does.
    pub fn release_all(&self) {
        let mut state = self.lock();
        for node in state.nodes.values_mut() {
            (node.opens, node.maps) = (0, 0);
        }
        state.nodes.retain(|_, node| node.names > 0);
    }

    /// What `stat` says.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.lock().attr(ino)
    }

    /// Changes attributes, size included.
    pub fn setattr(&self, ino: Ino, changes: &SetAttr) -> Result<Attr> {
        self.lock().setattr(ino, changes)
    }

    /// Keeps an inode while it is open, unlinked or not.
    pub fn acquire(&self, ino: Ino) -> Result<()> {
        self.lock().node_mut(ino)?.opens += 1;
        Ok(())
    }

    /// Ends an [`Model::acquire`].
    pub fn release(&self, ino: Ino) {
        let mut state = self.lock();
        if let Ok(node) = state.node_mut(ino) {
            node.opens = node.opens.saturating_sub(1);
        }
        state.drop_if_dead(ino);
    }

    /// All that returned is durable: checks that the inode exists.
    pub fn fsync(&self, ino: Ino) -> Result<()> {
        self.lock().node(ino).map(|_| ())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn node(&self, ino: Ino) -> Result<&Node> {
        self.nodes.get(&ino).ok_or(Error::Stale)
    }

    fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        if ino >= snapshot::VIEW {
            return Err(Error::ReadOnly);
        }
        self.nodes.get_mut(&ino).ok_or(Error::Stale)
    }

    fn attr(&self, ino: Ino) -> Result<Attr> {
        let node = self.node(ino)?;
        let subdirs = match &node.body {
            Body::Directory(entries) => {
                let is_dir = |child: &Ino| self.node(*child).is_ok_and(Node::is_dir);
                entries.children().filter(is_dir).count()
            }
            _ => 0,
        };
        Ok(node.attr(subdirs as u32))
    }

    fn setattr(&mut self, ino: Ino, changes: &SetAttr) -> Result<Attr> {
        let now = self.now;
        let node = self.node_mut(ino)?;
        if let Some(size) = changes.size {
            file::truncate(node, size, now)?;
        }
        if let Some(bits) = changes.mode {
            node.mode = node.kind() | (bits & !mode::TYPE);
        }
        node.uid = changes.uid.unwrap_or(node.uid);
        node.gid = changes.gid.unwrap_or(node.gid);
        node.atime_ns = changes.atime_ns.unwrap_or(node.atime_ns);
        if let Some(mtime) = changes.mtime_ns {
            node.mtime_ns = mtime;
            node.loose.mtime = false;
        }
        let only_size = SetAttr { size: changes.size, ..SetAttr::default() } == *changes;
        if !only_size {
            node.changed(now);
        }
        self.attr(ino)
    }

    /// Forgets an inode that nothing names and nobody has open.
    fn drop_if_dead(&mut self, ino: Ino) {
        if self.nodes.get(&ino).is_some_and(|node| node.names == 0 && node.opens == 0) {
            self.nodes.remove(&ino);
        }
    }

    fn new_body(kind: u32) -> Option<Body> {
        match kind {
            mode::FILE => Some(Body::File(Data::default())),
            mode::DIRECTORY => Some(Body::Directory(Entries::default())),
            mode::FIFO | mode::SOCKET | mode::BLOCK | mode::CHARACTER => Some(Body::Special),
            _ => None,
        }
    }
}
