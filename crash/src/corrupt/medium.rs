//! A medium that is damaged from outside: at once, or at a load that is yet to come.
//!
//! What this file guarantees: the damage is whole between two loads, and what it does follows from the damage
//! and the bytes that are there.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lode_pmem::{LINE_BYTES, Line, MediaError, Medium};
use lode_testkit::rng::Rng;
use lode_testkit::{Healing, Poisoned};
use parking_lot::Mutex;

use super::damage::{Damage, Fill, Stroke};
use crate::region::{Pages, Simulated, Stored};

const LINE: u64 = LINE_BYTES as u64;
/// A store looks at memory as many loads ahead: of both tables, what eight pages keep there.
const AHEAD: u64 = 16;

/// The medium. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Struck {
    memory: Simulated,
    poisoned: Poisoned<Simulated>,
    blow: Arc<Blow>,
}

#[derive(Debug)]
struct Blow {
    /// What was loaded last before the damage came in the midst of loads: which load it was, and of what.
    looked: Mutex<VecDeque<(u64, Range<u64>)>>,
    /// Stores of less than a line to memory that had been looked at right before, and went bad in between.
    excused: AtomicU64,
    /// Loads until it comes; `u64::MAX` for never.
    loads_left: AtomicU64,
    loads: AtomicU64,
    damage: Mutex<Option<Damage>>,
}

impl Struck {
    /// A medium that holds `pages`.
    pub(super) fn new(pages: Pages, healing: Healing) -> Self {
        let memory = Simulated::plain(&pages);
        let poisoned = Poisoned::new(memory.clone(), healing);
        let loads_left = AtomicU64::new(u64::MAX);
        let (looked, excused) = (Mutex::default(), AtomicU64::new(0));
        let (loads, damage) = (AtomicU64::new(0), Mutex::new(None));
        let blow = Blow { loads_left, loads, damage, looked, excused };
        Self { memory, poisoned, blow: Arc::new(blow) }
    }

    /// Another one that holds the same, with the same lines bad, as the next program finds it.
    pub(super) fn again(&self, healing: Healing) -> Self {
        let again = Self::new(self.memory.seen(), healing);
        self.poisoned.bad().into_iter().for_each(|line| again.poisoned.poison(line, 1));
        again
    }

    /// Damages it now.
    pub(super) fn strike(&self, damage: &Damage) {
        let mut pages = self.memory.seen();
        for stroke in &damage.strokes {
            match stroke {
                Stroke::Poison { at, len } => self.poisoned.poison(*at, *len),
                Stroke::Flip { at, bits } => {
                    let mut byte = [0];
                    pages.load(*at, &mut byte);
                    put(&mut pages, *at, &[byte[0] ^ bits]);
                }
                Stroke::Bytes { at, len, fill } => {
                    let bytes = filled(&pages, *len, *fill);
                    put(&mut pages, *at, &bytes);
                }
            }
        }
        self.memory.crash(pages);
    }

    /// Damages it after so many loads.
    pub(super) fn strike_at(&self, loads: u64, damage: &Damage) {
        *self.blow.damage.lock() = Some(damage.clone());
        self.blow.loads_left.store(loads, Relaxed);
    }

    /// Loads so far.
    pub(super) fn loads(&self) -> u64 {
        self.blow.loads.load(Relaxed)
    }

    /// Damage that has not come yet comes now.
    pub(super) fn strike_late(&self) {
        self.blow.loads_left.store(u64::MAX, Relaxed);
        let damage = self.blow.damage.lock().take();
        if let Some(damage) = damage {
            self.strike(&damage);
        }
    }

    /// Stores that would have killed the program on real hardware, but for those that nothing can look ahead of.
    pub(super) fn machine_checks(&self) -> u64 {
        self.poisoned.machine_checks() - self.blow.excused.load(Relaxed)
    }

    /// Store instructions so far.
    pub(super) fn stores(&self) -> u64 {
        self.memory.stores()
    }

