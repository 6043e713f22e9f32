//! Log collection (NOVA 3.4; PROTOCOL I12 to I15).
//!
//! *Fast*: log pages whose records are all dead, and which ended nothing that an older
//! page still says, are unlinked. *Thorough*: when little of a log is live, what
//! is live is written to fresh pages in order, and the head is swapped in one word.
//! A rewritten log says what the index says, so no tombstone needs to be carried over:
//! everything it ended is gone with the old pages. Of a log that snapshots see, the same is done with what comes
//! behind the pages in which they see something: what it ended of these has to be said again (`behind`). *Inline*: what a log of one page says in few
//! records is written where its inode is, and the page is given back.

use alloc::vec::Vec;

use lode_pmem::Medium;

use super::behind::{Behind, pages_seen};
use super::rewrite::{lines_inline, live_lines, rewrite, rewrite_behind, rewrite_inline};
use super::state::{Body as Kind, State};
use crate::layout::{HEAD_AT, INLINE_LINES, LOG_LINES_MOST, Link, slot_at};
use crate::log::{Log, LogPage};
use crate::store::{Slot, Store};
use crate::{Host, Op, PAGE_BYTES, Result, Rule, mode};

/// A file's log is rewritten when it has so many lines at least: its fences and what is written of
/// the inode itself are shared by as many changes. (Where space is short, by fewer.)
const LINES_WORTH: u32 = 4 * LOG_LINES_MOST as u32;

/// A log is rewritten when it has so many lines for each that is live: to write one again costs as much as a change, so that
/// each change bears a third of one. (Where space or pages are short, when it has two.)
const LINES_A_LIVE_ONE: u64 = 4;

/// What comes behind the pages that snapshots see is looked through in main memory to know what of it is true:
/// it has as many lines as this part of what is looked through.
const LOOKED_THROUGH: usize = 16;

/// A log page with at most so many lines is one that the log has just grown by.
const FRESH_LINES: u32 = 3;

/// A log that has had so many pages grows again and again: it keeps the one it has.
const GROWN_OFTEN: u32 = 16;

/// Collects a log that has grown, where that is worth it. The inode is locked by the
/// caller. What can't be done for want of space or memory is left for later. Says what was done,
/// and how many pages that gave back.
pub(crate) fn tidy<M: Medium, H: Host>(
    store: &Store<M, H>,
    slot: &Slot,
    state: &mut State,
) -> Option<(Op, u64)> {
    let log_pages = state.log.pages.len();
    if state.is_dead() || log_pages < 2 {
        return None;
    }
    let live = live_lines(state);
    let worth = log_pages >= pages_worth(state) || store.is_short();
    let seen = store.log_seen_until(state.log.ino, state.log.born);
    // (Where there is no space for that, pages without life can still be given back.)
    if seen > 0 {
        if worth && let Some(given) = tidy_behind(store, slot, state, seen) {
            return Some((Op::CollectThorough, given));
        }
    } else if worth
        && live * lines_a_live_one(store, state) < state.log.lines()
        && let Ok(given) = rewrite(store, slot, state, live)
    {
        return Some((Op::CollectThorough, given));
    }
    let pages = log_pages as u32;
    let rolled = state.log.tail.left + FRESH_LINES >= state.log.page_lines();
    // Looking through all pages is spread over as many, but where each page counts.
    let due = || state.log.next_ordinal.is_multiple_of(1 + pages / 16) || store.is_short();
    if !(rolled && due()) {
        return None;
    }
    let given = unlink_dead(store, &mut state.log).unwrap_or(0);
    (given > 0).then_some((Op::CollectFast, given))
}

/// Rewrites what a log says behind the pages in which the snapshot of epoch `seen`, the latest, sees something, where
/// that is worth it. Returns how many pages that gave back.
#[inline(never)]
fn tidy_behind<M: Medium, H: Host>(
    store: &Store<M, H>,
    slot: &Slot,
    state: &mut State,
    seen: u32,
) -> Option<u64> {
    let all = state.log.pages.len();
    let pages = all - pages_seen(&state.log, seen);
    let things = match &state.body {
        Kind::File(file) => file.extents.len(),
        Kind::Directory(directory) => directory.entries.len(),
        _ => 0,
    };
    let part = things / (LOOKED_THROUGH * state.log.page_lines().max(1) as usize);
    let least = pages_worth(state).max(part);
    let due = pages >= least && all >= state.log.look_at as usize;
    let rolled = state.log.tail.left + FRESH_LINES >= state.log.page_lines();
    let wanted = pages >= 2 && rolled && store.is_short();
    if !(due || wanted) {
        return None;
    }
    // (So each line of it is looked at a few times at most.)
    state.log.look_at = (all + (pages / 2).max(1)) as u32;
    let behind = Behind::of(store, state, seen).ok().flatten()?;
    rewrite_behind(store, slot, state, &behind).ok()
}

