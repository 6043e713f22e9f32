//! The requests of the kernel, answered by a pool.
//!
//! What the kernel may keep: names and attributes until it changes them itself (this
//! server is the pool's only writer), names that do not exist, pages, listings and
//! symbolic links. What it does not ask for any more after the first time, because
//! there is nothing to do: open and release (a file lives as long as the kernel knows
//! it, see [`pins`]), flush and fsync (what was answered is durable).
//!
//! Set-user-id bits and capabilities of files that are truncated, allocated, copied to or given
//! away are taken off by the kernel, with a request of their own or in the same one as the
//! change: it alone knows what its callers may. (That it leaves it to the server could be agreed
//! upon, but then it says nothing of the caller where space is allocated or data is copied.)
//! With a write it says what the writer may, and the bits are ours to take off.

mod attributes;
mod convert;
mod data;
mod directories;
mod failures;
mod filesystem;
pub(crate) mod gate;
mod keeping;
mod names;
pub(crate) mod pins;
mod snapshots;
#[cfg(test)]
mod tests;
mod views;
mod xattrs;

pub use filesystem::wish;
pub use keeping::{FOREVER, Keeping, ROOT_TTL};
pub use snapshots::PATH as SNAPSHOTS_PATH;
pub use views::Views;

use std::sync::Arc;
use std::time::Duration;

use fuse_abi::linux::FUSE_POSIX_ACL;
use lode_engine::{AccessTimes, Attr, Error, Host, Ino, Pool};
use lode_pmem::Medium;

use crate::damage::Damage;
use crate::scrub::Scrubs;
use crate::snapshots::Changed;
use crate::wire::{Agreed, Entry, Errno, NodeId, Notices};
use gate::Gate;
use pins::Pins;

/// Largest write the kernel may send in one request, in bytes.
pub const MAX_WRITE: u32 = 1 << 20;

/// What the requests of a mount share.
pub struct State<M: Medium, H: Host> {
    /// The pool.
    pub pool: Arc<Pool<M, H>>,
    /// The directory that is the mount's root.
    pub root: Ino,
    /// What the kernel knows.
    pub pins: Pins,
    /// Whether requests are served.
    pub gate: Gate,
    /// When snapshots were last made or deleted.
    pub snapshots: Arc<Changed>,
    /// The scrub that goes on.
    pub scrubs: Scrubs,
    /// Damage that requests have met.
    pub damage: Damage,
}

impl<M: Medium, H: Host> State<M, H> {
    /// A mount of `pool`: of its root directory, or of the directory `root`.
    pub fn new(pool: Arc<Pool<M, H>>, root: Option<Ino>) -> Self {
        let root = root.unwrap_or_else(|| pool.root());
        let (gate, snapshots) = (Gate::default(), Arc::default());
        let (scrubs, damage) = (Scrubs::default(), Damage::default());
        Self { pool, root, pins: Pins::new(), gate, snapshots, scrubs, damage }
    }

    /// Serves no more requests; drops what only the kernel kept.
    pub fn stop(&self) {
        self.gate.close();
        if !self.gate.failed() {
            self.pins.clear(|ino| self.pool.release(ino));
        }
    }
}

/// The file system that answers the kernel.
pub struct LodeFs<M: Medium, H: Host> {
    state: Arc<State<M, H>>,
    /// What the kernel may keep.
    keeping: Keeping,
    /// The kernel checks lists of access rights, and leaves it to us what new entries inherit.
    acls: bool,
    /// What the mount shows of itself.
    views: Views,
    /// Where the kernel hears of what it did not ask.
    notices: Notices,
}

impl<M: Medium, H: Host> LodeFs<M, H> {
    /// A file system on `state`, for a kernel with which that was agreed.
    pub fn new(
        state: Arc<State<M, H>>,
        agreed: &Agreed,
        atime: AccessTimes,
        views: Views,
        notices: Notices,
    ) -> Self {
        Self {
            state,
            views,
            notices,
            keeping: Keeping::new(agreed, atime),
            acls: agreed.flags & u64::from(FUSE_POSIX_ACL) != 0,
        }
    }

    fn pool(&self) -> &Pool<M, H> {
        &self.state.pool
    }

    /// The pool's inode for the kernel's number.
    fn ino(&self, node: NodeId) -> Ino {
        if node == NodeId::ROOT { self.state.root } else { node.0 }
    }

    /// The kernel's number for an inode of the pool.
    fn node(&self, ino: Ino) -> NodeId {
        if ino == self.state.root { NodeId::ROOT } else { NodeId(ino) }
    }

    fn attr_ttl(&self, ino: Ino) -> Duration {
        if ino == self.state.root { ROOT_TTL } else { FOREVER }
    }

    /// What an answer that names an inode consists of: counts as a lookup of it. The name may
    /// be kept for ever.
    fn named(&self, attr: &Attr) -> Result<Entry, Errno> {
        let named = convert::attributes(attr, self.node(attr.ino))?;
        self.pin(attr).map_err(|error| match error {
            // It was found, and went away before it could be held.
            Error::Stale => Errno::ENOENT,
            other => self.errno_in(attr.ino, &other),
        })?;
        let attr_ttl = self.attr_ttl(attr.ino);
        let generation = convert::generation(attr.generation);
        Ok(Entry { attr: named, generation, attr_ttl, entry_ttl: FOREVER })
    }

    fn pin(&self, attr: &Attr) -> Result<(), Error> {
        if attr.ino == self.state.root {
            return Ok(());
        }
        let pool = self.pool();
        self.state.pins.add(attr.ino, || {
            pool.acquire(attr.ino)?;
            // The number may have got another file before it was held.
            match pool.getattr(attr.ino) {
                Ok(now) if now.generation == attr.generation => Ok(()),
                other => {
                    pool.release(attr.ino);
                    Err(other.err().unwrap_or(Error::Stale))
                }
            }
        })
    }

    fn unpin(&self, node: NodeId, lookups: u64) {
        if node == NodeId::ROOT {
            return;
        }
        if self.state.pins.forget(node.0, lookups) {
            self.pool().release(node.0);
        }
    }
}
