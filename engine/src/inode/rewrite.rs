//! Writing a log anew: what its inode is in as few records as say it (PROTOCOL I12).
//!
//! Guarantees: until the head is swapped, in one word, the old log counts, and from then on the new one; what
//! the old one had is free only behind the fence of that. A log is written to fresh pages or, where a page
//! says all and the places of the inline log mean nothing, to these. Of a log that snapshots see the pages stay in
//! which they see something; what comes behind is written anew, and the link out of the last of these swapped.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use lode_pmem::Medium;

use super::behind::{Behind, FILE_PAGES};
use super::file::File;
use super::names::load_name;
use super::state::{Body as Kind, State};
use super::swap::swap;
use super::xattrs::load_xattr;
use crate::index::Extent;
use crate::layout::{
    Anchor, Body, HEAD_AT, INLINE_LINES, LINE, Link, LogHeader, SEAL_AT, Txid, slot_at,
    stored_seal, text_lines,
};
use crate::log::{INLINE, LogPage, Tail};
use crate::store::{Slot, Store, Tx};
use crate::{Error, Host, NAME_MAX, PAGE_BYTES, Result, Rule, mode};

/// Records of the inode itself in a rewritten log, at most.
pub(super) const OWN_RECORDS: u64 = 4;

/// Lines of the longest record.
const RECORD_LINES: u32 = text_lines(NAME_MAX);

/// Lines that a rewritten log would have, at most.
pub(super) fn live_lines(state: &State) -> u64 {
    let of_body = match &state.body {
        Kind::File(file) => file.extents.len() as u64,
        Kind::Directory(directory) => directory.lines,
        Kind::Symlink(target) => u64::from(text_lines(usize::from(target.len))) - 1,
        Kind::Special => 0,
    };
    OWN_RECORDS + of_body + state.xattrs.lines() + state.exempt_records() as u64
}

/// Lines that the log of a file would have inline; if they are more than these can be, any number above.
pub(super) fn lines_inline(state: &State) -> u32 {
    let Kind::File(file) = &state.body else { return u32::MAX };
    let most = INLINE_LINES as usize + 1;
    let extents = file.extents.joined().take(most).count();
    let own = own_records(state).iter().flatten().count();
    let exempt = state.exempt_records().min(most);
    (1 + extents + own + exempt) as u32 + state.xattrs.lines().min(most as u64) as u32
}

/// What INODE and MAP records do not say of a file, where all of them stay as long as the log.
fn own_records(state: &State) -> [Option<Body>; 3] {
    let is_mapped = state.file().is_ok_and(|file| !file.extents.is_empty());
    let mtime_ns = if is_mapped { state.mtime_ns } else { state.btime_ns };
    let atime_ns = state.atime_ns.load(Relaxed);
    let says_times = state.xattrs.len() == 0
        && (state.mtime_ns, state.ctime_ns) == (mtime_ns, mtime_ns)
        && (atime_ns, state.atime_set_ns) == (state.btime_ns, state.btime_ns);
    let says_links = state.links <= u32::from(u16::MAX);
    [
        (!is_mapped && state.size > 0).then(|| size_record(state)),
        (!says_links).then(|| links_record(state)),
        (!says_times).then(|| state.attr_record()),
    ]
}

fn size_record(state: &State) -> Body {
    let (class, size, time_ns) = (state.class, state.size, state.mtime_ns);
    Body::Size { class, truncate: false, size, time_ns }
}

fn links_record(state: &State) -> Body {
    Body::Links { links: state.links, parent: state.parent, ctime_ns: state.ctime_ns }
}

