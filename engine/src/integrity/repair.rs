//! Strips that are in doubt: which of their bytes and checksums is right, and what the parity gives.
//!
//! A strip is right if either of its checksums says so: as it is, or as the sum of its page's parity and
//! other strips. Bytes behind the end of a file cost none in front of it: where these do not help, zeros are tried for them, which they were
//! unless a truncation left them there. A strip whose checksums are those of zeros is zeros, whatever else of its page is lost.
//! What was wrong is stored again in a pool that is open for writes, through the cache: a reader who has let the inode go may not have stores on their way. (They are not written back, but by a scrub, which tells of them: until they
//! are, the next opening finds the same damage, and mends it again.)

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lode_pmem::{MediaError, Medium, crc32c};

use super::crcs::{Crc, kept};
use super::verify::Whose;
use crate::layout::CrcTable;
use crate::store::Store;
use crate::{DataRepairs, Error, Host, PAGE_BYTES, Result};

/// Bytes of a strip that are computed at a time.
const COLUMN: usize = 64;

const LOST: &str = "file data is damaged, and can't be rebuilt";

/// What a strip may be that is not as its checksums say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Guess {
    /// The sum of parity and other strips.
    Sum,
    /// As it is, with zeros behind the end of the file.
    Ended,
    /// The sum, with zeros for all that is behind the end of the file.
    SumEnded,
    /// Nothing but zeros, wherever the file ends: both checksums have to say so, as one of them may be another page's.
    Zeros,
}

/// What became of damaged strips.
#[derive(Default)]
pub(crate) struct Repairs {
    repaired: AtomicU64,
    lost: AtomicU64,
}

