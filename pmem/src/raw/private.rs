//! Pages that are mapped for one access (PMBD's private mappings, section IV.B.2).
//!
//! What this file guarantees: between accesses nothing of the region is mapped; during one, only the pages that it touches are, at
//! an address that nobody else is told. (A child that is forked meanwhile inherits them, and keeps them.)

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Pages of a file, mapped until this is dropped.
pub(super) struct Window {
    base: *mut u8,
    len: usize,
    /// Of the first byte that was asked for, behind the base.
    offset: usize,
}

impl Window {
    /// Maps the pages of `file` that hold `len` bytes from `at` on, for these rights and with these flags.
    pub(super) fn open(
        file: &File,
        page_bytes: u64,
        (at, len): (u64, u64),
        (rights, flags): (libc::c_int, libc::c_int),
    ) -> io::Result<Self> {
        let start = at - at % page_bytes;
        let end = at.checked_add(len).and_then(|end| end.checked_next_multiple_of(page_bytes));
        let bytes = usize::try_from(end.ok_or(io::ErrorKind::InvalidInput)? - start);
        let bytes = bytes.map_err(|_| io::ErrorKind::OutOfMemory)?;
        let from = libc::off_t::try_from(start).map_err(|_| io::ErrorKind::InvalidInput)?;
        // (Pages that are to be stored to are asked for by themselves, which says whether they are there.)
        let is_stored_to = rights & libc::PROT_WRITE != 0;
        let flags = if is_stored_to { flags } else { flags | libc::MAP_POPULATE };
        // SAFETY: no address is asked for, so no other mapping is touched.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, rights, flags, file.as_raw_fd(), from)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), len: bytes, offset: (at - start) as usize })
    }

    /// Sees to it that stores find memory in all of it.
    ///
    /// # Errors
    /// `EFAULT` where there is none, `EHWPOISON` where it has failed: nobody dies of it yet.
    pub(super) fn populate(&self) -> io::Result<()> {
        // SAFETY: pages of the mapping, which is ours.
        if unsafe { libc::madvise(self.base.cast(), self.len, libc::MADV_POPULATE_WRITE) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EFAULT | libc::EHWPOISON) => Err(error),
            // (Linux before 5.14 can't say.)
            _ => Ok(()),
        }
    }

    /// Where the bytes are that were asked for.
    pub(super) fn at(&self) -> *mut u8 {
        self.base.wrapping_add(self.offset)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever was told of it is done.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
