//! A change of a file: planned, made durable, then made visible (PROTOCOL I8, I9, I16, I17).
//!
//! 1. Segments are cut, fresh pages, journal space and log space are reserved.
//! 2. All new bytes are streamed to where nobody reads them; overwrites that were
//!    journalled before are flushed. One fence.
//! 3. The records are stored. One fence: the change has happened.
//! 4. Memory follows; replaced pages become free; journalled bytes go home.

use lode_pmem::{Counters, Medium};

use super::fresh::{FreshRun, FreshRuns, Source};
use super::ordinals::Ordinals;
use super::segment::{List, Overwrites, Rules, Segment, Segments, Way, plan};
use crate::index::Extent;
use crate::inode::{File, JournalPiece, Node, State};
use crate::integrity::Crcs;
use crate::layout::Body;
use crate::log::{Placed, Plan};
use crate::space::{Ended, Run};
use crate::store::{Held, Purpose, Tx};
use crate::{Error, Host, PAGE_BYTES, PageClass, Pool, Result, Rule};

/// What puts a change together.
pub(super) type Planner<'p> = &'p mut dyn FnMut(&State, Rules, &mut Change<'_>) -> Result<()>;

/// Where the new bytes of a journalled segment wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) journal_at: u64,
    pub(super) home_at: u64,
    /// Which of these bytes are new: the rest of their strips waits with them.
    pub(super) new: (u64, u64),
    /// Checksums of these, once they are known.
    pub(super) crcs: Crcs,
}

/// A change that is being prepared.
pub(crate) struct Change<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) segments: Segments,
    /// Whole pages that become a hole.
    pub(crate) unmap: Option<(u64, u64)>,
    pub(crate) new_size: u64,
    /// The class in which the file's pages are taken from now on.
    pub(crate) class: PageClass,
    fresh: FreshRuns,
    pub(super) waiting: List<Waiting, 1>,
    pub(super) journal_runs: List<Run, 2>,
}

impl<'a> Change<'a> {
    /// A change of nothing yet.
    pub(crate) fn new(source: Source<'a>, state: &State, new_size: u64) -> Self {
        Self {
            source,
            class: state.class,
            segments: Segments::none(),
            unmap: None,
            new_size,
            fresh: FreshRuns::none(),
            waiting: List::new(Waiting::default()),
            journal_runs: List::new(Run { page: 0, pages: 0 }),
        }
    }

    /// Adds bytes `from .. to` to what is written.
    pub(crate) fn write(&mut self, state: &State, rules: Rules, from: u64, to: u64) -> Result<()> {
        let file = state.file()?;
        match file.shown() {
            _ if from >= to => Ok(()),
            None => plan(&file.extents, rules, from, to, &mut self.segments),
            Some(shown) => self.write_shown(file, shown, rules, (from, to)),
        }
    }

    /// Adds the page that `tail` is in, unless it is replaced anyway.
    fn replace_too(&mut self, tail: Segment) -> Result<()> {
        let page = tail.from / PAGE_BYTES;
        let holds = |segment: &Segment| {
            (segment.from / PAGE_BYTES..segment.to.div_ceil(PAGE_BYTES)).contains(&page)
        };
        if self.segments.iter().any(holds) { Ok(()) } else { self.segments.push(tail) }
    }

    /// Forgets what was planned.
    pub(super) fn start_over(&mut self) {
        self.segments.clear();
        self.unmap = None;
    }

    fn has(&self, way: Way) -> bool {
        self.segments.iter().any(|segment| segment.way == way)
    }

    /// What the change does to space, if it fills holes where it takes fresh pages.
    fn purpose(&self) -> Purpose {
        match (self.has(Way::Fresh), self.unmap) {
            (true, _) => Purpose::Grows,
            (false, Some(_)) => Purpose::Frees,
            (false, None) => Purpose::Changes,
        }
    }

