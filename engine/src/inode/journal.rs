//! Journalled overwrites of a file (PROTOCOL I16).
//!
//! The new bytes are streamed to a journal place and fenced; the record is fenced;
//! only then are they stored in their home, through the cache; much of it is streamed there, and fenced at once. They count as home
//! when a later transaction of this file has flushed them before its own data fence:
//! its record then retires all earlier JOURNAL records. Until that, whoever loads the
//! file stores them again. So at most one transaction's overwrites wait in each log.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lode_pmem::{Counters, MediaError, Medium};

use crate::gauges::list_bytes;
use crate::layout::{LINE, Txid};
use crate::space::{Ended, Run};
use crate::store::Store;
use crate::{Host, Ino, PAGE_BYTES, Result};

/// An overwrite that may not be home yet. All offsets in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JournalPiece {
    /// Where in the file.
    pub(crate) file_offset: u64,
    /// How much.
    pub(crate) len: u64,
    /// Where the new bytes are.
    pub(crate) journal_at: u64,
    /// Where they go.
    pub(crate) home_at: u64,
    /// Ordinal of the log page with its record.
    pub(crate) origin: u32,
    /// Epoch of its record.
    pub(crate) born: u32,
}

/// A file's journal.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// The file's journal page for small overwrites, 0 for none.
    pub(crate) page: u64,
    /// Which half of it the next overwrite uses.
    pub(crate) second_half: bool,
    /// Epoch of the last record of bytes in it.
    page_born: u32,
    /// Bytes that a truncation took away are still wanted (a rule left out).
    pub(crate) unclipped: bool,
    /// Most files are never overwritten, and take no memory for that.
    waits: Option<Box<Waits>>,
}

/// What has been journalled.
#[derive(Debug, Default)]
struct Waits {
    /// Overwrites of the last journalling transaction that are still wanted.
    pending: Vec<JournalPiece>,
    /// Records of that transaction, by the ordinal of their log page: to be retired.
    records: Vec<u32>,
    /// That transaction.
    txid: Txid,
    /// They are durable in their homes, and only their records wait.
    home: bool,
    /// Pages of larger overwrites, and those that snapshots see, given up when these are retired.
    runs: Vec<Ended>,
}

