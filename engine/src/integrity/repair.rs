//! Strips that are in doubt: which of their bytes and checksums is right, and what the parity gives.
//!
//! A strip is right if either of its checksums says so: as it is, or as the sum of its page's parity and
//! other strips. What was wrong is stored again in a pool that is open for writes, through the cache: a reader who has let the
//! inode go may not have stores on their way. (They are not written back: until they are, the next
//! opening finds the same damage, and mends it again.)

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lode_pmem::{MediaError, Medium, crc32c};

use super::crcs::Crc;
use crate::layout::CrcTable;
use crate::store::Store;
use crate::{DataRepairs, Error, Host, Ino, PAGE_BYTES, Result};

/// Bytes of a strip that are computed at a time.
const COLUMN: usize = 64;

const LOST: &str = "file data is damaged, and can't be rebuilt";

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
        ino: Ino,
        at: u64,
        bytes: &mut [u8],
        found: Option<Crc>,
    ) -> Result<()> {
        let start = at - at % self.geometry.strips.bytes();
        let told = [CrcTable::First, CrcTable::Second].map(|table| self.load_crc(start, table));
        let is_told = |crc: Crc| told.contains(&Some(crc));
        if let Some(found) = found.filter(|found| is_told(*found)) {
            self.repairs.repaired.fetch_add(1, Relaxed);
            self.mend_crcs(start, told, found);
            return Ok(());
        }
        match self.rebuild(start, at, bytes).ok().filter(|crc| is_told(*crc)) {
            Some(crc) => {
                if found.is_some() {
                    self.mend_strip(start)?;
                }
                self.repairs.repaired.fetch_add(1, Relaxed);
                self.mend_crcs(start, told, crc);
                Ok(())
            }
            None => {
                self.repairs.lost.fetch_add(1, Relaxed);
                Err(match found {
                    Some(_) => Error::corrupt_inode(LOST, at, ino),
                    None => Error::Media { at },
                })
            }
        }
    }

    pub(super) fn load_crc(&self, start: u64, table: CrcTable) -> Option<Crc> {
        let mut crc = [Crc::default()];
        self.load_crcs(start, table, &mut crc).ok().map(|()| crc).map(|[crc]| crc)
    }

    /// The checksum of the strip at `start` as its page's parity and other strips give it; its part at `at` goes to `bytes`.
    fn rebuild(
        &self,
        start: u64,
        at: u64,
        bytes: &mut [u8],
    ) -> core::result::Result<Crc, MediaError> {
        let mut crc = 0;
        for from in (start..start + self.geometry.strips.bytes()).step_by(COLUMN) {
            let column = self.column(from)?;
            crc = crc32c(crc, &column);
            let (first, end) = (from.max(at), (from + COLUMN as u64).min(at + bytes.len() as u64));
            if first < end
                && let Some(into) = bytes.get_mut((first - at) as usize..(end - at) as usize)
                && let Some(new) = column.get((first - from) as usize..(end - from) as usize)
            {
                into.copy_from_slice(new);
            }
        }
        Ok(crc.to_le_bytes())
    }

    /// What the bytes at `at` are by the parity and the other strips of their page.
    fn column(&self, at: u64) -> core::result::Result<[u8; COLUMN], MediaError> {
        let strips = self.geometry.strips;
        let (page, skip) = (at - at % PAGE_BYTES, at % strips.bytes());
        let mut sum = [0; COLUMN];
        self.door.load(strips.parity_at(at / PAGE_BYTES) + skip, &mut sum)?;
        for other in (page + skip..page + PAGE_BYTES).step_by(strips.bytes() as usize) {
            if other != at {
                let mut column = [0; COLUMN];
                self.door.load(other, &mut column)?;
                sum.iter_mut().zip(column).for_each(|(sum, byte)| *sum ^= byte);
            }
        }
        Ok(sum)
    }

    /// Stores a strip as it was rebuilt.
    fn mend_strip(&self, start: u64) -> Result<()> {
        if self.writable().is_err() {
            return Ok(());
        }
        let bytes = self.geometry.strips.bytes();
        for from in (start..start + bytes).step_by(COLUMN) {
            let column = self.column(from)?;
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