    /// Whether all fresh pages take the place of others.
    fn fills_no_hole(&self, state: &State) -> bool {
        let Ok(file) = state.file() else { return false };
        let mut fresh = self.segments.iter().filter(|segment| segment.way == Way::Fresh);
        fresh.all(|segment| {
            file.extents.covers(segment.from / PAGE_BYTES, segment.to.div_ceil(PAGE_BYTES))
        })
    }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Whether all mapped bytes behind the size are known to be zero.
    pub(crate) fn zero_behind(&self, state: &State) -> bool {
        let unneeded = self.store.host.leaves_out(Rule::TailZeroed);
        // (Nobody knows what a program stores there that has the file mapped.)
        unneeded || state.file().is_ok_and(|file| file.zero_behind && !file.is_mapped())
    }

    /// The rules for a change of this file now.
    pub(crate) fn rules(&self, state: &State) -> Rules {
        let unused = self.store.host.leaves_out(Rule::JournalUsed);
        let is_special = |file: &File| file.is_mapped() || file.exempt.is_some();
        let mapped = unused || state.file().is_ok_and(is_special);
        let strips = self.store.geometry.strips;
        let overwrites = match (strips.are_kept(), mapped) {
            (true, true) => Overwrites::Replacing,
            (true, false) => Overwrites::Strips(strips.bytes()),
            (false, false) if !self.options.relaxed => Overwrites::Atomic,
            (false, _) => Overwrites::InPlace,
        };
        // (The epoch first: should a snapshot come between, it is another one when the lane is held.)
        let epoch = self.store.epoch();
        Rules { overwrites, epoch, latest: self.store.latest(), size: state.size }
    }

