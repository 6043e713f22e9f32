//! What a log says behind the pages in which snapshots see something (PROTOCOL I12).
//!
//! These pages stay as they are: a snapshot is what they say up to its epoch. What comes behind them is all
//! younger than the latest snapshot. Guarantees: the records found here, replayed behind the pages that stay, make
//! what the inode is; what they end has ended for the same snapshots as before, because none lies between the
//! epochs in which it did and theirs.

use alloc::vec::Vec;

use hashbrown::HashMap;
use lode_pmem::Medium;

use super::load::load_pages;
use super::mix::Mix;
use super::names::line_again;
use super::rewrite::OWN_RECORDS;
use super::state::{Body as Kind, State};
use super::xattrs::{find_xattr, load_xattr_name};
use crate::index::Extents;
use crate::layout::{Body, LINE, Parsed, Txid};
use crate::log::{INLINE, Log, LogPage};
use crate::store::Store;
use crate::{Error, FILE_MAX, Host, PAGE_BYTES, Result};

/// Pages that a file can have.
pub(super) const FILE_PAGES: u64 = FILE_MAX / PAGE_BYTES;

/// What the pages that stay say has to be asked where something that they may say was ended. That takes as long
/// as there are lines in them: so there are as many behind them first, or so many, or this part of them.
const LINES_ASKED: u64 = 4096;
const LINES_PART: u64 = 16;

/// The records that say what a log says behind the pages that stay.
pub(super) struct Behind {
    /// The latest snapshot that sees the log.
    pub(super) seen: u32,
    /// Pages of the log that stay, its first ones.
    pub(super) kept: usize,
    /// Ordinal of the first page that does not.
    pub(super) first: u32,
    /// Pages of the file among which some have been given up.
    unmapped: (u64, u64),
    /// Something of the file was exempt, and nothing is any more.
    pub(super) whole: bool,
    /// The oldest page, by ordinal, of which a record was ended or replaced behind the pages that stay.
    pub(super) ended_from: u32,
    /// Entries that pages that stay say, or said, and that have ended.
    pub(super) dels: Vec<(Txid, u16)>,
    /// Names of attributes of which the same is true.
    pub(super) xdels: Vec<Vec<u8>>,
    /// Lines of all records.
    pub(super) lines: u64,
    /// Lines of the longest record.
    pub(super) longest: u32,
}

/// Pages of a log, its first ones, in which a snapshot of this epoch or an older one sees something.
pub(super) fn pages_seen(log: &Log, epoch: u32) -> usize {
    log.pages.partition_point(|page| page.low != 0 && page.low <= epoch)
}

impl Behind {
    /// What the log says behind the pages that the latest snapshot, that of epoch `seen`, sees; `None` where
    /// that is not worth writing anew.
    #[inline(never)]
    pub(super) fn of<M: Medium, H: Host>(
        store: &Store<M, H>,
        state: &State,
        seen: u32,
    ) -> Result<Option<Self>> {
        let log = &state.log;
        if state.exempt_records() > 0 {
            // (That ends with the file's last map.)
            return Ok(None);
        }
        let kept = pages_seen(log, seen);
        let Some(first) = log.pages.get(kept).map(|page| page.ordinal) else { return Ok(None) };
        let ended = |page: &LogPage| page.ended_from.min(page.replaced_from);
        let ended_from = log.pages.iter().skip(kept).map(ended).min();
        let mut behind = Self {
            seen,
            kept,
            first,
            unmapped: (0, 0),
            whole: false,
            ended_from: ended_from.unwrap_or(INLINE),
            dels: Vec::new(),
            xdels: Vec::new(),
            lines: 0,
            longest: 1,
        };
        behind.count(store, state)?;
        let page_lines = u64::from(log.page_lines());
        let kept_lines = kept as u64 * page_lines;
        let lines = (log.pages.len() - kept) as u64 * page_lines - u64::from(log.tail.left);
        if behind.lines * 2 >= lines {
            return Ok(None);
        }
        let asks = behind.read(store, log)?;
        behind.lines += u64::from(behind.whole) + behind.dels.len() as u64;
        if let Kind::File(file) = &state.body {
            let mut holes = 0;
            behind.for_each_hole(&file.extents, &mut |_, _| {
                holes += 1;
                Ok(())
            })?;
            behind.lines += holes;
        }
        if asks {
            let enough = kept_lines.min(LINES_ASKED.max(kept_lines / LINES_PART));
            if lines < enough && !store.is_short() {
                return Ok(None);
            }
            behind.ask_kept(store, state)?;
        }
        Ok((behind.lines * 2 < lines).then_some(behind))
    }

