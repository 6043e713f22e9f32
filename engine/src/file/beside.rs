//! Overwriting side by side: several threads, one file.
//!
//! A file has one log, with one end: who has the right to change it stores to lines that the writer before stored to, on another
//! processor. So where writers of a file meet again and again, all of whom overwrite parts of single pages, they go through the sector
//! journal, each in a lane of its own, and take no lock of the inode nor store to anything of each other's.
//!
//! Guarantees: each write is as whole and as durable as one that goes by the log, for who reads as for a crash. The times of the file are those
//! of the last write that went by the log, one coarse tick ago at most; as a write that finds them older goes by the log again.
//!
//! Who changes the file in another way has the right to it alone first, and so ends that ([`Exclusive::go_beside`]).

use lode_pmem::Medium;

use super::sectors::{AT_ONCE, SECTOR_BYTES};
use super::write::Plain;
use crate::inode::{Beside, Exclusive, Node, State, Terms};
use crate::layout::SectorLine;
use crate::{Host, Op, PAGE_BYTES, Pool, Result, Rule};

/// How old a file's times may be that is written so, by the coarse clock, with which other file systems set them: less than a tick of one that
/// ticks every 4 ms, as usual, so that they are older by one of its ticks at most.
const TICK_NS: i64 = 3_000_000;
/// So many more writes that meet another are remembered than it takes to go side by side.
const MEETINGS_MORE: u8 = 32;
/// A write that meets none counts for so many less.
const ALONE: u8 = 8;

/// What became of a write.
enum Went {
    /// It is done, side by side with others.
    Side,
    /// Nothing is, and it is to go by the log.
    Otherwise,
    /// Nothing is: somebody has changed the inode meanwhile.
    Changed,
}

/// What is wanted so that writers may go side by side, of who holds no lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wants {
    /// Nothing: they do, or can't.
    Nothing,
    /// A sector journal.
    SectorJournal,
}

/// Whether bytes are whole sectors of one page: what a line tells of, and a reader finds whole.
#[inline]
fn fits(offset: u64, len: u64) -> bool {
    (offset | len).is_multiple_of(SECTOR_BYTES)
        && len > 0
        && offset % PAGE_BYTES + len <= PAGE_BYTES
}

/// What a write that went by the log tells of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    /// It is none of those that could go side by side.
    Otherwise,
    /// There are some.
    Met,
    /// There are none.
    Alone,
    /// Nothing.
    Nothing,
}

impl Told {
    /// By one that could, or not, and had to wait, or not; of an inode that so many lanes told of before, if any might.
    #[inline]
    fn by(is_such: bool, waited: bool, lanes: Option<u8>) -> Self {
        match (is_such, waited, lanes) {
            (false, ..) => Self::Otherwise,
            (_, true, _) | (_, _, Some(2..)) => Self::Met,
            // (Both come when a tick is over: the first has ended the lines of both.)
            (.., Some(0)) => Self::Nothing,
            _ => Self::Alone,
        }
    }

    /// Meetings behind that, where so many are wanted.
    #[inline]
    fn meetings(self, before: u8, wanted: u8) -> u8 {
        match self {
            Self::Otherwise => 0,
            Self::Met => before.saturating_add(1).min(wanted.saturating_add(MEETINGS_MORE)),
            Self::Alone => before.saturating_sub(ALONE),
            Self::Nothing => before,
        }
    }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Overwrites bytes of a file that several write to, if that is one of those; says whether it did, which is counted: else nothing is written. One
    /// load where nobody ever did.
    #[inline]
    pub(super) fn write_beside(
        &self,
        node: &Node<H>,
        offset: Option<u64>,
        data: &[u8],
        only: Option<&Plain<'_>>,
    ) -> Result<bool> {
        let (Some(beside), Some(offset)) = (node.beside(), offset) else { return Ok(false) };
        if !fits(offset, data.len() as u64) {
            return Ok(false);
        }
        while let Some(version) = self.version_beside(node, beside) {
            let terms = beside.terms();
            // (Where these are of another version: who goes by the log asks again.)
            if only.is_some_and(|it| !it.is_known(terms)) {
                break;
            }
            match self.write_in_own_lane(node, (beside, version, terms), offset, data)? {
                Went::Side => return Ok(true),
                Went::Otherwise => break,
                Went::Changed => {}
            }
        }
        Ok(false)
    }

    /// The version of an inode whose writers go side by side. Who finds it changed just now, and they did before, looks for some
    /// time whether they do behind it: who went by the log himself would keep the others from it, who would do so, too.
    #[inline]
    fn version_beside(&self, node: &Node<H>, beside: &Beside) -> Option<u64> {
        for _ in 0..=self.store.host.spins() {
            let version = node.version();
            if beside.is_of(version) {
                return Some(version);
            }
            let may_follow = version % 2 == 1
                && (beside.is_of(version.wrapping_sub(1)) || beside.is_of(version + 1));
            if !may_follow {
                return None;
            }
            core::hint::spin_loop();
        }
        None
    }

