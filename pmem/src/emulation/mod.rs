//! Slower media, emulated: every call of the door takes as long as it would there.
//!
//! * `profile`: the words. `clock`: waiting for some nanoseconds. `measure`: this machine's bandwidth.
//! * [`Emulation`]: when a medium so slow would have answered.

mod clock;
mod measure;
mod profile;

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::LINE_BYTES;
use crate::flush::{CpuFeatures, FlushStrategy, LineStore};

pub(crate) use clock::Clock;
pub use profile::{Bandwidth, Emulated, NoBandwidth, Profile, UnknownProfile};

/// Lines that a CPU loads at the same time.
const PARALLEL_LINES: f64 = 16.0;
/// A medium that was busy for less than one of so many parts of a time was not in anybody's way.
const IDLE_PARTS: u64 = 6;

/// What a window has stored, for the bandwidth.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// When it was opened.
    since: u64,
    /// Streamed or written back.
    bytes: u64,
}

impl Taken {
    #[inline(always)]
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

/// A medium that is emulated by waiting.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Emulation {
    emulated: Emulated,
    clock: Clock,
    /// For a load of one line.
    load_ticks: Option<u64>,
    further_line_ticks: f64,
    fence_ticks: Option<u64>,
    /// 0 for no limit.
    ticks_per_byte: f64,
    /// When the medium will have taken all that it was given.
    idle_at: AtomicU64,
    /// An `idle_at` that was seen to have passed: nobody has to look at the clock for it again.
    passed: AtomicU64,
}

impl Emulation {
    /// A medium of this profile.
    ///
    /// # Errors
    /// If there is no memory to measure the bandwidth of.
    pub(crate) fn new(profile: Profile) -> io::Result<Self> {
        let write_bytes_per_s = match profile.write {
            None => None,
            Some(Bandwidth::Megabytes(megabytes)) => Some(u64::from(megabytes.get()) * 1_000_000),
            Some(Bandwidth::PartOfMachine(part)) => {
                let all = measure::streamed_bytes_per_s(best_line_store())?;
                Some((all / u64::from(part.get())).max(1))
            }
        };
        let clock = Clock::measured_anew();
        let read_ns = f64::from(profile.read_ns);
        let byte_ns = write_bytes_per_s.map_or(0.0, |bytes| 1e9 / bytes as f64);
        Ok(Self {
            emulated: Emulated { profile, write_bytes_per_s },
            clock,
            load_ticks: clock.ticks_to_delay(read_ns),
            further_line_ticks: clock.ticks(read_ns) as f64 / PARALLEL_LINES,
            fence_ticks: clock.ticks_to_delay(f64::from(profile.fence_ns)),
            ticks_per_byte: byte_ns * clock.ticks_per_ns,
            idle_at: AtomicU64::new(0),
            passed: AtomicU64::new(0),
        })
    }

    pub(crate) fn emulated(&self) -> Emulated {
        self.emulated
    }

    /// A load of `bytes` bytes is to be done.
    #[cold]
    pub(crate) fn before_load(&self, bytes: u64) {
        let Some(load_ticks) = self.load_ticks.filter(|_| bytes > 0) else {
            return;
        };
        let further_lines = bytes.div_ceil(LINE_BYTES as u64) - 1;
        let further_ticks = (further_lines as f64 * self.further_line_ticks) as u64;
        self.clock.delay(load_ticks.saturating_add(further_ticks));
    }

    /// A window is opened.
    #[cold]
    pub(crate) fn opened(&self) -> Taken {
        // The first since a fence says when the medium had something to take.
        let is_first = self.ticks_per_byte > 0.0 && UNFENCED.get().of != self.name();
        Taken { since: if is_first { self.clock.now() } else { 0 }, bytes: 0 }
    }

    /// The window is closed. What was stored waits for the thread's next fence to be counted: an atomic
    /// change before that would itself wait until all that was streamed has reached the memory.
    #[cold]
    pub(crate) fn closed(&self, taken: &Taken) {
        if self.ticks_per_byte == 0.0 || taken.bytes == 0 {
            return;
        }
        let before = UNFENCED.get();
        if before.of == self.name() {
            let bytes = before.taken.bytes + taken.bytes;
            UNFENCED.set(Unfenced { taken: Taken { bytes, ..before.taken }, ..before });
        } else if before.of == 0 {
            UNFENCED.set(Unfenced { of: self.name(), taken: *taken });
        } else {
            // Of another medium something waits for its fence.
            self.queue(taken, self.clock.now());
        }
    }

    /// The medium begins with what was stored when it has taken all that came before, and no earlier
    /// than there was something to take.
    fn queue(&self, taken: &Taken, now: u64) {
        let ticks = (taken.bytes as f64 * self.ticks_per_byte) as u64;
        // What the medium does in a small part of the time leaves it to others, too, and nobody has to
        // wait: the atomic change would end what overlaps here, which takes longer than the medium does.
        let is_short = ticks.saturating_mul(IDLE_PARTS) <= now.saturating_sub(taken.since);
        if is_short && self.idle_at.load(Relaxed) <= taken.since {
            return;
        }
        let queued = |idle_at: u64| Some(idle_at.max(taken.since).saturating_add(ticks));
        // It is never refused.
        self.idle_at.fetch_update(Relaxed, Relaxed, queued).ok();
    }

    /// Tells it from others.
    #[inline]
    fn name(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Counts what the thread has stored, and waits until the medium has taken all.
    fn wait_until_idle(&self) {
        let unfenced = UNFENCED.get();
        let idle_at = self.idle_at.load(Relaxed);
        let stored = unfenced.of == self.name();
        if !stored && idle_at == self.passed.load(Relaxed) {
            return;
        }
        let now = self.clock.now();
        if stored {
            UNFENCED.set(Unfenced::default());
            self.queue(&unfenced.taken, now);
        }
        let idle_at = self.idle_at.load(Relaxed);
        if idle_at > now {
            self.clock.wait(idle_at);
        }
        self.passed.store(idle_at, Relaxed);
    }

    /// A fence has been done.
    #[cold]
    pub(crate) fn fenced(&self) {
        if self.ticks_per_byte > 0.0 {
            self.wait_until_idle();
        }
        if let Some(fence_ticks) = self.fence_ticks {
            self.clock.delay(fence_ticks);
        }
    }
}

/// What a thread has stored to a medium since its last fence.
#[derive(Clone, Copy, Default)]
struct Unfenced {
    /// The medium; 0 for none.
    of: usize,
    taken: Taken,
}

thread_local! {
    static UNFENCED: Cell<Unfenced> = const { Cell::new(Unfenced { of: 0, taken: Taken { since: 0, bytes: 0 } }) };
}

fn best_line_store() -> LineStore {
    match FlushStrategy::best(CpuFeatures::get(), false) {
        FlushStrategy::Instructions { line_store, .. } => line_store,
        FlushStrategy::Msync => LineStore::Sse2,
    }
}