    /// Makes a change durable that `plan` puts together, then visible. If it fails, nothing has changed. It is
    /// planned again where a snapshot comes between that and its record.
    pub(crate) fn make(
        &self,
        node: &Node<H>,
        state: &mut State,
        change: &mut Change<'_>,
        plan: Planner<'_>,
    ) -> Result<()> {
        let mapped = state.file()?.is_mapped();
        let _still = if mapped { self.move_seen(node, state, change, plan)? } else { None };
        let mut in_strips = true;
        if mapped {
            self.exempt_shown(node, state, (0, u64::MAX))?;
        }
        loop {
            let mut rules = self.rules(state);
            if matches!(rules.overwrites, Overwrites::Strips(_)) && !in_strips {
                rules.overwrites = Overwrites::Replacing;
            }
            plan(state, rules, change)?;
            self.look_ahead(state, change)?;
            if self.store.bad.any() && self.meets_bad(state, change)? {
                change.start_over();
                plan(state, Rules { overwrites: Overwrites::Replacing, ..rules }, change)?;
            }
            match self.make_planned(node, state, change, rules.epoch) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // Of a page that gets another, what is overwritten need not be right. (Nothing waits: nothing has happened.)
                Err(Error::Corrupt(_) | Error::Media { .. })
                    if in_strips
                        && matches!(rules.overwrites, Overwrites::Strips(_))
                        && change.has(Way::Journal)
                        && change.waiting.len() == 0 =>
                {
                    in_strips = false;
                }
                Err(error) => return Err(error),
            }
            change.start_over();
        }
    }

    /// Makes a change that was planned in this epoch; says whether it is still that one.
    #[inline(never)]
    fn make_planned(
        &self,
        node: &Node<H>,
        state: &mut State,
        change: &mut Change<'_>,
        epoch: u32,
    ) -> Result<bool> {
        if let Some(tail) = self.tail_to_replace(state, change.new_size)? {
            change.replace_too(tail)?;
        }
        let replaces = self.store.geometry.strips.are_kept();
        let grows = change.new_size > state.size;
        let (store, purpose) = (&self.store, change.purpose());
        let prepared = store.on_good_pages(|| self.prepare(state, change, purpose, epoch));
        let prepared = match prepared {
            Err(Error::NoSpace) if purpose == Purpose::Grows && change.fills_no_hole(state) => {
                let frees = change.unmap.is_some();
                let purpose = if frees { Purpose::Frees } else { Purpose::Replaces };
                store.on_good_pages(|| self.prepare(state, change, purpose, epoch))?
            }
            result => result?,
        };
        let Some((log_plan, held)) = prepared else { return Ok(false) };
        let retires = change.has(Way::InPlace) && state.file()?.journal.is_pending();
        let needs_data_fence = retires
            || change.segments.iter().any(|segment| segment.way != Way::InPlace)
            || change.new_size > state.size && !self.zero_behind(state);
        let time_ns = self.now_ns();
        let (lines, more) = (log_plan.lines, log_plan.extra_bytes());
        let mut tx = self.store.begin_in(held, lines, more, needs_data_fence)?;
        tx.split(Rule::WriteInOne, 1);
        tx.split(Rule::SizeInMap, log_plan.lines - 1);
        let (placed, says_size) = self.store_records(&mut tx, state, change, retires, time_ns);
        if self.store.host.leaves_out(Rule::OverwrittenAfterFence) {
            self.give_replaced(state, change)?;
        }
        tx.send()?;
        let ordinals = Ordinals::new(state, &placed);
        self.show(&mut tx, state, change, placed.txid, (ordinals, retires), time_ns)?;
        if says_size {
            let (ordinal, size) = (state.log.tail.ordinal, change.new_size);
            state.class = change.class;
            state.set_size(ordinal, false, size, time_ns, &mut |_| ());
        }
        tx.commit()?;
        node.slot.set_tail(state.log.tail.last_seal);
        if replaces && grows {
            state.file_mut()?.zero_behind = true;
        }
        self.go_home(node, state, change)?;
        self.tidy(&node.slot, state);
        Ok(true)
    }

    /// Reserves everything and streams all new bytes, with a lane held for what follows. If it
    /// fails, nothing is kept; nor where bytes are to go in place, and another epoch than that of the plan has begun.
    #[inline(never)]
    fn prepare(
        &self,
        state: &mut State,
        change: &mut Change<'_>,
        purpose: Purpose,
        epoch: u32,
    ) -> Result<Option<(Plan, Held<'_, H>)>> {
        let in_place = change.has(Way::Journal) || change.has(Way::InPlace);
        let ready = self.take_room(state, change, purpose).and_then(|log_plan| {
            let mut held = self.store.hold_lane();
            if in_place && held.epoch() != epoch {
                return Ok(None);
            }
            self.stream_all(state, change, &mut held)?;
            Ok(Some((log_plan, held)))
        });
        if !matches!(ready, Ok(Some(_))) {
            state.file_mut()?.zero_behind &= !change.has(Way::Append);
            self.give_fresh(&change.fresh);
            change.fresh.clear();
            change.waiting.clear();
            for run in change.journal_runs.iter() {
                self.store.give(*run);
            }
            change.journal_runs.clear();
            state.log.unreserve(&self.store);
        }
        ready
    }

    /// Takes fresh pages, journal space and log space.
    fn take_room(
        &self,
        state: &mut State,
        change: &mut Change<'_>,
        purpose: Purpose,
    ) -> Result<Plan> {
        let class = change.class;
        for at in 0..change.segments.len() {
            let Some(segment) = change.segments.iter().nth(at).copied() else { break };
            match segment.way {
                Way::Fresh => {
                    let extents = &state.file()?.extents;
                    self.take_fresh(extents, class, &segment, purpose, &mut change.fresh)?;
                }
                Way::Journal => self.take_journal(state, &segment, change, purpose)?,
                Way::Append | Way::InPlace => {}
            }
        }
        // One record more than these: SIZE, UNMAP or RETIRE.
        let records = change.fresh.len() + change.waiting.len() + 2;
        if records > usize::from(u16::MAX) / 2 {
            return Err(Error::NoSpace);
        }
        let file = state.file_mut()?;
        file.journal.reserve(change.waiting.len(), change.journal_runs.len())?;
        file.reserve_given_up(records)?;
        let records = self.records_of(state, change);
        let log_plan = state.log.plan(core::iter::repeat_n(1, records));
        state.log.reserve(&self.store, &log_plan, purpose)?;
        Ok(log_plan)
    }

    /// How many records the change has; [`Pool::store_records`] stores as many.
    fn records_of(&self, state: &State, change: &Change<'_>) -> usize {
        let retires =
            change.has(Way::InPlace) && state.file().is_ok_and(|file| file.journal.is_pending());
        let data = change.fresh.len() + change.waiting.len();
        let in_map = !self.store.host.leaves_out(Rule::SizeInMap);
        let size_is_said = in_map && (change.fresh.len() > 0 || change.unmap.is_some());
        let resized = !size_is_said && (data == 0 || change.new_size != state.size);
        let says_size = resized || change.class != state.class;
        data + usize::from(change.unmap.is_some()) + usize::from(says_size) + usize::from(retires)
    }

    fn stream_all(
        &self,
        state: &State,
        change: &mut Change<'_>,
        held: &mut Held<'_, H>,
    ) -> Result<()> {
        let counters = held.counters();
        state.file()?.journal.flush(&self.store, counters);
        let kept = self.store.geometry.strips.are_kept();
        let replaced = kept && !self.tail_is_shown(state);
        if change.new_size > state.size && !replaced && !self.zero_behind(state) {
            let mut zeroed = state.size;
            let tail = state.size / PAGE_BYTES;
            let is_tail = |fresh: &FreshRun| {
                (fresh.file_page..fresh.file_page + fresh.run.pages).contains(&tail)
            };
            if change.fresh.len() > 0 && change.fresh.iter().any(is_tail) {
                // (The rest of that page is zeroed where it goes to.)
                zeroed = zeroed.next_multiple_of(PAGE_BYTES);
            }
            for segment in change.segments.iter() {
                self.zero_mapped(state, zeroed, segment.from, counters)?;
                zeroed = zeroed.max(segment.to);
            }
            self.zero_mapped(state, zeroed, change.new_size, counters)?;
        }
        for fresh in change.fresh.iter() {
            let start = fresh.file_page * PAGE_BYTES;
            let end = start + fresh.run.pages * PAGE_BYTES;
            let segment = change.segments.iter().find(|segment| {
                segment.way == Way::Fresh && segment.from < end && segment.to > start
            });
            let segment = segment.map_or((end, end), |segment| (segment.from, segment.to));
            self.fill_fresh(state, fresh, segment, &change.source, held)?;
        }
        for segment in change.segments.iter() {
            if matches!(segment.way, Way::Append | Way::InPlace) {
                let part = (segment.from, segment.to);
                self.stream(&change.source, part, segment.at, counters)?;
            }
        }
        if kept {
            return self.stream_waiting(state, change, held);
        }
        for wait in change.waiting.iter() {
            self.stream_lines(&change.source, (wait.from, wait.to), wait.journal_at, counters)?;
        }
        Ok(())
    }

    /// Streams zeros to mapped bytes `from .. to` behind the size (I17).
    pub(crate) fn zero_mapped(
        &self,
        state: &State,
        from: u64,
        to: u64,
        counters: &Counters,
    ) -> Result<()> {
        let file = state.file()?;
        let mut at = from;
        while at < to {
            let Some(extent) = file.extents.next_from(at / PAGE_BYTES) else { break };
            let start = (extent.file_page * PAGE_BYTES).max(at);
            let end = (extent.end() * PAGE_BYTES).min(to);
            if start >= end {
                break;
            }
            let place = extent.page * PAGE_BYTES + (start - extent.file_page * PAGE_BYTES);
            self.stream(&Source::Zeros, (start, end), place, counters)?;
            at = end;
        }
        Ok(())
    }

    /// Stores the records of the change; returns the place of the first one.
    fn store_records(
        &self,
        tx: &mut Tx<'_, M, H>,
        state: &mut State,
        change: &Change<'_>,
        retires: bool,
        time_ns: i64,
    ) -> (Placed, bool) {
        let store = &self.store;
        let in_map = !store.host.leaves_out(Rule::SizeInMap);
        let size = if in_map { change.new_size } else { state.size };
        let says_size = self.records_of(state, change)
            > change.fresh.len()
                + change.waiting.len()
                + usize::from(change.unmap.is_some())
                + usize::from(retires);
        let mut first = None;
        let mut placed = |placed: Placed| first.get_or_insert(placed).ordinal;
        if retires {
            placed(state.log.append(tx, store, &Body::Retire));
        }
        if let Some((file_page, pages)) = change.unmap {
            let unmap = Body::Unmap { file_page, pages, time_ns, size };
            placed(state.log.append(tx, store, &unmap));
        }
        for fresh in change.fresh.iter() {
            let map = Body::Map {
                class: fresh.class,
                pages: fresh.run.pages as u32,
                file_page: fresh.file_page,
                page: fresh.run.page,
                time_ns,
                size,
            };
            placed(state.log.append(tx, store, &map));
        }
        for wait in change.waiting.iter() {
            let journal = Body::Journal {
                len: (wait.to - wait.from) as u32,
                file_offset: wait.from,
                journal_at: wait.journal_at,
                time_ns,
                home_at: wait.home_at,
            };
            placed(state.log.append(tx, store, &journal));
        }
        if says_size {
            let (class, size) = (change.class, change.new_size);
            let record = Body::Size { class, truncate: false, size, time_ns };
            placed(state.log.append(tx, store, &record));
        }
        let none =
            Placed { at: state.log.tail.at, ordinal: state.log.tail.ordinal, txid: tx.txid() };
        (first.unwrap_or(none), says_size)
    }

    /// Makes memory say what the records say.
    fn show(
        &self,
        tx: &mut Tx<'_, M, H>,
        state: &mut State,
        change: &Change<'_>,
        txid: crate::layout::Txid,
        (mut ordinals, retires): (Ordinals, bool),
        time_ns: i64,
    ) -> Result<()> {
        let store = &self.store;
        let (epoch, size, latest) = (tx.epoch(), change.new_size, store.latest());
        // (Should the fence fail, the caller hears of it.)
        let died = state.ends_in();
        let mut give_back = |ended: Ended| {
            if tx.land().is_ok() {
                store.release(ended, died);
            }
        };
        if retires {
            self.give_retired(state, txid, ordinals.next(state), &mut give_back)?;
        }
        if change.fresh.len() + change.waiting.len() > 0 {
            let ordinal = ordinals.peek();
            self.give_retired(state, txid, ordinal, &mut give_back)?;
        }
        let given = store.host.leaves_out(Rule::OverwrittenAfterFence);
        let give = &mut |ended: Ended| {
            if tx.land().is_ok() && !given {
                store.release(ended, died);
            }
        };
        if let Some(pages) = change.unmap {
            let ordinal = ordinals.next(state);
            state.giving_up(give, latest, |state, give| {
                state.unmap(ordinal, pages, size, time_ns, give);
            });
        }
        for fresh in change.fresh.iter() {
            let extent = Extent {
                file_page: fresh.file_page,
                page: fresh.run.page,
                pages: fresh.run.pages,
                class: fresh.class,
                epoch,
                origin: ordinals.next(state),
            };
            state.giving_up(give, latest, |state, give| state.map(extent, size, time_ns, give));
        }
        for wait in change.waiting.iter() {
            let origin = ordinals.next(state);
            state.journalled(origin, time_ns);
            let piece = JournalPiece {
                file_offset: wait.from,
                len: wait.to - wait.from,
                journal_at: wait.journal_at,
                home_at: wait.home_at,
                origin,
                born: epoch,
            };
            state.file_mut()?.journal.note(txid, piece);
        }
        let journal = &mut state.file_mut()?.journal;
        for run in change.journal_runs.iter() {
            journal.add_run(*run, epoch);
        }
        let alternate = !self.store.host.leaves_out(Rule::JournalHalves);
        if alternate && change.journal_runs.len() == 0 && change.waiting.len() > 0 {
            journal.second_half = !journal.second_half;
        }
        Ok(())
    }

    /// Frees the pages that a change puts others in the place of.
    #[cold]
    fn give_replaced(&self, state: &State, change: &Change<'_>) -> Result<()> {
        let extents = &state.file()?.extents;
        let fresh = change.fresh.iter().map(|fresh| (fresh.file_page, fresh.run.pages));
        for (from, pages) in fresh.chain(change.unmap) {
            for file_page in from..from + pages {
                if let Some(extent) = extents.find(file_page) {
                    let page = extent.page + (file_page - extent.file_page);
                    self.store.give(Run { page, pages: 1 });
                }
            }
        }
        Ok(())
    }
}
