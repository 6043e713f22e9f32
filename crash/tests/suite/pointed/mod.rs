//! A medium of plain memory whose stores and fences are switch points, and loads where that is wanted.

use lode_crash::schedule::point;
use lode_pmem::{LINE_BYTES, Line, MediaError, Medium};
use lode_testkit::Memory;

/// Memory with switch points before each fence and, if wanted, each store and write-back, and before and in the middle of
/// each load of more than a line.
#[derive(Clone, Debug)]
pub struct Pointed {
    pub memory: Memory,
    pub at_stores: bool,
    pub at_loads: bool,
}

impl Pointed {
    #[track_caller]
    fn store(&self) {
        if self.at_stores {
            point();
        }
    }
}

impl Medium for Pointed {
    type Window = ();

    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn open(&self) {}

    fn close(&self, _window: &mut ()) {}

    fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        self.memory.load_word(at)
    }

    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        if !self.at_loads || into.len() <= LINE_BYTES {
            return self.memory.load(at, into);
        }
        let (first, last) = into.split_at_mut(into.len() / 4);
        point();
        self.memory.load(at, first)?;
        point();
        self.memory.load(at + first.len() as u64, last)
    }

    #[track_caller]
    fn store_word(&self, window: &mut (), at: u64, value: u64) {
        self.store();
        self.memory.store_word(window, at, value);
    }

    #[track_caller]
    fn store_bytes(&self, window: &mut (), at: u64, bytes: &[u8]) {
        self.store();
        self.memory.store_bytes(window, at, bytes);
    }

    #[track_caller]
    fn store_line(&self, window: &mut (), at: u64, line: &Line) {
        self.store();
        self.memory.store_line(window, at, line);
    }

    #[track_caller]
    fn stream_word(&self, window: &mut (), at: u64, value: u64) {
        self.store();
        self.memory.stream_word(window, at, value);
    }

    #[track_caller]
    fn write_back(&self, window: &mut (), at: u64) {
        self.store();
        self.memory.write_back(window, at);
    }

    #[track_caller]
    fn fence(&self) -> Result<(), MediaError> {
        point();
        self.memory.fence()
    }

    fn fence_can_fail(&self) -> bool {
        self.memory.fence_can_fail()
    }
}
