//! Inodes that were found: who goes on from one to the next does not look each up by its number.
//!
//! Guarantees: a [`Found`] means one life of an inode. What is asked of it once that has ended fails with
//! [`Error::Stale`](crate::Error::Stale) or [`Error::NotFound`](crate::Error::NotFound), even if the number is
//! another's by then. It keeps nothing open.

use alloc::sync::Arc;

use lode_pmem::Medium;

use super::{Handle, Pool};
use crate::inode::Node;
use crate::{Attr, Error, Host, Ino, Op, Result};

/// An inode in the life that it was found in.
pub struct Found<H: Host> {
    pub(crate) node: Arc<Node<H>>,
    /// How it was when it was found.
    pub attr: Attr,
}

/// An inode as it was at some time.
pub struct Seen<H: Host> {
    node: Arc<Node<H>>,
    version: u64,
}

impl<H: Host> Seen<H> {
    /// Whether nobody has changed it since, or is about to.
    #[inline]
    pub fn holds(&self) -> bool {
        self.node.version() == self.version
    }
}

impl<H: Host> Clone for Found<H> {
    fn clone(&self) -> Self {
        Self { node: Arc::clone(&self.node), attr: self.attr }
    }
}

impl<H: Host> Found<H> {
    /// To be asked before a name is looked up in it: whether the name still leads there.
    pub fn seen(&self) -> Seen<H> {
        Seen { version: self.node.version(), node: Arc::clone(&self.node) }
    }

    /// Number of the inode.
    #[inline]
    pub fn ino(&self) -> Ino {
        self.attr.ino
    }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// What this number leads to.
    pub fn find(&self, ino: Ino) -> Result<Found<H>> {
        self.count_look(Op::Getattr);
        let node = self.node(ino)?;
        let attr = node.read(&self.store)?.attr();
        Ok(Found { node, attr })
    }

    /// The same inode, as it is now.
    pub fn find_again(&self, found: &Found<H>) -> Result<Found<H>> {
        self.count_look(Op::Getattr);
        let attr = found.node.read(&self.store)?.attr();
        Ok(Found { node: Arc::clone(&found.node), attr })
    }

    /// Opens it: as [`Pool::hold`].
    pub fn hold_found(&self, found: Found<H>) -> Result<Handle<H>> {
        let Found { node, .. } = found;
        if node.is_view() {
            self.open_node(&node)?;
        } else if !node.opens.open() {
            return Err(Error::Stale);
        }
        Ok(Handle::new(node))
    }
}