impl Repairs {
    /// How many there were of each.
    pub(crate) fn read(&self) -> DataRepairs {
        DataRepairs { repaired: self.repaired.load(Relaxed), lost: self.lost.load(Relaxed) }
    }
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Makes `bytes` right, which are at `at` in one strip, whose checksum as it was loaded is `found` (`None`: it could
    /// not be loaded), and is not the first one, or that could not be loaded.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where no checksum holds, [`Error::Media`] where the strip can't be loaded, either.
    #[cold]
    #[inline(never)]
    pub(super) fn doubt(
        &self,
        of: Whose,
        at: u64,
        bytes: &mut [u8],
        found: Option<Crc>,
    ) -> Result<()> {
        let start = at - at % self.geometry.strips.bytes();
        if self.is_made_right(of, at, bytes, found)?
            || self.mends_last(of, start)? && self.is_made_right(of, at, bytes, found)?
        {
            return Ok(());
        }
        self.repairs.lost.fetch_add(1, Relaxed);
        Err(match found {
            Some(_) => Error::corrupt_inode(LOST, at, of.ino),
            None => Error::Media { at },
        })
    }

    /// The same; says whether it could.
    #[inline(never)]
    fn is_made_right(
        &self,
        of: Whose,
        at: u64,
        bytes: &mut [u8],
        found: Option<Crc>,
    ) -> Result<bool> {
        let start = at - at % self.geometry.strips.bytes();
        let told = [CrcTable::First, CrcTable::Second].map(|table| self.load_crc(start, table));
        let is_told = |crc: Crc| told.contains(&Some(crc));
        if let Some(found) = found.filter(|found| is_told(*found)) {
            self.repairs.repaired.fetch_add(1, Relaxed);
            self.mend_crcs(start, told, found);
            return Ok(true);
        }
        let guesses = [Guess::Sum, Guess::Ended, Guess::SumEnded, Guess::Zeros];
        let rebuilt = guesses.into_iter().find_map(|guess| {
            let crc = self.rebuild(guess, of.end, start, at, bytes).ok()?;
            let is_so = if guess == Guess::Zeros { told == [Some(crc); 2] } else { is_told(crc) };
            is_so.then_some((guess, crc))
        });
        let Some((guess, crc)) = rebuilt else { return Ok(false) };
        if found.is_some() {
            self.mend_strip(guess, of.end, start)?;
        }
        self.repairs.repaired.fetch_add(1, Relaxed);
        self.mend_crcs(start, told, crc);
        Ok(true)
    }

    /// Makes the strip right that the file ends in, where it is damaged and another one of its page, at `start`, is: of that nothing counts
    /// behind the end, so that less of the other one does. Says whether it has.
    fn mends_last(&self, of: Whose, start: u64) -> Result<bool> {
        let strip = self.geometry.strips.bytes();
        let last = of.end - of.end % strip;
        let is_beside = last / PAGE_BYTES == start / PAGE_BYTES && last != start;
        if !is_beside || self.writable().is_err() {
            return Ok(false);
        }
        let found = self.crc_on(0, last, last + strip).ok().map(kept);
        if found.is_some() && found == self.load_crc(last, CrcTable::First) {
            return Ok(false);
        }
        self.is_made_right(of, last, &mut [0; COLUMN], found)
    }

    /// Makes the strip at `start` what parity and the others of its page give, if that has one of these checksums, which is returned.
    pub(super) fn rebuild_as(&self, start: u64, told: [Option<Crc>; 2]) -> Result<Option<Crc>> {
        let rebuilt = self.rebuild(Guess::Sum, u64::MAX, start, start, &mut []).ok();
        let Some(crc) = rebuilt.filter(|crc| told.contains(&Some(*crc))) else { return Ok(None) };
        if self.door.load(start, &mut [0; COLUMN]).is_ok() {
            self.mend_strip(Guess::Sum, u64::MAX, start)?;
        }
        Ok(Some(crc))
    }

    pub(super) fn load_crc(&self, start: u64, table: CrcTable) -> Option<Crc> {
        let mut crc = [Crc::default()];
        self.load_crcs(start, table, &mut crc).ok().map(|()| crc).map(|[crc]| crc)
    }

    /// The checksum of the strip at `start` by a guess; its part at `at` goes to `bytes`.
    fn rebuild(
        &self,
        guess: Guess,
        end: u64,
        start: u64,
        at: u64,
        bytes: &mut [u8],
    ) -> core::result::Result<Crc, MediaError> {
        let mut crc = 0;
        for from in (start..start + self.geometry.strips.bytes()).step_by(COLUMN) {
            let column = self.column(guess, end, from)?;
            crc = crc32c(crc, &column);
            let (first, to) = (from.max(at), (from + COLUMN as u64).min(at + bytes.len() as u64));
            if first < to
                && let Some(into) = bytes.get_mut((first - at) as usize..(to - at) as usize)
                && let Some(new) = column.get((first - from) as usize..(to - from) as usize)
            {
                into.copy_from_slice(new);
            }
        }
        Ok(kept(crc))
    }

    /// What the bytes at `at` are by a guess, where the file ends at `end`.
    fn column(
        &self,
        guess: Guess,
        end: u64,
        at: u64,
    ) -> core::result::Result<[u8; COLUMN], MediaError> {
        let end = if guess == Guess::Sum { u64::MAX } else { end };
        if end <= at || guess == Guess::Zeros {
            return Ok([0; COLUMN]);
        }
        if guess == Guess::Ended {
            return self.load_column(at, end);
        }
        let strips = self.geometry.strips;
        let (page, skip) = (at - at % PAGE_BYTES, at % strips.bytes());
        let mut sum = self.load_column(strips.parity_at(at / PAGE_BYTES) + skip, u64::MAX)?;
        for other in (page + skip..page + PAGE_BYTES).step_by(strips.bytes() as usize) {
            if other != at {
                let column = self.load_column(other, end)?;
                sum.iter_mut().zip(column).for_each(|(sum, byte)| *sum ^= byte);
            }
        }
        if let Some(behind) = sum.get_mut((end - at).min(COLUMN as u64) as usize..) {
            behind.fill(0);
        }
        Ok(sum)
    }

    /// Loads the bytes at `at`, and zeros from `end` on.
    fn load_column(&self, at: u64, end: u64) -> core::result::Result<[u8; COLUMN], MediaError> {
        let mut column = [0; COLUMN];
        let len = end.saturating_sub(at).min(COLUMN as u64);
        if let Some(bytes) = column.get_mut(..len as usize).filter(|bytes| !bytes.is_empty()) {
            self.door.load(at, bytes)?;
        }
        Ok(column)
    }

    /// Stores a strip as it was rebuilt.
    fn mend_strip(&self, guess: Guess, end: u64, start: u64) -> Result<()> {
        if self.writable().is_err() {
            return Ok(());
        }
        let bytes = self.geometry.strips.bytes();
        for from in (start..start + bytes).step_by(COLUMN) {
            let column = self.column(guess, end, from)?;
            self.door.window(COLUMN as u64, self.counters()).store(from, &column);
        }
        Ok(())
    }

    /// Stores the right checksum where another one is.
    fn mend_crcs(&self, start: u64, told: [Option<Crc>; 2], crc: Crc) {
        if self.writable().is_err() {
            return;
        }
        for (table, told) in [CrcTable::First, CrcTable::Second].into_iter().zip(told) {
            if told.is_some_and(|told| told != crc) {
                let at = self.crcs_at(start, table);
                self.door.window(crc.len() as u64, self.counters()).store(at, &crc);
            }
        }
    }
}
