//! Locking several inodes: always in the order of their numbers (PROTOCOL I1: all are
//! held from the first store to the end of the fence).

use alloc::sync::Arc;

use lode_pmem::Medium;

use super::Pool;
use crate::index::Entry;
use crate::inode::{Exclusive, Name, Node, State, find_entry, target_of, valid_name};
use crate::layout::{Body, Parsed, tag_of};
use crate::store::Store;
use crate::{Error, Host, Result, mode};

/// How often a name may lead to an inode that is just ending before that is damage.
const TRIES: usize = 64;

/// What a name led to, and the version of the directory then.
pub(crate) struct Look<H: Host> {
    pub(crate) child: Option<Child<H>>,
    version: u64,
}

impl<H: Host> Look<H> {
    /// Whether the name, in this directory, which is locked, still leads to the same.
    pub(crate) fn holds<M: Medium>(
        &self,
        store: &Store<M, H>,
        (dir, state): (&Node<H>, &State),
        name: &[u8],
    ) -> Result<bool> {
        // (The lock itself was one step.)
        if dir.version() == self.version + 1 {
            return Ok(true);
        }
        let entry = find_entry(store, state, name)?.map(|(entry, _)| entry);
        Ok(entry == self.child.as_ref().map(|child| child.entry))
    }
}

/// An entry that was found, and the child it leads to.
pub(crate) struct Child<H: Host> {
    pub(crate) entry: Entry,
    pub(crate) add: Parsed,
    pub(crate) node: Arc<Node<H>>,
}

impl<H: Host> Child<H> {
    /// Whether the entry is a directory's.
    pub(crate) fn is_directory(&self) -> bool {
        u32::from(self.entry.kind) << 12 == mode::DIRECTORY
    }

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
    pub(crate) fn look(&self, dir: &Node<H>, name: &[u8]) -> Result<Look<H>> {
        self.look_noting(dir, name, None)
    }

    /// The same; what the name leads to is noted for this one, where there is one.
    pub(crate) fn look_noting(
        &self,
        dir: &Node<H>,
        name: &[u8],
        noted: Option<&Name>,
    ) -> Result<Look<H>> {
        let state = dir.read(&self.store)?;
        let version = dir.version();
        state.directory()?;
        valid_name(&self.store.geometry, name)?;
        let Some((entry, add)) = find_entry(&self.store, &state, name)? else {
            return Ok(Look { child: None, version });
        };
        if let (Some(noted), Some(target)) = (noted, target_of(&entry, &add)) {
            self.dentries.note(noted, &target);
        }
        drop(state);
        match self.node(entry.ino) {
            Ok(node) => Ok(Look { child: Some(Child { entry, add, node }), version }),
            Err(Error::Stale) => self.look_again(dir, name, &entry),
            Err(error) => Err(error),
        }
    }

    /// An entry led to no inode: it was removed since, or is damage.
    #[cold]
    fn look_again(&self, dir: &Node<H>, name: &[u8], entry: &Entry) -> Result<Look<H>> {
        let state = dir.read(&self.store)?;
        let version = dir.version();
        match find_entry(&self.store, &state, name)? {
            Some((again, _)) if again == *entry => {
                Err(Error::corrupt_inode("entry leads to no inode", entry.at, dir.ino()))
            }
            Some(_) => Err(Error::Stale),
            None => Ok(Look { child: None, version }),
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
            let look = match self.look(dir, name) {
                Err(Error::Stale) => continue,
                result => result?,
            };
            let child = look.child.as_ref().ok_or(Error::NotFound)?;
            if child.node.ino() == dir.ino() {
                return Err(Error::corrupt_inode("directory contains itself", 0, dir.ino()));
            }
            let mut locked = match self.lock_all([Some(dir), Some(&*child.node)]) {
                Err(Error::Stale) => continue,
                result => result?,
            };
            let [Some(parent), Some(state)] = &mut locked else { continue };
            if !look.holds(&self.store, (dir, parent), name)? {
                continue;
            }
            if !child.means(state) {
                let what = "entry leads to another inode than it says";
                return Err(Error::corrupt_inode(what, child.entry.at, dir.ino()));
            }
            return work(parent, state, child);
        }
        Err(Error::NotFound)
    }
}
