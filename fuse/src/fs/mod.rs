//! The requests of the kernel, answered by a pool.
//!
//! What the kernel may keep: names and attributes until it changes them itself (this
//! server is the pool's only writer), names that do not exist, pages, listings and
//! symbolic links. What it does not ask for any more after the first time, because
//! there is nothing to do: opening and releasing directories (an inode lives as long as the kernel knows
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
pub(crate) mod served;
mod snapshots;
#[cfg(test)]
mod tests;
mod views;
mod xattrs;

pub use filesystem::wish;
pub use keeping::{FOREVER, Keeping, ROOT_TTL};
pub use snapshots::PATH as SNAPSHOTS_PATH;
pub use views::{DIRECTORY as VIEWS, Views};

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use fuse_abi::linux::FUSE_POSIX_ACL;
use lode_engine::{AccessTimes, Attr, Error, Host, Ino, Pool};
use lode_pmem::Medium;

use crate::answers::Desk;
use crate::damage::Damage;
use crate::lending::Lending;
use crate::scrub::Scrubs;
use crate::snapshots::Changed;
use crate::wire::{Agreed, Entry, Errno, NodeId, Notices};
use gate::Gate;
use served::Served;

/// Largest write the kernel may send in one request, in bytes.
pub const MAX_WRITE: u32 = 1 << 20;

/// What the requests of a mount share.
pub struct State<M: Medium, H: Host> {
    /// Who has passed it may use the pool.
    pub gate: Gate<Served<M, H>>,
    /// When snapshots were last made or deleted.
    pub snapshots: Arc<Changed>,
    /// The scrub that goes on.
    pub scrubs: Scrubs,
    /// Damage that requests have met.
    pub damage: Damage,
    /// The pool's memory, lent to programs.
    pub lending: Lending,
}

impl<M: Medium, H: Host> State<M, H> {
    /// A mount of `pool`: of its root directory, or of the directory `root`.
    pub fn new(pool: Pool<M, H>, root: Option<Ino>) -> Self {
        let (gate, snapshots) = (Gate::new(Served::new(pool, root)), Arc::default());
        let (scrubs, damage, lending) = Default::default();
        Self { gate, snapshots, scrubs, damage, lending }
    }

    /// Serves no more requests, and closes the pool, unless that was done or a request has panicked.
    ///
    /// # Errors
    /// Those of closing it.
    pub fn stop(&self) -> lode_engine::Result<()> {
        let all_let_go = self.lending.stop();
        let served = self.gate.take();
        match all_let_go {
            true => served.map_or(Ok(()), Served::end),
            // What they have may be stored to still: nothing of the pool is changed any more.
            false => Err(lode_engine::Error::Busy),
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
    /// Who knows what that is.
    desk: Arc<Desk<M, H>>,
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
        desk: Arc<Desk<M, H>>,
        notices: Notices,
    ) -> Self {
        Self {
            state,
            views,
            desk,
            notices,
            keeping: Keeping::new(agreed, atime),
            acls: agreed.flags & u64::from(FUSE_POSIX_ACL) != 0,
        }
    }
}

/// The file system at work on a request, and what it works on.
struct Work<'a, M: Medium, H: Host> {
    fs: &'a LodeFs<M, H>,
    served: &'a Served<M, H>,
}

impl<M: Medium, H: Host> Deref for Work<'_, M, H> {
    type Target = LodeFs<M, H>;

    fn deref(&self) -> &LodeFs<M, H> {
        self.fs
    }
}

impl<M: Medium, H: Host> Work<'_, M, H> {
    fn pool(&self) -> &Pool<M, H> {
        &self.served.pool
    }

    /// The pool's inode for the kernel's number.
    fn ino(&self, node: NodeId) -> Ino {
        self.served.ino(node)
    }

    fn attr_ttl(&self, ino: Ino) -> Duration {
        if ino == self.served.root { ROOT_TTL } else { FOREVER }
    }

    /// What an answer that names an inode consists of: counts as a lookup of it. The name may
    /// be kept for ever.
    fn named(&self, attr: &Attr) -> Result<Entry, Errno> {
        let named = convert::attributes(attr, self.served.shown(attr.ino))?;
        self.pin(attr).map_err(|error| match error {
            // It was found, and went away before it could be held.
            Error::Stale => Errno::ENOENT,
            other => self.errno_in(attr.ino, &other),
        })?;
        let attr_ttl = self.attr_ttl(attr.ino);
        let (node, generation) = (self.served.node(attr.ino), convert::generation(attr.generation));
        Ok(Entry { node, attr: named, generation, attr_ttl, entry_ttl: FOREVER })
    }

    fn pin(&self, attr: &Attr) -> Result<(), Error> {
        if attr.ino == self.served.root {
            return Ok(());
        }
        let pool = self.pool();
        self.served.pins.add(attr.ino, || {
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
        // (What was served before is released already.)
        if node == NodeId::ROOT || self.served.is_of_before(node) {
            return;
        }
        let ino = self.ino(node);
        if self.served.pins.forget(ino, lookups) {
            self.pool().release(ino);
        }
    }
}
