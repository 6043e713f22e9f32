//! Log collection (NOVA 3.4; PROTOCOL I12 to I15).
//!
//! *Fast*: a log page whose records are all dead, and which ended nothing that an older
//! page still says, is unlinked. *Thorough*: when less than half of a log is live, what
//! is live is written to fresh pages in order, and the head is swapped in one word.
//! A rewritten log says what the index says, so no tombstone needs to be carried over:
//! everything it ended is gone with the old pages.

use alloc::vec::Vec;

use lode_pmem::Medium;

use super::names::load_name;
use super::state::{Body as Kind, File, State};
use super::xattrs::load_xattr;
use crate::index::{Extent, Extents};
use crate::layout::{
    Anchor, Body, HEAD_AT, LINE, LOG_LINES_MOST, Link, LogHeader, slot_at, stored_seal, text_lines,
};
use crate::log::{Log, LogPage, Tail};
use crate::store::{Slot, Store, Tx};
use crate::{Error, Host, NAME_MAX, Op, PAGE_BYTES, Result, Rule, mode};

/// A file's log is rewritten when it has so many lines at least: its fences and what is written of
/// the inode itself are shared by as many changes. (Where space is short, by fewer.)
const LINES_WORTH: u32 = 4 * LOG_LINES_MOST as u32;

/// Records of the inode itself in a rewritten log, at most.
const OWN_RECORDS: u64 = 4;

/// Lines of the longest record.
const RECORD_LINES: u32 = text_lines(NAME_MAX);

/// A log page with at most so many lines is one that the log has just grown by.
const FRESH_LINES: u32 = 3;

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
    let worth = worth && !store.sees_log(state.log.ino, state.log.born);
    // (Where there is no space for that, pages without life can still be given back.)
    if worth
        && live * 2 < state.log.lines()
        && let Ok(given) = rewrite(store, slot, state, live)
    {
        return Some((Op::CollectThorough, given));
    }
    let pages = log_pages as u32;
    let rolled = state.log.tail.left + FRESH_LINES >= state.log.page_lines();
    // Looking through all pages is spread over as many, but where each page counts.
    let due = || state.log.next_ordinal.is_multiple_of(1 + pages / 16) || store.is_short();
    if rolled && due() && unlink_dead(store, &mut state.log).unwrap_or(false) {
        return Some((Op::CollectFast, 1));
    }
    None
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
    let whole = page_lines == u32::from(LOG_LINES_MOST);
    match &state.body {
        Kind::File(_) if whole => LINES_WORTH.div_ceil(page_lines) as usize,
        _ => 2,
    }
}

/// Lines that a rewritten log would have.
fn live_lines(state: &State) -> u64 {
    let of_body = match &state.body {
        Kind::File(file) => file.extents.len() as u64,
        Kind::Directory(directory) => directory.lines,
        Kind::Symlink(target) => u64::from(text_lines(usize::from(target.len))) - 1,
        Kind::Special => 0,
    };
    OWN_RECORDS + of_body + state.xattrs.lines()
}

/// Fast collection: round, fence; unlink, fence; free (I13). Says whether it did anything.
fn unlink_dead<M: Medium, H: Host>(store: &Store<M, H>, log: &mut Log) -> Result<bool> {
    let Some(at) = first_dead(store, log) else { return Ok(false) };
    if !store.host.leaves_out(Rule::RoundForFast) {
        store.round()?;
    }
    let (Some(dead), Some(next)) = (log.pages.get(at).copied(), log.pages.get(at + 1).copied())
    else {
        return Ok(false);
    };
    let before = at.checked_sub(1).and_then(|before| log.pages.get(before));
    let link_at = before.map_or(slot_at(log.ino), |page| page.page * PAGE_BYTES) + HEAD_AT;
    let inline_dead = before.is_none() && log.inline_dead;
    store.store_link(link_at, Some(Link::new(next.page, next.nonce, inline_dead)));
    let early = store.host.leaves_out(Rule::FreeAfterUnlinked);
    if early {
        store.give_log_page(dead.page);
    }
    store.door.fence(store.counters())?;
    log.pages.remove(at);
    if !early {
        store.give_log_page(dead.page);
    }
    Ok(true)
}

