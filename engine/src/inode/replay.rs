//! Replaying a log, record by record, into the state of an inode.

use alloc::boxed::Box;
use alloc::vec::Vec;

use hashbrown::HashMap;
use lode_pmem::Medium;

use super::file::File;
use super::journal::JournalPiece;
use super::mix::Mix;
use super::past::Past;
use super::state::{Body as Kind, Carrier, Directory, State, Target};
use crate::index::{Entry, Extent, Xattr, hash};
use crate::layout::{Body, Header, LogSeed, Txid, slot_at, text_lines};
use crate::log::{Found, Log, LogPage, Tail};
use crate::space::{Ended, Run};
use crate::store::Store;
use crate::{Error, Host, Ino, PAGE_BYTES, PageClass, Result, Rule, mode};

/// A replay that has come to some record.
pub(crate) struct Replay<'s, M: Medium, H: Host> {
    store: &'s Store<M, H>,
    ino: Ino,
    nonce: u64,
    /// Entries of directories are wanted, not only pages.
    entries: bool,
    pages: Vec<LogPage>,
    state: Option<Box<State>>,
    text: Option<Text>,
    name: Vec<u8>,
    adds: HashMap<(Txid, u16), (u64, u8), Mix>,
    /// The epoch in which the inode died, where it did.
    died: Option<u32>,
    /// What has ended and is seen by snapshots, and the epoch of its end.
    pub(crate) seen: Vec<(Ended, u32)>,
    /// Pages that files ended in since they became shorter, where somebody asks: snapshots see what is behind the end.
    pub(crate) cuts: Option<Vec<(Ended, u32)>>,
    /// Names and values of which the same is true, where somebody asks.
    pub(crate) past: Option<Box<Past>>,
}

const OUTSIDE: &str = "record of pages outside the pool";

/// A record whose text goes on in the next lines.
#[derive(Clone, Copy)]
struct Text {
    found: Found,
    missing: usize,
}

impl<'s, M: Medium, H: Host> Replay<'s, M, H> {
    /// A replay of the log of this life of an inode.
    pub(crate) fn new(store: &'s Store<M, H>, ino: Ino, nonce: u64, entries: bool) -> Self {
        Self {
            store,
            ino,
            nonce,
            entries,
            pages: Vec::new(),
            state: None,
            text: None,
            name: Vec::new(),
            adds: HashMap::with_hasher(Mix::default()),
            died: None,
            seen: Vec::new(),
            cuts: None,
            past: None,
        }
    }

