//! A medium that keeps apart what is stored and what is durable.
//!
//! The model is that of a CPU whose caches a power cut empties (ADR):
//!
//! * Cached stores to a line reach the memory in their order: after a cut, any prefix of
//!   them is there. Eviction may write a line back at any time.
//! * Streaming stores reach it in any order, 8-byte word by word (or line by line, where
//!   the CPU stores a line in one piece).
//! * A fence makes certain what its own thread has streamed, and what the lines held
//!   when its own thread last started their write-back.
//! * Of two stores to the same bytes, the later one stays, where both got there.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::thread::ThreadId;

use lode_engine::Rule;
use lode_pmem::{LINE_BYTES, Line, MediaError, Medium};
use parking_lot::Mutex;

use crate::pages::Pages;

const LINE: u64 = LINE_BYTES as u64;

/// How a CPU streams a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineStores {
    /// As eight words.
    Words,
    /// In one piece.
    Whole,
}

/// How a store goes to the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Through the cache.
    Cached,
    /// Past the cache, each 8-byte word by itself.
    Words,
    /// Past the cache, in one piece.
    Whole,
}

/// A store that is not certain to be durable.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Position among all stores.
    pub number: u64,
    /// Offset of its line.
    pub line: u64,
    /// Its bytes in the line, one bit each.
    pub mask: u64,
    /// The line's bytes, where `mask` names them.
    pub bytes: [u8; LINE_BYTES],
    /// How it goes to the memory.
    pub way: Way,
    /// The code that stored it.
    pub site: Site,
    thread: ThreadId,
    written_back_by: Vec<ThreadId>,
}

/// A place in the code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Site {
    /// File, as the compiler names it.
    pub file: &'static str,
    /// Line.
    pub line: u32,
}

impl Site {
    #[track_caller]
    fn of_caller() -> Self {
        let location = Location::caller();
        Self { file: location.file(), line: location.line() }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A moment at which the power may fail.
#[derive(Clone, Debug)]
pub struct Point {
    /// The fence that was just about to take effect; `None` between operations.
    pub fence: Option<Site>,
    /// What is durable for certain.
    pub durable: Pages,
    /// What may be, in the order of the stores.
    pub pending: Vec<Pending>,
}

/// An instruction that a mutant leaves out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LeftOut {
    /// Every fence of a place in the code.
    Fence(Site),
    /// Every write-back of a place in the code.
    WriteBack(Site),
    /// A rule of the engine's.
    Rule(Rule),
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeftOut::Fence(site) => write!(f, "without the fence of {site}"),
            LeftOut::WriteBack(site) => write!(f, "without the write-back of {site}"),
            LeftOut::Rule(rule) => write!(f, "without the rule {}: {}", rule.name(), rule.what()),
        }
    }
}

/// The medium. Clones share the region.
#[derive(Clone, Debug)]
pub struct Simulated {
    bytes: u64,
    line_stores: LineStores,
    left_out: Option<LeftOut>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// What loads see.
    seen: Pages,
    durable: Pages,
    pending: BTreeMap<u64, Vec<Pending>>,
    stores: u64,
    recording: bool,
    points: Vec<Point>,
    /// How often each place fenced or wrote back.
    sites: BTreeMap<LeftOut, u64>,
}

impl Simulated {
    /// A region that durably holds `pages`.
    pub fn new(pages: Pages, line_stores: LineStores) -> Self {
        let state = State {
            seen: pages.clone(),
            durable: pages,
            pending: BTreeMap::new(),
            stores: 0,
            recording: false,
            points: Vec::new(),
            sites: BTreeMap::new(),
        };
        let bytes = state.seen.bytes();
        Self { bytes, line_stores, left_out: None, state: Arc::new(Mutex::new(state)) }
    }

    /// The same region, without certain instructions from now on (for all later clones).
    pub fn leaving_out(self, left_out: Option<LeftOut>) -> Self {
        Self { left_out, ..self }
    }

    /// Begins or ends to note a [`Point`] at each fence.
    pub fn record(&self, on: bool) {
        self.state.lock().recording = on;
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
        state.stores += 1;
        let number = state.stores;
        state.seen.store(line, mask, &content);
        let thread = std::thread::current().id();
        let store = Pending {
            number,
            line,
            mask,
            bytes: content,
            way,
            site,
            thread,
            written_back_by: Vec::new(),
        };
        state.pending.entry(line).or_default().push(store);
    }
}

impl State {
    fn point(&self, fence: Option<Site>) -> Point {
        let mut pending: Vec<Pending> = self.pending.values().flatten().cloned().collect();
        pending.sort_by_key(|store| store.number);
        Point { fence, durable: self.durable.clone(), pending }
    }

