//! A medium that keeps apart what is stored and what is durable.
//!
//! It implements the door's instructions only. What a fence makes certain depends on the
//! [`Profile`]: under `adr`, what its own thread has streamed, and what the lines held when its own
//! thread last started their write-back; under `eadr` every store is certain as soon as it is
//! made, in order; under `file` everything stored so far, by any thread.
//! Of two stores to the same bytes, the later one stays, where both got there. Lines that are poisoned can't be
//! loaded until a whole one is stored over them; a store of less would end a program on real hardware, and is counted.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lode_pmem::{LINE_BYTES, Line, Losses, MediaError, Medium};
use parking_lot::Mutex;

use super::pages::Bad;
use super::watch::Own;
use super::{LeftOut, Pages, Pending, Point, Profile, Site, Stored, Watch, Way};

#[cfg(test)]
mod tests;

const LINE: u64 = LINE_BYTES as u64;

/// Loads from one region before it is clear that whoever loads will not end; of one state that is
/// judged, fewer.
const LOADS_MAX: u64 = 30_000_000;
const STATE_LOADS_MAX: u64 = 3_000_000;

/// The medium. Clones share the region.
#[derive(Clone, Debug)]
pub struct Simulated {
    bytes: u64,
    rules: Rules,
    state: Arc<Mutex<State>>,
}

/// How a region behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// What a crash is.
    pub profile: Profile,
    /// The CPU streams a line in one piece (`movdir64b`).
    pub whole_lines: bool,
    /// What a mutant leaves out.
    pub left_out: Option<LeftOut>,
}

#[derive(Debug)]
struct State {
    /// What loads see.
    seen: Pages,
    /// Nothing where it is not kept apart.
    durable: Pages,
    pending: BTreeMap<u64, Vec<Pending>>,
    /// What is durable and what is not is kept apart.
    tracked: bool,
    stores: u64,
    loads: u64,
    /// A point is noted at each fence.
    recording: bool,
    points: Vec<Point>,
    progress: [usize; 2],
    watches: Vec<Watch>,
    /// What was stored since the region had its first content.
    own: Own,
    /// How often each place fenced or wrote back.
    sites: BTreeMap<LeftOut, u64>,
    /// Stores of less than a line to one that can't be loaded.
    machine_checks: u64,
    told: Told,
}

/// What the memory says of itself.
#[derive(Clone, Copy, Default, Debug)]
struct Told {
    /// How often it has lost what was stored.
    losses: Option<Losses>,
    /// A page that is bad: its offset.
    bad: Option<u64>,
    /// What a program holds a lock on: offset and length.
    held: Option<(u64, u64)>,
}

/// The memory that there is.
const MODULE: NonZeroU32 = NonZeroU32::MIN;
const PAGE: u64 = 4096;

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// A small number for this thread; numbers that are 64 apart share a bit.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    THREAD.with(|thread| {
        if thread.get() == u64::MAX {
            thread.set(NEXT.fetch_add(1, Relaxed) % 64);
        }
        thread.get()
    })
}

impl Simulated {
    /// A region that durably holds `pages`, every store of which is tracked.
    pub fn new(pages: Pages, rules: Rules) -> Self {
        Self::with(pages, rules, true)
    }

    /// A region in which what is stored is durable at once.
    pub fn plain(pages: &Pages) -> Self {
        Self::with(pages.without_bare(), Rules::default(), false)
    }

    fn with(pages: Pages, rules: Rules, tracked: bool) -> Self {
        let bytes = pages.bytes();
        let durable = if tracked { pages.clone() } else { Pages::new(0) };
        let state = State {
            seen: pages,
            durable,
            pending: BTreeMap::new(),
            tracked,
            stores: 0,
            loads: 0,
            recording: false,
            points: Vec::new(),
            progress: [0; 2],
            watches: Vec::new(),
            own: Own::none(if tracked { 0 } else { bytes }),
            sites: BTreeMap::new(),
            machine_checks: 0,
            told: Told::default(),
        };
        Self { bytes, rules, state: Arc::new(Mutex::new(state)) }
    }

    /// A region of its own that holds what this one does, all of it durable.
    pub fn fork(&self) -> Self {
        let state = self.state.lock();
        let fork = Self::plain(&state.seen);
        let (own, told) = (state.own.clone(), state.told);
        drop(state);
        let mut forked = fork.state.lock();
        (forked.own, forked.told) = (own, told);
        drop(forked);
        fork
    }