    /// The host of the pool.
    pub(super) fn host(&self) -> &'s H {
        &self.store.host
    }

    /// The inode died in this epoch.
    pub(crate) fn set_died(&mut self, died: Option<u32>) {
        self.died = died;
    }

    /// The log goes on in this page.
    pub(crate) fn page(&mut self, page: u64, nonce: u64, ordinal: u32) -> Result<()> {
        let page = LogPage::new(page, nonce, ordinal, 0);
        let pages = match &mut self.state {
            Some(state) => &mut state.log.pages,
            None => &mut self.pages,
        };
        // Most logs have one page for as long as they are in memory.
        if pages.is_empty() {
            pages.try_reserve_exact(1)?;
        }
        pages.try_reserve(1)?;
        pages.push(page);
        Ok(())
    }

    /// The next record.
    pub(crate) fn record(&mut self, found: &Found) -> Result<()> {
        if let Some(text) = self.text {
            return self.text(text, found);
        }
        let header = found.parsed.header;
        if let Some(state) = &mut self.state
            && found.parsed.body.has_epoch()
        {
            state.log.note_epoch(found.parsed.epoch);
        }
        match found.parsed.body {
            Body::Inode { .. } => self.first(found),
            // Deaths stand apart: a walk shows none but where that rule is left out.
            Body::Pad | Body::Death { .. } => Ok(()),
            Body::Text { .. } => Err(self.damage("text of no record", found.at)),
            Body::Add { name_len, head, .. } => {
                self.state(found.at)?;
                self.begin_text(found, usize::from(name_len), &head)
            }
            Body::Xattr { .. } | Body::Xdel { .. } => {
                self.state(found.at)?;
                self.begin_text(found, found.parsed.body.text_bytes(), &[])
            }
            Body::Del { txid, part, time_ns, .. } => self.del(found, (txid, part), time_ns),
            Body::Attr { mode, uid, gid, mtime_ns, ctime_ns, atime_ns, .. } => {
                let times = (mtime_ns, ctime_ns, atime_ns);
                let state = self.state(found.at)?;
                state.set_attr(found.ordinal, u32::from(mode), (uid, gid), times);
                Ok(())
            }
            Body::Links { links, parent, ctime_ns, .. } => {
                let state = self.state(found.at)?;
                state.set_links(found.ordinal, links, parent, ctime_ns);
                Ok(())
            }
            _ => self.data(found, header),
        }
    }

    /// The record that the log ends in the middle of: a transaction was cut off there, or
    /// its lines are damaged.
    pub(crate) fn cut(&self) -> Option<Header> {
        self.text.map(|text| text.found.parsed.header)
    }

    /// What has been found so far; `None` before there is a record.
    pub(super) fn so_far(&self) -> Option<&State> {
        self.state.as_deref()
    }

    /// The ADDs of all entries, and the cookies of these.
    pub(super) fn adds(&self) -> impl Iterator<Item = ((Txid, u16), u64)> + '_ {
        self.adds.iter().map(|(add, (cookie, _))| (*add, *cookie))
    }

    /// What has been found, at the end of the log; `None` if there was no record.
    pub(crate) fn finish(&mut self, tail: Tail, inline_dead: bool) -> Result<Option<Box<State>>> {
        let Some(mut state) = self.state.take() else {
            return Ok(None);
        };
        let pages = core::mem::take(&mut state.log.pages);
        let (born, epoch) = (state.log.born, state.log.epoch);
        let life = (self.ino, self.nonce);
        state.log = Log::at_tail(&self.store.geometry, life, inline_dead, pages, tail);
        (state.log.born, state.log.epoch) = (born, epoch);
        self.check_journal(&state)?;
        self.check_pages(&state)?;
        Ok(Some(state))
    }

    #[inline(never)]
    fn first(&mut self, found: &Found) -> Result<()> {
        let Body::Inode { mode, links, uid, gid, time_ns, extra, text, .. } = found.parsed.body
        else {
            return Err(self.damage("log without an INODE record", found.at));
        };
        if self.state.is_some() {
            return Err(self.damage("second INODE record", found.at));
        }
        if text_lines(usize::from(text)) > self.store.geometry.log_lines {
            return Err(self.damage("target of an impossible length", found.at));
        }
        let kind = u32::from(mode) & mode::TYPE;
        let word = u64::from_le_bytes(extra.first_chunk::<8>().copied().unwrap_or_default());
        let (major, minor) = (word as u32, (word >> 32) as u32);
        let target = Target { at: found.at, ordinal: found.ordinal, len: text };
        let body = match kind {
            mode::FILE => Kind::File(File::default()),
            mode::DIRECTORY => Kind::Directory(Directory::default()),
            mode::SYMLINK if text == 0 => Kind::File(File::default()),
            mode::SYMLINK => Kind::Symlink(target),
            mode::CHARACTER | mode::BLOCK | mode::FIFO | mode::SOCKET => Kind::Special,
            _ => return Err(self.damage("inode of an unknown type", found.at)),
        };
        let tail = Tail {
            at: found.at,
            left: 0,
            seed: LogSeed::default(),
            last_seal: 0,
            ordinal: found.ordinal,
        };
        let pages = core::mem::take(&mut self.pages);
        let log = Log::at_tail(&self.store.geometry, (self.ino, self.nonce), false, pages, tail);
        let mut state = Box::new(State::new(
            log,
            u32::from(mode),
            u32::from(links),
            (uid, gid),
            time_ns,
            body,
            found.ordinal,
        ));
        match kind {
            mode::DIRECTORY => state.parent = word,
            mode::FILE => {
                let unclipped = self.store.host.leaves_out(Rule::JournalClipped);
                state.file_mut()?.journal.unclipped = unclipped;
                let class = PageClass::from_number(word as u8);
                state.class = class.ok_or(self.damage("unknown page class", found.at))?;
            }
            mode::SYMLINK => state.size = u64::from(text),
            _ => state.rdev = u64::from(major) << 32 | u64::from(minor),
        }
        state.log.note_epoch(found.parsed.epoch);
        state.died = self.died.unwrap_or(state.died);
        self.state = Some(state);
        if kind == mode::SYMLINK && text_lines(usize::from(text)) > 1 {
            return self.begin_text(found, usize::from(text), &extra);
        }
        Ok(())
    }

    fn begin_text(&mut self, found: &Found, len: usize, head: &[u8]) -> Result<()> {
        self.name.clear();
        self.name.try_reserve(len)?;
        let in_head = len.min(head.len());
        self.name.extend_from_slice(head.get(..in_head).unwrap_or_default());
        let text = Text { found: *found, missing: len - in_head };
        if text.missing == 0 {
            return self.end_text(text);
        }
        self.text = Some(text);
        Ok(())
    }

    fn text(&mut self, mut text: Text, found: &Found) -> Result<()> {
        let Body::Text { len, bytes } = found.parsed.body else {
            return Err(self.damage("text of a record is missing", found.at));
        };
        let same = found.parsed.header.txid == text.found.parsed.header.txid;
        let len = usize::from(len);
        if !same || found.ordinal != text.found.ordinal || len > text.missing {
            return Err(self.damage("text of another record", found.at));
        }
        self.name.try_reserve(len)?;
        self.name.extend_from_slice(bytes.get(..len).unwrap_or_default());
        text.missing -= len;
        if text.missing == 0 {
            self.text = None;
            return self.end_text(text);
        }
        self.text = Some(text);
        Ok(())
    }

    #[inline(never)]
    fn end_text(&mut self, text: Text) -> Result<()> {
        let Found { at, ordinal, parsed } = text.found;
        let Body::Add { time_ns, ino, kind, name_len, replaces, .. } = parsed.body else {
            return self.xattr(&text.found);
        };
        if super::valid_name(&self.store.geometry, &self.name).is_err() {
            return Err(self.damage("entry with an impossible name", at));
        }
        if !self.entries {
            return Ok(());
        }
        let hash = hash(self.store.secret, &self.name);
        if let Some((old, add)) = self.same_name(hash)? {
            if !replaces {
                return Err(self.damage("two entries with one name", at));
            }
            self.adds.remove(&(add.txid, add.part));
            self.end_name((add.txid, add.part))?;
            let lines = text_lines(usize::from(name_len));
            self.state(at)?.remove_entry(old.cookie, lines, ordinal, time_ns);
        }
        self.adds.try_reserve(1)?;
        let lines = text_lines(usize::from(name_len));
        let state = self.state(at)?;
        let cookie = state.add_entry(hash, (ino, kind), (at, ordinal), lines, time_ns)?;
        self.adds.insert((parsed.header.txid, parsed.header.part), (cookie, lines as u8));
        self.past.as_mut().map_or(Ok(()), |past| past.begin(&text.found))
    }

    /// XATTR and XDEL, whose text has just been read.
    #[inline(never)]
    fn xattr(&mut self, found: &Found) -> Result<()> {
        let (store, at) = (self.store, found.at);
        let impossible = self.damage("extended attribute that can not be", at);
        let (name_len, time_ns) = match found.parsed.body {
            Body::Xattr { name_len, time_ns, .. } | Body::Xdel { name_len, time_ns, .. } => {
                (usize::from(name_len), time_ns)
            }
            _ => return Ok(()),
        };
        let (name, text) = self.name.split_at_checked(name_len).ok_or(impossible)?;
        if super::valid_xattr_name(&store.geometry, name).is_err() {
            return Err(impossible);
        }
        let Some(state) = &mut self.state else { return Err(impossible) };
        let before = super::find_xattr(store, state, name)?;
        let (died, seen) = (state.ends_in(), &mut self.seen);
        if let (Some(past), Some(ended)) = (&mut self.past, before) {
            past.end_value(store, ended, died)?;
        }
        let before = before.map(|xattr| xattr.at);
        let mut noted = Ok(());
        let freed = &mut |ended| note_seen(store, seen, (ended, died), &mut noted);
        let Body::Xattr { runs, value_len, crc, .. } = found.parsed.body else {
            state.remove_xattr(found.ordinal, before, time_ns, freed);
            return noted;
        };
        let runs = match runs {
            0 => Vec::new(),
            _ => super::xattrs::parse_runs(&store.geometry, text, value_len)?.ok_or(impossible)?,
        };
        let xattr = Xattr {
            hash: hash(store.secret, name),
            at,
            origin: found.ordinal,
            name_len: name_len as u8,
            lines: found.parsed.body.lines() as u8,
            value_len,
            crc,
            epoch: found.parsed.epoch,
            runs,
        };
        state.xattrs.reserve(1)?;
        state.set_xattr(xattr, before, time_ns, freed);
        noted
    }

    /// The entry that has the name just read, and the place of its ADD in its transaction.
    #[inline(never)]
    fn same_name(&self, hash: u64) -> Result<Option<(Entry, Header)>> {
        let Some(state) = &self.state else { return Ok(None) };
        let (found, _) = super::names::find_among(self.store, state, hash, &self.name)?;
        Ok(found.map(|(entry, add)| (entry, add.header)))
    }

    fn del(&mut self, found: &Found, add: (Txid, u16), time_ns: i64) -> Result<()> {
        if !self.entries {
            return Ok(());
        }
        let ended = self.adds.remove(&add);
        let state = self.state(found.at)?;
        let Some((cookie, lines)) = ended else {
            // Its ADD was collected with its page: the DEL means nothing any more (I14).
            state.touch(found.ordinal, time_ns);
            return Ok(());
        };
        state.remove_entry(cookie, u32::from(lines), found.ordinal, time_ns);
        self.end_name(add)
    }

    /// The name of this record has ended.
    fn end_name(&mut self, add: (Txid, u16)) -> Result<()> {
        let (Some(past), Some(state)) = (&mut self.past, &self.state) else { return Ok(()) };
        past.end(self.store, add, state.ends_in())
    }

    /// A record of data, which may end what snapshots see: pages of the file, or of its journal.
    #[inline(never)]
    fn data(&mut self, found: &Found, header: Header) -> Result<()> {
        if self.store.snapshots.latest() == 0 {
            return self.apply(found, header);
        }
        let mut before = Vec::new();
        let pages_of = |replay: &Self, pages: &mut Vec<Ended>| match replay.state.as_deref() {
            Some(State { body: Kind::File(file), .. }) => file.journal.wanted_pages(pages),
            _ => Ok(()),
        };
        pages_of(self, &mut before)?;
        self.apply(found, header)?;
        let mut after = Vec::new();
        pages_of(self, &mut after)?;
        let died = self.state(found.at)?.ends_in();
        let mut noted = Ok(());
        for ended in before.into_iter().filter(|ended| !after.contains(ended)) {
            note_seen(self.store, &mut self.seen, (ended, died), &mut noted);
        }
        noted
    }

    #[inline(never)]
    fn apply(&mut self, found: &Found, header: Header) -> Result<()> {
        let store = self.store;
        let geometry = store.geometry;
        let retires = !self.store.host.leaves_out(Rule::JournalRetired);
        let mapped_or_not = self.store.host.leaves_out(Rule::JournalMapped);
        let at = found.at;
        let outside = self.damage(OUTSIDE, at);
        let (mut seen, mut cuts) = (core::mem::take(&mut self.seen), self.cuts.take());
        let mut noted = Ok(());
        let state = self.state(at)?;
        let before = state.size;
        state.file_mut().map_err(|_| Error::corrupt_inode("data of no file", at, 0))?;
        let ordinal = found.ordinal;
        let frees = store.host.leaves_out(Rule::ReplayFreesNothing);
        let died = state.ends_in();
        let none = &mut |ended: Ended| {
            if frees {
                store.give(ended.run);
            }
            note_seen(store, &mut seen, (ended, died), &mut noted);
        };
        match found.parsed.body {
            Body::Map { class, pages, file_page, page, time_ns, size } => {
                let pages = u64::from(pages);
                if !geometry.has(page, pages) {
                    return Err(outside);
                }
                if retires && !mapped_or_not {
                    state.retire(header.txid, ordinal);
                }
                let extent = Extent {
                    file_page,
                    page,
                    pages,
                    class,
                    epoch: found.parsed.epoch,
                    origin: ordinal,
                };
                state.map(extent, size, time_ns, none);
            }
            Body::Size { class, truncate, size, time_ns, .. } => {
                state.class = class;
                state.set_size(ordinal, truncate, size, time_ns, none);
            }
            Body::Unmap { file_page, pages, time_ns, size, .. } => {
                state.unmap(ordinal, (file_page, pages), size, time_ns, none);
            }
            Body::Journal { len, file_offset, journal_at, time_ns, home_at, .. } => {
                let len = u64::from(len);
                let has = |at: u64| {
                    let last = at.saturating_add(len - 1);
                    let pages = last / PAGE_BYTES - at / PAGE_BYTES + 1;
                    geometry.has(at / PAGE_BYTES, pages)
                };
                if !has(journal_at) || !has(home_at) {
                    return Err(outside);
                }
                if retires {
                    state.retire(header.txid, ordinal);
                }
                state.journalled(ordinal, time_ns);
                let born = found.parsed.epoch;
                let piece =
                    JournalPiece { file_offset, len, journal_at, home_at, origin: ordinal, born };
                let file = state.file_mut()?;
                file.journal.reserve(1, 0)?;
                file.journal.note(header.txid, piece);
            }
            Body::Exempt { file_page, pages } => state.exempt(ordinal, (file_page, pages)),
            Body::Whole { file_page, pages } => state.whole(ordinal, (file_page, pages)),
            Body::Retire if !retires => {}
            Body::Retire => state.retire(header.txid, ordinal),
            _ => return Err(self.damage("record out of place", at)),
        }
        if let (Some(cuts), Some(ended)) = (&mut cuts, state.cut_off(before)) {
            note_seen(store, cuts, (ended, died), &mut noted);
        }
        (self.seen, self.cuts) = (seen, cuts);
        noted
    }

    /// What waits in the journal must lie where the file is mapped; its pages belong to the file.
    pub(super) fn check_journal(&self, state: &State) -> Result<()> {
        let Kind::File(file) = &state.body else { return Ok(()) };
        if self.store.host.leaves_out(Rule::JournalMapped) {
            return Ok(());
        }
        let strips = self.store.geometry.strips;
        for piece in file.journal.pending().iter().filter(|piece| self.is_wanted(state, piece.born))
        {
            let is_of_strips = |at: u64| {
                let page = at / PAGE_BYTES;
                at.is_multiple_of(strips.bytes())
                    && page == (at + piece.len - 1) / PAGE_BYTES
                    && self.store.geometry.holds(page, 1)
            };
            if strips.are_kept() && !(is_of_strips(piece.journal_at) && is_of_strips(piece.home_at))
            {
                let what = "journalled overwrite that is not of strips";
                return Err(self.damage(what, piece.journal_at));
            }
            let mut done = 0;
            while done < piece.len {
                let offset = piece.file_offset + done;
                let home = piece.home_at + done;
                let extent = file.extents.find(offset / PAGE_BYTES);
                let mapped = extent.map(|extent| {
                    let within = offset - extent.file_page * PAGE_BYTES;
                    (extent.page * PAGE_BYTES + within, extent.pages * PAGE_BYTES - within)
                });
                match mapped {
                    Some((place, left)) if place == home => done += left,
                    _ => return Err(self.damage("journalled overwrite of a page elsewhere", home)),
                }
            }
        }
        Ok(())
    }

    /// Whether what is there at last, and was born in this epoch, is anything to anybody: of a dead inode only what
    /// snapshots see is.
    fn is_wanted(&self, state: &State, born: u32) -> bool {
        !state.is_dead() || self.store.snapshots.sees(born, state.died)
    }

    /// What there is at last lies where it may. (What a record said that was stored at another level of
    /// the pool may be the place of a twin now.)
    fn check_pages(&self, state: &State) -> Result<()> {
        let geometry = &self.store.geometry;
        if geometry.twin_pages == 0 {
            return Ok(());
        }
        let mut outside = None;
        state.for_each_data(&mut |Ended { run, born }| {
            if !geometry.holds(run.page, run.pages) && self.is_wanted(state, born) {
                outside = Some(run);
            }
        });
        outside.map_or(Ok(()), |run| Err(self.damage(OUTSIDE, run.page * PAGE_BYTES)))
    }

    fn state(&mut self, at: u64) -> Result<&mut State> {
        let ino = self.ino;
        self.state.as_deref_mut().ok_or(Error::corrupt_inode(
            "log without an INODE record",
            at,
            ino,
        ))
    }

    fn damage(&self, what: &'static str, at: u64) -> Error {
        Error::corrupt_inode(what, at, self.ino)
    }
}

