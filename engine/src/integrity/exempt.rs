//! Pages that are exempt from checksums, as programs have them mapped, and how they become whole again.
//!
//! What this file guarantees: what is kept of a page that was made whole is of what it held then. Bytes that could not
//! be loaded are lost, and nothing that was kept before brings them back as what they were.

use lode_pmem::{MediaError, Medium};

use super::crcs::{Crc, complement, crcs_of};
use super::keep::{COLUMN, parity_of};
use crate::store::Store;
use crate::{Error, Host, PAGE_BYTES, Result};

impl<M: Medium, H: Host> Store<M, H> {
    /// Loads bytes of pages that are exempt: nothing is known of them to compare them with.
    ///
    /// # Errors
    /// [`Error::Media`].
    pub(crate) fn load_exempt(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let loaded = self.door.load(at, into);
        if let Err(MediaError::Poisoned { at }) = loaded {
            // (What is not known for want of memory is met again.)
            let _ = self.met_bad(at);
        }
        loaded?;
        let lost = self.bad.first(at, into.len() as u64);
        lost.map_or(Ok(()), |at| Err(Error::Media { at }))
    }

    /// Streams checksums and parity of what is in a page, and starts to write that back, which others have stored. The
    /// caller's next fence ends both. `bytes` has room for a page.
    ///
    /// # Errors
    /// [`Error::Media`] where there is no room for its checksums: nothing is kept of it.
    #[track_caller]
    pub(crate) fn make_whole(
        &self,
        page: u64,
        bytes: &mut [u8; PAGE_BYTES as usize],
    ) -> Result<()> {
        let (at, counters) = (page * PAGE_BYTES, self.counters());
        self.door.window(0, counters).flush(at, PAGE_BYTES);
        match self.load_exempt(at, bytes) {
            Ok(()) if self.has_kept(page, bytes, counters) => Ok(()),
            Err(_) if self.make_rest_whole(page, bytes) => Ok(()),
            _ => Err(Error::Media { at }),
        }
    }

    /// The same of a page of which strips are lost: these get checksums that nothing has. Says whether there was room for
    /// them.
    #[cold]
    #[inline(never)]
    fn make_rest_whole(&self, page: u64, bytes: &mut [u8; PAGE_BYTES as usize]) -> bool {
        let strips = self.geometry.strips;
        let strip = strips.bytes() as usize;
        let mut lost = 0u32;
        for (number, part) in bytes.chunks_exact_mut(strip).enumerate() {
            let at = page * PAGE_BYTES + (number * strip) as u64;
            if self.load_exempt(at, part).is_err() {
                part.fill(0);
                lost |= 1 << number;
            }
        }
        let mut crcs = crcs_of(bytes, strip);
        for (number, crc) in
            crcs.iter_mut().enumerate().filter(|(number, _)| lost >> number & 1 == 1)
        {
            debug_assert!(number < strips.a_page());
            *crc = complement(*crc);
        }
        let crcs: &[Crc] = crcs.get(..strips.a_page()).unwrap_or_default();
        let stored = 2 * strips.crc_bytes() + strips.bytes();
        let mut window = self.door.window(stored, self.counters());
        if !self.keep_crcs(&mut window, page * PAGE_BYTES, crcs) {
            return false;
        }
        let mut parity = [0; COLUMN];
        for column in (0..strip).step_by(COLUMN) {
            parity_of(bytes, strip, column, &mut parity);
            window.copy_nt(strips.parity_at(page) + column as u64, &parity);
        }
        true
    }
}