    /// From now on these lines, from the one at `at` on, can't be loaded, whatever power cuts bring back.
    pub fn poison(&self, at: u64, lines: u64) {
        let mut state = self.state.lock();
        let spoil = &mut |pages: &mut Pages, line| pages.spoil(line, Bad::Once);
        (0..lines).for_each(|line| state.damage(at + line * LINE, spoil));
    }

    /// From now on this line can't be loaded, whatever is stored to it.
    pub fn wreck(&self, at: u64) {
        let spoil = &mut |pages: &mut Pages, line| pages.spoil(line, Bad::Always);
        self.state.lock().damage(at, spoil);
    }

    /// From now on the line at `at` durably holds this, and can be loaded or not as it could.
    pub fn overwrite(&self, at: u64, bytes: &[u8; LINE_BYTES]) {
        let overwrite = &mut |pages: &mut Pages, at: u64| {
            // (What it is does not change.)
            let what = pages.stored_in(at);
            pages.store(at, u64::MAX, bytes, what);
        };
        self.state.lock().damage(at, overwrite);
    }

    /// All memory can be loaded again.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.seen.heal();
        state.durable.heal();
    }

    /// From now on the memory says that it has lost what was stored so often.
    pub fn tell_losses(&self, count: u64) {
        self.state.lock().told.losses = Some(Losses { of: MODULE, count });
    }

    /// From now on the page at `at` can't be loaded, which is told.
    pub fn list_bad(&self, at: u64) {
        self.poison(at, PAGE / LINE);
        self.state.lock().told.bad = Some(at);
    }

    /// From now on a program that is not part of this holds a lock on these bytes: who stores there is stopped.
    pub fn hold(&self, at: u64, len: u64) {
        self.state.lock().told.held = Some((at, len));
    }

    /// Whether some of it can't be loaded.
    pub fn has_bad(&self) -> bool {
        self.state.lock().seen.has_bad()
    }

    /// Takes note of what was stored since the region had its first content; what it holds now is its first content from
    /// now on.
    pub(crate) fn take_own(&self) -> Own {
        std::mem::replace(&mut self.state.lock().own, Own::none(self.bytes))
    }

    /// [`Pages::fingerprint`] of what loads see.
    pub fn fingerprint(&self) -> u64 {
        self.state.lock().seen.fingerprint()
    }

    /// What of the region a program holds a lock on.
    pub fn held(&self) -> Option<(u64, u64)> {
        self.state.lock().told.held
    }

    /// What is bad is not told any more.
    pub fn list_nothing(&self) {
        self.state.lock().told.bad = None;
    }

    /// The page that is told to be bad.
    pub fn listed_bad(&self) -> Option<u64> {
        self.state.lock().told.bad
    }

    /// Stores of less than a line to one that can't be loaded.
    pub fn machine_checks(&self) -> u64 {
        self.state.lock().machine_checks
    }

    /// Begins or ends to note a [`Point`] at each fence.
    pub fn record(&self, on: bool) {
        self.state.lock().recording = on;
    }

    /// Notes how many operations a thread has done, for the points that follow.
    pub fn set_progress(&self, thread: usize, done: usize) {
        self.state.lock().progress[thread] = done;
    }

    /// The points noted since they were last taken.
    pub fn take_points(&self) -> Vec<Point> {
        std::mem::take(&mut self.state.lock().points)
    }

    /// The point that is now.
    pub fn point(&self) -> Point {
        self.state.lock().point(None)
    }

    /// What loads see.
    pub fn seen(&self) -> Pages {
        self.state.lock().seen.clone()
    }

    /// Store instructions so far.
    pub fn stores(&self) -> u64 {
        self.state.lock().stores
    }

    /// The places that fenced or wrote back, and how often.
    pub fn sites(&self) -> BTreeMap<LeftOut, u64> {
        self.state.lock().sites.clone()
    }

    /// Logs loads from now on.
    pub fn watch(&self, watches: Vec<Watch>) {
        self.state.lock().watches = watches;
    }

    /// Ends [`Simulated::watch`].
    pub fn take_watches(&self) -> Vec<Watch> {
        std::mem::take(&mut self.state.lock().watches)
    }

    /// Makes all that was stored durable, as caches do that outlive a crash.
    pub fn settle(&self) {
        self.state.lock().settle();
    }

    /// The power fails, and the memory holds `image`.
    pub fn crash(&self, image: Pages) {
        let mut state = self.state.lock();
        state.seen = image;
        state.settle();
    }

    fn inside(&self, at: u64, len: u64) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.bytes)
    }

    /// Stores `bytes`, all within one line.
    fn put(&self, at: u64, bytes: &[u8], way: Way, site: Site) {
        assert!(self.inside(at, bytes.len() as u64), "store at {at:#x} outside the region");
        let from = (at % LINE) as usize;
        let mut content = [0; LINE_BYTES];
        content[from..from + bytes.len()].copy_from_slice(bytes);
        let line = at - at % LINE;
        let mask = (u64::MAX >> (64 - bytes.len())) << from;
        let mut state = self.state.lock();
        let held = state.told.held.is_some_and(|(start, len)| (start..start + len).contains(&at));
        if held {
            drop(state);
            panic!("store at {at:#x}, in memory that a program holds");
        }
        state.stores += 1;
        state.stored_to_bad(line, mask);
        // (What an untracked region holds does not say where data lies.)
        let what = if state.tracked { site.stores() } else { Stored::Metadata };
        state.seen.store(line, mask, &content, what);
        if !state.tracked {
            // (In a tracked region a later cut may bring the old content back.)
            if mask == u64::MAX {
                state.own.stored(line);
            }
            return;
        }
        let (number, thread) = (state.stores, this_thread());
        let store =
            Pending { number, line, mask, bytes: content, way, site, thread, written_back_by: 0 };
        state.pending.entry(line).or_default().push(store);
    }
}

