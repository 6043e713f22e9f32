//! Address space of a borrower, into which parts of a region are put and taken out again.
//!
//! What this file guarantees: nothing but the span's own address space is mapped, unmapped or moved. Nothing here
//! allocates: an allocator can be built on it. What the addresses are used for is up to who has the span; where nothing is
//! mapped, a load or store is a SIGSEGV.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// How pages are made to be there at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Populate {
    /// For loads: of a file in memory (tmpfs) they can be stored into then, too, and it is the faster way.
    Read,
    /// For stores.
    Write,
}

/// A piece of address space, reserved.
#[derive(Debug)]
pub struct Span {
    base: NonNull<u8>,
    len: usize,
}

/// Reserved address space: nothing can be loaded or stored there, and it counts for nothing.
const NOTHING: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

impl Span {
    /// `len` bytes of address space at a multiple of `align`, a power of two; both of whole pages.
    ///
    /// # Errors
    /// Those of the system.
    pub fn reserve(len: usize, align: usize) -> io::Result<Self> {
        if len == 0 || !align.is_power_of_two() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let more = len.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: no address is asked for, so no other mapping is touched.
        let found =
            unsafe { libc::mmap(std::ptr::null_mut(), more, libc::PROT_NONE, NOTHING, -1, 0) };
        if found == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = found as usize;
        let skip = start.next_multiple_of(align) - start;
        let base = found.cast::<u8>().wrapping_add(skip);
        for (from, to) in [(start, start + skip), (start + skip + len, start + more)] {
            if from < to {
                // SAFETY: the ends of what was just mapped, which nobody knows of. (If it fails, they stay reserved.)
                unsafe { libc::munmap(from as *mut libc::c_void, to - from) };
            }
        }
        let base = NonNull::new(base).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { base, len })
    }

    /// Where it begins.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes in it.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// The address of `len` bytes from offset `at` of the span.
    fn place(&self, at: usize, len: usize) -> io::Result<*mut libc::c_void> {
        let end = at.checked_add(len).filter(|&end| end <= self.len && len > 0);
        end.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.base().wrapping_add(at).cast())
    }

    fn put(
        &self,
        (at, len): (usize, usize),
        rights: libc::c_int,
        flags: libc::c_int,
        (file, offset): (libc::c_int, u64),
    ) -> io::Result<()> {
        let to = self.place(at, len)?;
        let offset = libc::off_t::try_from(offset);
        let offset = offset.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: the range is in the span: what is there is its own, and makes place.
        let put = unsafe { libc::mmap(to, len, rights, flags | libc::MAP_FIXED, file, offset) };
        if put == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Puts `len` bytes of `file` from its byte `from` on at offset `at` of the span, shared with all who map them.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] outside of the span; those of the system.
    pub fn map(&self, at: usize, file: BorrowedFd<'_>, from: u64, len: usize) -> io::Result<()> {
        self.put((at, len), READ_WRITE, libc::MAP_SHARED, (file.as_raw_fd(), from))
    }

    /// Puts `len` bytes of zeroed main memory at offset `at` of the span.
    ///
    /// # Errors
    /// As of [`Span::map`].
    pub fn anonymous(&self, at: usize, len: usize) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        self.put((at, len), READ_WRITE, flags, (-1, 0))
    }

    /// Takes what is at offset `at` of the span out of it: what was there can't be reached any more.
    ///
    /// # Errors
    /// As of [`Span::map`].
    pub fn clear(&self, at: usize, len: usize) -> io::Result<()> {
        self.put((at, len), libc::PROT_NONE, NOTHING, (-1, 0))
    }

    /// Moves what is mapped at offset `from` to offset `to` of this span or another: the pages, not their bytes. Where it was
    /// nothing is then.
    ///
    /// # Errors
    /// As of [`Span::map`]; where the two overlap; of systems before Linux 5.13: nothing is moved then.
    pub fn relocate(&self, from: usize, into: &Self, to: usize, len: usize) -> io::Result<()> {
        let (old, new) = (self.place(from, len)?, into.place(to, len)?);
        // (The old place stays taken until it is cleared: nobody else's mapping comes there in between.)
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        // SAFETY: both ranges are in spans: what is at the new one makes place.
        let moved = unsafe { libc::mremap(old, len, len, flags, new) };
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        self.clear(from, len)
    }

    /// Has the pages of `len` bytes from offset `at` on there at once. Where the system can't, each comes when it is used.
    ///
    /// # Errors
    /// As of [`Span::map`].
    pub fn populate(&self, at: usize, len: usize, how: Populate) -> io::Result<()> {
        let advice = match how {
            Populate::Read => libc::MADV_POPULATE_READ,
            Populate::Write => libc::MADV_POPULATE_WRITE,
        };
        self.advise(at, len, advice)
    }

    /// Asks for huge pages. Not getting them is no error.
    pub fn prefer_huge_pages(&self, at: usize, len: usize) {
        let _ = self.advise(at, len, libc::MADV_HUGEPAGE);
    }

    fn advise(&self, at: usize, len: usize, advice: libc::c_int) -> io::Result<()> {
        let place = self.place(at, len)?;
        loop {
            // SAFETY: advice about a part of the span, which changes none of its bytes.
            if unsafe { libc::madvise(place, len, advice) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The system does not know it.
                Some(libc::EINVAL) => return Ok(()),
                _ => return Err(error),
            }
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        // SAFETY: the span's own address space, which nobody is to use any more.
        unsafe { libc::munmap(self.base().cast(), self.len) };
    }
}

// SAFETY: a span is an address range of the whole process; its calls are those of the system, which orders them.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}
