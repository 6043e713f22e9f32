//! Inode tables that nothing leads to any more.
//!
//! One line of the medium may be the only way to all further tables of a lane. Where a checkpoint
//! knows them it says where they are. Otherwise they are searched for in all pages, by their sealed
//! headers. A header may be left of a table that was given back: but then all inodes in it were
//! dead. Only a table with a living inode counts, in a lane whose chain is cut. (The lines of a
//! death come behind that of the identity, so that whoever uses the page again ends both or the
//! identity alone.) One whose own header is damaged begins where the link says, and goes to its last
//! living inode.

use alloc::vec::Vec;

use lode_pmem::{Line, Medium};

use super::Salvage;
use super::report::Told;
use crate::layout::{PieceHeader, SLOT_BYTES, ino_of};
use crate::log::{read_death, read_identity};
use crate::space::Claims;
use crate::store::{Piece, Shape, Store};
use crate::{Corruption, Error, Host, PAGE_BYTES, PageClass, Result, Rule};

/// A chain that damage cuts.
struct Cut {
    lane: u32,
    damage: Corruption,
}

/// Makes chains whole that are cut.
///
/// # Errors
/// [`Error::Corrupt`] where the table with the root directory is not found. Nothing was written then.
pub(super) fn find_tables<M: Medium, H: Host>(store: &Store<M, H>, told: Told<'_>) -> Result<()> {
    let claims = Claims::new(store.geometry.pages)?;
    let mut pieces = Vec::new();
    let cuts = reach(store, &claims, &mut pieces)?;
    let Some(first) = cuts.first() else { return Ok(()) };
    let mut found = search(store, &claims, &cuts)?;
    for cut in &cuts {
        found.try_reserve(1)?;
        found.extend(without_header(store, &claims, cut)?);
    }
    for cut in &cuts {
        let tables = of_lane(&found, cut.lane).count();
        told(Salvage::TablesFound { damage: cut.damage, tables });
    }
    pieces.try_reserve(found.len())?;
    pieces.extend(found);
    // (Stable: what was reached stays in front.)
    pieces.sort_by_key(|piece| piece.header.lane);
    let has_root = |piece: &Piece| (1..piece.slots()).any(|index| piece.ino(index) == store.root);
    if !pieces.iter().any(has_root) {
        return Err(Error::Corrupt(first.damage));
    }
    // From the ends on, one after the other: as long as the first damage of a chain is there, the
    // next salvage searches again.
    for bad in store.bad_chains(&pieces)?.iter().rev() {
        store.mend_chains(core::slice::from_ref(bad))?;
    }
    Ok(())
}

fn of_lane(pieces: &[Piece], lane: u32) -> impl Iterator<Item = &Piece> {
    pieces.iter().filter(move |piece| u32::from(piece.header.lane) == lane)
}

/// Follows the chains as far as they lead; says which of them are cut.
fn reach<M: Medium, H: Host>(
    store: &Store<M, H>,
    claims: &Claims,
    pieces: &mut Vec<Piece>,
) -> Result<Vec<Cut>> {
    let mut cuts = Vec::new();
    for lane in 0..store.geometry.lanes {
        let reached = store.walk_chain(lane, &mut |piece| {
            let circle = |page| Error::corrupt("inode tables overlap", page * PAGE_BYTES);
            claims.claim(piece.run()).map_err(circle)?;
            pieces.try_reserve(1)?;
            pieces.push(piece);
            Ok(())
        });
        let damage = match reached {
            Ok(()) => continue,
            Err(Error::Corrupt(damage)) => damage,
            Err(Error::Media { at }) => {
                Corruption { what: "uncorrectable media error", at, ino: 0 }
            }
            Err(error) => return Err(error),
        };
        cuts.try_reserve(1)?;
        cuts.push(Cut { lane, damage });
    }
    Ok(cuts)
}

/// Looks at all pages that are not in a table yet for one of a chain that is cut.
fn search<M: Medium, H: Host>(
    store: &Store<M, H>,
    claims: &Claims,
    cuts: &[Cut],
) -> Result<Vec<Piece>> {
    let mut found = Vec::new();
    for page in store.geometry.first_page()..store.geometry.end_page() {
        let Some(header) = header_at(store, page) else { continue };
        if !cuts.iter().any(|cut| cut.lane == u32::from(header.lane)) {
            continue;
        }
        let piece = Piece::new(header)?;
        let run = piece.run();
        if store.geometry.holds_metadata(run.page, run.pages)
            && has_life(store, &piece)?
            && claims.claim(run).is_ok()
        {
            found.try_reserve(1)?;
            found.push(piece);
        }
    }
    Ok(found)
}

/// A table whose header can't be read is where the link says; it goes to its last inode with life.
fn without_header<M: Medium, H: Host>(
    store: &Store<M, H>,
    claims: &Claims,
    cut: &Cut,
) -> Result<Option<Piece>> {
    // (Of other damage it is not the beginning of a page that is told.)
    if !cut.damage.at.is_multiple_of(PAGE_BYTES) {
        return Ok(None);
    }
    let page = cut.damage.at / PAGE_BYTES;
    let mut pages = 0u64;
    for more in 1..=PageClass::Huge.pages() {
        let last = page + more - 1;
        let is_other = more > 1 && header_at(store, last).is_some();
        if !store.geometry.holds(last, 1) || is_other {
            break;
        }
        if lives_in(store, last)? {
            pages = more;
        }
    }
    if pages == 0 {
        return Ok(None);
    }
    let log2_pages = pages.next_power_of_two().trailing_zeros() as u8;
    let header = PieceHeader { log2_pages, lane: cut.lane as u8, page, nonce: store.nonce() };
    let piece = Piece::new(header)?;
    let run = piece.run();
    let free = store.geometry.holds_metadata(run.page, run.pages) && claims.claim(run).is_ok();
    Ok(free.then_some(piece))
}

fn header_at<M: Medium, H: Host>(store: &Store<M, H>, page: u64) -> Option<PieceHeader> {
    let at = page * PAGE_BYTES;
    let read = |line: &Line| store.anchor(Rule::PieceSeal, line, at);
    read(&store.load_line(at, Shape::Anchor, |line| read(line).is_some()).ok()?)
}

/// Whether an inode of the table is not dead, as far as can be read.
fn has_life<M: Medium, H: Host>(store: &Store<M, H>, piece: &Piece) -> Result<bool> {
    let run = piece.run();
    for page in run.page..run.end() {
        if lives_in(store, page)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The same of the slots in a page.
fn lives_in<M: Medium, H: Host>(store: &Store<M, H>, page: u64) -> Result<bool> {
    let first = ino_of(page * PAGE_BYTES);
    for ino in first..first + PAGE_BYTES / SLOT_BYTES {
        let alive = match read_identity(store, ino) {
            Ok(Some((identity, ..))) => !matches!(read_death(store, &identity), Ok(Some(_))),
            Ok(None) | Err(Error::Media { .. }) => false,
            Err(error) => return Err(error),
        };
        if alive {
            return Ok(true);
        }
    }
    Ok(false)
}
