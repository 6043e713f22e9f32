//! The list of bad memory: pages with lines that can't be loaded. It lies behind each superblock, which says how
//! long it is and has a checksum of it.

use lode_pmem::{Line, crc32c};

use super::bytes::{get_u64, put_u64};
use super::superblock::SUPERBLOCK_BYTES;
use crate::PAGE_BYTES;
use crate::layout::LINE;
use crate::layout::locator::LOCATOR_AT;

/// Where the list begins, behind the start of its superblock.
pub const BAD_AT: u64 = 2048;
/// Pages that the list has room for.
pub const BAD_PAGES_MOST: usize = ((PAGE_BYTES - BAD_AT) / ENTRY_BYTES) as usize;

const ENTRY_BYTES: u64 = 16;
/// Entries of a line.
pub(crate) const BAD_IN_LINE: usize = (LINE / ENTRY_BYTES) as usize;

const _: () = assert!(BAD_AT >= LOCATOR_AT + LINE && BAD_AT >= SUPERBLOCK_BYTES as u64);

/// A page of which some lines can't be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BadPage {
    /// Its number.
    pub page: u64,
    /// A bit for each of its 64 lines, the lowest for the first.
    pub lines: u64,
    /// It is part of something. Otherwise it is kept from use.
    pub in_use: bool,
}

/// In the word with the number: the page is kept from use.
const KEPT: u64 = 1 << 63;

/// A line of the list.
pub(crate) fn bad_line(pages: &[BadPage]) -> Line {
    let mut line = Line::ZERO;
    for (at, bad) in (0..).step_by(ENTRY_BYTES as usize).zip(pages.iter().take(BAD_IN_LINE)) {
        put_u64(&mut line.0, at, bad.page | if bad.in_use { 0 } else { KEPT });
        put_u64(&mut line.0, at + 8, bad.lines);
    }
    line
}

/// What a line of the list says.
pub(crate) fn bad_pages_in(line: &Line) -> [BadPage; BAD_IN_LINE] {
    core::array::from_fn(|entry| {
        let at = entry * ENTRY_BYTES as usize;
        let (word, lines) = (get_u64(&line.0, at), get_u64(&line.0, at + 8));
        BadPage { page: word & !KEPT, lines, in_use: word & KEPT == 0 }
    })
}

/// The checksum of a list: of its lines, one behind the other.
pub(crate) fn bad_crc(pages: &[BadPage]) -> u32 {
    pages.chunks(BAD_IN_LINE).fold(0, |crc, some| crc32c(crc, &bad_line(some).0))
}

/// Whether a list can be one of a pool of so many pages: in order, each page once and with a bad line.
pub(crate) fn bad_possible(list: &[BadPage], pages: u64) -> bool {
    let inside = list.iter().all(|bad| bad.page < pages && bad.lines != 0);
    inside && list.windows(2).all(|two| matches!(two, [a, b] if a.page < b.page))
}
