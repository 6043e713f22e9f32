//! What only snapshots see.
//!
//! Logs say what has ended, and when: each of these things is looked at once, as the latest snapshot has it that sees it.
//! Guarantees: who looks at it holds an inode of that snapshot, which does not end meanwhile, so it is nobody else's; what the
//! inode has now, or a later snapshot sees, is not looked at again.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lode_pmem::Medium;

use super::report::{Outcome, What};
use super::step::{PIECE_BYTES, Scrub};
use crate::inode::{Body, File, Node, Scanned, State, load_with_cuts};
use crate::layout::{DEATH_LINE, LINE, slot_at};
use crate::log::{read_death, read_identity};
use crate::space::{Ended, Run};
use crate::{Error, Host, Ino, PAGE_BYTES, Pool, Result, ino_beside, mode};

/// Pages, and the epoch of the latest snapshot that sees them.
#[derive(Clone, Copy, Debug)]
struct Seen {
    epoch: u32,
    run: Run,
}

/// What only snapshots see of an inode, and how far it has been looked at.
#[derive(Debug, Default)]
pub(super) struct Kept {
    ino: Ino,
    /// By epoch and place.
    all: Vec<Seen>,
    /// The first of those with the epoch that it is at.
    at: usize,
    /// The page of the file to go on with.
    page: u64,
}

/// What has ended, and the epochs of that.
type AllEnded = Vec<(Ended, u32)>;

/// The first pages from `from` on and before `end` that are among these.
fn next_of(kept: &[Seen], from: u64, end: u64) -> Option<Run> {
    let at = kept.partition_point(|seen| seen.run.end() <= from);
    let run = kept.get(at)?.run;
    let page = run.page.max(from);
    (page < end).then(|| Run { page, pages: run.end().min(end) - page })
}

/// A page of a file that journalled bytes are part of, as a snapshot reads it.
pub(super) fn has_waiting(file: &File, page: u64) -> bool {
    let (from, end) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
    let mut pending = file.journal.pending().iter();
    pending.any(|piece| piece.file_offset < end && piece.file_offset + piece.len > from)
}

