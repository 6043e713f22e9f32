//! Inodes that are open: what is done by a handle does not have to find its inode first.
//!
//! Guarantees: while there is a handle, the inode's contents stay, unlinked or not, and its number
//! belongs to no other.

use alloc::sync::Arc;

use lode_pmem::Medium;

use super::Pool;
use crate::file::Places;
use crate::inode::Node;
use crate::{Attr, Host, Ino, Op, Result};

/// An inode that is open, from [`Pool::hold`] to [`Pool::let_go`]. (One that is dropped without that
/// keeps the inode open as long as the pool is.)
pub struct Handle<H: Host> {
    pub(crate) node: Arc<Node<H>>,
    pub(crate) places: Places,
}

impl<H: Host> Handle<H> {
    pub(super) fn new(node: Arc<Node<H>>) -> Self {
        Self { node, places: Places::default() }
    }

    /// Number of the inode.
    #[inline]
    pub fn ino(&self) -> Ino {
        self.node.ino()
    }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Opens an inode: [`Pool::acquire`], with a handle for it.
    pub fn hold(&self, ino: Ino) -> Result<Handle<H>> {
        let node = self.node(ino)?;
        self.open_node(&node)?;
        Ok(Handle::new(node))
    }

    /// A handle for an inode that is open already, by [`Pool::acquire`] or from its making: it
    /// takes that over.
    pub fn take_over(&self, ino: Ino) -> Result<Handle<H>> {
        Ok(Handle::new(self.node(ino)?))
    }

    /// Ends what [`Pool::hold`] began.
    pub fn let_go(&self, handle: Handle<H>) {
        self.close_node(&handle.node);
    }

    /// As [`Pool::write`].
    pub fn write_held(&self, file: &Handle<H>, offset: u64, data: &[u8]) -> Result<()> {
        self.write_node(&file.node, Some(offset), data).map(|_| ())
    }

    /// As [`Pool::append`].
    pub fn append_held(&self, file: &Handle<H>, data: &[u8]) -> Result<u64> {
        self.write_node(&file.node, None, data)
    }

    /// The size of a file in bytes, for those who ask at each access: not counted as an operation.
    pub fn size_held(&self, file: &Handle<H>) -> Result<u64> {
        Ok(file.node.read(&self.store)?.size)
    }

    /// As [`Pool::getattr`].
    pub fn getattr_held(&self, inode: &Handle<H>) -> Result<Attr> {
        self.count_look(Op::Getattr);
        Ok(inode.node.read(&self.store)?.attr())
    }
}