impl Journal {
    /// Bytes of memory that it takes, besides `Self`.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.waits.as_deref().map_or(0, |waits| {
            size_of::<Waits>() as u64
                + list_bytes::<JournalPiece>(waits.pending.capacity())
                + list_bytes::<u32>(waits.records.capacity())
                + list_bytes::<Ended>(waits.runs.capacity())
        })
    }

    /// Overwrites that are still wanted.
    pub(crate) fn pending(&self) -> &[JournalPiece] {
        self.waits.as_deref().map_or(&[], |waits| &waits.pending)
    }

    #[inline(never)]
    fn waits_mut(&mut self) -> &mut Waits {
        self.waits.get_or_insert_default()
    }

    fn runs(&self) -> &[Ended] {
        self.waits.as_deref().map_or(&[], |waits| &waits.runs)
    }

    /// Whether a record waits to be retired.
    pub(crate) fn is_pending(&self) -> bool {
        self.waits.as_ref().is_some_and(|waits| !waits.records.is_empty())
    }

    /// Forgets overwrites of file bytes `from .. to`.
    pub(crate) fn clip(&mut self, from: u64, to: u64) {
        if self.unclipped {
            return;
        }
        let Some(Waits { pending, .. }) = self.waits.as_deref_mut() else { return };
        let mut at = 0;
        while let Some(piece) = pending.get(at).copied() {
            let end = piece.file_offset + piece.len;
            if end <= from || piece.file_offset >= to {
                at += 1;
                continue;
            }
            pending.swap_remove(at);
            if piece.file_offset < from {
                pending.push(JournalPiece { len: from - piece.file_offset, ..piece });
            }
            if end > to {
                let cut = to - piece.file_offset;
                pending.push(JournalPiece {
                    file_offset: to,
                    len: end - to,
                    journal_at: piece.journal_at + cut,
                    home_at: piece.home_at + cut,
                    ..piece
                });
            }
        }
    }

    /// Makes room for `count` more pieces, for those that clipping may split off, and for `runs`.
    pub(crate) fn reserve(&mut self, count: usize, runs: usize) -> Result<()> {
        if count == 0 && self.pending().is_empty() {
            return Ok(());
        }
        let waits = self.waits_mut();
        waits.pending.try_reserve(count + 2)?;
        waits.records.try_reserve(count)?;
        waits.runs.try_reserve(runs)?;
        Ok(())
    }

    /// Notes the overwrites of transaction `txid`; earlier ones have been retired. (Made part of who calls it: what it notes would else be put
    /// together in memory, and loaded again in larger pieces, which waits for all that was streamed and fenced before.)
    #[inline(always)]
    pub(crate) fn note(&mut self, txid: Txid, piece: JournalPiece) {
        let waits = self.waits_mut();
        let Txid { session, lane, sequence } = txid;
        (waits.txid.session, waits.txid.lane, waits.txid.sequence) = (session, lane, sequence);
        waits.home = false;
        waits.pending.push(piece);
        waits.records.push(piece.origin);
        if piece.journal_at / PAGE_BYTES == self.page {
            self.page_born = piece.born;
        }
    }

    /// What is noted has been streamed to its home, and fenced.
    pub(crate) fn came_home(&mut self) {
        self.waits_mut().home = true;
    }

    /// Whether all that is noted is durable in its home.
    pub(crate) fn is_home(&self) -> bool {
        self.waits.as_ref().is_some_and(|waits| waits.home)
    }

    /// Notes pages of a larger overwrite, whose records are of this epoch.
    pub(crate) fn add_run(&mut self, run: Run, born: u32) {
        self.waits_mut().runs.push(Ended { run, born });
    }

    /// Gives up the page for small overwrites with the next that are retired, where a snapshot up to
    /// `latest` may see what is in it.
    pub(crate) fn part_with_page(&mut self, latest: u32) -> Result<()> {
        if self.page == 0 || self.page_born > latest {
            return Ok(());
        }
        let ended = Ended { run: Run { page: self.page, pages: 1 }, born: self.page_born };
        let waits = self.waits_mut();
        waits.runs.try_reserve(1)?;
        waits.runs.push(ended);
        self.page = 0;
        Ok(())
    }

    /// Adds the pages in which something is wanted, each with the epoch that it was stored in.
    pub(crate) fn wanted_pages(&self, pages: &mut Vec<Ended>) -> Result<()> {
        for piece in self.pending() {
            let first = piece.journal_at / PAGE_BYTES;
            let end = (piece.journal_at + piece.len).div_ceil(PAGE_BYTES);
            for page in first..end {
                let ended = Ended { run: Run { page, pages: 1 }, born: piece.born };
                if !pages.contains(&ended) {
                    pages.try_reserve(1)?;
                    pages.push(ended);
                }
            }
        }
        Ok(())
    }

    /// The pages that hold pending bytes, as replay has found them, belong to the file.
    pub(crate) fn claim(&mut self) {
        let Some(waits) = self.waits.as_deref_mut() else { return };
        if let [piece] = waits.pending.as_slice()
            && piece.journal_at % PAGE_BYTES + piece.len <= PAGE_BYTES
            && piece.len <= crate::JOURNAL_HALF
        {
            self.page = piece.journal_at / PAGE_BYTES;
            self.page_born = piece.born;
            self.second_half = piece.journal_at % PAGE_BYTES < crate::JOURNAL_HALF;
            return;
        }
        let Waits { pending, runs, .. } = waits;
        for piece in pending.iter() {
            let first = piece.journal_at / PAGE_BYTES;
            let end = (piece.journal_at + piece.len).div_ceil(PAGE_BYTES);
            let known = |page: u64, runs: &[Ended]| {
                runs.iter().any(|Ended { run, .. }| run.page <= page && page < run.end())
            };
            for page in first..end {
                if !known(page, runs) && runs.try_reserve(1).is_ok() {
                    runs.push(Ended { run: Run { page, pages: 1 }, born: piece.born });
                }
            }
        }
    }

    /// A record of transaction `txid` retires overwrites of earlier ones: nothing of them is wanted
    /// any more. `each` gets the ordinals of their records. Says whether there were any.
    pub(crate) fn retire(&mut self, txid: Txid, each: &mut dyn FnMut(u32)) -> bool {
        let Some(waits) = self.waits.as_deref_mut() else { return false };
        if waits.txid == txid {
            return false;
        }
        waits.pending.clear();
        let any = !waits.records.is_empty();
        waits.records.drain(..).for_each(each);
        any
    }

    /// Gives up the pages of larger overwrites, which are retired.
    pub(crate) fn give_runs(&mut self, each: &mut dyn FnMut(Ended)) {
        if let Some(waits) = self.waits.as_deref_mut() {
            waits.runs.drain(..).for_each(each);
        }
    }

    /// A log without JOURNAL records has taken the place of the old one.
    pub(crate) fn forget(&mut self, each: &mut dyn FnMut(Run)) {
        if let Some(mut waits) = self.waits.take() {
            waits.runs.drain(..).for_each(|ended| each(ended.run));
        }
    }

    /// Starts the write-back of everything pending that is not home; the caller's next fence ends it.
    #[track_caller]
    pub(crate) fn flush<M: Medium, H: Host>(&self, store: &Store<M, H>, counters: &Counters) {
        if self.pending().is_empty() || self.is_home() {
            return;
        }
        let mut window = store.door.window(0, counters);
        for piece in self.pending() {
            window.flush(piece.home_at, piece.len);
            store.flush_kept(&mut window, piece.home_at, piece.len);
        }
    }

    /// Stores everything pending in its home, through the cache: but for parts of lines there that can't be loaded, as less than a whole one
    /// must not be stored to them. What they would have had is lost with them; and what can't be loaded from here is lost there, whatever the
    /// home has: the list of bad memory says so before anything retires the record.
    pub(crate) fn apply<M: Medium, H: Host>(&self, ino: Ino, store: &Store<M, H>) -> Result<()> {
        let mut lost = None;
        for piece in self.pending() {
            if store.geometry.strips.are_kept() {
                store.bring_strips_home(ino, piece.journal_at, piece.home_at, piece.len)?;
                continue;
            }
            let mut line = [0u8; LINE as usize];
            let mut done = 0;
            while done < piece.len {
                let home_at = piece.home_at + done;
                let len = (piece.len - done).min(LINE - home_at % LINE);
                let bytes = line.get_mut(..len as usize).unwrap_or_default();
                let is_bad = store.door.load(home_at, bytes).is_err();
                match store.door.load(piece.journal_at + done, bytes) {
                    Err(MediaError::Poisoned { .. }) => {
                        store.bad.lose(home_at)?;
                        lost = Some(home_at);
                    }
                    loaded => {
                        loaded?;
                        store.store_home(home_at, bytes, is_bad);
                    }
                }
                done += len;
            }
        }
        lost.map_or(Ok(()), |at| store.keep_lost(at))
    }

    /// Calls `each` with the pages that hold journalled bytes.
    pub(crate) fn for_each_run(&self, each: &mut dyn FnMut(Ended)) {
        if self.page != 0 {
            each(Ended { run: Run { page: self.page, pages: 1 }, born: self.page_born });
        }
        self.runs().iter().for_each(|ended| each(*ended));
    }
}