/// The first page, not the last, without live records, that ended nothing which a page
/// still there says (I14), and says nothing that a snapshot sees.
fn first_dead<M: Medium, H: Host>(store: &Store<M, H>, log: &Log) -> Option<usize> {
    let any = store.host.leaves_out(Rule::TombstoneKept);
    let seen = |page: &LogPage| {
        store.sees_log(log.ino, page.low) && store.snapshots.sees(page.low, page.ended)
    };
    let mut before = if log.inline_dead { None } else { Some(crate::log::INLINE) };
    let last = log.pages.len() - 1;
    for (at, page) in log.pages.iter().enumerate().take(last) {
        let ended_all = any || before.is_none_or(|before| before < page.ended_from);
        if page.live == 0 && ended_all && !seen(page) {
            return Some(at);
        }
        before = Some(page.ordinal);
    }
    None
}

/// The fresh pages of a log that is being rewritten.
struct Fresh<'s, M: Medium, H: Host> {
    store: &'s Store<M, H>,
    /// The epoch of all records; 0 before there are any.
    epoch: u32,
    ino: u64,
    nonce: u64,
    pages: Vec<LogPage>,
    spare: Vec<u64>,
    tail: Tail,
}

impl<M: Medium, H: Host> Fresh<'_, M, H> {
    /// Makes room for a record of `lines` lines. The link to a new page stands in a
    /// page that is not reachable yet.
    fn room(&mut self, tx: &mut Tx<'_, M, H>, lines: u32) -> Result<()> {
        if lines <= self.tail.left {
            return Ok(());
        }
        while self.tail.left > 0 && !self.pages.is_empty() {
            tx.next(1);
            self.line(tx, &Body::Pad);
        }
        let page = self.spare.pop().ok_or(Error::NoSpace)?;
        let nonce = self.store.nonce();
        let at = page * PAGE_BYTES;
        let header = LogHeader { ino: self.ino, owner_nonce: self.nonce, nonce };
        let line = header.line(&self.store.seed, at, None);
        tx.line(at, &line);
        if let Some(last) = self.pages.last() {
            let link_at = last.page * PAGE_BYTES + HEAD_AT;
            tx.word(link_at, Link::new(page, nonce, false).word(&self.store.seed, link_at));
        }
        let ordinal = self.tail.ordinal + 1;
        self.pages.try_reserve(1)?;
        self.pages.push(LogPage::new(page, nonce, ordinal, tx.epoch()));
        self.tail = Tail {
            at: at + LINE,
            left: self.store.geometry.log_lines,
            seed: self.store.log_seed(self.ino, self.nonce, page, nonce),
            last_seal: stored_seal(&line),
            ordinal,
        };
        Ok(())
    }

    fn line(&mut self, tx: &mut Tx<'_, M, H>, body: &Body) {
        self.tail.last_seal = tx.record(self.tail.at, &self.tail.seed, body);
        self.tail.at += LINE;
        self.tail.left -= 1;
    }

    /// A record as a transaction of its own; returns its place.
    fn record(&mut self, tx: &mut Tx<'_, M, H>, body: &Body, text: &[u8]) -> Result<(u64, u32)> {
        let lines = body.lines();
        self.room(tx, lines)?;
        let place = (self.tail.at, self.tail.ordinal);
        tx.next(lines);
        self.line(tx, body);
        for index in 1..lines {
            self.line(tx, &body.text_of(text, index));
        }
        Ok(place)
    }
}

/// Thorough collection: round, fence; fresh pages, fence; head, fence; free (I12). The round's
/// fence can't wait for the next one: what a round frees, other threads take at once. Returns how
/// many pages the log had. Not inlined, as its larger parts: a kernel's stack is small.
#[inline(never)]
fn rewrite<M: Medium, H: Host>(
    store: &Store<M, H>,
    slot: &Slot,
    state: &mut State,
    live: u64,
) -> Result<u64> {
    let longest = RECORD_LINES.max(state.xattrs.longest());
    let wanted = pages_for(store.geometry.log_lines, longest, live);
    let mut places = Vec::new();
    places.try_reserve_exact(live as usize)?;
    let spare = take_spare(store, wanted)?;
    if !store.host.leaves_out(Rule::RoundForThorough) {
        store.round()?;
    }
    let mut fresh = Fresh {
        store,
        epoch: 0,
        ino: state.log.ino,
        nonce: state.log.nonce,
        pages: Vec::new(),
        spare,
        tail: Tail { left: 0, ordinal: state.log.next_ordinal - 1, ..state.log.tail },
    };
    let stored = store_all(store, state, &mut fresh, &mut places);
    for page in core::mem::take(&mut fresh.spare) {
        store.give_log_page(page);
    }
    let own = match stored {
        Ok(own) => own,
        Err(error) => {
            give_pages(store, &fresh.pages);
            return Err(error);
        }
    };
    let given = state.log.pages.len() as u64;
    swap(store, slot, state, fresh, &places, own)?;
    Ok(given)
}

