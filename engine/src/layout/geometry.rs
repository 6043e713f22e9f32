//! Sizes and places that follow from the superblock.

use super::Strips;
use crate::{Ino, PAGE_BYTES};

/// Bytes in a line, as an offset.
pub const LINE: u64 = 64;
/// Bytes in an inode's slot.
pub const SLOT_BYTES: u64 = 512;
/// Record lines of the inline log.
pub const INLINE_LINES: u32 = 6;
/// Index of the death line in a slot.
pub const DEATH_LINE: u64 = 7;
/// The fewest record lines of a log page: a symbolic link's target fits.
pub const LOG_LINES_LEAST: u8 = 4;
/// The most record lines of a log page: those that a page has behind its header.
pub const LOG_LINES_MOST: u8 = 63;
/// The fewest pages a pool can have.
pub const POOL_PAGES_LEAST: u64 = 16;
/// Pages of the largest pool.
pub const POOL_PAGES_MOST: u64 = 1 << 34;

const _: () = assert!((2 + INLINE_LINES as u64) * LINE == SLOT_BYTES);
const _: () = assert!((1 + LOG_LINES_MOST as u64) * LINE == PAGE_BYTES);

/// Offset of an inode's slot.
#[inline]
pub const fn slot_at(ino: Ino) -> u64 {
    ino * SLOT_BYTES
}

/// Number of the inode whose slot is at this offset.
#[inline]
pub const fn ino_of(slot_at: u64) -> Ino {
    slot_at / SLOT_BYTES
}

/// Where the pages that can be allocated begin and end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Pages in the pool.
    pub pages: u64,
    /// Lanes on the medium.
    pub lanes: u32,
    /// Record lines of a log page.
    pub log_lines: u32,
    /// Pages between a page of metadata and its twin, a power of two; 0 where metadata has none. The twin
    /// of page `p` is page `p ^ twin_pages`.
    pub twin_pages: u64,
    /// Strips of file data.
    pub strips: Strips,
}

impl Geometry {
    /// First page behind the lane table.
    pub const fn first_page(&self) -> u64 {
        Self::first_page_of(self.lanes)
    }

    /// The same of a pool with so many lanes.
    pub(crate) const fn first_page_of(lanes: u32) -> u64 {
        1 + (lanes as u64 * super::LANE_BYTES).div_ceil(PAGE_BYTES)
    }

    /// The page of superblock copy B: first page that can't be allocated.
    pub const fn end_page(&self) -> u64 {
        self.pages - 1
    }

    /// Whether `count` pages from `page` on lie behind the lane table and before the last superblock: a
    /// record that nothing needs any more may speak of any of them, as the pool may have had another level
    /// when it was stored.
    #[inline]
    pub const fn has(&self, page: u64, count: u64) -> bool {
        match page.checked_add(count) {
            Some(end) => page >= self.first_page() && count > 0 && end <= self.end_page(),
            None => false,
        }
    }

    /// Whether `count` pages from `page` on may hold metadata or data.
    #[inline]
    pub const fn holds(&self, page: u64, count: u64) -> bool {
        // The twins of what lies before the first page are not to be had, nor are tables of strips.
        let behind = page >= self.twin_pages + self.first_page();
        self.has(page, count)
            && (self.twin_pages == 0 || behind || page + count <= self.twin_pages)
            && self.strips.allow(page, page + count, self.end_page())
    }

    /// Whether `count` pages from `page` on, and their twins if they have such, may hold metadata.
    #[inline]
    pub const fn holds_metadata(&self, page: u64, count: u64) -> bool {
        if self.twin_pages == 0 || !self.holds(page, count) {
            return self.holds(page, count);
        }
        let one_side = page / self.twin_pages == (page + count - 1) / self.twin_pages;
        one_side && self.holds(page ^ self.twin_pages, count)
    }

    /// Bytes of a scribble that can't reach both copies of anything: one page less than they are apart.
    pub const fn dead_zone(&self) -> u64 {
        let twins = self.twin_pages.saturating_sub(1) * PAGE_BYTES;
        let crcs = self.strips.apart().saturating_sub(PAGE_BYTES);
        if self.strips.are_kept() && crcs < twins { crcs } else { twins }
    }

    /// The first page and the number of pages of each run that is neither to be allocated nor a superblock: the
    /// lane table, its twin, and what is kept of strips.
    pub fn reserved(&self) -> impl Iterator<Item = (u64, u64)> {
        let first = self.first_page();
        let twin = (self.twin_pages != 0).then_some((self.twin_pages, first));
        twin.into_iter().chain(self.strips.reserved(self.end_page()))
    }

    /// Whether log pages have fewer record lines than they could: a pool that is made for tests.
    pub(crate) const fn has_short_pages(&self) -> bool {
        self.log_lines < super::LOG_LINES_MOST as u32
    }

    /// Offset of a lane's part of the lane table.
    pub const fn lane_at(&self, lane: u32) -> u64 {
        PAGE_BYTES + lane as u64 * super::LANE_BYTES
    }
}