    /// Counts the lines of what is said behind the pages that stay and is true.
    fn count<M: Medium, H: Host>(&mut self, store: &Store<M, H>, state: &State) -> Result<()> {
        self.lines = OWN_RECORDS;
        let first = self.first;
        match &state.body {
            Kind::File(file) => {
                let extents = file.extents.iter().filter(|extent| extent.origin >= first);
                self.lines += extents.count() as u64;
            }
            Kind::Directory(directory) => {
                for entry in directory.entries.iter().filter(|entry| entry.origin >= first) {
                    let seed = state.log.seed_of(store, entry.origin);
                    let what = "entry of no log page";
                    let ino = state.log.ino;
                    let seed = seed.ok_or(Error::corrupt_inode(what, entry.at, ino))?;
                    let add = line_again(store, &seed, entry.at, ino)?.body;
                    self.add_lines(add.lines());
                }
            }
            _ => {}
        }
        for xattr in state.xattrs.iter().filter(|xattr| xattr.origin >= first) {
            self.add_lines(u32::from(xattr.lines));
        }
        Ok(())
    }

    fn add_lines(&mut self, lines: u32) {
        self.lines += u64::from(lines);
        self.longest = self.longest.max(lines);
    }

    /// Reads what is said behind the pages that stay. Says whether something was ended that these may say, and
    /// no record says what.
    fn read<M: Medium, H: Host>(&mut self, store: &Store<M, H>, log: &Log) -> Result<bool> {
        let mut adds = HashMap::with_hasher(Mix::default());
        let mut asks = false;
        for page in log.pages.iter().skip(self.kept) {
            let seed = store.log_seed(log.ino, log.nonce, page.page, page.nonce);
            let is_last = page.ordinal == log.tail.ordinal;
            let lines = log.page_lines() - if is_last { log.tail.left } else { 0 };
            for line in 1..=u64::from(lines) {
                let at = page.page * PAGE_BYTES + line * LINE;
                let Parsed { header, body, .. } = line_again(store, &seed, at, log.ino)?;
                match body {
                    Body::Unmap { file_page, pages, .. } => {
                        self.unmap(file_page, file_page + pages);
                    }
                    Body::Size { truncate: true, size, .. } => {
                        self.unmap(size.div_ceil(PAGE_BYTES), FILE_PAGES);
                    }
                    Body::Add { replaces, .. } => {
                        adds.try_reserve(1)?;
                        adds.insert((header.txid, header.part), ());
                        asks |= replaces;
                    }
                    Body::Del { txid, part, .. } if adds.remove(&(txid, part)).is_none() => {
                        self.dels.try_reserve(1)?;
                        self.dels.push((txid, part));
                    }
                    Body::Xdel { .. } => asks = true,
                    Body::Exempt { .. } | Body::Whole { .. } => self.whole = true,
                    _ => {}
                }
            }
        }
        Ok(asks)
    }

    fn unmap(&mut self, from: u64, to: u64) {
        let (low, high) = self.unmapped;
        self.unmapped = if low == high { (from, to) } else { (low.min(from), high.max(to)) };
    }

    /// Shows the first page and the number of pages of each hole of the file where pages that stay may say
    /// that something is mapped.
    pub(super) fn for_each_hole(
        &self,
        extents: &Extents,
        each: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let (from, to) = self.unmapped;
        let mut hole = 0;
        for (next, end) in
            extents.iter().map(|it| (it.file_page, it.end())).chain([(FILE_PAGES, FILE_PAGES)])
        {
            if hole < next && hole < to && from < next {
                each(hole, next - hole)?;
            }
            hole = end;
        }
        Ok(())
    }

    /// Finds what the pages that stay say that is true no more, and that nothing else ends.
    #[inline(never)]
    fn ask_kept<M: Medium, H: Host>(&mut self, store: &Store<M, H>, state: &State) -> Result<()> {
        let end = state.log.pages.get(self.kept).map_or(0, |page| page.page);
        let replay = load_pages(store, state.log.ino, end)?;
        let Some(then) = replay.so_far() else { return Ok(()) };
        self.lines -= self.dels.len() as u64;
        self.dels.clear();
        if let (Kind::Directory(then), Kind::Directory(now)) = (&then.body, &state.body) {
            for (add, cookie) in replay.adds() {
                let entry = then.entries.get(cookie);
                if entry.is_some_and(|entry| !now.entries.has(&entry)) {
                    self.dels.try_reserve(1)?;
                    self.dels.push(add);
                }
            }
            self.lines += self.dels.len() as u64;
        }
        for xattr in then.xattrs.iter() {
            if state.xattrs.iter().any(|now| now.at == xattr.at) {
                continue;
            }
            let name = load_xattr_name(store, then, xattr)?;
            if find_xattr(store, state, &name)?.is_none() {
                let xdel = Body::Xdel { name_len: name.len() as u8, time_ns: 0 };
                self.add_lines(xdel.lines());
                self.xdels.try_reserve(1)?;
                self.xdels.push(name);
            }
        }
        Ok(())
    }
}