    /// Makes durable what `thread` has streamed and written back.
    fn fence(&mut self, thread: ThreadId) {
        let durable = &mut self.durable;
        self.pending.retain(|line, stores| {
            let mut left: Vec<Pending> = Vec::new();
            for store in stores.drain(..) {
                let certain = if store.way == Way::Cached {
                    store.written_back_by.contains(&thread)
                } else {
                    store.thread == thread
                };
                if !certain {
                    left.push(store);
                    continue;
                }
                durable.store(*line, store.mask, &store.bytes);
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

    fn open(&self) {}

    fn close(&self, _window: &mut ()) {}

    fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        assert!(at.is_multiple_of(8) && self.inside(at, 8), "bad word load at {at:#x}");
        let mut word = [0; 8];
        self.state.lock().seen.load(at, &mut word);
        Ok(u64::from_le_bytes(word))
    }

    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        assert!(self.inside(at, into.len() as u64), "bad load at {at:#x}");
        self.state.lock().seen.load(at, into);
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
        let way = match self.line_stores {
            LineStores::Whole => Way::Whole,
            LineStores::Words => Way::Words,
        };
        self.put(at, &line.0, way, Site::of_caller());
    }

    #[track_caller]
    fn stream_word(&self, _window: &mut (), at: u64, value: u64) {
        assert!(at.is_multiple_of(8), "unaligned word {at:#x}");
        self.put(at, &value.to_le_bytes(), Way::Words, Site::of_caller());
    }

    #[track_caller]
    fn write_back(&self, at: u64) {
        assert!(at < self.bytes, "write-back outside the region");
        let left_out = LeftOut::WriteBack(Site::of_caller());
        let thread = std::thread::current().id();
        let mut state = self.state.lock();
        *state.sites.entry(left_out).or_default() += 1;
        if self.left_out == Some(left_out) {
            return;
        }
        if let Some(stores) = state.pending.get_mut(&(at - at % LINE)) {
            for store in stores.iter_mut().filter(|store| store.way == Way::Cached) {
                if !store.written_back_by.contains(&thread) {
                    store.written_back_by.push(thread);
                }
            }
        }
    }

    #[track_caller]
    fn fence(&self) -> Result<(), MediaError> {
        let site = Site::of_caller();
        let left_out = LeftOut::Fence(site);
        let mut state = self.state.lock();
        *state.sites.entry(left_out).or_default() += 1;
        if self.left_out == Some(left_out) {
            return Ok(());
        }
        if state.recording {
            let point = state.point(Some(site));
            state.points.push(point);
        }
        state.fence(std::thread::current().id());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Simulated {
        Simulated::new(Pages::new(8192), LineStores::Words)
    }

    fn durable_word(medium: &Simulated, at: u64) -> u64 {
        let mut word = [0; 8];
        medium.point().durable.load(at, &mut word);
        u64::from_le_bytes(word)
    }

    #[test]
    fn a_fence_makes_durable_what_was_streamed_and_what_was_written_back() {
        let medium = region();
        medium.stream_word(&mut (), 8, 1);
        medium.store_word(&mut (), 64, 2);
        medium.store_word(&mut (), 128, 3);
        medium.write_back(128);
        medium.store_word(&mut (), 136, 4);
        assert_eq!(medium.load_word(64), Ok(2));
        assert_eq!(medium.point().pending.len(), 4);
        medium.fence().unwrap();
        assert_eq!([8, 64, 128, 136].map(|at| durable_word(&medium, at)), [1, 0, 3, 0]);
        assert_eq!(medium.point().pending.len(), 2);
    }

    #[test]
    fn a_fence_does_nothing_for_the_stores_of_another_thread() {
        let medium = region();
        medium.stream_word(&mut (), 0, 1);
        medium.store_word(&mut (), 64, 2);
        medium.write_back(64);
        medium.store_word(&mut (), 128, 3);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                medium.write_back(128);
                medium.fence().unwrap();
            });
        });
        assert_eq!([0, 64, 128].map(|at| durable_word(&medium, at)), [0, 0, 3]);
    }

    #[test]
    fn a_later_store_hides_an_earlier_one_of_the_same_bytes() {
        let medium = region();
        medium.store_word(&mut (), 0, u64::MAX);
        medium.store_word(&mut (), 8, 7);
        medium.stream_word(&mut (), 0, 5);
        medium.fence().unwrap();
        let point = medium.point();
        assert_eq!((durable_word(&medium, 0), point.pending.len()), (5, 1));
        medium.write_back(0);
        medium.fence().unwrap();
        assert_eq!((durable_word(&medium, 0), durable_word(&medium, 8)), (5, 7));
        assert!(medium.point().durable == medium.seen());
    }

    #[test]
    fn a_left_out_fence_is_no_fence() {
        let medium = region();
        medium.stream_word(&mut (), 0, 1);
        medium.fence().unwrap();
        let sites = medium.sites();
        let (site, count) = sites.iter().next().unwrap();
        assert!(
            *count == 1
                && matches!(site, LeftOut::Fence(site) if site.file.ends_with("simulated.rs"))
        );
    }
}
