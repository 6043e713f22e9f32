//! What is kept of strips: computed from the bytes that are being stored, and stored with them.
//!
//! Only whole pages that nobody reads yet get theirs here: so checksums and parity are durable with the bytes,
//! under the same fence, before a record speaks of the page (PROTOCOL I8).

use lode_pmem::{Counters, Medium, Window};

use super::crcs::{Crc, crcs_of};
use crate::layout::CrcTable;
use crate::store::Store;
use crate::{Host, PAGE_BYTES, Rule};

/// Bytes of parity that are computed at a time.
pub(super) const COLUMN: usize = 256;
const LINE: usize = lode_pmem::LINE_BYTES;

impl<M: Medium, H: Host> Store<M, H> {
    /// Streams checksums and parity of the whole pages `bytes`, which are being stored at `page` and behind it;
    /// the fence that completes those completes these.
    #[inline]
    pub(crate) fn keep_strips(&self, page: u64, bytes: &[u8], counters: &Counters) {
        if self.geometry.strips.are_kept() {
            let pages = bytes.as_chunks::<{ PAGE_BYTES as usize }>().0;
            for (page, bytes) in (page..).zip(pages) {
                self.keep_page(page, bytes, counters);
            }
        }
    }

    /// Streams a page of file data, with what is kept of it.
    pub(crate) fn stream_page(&self, page: u64, bytes: &[u8], counters: &Counters) {
        self.door.window(PAGE_BYTES, counters).copy_nt(page * PAGE_BYTES, bytes);
        self.keep_strips(page, bytes, counters);
    }

    #[inline(never)]
    fn keep_page(&self, page: u64, bytes: &[u8; PAGE_BYTES as usize], counters: &Counters) {
        let strips = self.geometry.strips;
        let crcs = crcs_of(bytes, strips.bytes() as usize);
        let crcs = crcs.get(..strips.a_page()).unwrap_or_default();
        let stored = 2 * strips.crc_bytes() + strips.bytes();
        let mut window = self.door.window(stored, counters);
        self.keep_crcs(&mut window, page, crcs);
        let mut parity = [0; COLUMN];
        let mut column = 0;
        let kept = !self.host.leaves_out(Rule::ParityKept);
        while kept && column < strips.bytes() as usize {
            parity_of(bytes, strips.bytes() as usize, column, &mut parity);
            self.put(&mut window, strips.parity_at(page) + column as u64, &parity);
            column += COLUMN;
        }
    }

    fn keep_crcs(&self, window: &mut Window<'_, M>, page: u64, crcs: &[Crc]) {
        let once = self.host.leaves_out(Rule::SecondChecksum);
        for table in [CrcTable::First, CrcTable::Second].into_iter().take(2 - usize::from(once)) {
            self.put(window, self.geometry.strips.crcs_at(page, table), crcs.as_flattened());
        }
    }

    fn put(&self, window: &mut Window<'_, M>, at: u64, bytes: &[u8]) {
        if self.host.leaves_out(Rule::StripsWrittenBack) {
            window.store(at, bytes);
        } else {
            window.copy_nt(at, bytes);
        }
    }
}

/// The sum (exclusive or) of bytes `column ..` of all strips of a page.
pub(super) fn parity_of(page: &[u8], strip: usize, column: usize, parity: &mut [u8; COLUMN]) {
    for (line, sum) in parity.as_chunks_mut::<LINE>().0.iter_mut().enumerate() {
        // (A line's sum stays in registers.)
        let mut words = [0; LINE / 8];
        for strip in page.chunks_exact(strip) {
            let from = column + line * LINE;
            let part = strip.get(from..from + LINE).unwrap_or_default();
            for (word, bytes) in words.iter_mut().zip(part.as_chunks::<8>().0) {
                *word ^= u64::from_le_bytes(*bytes);
            }
        }
        for (bytes, word) in sum.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
    }
}
