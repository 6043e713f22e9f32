//! Who has the pool open, and the memory below it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use lode_engine::{Error, Host, Ino, Pool};
use lode_loan::Refusal;
use lode_pmem::{Mapped, Medium};

/// Memory that can be lent to other processes.
pub trait Region: Medium {
    /// See [`Mapped::zero_lent`].
    ///
    /// # Errors
    /// As there.
    fn zero_lent(&self, at: u64, len: u64) -> io::Result<()>;

    /// See [`Mapped::for_each_locked`].
    ///
    /// # Errors
    /// As there.
    fn for_each_locked(&self, part: (u64, u64), each: &mut dyn FnMut(u64, u64)) -> io::Result<()>;

    /// See [`Mapped::descriptor`].
    ///
    /// # Errors
    /// As there.
    fn descriptor(&self) -> io::Result<OwnedFd>;

    /// See [`Mapped::marked_descriptor`].
    ///
    /// # Errors
    /// As there.
    fn marked_descriptor(&self, number: u64) -> io::Result<OwnedFd>;

    /// See [`Mapped::is_marked`].
    ///
    /// # Errors
    /// As there.
    fn is_marked(&self, number: u64) -> io::Result<bool>;
}

impl Region for Mapped {
    fn zero_lent(&self, at: u64, len: u64) -> io::Result<()> {
        Self::zero_lent(self, at, len)
    }

    fn for_each_locked(&self, part: (u64, u64), each: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        Self::for_each_locked(self, part, each)
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        Self::descriptor(self)
    }

    fn marked_descriptor(&self, number: u64) -> io::Result<OwnedFd> {
        Self::marked_descriptor(self, number)
    }

    fn is_marked(&self, number: u64) -> io::Result<bool> {
        Self::is_marked(self, number)
    }
}

/// Who has the pool open. It may become another opening meanwhile, as a mount's does by a rollback: what is lent stays so.
pub trait Owner: Send + Sync {
    /// The memory.
    type Medium: Region;
    /// The pool's world.
    type Host: Host;

    /// Runs `work` on the pool as it is now; `None` where it is closed, or about to be.
    fn with<R>(&self, work: impl FnOnce(&Pool<Self::Medium, Self::Host>) -> R) -> Option<R>;

    /// The directory that paths begin at.
    fn root(&self) -> Option<Ino> {
        self.with(Pool::root)
    }
}

impl<M: Region, H: Host> Owner for Arc<Pool<M, H>> {
    type Medium = M;
    type Host = H;

    fn with<R>(&self, work: impl FnOnce(&Pool<M, H>) -> R) -> Option<R> {
        Some(work(self))
    }
}

/// What to say of an error of taking.
pub(super) fn refusal(error: Error) -> Refusal {
    match error {
        Error::NoSpace | Error::NoMemory => Refusal::NoSpace,
        error => {
            tracing::warn!(%error, "the pool lends no memory");
            Refusal::Ending
        }
    }
}
