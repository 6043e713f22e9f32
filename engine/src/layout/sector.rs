//! The sector journal: where it is, and the line that tells of one write.
//!
//! Each lane has a line, and two places for data that take turns: what a line tells of stays as it is until the next
//! line has taken the place of that one.

use lode_pmem::Line;

use super::bytes::{get_u32, get_u64, put_u32, put_u64};
use super::geometry::{Geometry, LINE};
use super::seal::{PoolSeed, put_seal, stored_seal};
use crate::space::Run;
use crate::{Ino, PAGE_BYTES};

const MAGIC: u32 = u32::from_le_bytes(*b"LSEC");
/// The most pages of a place for data.
pub const SECTOR_PAGES_MOST: u32 = 16;
/// The most lanes.
const LANES_MOST: u32 = 256;

/// Where the sector journal of a pool is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SectorArea {
    /// Its first page.
    pub page: u64,
    /// How many lanes it has.
    pub lanes: u32,
    /// Pages of each of the two places for data that a lane has.
    pub slot_pages: u32,
}

impl SectorArea {
    /// Pages of the lines of so many lanes.
    const fn head_pages(lanes: u32) -> u64 {
        (lanes as u64 * LINE).div_ceil(PAGE_BYTES)
    }

    /// How many pages it takes with so many lanes, and so many pages in each place.
    pub const fn pages_of(lanes: u32, slot_pages: u32) -> u64 {
        Self::head_pages(lanes) + 2 * lanes as u64 * slot_pages as u64
    }

    /// Its pages.
    pub(crate) const fn run(&self) -> Run {
        Run { page: self.page, pages: Self::pages_of(self.lanes, self.slot_pages) }
    }

    /// Whether a pool can have it.
    pub(crate) const fn is_possible(&self, geometry: &Geometry) -> bool {
        let (lanes, pages) = (self.lanes, self.slot_pages);
        lanes > 0
            && lanes <= LANES_MOST
            && pages > 0
            && pages <= SECTOR_PAGES_MOST
            && geometry.holds(self.page, Self::pages_of(lanes, pages))
    }

    /// Bytes of the pages with lines.
    pub(crate) const fn head_bytes(&self) -> u64 {
        Self::head_pages(self.lanes) * PAGE_BYTES
    }

    /// Bytes of a place for data.
    #[inline]
    pub(crate) const fn slot_bytes(&self) -> u64 {
        self.slot_pages as u64 * PAGE_BYTES
    }

    /// Offset of a lane's line.
    #[inline]
    pub(crate) const fn line_at(&self, lane: u32) -> u64 {
        self.page * PAGE_BYTES + lane as u64 * LINE
    }

    /// Offset of the place for data that this write of a lane has.
    #[inline]
    pub(crate) const fn slot_at(&self, lane: u32, sequence: u64) -> u64 {
        let slot = 2 * lane as u64 + (sequence & 1);
        self.page * PAGE_BYTES + self.head_bytes() + slot * self.slot_bytes()
    }

    /// As one number, which is 0 for none.
    #[inline]
    pub(crate) const fn packed(&self) -> u64 {
        self.page | (self.lanes as u64) << 40 | (self.slot_pages as u64) << 52
    }

    /// What [`SectorArea::packed`] gave.
    #[inline]
    pub(crate) const fn unpacked(packed: u64) -> Option<Self> {
        if packed == 0 {
            return None;
        }
        let page = packed & ((1 << 40) - 1);
        let lanes = (packed >> 40 & 0xfff) as u32;
        Some(Self { page, lanes, slot_pages: (packed >> 52) as u32 })
    }
}

/// A write of sectors that is in the journal, and may not be home. All offsets in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SectorLine {
    /// Of which inode.
    pub ino: Ino,
    /// The inode's nonce.
    pub nonce: u64,
    /// Where in the file.
    pub offset: u64,
    /// Where in the pool that is.
    pub home_at: u64,
    /// How much.
    pub len: u64,
    /// The number of the write in its lane: odd ones have the second place for data.
    pub sequence: u64,
}

impl SectorLine {
    /// The line, sealed for offset `at`, of a journal whose nonce has this tag.
    pub fn line(&self, seed: &PoolSeed, tag: u32, at: u64) -> Line {
        let mut line = Line::ZERO;
        put_u32(&mut line.0, 0, MAGIC);
        put_u32(&mut line.0, 4, self.len as u32);
        put_u64(&mut line.0, 8, self.ino);
        put_u64(&mut line.0, 16, self.nonce);
        put_u64(&mut line.0, 24, self.offset);
        put_u64(&mut line.0, 32, self.home_at);
        put_u64(&mut line.0, 40, self.sequence);
        let seal = seed.line(&line, tag, at);
        put_seal(&mut line, seal);
        line
    }

    /// Reads a line found at offset `at` of a journal whose nonce has this tag; `None` if it is not a valid one, or, where that is asked, not `sealed`. What it says may be
    /// anything.
    pub fn parse(line: &Line, seed: &PoolSeed, tag: u32, at: u64, sealed: bool) -> Option<Self> {
        let is_one = get_u32(&line.0, 0) == MAGIC && stored_seal(line) >> 32 == u64::from(tag);
        let is_right = !sealed || stored_seal(line) == seed.line(line, tag, at);
        (is_one && is_right).then(|| Self {
            ino: get_u64(&line.0, 8),
            nonce: get_u64(&line.0, 16),
            offset: get_u64(&line.0, 24),
            home_at: get_u64(&line.0, 32),
            len: u64::from(get_u32(&line.0, 4)),
            sequence: get_u64(&line.0, 40),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_is_packed_whatever_it_is() {
        for page in [1, 77, (1 << 34) - 1] {
            for lanes in [1, 2, 63, 64, 256] {
                for slot_pages in 1..=SECTOR_PAGES_MOST {
                    let area = SectorArea { page, lanes, slot_pages };
                    assert_eq!(SectorArea::unpacked(area.packed()), Some(area));
                    let end = area.slot_at(lanes - 1, 1) + area.slot_bytes();
                    assert_eq!(end, area.run().end() * PAGE_BYTES);
                    assert!(area.line_at(lanes - 1) + LINE <= area.slot_at(0, 0));
                }
            }
        }
        assert_eq!(SectorArea::unpacked(0), None);
    }

    #[test]
    fn a_line_is_what_was_sealed_and_only_there() {
        let seed = PoolSeed::new(&[1; 16], &[2; 16]);
        let said =
            SectorLine { ino: 9, nonce: 8, offset: 512, home_at: 4608, len: 512, sequence: 3 };
        let line = said.line(&seed, 7, 4096);
        assert_eq!(SectorLine::parse(&line, &seed, 7, 4096, true), Some(said));
        assert_eq!(SectorLine::parse(&line, &seed, 7, 4160, true), None);
        // One of an earlier journal.
        assert_eq!(SectorLine::parse(&line, &seed, 8, 4096, false), None);
        assert_eq!(SectorLine::parse(&Line::ZERO, &seed, 7, 4096, false), None);
        for byte in 0..64 {
            let mut hurt = line;
            hurt.0[byte] ^= 1;
            assert_eq!(SectorLine::parse(&hurt, &seed, 7, 4096, true), None, "{byte}");
        }
    }
}