    fn count(&self, at: u64, bytes: u64) {
        let number = self.blow.loads.fetch_add(1, Relaxed);
        let range = at - at % LINE..at + bytes;
        match self.blow.loads_left.load(Relaxed) {
            u64::MAX => self.looks_again(&range),
            0 => {
                self.strike_late();
                self.looks_again(&range);
            }
            left => {
                self.blow.loads_left.store(left - 1, Relaxed);
                let mut looked = self.blow.looked.lock();
                looked.push_back((number, range));
                if looked.len() as u64 > AHEAD {
                    looked.pop_front();
                }
            }
        }
    }

    /// Who loads it now can know what it is.
    fn looks_again(&self, range: &Range<u64>) {
        let meets = |seen: &Range<u64>| seen.start < range.end && range.start < seen.end;
        self.blow.looked.lock().retain(|(_, seen)| !meets(seen));
    }

    /// Stores less than a line.
    fn store_part(&self, at: u64, store: impl FnOnce()) {
        let before = self.poisoned.machine_checks();
        store();
        if self.poisoned.machine_checks() > before {
            let now = self.blow.loads.load(Relaxed);
            let is_ahead = |(number, seen): &(u64, Range<u64>)| {
                seen.contains(&(at - at % LINE)) && now - number <= AHEAD
            };
            let is_excused = self.blow.looked.lock().iter().any(is_ahead);
            self.blow.excused.fetch_add(u64::from(is_excused), Relaxed);
        }
    }
}

/// Changes bytes.
pub(super) fn put(pages: &mut Pages, at: u64, bytes: &[u8]) {
    let end = at + bytes.len() as u64;
    let mut line = at - at % LINE;
    while line < end {
        let (from, to) = (at.max(line), end.min(line + LINE));
        let mut content = [0; LINE_BYTES];
        let piece = &bytes[(from - at) as usize..(to - at) as usize];
        content[(from - line) as usize..(to - line) as usize].copy_from_slice(piece);
        let mask = (u64::MAX >> (LINE - (to - from))) << (from - line);
        pages.store(line, mask, &content, Stored::Metadata);
        line += LINE;
    }
}

fn filled(pages: &Pages, len: u64, fill: Fill) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    match fill {
        Fill::Zeros => {}
        Fill::Ones => bytes.fill(0xff),
        Fill::Random(seed) => {
            let mut rng = Rng::new(seed);
            bytes.chunks_mut(8).for_each(|word| {
                let random = rng.bits().to_le_bytes();
                word.copy_from_slice(&random[..word.len()]);
            });
        }
        Fill::Elsewhere(from) => pages.load(from, &mut bytes),
    }
    bytes
}

impl Medium for Struck {
    type Window = ();

    fn bytes(&self) -> u64 {
        self.poisoned.bytes()
    }

    fn open(&self) {}

    fn close(&self, _window: &mut ()) {}

    fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        self.count(at, 8);
        self.poisoned.load_word(at)
    }

    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.count(at, into.len() as u64);
        self.poisoned.load(at, into)
    }

    fn store_word(&self, window: &mut (), at: u64, value: u64) {
        self.store_part(at, || self.poisoned.store_word(window, at, value));
    }

    fn store_bytes(&self, window: &mut (), at: u64, bytes: &[u8]) {
        self.store_part(at, || self.poisoned.store_bytes(window, at, bytes));
    }

    #[track_caller]
    fn store_line(&self, window: &mut (), at: u64, line: &Line) {
        self.poisoned.store_line(window, at, line);
    }

    fn stream_word(&self, window: &mut (), at: u64, value: u64) {
        self.store_part(at, || self.poisoned.stream_word(window, at, value));
    }

    #[track_caller]
    fn write_back(&self, window: &mut (), at: u64) {
        self.poisoned.write_back(window, at);
    }

    #[track_caller]
    fn fence(&self) -> Result<(), MediaError> {
        self.poisoned.fence()
    }

    fn fence_can_fail(&self) -> bool {
        false
    }
}
