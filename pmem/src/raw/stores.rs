//! The stores of a write scheme, to memory that is open.

use super::WriteScheme;
use crate::LINE_BYTES;
use crate::flush::{LineStore, WriteBack, x86};
use crate::region::RegionError;

static ZEROS: [[u8; LINE_BYTES]; 64] = [[0; LINE_BYTES]; 64];

/// A write scheme and the instructions that it is done by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stores {
    scheme: WriteScheme,
    line_store: LineStore,
    write_back: WriteBack,
}

impl Stores {
    pub(super) fn new(scheme: WriteScheme, caches_survive: bool) -> Result<Self, RegionError> {
        let (line_store, write_back) = scheme.instructions(caches_survive)?;
        Ok(Self { scheme, line_store, write_back })
    }

    pub(super) fn scheme(&self) -> WriteScheme {
        self.scheme
    }

    /// Stores whole lines. Where the scheme is not [`WriteScheme::Cached`] a fence makes them durable.
    ///
    /// # Safety
    /// `to` is the aligned address of as many bytes of a mapping that this thread may store to.
    #[inline]
    pub(super) unsafe fn store(&self, to: *mut u8, bytes: &[u8]) {
        // SAFETY: as the caller promises; the CPU was asked for the instructions.
        unsafe {
            match self.scheme {
                WriteScheme::Nt => {
                    x86::stream_lines(self.line_store, to, bytes.as_chunks::<LINE_BYTES>().0);
                }
                WriteScheme::Clwb | WriteScheme::Clflush => {
                    x86::store_words(to, bytes.as_chunks::<8>().0);
                    self.write_back(to, bytes.len());
                }
                WriteScheme::Cached => x86::store_words(to, bytes.as_chunks::<8>().0),
            }
        }
    }

    /// Stores zeros, whole lines of them.
    ///
    /// # Safety
    /// As of [`Stores::store`].
    pub(super) unsafe fn zero(&self, to: *mut u8, len: usize) {
        let zeros = ZEROS.as_flattened();
        for at in (0..len).step_by(zeros.len()) {
            let part = zeros.get(..len - at).unwrap_or(zeros);
            // SAFETY: a part of what the caller promises.
            unsafe { self.store(to.wrapping_add(at), part) };
        }
    }

    /// Starts the write-back of lines that were stored through the cache.
    ///
    /// # Safety
    /// `to` is the aligned address of as many bytes of a mapping.
    pub(super) unsafe fn write_back(&self, to: *mut u8, len: usize) {
        for at in (0..len).step_by(LINE_BYTES) {
            // SAFETY: as the caller promises; the CPU was asked for the instruction.
            unsafe { x86::write_back(self.write_back, to.wrapping_add(at)) };
        }
    }
}
