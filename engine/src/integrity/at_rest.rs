//! A page at rest: its bytes are compared with both tables of checksums and with its parity, so that what has gone
//! bad of any of them is found while the others can tell.

use lode_pmem::{Medium, crc32c};

use super::crcs::{Crc, kept};
use super::keep::{COLUMN, parity_of};
use super::verify::Whose;
use crate::layout::CrcTable;
use crate::store::Store;
use crate::{Host, PAGE_BYTES};

/// What a look at a page has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PageFound {
    /// Strips that are lost, a bit each.
    pub(crate) lost: u32,
    /// Something was wrong, and is stored again.
    pub(crate) mended: bool,
    /// Something is wrong, and stays so: the memory is bad, or the pool is open read-only.
    pub(crate) left: bool,
}

impl PageFound {
    /// Takes in what was found of another page.
    pub(crate) fn add(&mut self, other: Self) {
        self.lost |= other.lost;
        self.mended |= other.mended;
        self.left |= other.left;
    }

    fn note(&mut self, mended: bool) {
        self.mended |= mended;
        self.left |= !mended;
    }
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Loads a page of a file's data to `bytes`, which has room for one, and compares what is kept of it. Who calls
    /// holds the inode: nobody stores to the page meanwhile.
    pub(crate) fn look_at_page(&self, of: Whose, page: u64, bytes: &mut [u8]) -> PageFound {
        let mut found = PageFound::default();
        let strip = self.geometry.strips.bytes() as usize;
        for (number, part) in bytes.chunks_exact_mut(strip).enumerate() {
            let at = page * PAGE_BYTES + (number * strip) as u64;
            self.look_at_strip(of, at, part, &mut found);
        }
        if found.lost == 0 {
            self.look_at_parity(page, bytes, &mut found);
        }
        found
    }

    /// Stores anew what is kept of a page whose bytes are known to be right, by something else; says whether it could.
    pub(crate) fn keep_again(&self, page: u64, bytes: &mut [u8]) -> bool {
        let Some((bytes, _)) = bytes.split_first_chunk_mut() else { return false };
        let may = self.writable().is_ok() && self.door.load(page * PAGE_BYTES, bytes).is_ok();
        may && self.has_kept(page, bytes, self.counters())
    }

    fn look_at_strip(&self, of: Whose, at: u64, strip: &mut [u8], found: &mut PageFound) {
        let loaded = self.door.load(at, strip).is_ok();
        let crc: Option<Crc> = loaded.then(|| kept(crc32c(0, strip)));
        let told = [CrcTable::First, CrcTable::Second].map(|table| self.load_crc(at, table));
        if crc.is_some() && told == [crc, crc] {
            return;
        }
        match self.doubt(of, at, strip, crc) {
            Ok(()) => found.note(loaded && !told.contains(&None) && self.writable().is_ok()),
            Err(_) => found.lost |= 1 << (at % PAGE_BYTES / strip.len() as u64),
        }
    }

    fn look_at_parity(&self, page: u64, bytes: &[u8], found: &mut PageFound) {
        let strip = self.geometry.strips.bytes() as usize;
        let (mut wanted, mut there) = ([0; COLUMN], [0; COLUMN]);
        for column in (0..strip).step_by(COLUMN) {
            parity_of(bytes, strip, column, &mut wanted);
            let at = self.geometry.strips.parity_at(page) + column as u64;
            let loaded = self.door.load(at, &mut there).is_ok();
            if loaded && there == wanted {
                continue;
            }
            let mended = loaded && self.writable().is_ok();
            if mended {
                self.door.window(COLUMN as u64, self.counters()).store(at, &wanted);
            }
            found.note(mended);
        }
    }
}
