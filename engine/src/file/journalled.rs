//! Journalled overwrites: room for their bytes, and how these come home (PROTOCOL I16).

use lode_pmem::Medium;

use super::change::{Change, Waiting};
use super::fresh::Source;
use super::segment::Segment;
use crate::inode::{Body as Kind, Node, State};
use crate::integrity::{Crcs, Whose};
use crate::layout::{Body, Txid};
use crate::space::{Ended, Use};
use crate::store::{Held, Purpose};
use crate::{Error, Host, JOURNAL_HALF, PAGE_BYTES, Pool, Result, Rule};

/// Journalled bytes that are retired at once instead of by the next change, which gives back the
/// pages they waited in. (Where space is short all that wait in pages are.)
const RETIRE_AT_ONCE: u64 = 64 * 1024;

/// Overwrites of more bytes are streamed home, and fenced there: to write so many lines back costs more
/// than a fence (a memory that takes 20 GB/s of streamed lines takes 8 of lines that are written back).
const CACHED_MOST: u64 = JOURNAL_HALF;

/// What journalled zeros are brought home from.
static ZEROS: [u8; 256] = [0; 256];

impl<M: Medium, H: Host> Pool<M, H> {
    /// Finds room for a journalled segment: the file's own journal page, or pages for it alone.
    pub(super) fn take_journal(
        &self,
        state: &mut State,
        segment: &Segment,
        change: &mut Change<'_>,
        purpose: Purpose,
    ) -> Result<()> {
        let new = (segment.from, segment.to);
        let strips = self.store.geometry.strips;
        let (mut from, end) = match strips.are_kept() {
            true => (new.0 - new.0 % strips.bytes(), new.1.next_multiple_of(strips.bytes())),
            false => new,
        };
        let start = segment.at - (new.0 - from);
        if strips.are_kept() {
            self.store.prefetch_kept(start, end - from);
        }
        let small = end - from <= JOURNAL_HALF && change.segments.len() == 1;
        let journal = &mut state.file_mut()?.journal;
        if !self.store.host.leaves_out(Rule::JournalSeen) {
            journal.part_with_page(self.store.latest())?;
        }
        // A page for it to keep there is only where space is not short.
        if small && (journal.page != 0 || !self.store.is_short()) {
            if journal.page == 0 {
                journal.page = self.store.take_page(purpose, Use::Log)?;
                journal.second_half = false;
            }
            let half = if journal.second_half { JOURNAL_HALF } else { 0 };
            let journal_at = journal.page * PAGE_BYTES + half;
            let crcs = Crcs::default();
            let waiting = Waiting { from, to: end, journal_at, home_at: start, new, crcs };
            return change.waiting.push(waiting);
        }
        let first = from;
        while from < end {
            let pages = (end - from).div_ceil(PAGE_BYTES);
            let run = self.store.take_some(pages, purpose)?;
            if let Err(error) = change.journal_runs.push(run) {
                self.store.give(run);
                return Err(error);
            }
            let most = (run.pages * PAGE_BYTES).min(1 << 31);
            let to = end.min(from + most);
            let (home_at, journal_at) = (start + (from - first), run.page * PAGE_BYTES);
            let new = (new.0.max(from), new.1.min(to));
            let crcs = Crcs::default();
            change.waiting.push(Waiting { from, to, journal_at, home_at, new, crcs })?;
            from = to;
        }
        Ok(())
    }

    /// Streams the strips that an overwrite changes to where they wait.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Media`] where they are not there as they were stored.
    #[inline(never)]
    pub(super) fn stream_waiting(
        &self,
        state: &State,
        change: &mut Change<'_>,
        held: &mut Held<'_, H>,
    ) -> Result<()> {
        for wait in change.waiting.iter_mut() {
            let (len, counters) = (wait.to - wait.from, held.counters());
            let bytes = held.page().get_mut(..len as usize).ok_or(Error::Invalid)?;
            let end = wait.home_at + state.size.saturating_sub(wait.from);
            let of = Whose { ino: state.log.ino, end };
            self.store.load_data(of, wait.home_at, bytes)?;
            if self.store.bad.any() && self.store.bad.touches(wait.home_at, len) {
                return Err(Error::Media { at: wait.home_at });
            }
            let (from, to) = wait.new;
            let part = bytes.get_mut((from - wait.from) as usize..(to - wait.from) as usize);
            let part = part.ok_or(Error::Invalid)?;
            match change.source {
                Source::Zeros => part.fill(0),
                Source::Bytes { data, offset } => {
                    let new = data.get((from - offset) as usize..(to - offset) as usize);
                    part.copy_from_slice(new.ok_or(Error::Invalid)?);
                }
            }
            wait.crcs = self.store.stream_strips(wait.journal_at, bytes, counters)?;
        }
        Ok(())
    }