    #[inline(never)]
    fn write_in_own_lane(
        &self,
        node: &Node<H>,
        (beside, version, terms): (&Beside, u64, Terms),
        offset: u64,
        data: &[u8],
    ) -> Result<Went> {
        let (store, len, file_page) = (&self.store, data.len() as u64, offset / PAGE_BYTES);
        let is_within = offset.checked_add(len).is_some_and(|end| end <= terms.bytes);
        if !is_within {
            return Ok(Went::Otherwise);
        }
        let page = match beside.find(file_page) {
            Some(page) => page,
            None => match self.look_beside(node, beside, file_page)? {
                Some(page) => page,
                None if node.version() != version => return Ok(Went::Changed),
                None => return Ok(Went::Otherwise),
            },
        };
        let Some(held) = store.hold_sector_lane() else { return Ok(Went::Otherwise) };
        let ino = node.slot.ino();
        held.writes(ino);
        // Whoever changes the inode waits for this lane from here on, or has given it another version. (A snapshot waits for lanes, and is
        // known before: it is known of here, or sees what is written.)
        if node.version() != version && !store.host.leaves_out(Rule::BesideKnown) {
            return Ok(Went::Changed);
        }
        let is_seen = store.latest() != terms.latest && !store.host.leaves_out(Rule::BesideLatest);
        // (Only now: one that has waited for a lane may be late.)
        if is_seen || store.bad.any() || len > held.slot_bytes() || !self.is_young(terms) {
            return Ok(Went::Otherwise);
        }
        // (Who ends the session waits for lanes.)
        store.writable()?;
        let (nonce, home_at) = (terms.nonce, page * PAGE_BYTES + offset % PAGE_BYTES);
        let line = SectorLine { ino, nonce, offset, home_at, len, sequence: 0 };
        store.write_sectors(&held, line, data)?;
        // (The lane has asked already which processor this is.)
        self.counts.add_here(held.cpu(), Op::Write);
        Ok(Went::Side)
    }

    /// The page of the pool that a page of the file is in, if it may be written to, which is noted.
    #[cold]
    #[inline(never)]
    fn look_beside(&self, node: &Node<H>, beside: &Beside, file_page: u64) -> Result<Option<u64>> {
        let state = node.read(&self.store)?;
        beside.note(file_page, &state.file()?.extents);
        Ok(beside.find(file_page))
    }

    /// Takes in that a write went by the log: whether such a one `may` go otherwise, for all but its bytes, and whether it `waited` for others who
    /// write to the file.
    #[inline]
    pub(super) fn note_meeting(
        &self,
        node: &Node<H>,
        state: &mut Exclusive<'_, H>,
        (offset, len, may): (u64, u64, bool),
        waited: bool,
    ) -> Result<Wants> {
        let (wanted, file) = (self.store.host.meetings(), state.file()?);
        // (Nearly always: nothing to count down.)
        if !waited && wanted > 0 && file.meets_nobody() {
            return Ok(Wants::Nothing);
        }
        // (Writers of volumes know their places, and meet nobody.)
        if file.by_sectors {
            return Ok(Wants::Nothing);
        }
        self.count_meeting(node, state, (offset, len, may), waited)
    }

    #[inline(never)]
    fn count_meeting(
        &self,
        node: &Node<H>,
        state: &mut Exclusive<'_, H>,
        (offset, len, may): (u64, u64, bool),
        waited: bool,
    ) -> Result<Wants> {
        let (wanted, file) = (self.store.host.meetings(), state.file_mut()?);
        // (Who writes once in a tick or more rarely finds no lines, and has nobody beside who ended them.)
        let is_fresh = || node.beside().is_some_and(|it| self.is_fresh(it.terms()));
        let lanes = file.take_lanes_seen().filter(|lanes| *lanes > 0 || is_fresh());
        let told = Told::by(may && fits(offset, len), waited, lanes);
        file.meetings = told.meetings(file.meetings, wanted);
        if told == Told::Otherwise || file.meetings < wanted {
            return Ok(Wants::Nothing);
        }
        self.begin_beside(node, state, offset / PAGE_BYTES)
    }

    /// Whether the file's times were set less than a tick ago. (A clock may be set back.)
    #[inline]
    fn is_young(&self, terms: Terms) -> bool {
        let age_ns = self.store.host.coarse_now_ns().wrapping_sub(terms.since_ns);
        (0..TICK_NS).contains(&age_ns)
    }

    /// Whether who goes side by side on these terms may do so still, as far as times and snapshots are concerned.
    fn is_fresh(&self, terms: Terms) -> bool {
        self.is_young(terms) && terms.latest == self.store.latest()
    }