/// The fresh places of a log that is being rewritten: pages or, without any, those of the inline log.
pub(super) struct Fresh<'s, M: Medium, H: Host> {
    store: &'s Store<M, H>,
    /// What is written anew, where it is not all of the log.
    pub(super) behind: Option<&'s Behind>,
    /// The epoch of all records; 0 before there are any.
    pub(super) epoch: u32,
    ino: u64,
    nonce: u64,
    pub(super) pages: Vec<LogPage>,
    spare: Vec<u64>,
    pub(super) tail: Tail,
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

    /// What is said of the inode itself: one page holds all of it. Returns that page's ordinal.
    fn store_own(&mut self, tx: &mut Tx<'_, M, H>, state: &State) -> Result<u32> {
        let is_whole = !self.store.host.leaves_out(Rule::RewriteWhole);
        if self.pages.is_empty() {
            for body in own_records(state).iter().flatten().filter(|_| is_whole) {
                self.record(tx, body, &[])?;
            }
            return Ok(INLINE);
        }
        self.room(tx, OWN_RECORDS as u32 - 1)?;
        if let Kind::File(_) = &state.body {
            self.record(tx, &size_record(state), &[])?;
        }
        let (_, last) = self.record(tx, &links_record(state), &[])?;
        if is_whole {
            self.record(tx, &state.attr_record(), &[])?;
        }
        Ok(last)
    }

    /// Nothing more is said inline: the seals of what was there go.
    fn erase_rest(&self, tx: &mut Tx<'_, M, H>) {
        if self.pages.is_empty() && !self.store.host.leaves_out(Rule::InlineErased) {
            for line in 0..u64::from(self.tail.left) {
                tx.word(self.tail.at + line * LINE + SEAL_AT, 0);
            }
        }
    }
}

/// Thorough collection: round, fence; fresh pages, fence; head, fence; free (I12). The round's
/// fence can't wait for the next one: what a round frees, other threads take at once. Returns how
/// many pages the log had. Not inlined, as its larger parts: a kernel's stack is small.
#[inline(never)]
pub(super) fn rewrite<M: Medium, H: Host>(
    store: &Store<M, H>,
    slot: &Slot,
    state: &mut State,
    live: u64,
) -> Result<u64> {
    let longest = RECORD_LINES.max(state.xattrs.longest());
    rewrite_to_pages(store, slot, state, None, (live, longest))
}

/// The same of what comes behind the pages in which snapshots see something. Returns how many pages that had.
#[inline(never)]
pub(super) fn rewrite_behind<M: Medium, H: Host>(
    store: &Store<M, H>,
    slot: &Slot,
    state: &mut State,
    behind: &Behind,
) -> Result<u64> {
    let lines = (behind.lines, behind.longest);
    rewrite_to_pages(store, slot, state, Some(behind), lines)
}

