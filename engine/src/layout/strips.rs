//! Where the checksums and the parity of file data are (format.md, section 13).
//!
//! The pool is cut in groups of pages. Each has its tables at one place: checksums, parity, and
//! the checksums again. So nothing leads to them that could be damaged, and a pool that grows has theirs, too.

use crate::PAGE_BYTES;

/// Bytes of a checksum.
pub const CRC_BYTES: u64 = 4;
/// The most checksums of a page: those of strips of 512 bytes.
pub const PAGE_STRIPS_MOST: usize = 8;
/// log2 of the smallest strip.
pub const STRIP_LOG2_LEAST: u8 = 9;
/// log2 of the largest strip.
pub const STRIP_LOG2_MOST: u8 = 11;
/// log2 of the pages in the smallest group.
pub const GROUP_LOG2_LEAST: u8 = 6;
/// log2 of the pages in the largest group: it leaves whole 1 GiB pages between its tables and the next.
pub const GROUP_LOG2_MOST: u8 = 21;

/// Which of the two tables of checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrcTable {
    /// In front of the parity: the one that each load is compared with.
    First,
    /// Behind it.
    Second,
}

/// Sizes and places of strips, and of what is kept of them. (Small: it is copied to many places.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strips {
    /// log2 of the bytes of a strip; 0 where file data has no checksums.
    strip_log2: u8,
    group_log2: u8,
    /// Pages of a group in front of its tables.
    before: u32,
    /// Pages of one of its two tables of checksums.
    crc_pages: u32,
    /// Pages of its parity.
    parity_pages: u32,
}

impl Strips {
    /// File data without checksums.
    pub const NONE: Self =
        Self { strip_log2: 0, group_log2: 0, before: 0, crc_pages: 0, parity_pages: 0 };

    /// Strips of `1 << strip_log2` bytes; tables for groups of `1 << group_log2` pages, each behind the first
    /// `before` pages of its group. (Numbers beyond the possible ones are taken for the nearest.)
    pub fn new(strip_log2: u8, group_log2: u8, before: u64) -> Self {
        let strip_log2 = strip_log2.clamp(STRIP_LOG2_LEAST, STRIP_LOG2_MOST);
        let group_log2 = group_log2.clamp(GROUP_LOG2_LEAST, GROUP_LOG2_MOST);
        let (bytes, group): (u64, u64) = (1 << strip_log2, 1 << group_log2);
        let crcs = PAGE_BYTES / bytes * CRC_BYTES;
        // The fewest pages of tables that are enough for all others.
        let mut tables = group - group * PAGE_BYTES / (PAGE_BYTES + bytes + 2 * crcs);
        loop {
            let covered = group - tables;
            let crc_pages = (covered * crcs).div_ceil(PAGE_BYTES);
            let parity_pages = (covered * bytes).div_ceil(PAGE_BYTES);
            if 2 * crc_pages + parity_pages <= tables {
                let parity_pages = (tables - 2 * crc_pages) as u32;
                let (before, crc_pages) = (before as u32, crc_pages as u32);
                return Self { strip_log2, group_log2, before, crc_pages, parity_pages };
            }
            tables += 1;
        }
    }

    /// Whether file data has checksums.
    #[inline]
    pub const fn are_kept(&self) -> bool {
        self.strip_log2 != 0
    }

    /// Bytes in a strip, where there are any.
    #[inline]
    pub const fn bytes(&self) -> u64 {
        1 << self.strip_log2
    }

    /// Strips in a page.
    #[inline]
    pub const fn a_page(&self) -> usize {
        (PAGE_BYTES / self.bytes()) as usize
    }

    /// Bytes of a page's checksums in one table.
    #[inline]
    pub const fn crc_bytes(&self) -> u64 {
        PAGE_BYTES / self.bytes() * CRC_BYTES
    }

    /// Pages of a group.
    const fn group(&self) -> u64 {
        1 << self.group_log2
    }

    /// Pages of a group's tables.
    const fn tables(&self) -> u64 {
        2 * self.crc_pages as u64 + self.parity_pages as u64
    }

    /// The first page of the tables that say something of `page`, and the place of `page` in them.
    #[inline]
    const fn place(&self, page: u64) -> (u64, u64) {
        let within = page & (self.group() - 1);
        let tables = page - within + self.before as u64;
        (tables, if within < self.before as u64 { within } else { within - self.tables() })
    }

    /// Offset of a page's checksums.
    #[inline]
    pub const fn crcs_at(&self, page: u64, copy: CrcTable) -> u64 {
        let (tables, index) = self.place(page);
        let skip = match copy {
            CrcTable::First => 0,
            CrcTable::Second => self.apart() / PAGE_BYTES,
        };
        (tables + skip) * PAGE_BYTES + index * self.crc_bytes()
    }

    /// How many pages from `page` on, which has some, have their checksums and parity side by side.
    #[inline]
    pub const fn together(&self, page: u64) -> u64 {
        let within = page & (self.group() - 1);
        let end = if within < self.before as u64 { self.before as u64 } else { self.group() };
        end - within
    }

    /// Offset of a page's parity.
    #[inline]
    pub const fn parity_at(&self, page: u64) -> u64 {
        let (tables, index) = self.place(page);
        (tables + self.crc_pages as u64) * PAGE_BYTES + index * self.bytes()
    }

