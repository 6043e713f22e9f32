//! Superblocks, tables and logs.

use lode_pmem::{Line, Medium};

use super::report::{Finding, Outcome, SuperblockDamage, What};
use super::step::Scrub;
use crate::VIEW;
use crate::inode::State;
use crate::layout::{
    DEATH_LINE, HEAD_AT, INLINE_LINES, Identity, LINE, Link, LogHeader, LogSeed, SLOT_BYTES,
    Superblock, slot_at,
};
use crate::log::{INLINE, leads_on};
use crate::store::{LinkWord, Owner, Shape, Store, read_superblock};
use crate::{Corruption, Error, Host, Ino, PAGE_BYTES, Pool, Result, Rule};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Superblocks and tables; returns the bytes looked at.
    pub(super) fn scrub_tables(&self, scrub: &mut Scrub) -> Result<u64> {
        let store = &self.store;
        let superblock = store.superblock.lock();
        let bad = match read_superblock(&store.door, &store.host, true) {
            Ok((_, bad)) => bad,
            Err(error @ Error::NoMemory) => return Err(error),
            Err(_) => {
                let [one, other] = Superblock::places(store.geometry.pages);
                let lost = |at| Some(SuperblockDamage { what: What::Superblock, at });
                [lost(one), lost(other), None]
            }
        };
        drop(superblock);
        let is_writable = store.writable().is_ok();
        if bad.iter().any(Option::is_some) && is_writable {
            store.renew_superblocks()?;
        }
        for SuperblockDamage { what, at } in bad.into_iter().flatten() {
            let outcome = if is_writable { Outcome::Repaired } else { Outcome::Left };
            scrub.note(Finding { what, outcome, ino: 0, at, offset: 0, bytes: 0 })?;
        }
        // (Those that there are come with their inodes.)
        let there = |ino: Ino| self.store.table.find(ino).is_some_and(|slot| slot.tail() != 0);
        self.note_of_opening(scrub, &|damage| damage.ino == 0 || !there(damage.ino))?;
        if self.compares_copies() {
            store.compare_watermarks(is_writable, &mut |at, is_mended| {
                let outcome = if is_mended { Outcome::Repaired } else { Outcome::Left };
                let what = What::Metadata;
                scrub.note(Finding { what, outcome, ino: 0, at, offset: 0, bytes: 0 })
            })?;
            for lane in 0..store.geometry.lanes {
                if let Err(error) = store.compare_chain(lane) {
                    scrub.note_error(error, What::Metadata, 0)?;
                }
            }
            self.note_differing(scrub, &|_| 0)?;
        }
        Ok(store.geometry.first_page() * PAGE_BYTES)
    }

    /// Notes what an opening for reading alone has gone on without, of which this is so.
    pub(super) fn note_of_opening(
        &self,
        scrub: &mut Scrub,
        is_told: &dyn Fn(&Corruption) -> bool,
    ) -> Result<()> {
        for damage in self.opening.damage.iter().filter(|damage| is_told(damage)) {
            scrub.note_error(Error::Corrupt(*damage), What::Metadata, damage.ino)?;
        }
        Ok(())
    }

    /// Whether what a crash has left half done has been ended, or there was none: it is as soon as the pool is opened for writing.
    fn is_settled(&self) -> bool {
        self.store.writable().is_ok() || self.opening.clean
    }

    /// Whether copies of metadata that differ are found by a scrub: those that a crash has left are what
    /// it has left.
    fn compares_copies(&self) -> bool {
        self.is_settled() && self.store.geometry.twin_pages != 0
    }

    /// Notes what was found to differ since this was asked last, by this scrub or by others.
    fn note_differing(&self, scrub: &mut Scrub, owner: &dyn Fn(u64) -> Ino) -> Result<()> {
        // (What stays bad is met by each load of it.)
        let mut differing = self.store.take_differing();
        differing.sort_unstable();
        differing.dedup_by(|again, first| {
            first.1 |= first.0 == again.0 && again.1;
            first.0 == again.0
        });
        for (at, mended) in differing.into_iter().filter(|_| self.compares_copies()) {
            let ino = owner(at);
            // (What only snapshots see stays where it is.)
            let in_log = ino < VIEW && slot_at(ino) / PAGE_BYTES != at / PAGE_BYTES;
            let leaves = self.store.writable().is_ok() && self.is_log_bad(at / PAGE_BYTES);
            if ino != 0 && in_log && !mended && leaves {
                continue;
            }
            let outcome = if mended { Outcome::Repaired } else { Outcome::Left };
            let what = What::Metadata;
            scrub.note(Finding { what, outcome, ino, at, offset: 0, bytes: 0 })?;
        }
        Ok(())
    }

    /// The slot and the log of an inode; returns the bytes looked at.
    pub(super) fn scrub_inode(&self, scrub: &mut Scrub, ino: Ino) -> Result<u64> {
        let node = match self.node(ino) {
            Err(Error::Stale) => return Ok(0),
            node => node?,
        };
        // (Who loads it here may be the first to find that its copies differ.)
        let state = match node.read(&self.store) {
            Ok(state) => state,
            Err(error) => {
                // (An opening that has looked at all of it knows better where it is damaged.)
                let error = match self.why_absent(ino) {
                    Error::Stale => error,
                    known => known,
                };
                scrub.note_error(error, What::Metadata, ino)?;
                return Ok(LINE);
            }
        };
        self.scrub_log(scrub, &state, ino)
    }

    /// The slot and the log of an inode, which the caller holds, or one of the snapshot that sees it: then `ino` is its number in that.
    #[inline(never)]
    pub(super) fn scrub_log(&self, scrub: &mut Scrub, state: &State, ino: Ino) -> Result<u64> {
        let owner = if self.compares_copies() { Owner::Compared } else { Owner::Alive };
        let log = LogLines { store: &self.store, state, owner, is_settled: self.is_settled() };
        let looked = log.each(&mut |error| scrub.note_error(error, What::Metadata, ino))?;
        let is_its = |at: u64| {
            let slot = slot_at(state.log.ino);
            let is_in_log = state.log.pages.iter().any(|page| page.page == at / PAGE_BYTES);
            (slot..slot + SLOT_BYTES).contains(&at) || is_in_log
        };
        if self.store.writable().is_ok() {
            // What is in a log page that is bad is told of when that has been left.
            self.store.take_met()?;
        }
        self.note_differing(scrub, &|at| if is_its(at) { ino } else { 0 })?;
        Ok(looked)
    }
}