/// Writes a log to fresh pages, whether or not that saves any.
pub(crate) fn move_log<M: Medium, H: Host>(
    store: &Store<M, H>,
    slot: &Slot,
    state: &mut State,
) -> Result<()> {
    rewrite(store, slot, state, live_lines(state)).map(|_| ())
}

/// Pages that make a rewrite of this log worth it: of files, which are written most. Directories that
/// were emptied give their pages back, and so do all logs in pools of short pages.
fn pages_worth(state: &State) -> usize {
    let page_lines = state.log.page_lines();
    match &state.body {
        Kind::File(_) if page_lines == u32::from(LOG_LINES_MOST) => {
            LINES_WORTH.div_ceil(page_lines) as usize
        }
        _ => 2,
    }
}

/// How many lines for each that is live make a rewrite of this log worth it.
fn lines_a_live_one<M: Medium, H: Host>(store: &Store<M, H>, state: &State) -> u64 {
    let short = state.log.page_lines() < u32::from(LOG_LINES_MOST) || store.is_short();
    if short { 2 } else { LINES_A_LIVE_ONE }
}

/// Whether the log has just grown by its first page.
pub(crate) fn has_first_page<M: Medium, H: Host>(store: &Store<M, H>, state: &State) -> bool {
    let log = &state.log;
    log.pages.len() == 1
        && log.tail.left + FRESH_LINES >= log.page_lines()
        && !log.inline_dead
        && log.next_ordinal <= GROWN_OFTEN
        && state.kind() == mode::FILE
        && !store.sees_log(log.ino, log.born)
}

/// Brings a log of one page inline, where few lines say what it says. The inode is locked by the
/// caller. What can't be done for want of space or memory is left. Says how many pages that gave back.
#[inline(never)]
pub(crate) fn bring_inline<M: Medium, H: Host>(
    store: &Store<M, H>,
    slot: &Slot,
    state: &mut State,
) -> Option<u64> {
    let log = &state.log;
    let worth = log.pages.len() == 1 && !state.is_dead() && state.kind() == mode::FILE;
    if !worth || store.sees_log(log.ino, log.born) || lines_inline(state) > INLINE_LINES {
        return None;
    }
    // The places of the inline log are free once a page says all that it says.
    let live = live_lines(state);
    if !log.inline_dead {
        rewrite(store, slot, state, live).ok()?;
    } else if !store.host.leaves_out(Rule::RoundForThorough) {
        store.round().ok()?;
    }
    rewrite_inline(store, slot, state, live).ok()
}

/// Fast collection: round, fence; unlink, fence; free (I13). Returns how many pages that gave back.
fn unlink_dead<M: Medium, H: Host>(store: &Store<M, H>, log: &mut Log) -> Result<u64> {
    let dead = dead_pages(store, log)?;
    if dead.is_empty() {
        return Ok(0);
    }
    if !store.host.leaves_out(Rule::RoundForFast) {
        store.round()?;
    }
    unlink(store, log, &dead);
    let early = store.host.leaves_out(Rule::FreeAfterUnlinked);
    if early {
        dead.iter().for_each(|&page| store.give_log_page(page));
    }
    store.door.fence(store.counters())?;
    let mut gone = dead.iter().peekable();
    log.pages.retain(|page| gone.next_if_eq(&&page.page).is_none());
    if !early {
        dead.iter().for_each(|&page| store.give_log_page(page));
    }
    Ok(dead.len() as u64)
}

/// Leads past pages that are dead: those in a row go by one word, none of them needs that those of another row are gone.
fn unlink<M: Medium, H: Host>(store: &Store<M, H>, log: &Log, dead: &[u64]) {
    let mut dead = dead.iter().peekable();
    let mut skips = false;
    let mut link_at = slot_at(log.ino) + HEAD_AT;
    let mut inline_dead = log.inline_dead;
    for page in &log.pages {
        if dead.next_if_eq(&&page.page).is_some() {
            skips = true;
            continue;
        }
        if core::mem::take(&mut skips) {
            store.store_link(link_at, Some(Link::new(page.page, page.nonce, inline_dead)));
        }
        (link_at, inline_dead) = (page.page * PAGE_BYTES + HEAD_AT, false);
    }
}

/// The pages, not the last, without live records, that ended nothing which a page that stays
/// says (I14), and say nothing that a snapshot sees; in their order.
fn dead_pages<M: Medium, H: Host>(store: &Store<M, H>, log: &Log) -> Result<Vec<u64>> {
    let any = store.host.leaves_out(Rule::TombstoneKept);
    let seen = |page: &LogPage| {
        store.sees_log(log.ino, page.low) && store.snapshots.sees(page.low, page.ended)
    };
    let mut dead = Vec::new();
    let mut before = if log.inline_dead { None } else { Some(crate::log::INLINE) };
    for page in log.pages.iter().take(log.pages.len() - 1) {
        let ended_all = any || before.is_none_or(|before| before < page.ended_from);
        if page.live == 0 && ended_all && !seen(page) {
            dead.try_reserve(1)?;
            dead.push(page.page);
        } else {
            before = Some(page.ordinal);
        }
    }
    Ok(dead)
}