fn give_pages<M: Medium, H: Host>(store: &Store<M, H>, pages: &[LogPage]) {
    for page in pages {
        store.give_log_page(page.page);
    }
}

/// Pages that records of `live` lines may need, the longest of them of `longest` lines, whatever
/// their order.
fn pages_for(page_lines: u32, longest: u32, live: u64) -> u64 {
    let lines = u64::from(page_lines);
    // The longest record may leave all its lines but one of a page unused; and any two
    // pages in a row hold more than one page's lines.
    let by_longest = live.div_ceil(lines - u64::from(longest.min(page_lines)) + 1);
    let by_pairs = 2 * live.div_ceil(lines + 1);
    by_longest.min(by_pairs) + 1
}

fn take_spare<M: Medium, H: Host>(store: &Store<M, H>, wanted: u64) -> Result<Vec<u64>> {
    let mut spare: Vec<u64> = Vec::new();
    spare.try_reserve_exact(wanted as usize)?;
    for _ in 0..wanted {
        match store.take_spare_page() {
            Ok(page) => spare.push(page),
            Err(error) => {
                for page in spare {
                    store.give_log_page(page);
                }
                return Err(error);
            }
        }
    }
    Ok(spare)
}

/// Stores the records of the whole state, and fences. Returns the ordinal of the page
/// with the records of the inode itself, and the place of the first one.
#[inline(never)]
fn store_all<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    fresh: &mut Fresh<'_, M, H>,
    places: &mut Vec<(u64, u32)>,
) -> Result<((u64, u32), u32)> {
    if let Kind::File(file) = &state.body {
        file.journal.flush(store, store.counters());
    }
    let bytes = fresh.spare.len() as u64 * (PAGE_BYTES + 8);
    let mut tx = store.begin(0, bytes)?;
    // (Asked again: from here on a snapshot waits.)
    if store.sees_log(state.log.ino, state.log.born) {
        tx.abandon();
        return Err(Error::NoSpace);
    }
    fresh.epoch = tx.epoch();
    let stored = store_records(store, state, fresh, places, &mut tx);
    match stored {
        Ok(place) => {
            tx.commit()?;
            Ok(place)
        }
        Err(error) => {
            tx.abandon();
            Err(error)
        }
    }
}

#[inline(never)]
fn store_records<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    fresh: &mut Fresh<'_, M, H>,
    places: &mut Vec<(u64, u32)>,
    tx: &mut Tx<'_, M, H>,
) -> Result<((u64, u32), u32)> {
    let (first, text) = first_record(store, state)?;
    let place = fresh.record(tx, &first, text.get(..).unwrap_or_default())?;
    match &state.body {
        Kind::File(file) => store_extents(state, file, fresh, places, tx)?,
        Kind::Directory(directory) => {
            let mut name = [0u8; NAME_MAX];
            for entry in directory.entries.iter() {
                let (mut parsed, len) = load_name(store, state, &entry, &mut name)?;
                let name = name.get(..len).unwrap_or_default();
                if let Body::Add { replaces, .. } = &mut parsed.body {
                    *replaces = false;
                }
                places.push(fresh.record(tx, &parsed.body, name)?);
            }
        }
        _ => {}
    }
    for xattr in state.xattrs.iter() {
        let (body, text) = load_xattr(store, state, xattr)?;
        places.push(fresh.record(tx, &body, &text)?);
    }
    // One page holds all that is said of the inode itself.
    fresh.room(tx, OWN_RECORDS as u32 - 1)?;
    if let Kind::File(_) = &state.body {
        let (class, size, time_ns) = (state.class, state.size, state.mtime_ns);
        fresh.record(tx, &Body::Size { class, truncate: false, size, time_ns }, &[])?;
    }
    let links = Body::Links { links: state.links, parent: state.parent, ctime_ns: state.ctime_ns };
    let (_, last) = fresh.record(tx, &links, &[])?;
    if store.host.leaves_out(Rule::RewriteWhole) {
        return Ok((place, last));
    }
    let (_, last) = fresh.record(tx, &state.attr_record(), &[])?;
    Ok((place, last))
}

