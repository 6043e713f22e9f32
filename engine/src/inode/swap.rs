//! The moment in which a log that was written anew takes the place of the old one.
//!
//! Guarantees: one word is stored, and what the old log had is free only behind the fence of that; then memory
//! speaks of the new places.

use lode_pmem::Medium;

use super::rewrite::{Fresh, Said, give_pages};
use super::state::{Body as Kind, State};
use crate::index::{Extent, Extents};
use crate::layout::Link;
use crate::log::{INLINE, Log, LogPage};
use crate::store::{Slot, Store};
use crate::{Host, Result, Rule};

/// Makes extents those that the records at `places` make: all, or those that pages from ordinal `first` on said.
fn move_extents(extents: &mut Extents, log: &mut Log, places: &[(u64, u32)], first: u32) {
    let epoch = log.epoch;
    if first > INLINE || extents.len() == places.len() {
        let mut places = places.iter();
        extents.for_each_origin_mut(&mut |pages, born, origin| {
            if *origin < first {
                return;
            }
            *born = epoch;
            if let Some((_, ordinal)) = places.next() {
                *origin = *ordinal;
                log.add_live(*ordinal, pages);
            }
        });
        return;
    }
    let mut moved = Extents::default();
    for (extent, (_, origin)) in extents.joined().zip(places) {
        moved.insert(Extent { origin: *origin, epoch, ..extent });
        log.add_live(*origin, extent.pages);
    }
    *extents = moved;
}

/// Swaps the head, or the link out of the last page that stays, in one word, and makes memory speak of the new log.
/// Returns how many pages it has no more.
#[inline(never)]
pub(super) fn swap<M: Medium, H: Host>(
    store: &Store<M, H>,
    slot: &Slot,
    state: &mut State,
    fresh: Fresh<'_, M, H>,
    places: &[(u64, u32)],
    said: &Said,
) -> Result<u64> {
    let kept = fresh.behind.map_or(0, |behind| behind.kept);
    let is_whole = fresh.behind.is_none();
    let link = fresh.pages.first().map(|head| Link::new(head.page, head.nonce, is_whole));
    store.store_link(state.log.link_behind(kept), link);
    let early = store.host.leaves_out(Rule::FreeAfterSwap);
    if early {
        give_pages(store, state.log.pages.get(kept..).unwrap_or_default());
    }
    store.door.fence(store.counters())?;
    slot.set_tail(fresh.tail.last_seal);
    let first = fresh.behind.map_or(INLINE, |behind| behind.first);
    let given = state.log.pages.len() - kept;
    if !early {
        give_pages(store, state.log.pages.get(kept..).unwrap_or_default());
    }
    go_on_in(store, state, fresh, kept, (link.is_some(), said.last_end));
    move_places(store, state, places, said, first);
    Ok(given as u64)
}

/// Makes the log in memory the pages that stay and the fresh ones.
fn go_on_in<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &mut State,
    fresh: Fresh<'_, M, H>,
    kept: usize,
    (has_pages, last_end): (bool, u32),
) {
    let log = &mut state.log;
    log.epoch = fresh.epoch;
    if let Some(behind) = fresh.behind {
        log.next_ordinal = log.next_ordinal.max(fresh.tail.ordinal + 1);
        log.tail = fresh.tail;
        log.pages.truncate(kept);
        let from = behind.ended_from;
        log.pages.extend(fresh.pages.iter().map(|page| {
            let ended_from = if page.ordinal <= last_end { from } else { u32::MAX };
            LogPage { ended_from, replaced_from: from, ..*page }
        }));
        log.look_at = 0;
        return;
    }
    let life = (log.ino, log.nonce);
    let mut new = Log::at_tail(&store.geometry, life, has_pages, fresh.pages, fresh.tail);
    (new.born, new.epoch) = (fresh.epoch, fresh.epoch);
    new.next_ordinal = new.next_ordinal.max(log.next_ordinal);
    state.log = new;
}

/// Makes memory speak of the new places of what pages from ordinal `first` on said.
fn move_places<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &mut State,
    places: &[(u64, u32)],
    said: &Said,
    first: u32,
) {
    let epoch = state.log.epoch;
    let xattrs = state.xattrs.iter().filter(|xattr| xattr.origin >= first).count();
    // (What is exempt is written with the whole log alone.)
    let exempt = if said.first.is_some() { state.exempt_records() } else { 0 };
    let (rest, of_exempt) = places.split_at(places.len().saturating_sub(exempt));
    let (of_body, of_xattrs) = rest.split_at(rest.len().saturating_sub(xattrs));
    let moved = state.xattrs.iter_mut().filter(|xattr| xattr.origin >= first);
    for (xattr, (at, origin)) in moved.zip(of_xattrs) {
        (xattr.at, xattr.origin, xattr.epoch) = (*at, *origin, epoch);
        state.log.add_live(*origin, 1);
    }
    if let Some((txid, ordinal)) = said.retired {
        state.retire(txid, ordinal);
    }
    match &mut state.body {
        Kind::File(file) => {
            if said.first.is_some() {
                file.journal.forget(&mut |run| store.give(run));
            } else {
                file.journal.give_runs(&mut |ended| store.release(ended, epoch));
            }
            move_extents(&mut file.extents, &mut state.log, of_body, first);
            let mut origins = of_exempt.iter().map(|(_, origin)| *origin);
            file.move_exempt(&mut state.log, &mut origins);
        }
        Kind::Directory(directory) => {
            let mut places = of_body.iter();
            directory.entries.for_each_mut(&mut |_, entry| {
                if entry.origin < first {
                    return;
                }
                let Some((at, ordinal)) = places.next() else { return };
                (entry.at, entry.origin) = (*at, *ordinal);
                state.log.add_live(*ordinal, 1);
            });
        }
        Kind::Symlink(target) => {
            (target.at, target.ordinal) = said.first.unwrap_or((target.at, target.ordinal));
        }
        Kind::Special => {}
    }
    if let Some((_, ordinal)) = said.first {
        state.log.add_live(ordinal, 1);
    }
    state.carry_all(said.own);
}