    /// Journalled overwrites of earlier transactions are home: their pages become free.
    pub(super) fn give_retired(
        &self,
        state: &mut State,
        txid: Txid,
        ordinal: u32,
        give: &mut dyn FnMut(Ended),
    ) -> Result<()> {
        state.retire(txid, ordinal);
        state.file_mut()?.journal.give_runs(give);
        Ok(())
    }

    /// Stores journalled bytes in their homes; much of it is retired at once.
    pub(super) fn go_home(
        &self,
        node: &Node<H>,
        state: &mut State,
        change: &Change<'_>,
    ) -> Result<()> {
        if change.waiting.len() == 0 {
            return Ok(());
        }
        let bytes: u64 = change.waiting.iter().map(|wait| wait.to - wait.from).sum();
        if bytes > CACHED_MOST && !self.store.geometry.strips.are_kept() {
            self.stream_home(state, change)?;
        } else {
            for wait in change.waiting.iter() {
                self.bring_home(&change.source, wait);
            }
        }
        if bytes <= RETIRE_AT_ONCE && !(change.journal_runs.len() > 0 && self.store.is_short()) {
            return Ok(());
        }
        match self.retire_now(node, state) {
            // What was asked for has happened: the next change of the file retires it.
            Err(Error::NoSpace) => Ok(()),
            result => result,
        }
    }

    /// Streams what has been journalled to its home, and fences: whoever changes the file next can't do that
    /// for what another thread has streamed.
    #[inline(never)]
    fn stream_home(&self, state: &mut State, change: &Change<'_>) -> Result<()> {
        let (door, counters) = (&self.store.door, self.store.counters());
        for wait in change.waiting.iter() {
            let (from, to) = wait.new;
            let home_at = wait.home_at + (from - wait.from);
            let mut window = door.window(to - from, counters);
            match change.source {
                Source::Bytes { data, offset } => {
                    let bytes = data.get((from - offset) as usize..(to - offset) as usize);
                    window.copy_nt(home_at, bytes.ok_or(Error::Invalid)?);
                }
                Source::Zeros => window.zero_nt(home_at, to - from),
            }
        }
        door.fence(counters)?;
        state.file_mut()?.journal.came_home();
        Ok(())
    }

    /// Stores what has been journalled in its home, through the cache.
    fn bring_home(&self, source: &Source<'_>, wait: &Waiting) {
        let store = &self.store;
        let (from, to) = wait.new;
        let (len, home_at) = (to - from, wait.home_at + (from - wait.from));
        let kept = store.geometry.strips.are_kept();
        let mut window = store.door.window(store.stored_in_place(len), store.counters());
        let mut put = |at: u64, bytes: &[u8]| match kept {
            true => store.store_in_place(&mut window, at, bytes),
            false => window.store(at, bytes),
        };
        match source {
            Source::Bytes { data, offset } => {
                let bytes = data.get((from - offset) as usize..(to - offset) as usize);
                put(home_at, bytes.unwrap_or_default());
            }
            Source::Zeros => {
                let mut done = 0;
                while done < len {
                    let zeros = ZEROS.get(..(len - done) as usize).unwrap_or(&ZEROS);
                    put(home_at + done, zeros);
                    done += zeros.len() as u64;
                }
            }
        }
        if kept {
            store.store_crcs(&mut window, wait.home_at, wait.to - wait.from, &wait.crcs);
        }
    }

    /// Flushes journalled overwrites that are not home yet, fences, and retires them with a record of their own.
    pub(crate) fn retire_now(&self, node: &Node<H>, state: &mut State) -> Result<()> {
        let Kind::File(file) = &state.body else { return Ok(()) };
        if !file.journal.is_pending() {
            return Ok(());
        }
        let log_plan = state.log.plan([1]);
        file.journal.flush(&self.store, self.store.counters());
        state.log.reserve(&self.store, &log_plan, Purpose::Frees)?;
        if !file.journal.is_home() {
            self.store.door.fence(self.store.counters())?;
        }
        let mut tx = self.begin_plans(&[log_plan], 0)?;
        let txid = tx.txid();
        let placed = state.log.append(&mut tx, &self.store, &Body::Retire);
        tx.commit()?;
        node.slot.set_tail(state.log.tail.last_seal);
        let died = state.ends_in();
        let give = &mut |ended| self.store.release(ended, died);
        self.give_retired(state, txid, placed.ordinal, give)
    }
}