impl State {
    fn point(&self, fence: Option<Site>) -> Point {
        let mut pending: Vec<Pending> = self.pending.values().flatten().cloned().collect();
        pending.sort_unstable_by_key(|store| store.number);
        let durable = if self.tracked { &self.durable } else { &self.seen };
        Point { fence, durable: durable.clone(), pending, progress: self.progress }
    }

    /// A line that is stored whole is good again.
    fn stored_to_bad(&mut self, line: u64, mask: u64) {
        if mask == u64::MAX {
            self.seen.renew(line);
        } else if self.seen.first_bad(line..line + LINE).is_some() {
            self.machine_checks += 1;
        }
    }

    /// Stores whole lines, all in one, where nothing else is to be noted of each; says whether it has.
    fn stored_plainly(&mut self, at: u64, lines: &[[u8; LINE_BYTES]]) -> bool {
        if self.tracked || self.seen.has_bad() || self.told.held.is_some() {
            return false;
        }
        self.stores += lines.len() as u64;
        self.seen.store_lines(at, lines, Stored::Metadata);
        (at..).step_by(LINE_BYTES).take(lines.len()).for_each(|line| self.own.stored(line));
        true
    }

    /// Changes a line behind everybody's back, durably: what was stored to it, and was not certain to be durable, is gone.
    fn damage(&mut self, line: u64, change: &mut dyn FnMut(&mut Pages, u64)) {
        self.pending.remove(&line);
        change(&mut self.seen, line);
        if self.tracked {
            change(&mut self.durable, line);
        }
    }

    /// Makes everything durable.
    fn settle(&mut self) {
        if self.tracked {
            self.durable = self.seen.clone();
            self.pending.clear();
        }
    }

    /// Makes durable what `thread` has streamed and written back.
    fn fence(&mut self, thread: u64) {
        let durable = &mut self.durable;
        self.pending.retain(|line, stores| {
            let mut left: Vec<Pending> = Vec::new();
            for store in stores.drain(..) {
                let certain = if store.way == Way::Cached {
                    store.written_back_by >> thread & 1 == 1
                } else {
                    store.thread == thread
                };
                if !certain {
                    left.push(store);
                    continue;
                }
                durable.store(*line, store.mask, &store.bytes, store.site.stores());
                if store.mask == u64::MAX {
                    durable.renew(*line);
                }
                // What lies below it can't show any more.
                for earlier in &mut left {
                    earlier.mask &= !store.mask;
                }
                left.retain(|earlier| earlier.mask != 0);
            }
            *stores = left;
            !stores.is_empty()
        });
    }
}

impl Medium for Simulated {
    type Window = ();

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn losses(&self) -> Option<Losses> {
        self.state.lock().told.losses
    }

    fn for_each_listed_bad(&self, each: &mut dyn FnMut(u64, u64)) {
        if let Some(at) = self.listed_bad() {
            each(at, PAGE);
        }
    }

    fn for_each_held(&self, each: &mut dyn FnMut(u64, u64)) {
        if let Some((at, len)) = self.held() {
            each(at, len);
        }
    }

