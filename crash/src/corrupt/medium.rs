//! A medium that is damaged from outside: at once, or at a load that is yet to come.
//!
//! What this file guarantees: the damage is whole between two loads, and what it does follows from the damage
//! and the bytes that are there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lode_pmem::{LINE_BYTES, Line, MediaError, Medium};
use lode_testkit::rng::Rng;
use lode_testkit::{Healing, Poisoned};
use parking_lot::Mutex;

use super::damage::{Damage, Fill, Stroke};
use crate::region::{Pages, Simulated, Stored};

const LINE: u64 = LINE_BYTES as u64;

/// The medium. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Struck {
    memory: Simulated,
    poisoned: Poisoned<Simulated>,
    blow: Arc<Blow>,
}

#[derive(Debug)]
struct Blow {
    /// Loads until it comes; `u64::MAX` for never.
    loads_left: AtomicU64,
    loads: AtomicU64,
    damage: Mutex<Option<Damage>>,
}

impl Struck {
    /// A medium that holds `pages`.
    pub(super) fn new(pages: Pages, healing: Healing) -> Self {
        let memory = Simulated::plain(pages);
        let poisoned = Poisoned::new(memory.clone(), healing);
        let loads_left = AtomicU64::new(u64::MAX);
        let blow = Blow { loads_left, loads: AtomicU64::new(0), damage: Mutex::new(None) };
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

    /// Stores that would have killed the program on real hardware.
    pub(super) fn machine_checks(&self) -> u64 {
        self.poisoned.machine_checks()
    }

    /// Store instructions so far.
    pub(super) fn stores(&self) -> u64 {
        self.memory.stores()
    }

    fn count(&self) {
        self.blow.loads.fetch_add(1, Relaxed);
        match self.blow.loads_left.load(Relaxed) {
            u64::MAX => {}
            0 => self.strike_late(),
            left => self.blow.loads_left.store(left - 1, Relaxed),
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
        self.count();
        self.poisoned.load_word(at)
    }

    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.count();
        self.poisoned.load(at, into)
    }

    #[track_caller]
    fn store_word(&self, window: &mut (), at: u64, value: u64) {
        self.poisoned.store_word(window, at, value);
    }

    #[track_caller]
    fn store_bytes(&self, window: &mut (), at: u64, bytes: &[u8]) {
        self.poisoned.store_bytes(window, at, bytes);
    }

    #[track_caller]
    fn store_line(&self, window: &mut (), at: u64, line: &Line) {
        self.poisoned.store_line(window, at, line);
    }

    #[track_caller]
    fn stream_word(&self, window: &mut (), at: u64, value: u64) {
        self.poisoned.stream_word(window, at, value);
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