impl Journal {
    /// Frees the journal's pages in which nothing is wanted any more. Pages with bytes that a
    /// recovery may still want stay: the log's JOURNAL records speak of them.
    pub(crate) fn release_idle<M: Medium, H: Host>(&mut self, store: &Store<M, H>) -> Result<()> {
        if self.page != 0 && !self.wants(self.page) {
            let run = Run { page: self.page, pages: 1 };
            if store.latest() >= self.page_born {
                store.release(Ended { run, born: self.page_born }, store.epoch());
            } else {
                store.give_journal_page(self.page);
            }
            self.page = 0;
        }
        if self.runs().is_empty() {
            return Ok(());
        }
        let mut kept: Vec<Ended> = Vec::new();
        let pages = |Ended { run, born }: &Ended| {
            let born = *born;
            (run.page..run.end()).map(move |page| Ended { run: Run { page, pages: 1 }, born })
        };
        let wanted = |ended: &Ended| self.wants(ended.run.page);
        for one in self.runs().iter().flat_map(pages).filter(wanted) {
            kept.try_reserve(1)?;
            kept.push(one);
        }
        for one in self.runs().iter().flat_map(pages).filter(|one| !wanted(one)) {
            store.release(one, store.epoch());
        }
        if let Some(waits) = &mut self.waits {
            waits.runs = kept;
        }
        Ok(())
    }

    /// Whether bytes in this page are pending.
    fn wants(&self, page: u64) -> bool {
        self.pending().iter().any(|piece| {
            let last = piece.journal_at + piece.len - 1;
            (piece.journal_at / PAGE_BYTES..=last / PAGE_BYTES).contains(&page)
        })
    }
}
