//! The requests of the kernel, answered by a pool.
//!
//! What the kernel may keep: names and attributes until it changes them itself (this
//! server is the pool's only writer), names that do not exist, pages, listings and
//! symbolic links. What it does not ask for any more after the first time, because
//! there is nothing to do: open and release (a file lives as long as the kernel knows
//! it, see [`pins`]), flush and fsync (what was answered is durable). Set-user-id bits of files that are written, truncated or given away are
//! taken off by the kernel, with a request of their own before the write or
//! in the same request as the change.

mod acl;
mod attributes;
mod convert;
mod data;
mod directories;
mod filesystem;
pub(crate) mod gate;
mod names;
pub(crate) mod pins;
mod xattrs;

use std::sync::Arc;
use std::time::Duration;

use fuser::{Errno, FileAttr, Generation, INodeNo};
use lode_engine::{Attr, Error, Host, Ino, Pool};
use lode_pmem::Medium;

use gate::{Gate, Pass};
use pins::Pins;

/// How long the kernel may keep names and attributes: as good as for ever.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long the kernel may keep the root's attributes. It checks them on every path
/// into the mount: so a path into the mount of a server that was killed fails after
/// this time, whatever else the kernel has cached.
const ROOT_TTL: Duration = Duration::from_millis(20);
/// Largest write the kernel may send in one request, in bytes.
pub const MAX_WRITE: u32 = 1 << 20;

/// What the requests of a mount share.
pub struct State<M: Medium, H: Host> {
    /// The pool.
    pub pool: Arc<Pool<M, H>>,
    /// The pool's root directory.
    pub root: Ino,
    /// What the kernel knows.
    pub pins: Pins,
    /// Whether requests are served.
    pub gate: Gate,
}

impl<M: Medium, H: Host> State<M, H> {
    /// A mount of `pool`.
    pub fn new(pool: Arc<Pool<M, H>>) -> Self {
        let root = pool.root();
        Self { pool, root, pins: Pins::new(), gate: Gate::default() }
    }

    /// Serves no more requests; drops what only the kernel kept.
    pub fn stop(&self) {
        self.gate.close();
        if !self.gate.failed() {
            self.pins.clear(|ino| self.pool.release(ino));
        }
    }
}

/// The file system that fuser calls.
pub struct LodeFs<M: Medium, H: Host> {
    state: Arc<State<M, H>>,
    /// The kernel checks permissions.
    checked: bool,
    /// The kernel can be told to open directories without asking.
    silent_opendir: bool,
    /// The kernel checks lists of access rights, and leaves it to us what new entries inherit.
    acls: bool,
}

/// What an answer that names an inode consists of.
struct Named {
    attr: FileAttr,
    generation: Generation,
    attr_ttl: Duration,
}

impl<M: Medium, H: Host> LodeFs<M, H> {
    /// A file system on `state`; the kernel checks permissions where that is asked for.
    pub fn new(state: Arc<State<M, H>>, checked: bool) -> Self {
        Self { state, checked, silent_opendir: false, acls: false }
    }

    fn pool(&self) -> &Pool<M, H> {
        &self.state.pool
    }

    fn enter(&self) -> Result<Pass<'_>, Errno> {
        self.state.gate.enter().map_err(Errno::from_i32)
    }

    /// The pool's inode for the kernel's number.
    fn ino(&self, node: INodeNo) -> Ino {
        if node == INodeNo::ROOT { self.state.root } else { node.0 }
    }

    /// The kernel's number for an inode of the pool.
    fn node(&self, ino: Ino) -> INodeNo {
        if ino == self.state.root { INodeNo::ROOT } else { INodeNo(ino) }
    }

    fn attr_ttl(&self, ino: Ino) -> Duration {
        if ino == self.state.root { ROOT_TTL } else { FOREVER }
    }

    /// An answer that names an inode: counts as a lookup of it.
    fn named(&self, attr: &Attr) -> Result<Named, Errno> {
        let file_attr = convert::attributes(attr, self.node(attr.ino))?;
        self.pin(attr).map_err(|error| match error {
            // It was found, and went away before it could be held.
            Error::Stale => Errno::ENOENT,
            other => convert::errno(&other),
        })?;
        Ok(Named {
            attr: file_attr,
            generation: Generation(attr.generation),
            attr_ttl: self.attr_ttl(attr.ino),
        })
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

    fn unpin(&self, node: INodeNo, lookups: u64) {
        if node == INodeNo::ROOT {
            return;
        }
        if self.state.pins.forget(node.0, lookups) {
            self.pool().release(node.0);
        }
    }
}
