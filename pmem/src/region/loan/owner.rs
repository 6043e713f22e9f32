//! What a lender does with a region that it has open.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::locked_by_others;
use crate::flush::{FlushStrategy, LineStore, x86};
use crate::region::Mapped;
use crate::{LINE_BYTES, Medium};

/// Zeros that are streamed at a time.
static ZEROS: [[u8; LINE_BYTES]; 64] = [[0; LINE_BYTES]; 64];

impl Mapped {
    /// A descriptor of the region's file for one borrower, close-on-exec: its open file description, and so its locks, are
    /// of its own.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for memory that has no file; those of opening it.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        let file = self.lent_file().ok_or(io::ErrorKind::Unsupported)?;
        // By what is open, not by its path: that may lead to another file by now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(OpenOptions::new().read(true).write(true).open(path)?.into())
    }

    /// The same, marked as that of borrower number `number` of pages of files ([`super::mark`]).
    ///
    /// # Errors
    /// Those of [`Mapped::descriptor`] and of locking.
    pub fn marked_descriptor(&self, number: u64) -> io::Result<OwnedFd> {
        let descriptor = self.descriptor()?;
        super::mark(descriptor.as_fd(), number)?;
        Ok(descriptor)
    }

    /// Whether the borrower of this number has not let go yet.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::Unsupported`] for memory that has no file.
    pub fn is_marked(&self, number: u64) -> io::Result<bool> {
        let file = self.lent_file().ok_or(io::ErrorKind::Unsupported)?;
        super::kept::is_marked(file.as_fd(), number)
    }

    /// Calls `each` with start and length of the parts of bytes `at .. at + len` that others have locked.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::Unsupported`] for memory that has no file.
    pub fn for_each_locked(
        &self,
        (at, len): (u64, u64),
        each: &mut dyn FnMut(u64, u64),
    ) -> io::Result<()> {
        let file = self.lent_file().ok_or(io::ErrorKind::Unsupported)?;
        let part = at..at.saturating_add(len).min(self.bytes());
        locked_by_others(file.as_fd(), part, &mut |found| {
            each(found.start, found.end - found.start)
        })
    }

    /// Fills bytes `at .. at + len`, whole lines, which are about to be lent, with zeros, past the caches. Who maps them
    /// afterwards sees zeros. Nothing is made durable by it, and no later fence writes it to a disk. A slower medium that is emulated
    /// takes the time for it that it needs.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] outside of the region, and where it is read-only or the part not of whole lines;
    /// where its pages can't be opened.
    pub fn zero_lent(&self, at: u64, len: u64) -> io::Result<()> {
        let line = LINE_BYTES as u64;
        let end = at.checked_add(len).filter(|&end| end <= self.bytes_writable);
        if end.is_none() || !at.is_multiple_of(line) || !len.is_multiple_of(line) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let how = match self.strategy() {
            FlushStrategy::Instructions { line_store, .. } => line_store,
            FlushStrategy::Msync => LineStore::Sse2,
        };
        let mut taken = self.emulation.as_ref().map(|emulation| emulation.opened());
        let zeroed = self.store_by(at, len, |to| {
            for done in (0..len as usize).step_by(ZEROS.as_flattened().len()) {
                let lines = ((len as usize - done) / LINE_BYTES).min(ZEROS.len());
                let zeros = ZEROS.get(..lines).unwrap_or_default();
                // SAFETY: aligned lines of the mapping, open for stores; the strategy's instruction is one of this CPU.
                unsafe { x86::stream_lines(how, to.wrapping_add(done), zeros) };
            }
            x86::fence();
            Ok::<(), std::convert::Infallible>(())
        });
        zeroed?;
        if let (Some(emulation), Some(taken)) = (&self.emulation, &mut taken) {
            taken.add(len);
            emulation.closed(taken);
            emulation.fenced();
        }
        Ok(())
    }

    fn lent_file(&self) -> Option<&File> {
        self.locked.as_ref().map(|locked| locked.file())
    }
}
