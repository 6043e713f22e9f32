//! What is kept of strips: computed from the bytes that are being stored, and stored with them.
//!
//! Only whole pages that nobody reads yet get theirs here: so checksums and parity are durable with the bytes,
//! under the same fence, before a record speaks of the page (PROTOCOL I8).

use lode_pmem::{Counters, Medium, Window};

use super::crcs::{Crc, crcs_of, kept};
use crate::layout::{CRC_BYTES, CrcTable, PAGE_STRIPS_MOST};
use crate::store::Store;
use crate::{Error, Host, PAGE_BYTES, Result, Rule};

/// Bytes of parity that are computed at a time.
pub(super) const COLUMN: usize = 256;
const LINE: usize = lode_pmem::LINE_BYTES;
/// Pages whose checksums are stored, or compared, together: they are on a few lines of each table.
pub(super) const TOGETHER: usize = 8;

/// Checksums of the last pages of a run that have been streamed, until they are stored: they are together, on a few lines of
/// each table, which are stored once for all of them.
pub(crate) struct Unstored {
    crcs: [Crc; TOGETHER * PAGE_STRIPS_MOST],
    first: u64,
    pages: usize,
    /// Pages that are together: behind them another line begins, or others' tables say something of the next.
    most: usize,
}

impl Unstored {
    /// None yet.
    pub(crate) fn none() -> Self {
        Self { crcs: [Crc::default(); TOGETHER * PAGE_STRIPS_MOST], first: 0, pages: 0, most: 0 }
    }
}

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
        self.stream_on(&mut Unstored::none(), page, bytes, true, counters)
    }

    /// The same of pages of a run from whose first one on `unstored` is for all; `is_last`: these are the last of it.
    ///
    /// # Errors
    /// The same, of any page of the run so far.
    #[inline(never)]
    pub(crate) fn stream_on(
        &self,
        unstored: &mut Unstored,
        page: u64,
        bytes: &[u8],
        is_last: bool,
        counters: &Counters,
    ) -> Result<()> {
        let plainly =
            self.host.leaves_out(Rule::ParityKept) || self.host.leaves_out(Rule::StripsWrittenBack);
        let (mut page, mut rest) = (page, bytes);
        while !rest.is_empty() {
            if unstored.pages == 0 {
                (unstored.first, unstored.most) = (page, self.most_together(page));
            }
            let few = unstored.most - unstored.pages;
            let (bytes, more) = rest.split_at(rest.len().min(few * PAGE_BYTES as usize));
            let pages = bytes.as_chunks().0;
            if plainly {
                let mut window = self.door.window(bytes.len() as u64, counters);
                window.copy_nt(page * PAGE_BYTES, bytes);
                drop(window);
                let mut each = (page..).zip(pages);
                each.try_for_each(|(page, bytes)| self.keep_strips(page, bytes, counters))?;
            } else {
                let is_last = !more.is_empty() || is_last || pages.len() == few;
                self.stream_some(unstored, page, pages, is_last, counters)?;
            }
            (page, rest) = (page + pages.len() as u64, more);
        }
        Ok(())
    }

    /// How many pages from `page` on have what is kept of them stored together: to the end of a line.
    fn most_together(&self, page: u64) -> usize {
        let strips = self.geometry.strips;
        let in_line = strips.crcs_at(page, CrcTable::First) % LINE as u64 / strips.crc_bytes();
        strips.together(page).min(TOGETHER as u64 - in_line) as usize
    }

    /// The same of pages that are together, and in one pass; the checksums of all of these, if they are the last.
    #[inline]
    fn stream_some(
        &self,
        unstored: &mut Unstored,
        page: u64,
        pages: &[[u8; PAGE_BYTES as usize]],
        is_last: bool,
        counters: &Counters,
    ) -> Result<()> {
        let strips = self.geometry.strips;
        let strip = strips.bytes();
        self.prefetch_parts(page, pages.len() as u64);
        let done = unstored.pages;
        unstored.pages += pages.len();
        let stored = if is_last { unstored.pages as u64 * 2 * strips.crc_bytes() } else { 0 };
        let streamed = pages.len() as u64 * (PAGE_BYTES + strip);
        let mut window = self.door.window(streamed + stored, counters);
        let mut places = unstored.crcs.iter_mut().skip(done * strips.a_page());
        for (page, bytes) in (page..).zip(pages) {
            let to = (page * PAGE_BYTES, strips.parity_at(page));
            window.copy_summed(to, bytes, strip as usize / LINE, |crc| {
                if let Some(place) = places.next() {
                    *place = kept(crc);
                }
            });
        }
        if !is_last {
            return Ok(());
        }
        let crcs = unstored.crcs.get(..unstored.pages * strips.a_page()).unwrap_or_default();
        unstored.pages = 0;
        match self.keep_pages(&mut window, unstored.first, crcs) {
            Ok(()) => Ok(()),
            Err(page) => Err(self.for_nobody(page)),
        }
    }

    /// Asks for the lines of tables of which such pages have a part: they are loaded when the pages have been streamed.
    #[inline]
    fn prefetch_parts(&self, page: u64, pages: u64) {
        let strips = self.geometry.strips;
        for table in [CrcTable::First, CrcTable::Second] {
            let at = strips.crcs_at(page, table);
            let end = at + pages * strips.crc_bytes();
            if !at.is_multiple_of(LINE as u64) {
                self.door.prefetch(at);
            }
            if !end.is_multiple_of(LINE as u64) {
                self.door.prefetch(end - 1);
            }
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

    /// Stores the checksums of whole pages from `page` on, whose places are side by side. `Err` has a page for which neither
    /// table has room.
    ///
    /// Whole lines are streamed: they need not be loaded first, as such a store makes memory good that has gone bad, where anything
    /// does. Where some is known to be bad nothing is left to that.
    #[inline]
    fn keep_pages(
        &self,
        window: &mut Window<'_, M>,
        page: u64,
        crcs: &[Crc],
    ) -> core::result::Result<(), u64> {
        let strips = self.geometry.strips;
        if self.bad.any() {
            let mut each = (page..).zip(crcs.chunks(strips.a_page()));
            let without =
                each.find(|(page, crcs)| !self.keep_crcs(window, page * PAGE_BYTES, crcs));
            return without.map_or(Ok(()), |(page, _)| Err(page));
        }
        let at = strips.crcs_at(page, CrcTable::First);
        let to_line = at.next_multiple_of(LINE as u64) - at;
        let (head, rest) = crcs.split_at(crcs.len().min((to_line / CRC_BYTES) as usize));
        let (lines, tail) = rest.as_chunks::<{ LINE / CRC_BYTES as usize }>();
        let page_of = |strips_before: usize| page + (strips_before / strips.a_page()) as u64;
        for (part, before) in [(head, 0), (tail, crcs.len() - tail.len())] {
            let page = page_of(before);
            if !part.is_empty() && !self.keep_crcs(window, page * PAGE_BYTES, part) {
                return Err(page);
            }
        }
        let lines = lines.as_flattened().as_flattened();
        let once = self.host.leaves_out(Rule::SecondChecksum);
        for table in [CrcTable::First, CrcTable::Second].into_iter().take(2 - usize::from(once)) {
            if !lines.is_empty() {
                window.copy_nt(strips.crcs_at(page, table) + to_line, lines);
            }
        }
        Ok(())
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