    /// Has writers go side by side from now on, behind a write to this page, if they can.
    #[cold]
    #[inline(never)]
    fn begin_beside(
        &self,
        node: &Node<H>,
        state: &mut Exclusive<'_, H>,
        file_page: u64,
    ) -> Result<Wants> {
        let store = &self.store;
        if self.options.relaxed || store.bad.any() {
            return Ok(Wants::Nothing);
        }
        if store.sectors.area().is_none() || !store.sectors.stripes.are_made() {
            if store.sectors.is_refused(store.space.free_pages()) {
                // (To be asked again when they have met as often.)
                state.file_mut()?.meetings = 0;
                return Ok(Wants::Nothing);
            }
            return Ok(Wants::SectorJournal);
        }
        // Else a recovery would put what is journalled over what is written. (There may be no room to say so, or the medium may not take it: what was
        // to be written is.)
        if state.is_dead()
            || self.retire_now(node, state).is_err()
            || !state.file()?.may_take_sectors()
        {
            state.file_mut()?.meetings = 0;
            return Ok(Wants::Nothing);
        }
        let Some(beside) = node.make_beside(state, &store.room) else {
            return Ok(Wants::Nothing);
        };
        let terms = Terms {
            // (Much may have been done since the record got its time.)
            since_ns: store.host.coarse_now_ns().min(state.mtime_ns),
            latest: store.latest(),
            nonce: state.log.nonce,
            bytes: state.size,
            plain_mode: (state.xattrs.len() == 0).then_some(state.mode),
        };
        state.go_beside(beside, terms, file_page..file_page + 1);
        Ok(Wants::Nothing)
    }

    /// Whether a read of a file that is written side by side has to have it alone: of more bytes than are looked at in one. (Where nothing may be
    /// stored, nobody writes.)
    #[inline]
    pub(super) fn reads_alone(&self, node: &Node<H>, state: &State, offset: u64, len: u64) -> bool {
        let len = len.min(state.size.saturating_sub(offset));
        let is_long = offset % PAGE_BYTES + len > AT_ONCE;
        let is_beside = || node.beside().is_some_and(|it| it.is_of(node.version()));
        is_long && is_beside() && self.store.writable().is_ok()
    }

    /// Such a read: its writers wait for it, and go on as before; if nobody may have written for a tick, nobody does so until a write
    /// has gone by the log, and the next reads are as those of other files.
    #[cold]
    #[inline(never)]
    pub(super) fn read_alone(
        &self,
        node: &Node<H>,
        offset: u64,
        into: &mut [u8],
        was_read: impl FnOnce(&State),
    ) -> Result<usize> {
        let Ok(mut state) = node.write(&self.store) else {
            // (Where lines can't be ended nobody begins to write any more.)
            return self.read_locked(&*node.read(&self.store)?, offset, into, was_read);
        };
        let read = self.read_locked(&state, offset, into, was_read);
        if node.beside().is_some_and(|it| self.is_fresh(it.terms())) {
            state.stay_beside(node);
        }
        read
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn only_whole_sectors_of_one_page_go_side_by_side() {
        for (offset, len) in [(0, 512), (0, 4096), (512, 3584), (3584, 512), (4096 * 9, 4096)] {
            assert!(fits(offset, len), "{offset} {len}");
        }
        for (offset, len) in [(0, 0), (0, 511), (1, 512), (512, 4096), (4096, 8192), (3584, 1024)] {
            assert!(!fits(offset, len), "{offset} {len}");
        }
    }

    #[test]
    fn who_meets_by_chance_or_writes_otherwise_does_not_go_side_by_side() {
        let after = |all: &[Told]| all.iter().fold(0, |it, told| told.meetings(it, 64));
        let (met, alone) = (Told::by(true, true, None), Told::by(true, false, None));
        assert_eq!(
            (met, alone, Told::by(false, true, Some(2))),
            (Told::Met, Told::Alone, Told::Otherwise)
        );
        assert_eq!(after(&[met; 63]), 63);
        assert_eq!(after(&[met; 500]), 64 + MEETINGS_MORE);
        let now_and_then = |rare, usual, each| -> Vec<Told> {
            (0..500).map(|write| if write % each == 0 { rare } else { usual }).collect()
        };
        assert!(after(&now_and_then(met, alone, 10)) < 2);
        assert!(after(&now_and_then(Told::Otherwise, met, 50)) < 64);
    }

    #[test]
    fn who_goes_side_by_side_goes_on_as_long_as_others_do() {
        let ticks =
            |lanes| (0..100).fold(64, |it, _| Told::by(true, false, Some(lanes)).meetings(it, 64));
        assert_eq!([2, 3, 200].map(ticks), [64 + MEETINGS_MORE; 3]);
        // (The second one in a tick.)
        assert_eq!(ticks(0), 64);
        assert_eq!(
            Told::by(true, false, Some(1)).meetings(64 + MEETINGS_MORE, 64),
            64 + MEETINGS_MORE - ALONE
        );
        assert_eq!(ticks(1), 0);
    }
}
