//! What is kept of strips: computed from the bytes that are being stored, and stored with them.
//!
//! Only whole pages that nobody reads yet get theirs here: so checksums and parity are durable with the bytes,
//! under the same fence, before a record speaks of the page (PROTOCOL I8).

use lode_pmem::{Counters, Medium, Window};

use super::crcs::{Crc, crcs_of, kept};
use crate::layout::{CrcTable, PAGE_STRIPS_MOST};
use crate::store::Store;
use crate::{Error, Host, PAGE_BYTES, Result, Rule};

/// Bytes of parity that are computed at a time.
pub(super) const COLUMN: usize = 256;
const LINE: usize = lode_pmem::LINE_BYTES;
/// Pages whose checksums are stored, or compared, together: they are on a few lines of each table.
pub(super) const TOGETHER: usize = 8;

impl<M: Medium, H: Host> Store<M, H> {
    /// Streams the whole pages `bytes` of file data to `page` and behind it, with what is kept of them, if anything is: the
    /// fence that completes those completes these.
    ///
    /// # Errors
    /// [`Error::Media`] where a page has no room for checksums that can be loaded: it is for nobody.
    #[inline(never)]
    pub(crate) fn stream_pages(&self, page: u64, bytes: &[u8], counters: &Counters) -> Result<()> {
        if !self.geometry.strips.are_kept() {
            self.door.window(bytes.len() as u64, counters).copy_nt(page * PAGE_BYTES, bytes);
            return Ok(());
        }
        let plainly =
            self.host.leaves_out(Rule::ParityKept) || self.host.leaves_out(Rule::StripsWrittenBack);
        let (mut page, mut rest) = (page, bytes);
        while !rest.is_empty() {
            let few = self.geometry.strips.together(page).min(TOGETHER as u64);
            let (bytes, more) = rest.split_at(rest.len().min((few * PAGE_BYTES) as usize));
            let pages = bytes.as_chunks().0;
            if plainly {
                let mut window = self.door.window(bytes.len() as u64, counters);
                window.copy_nt(page * PAGE_BYTES, bytes);
                drop(window);
                let mut each = (page..).zip(pages);
                each.try_for_each(|(page, bytes)| self.keep_strips(page, bytes, counters))?;
            } else if pages.len() == 1 {
                self.stream_some::<PAGE_STRIPS_MOST>(page, pages, counters)?;
            } else {
                self.stream_some::<{ TOGETHER * PAGE_STRIPS_MOST }>(page, pages, counters)?;
            }
            (page, rest) = (page + few, more);
        }
        Ok(())
    }

    /// The same of a few pages, of `N` strips at most and with all that is kept side by side, in one pass.
    #[inline]
    fn stream_some<const N: usize>(
        &self,
        page: u64,
        pages: &[[u8; PAGE_BYTES as usize]],
        counters: &Counters,
    ) -> Result<()> {
        let strips = self.geometry.strips;
        let strip = strips.bytes();
        for table in [CrcTable::First, CrcTable::Second] {
            self.door.prefetch(strips.crcs_at(page, table));
        }
        let a_page = PAGE_BYTES + strip + 2 * strips.crc_bytes();
        let mut window = self.door.window(pages.len() as u64 * a_page, counters);
        let mut crcs = [Crc::default(); N];
        let mut places = crcs.iter_mut();
        for (page, bytes) in (page..).zip(pages) {
            let to = (page * PAGE_BYTES, strips.parity_at(page));
            window.copy_summed(to, bytes, strip as usize / LINE, |crc| {
                if let Some(place) = places.next() {
                    *place = kept(crc);
                }
            });
        }
        let crcs = crcs.get(..pages.len() * strips.a_page()).unwrap_or_default();
        match self.keep_pages::<N>(&mut window, page, crcs) {
            Ok(()) => Ok(()),
            Err(page) => Err(self.for_nobody(page)),
        }
    }

    /// The page has no place for checksums: it is for nobody.
    #[cold]
    fn for_nobody(&self, page: u64) -> Error {
        let at = page * PAGE_BYTES;
        // (Given back, it is kept from use, until an opening finds it good.)
        self.bad.lose(at).err().unwrap_or(Error::Media { at })
    }

