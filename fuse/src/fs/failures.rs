//! Errors of the engine as the kernel takes them. Those that are damage are logged.

use lode_engine::{Error, Host, Ino};
use lode_pmem::Medium;

use super::Work;
use crate::wire::Errno;

impl<M: Medium, H: Host> Work<'_, M, H> {
    /// The answer for an error that came up in the inode `ino`.
    pub(super) fn errno_in(&self, ino: Ino, error: &Error) -> Errno {
        self.state.damage.met(self.pool(), ino, None, error);
        Errno::new(error.errno())
    }

    /// The answer for an error that came up with so many bytes from an offset in a file on.
    pub(super) fn errno_at(&self, ino: Ino, (offset, bytes): (u64, u64), error: &Error) -> Errno {
        self.state.damage.met(self.pool(), ino, Some((offset, bytes)), error);
        Errno::new(error.errno())
    }
}