/// All lines of an inode's log.
struct LogLines<'s, M: Medium, H: Host> {
    store: &'s Store<M, H>,
    state: &'s State,
    owner: Owner,
    /// Else a crash may have torn the link word behind the end of the log.
    is_settled: bool,
}

type Note<'n> = &'n mut dyn FnMut(Error) -> Result<()>;

impl<M: Medium, H: Host> LogLines<'_, M, H> {
    /// Loads them all, in both copies where these are compared; returns how many bytes these are.
    #[inline(never)]
    fn each(&self, note: Note<'_>) -> Result<u64> {
        let (store, log) = (self.store, &self.state.log);
        let slot = slot_at(log.ino);
        let is_ours = |line: &Line| {
            let found = store.anchor::<Identity>(Rule::IdentitySeal, line, slot);
            found.is_some_and(|found| found.nonce == log.nonce)
        };
        self.line(slot, Shape::Anchor, true, &is_ours, note)?;
        let last = log.pages.last().map_or(slot, |page| page.page * PAGE_BYTES);
        let has_link = |anchor: u64| self.is_settled || anchor != last;
        if has_link(slot) {
            self.link(slot + HEAD_AT, (LinkWord::Head, 0), note)?;
        }
        let mut lines = 8;
        if let Some(seed) = log.seed_of(store, INLINE) {
            if !log.inline_dead {
                self.records(slot + LINE, INLINE_LINES, INLINE, &seed, note)?;
            }
            let at = slot + DEATH_LINE * LINE;
            let is_valid = |line: &Line| store.holds(Rule::DeathSeal, &seed, at, line);
            self.line(at, Shape::Record, false, &is_valid, note)?;
        }
        for page in &log.pages {
            let at = page.page * PAGE_BYTES;
            let is_ours = |line: &Line| {
                let found = store.anchor::<LogHeader>(Rule::LogPageSeal, line, at);
                found.is_some_and(|found| found.nonce == page.nonce)
            };
            self.line(at, Shape::Anchor, true, &is_ours, note)?;
            if has_link(at) {
                self.link(at + HEAD_AT, (LinkWord::Next, page.nonce), note)?;
            }
            if let Some(seed) = log.seed_of(store, page.ordinal) {
                self.records(at + LINE, log.page_lines(), page.ordinal, &seed, note)?;
            }
            lines += 1 + u64::from(log.page_lines());
        }
        let copies = if store.geometry.twin_pages == 0 { 1 } else { 2 };
        Ok(lines * LINE * copies)
    }

    /// Record lines from `at` on.
    fn records(
        &self,
        at: u64,
        lines: u32,
        ordinal: u32,
        seed: &LogSeed,
        note: Note<'_>,
    ) -> Result<()> {
        let tail = &self.state.log.tail;
        for line in 0..u64::from(lines) {
            let at = at + line * LINE;
            let is_valid = |line: &Line| self.store.holds(Rule::RecordSeal, seed, at, line);
            let is_used = ordinal != tail.ordinal || at < tail.at;
            self.line(at, Shape::Record, is_used, &is_valid, note)?;
        }
        Ok(())
    }

    /// One line; whether it is used says whether it has to be valid.
    fn line(
        &self,
        at: u64,
        shape: Shape,
        is_used: bool,
        is_valid: &dyn Fn(&Line) -> bool,
        note: Note<'_>,
    ) -> Result<()> {
        match self.store.load_line_of(self.owner, at, shape, is_valid) {
            Ok(line) if is_used && !is_valid(&line) => {
                note(Error::corrupt_inode("line is damaged", at, self.state.log.ino))
            }
            Ok(_) => Ok(()),
            // What is not used yet will be stored as a whole.
            Err(Error::Media { .. }) if !is_used => Ok(()),
            Err(error) => note(error),
        }
    }

    /// A link word, of a log page with this nonce.
    fn link(&self, at: u64, (which, nonce): (LinkWord, u64), note: Note<'_>) -> Result<()> {
        let life = (self.state.log.ino, self.state.log.nonce);
        let follows = |link: &Link| leads_on(self.store, life, nonce, link);
        match self.store.load_link_to(self.owner, at, which, &follows) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(what)) => note(Error::corrupt_inode(what, at, self.state.log.ino)),
            // (Its line has been told of.)
            Err(Error::Media { .. }) => Ok(()),
            Err(error) => note(error),
        }
    }
}
