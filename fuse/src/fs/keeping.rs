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
    ///
    /// But who may read and write a file goes through the cache where the file was `mapped` by another of that
    /// kind. To map a file that goes around it makes the kernel drop the file's pages first, for all: out of the page
    /// tables, and a moment later out of what processors remember of those. Who writes around the cache in that
    /// moment goes on to see, through a map of its own, what was there before its write, and LMDB, say, begins its next
    /// transaction there. For the same reason no page is dropped by opening. Who can only write can't map: its
    /// writes stay whole.
    pub fn open_flags(&self, flags: u32, mapped: bool) -> u32 {
        let cached = match flags.cast_signed() & libc::O_ACCMODE {
            libc::O_RDONLY => !self.strict,
            libc::O_WRONLY => false,
            _ => mapped,
        };
        let around = if cached { 0 } else { FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES };
        around | FOPEN_KEEP_CACHE | FOPEN_NOFLUSH
    }
}

#[cfg(test)]
mod tests {
    use lode_engine::AccessTimes;

    use super::*;

    #[test]
    fn who_can_map_a_file_that_others_map_drops_none_of_its_pages() {
        let agreed = Agreed { minor: 0, flags: 0, offered: 0 };
        for atime in [AccessTimes::Relative, AccessTimes::Always] {
            let keeping = Keeping::new(&agreed, atime);
            for flags in
                [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR, libc::O_RDWR | libc::O_APPEND]
            {
                for mapped in [false, true] {
                    let open = keeping.open_flags(flags.cast_unsigned(), mapped);
                    assert_ne!(open & FOPEN_KEEP_CACHE, 0, "{flags:#o}");
                    let reads = flags == libc::O_RDONLY && atime != AccessTimes::Always;
                    let shares = mapped && flags & libc::O_ACCMODE == libc::O_RDWR;
                    assert_eq!(open & FOPEN_DIRECT_IO == 0, reads || shares, "{flags:#o} {mapped}");
                }
            }
        }
    }
}
