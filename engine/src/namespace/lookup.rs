//! Finding inodes, and keeping them while they are open.

use alloc::sync::Arc;
use alloc::vec::Vec;

use lode_pmem::Medium;

use crate::inode::{Body, Name, Node, load_target};
use crate::pool::{Child, Found, Look};
use crate::{Attr, Error, Host, Ino, Op, Pool, Result, mode};

/// How often a name may change under a look-up before it counts as gone.
const TRIES: usize = 64;

impl<M: Medium, H: Host> Pool<M, H> {
    /// Finds an entry. `.` and `..` work in any directory.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
        Ok(self.lookup_node(&self.node(dir)?, name)?.attr)
    }

    /// The same, in a directory that was found.
    pub fn lookup_in(&self, dir: &Found<H>, name: &[u8]) -> Result<Found<H>> {
        self.lookup_node(&dir.node, name)
    }

    fn lookup_node(&self, dir: &Arc<Node<H>>, name: &[u8]) -> Result<Found<H>> {
        self.count_look(Op::Lookup);
        dir.touch();
        let noted = if dir.is_view() { None } else { Name::of(dir.ino(), name) };
        if let Some(found) = noted.as_ref().and_then(|noted| self.find_noted(dir, noted)) {
            return Ok(found);
        }
        if name == b"." || name == b".." {
            let state = dir.read(&self.store)?;
            state.directory()?;
            let target = if name == b"." { dir.ino() } else { state.parent };
            drop(state);
            let node = self.node(target)?;
            let attr = node.read(&self.store)?.attr();
            return Ok(Found { node, attr });
        }
        for _ in 0..TRIES {
            let child = match self.look_noting(dir, name, noted.as_ref()) {
                Err(Error::Stale) => continue,
                result => result?.child.ok_or(Error::NotFound)?,
            };
            let attr = match child.node.read(&self.store) {
                Ok(state) if child.means(&state) && !state.is_dead() => Some(state.attr()),
                Ok(_) | Err(Error::Stale) => None,
                Err(error) => return Err(error),
            };
            if let Some(attr) = attr {
                return Ok(Found { node: child.node, attr });
            }
            self.check_means(dir, name, &child)?;
        }
        Err(Error::NotFound)
    }

    /// What a name leads to that was looked up before.
    fn find_noted(&self, dir: &Node<H>, name: &Name) -> Option<Found<H>> {
        let target = self.dentries.get(name)?;
        // (Asked after that: what is noted for who has its number now, was noted after it had ended.)
        if dir.is_gone() {
            return None;
        }
        let node = self.node(target.ino).ok()?;
        let state = node.read(&self.store).ok()?;
        let attr = target.means(&state).then(|| state.attr())?;
        drop(state);
        Some(Found { node, attr })
    }

    /// A name that led to another life than its entry says may mean another inode by now; if it does
    /// not, this is damage.
    #[cold]
    fn check_means(&self, dir: &Node<H>, name: &[u8], child: &Child<H>) -> Result<()> {
        if let Ok(Look { child: Some(again), .. }) = self.look(dir, name)
            && again.entry == child.entry
            && Arc::ptr_eq(&again.node, &child.node)
            && let Ok(state) = again.node.read(&self.store)
            && !again.means(&state)
        {
            let what = "entry leads to another inode than it says";
            return Err(Error::corrupt_inode(what, child.entry.at, dir.ino()));
        }
        Ok(())
    }

    /// What `stat` says of an inode.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.count_look(Op::Getattr);
        Ok(self.node(ino)?.read(&self.store)?.attr())
    }

    /// The parent of a directory.
    pub fn parent(&self, dir: Ino) -> Result<Ino> {
        let node = self.node(dir)?;
        let state = node.read(&self.store)?;
        state.directory()?;
        Ok(state.parent)
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.count(Op::Readlink);
        let node = self.node(ino)?;
        let state = node.read(&self.store)?;
        if state.kind() != mode::SYMLINK {
            return Err(Error::Invalid);
        }
        let len = match &state.body {
            Body::Symlink(target) => usize::from(target.len),
            _ if state.size <= crate::SYMLINK_MAX as u64 => state.size as usize,
            _ => return Err(Error::corrupt_inode("target is too long", 0, ino)),
        };
        let mut text = Vec::new();
        text.try_reserve_exact(len)?;
        text.resize(len, 0);
        match &state.body {
            Body::Symlink(target) => {
                load_target(&self.store, &state, target.at, target.ordinal, &mut text)?;
            }
            _ => self.read_pages(&state, 0, &mut text)?,
        }
        self.touch(&state);
        Ok(text)
    }

    /// Keeps an inode's contents while it is open, unlinked or not.
    pub fn acquire(&self, ino: Ino) -> Result<()> {
        self.open_node(&*self.node(ino)?)
    }

    pub(crate) fn open_node(&self, node: &Node<H>) -> Result<()> {
        let state = node.read(&self.store)?;
        let ends = state.is_dead() && node.opens.count() == 0;
        if !ends && node.opens.open() { Ok(()) } else { Err(Error::Stale) }
    }

    /// Ends a [`Pool::acquire`]; the last one of a file without a name frees it.
    pub fn release(&self, ino: Ino) {
        if let Some(node) = self.nodes.get_to_close(ino) {
            self.close_node(&node);
        }
    }

    /// Whether somebody keeps an inode, by [`Pool::acquire`] or [`Pool::hold`]: a look, which another may have changed when it is told.
    pub fn is_held(&self, ino: Ino) -> bool {
        self.nodes.opens(ino) > 0
    }

    pub(crate) fn close_node(&self, node: &Arc<Node<H>>) {
        // (Who ends it later sees that nobody has it open.)
        if node.opens.close() {
            // Where that fails, recovery does it.
            let _ = self.end_nameless(node);
            self.bury_if_dead(node);
        }
    }

    /// Ends an inode whose last link and last opening are gone.
    pub(crate) fn bury_if_dead(&self, node: &Arc<Node<H>>) {
        if let Some(state) = node.end_if_dead(&self.store.room) {
            self.bury(node, &state);
        }
    }
}