    /// Bytes between a checksum and its copy.
    pub const fn apart(&self) -> u64 {
        (self.crc_pages as u64 + self.parity_pages as u64) * PAGE_BYTES
    }

    /// Of the tables that begin with `page`, if some do: the pages of each of the two tables of checksums, and of the
    /// parity between them.
    pub(crate) const fn tables_at(&self, page: u64) -> Option<[u64; 2]> {
        let begin = (page & !(self.group() - 1)) + self.before as u64;
        let pages = [self.crc_pages as u64, self.parity_pages as u64];
        if self.are_kept() && page == begin { Some(pages) } else { None }
    }

    /// Whether the tables end with their group, or before it.
    pub(crate) const fn fit_their_group(&self) -> bool {
        self.before as u64 + self.tables() <= self.group()
    }

    /// The most pages of a group in front of its tables.
    pub(crate) const fn most_before(&self) -> u64 {
        self.group() - self.tables()
    }

    /// The fewest pages of a pool that has one such group.
    pub const fn pool_pages_least(&self) -> u64 {
        self.before as u64 + self.tables() + 1
    }

    /// Whether pages `page .. end` are none of tables, nor of a last group that `pool_end` cuts off in front of
    /// the end of its tables.
    #[inline]
    pub const fn allow(&self, page: u64, end: u64, pool_end: u64) -> bool {
        if !self.are_kept() {
            return true;
        }
        let tables = (page & !(self.group() - 1)) + self.before as u64;
        let next = if page < tables { tables } else { tables + self.group() };
        let outside = page < tables || page >= tables + self.tables();
        let last = ((end - 1) & !(self.group() - 1)) + self.before as u64 + self.tables();
        outside && end <= next && last <= pool_end
    }

    /// The first page and the number of pages of each run that nothing else can have, in a pool whose pages
    /// end at `pool_end`.
    pub fn reserved(self, pool_end: u64) -> impl Iterator<Item = (u64, u64)> {
        let groups = if self.are_kept() { pool_end.div_ceil(self.group()) } else { 0 };
        (0..groups).map(move |group| {
            let first = group << self.group_log2;
            let tables = first + u64::from(self.before);
            if tables + self.tables() <= pool_end {
                (tables, self.tables())
            } else {
                (first, pool_end - first)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Strips> {
        let logs = (STRIP_LOG2_LEAST..=STRIP_LOG2_MOST).flat_map(|strip| {
            (GROUP_LOG2_LEAST..=GROUP_LOG2_MOST).map(move |group| (strip, group))
        });
        logs.flat_map(|(strip, group)| [2, 19].map(|before| Strips::new(strip, group, before)))
    }

    #[test]
    fn tables_hold_what_is_kept_of_all_other_pages_of_their_group() {
        for strips in all() {
            let (group, tables) = (strips.group(), u64::from(strips.before));
            let last = if tables + strips.tables() < group { group - 1 } else { tables - 1 };
            for page in [0, tables - 1, tables + strips.tables(), last] {
                let first = strips.crcs_at(page, CrcTable::First);
                let second = strips.crcs_at(page, CrcTable::Second);
                let parity = strips.parity_at(page);
                assert!(first >= tables * PAGE_BYTES, "{strips:?} {page}");
                let parities = (tables + u64::from(strips.crc_pages)) * PAGE_BYTES;
                assert!(first + strips.crc_bytes() <= parities, "{strips:?} {page}");
                let seconds = parities + u64::from(strips.parity_pages) * PAGE_BYTES;
                assert!(
                    (parities..=seconds - strips.bytes()).contains(&parity),
                    "{strips:?} {page}"
                );
                let end = (tables + strips.tables()) * PAGE_BYTES;
                assert!((seconds..=end - strips.crc_bytes()).contains(&second));
                assert_eq!(second - first, strips.apart());
                let side_by_side = |step: u64| {
                    let at = strips.crcs_at(page + step, CrcTable::First);
                    at.wrapping_sub(first) == step * strips.crc_bytes()
                };
                let together = strips.together(page);
                assert!(
                    side_by_side(together - 1)
                        && (page + together == tables || !side_by_side(together)),
                    "{strips:?} {page}"
                );
            }
            // 12.5 % for parity and twice 0.78 % for checksums of strips of 512 bytes, of the data.
            assert!(strips.bytes() > 512 || group < 4096 || strips.tables() * 1000 < group * 124);
        }
    }

    #[test]
    fn what_is_left_and_what_is_reserved_are_all_pages() {
        for strips in [Strips::new(9, 6, 2), Strips::new(10, 7, 6), Strips::new(11, 6, 17)] {
            for pool_end in [64, 90, 128, 139, 150, 200, 257] {
                let reserved: Vec<(u64, u64)> = strips.reserved(pool_end).collect();
                for page in 0..pool_end {
                    let is_reserved = reserved
                        .iter()
                        .any(|(first, pages)| (*first..first + pages).contains(&page));
                    assert_eq!(strips.allow(page, page + 1, pool_end), !is_reserved, "{page}");
                    for end in page + 1..pool_end.min(page + 70) {
                        let all = (page..end).all(|page| strips.allow(page, page + 1, pool_end));
                        assert_eq!(strips.allow(page, end, pool_end), all, "{page} {end}");
                    }
                }
            }
        }
    }

    extern crate std;
    use std::vec::Vec;
}
