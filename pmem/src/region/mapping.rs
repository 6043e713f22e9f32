//! A piece of address space, given back when dropped.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use crate::fault::places;

/// A mapping that belongs to this process alone: no child of `fork` inherits it.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// Where it is mapped: not in a child.
    process: u32,
}

/// A part of a file: offset and length in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) at: u64,
    pub(super) len: usize,
}

/// Where a mapping is to be: at an address that is `phase` more than a multiple of `align`, a power
/// of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) align: u64,
    pub(super) phase: u64,
}

impl Mapping {
    /// Maps `len` bytes of `file`. Returns also whether that is `MAP_SYNC`: stores
    /// that have reached the memory are durable without the file system's help.
    pub(super) fn of_file(
        file: &File,
        len: usize,
        rights: libc::c_int,
        try_sync: bool,
    ) -> io::Result<(Self, bool)> {
        let fd = file.as_raw_fd();
        if try_sync {
            let flags = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
            match Self::map(len, rights, flags, fd) {
                Ok(mapping) => return Ok((mapping, true)),
                // Not DAX, or a kernel from before MAP_SYNC.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((Self::map(len, rights, libc::MAP_SHARED, fd)?, false))
    }

    /// Maps `len` bytes of memory.
    pub(super) fn anonymous(len: usize, rights: libc::c_int) -> io::Result<Self> {
        Self::map(len, rights, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    fn map(
        len: usize,
        rights: libc::c_int,
        flags: libc::c_int,
        fd: libc::c_int,
    ) -> io::Result<Self> {
        // SAFETY: no address is asked for, so no other mapping is touched.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let process = std::process::id();
        let mapping = Self { base, len, process };
        // SAFETY: the mapping is ours.
        if unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        places::mapped(base.as_ptr() as usize, len);
        Ok(mapping)
    }

    /// Maps parts of `file` one behind the other.
    pub(super) fn of_parts(
        file: &File,
        parts: &[Part],
        rights: libc::c_int,
        sync: bool,
        place: &Place,
    ) -> io::Result<Self> {
        let len = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(part.len));
        let len = len.ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Self::reserve(len, place)?;
        mapping.put(file, 0, parts, rights, sync)?;
        Ok(mapping)
    }

    /// Address space that nothing is in, at the place that was asked for.
    fn reserve(len: usize, place: &Place) -> io::Result<Self> {
        let (align, phase) = (place.align.max(1) as usize, place.phase as usize);
        let more = len.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: no address is asked for, so no other mapping is touched.
        let found =
            unsafe { libc::mmap(std::ptr::null_mut(), more, libc::PROT_NONE, flags, -1, 0) };
        if found == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = found as usize;
        let skip = (phase % align).wrapping_sub(start) & (align - 1);
        for (from, to) in [(start, start + skip), (start + skip + len, start + more)] {
            // SAFETY: the ends of what was just mapped, which nobody knows of.
            if from < to && unsafe { libc::munmap(from as *mut libc::c_void, to - from) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let base = found.cast::<u8>().wrapping_add(skip);
        let base = NonNull::new(base).ok_or(io::ErrorKind::AddrNotAvailable)?;
        places::mapped(base.as_ptr() as usize, len);
        Ok(Self { base, len, process: std::process::id() })
    }

    /// Puts parts of `file` in the place of what is mapped from offset `at` on. If it fails, some
    /// of them may be there.
    pub(super) fn put(
        &self,
        file: &File,
        at: usize,
        parts: &[Part],
        rights: libc::c_int,
        sync: bool,
    ) -> io::Result<()> {
        let kind = if sync { libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC } else { libc::MAP_SHARED };
        self.put_as(file, at, parts, (rights, kind))
    }

    /// Puts private copies of parts of `file` in the place of all that is mapped; where the system has none, nothing.
    pub(super) fn keep_apart(&self, file: &File, parts: &[Part]) {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        if self.put_as(file, 0, parts, (rights, libc::MAP_PRIVATE | libc::MAP_NORESERVE)).is_err() {
            let nothing =
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
            let start = self.base.as_ptr().cast();
            // SAFETY: the range is the mapping, which is ours; what is there makes place for nothing.
            unsafe { libc::mmap(start, self.len, libc::PROT_NONE, nothing, -1, 0) };
        }
    }

    fn put_as(
        &self,
        file: &File,
        at: usize,
        parts: &[Part],
        (rights, kind): (libc::c_int, libc::c_int),
    ) -> io::Result<()> {
        let mut at = at;
        for part in parts {
            assert!(at + part.len <= self.len, "part outside a mapping");
            let offset = libc::off_t::try_from(part.at).map_err(|_| io::ErrorKind::InvalidInput)?;
            let to = self.base.as_ptr().wrapping_add(at).cast();
            // SAFETY: the range is in a mapping of ours; what is there makes place for the file.
            let put = unsafe {
                libc::mmap(to, part.len, rights, kind | libc::MAP_FIXED, file.as_raw_fd(), offset)
            };
            if put == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: advice about what was just mapped.
            if unsafe { libc::madvise(to, part.len, libc::MADV_DONTFORK) } != 0 {
                return Err(io::Error::last_os_error());
            }
            at += part.len;
        }
        Ok(())
    }

    /// Has all pages there at once, with the rights that there are.
    pub(super) fn populate(&self, writable: bool) -> io::Result<()> {
        let how = if writable { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        // SAFETY: advice about a mapping of ours, which changes none of its bytes.
        match unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, how) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Changes what may be done with `len` bytes from page `at` on. When this returns, no thread stores by what was allowed
    /// before, and what it has stored is in the memory.
    pub(super) fn protect(&self, at: usize, len: usize, rights: libc::c_int) -> io::Result<()> {
        assert!(at + len <= self.len, "protection outside a mapping");
        let start = self.base.as_ptr().wrapping_add(at).cast();
        // SAFETY: the range is in a mapping of ours.
        match unsafe { libc::mprotect(start, len, rights) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Asks for huge pages; not getting them is no error.
    pub(super) fn prefer_huge_pages(&self) {
        // SAFETY: advice about a mapping of ours, which changes none of its bytes.
        unsafe {
            libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_HUGEPAGE);
        }
    }

    /// Writes the dirty pages among `len` bytes from page `at` to the disk.
    pub(super) fn msync(&self, at: u64, len: u64) -> io::Result<()> {
        assert!(at + len <= self.len as u64, "msync outside a mapping");
        let start = self.base.as_ptr().wrapping_add(at as usize);
        // SAFETY: the range is in a mapping of ours.
        match unsafe { libc::msync(start.cast(), len as usize, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    #[inline]
    pub(super) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if std::process::id() == self.process {
            places::unmapped(self.base.as_ptr() as usize);
            // SAFETY: the mapping is ours, and whatever used it is gone.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

// SAFETY: a mapping is an address range of the whole process.
unsafe impl Send for Mapping {}
// SAFETY: as above; what is done with the bytes is up to who stores and loads.
unsafe impl Sync for Mapping {}
