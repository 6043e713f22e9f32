//! The simulated memory as that of a raw region.
//!
//! It does what the CPU does, and no more: a fence is one of the memory, but over an ordinary file, where only the system's call makes
//! anything durable; a thread's plain stores are seen by others when it fences, or when it says that its write has ended by an
//! instruction that has them seen, and may be as late as that.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use lode_crash::region::{Profile, Simulated};
use lode_pmem::{Line, Medium, RawError, RawLines, RawMemory, RawPlace, RawRule, RegionKind};

/// No wait is longer.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Held {
    /// The beginning of the name of the thread that is to be held; empty for none.
    who: &'static str,
    is_there: bool,
    /// Its plain stores, where nobody sees them yet.
    late: Vec<(u64, Vec<[u8; 8]>)>,
}

/// Holds one thread until another one waits for it, or does not.
#[derive(Default)]
pub(super) struct Meeting {
    held: Mutex<Held>,
    changed: Condvar,
}

impl Meeting {
    /// From now on the thread is held: a writer where its write ends, who writes buffers where it begins.
    pub(super) fn hold(&self, who: &'static str) {
        *self.held.lock().unwrap() = Held { who, ..Held::default() };
    }

    /// Waits until the thread is held.
    pub(super) fn wait(&self) {
        let held = self.held.lock().unwrap();
        let waits = |held: &mut Held| !held.is_there && !held.who.is_empty();
        let (_held, waited) = self.changed.wait_timeout_while(held, PATIENCE, waits).unwrap();
        assert!(!waited.timed_out(), "the thread that was to be held did not come");
    }

    /// It goes on.
    pub(super) fn release(&self) {
        self.held.lock().unwrap().who = "";
        self.changed.notify_all();
    }

    fn is_held(held: &Held) -> bool {
        let thread = std::thread::current();
        !held.who.is_empty() && thread.name().is_some_and(|name| name.starts_with(held.who))
    }

    /// Is there, and goes on when it may.
    fn comes(&self) {
        let mut held = self.held.lock().unwrap();
        if !Self::is_held(&held) {
            return;
        }
        held.is_there = true;
        self.changed.notify_all();
        let (_held, waited) =
            self.changed.wait_timeout_while(held, PATIENCE, |held| Self::is_held(held)).unwrap();
        assert!(!waited.timed_out(), "nobody let the thread go on");
    }
}

/// The name of the thread that writes beside a barrier.
pub(super) const WRITER: &str = "writer";
/// What those that write buffers are called.
pub(super) const SYNCER: &str = "syncer";

/// The memory. Clones share it.
#[derive(Clone)]
pub(super) struct Memory {
    pub(super) medium: Simulated,
    profile: Profile,
    left_out: Option<RawRule>,
    pub(super) meeting: Arc<Meeting>,
}

impl Memory {
    pub(super) fn new(medium: Simulated, profile: Profile, left_out: Option<RawRule>) -> Self {
        Self { medium, profile, left_out, meeting: Arc::default() }
    }

    /// What this thread has stored is seen by all.
    fn show_late(&self) {
        let thread = std::thread::current();
        if thread.name() != Some(WRITER) {
            return;
        }
        let late = std::mem::take(&mut self.meeting.held.lock().unwrap().late);
        for (at, words) in late {
            self.medium.store_words(&mut (), at, &words);
        }
    }
}

pub(super) struct Lines {
    memory: Memory,
    base: u64,
}

impl RawLines for Lines {
    #[track_caller]
    fn stream(&mut self, at: u64, lines: &[[u8; 64]]) {
        let mut place = self.base + at;
        for line in lines {
            self.memory.medium.store_line(&mut (), place, &Line(*line));
            place += 64;
        }
    }

    #[track_caller]
    fn store(&mut self, at: u64, words: &[[u8; 8]]) {
        let mut held = self.memory.meeting.held.lock().unwrap();
        if held.who == WRITER && Meeting::is_held(&held) {
            held.late.push((self.base + at, words.to_vec()));
            return;
        }
        drop(held);
        self.memory.medium.store_words(&mut (), self.base + at, words);
    }

    #[track_caller]
    fn write_back(&mut self, at: u64, len: u64) {
        // (A thread sees its own stores.)
        self.memory.show_late();
        let mut place = self.base + at;
        while place < self.base + at + len {
            self.memory.medium.write_back(&mut (), place);
            place += 64;
        }
    }
}

impl RawMemory for Memory {
    type Lines = Lines;

    fn bytes(&self) -> u64 {
        self.medium.bytes()
    }

    fn kind(&self) -> RegionKind {
        match self.profile {
            Profile::File => RegionKind::File,
            Profile::Adr | Profile::Eadr => RegionKind::DaxFile,
        }
    }

    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), RawError> {
        self.medium.load(at, into).map_err(RawError::Media)
    }

    fn for_stores<E: From<RawError>>(
        &self,
        at: u64,
        len: u64,
        store: impl FnOnce(&mut Lines) -> Result<(), E>,
    ) -> Result<(), E> {
        assert!(at + len <= self.bytes());
        if std::thread::current().name().is_some_and(|name| name.starts_with(SYNCER)) {
            self.meeting.comes();
        }
        store(&mut Lines { memory: self.clone(), base: at })
    }

    fn for_write_back(
        &self,
        at: u64,
        _len: u64,
        write_back: impl FnOnce(&mut Lines),
    ) -> Result<(), RawError> {
        write_back(&mut Lines { memory: self.clone(), base: at });
        Ok(())
    }

    #[track_caller]
    fn fence(&self) {
        self.show_late();
        if self.profile != Profile::File {
            self.medium.fence().expect("this memory's fences do not fail");
        }
    }

    #[track_caller]
    fn sync_file(&self) -> io::Result<()> {
        self.medium.fence().map_err(io::Error::other)
    }

    fn keeps(&self, rule: RawRule) -> bool {
        self.left_out != Some(rule)
    }

    fn reached(&self, place: RawPlace) {
        match place {
            RawPlace::WriteEnds if std::thread::current().name() == Some(WRITER) => {
                self.meeting.comes();
                self.show_late();
            }
            RawPlace::WriteEnds => {}
            RawPlace::BarrierWaits => self.meeting.release(),
        }
    }
}