    fn open(&self) {}

    fn close(&self, _window: &mut ()) {}

    fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        let mut word = [0; 8];
        assert!(at.is_multiple_of(8), "unaligned word load at {at:#x}");
        self.load(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        assert!(self.inside(at, into.len() as u64), "bad load at {at:#x}");
        let mut state = self.state.lock();
        state.loads += 1;
        let most = if state.tracked { LOADS_MAX } else { STATE_LOADS_MAX };
        assert!(state.loads < most, "{most} loads: this does not end");
        let State { seen, watches, own, .. } = &mut *state;
        let mut looked_at = |len| watches.iter_mut().for_each(|watch| watch.loaded(at, len, own));
        if let Some(line) = seen.first_bad(at - at % LINE..at + into.len() as u64) {
            // (That it can't be loaded is what is seen of it.)
            looked_at((line + 1).max(at + 1) - at);
            return Err(MediaError::Poisoned { at: at.max(line) });
        }
        seen.load(at, into);
        looked_at(into.len() as u64);
        Ok(())
    }

    #[track_caller]
    fn store_word(&self, _window: &mut (), at: u64, value: u64) {
        assert!(at.is_multiple_of(8), "unaligned word {at:#x}");
        self.put(at, &value.to_le_bytes(), Way::Cached, Site::of_caller());
    }

    #[track_caller]
    fn store_bytes(&self, _window: &mut (), at: u64, bytes: &[u8]) {
        let inside = at % 8 + bytes.len() as u64 <= 8;
        assert!(inside && !bytes.is_empty(), "store of bytes across words at {at:#x}");
        self.put(at, bytes, Way::Cached, Site::of_caller());
    }

    #[track_caller]
    fn store_line(&self, _window: &mut (), at: u64, line: &Line) {
        assert!(at.is_multiple_of(LINE), "unaligned line {at:#x}");
        let way = if self.rules.whole_lines { Way::Whole } else { Way::Words };
        self.put(at, &line.0, way, Site::of_caller());
    }

    #[track_caller]
    fn store_lines(&self, _window: &mut (), at: u64, lines: &[[u8; LINE_BYTES]]) {
        assert!(at.is_multiple_of(LINE), "unaligned line {at:#x}");
        assert!(self.inside(at, lines.as_flattened().len() as u64), "lines outside the region");
        let site = Site::of_caller();
        if self.state.lock().stored_plainly(at, lines) {
            return;
        }
        let way = if self.rules.whole_lines { Way::Whole } else { Way::Words };
        for (at, line) in (at..).step_by(LINE_BYTES).zip(lines) {
            self.put(at, line, way, site);
        }
    }

    #[track_caller]
    fn stream_word(&self, _window: &mut (), at: u64, value: u64) {
        assert!(at.is_multiple_of(8), "unaligned word {at:#x}");
        self.put(at, &value.to_le_bytes(), Way::Words, Site::of_caller());
    }

    #[track_caller]
    fn write_back(&self, _window: &mut (), at: u64) {
        assert!(at < self.bytes, "write-back outside the region");
        let left_out = LeftOut::WriteBack(Site::of_caller());
        let mut state = self.state.lock();
        if !state.tracked {
            return;
        }
        *state.sites.entry(left_out).or_default() += 1;
        if self.rules.left_out == Some(left_out) {
            return;
        }
        let thread = this_thread();
        if let Some(stores) = state.pending.get_mut(&(at - at % LINE)) {
            for store in stores.iter_mut().filter(|store| store.way == Way::Cached) {
                store.written_back_by |= 1 << thread;
            }
        }
    }

    #[track_caller]
    fn fence(&self) -> Result<(), MediaError> {
        crate::schedule::point();
        let site = Site::of_caller();
        let left_out = LeftOut::Fence(site);
        let mut state = self.state.lock();
        if !state.tracked {
            return Ok(());
        }
        *state.sites.entry(left_out).or_default() += 1;
        // Where stores are durable in their order, a fence is only a place to look from.
        if self.rules.left_out == Some(left_out) && self.rules.profile != Profile::Eadr {
            return Ok(());
        }
        if state.recording {
            let point = state.point(Some(site));
            state.points.push(point);
        }
        match self.rules.profile {
            Profile::Adr => state.fence(this_thread()),
            Profile::Eadr | Profile::File => state.settle(),
        }
        Ok(())
    }

    fn fence_can_fail(&self) -> bool {
        self.rules.profile == Profile::File
    }
}
