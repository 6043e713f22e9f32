//! The pool behind the gate, and what the kernel and others have of it until it is another one.
//!
//! To the kernel inodes have other numbers than in the pool once the pool has become what it was (a rollback):
//! all that it knows, by any number, of before is told from what is now, and stale. What users see are the pool's
//! numbers all the same.

use lode_engine::{Host, Ino, Pool};
use lode_pmem::Medium;

use super::pins::Pins;
use super::views::DIRECTORY;
use crate::send::Sends;
use crate::wire::NodeId;

/// A pool that is served.
pub struct Served<M: Medium, H: Host> {
    /// The pool.
    pub pool: Pool<M, H>,
    /// The directory that is the mount's root.
    pub root: Ino,
    /// What the kernel knows.
    pub pins: Pins,
    /// Files that the kernel has open, and how often: what is told of them when somebody asks to delete a volume.
    pub opened: Pins,
    /// Streams of its snapshots.
    pub sends: Sends,
    /// What the kernel's numbers are more than the pool's.
    more: u64,
}

impl<M: Medium, H: Host> Served<M, H> {
    /// A pool of which the kernel knows nothing: from its root directory on, or from the directory `root`.
    pub fn new(pool: Pool<M, H>, root: Option<Ino>) -> Self {
        let root = root.unwrap_or_else(|| pool.root());
        let (pins, opened) = (Pins::new(), Pins::new());
        Self { pool, root, pins, opened, sends: Sends::default(), more: 0 }
    }

    /// What the kernel's numbers are more than the pool's in what comes after this; none where they would not be
    /// numbers of inodes any more.
    pub fn more_next(&self) -> Option<u64> {
        let (more, room) = (self.more + self.pool.ino_end(), self.pool.ino_end());
        (more + room < DIRECTORY).then_some(more)
    }

    /// What is served after this, with such numbers: `change` makes its pool of this one's.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn become_other<E>(
        self,
        more: u64,
        change: impl FnOnce(Pool<M, H>) -> Result<Pool<M, H>, E>,
    ) -> Result<Self, E> {
        Ok(Self { more, ..Self::new(change(self.pool)?, None) })
    }

    /// Drops what only the kernel kept, and closes the pool.
    ///
    /// # Errors
    /// Those of closing it.
    pub fn end(self) -> lode_engine::Result<()> {
        self.pins.clear(|ino| self.pool.release(ino));
        self.pool.close()
    }

    /// Notes that the kernel has opened a file.
    pub fn open(&self, ino: Ino) {
        let _: Result<(), core::convert::Infallible> = self.opened.add(ino, || Ok(()));
    }

    /// Whether this is the kernel's number of an inode of what was served before.
    #[inline]
    pub fn is_of_before(&self, node: NodeId) -> bool {
        node.0 < self.more && node != NodeId::ROOT
    }

    /// The pool's inode for the kernel's number, which is not of before.
    #[inline]
    pub fn ino(&self, node: NodeId) -> Ino {
        if node == NodeId::ROOT { self.root } else { node.0.wrapping_sub(self.more) }
    }

    /// The kernel's number for an inode of the pool.
    #[inline]
    pub fn node(&self, ino: Ino) -> NodeId {
        if ino == self.root { NodeId::ROOT } else { NodeId(ino.wrapping_add(self.more)) }
    }

    /// The number of an inode of the pool that users see.
    #[inline]
    pub fn shown(&self, ino: Ino) -> NodeId {
        if ino == self.root { NodeId::ROOT } else { NodeId(ino) }
    }
}
