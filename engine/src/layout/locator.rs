//! Where the second superblock is, for whoever can't read the first: a line of its own in page 0,
//! stored when a pool is made or grows, and not with each update of the superblocks.

use lode_pmem::{Line, crc32c};

use super::bytes::{get_u32, get_u64, put_u32, put_u64};
use super::geometry::{POOL_PAGES_LEAST, POOL_PAGES_MOST};

/// Offset of the line in the pool.
pub const LOCATOR_AT: u64 = 1024;

const MAGIC: u32 = u32::from_le_bytes(*b"LEND");
const CRC_AT: usize = 60;

/// The line for a pool of `pages` pages.
pub fn locator(pages: u64) -> Line {
    let mut line = Line::ZERO;
    put_u32(&mut line.0, 0, MAGIC);
    put_u64(&mut line.0, 8, pages);
    let crc = crc32c(0, line.0.split_at(CRC_AT).0);
    put_u32(&mut line.0, CRC_AT, crc);
    line
}

/// How many pages the pool has, if this is the line that says so; its checksum is looked at where
/// that is asked for.
pub fn located(line: &Line, summed: bool) -> Option<u64> {
    let right = !summed || get_u32(&line.0, CRC_AT) == crc32c(0, line.0.split_at(CRC_AT).0);
    let pages = get_u64(&line.0, 8);
    let possible = (POOL_PAGES_LEAST..=POOL_PAGES_MOST).contains(&pages);
    (right && possible && get_u32(&line.0, 0) == MAGIC).then_some(pages)
}
