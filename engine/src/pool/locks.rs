//! Locking several inodes: always in the order of their numbers (PROTOCOL I1: all are
//! held from the first store to the end of the fence).

use alloc::sync::Arc;

use lode_pmem::Medium;

use super::Pool;
use crate::index::Entry;
use crate::inode::{Exclusive, Node, State, find_entry};
use crate::layout::{Body, Parsed, tag_of};
use crate::{Error, Host, Result};

/// How often a name may lead to an inode that is just ending before that is damage.
const TRIES: usize = 64;

/// An entry that was found, and the child it leads to.
pub(crate) struct Child<H: Host> {
    pub(crate) entry: Entry,
    pub(crate) add: Parsed,
    pub(crate) node: Arc<Node<H>>,
}

impl<H: Host> Child<H> {
    /// Whether this state is the life of the inode that the entry means.
    pub(crate) fn means(&self, state: &State) -> bool {
        let Body::Add { tag, .. } = self.add.body else { return false };
        tag == tag_of(state.log.nonce) && u32::from(self.entry.kind) == state.kind() >> 12
    }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Locks all of `nodes`; where one stands twice, its later place is `None`.
    pub(crate) fn lock_all<'n, const N: usize>(
        &'n self,
        nodes: [Option<&'n Node<H>>; N],
    ) -> Result<[Option<Exclusive<'n, H>>; N]> {
        let mut locked = [const { None }; N];
        let mut last = 0;
        loop {
            let mut next: Option<(usize, &Node<H>)> = None;
            for (at, node) in nodes.iter().enumerate() {
                if let Some(node) = node
                    && node.ino() > last
                    && next.is_none_or(|(_, lowest)| node.ino() < lowest.ino())
                {
                    next = Some((at, node));
                }
            }
            let Some((at, node)) = next else { return Ok(locked) };
            last = node.ino();
            if let Some(place) = locked.get_mut(at) {
                *place = Some(node.write(&self.store)?);
            }
        }
    }

    /// Finds a child by name; `dir` is not locked any more when this returns.
    pub(crate) fn child(&self, dir: &Node<H>, name: &[u8]) -> Result<Option<Child<H>>> {
        let state = dir.read(&self.store)?;
        let Some((entry, add)) = find_entry(&self.store, &state, name)? else {
            return Ok(None);
        };
        drop(state);
        let dangling = Error::corrupt_inode("entry leads to no inode", entry.at, dir.ino());
        match self.node(entry.ino) {
            Ok(node) => Ok(Some(Child { entry, add, node })),
            Err(Error::Stale) => {
                // Unlinked since, or damage: the entry tells.
                let state = dir.read(&self.store)?;
                match find_entry(&self.store, &state, name)? {
                    Some((again, _)) if again == entry => Err(dangling),
                    Some(_) => Err(Error::Stale),
                    None => Ok(None),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Runs `work` with a directory and one of its children locked, and both known to
    /// belong together.
    pub(crate) fn with_child<R>(
        &self,
        dir: &Node<H>,
        name: &[u8],
        work: impl FnOnce(&mut State, &mut State, &Child<H>) -> Result<R>,
    ) -> Result<R> {
        for _ in 0..TRIES {
            let child = match self.child(dir, name) {
                Err(Error::Stale) => continue,
                result => result?.ok_or(Error::NotFound)?,
            };
            if child.node.ino() == dir.ino() {
                return Err(Error::corrupt_inode("directory contains itself", 0, dir.ino()));
            }
            let mut locked = match self.lock_all([Some(dir), Some(&*child.node)]) {
                Err(Error::Stale) => continue,
                result => result?,
            };
            let [Some(parent), Some(state)] = &mut locked else { continue };
            match find_entry(&self.store, parent, name)? {
                Some((entry, _)) if entry == child.entry => {}
                _ => continue,
            }
            if !child.means(state) {
                let what = "entry leads to another inode than it says";
                return Err(Error::corrupt_inode(what, child.entry.at, dir.ino()));
            }
            return work(parent, state, &child);
        }
        Err(Error::NotFound)
    }
}
