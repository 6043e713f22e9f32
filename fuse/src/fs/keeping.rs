//! What the kernel may keep, and how what is opened is treated: the same in every mount.

use std::time::Duration;

use fuse_abi::linux::{
    FOPEN_CACHE_DIR, FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FOPEN_NOFLUSH,
    FOPEN_PARALLEL_DIRECT_WRITES, FUSE_NO_OPENDIR_SUPPORT,
};
use lode_engine::AccessTimes;

use crate::wire::{Agreed, Answer, Errno};

/// How long the kernel may keep names and attributes: as good as for ever.
pub const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long the kernel may keep the root's attributes. It checks them on every path
/// into the mount: so a path into the mount of a server that was killed fails after
/// this time, whatever else the kernel has cached.
pub const ROOT_TTL: Duration = Duration::from_millis(20);

/// What a kernel may keep, which agreed to something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keeping {
    /// The kernel can be told to open directories without asking.
    silent_opendir: bool,
    /// Every read is to reach the server, which moves the access time: the kernel may keep neither
    /// pages nor listings.
    strict: bool,
}

impl Keeping {
    /// For a kernel with which that was agreed.
    pub fn new(agreed: &Agreed, atime: AccessTimes) -> Self {
        Self {
            silent_opendir: agreed.offered & u64::from(FUSE_NO_OPENDIR_SUPPORT) != 0,
            strict: atime == AccessTimes::Always,
        }
    }

    /// As with files; the kernel keeps listings until it changes the directory.
    ///
    /// # Errors
    /// `ENOSYS` tells the kernel not to ask again.
    pub fn opendir(&self) -> Result<Answer<'static>, Errno> {
        if self.strict {
            return Ok(Answer::opened(0));
        }
        if self.silent_opendir {
            return Err(Errno::ENOSYS);
        }
        Ok(Answer::opened(FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR))
    }

    /// What is opened for writing goes around the kernel's page cache: through it, a write
    /// that begins inside a page that is not cached arrives in two pieces, cut at the end of
    /// that page, and so is not atomic. Pages of what is only read stay cached.
    pub fn open_flags(&self, flags: u32) -> u32 {
        let reads_only = flags.cast_signed() & libc::O_ACCMODE == libc::O_RDONLY;
        let cached = if reads_only && !self.strict {
            FOPEN_KEEP_CACHE
        } else {
            FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES
        };
        cached | FOPEN_NOFLUSH
    }
}
