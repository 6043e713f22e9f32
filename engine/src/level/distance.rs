//! How far apart the copies of metadata can be in a pool that has been in use.
//!
//! Inode tables can't be moved: an inode's number is its place. So the distance is one at which no
//! piece of table lies where the copy of another one goes.

use alloc::vec::Vec;

use lode_pmem::Medium;

use crate::layout::{Geometry, TWIN_LOG2_MOST};
use crate::recovery::format::least_twin_log2;
use crate::space::Run;
use crate::{Error, FormatOptions, Host, PAGE_BYTES, Pool, Result, Unusable};

/// log2 of the smallest distance that keeps copies as far apart as `dead_zone` says (bytes), and that
/// the tables of `pool` allow.
///
/// # Errors
/// `NotAPool(TooSmall)` for a pool in which copies can't be so far apart, `NotSupported` where the
/// tables lie so that none will do.
pub(super) fn choose<M: Medium, H: Host>(pool: &Pool<M, H>, dead_zone: u64) -> Result<u8> {
    let geometry = pool.store.geometry;
    let options = FormatOptions { dead_zone, lanes: geometry.lanes, ..FormatOptions::default() };
    let least = least_twin_log2(&options);
    let pieces = pieces(pool)?;
    let fits = |log2: u8| 2u64 << log2 <= geometry.end_page();
    if !fits(least) {
        let least = (3u64 << least) * PAGE_BYTES;
        return Err(Error::NotAPool(Unusable::TooSmall { least }));
    }
    let mut possible = (least..=TWIN_LOG2_MOST).take_while(|log2| fits(*log2));
    possible.find(|log2| allows(&pieces, geometry, 1 << log2)).ok_or(Error::NotSupported)
}

/// All pieces of inode tables, in order.
pub(super) fn pieces<M: Medium, H: Host>(pool: &Pool<M, H>) -> Result<Vec<Run>> {
    let mut pieces: Vec<Run> = Vec::new();
    pool.store.table.for_each_piece(&mut |piece| {
        pieces.try_reserve(1)?;
        pieces.push(piece.run());
        Ok(())
    })?;
    pieces.sort_unstable_by_key(|run| run.page);
    Ok(pieces)
}

/// Whether each piece can have its copy `apart` pages away.
fn allows(pieces: &[Run], geometry: Geometry, apart: u64) -> bool {
    let geometry = Geometry { twin_pages: apart, ..geometry };
    pieces.iter().all(|piece| {
        let twin = Run { page: piece.page ^ apart, ..*piece };
        // (On one side of the border, so the copy is one run, too.)
        geometry.holds_metadata(piece.page, piece.pages) && !meets_any(pieces, twin)
    })
}

/// Whether a run has pages of one of these, which are in order.
fn meets_any(runs: &[Run], run: Run) -> bool {
    let behind = runs.partition_point(|other| other.page < run.end());
    behind.checked_sub(1).and_then(|at| runs.get(at)).is_some_and(|last| last.end() > run.page)
}