/// Adds pages in which bytes of a file wait that are at home for all but snapshots, which read them there.
fn seen_waiting(state: &State, seen: &mut AllEnded) -> Result<()> {
    let Body::File(file) = &state.body else { return Ok(()) };
    let mut noted = Ok(());
    file.journal.for_each_run(&mut |waits| match seen.try_reserve(1) {
        Ok(()) => seen.push((waits, u32::MAX)),
        Err(error) => noted = Err(error.into()),
    });
    noted
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Adds the dead inodes that snapshots see: each with the number that it has in the latest of these. Where not all of them
    /// are known any more, those that are, and an error.
    #[inline(never)]
    pub(crate) fn list_dead(&self, inos: &mut Vec<Ino>) -> Result<()> {
        let mut dead: Vec<(u32, Ino)> = Vec::new();
        let told = self.store.snapshots.for_each_slot(&mut |epoch, ino| {
            dead.try_reserve(1)?;
            dead.push((epoch, ino));
            Ok(())
        });
        inos.try_reserve(dead.len())?;
        let mut last = (0, None);
        for (epoch, ino) in dead {
            if last.0 != epoch {
                last = (epoch, self.view_of(epoch)?);
            }
            inos.extend(last.1.map(|view| ino | view));
        }
        told
    }

    /// What only snapshots see of an inode.
    #[inline(never)]
    pub(super) fn kept_of(&self, ino: Ino) -> Result<Kept> {
        let node = match self.node(ino) {
            Err(Error::Stale) => return Ok(Kept::default()),
            node => node?,
        };
        // (Where it can't be loaded, that has been told.)
        let Ok(state) = node.read(&self.store) else { return Ok(Kept::default()) };
        if !self.store.sees_log(ino, state.log.born) {
            return Ok(Kept::default());
        }
        // While it is locked its log stays as it is.
        match load_with_cuts(&self.store, ino, state.is_dead().then_some(state.died)) {
            Ok(Scanned { mut seen, cuts, .. }) => {
                seen_waiting(&state, &mut seen)?;
                self.kept_among(ino, seen, cuts)
            }
            Err(error) => error.into_damage().map(|_| Kept::default()),
        }
    }

    /// The slot and the log of a dead inode, by its number in a snapshot, which are looked at in both copies. Returns the bytes
    /// looked at, and leaves what snapshots see of it.
    #[inline(never)]
    pub(super) fn scrub_dead(&self, scrub: &mut Scrub, seen: Ino) -> Result<u64> {
        scrub.kept = Kept::default();
        let ino = ino_beside(seen, 0);
        let node = match self.node(seen) {
            Err(Error::Stale) => return Ok(0),
            Err(error) => {
                scrub.note_error(error, What::Metadata, seen)?;
                return Ok(LINE);
            }
            Ok(node) => node,
        };
        // (Who ends a snapshot has that locked when it waits for who looks at its inodes.)
        let Ok(epoch) = self.epoch_of_view(seen) else { return Ok(0) };
        // While this is locked its snapshot does not end.
        let held = match node.read(&self.store) {
            Ok(held) => held,
            Err(error) => {
                scrub.note_error(error, What::Metadata, seen)?;
                return Ok(LINE);
            }
        };
        match self.look_at_dead(&node, &held, epoch).and_then(|()| self.scan_dead(ino)) {
            Ok((state, data, cuts)) => {
                scrub.kept = self.kept_among(ino, data, cuts)?;
                if state.kind() == mode::DIRECTORY {
                    scrub.note_directory(seen)?;
                }
                self.scrub_log(scrub, &state, seen)
            }
            Err(error) => {
                scrub.note_error(error, What::Metadata, seen)?;
                Ok(LINE)
            }
        }
    }

    /// Whether a dead inode is on the medium as a snapshot has it that keeps it, which is as it was `held` when it was loaded. (So one that
    /// seems to be later, or shorter, is lost.)
    pub(crate) fn look_at_dead(&self, node: &Node<H>, held: &State, epoch: u32) -> Result<()> {
        let at = slot_at(ino_beside(node.ino(), 0));
        let lost = Error::corrupt_inode("log of a dead inode is damaged", at, node.ino());
        match node.look_as_of(&self.store, epoch) {
            Ok(found) if found.is_same_as(held) => Ok(()),
            Ok(_) | Err(Error::Stale) => Err(lost),
            Err(error) => Err(error),
        }
    }

    /// A dead inode at its end, all that has ended with it and before, and the pages that it ended in.
    #[inline(never)]
    fn scan_dead(&self, ino: Ino) -> Result<(Box<State>, AllEnded, Option<AllEnded>)> {
        let at = slot_at(ino) + DEATH_LINE * LINE;
        let lost = Error::corrupt_inode("end of a dead inode is damaged", at, ino);
        let (identity, ..) = read_identity(&self.store, ino)?.ok_or(lost)?;
        let died = read_death(&self.store, &identity)?.ok_or(lost)?.epoch;
        let Scanned { state, seen: mut data, cuts, .. } =
            load_with_cuts(&self.store, ino, Some(died))?;
        let state = state.ok_or(lost)?;
        let mut noted = Ok(());
        state.for_each_data(&mut |ended| match data.try_reserve(1) {
            Ok(()) => data.push((ended, died)),
            Err(error) => noted = Err(error.into()),
        });
        noted.map(|()| (state, data, cuts))
    }

    /// Of what has ended, what snapshots see; and of pages that the file ended in since it became shorter what is behind
    /// its end, which nobody else looks at.
    fn kept_among(&self, ino: Ino, ended: AllEnded, cuts: Option<AllEnded>) -> Result<Kept> {
        let mut kept = Kept { ino, ..Kept::default() };
        for (Ended { run, born }, died) in ended.into_iter().chain(cuts.unwrap_or_default()) {
            if let Some(epoch) = self.store.snapshots.last_to_see(born, died) {
                kept.all.try_reserve(1)?;
                kept.all.push(Seen { epoch, run });
            }
        }
        kept.all.sort_unstable_by_key(|seen| (seen.epoch, seen.run.page));
        Ok(kept)
    }

    /// Looks at about `bytes` more bytes of what only snapshots see of the inode that a scrub is at. Returns how many it
    /// has looked at, and whether that was all.
    pub(super) fn scrub_kept(&self, scrub: &mut Scrub, bytes: u64) -> Result<(u64, bool)> {
        let mut kept = core::mem::take(&mut scrub.kept);
        let mut done = 0;
        while done < bytes {
            let Some(Seen { epoch, .. }) = kept.all.get(kept.at).copied() else { break };
            let end = kept.all.partition_point(|seen| seen.epoch <= epoch);
            let seen = kept.all.get(kept.at..end).unwrap_or_default();
            let from = (kept.ino, epoch, kept.page);
            let (looked, next) = self.scrub_seen(scrub, from, seen, bytes - done)?;
            done += looked;
            (kept.at, kept.page) = next.map_or((end, 0), |page| (kept.at, page));
        }
        let is_over = kept.at >= kept.all.len();
        scrub.kept = kept;
        Ok((done, is_over))
    }

    /// Looks at what one snapshot sees of a file from a page on, and at attributes first.
    fn scrub_seen(
        &self,
        scrub: &mut Scrub,
        (ino, epoch, mut page): (Ino, u32, u64),
        seen: &[Seen],
        bytes: u64,
    ) -> Result<(u64, Option<u64>)> {
        let Some(view) = self.view_of(epoch)? else { return Ok((0, None)) };
        let node = match self.node(ino | view) {
            Ok(node) => node,
            Err(error) => {
                scrub.note_error(error, What::Metadata, ino | view)?;
                return Ok((0, None));
            }
        };
        let Ok(state) = node.read(&self.store) else { return Ok((0, None)) };
        let mut done = 0;
        if page == 0 {
            done += self.scrub_seen_attributes(scrub, &state, seen)?;
            done += self.scrub_waiting(scrub, &state)?;
        }
        let Body::File(file) = &state.body else { return Ok((done, None)) };
        while let Some(extent) = file.extents.next_from(page) {
            page = page.max(extent.file_page);
            let place = extent.page + (page - extent.file_page);
            let Some(run) = next_of(seen, place, extent.page + extent.pages) else {
                page = extent.end();
                continue;
            };
            page += run.page - place;
            if has_waiting(file, page) {
                page += 1;
                continue;
            }
            let most = run.pages.min(PIECE_BYTES / PAGE_BYTES);
            let waits = (1..most).find(|skip| has_waiting(file, page + skip));
            let pages = waits.unwrap_or(most);
            self.scrub_piece(scrub, &state, &extent, (page, pages))?;
            done += pages * PAGE_BYTES;
            page += pages;
            if done >= bytes {
                return Ok((done, Some(page)));
            }
        }
        Ok((done, None))
    }

    fn scrub_seen_attributes(
        &self,
        scrub: &mut Scrub,
        state: &State,
        seen: &[Seen],
    ) -> Result<u64> {
        let mut done = 0;
        for xattr in state.xattrs.iter() {
            let mut runs = xattr.runs.iter();
            if !runs.any(|run| next_of(seen, run.page, run.end()).is_some()) {
                continue;
            }
            done += self.scrub_value(scrub, state, xattr)?;
        }
        Ok(done)
    }

    /// Reads the pages in which a snapshot has journalled bytes the way it reads them: what is in their home may be later, or
    /// torn, and what isn't journalled is at home.
    #[inline(never)]
    pub(super) fn scrub_waiting(&self, scrub: &mut Scrub, state: &State) -> Result<u64> {
        let Body::File(file) = &state.body else { return Ok(0) };
        let strips = &self.store.geometry.strips;
        let step = if strips.are_kept() { strips.bytes() } else { LINE };
        let mut done = 0;
        for (number, piece) in file.journal.pending().iter().enumerate() {
            let (first, end) = (piece.file_offset / PAGE_BYTES, piece.file_offset + piece.len);
            for page in first..end.div_ceil(PAGE_BYTES) {
                let before = file.journal.pending().get(..number).unwrap_or_default().iter();
                let mut pages = before
                    .map(|it| (it.file_offset, it.file_offset + it.len))
                    .map(|(from, to)| (from / PAGE_BYTES, to.div_ceil(PAGE_BYTES)));
                if !pages.any(|(from, to)| (from..to).contains(&page)) {
                    self.read_waiting(scrub, state, page, step)?;
                    done += PAGE_BYTES;
                }
            }
        }
        Ok(done)
    }

    fn read_waiting(&self, scrub: &mut Scrub, state: &State, page: u64, step: u64) -> Result<()> {
        let Some(extent) = state.file()?.extents.find(page) else { return Ok(()) };
        let at = (extent.page + (page - extent.file_page)) * PAGE_BYTES;
        let mut piece = core::mem::take(&mut scrub.piece);
        let mut noted = Ok(());
        for skip in (0..PAGE_BYTES).step_by(step as usize) {
            let offset = page * PAGE_BYTES + skip;
            let len = step.min(state.size.saturating_sub(offset));
            let bytes = piece.get_mut(..len as usize).unwrap_or_default();
            if noted.is_ok() && self.read_pages(state, offset, bytes).is_err() {
                noted = self.note_data(scrub, state, Outcome::Lost, (at + skip, offset, step));
            }
        }
        scrub.piece = piece;
        noted
    }
}