    /// Streams checksums and parity of bytes that are at `page` already, or on their way.
    ///
    /// # Errors
    /// As [`Store::stream_pages`].
    pub(crate) fn keep_strips(
        &self,
        page: u64,
        bytes: &[u8; PAGE_BYTES as usize],
        counters: &Counters,
    ) -> Result<()> {
        match self.has_kept(page, bytes, counters) {
            true => Ok(()),
            false => Err(self.for_nobody(page)),
        }
    }

    /// The same, but for the end of the page where there is no room for its checksums; says whether there was.
    #[inline(never)]
    pub(super) fn has_kept(
        &self,
        page: u64,
        bytes: &[u8; PAGE_BYTES as usize],
        counters: &Counters,
    ) -> bool {
        let strips = self.geometry.strips;
        let crcs = crcs_of(bytes, strips.bytes() as usize);
        let crcs = crcs.get(..strips.a_page()).unwrap_or_default();
        let stored = 2 * strips.crc_bytes() + strips.bytes();
        let mut window = self.door.window(stored, counters);
        if !self.keep_crcs(&mut window, page * PAGE_BYTES, crcs) {
            return false;
        }
        let mut parity = [0; COLUMN];
        let mut column = 0;
        let kept = !self.host.leaves_out(Rule::ParityKept);
        while kept && column < strips.bytes() as usize {
            parity_of(bytes, strips.bytes() as usize, column, &mut parity);
            self.put_parity(&mut window, strips.parity_at(page) + column as u64, &parity);
            column += COLUMN;
        }
        true
    }

    /// Stores the checksums of whole pages from `page` on, of `N` strips at most, whose places are side by side. `Err` has a page for which neither
    /// table has room.
    #[inline]
    fn keep_pages<const N: usize>(
        &self,
        window: &mut Window<'_, M>,
        page: u64,
        crcs: &[Crc],
    ) -> core::result::Result<(), u64> {
        let tables = [CrcTable::First, CrcTable::Second];
        let mut there = [Crc::default(); N];
        let there = there.get_mut(..crcs.len()).unwrap_or_default();
        // (All of their lines at once.)
        if tables.iter().all(|table| self.load_crcs(page * PAGE_BYTES, *table, there).is_ok()) {
            let once = self.host.leaves_out(Rule::SecondChecksum);
            for table in tables.into_iter().take(2 - usize::from(once)) {
                let at = self.geometry.strips.crcs_at(page, table);
                self.put_crcs(window, at, crcs.as_flattened());
            }
            return Ok(());
        }
        let mut each = (page..).zip(crcs.chunks(self.geometry.strips.a_page()));
        let without = each.find(|(page, crcs)| !self.keep_crcs(window, page * PAGE_BYTES, crcs));
        without.map_or(Ok(()), |(page, _)| Err(page))
    }

    /// Stores the checksums of strips from `at` on, of one page; says whether some table has them. (They are less
    /// than a line, which must not be stored to memory that has gone bad. The other table is enough.)
    pub(super) fn keep_crcs(&self, window: &mut Window<'_, M>, at: u64, crcs: &[Crc]) -> bool {
        let once = self.host.leaves_out(Rule::SecondChecksum);
        let mut kept = false;
        for table in [CrcTable::First, CrcTable::Second].into_iter().take(2 - usize::from(once)) {
            if self.load_crc(at, table).is_some() {
                self.put_crcs(window, self.crcs_at(at, table), crcs.as_flattened());
                kept = true;
            }
        }
        kept
    }

    /// Stores checksums, which are less than a line, and writes the line back: it is in the cache, as it has been loaded, and
    /// a memory that gets a part of a line by a streaming store takes 100 ns longer for it.
    fn put_crcs(&self, window: &mut Window<'_, M>, at: u64, bytes: &[u8]) {
        window.store(at, bytes);
        if !self.host.leaves_out(Rule::StripsWrittenBack) {
            window.flush(at, bytes.len() as u64);
        }
    }

    fn put_parity(&self, window: &mut Window<'_, M>, at: u64, bytes: &[u8]) {
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
