//! Strips that are overwritten in place, through a file's journal (PROTOCOL I16).
//!
//! What this file guarantees: the journal has whole strips, with checksums of their own. While their record is not
//! retired, bytes, checksums and parity at home may be any mix of what was and what comes, and are all made again
//! from the journal.

use lode_pmem::{Counters, Medium, Window};

use super::crcs::{Crc, Crcs, complement, crcs_of, kept};
use super::keep::COLUMN;
use super::verify::Whose;
use crate::layout::{CrcTable, LINE};
use crate::store::Store;
use crate::{Error, Host, Ino, PAGE_BYTES, Result};

const TABLES: [CrcTable; 2] = [CrcTable::First, CrcTable::Second];

/// Journalled bytes, and where their home is.
#[derive(Clone, Copy)]
struct Home {
    journal_at: u64,
    home_at: u64,
    len: u64,
}

impl Home {
    /// Where the `len` bytes wait whose home is at `at`, if all of them do.
    fn waits(&self, at: u64, len: u64) -> Option<u64> {
        let skip = at.checked_sub(self.home_at)?;
        (skip + len <= self.len).then_some(self.journal_at + skip)
    }
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Streams whole strips to `at`, where they wait, with their checksums, which are returned.
    ///
    /// # Errors
    /// [`Error::Media`] where there is no room for checksums that can be loaded.
    pub(crate) fn stream_strips(&self, at: u64, bytes: &[u8], counters: &Counters) -> Result<Crcs> {
        let strip = self.geometry.strips.bytes() as usize;
        let crcs = crcs_of(bytes, strip);
        let stored = crcs.get(..bytes.len() / strip).unwrap_or_default();
        let len = bytes.len() + TABLES.len() * stored.as_flattened().len();
        let mut window = self.door.window(len as u64, counters);
        window.copy_nt(at, bytes);
        match self.keep_crcs(&mut window, at, stored) {
            true => Ok(crcs),
            false => Err(Error::Media { at }),
        }
    }

    /// Bytes that are stored where `len` bytes of one page are overwritten in place.
    pub(crate) fn stored_in_place(&self, len: u64) -> u64 {
        let strips = self.geometry.strips;
        if strips.are_kept() { 2 * len + 2 * strips.crc_bytes() } else { len }
    }

    /// Asks for the strips at `at`, which are about to be overwritten, and for what is kept of them.
    pub(crate) fn prefetch_kept(&self, at: u64, len: u64) {
        for table in TABLES {
            self.door.prefetch(self.crcs_at(at, table));
        }
        let (parity, strip) = (self.parity_of_byte(at), self.geometry.strips.bytes());
        for (first, len) in [(at, len.min(PAGE_BYTES)), (parity, len.min(strip))] {
            (first..first + len).step_by(LINE as usize).for_each(|line| self.door.prefetch(line));
        }
    }

