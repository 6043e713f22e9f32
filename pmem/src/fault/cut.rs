//! What somebody has cut off a file while it is used as a device of blocks.
//!
//! Why it is not death there, as it is for a pool: whoever stores blocks can be told that one is lost, and all the others are as good
//! as before. A store behind the file's end can't end with an error, so it goes to memory of nobody, which takes the place of all that was
//! cut off; that it did is seen afterwards, by the word that tells of bad memory, so that a store to a file that is whole costs nothing more.
//!
//! What this file guarantees: all that the signal handler calls here is safe in one. Where the file ends is noted before
//! memory of nobody is there: who has loaded from it or stored to it, and looks then, finds it noted. What was noted stays, also if the file
//! grows again: nothing of it is what it was.

use std::ffi::c_int;
use std::sync::atomic::{
    AtomicI32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

const PAGE: u64 = 4096;

/// Where a file was found to end.
pub(super) struct Cut {
    /// -1 where to be cut short is death.
    file: AtomicI32,
    /// Bytes that are mapped.
    len: AtomicU64,
    /// The first byte that is lost.
    from: AtomicU64,
}

/// The bytes of a file; `None` for what is none, and of which the kernel does not tell.
pub(crate) fn file_bytes(file: c_int) -> Option<u64> {
    // SAFETY: a zeroed stat is a valid value, which the call fills.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let is_file =
            libc::fstat(file, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        is_file.then_some(stat.st_size as u64)
    }
}

impl Cut {
    pub(super) const fn none() -> Self {
        Self { file: AtomicI32::new(-1), len: AtomicU64::new(0), from: AtomicU64::new(u64::MAX) }
    }

    /// From now on stores behind the end of this file, of which `len` bytes are mapped, are no death.
    pub(super) fn survive(&self, file: c_int, len: u64) {
        self.len.store(len, SeqCst);
        self.file.store(file, SeqCst);
    }

    /// The file; -1 where to be cut short is death.
    pub(super) fn file(&self) -> c_int {
        self.file.load(SeqCst)
    }

    /// The first byte of `at .. at + len` that is lost.
    pub(super) fn first(&self, at: u64, len: u64) -> Option<u64> {
        let from = self.from.load(SeqCst);
        (from < at.saturating_add(len)).then_some(from.max(at))
    }

    /// In the handler: if the file of the region at `base` ends in front of `offset`, puts memory of nobody behind its end. Says
    /// whether it did; `note` is called before.
    pub(super) fn take(&self, base: usize, key: c_int, offset: u64, note: impl FnOnce()) -> bool {
        let (file, len) = (self.file.load(SeqCst), self.len.load(Relaxed));
        if file < 0 {
            return false;
        }
        let Some(bytes) = file_bytes(file) else { return false };
        let end = bytes.next_multiple_of(PAGE);
        if offset < end || end >= len {
            return false;
        }
        self.from.fetch_min(bytes, SeqCst);
        note();
        put_nobodys(base + end as usize, (len - end) as usize, key)
    }
}

/// Maps memory of nobody there, which a child of `fork` does not inherit.
pub(super) fn put_nobodys(to: usize, len: usize, key: c_int) -> bool {
    let (to, rights) = (to as *mut libc::c_void, libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: takes the place of pages of the region that are no file's any more, with the same key. The calls are no more than
    // system calls.
    unsafe {
        libc::mmap(to, len, rights, flags, -1, 0) == to
            && (key < 0 || libc::syscall(libc::SYS_pkey_mprotect, to, len, rights, key) == 0)
            && libc::madvise(to, len, libc::MADV_DONTFORK) == 0
    }
}

/// Gives back what was stored to memory of nobody, in the pages that these bytes touch.
pub(super) fn forget(address: usize, len: usize) {
    let page = PAGE as usize;
    let start = address - address % page;
    let end = (address + len).next_multiple_of(page);
    // SAFETY: nobody is given what is there: it is lost already.
    unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED) };
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_the_end_is_lost() {
        let cut = Cut::none();
        assert_eq!(cut.first(0, u64::MAX), None);
        cut.from.store(5000, SeqCst);
        assert_eq!((cut.first(0, 5000), cut.first(4096, 905)), (None, Some(5000)));
        assert_eq!((cut.first(8192, 64), cut.first(u64::MAX, 1)), (Some(8192), Some(u64::MAX)));
    }
}