fn rewrite_to_pages<M: Medium, H: Host>(
    store: &Store<M, H>,
    slot: &Slot,
    state: &mut State,
    behind: Option<&Behind>,
    (live, longest): (u64, u32),
) -> Result<u64> {
    let wanted = pages_for(store.geometry.log_lines, longest, live);
    let mut places = Vec::new();
    places.try_reserve_exact(live as usize)?;
    state.log.pages.try_reserve(wanted as usize)?;
    let spare = take_spare(store, wanted)?;
    if !store.host.leaves_out(Rule::RoundForThorough) {
        store.round()?;
    }
    let mut fresh = Fresh {
        store,
        behind,
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
    let said = match stored {
        Ok(said) => said,
        Err(error) => {
            give_pages(store, &fresh.pages);
            return Err(error);
        }
    };
    swap(store, slot, state, fresh, &places, &said)
}

/// The same to the places of the inline log, of a log whose pages alone count, all of whose records
/// are behind watermarks or in one transaction each. What else lies in these places is erased under the
/// same fence. Returns how many pages the log had.
#[inline(never)]
pub(super) fn rewrite_inline<M: Medium, H: Host>(
    store: &Store<M, H>,
    slot: &Slot,
    state: &mut State,
    live: u64,
) -> Result<u64> {
    let (ino, nonce) = (state.log.ino, state.log.nonce);
    let mut places = Vec::new();
    places.try_reserve_exact(live as usize)?;
    let tail = Tail {
        at: slot_at(ino) + LINE,
        left: INLINE_LINES,
        seed: store.seed.log(ino, nonce, slot_at(ino) / PAGE_BYTES, 0),
        last_seal: 0,
        ordinal: INLINE,
    };
    let (pages, spare) = (Vec::new(), Vec::new());
    let mut fresh = Fresh { store, behind: None, epoch: 0, ino, nonce, pages, spare, tail };
    let said = store_all(store, state, &mut fresh, &mut places)?;
    swap(store, slot, state, fresh, &places, &said)
}

pub(super) fn give_pages<M: Medium, H: Host>(store: &Store<M, H>, pages: &[LogPage]) {
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

/// Where some of what was written anew is.
#[derive(Default)]
pub(super) struct Said {
    /// Place of the INODE record, where there is one.
    pub(super) first: Option<(u64, u32)>,
    /// The RETIRE record, where there is one, and the ordinal of its page.
    pub(super) retired: Option<(Txid, u32)>,
    /// Ordinal of the page with the records of the inode itself.
    pub(super) own: u32,
    /// Ordinal of the last page that ends something which pages that stay say.
    pub(super) last_end: u32,
}

/// Stores the records of the state, and fences.
#[inline(never)]
fn store_all<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    fresh: &mut Fresh<'_, M, H>,
    places: &mut Vec<(u64, u32)>,
) -> Result<Said> {
    if let Kind::File(file) = &state.body {
        file.journal.flush(store, store.counters());
    }
    let inline_bytes = u64::from(INLINE_LINES) * LINE;
    let bytes = inline_bytes.max(fresh.spare.len() as u64 * (PAGE_BYTES + 8));
    let mut tx = store.begin(0, bytes)?;
    // (Asked again: from here on a snapshot waits.)
    let seen = store.log_seen_until(state.log.ino, state.log.born);
    if seen != fresh.behind.map_or(0, |behind| behind.seen) {
        tx.abandon();
        return Err(Error::NoSpace);
    }
    fresh.epoch = tx.epoch();
    let stored = match fresh.behind {
        None => store_records(store, state, fresh, places, &mut tx),
        Some(behind) => store_behind(store, state, behind, fresh, places, &mut tx),
    };
    match stored {
        Ok(said) => {
            tx.commit()?;
            Ok(said)
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
) -> Result<Said> {
    let (first, text) = first_record(store, state)?;
    let place = fresh.record(tx, &first, text.get(..).unwrap_or_default())?;
    match &state.body {
        Kind::File(file) => store_extents(state, file, fresh, places, tx)?,
        Kind::Directory(_) => store_entries(store, state, 0, fresh, places, tx)?,
        _ => {}
    }
    store_xattrs(store, state, 0, fresh, places, tx)?;
    store_exempt(state, fresh, places, tx)?;
    let own = fresh.store_own(tx, state)?;
    fresh.erase_rest(tx);
    Ok(Said { first: Some(place), own, ..Said::default() })
}

/// What the log says behind the pages that stay: what these say is true but where a record here says else.
#[inline(never)]
fn store_behind<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    behind: &Behind,
    fresh: &mut Fresh<'_, M, H>,
    places: &mut Vec<(u64, u32)>,
    tx: &mut Tx<'_, M, H>,
) -> Result<Said> {
    let mut said = Said::default();
    fresh.room(tx, 1)?;
    match &state.body {
        Kind::File(file) => {
            let (_, ordinal) = fresh.record(tx, &Body::Retire, &[])?;
            said.retired = Some((tx.txid(), ordinal));
            said.last_end = store_file_behind(state, file, behind, fresh, places, tx)?;
        }
        Kind::Directory(_) => {
            for &(txid, part) in &behind.dels {
                fresh.record(tx, &Body::Del { txid, part, time_ns: state.mtime_ns }, &[])?;
            }
            if !behind.dels.is_empty() {
                said.last_end = fresh.tail.ordinal;
            }
            store_entries(store, state, behind.first, fresh, places, tx)?;
        }
        _ => {}
    }
    if behind.whole {
        let (file_page, pages) = (0, FILE_PAGES);
        (_, said.last_end) = fresh.record(tx, &Body::Whole { file_page, pages }, &[])?;
    }
    for name in &behind.xdels {
        let xdel = Body::Xdel { name_len: name.len() as u8, time_ns: state.ctime_ns };
        (_, said.last_end) = fresh.record(tx, &xdel, name)?;
    }
    store_xattrs(store, state, behind.first, fresh, places, tx)?;
    said.own = fresh.store_own(tx, state)?;
    Ok(said)
}

/// The entries that pages from ordinal `first` on say.
fn store_entries<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    first: u32,
    fresh: &mut Fresh<'_, M, H>,
    places: &mut Vec<(u64, u32)>,
    tx: &mut Tx<'_, M, H>,
) -> Result<()> {
    let mut name = [0u8; NAME_MAX];
    for entry in state.directory()?.entries.iter().filter(|entry| entry.origin >= first) {
        let (mut parsed, len) = load_name(store, state, &entry, &mut name)?;
        let name = name.get(..len).unwrap_or_default();
        if let Body::Add { replaces, .. } = &mut parsed.body {
            *replaces = false;
        }
        places.push(fresh.record(tx, &parsed.body, name)?);
    }
    Ok(())
}

/// The attributes that pages from ordinal `first` on say.
fn store_xattrs<M: Medium, H: Host>(
    store: &Store<M, H>,
    state: &State,
    first: u32,
    fresh: &mut Fresh<'_, M, H>,
    places: &mut Vec<(u64, u32)>,
    tx: &mut Tx<'_, M, H>,
) -> Result<()> {
    for xattr in state.xattrs.iter().filter(|xattr| xattr.origin >= first) {
        let (body, text) = load_xattr(store, state, xattr)?;
        places.push(fresh.record(tx, &body, &text)?);
    }
    Ok(())
}

/// The holes of a file, and the pages that are mapped behind the pages of its log that stay. Returns the ordinal of the
/// last page that says of holes.
fn store_file_behind<M: Medium, H: Host>(
    state: &State,
    file: &File,
    behind: &Behind,
    fresh: &mut Fresh<'_, M, H>,
    places: &mut Vec<(u64, u32)>,
    tx: &mut Tx<'_, M, H>,
) -> Result<u32> {
    let mut last = INLINE;
    let (time_ns, size) = (state.mtime_ns, state.size);
    behind.for_each_hole(&file.extents, &mut |file_page, pages| {
        (_, last) = fresh.record(tx, &Body::Unmap { file_page, pages, time_ns, size }, &[])?;
        Ok(())
    })?;
    for extent in file.extents.iter().filter(|extent| extent.origin >= behind.first) {
        places.push(fresh.record(tx, &map_record(state, &extent)?, &[])?);
    }
    Ok(last)
}

fn map_record(state: &State, extent: &Extent) -> Result<Body> {
    Ok(Body::Map {
        class: extent.class,
        pages: u32::try_from(extent.pages).map_err(|_| Error::NotSupported)?,
        file_page: extent.file_page,
        page: extent.page,
        time_ns: state.mtime_ns,
        size: state.size,
    })
}

fn store_extents<M: Medium, H: Host>(
    state: &State,
    file: &File,
    fresh: &mut Fresh<'_, M, H>,
    places: &mut Vec<(u64, u32)>,
    tx: &mut Tx<'_, M, H>,
) -> Result<()> {
    for extent in file.extents.joined() {
        places.push(fresh.record(tx, &map_record(state, &extent)?, &[])?);
    }
    Ok(())
}

/// What is exempt stays so.
fn store_exempt<M: Medium, H: Host>(
    state: &State,
    fresh: &mut Fresh<'_, M, H>,
    places: &mut Vec<(u64, u32)>,
    tx: &mut Tx<'_, M, H>,
) -> Result<()> {
    let Kind::File(File { exempt: Some(exempt), .. }) = &state.body else { return Ok(()) };
    for Extent { file_page, pages, .. } in exempt.pages.joined() {
        places.push(fresh.record(tx, &Body::Exempt { file_page, pages }, &[])?);
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