    /// Stores bytes of a page in place, through the cache, and makes the parity follow.
    pub(crate) fn store_in_place(&self, window: &mut Window<'_, M>, at: u64, bytes: &[u8]) {
        let strip = self.geometry.strips.bytes();
        let (mut old, mut parity) = ([0; COLUMN], [0; COLUMN]);
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let len = rest.len().min((strip - at % strip) as usize).min(COLUMN);
            let (new, more) = rest.split_at(len);
            let old = old.get_mut(..len).unwrap_or_default();
            let parity = parity.get_mut(..len).unwrap_or_default();
            let place = self.parity_of_byte(at);
            // (Where either can't be loaded, there is no parity until a scrub.)
            if self.door.load(at, old).is_ok() && self.door.load(place, parity).is_ok() {
                for (sum, (old, new)) in parity.iter_mut().zip(old.iter().zip(new)) {
                    *sum ^= old ^ new;
                }
                window.store(place, parity);
            }
            window.store(at, new);
            (at, rest) = (at + len as u64, more);
        }
    }

    /// Stores the checksums of the strips at `at`, which are `len` bytes, through the cache.
    pub(crate) fn store_crcs(&self, window: &mut Window<'_, M>, at: u64, len: u64, crcs: &Crcs) {
        let count = len / self.geometry.strips.bytes();
        let crcs = crcs.get(..count as usize).unwrap_or_default();
        for table in TABLES {
            // (Less than a line must not be stored to memory that has gone bad.)
            if self.load_crc(at, table).is_some() {
                window.store(self.crcs_at(at, table), crcs.as_flattened());
            }
        }
    }

    /// Starts the write-back of what is kept of bytes of one page, which have come home.
    #[track_caller]
    pub(crate) fn flush_kept(&self, window: &mut Window<'_, M>, at: u64, len: u64) {
        let strips = self.geometry.strips;
        if !strips.are_kept() {
            return;
        }
        let count = (at % strips.bytes() + len).div_ceil(strips.bytes());
        for table in TABLES {
            window.flush(self.crcs_at(at, table), count * size_of::<Crc>() as u64);
        }
        window.flush(strips.parity_at(at / PAGE_BYTES), strips.bytes());
    }

    /// Stores journalled bytes of one page in their home, and all that is kept of it. What can't be had from the journal is
    /// lost there: its checksums say so, whatever the home has. A whole strip that its home can't keep is what the page's
    /// parity gives from then on.
    pub(crate) fn bring_strips_home(
        &self,
        ino: Ino,
        journal_at: u64,
        home_at: u64,
        len: u64,
    ) -> Result<()> {
        let strip = self.geometry.strips.bytes();
        let mut done = 0;
        while done < len {
            let at = home_at + done;
            let part = (strip - at % strip).min(len - done);
            let waits = journal_at + done;
            let has_come = match self.copy_home(ino, waits, at, part) {
                Ok(()) => true,
                Err(error) => {
                    error.into_damage()?;
                    self.is_home(waits, at)
                }
            };
            let start = at - at % strip;
            let from = waits - (at - start);
            // (Parity may have been there in time, and tell it where home and journal are both damaged.)
            let rebuilt = match has_come {
                false if part == strip => self.rebuild_as(start, self.told_of(from))?,
                _ => None,
            };
            if let Some(crc) = rebuilt.or_else(|| self.crc_at_home(from, start, part, has_come)) {
                self.store_crc_home(start, crc);
            }
            done += part;
        }
        for page in home_at / PAGE_BYTES..(home_at + len).div_ceil(PAGE_BYTES) {
            self.renew_parity(ino, page, Home { journal_at, home_at, len });
        }
        Ok(())
    }

    /// Both checksums of the strip at `start`.
    fn told_of(&self, start: u64) -> [Option<Crc>; 2] {
        TABLES.map(|table| self.load_crc(start, table))
    }

    /// The checksum that the strip at `start` gets of which `part` bytes have been brought home, or not, from the one at `waits`;
    /// `None` where nothing tells.
    fn crc_at_home(&self, waits: u64, start: u64, part: u64, has_come: bool) -> Option<Crc> {
        let strip = self.geometry.strips.bytes();
        let sum = |at: u64| self.crc_on(0, at, at + strip).ok().map(kept);
        let there = sum(start);
        if part == strip {
            // (Not what is there now, which may have gone bad since, but what was stored.)
            let told = self.told_of(waits);
            let is_told = |sum: &Option<Crc>| sum.is_some() && told.contains(sum);
            if is_told(&there) {
                return there;
            }
            if let Some(waiting) = Some(sum(waits)).filter(is_told) {
                return waiting;
            }
        } else if has_come && there.is_some() {
            return there;
        }
        // What is there can't be told, and must not be rebuilt as what was.
        there.or_else(|| self.load_crc(waits, CrcTable::First)).map(complement)
    }

    fn store_crc_home(&self, start: u64, crc: Crc) {
        let stored = (TABLES.len() * crc.len()) as u64;
        let mut window = self.door.window(stored, self.counters());
        for table in TABLES {
            if self.load_crc(start, table).is_some_and(|there| there != crc) {
                window.store(self.crcs_at(start, table), &crc);
            }
        }
    }

    /// Loads bytes of one strip that wait in a journal, or that have come home.
    pub(crate) fn load_waiting(
        &self,
        of: Whose,
        journal_at: u64,
        home_at: u64,
        into: &mut [u8],
    ) -> Result<()> {
        match self.load_data(of, journal_at, into) {
            // (Not as a load of what is kept at home: that may still be of what was.)
            Err(Error::Corrupt(_) | Error::Media { .. }) if self.is_home(journal_at, home_at) => {
                Ok(self.door.load(home_at, into)?)
            }
            loaded => loaded,
        }
    }

    /// Whether a strip that waited at `journal_at` has come home, as its checksum says, which is still there.
    fn is_home(&self, journal_at: u64, home_at: u64) -> bool {
        let strips = self.geometry.strips;
        if !strips.are_kept() {
            return false;
        }
        let start = home_at - home_at % strips.bytes();
        let found = self.crc_on(0, start, start + strips.bytes()).ok().map(kept);
        let waits = journal_at - journal_at % strips.bytes();
        found.is_some() && TABLES.iter().any(|table| self.load_crc(waits, *table) == found)
    }

    /// Copies bytes of one strip from the journal, if they are right, a line at a time.
    fn copy_home(&self, ino: Ino, from: u64, to: u64, len: u64) -> Result<()> {
        let of = Whose { ino, end: u64::MAX };
        let mut line = [0u8; LINE as usize];
        let mut done = 0;
        while done < len {
            let at = to + done;
            let part = (LINE - at % LINE).min(len - done);
            let bytes = line.get_mut(..part as usize).unwrap_or_default();
            let mut there = [0u8; LINE as usize];
            let there = there.get_mut(..part as usize).unwrap_or_default();
            let is_bad = self.door.load(at, there).is_err();
            self.load_data(of, from + done, bytes)?;
            if is_bad || there != bytes {
                self.store_home(at, bytes, is_bad);
            }
            done += part;
        }
        Ok(())
    }

    /// Stores bytes within one line of their home; nothing, where that can't be loaded and more is in it.
    pub(crate) fn store_home(&self, at: u64, bytes: &[u8], is_bad: bool) {
        let len = bytes.len() as u64;
        let mut window = self.door.window(len, self.counters());
        if !is_bad {
            window.store(at, bytes);
        } else if len == LINE {
            window.copy_nt(at, bytes);
            if self.door.load_line(at).is_ok() {
                self.bad.renewed(at);
            }
        }
    }

    /// Makes a page's parity again, of which any mix may be there. What is damaged of its strips is
    /// made right first, as long as there still is parity that helps; what waited may be had from the journal.
    fn renew_parity(&self, ino: Ino, page: u64, home: Home) {
        let strip = self.geometry.strips.bytes();
        let (of, start) = (Whose { ino, end: u64::MAX }, page * PAGE_BYTES);
        let mut bytes = [0; COLUMN];
        let others = (start..start + PAGE_BYTES).step_by(strip as usize);
        for at in others.filter(|at| home.waits(*at, strip).is_none()) {
            let part = bytes.get_mut(..LINE as usize).unwrap_or_default();
            // (Where nothing helps, the others get parity that is theirs.)
            let _ = self.load_data(of, at, part);
        }
        let mut parity = [0; COLUMN];
        for column in (0..strip).step_by(COLUMN) {
            let known = self.sum_column((of, home), start + column, &mut bytes, &mut parity);
            let at = self.geometry.strips.parity_at(page) + column;
            let differs = self.door.load(at, &mut bytes).is_ok() && bytes != parity;
            if known.is_ok() && differs {
                self.door.window(COLUMN as u64, self.counters()).store(at, &parity);
            }
        }
    }

    /// The sum of the columns of a page's strips, of which the first one is at `first`.
    fn sum_column(
        &self,
        (of, home): (Whose, Home),
        first: u64,
        bytes: &mut [u8; COLUMN],
        parity: &mut [u8; COLUMN],
    ) -> Result<()> {
        let end = first - first % PAGE_BYTES + PAGE_BYTES;
        parity.fill(0);
        for at in (first..end).step_by(self.geometry.strips.bytes() as usize) {
            match (self.door.load(at, bytes), home.waits(at, COLUMN as u64)) {
                (Ok(()), _) => {}
                (Err(_), Some(waits)) => self.load_data(of, waits, bytes)?,
                (Err(error), None) => return Err(error.into()),
            }
            parity.iter_mut().zip(bytes.iter()).for_each(|(sum, byte)| *sum ^= byte);
        }
        Ok(())
    }

    /// Offset of the parity of the byte at `at`.
    fn parity_of_byte(&self, at: u64) -> u64 {
        let strips = self.geometry.strips;
        strips.parity_at(at / PAGE_BYTES) + at % strips.bytes()
    }
}