/// Notes what has ended, if a snapshot sees it.
fn note_seen<M: Medium, H: Host>(
    store: &Store<M, H>,
    seen: &mut Vec<(Ended, u32)>,
    (ended, died): (Ended, u32),
    noted: &mut Result<()>,
) {
    if !store.snapshots.sees(ended.born, died) {
        return;
    }
    match seen.try_reserve(1) {
        Ok(()) => seen.push((ended, died)),
        Err(error) => *noted = Err(error.into()),
    }
}

impl State {
    /// The page that a file ends in, if it had more bytes `before`: it stays, and what was behind the end has ended.
    fn cut_off(&self, before: u64) -> Option<Ended> {
        if self.size >= before || self.size.is_multiple_of(PAGE_BYTES) {
            return None;
        }
        let page = self.size / PAGE_BYTES;
        let extent = self.file().ok()?.extents.find(page)?;
        let run = Run { page: extent.page + (page - extent.file_page), pages: 1 };
        Some(Ended { run, born: extent.epoch })
    }

    /// A record of transaction `txid` in page `ordinal` follows: it retires journalled
    /// overwrites of earlier transactions.
    pub(crate) fn retire(&mut self, txid: Txid, ordinal: u32) {
        let Kind::File(file) = &mut self.body else { return };
        let log = &mut self.log;
        // Any record that retires does so for all that are before it.
        if file.journal.retire(txid, &mut |origin| log.outlive(origin)) {
            self.carry(Carrier::Horizon, ordinal);
        }
    }
}

const _: () = assert!(slot_at(1) == 512);