fn store_extents<M: Medium, H: Host>(
    state: &State,
    file: &File,
    fresh: &mut Fresh<'_, M, H>,
    places: &mut Vec<(u64, u32)>,
    tx: &mut Tx<'_, M, H>,
) -> Result<()> {
    for extent in file.extents.joined() {
        let map = Body::Map {
            class: extent.class,
            pages: u32::try_from(extent.pages).map_err(|_| Error::NotSupported)?,
            file_page: extent.file_page,
            page: extent.page,
            time_ns: state.mtime_ns,
            size: state.size,
        };
        places.push(fresh.record(tx, &map, &[])?);
    }
    Ok(())
}

/// The INODE record of the state, with the target of a symbolic link.
fn first_record<M: Medium, H: Host>(store: &Store<M, H>, state: &State) -> Result<(Body, Vec<u8>)> {
    let mut text = Vec::new();
    let mut extra = [0u8; 16];
    match &state.body {
        Kind::Symlink(target) => {
            text.try_reserve_exact(usize::from(target.len))?;
            text.resize(usize::from(target.len), 0);
            super::names::load_target(store, state, target.at, target.ordinal, &mut text)?;
            extra = Body::head_of(&text);
        }
        Kind::Directory(_) => extra = head_of_word(state.parent),
        Kind::File(_) if state.kind() == mode::FILE => {
            extra = head_of_word(u64::from(state.class as u8));
        }
        Kind::File(_) => {}
        Kind::Special => {
            extra = head_of_word(state.rdev.rotate_left(32));
        }
    }
    let body = Body::Inode {
        mode: state.mode as u16,
        links: u16::try_from(state.links).unwrap_or(u16::MAX),
        uid: state.uid,
        gid: state.gid,
        time_ns: state.btime_ns,
        extra,
        text: text.len() as u8,
    };
    Ok((body, text))
}

/// Eight bytes of an INODE record's extra field.
pub(crate) fn head_of_word(word: u64) -> [u8; 16] {
    Body::head_of(&word.to_le_bytes())
}

/// Makes extents those that the records at `places` make.
fn move_extents(extents: &mut Extents, log: &mut Log, places: &[(u64, u32)], records: usize) {
    let epoch = log.epoch;
    if extents.len() == records {
        let mut places = places.iter();
        extents.for_each_origin_mut(&mut |pages, born, origin| {
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

/// Swaps the head in one word, and makes memory speak of the new log.
#[inline(never)]
fn swap<M: Medium, H: Host>(
    store: &Store<M, H>,
    slot: &Slot,
    state: &mut State,
    fresh: Fresh<'_, M, H>,
    places: &[(u64, u32)],
    ((first_at, first_ordinal), last_ordinal): ((u64, u32), u32),
) -> Result<()> {
    let (Some(head), epoch) = (fresh.pages.first(), fresh.epoch) else { return Ok(()) };
    let link = Link::new(head.page, head.nonce, true);
    store.store_link(slot_at(state.log.ino) + HEAD_AT, Some(link));
    let early = store.host.leaves_out(Rule::FreeAfterSwap);
    if early {
        give_pages(store, &state.log.pages);
    }
    store.door.fence(store.counters())?;
    slot.set_tail(fresh.tail.last_seal);
    let mut log = Log::at_tail(
        &store.geometry,
        (state.log.ino, state.log.nonce),
        true,
        fresh.pages,
        fresh.tail,
    );
    (log.born, log.epoch) = (epoch, epoch);
    let old = core::mem::replace(&mut state.log, log);
    if !early {
        give_pages(store, &old.pages);
    }
    let of_body = places.len() - state.xattrs.len();
    let of_xattrs = places.iter().skip(of_body);
    for (xattr, (at, origin)) in state.xattrs.iter_mut().zip(of_xattrs) {
        (xattr.at, xattr.origin, xattr.epoch) = (*at, *origin, epoch);
        state.log.add_live(*origin, 1);
    }
    match &mut state.body {
        Kind::File(file) => {
            file.journal.forget(&mut |run| store.give(run));
            move_extents(&mut file.extents, &mut state.log, places, of_body);
        }
        Kind::Directory(directory) => {
            let mut places = places.iter();
            directory.entries.for_each_mut(&mut |_, entry| {
                let Some((at, ordinal)) = places.next() else { return };
                (entry.at, entry.origin) = (*at, *ordinal);
                state.log.add_live(*ordinal, 1);
            });
        }
        Kind::Symlink(target) => (target.at, target.ordinal) = (first_at, first_ordinal),
        Kind::Special => {}
    }
    state.log.add_live(first_ordinal, 1);
    state.carry_all(last_ordinal);
    Ok(())
}
