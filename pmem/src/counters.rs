//! Exact counts of what went through the door.

use alloc::collections::TryReserveError;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::wear::{Pending, Wear};

/// Counts one more, by who counts for the processor that it runs on: with no barrier, where the processor has such an instruction, so that what
/// is loaded and stored before goes on meanwhile. (Threads that count there at the same time are on another processor by now: of these, one may
/// be lost.)
#[inline]
pub fn count_here(count: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: adds to an aligned word that is borrowed for so long and is of a type that others may change meanwhile; neither the stack nor anything
    // else is touched. Who is interrupted is so before the instruction or behind it.
    unsafe {
        core::arch::asm!("inc qword ptr [{}]", in(reg) count.as_ptr(), options(nostack));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    count.fetch_add(1, Relaxed);
}

/// Monotonic counters, one set per lane so that threads do not share a line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    /// Whoever counts here does it alone.
    exclusive: bool,
    fences: AtomicU64,
    lines: AtomicU64,
    streamed_bytes: AtomicU64,
    windows: AtomicU64,
    /// Where was stored, where one counts alone.
    pending: Pending,
}

/// A reading of [`Counters`], or the sum of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Fences issued.
    pub fences: u64,
    /// Metadata lines made persistent: line stores and write-backs of cached lines.
    pub lines: u64,
    /// Bytes of file data (and zeros) streamed.
    pub streamed_bytes: u64,
    /// Write windows opened.
    pub windows: u64,
}

impl Counters {
    /// Counters at zero.
    pub const fn new() -> Self {
        Self {
            exclusive: false,
            fences: AtomicU64::new(0),
            lines: AtomicU64::new(0),
            streamed_bytes: AtomicU64::new(0),
            windows: AtomicU64::new(0),
            pending: Pending::none(),
        }
    }

    /// Counters at zero of which no two threads count at the same time: what a lock guards. Counting
    /// is a load and a store then. (Anyone may read them; if two count all the same, counts are
    /// wrong, and no more than that.)
    pub const fn exclusive() -> Self {
        let mut counters = Self::new();
        counters.exclusive = true;
        counters
    }

    /// Has what is counted of wear wait here, of a medium of so many bytes, if they are [`Counters::exclusive`].
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn hold_wear(&mut self, bytes: u64) -> Result<(), TryReserveError> {
        self.pending.make_places(bytes)
    }

    #[inline]
    fn add(&self, count: &AtomicU64, more: u64) {
        if self.exclusive {
            count.store(count.load(Relaxed) + more, Relaxed);
        } else {
            count.fetch_add(more, Relaxed);
        }
    }

    /// What has been counted so far.
    pub fn read(&self) -> Tally {
        Tally {
            fences: self.fences.load(Relaxed),
            lines: self.lines.load(Relaxed),
            streamed_bytes: self.streamed_bytes.load(Relaxed),
            windows: self.windows.load(Relaxed),
        }
    }

    /// Bytes of memory that they take beside themselves.
    pub fn memory_bytes(&self) -> u64 {
        self.pending.memory_bytes()
    }

    /// Where wear waits, if it may.
    #[inline]
    pub(crate) fn pending(&self) -> Option<&Pending> {
        self.exclusive.then_some(&self.pending)
    }

    /// A fence has ended: of what waited for it most is brought to `wear`.
    #[inline]
    pub(crate) fn settle(&self, wear: &Wear) {
        if self.exclusive {
            self.pending.settle(wear);
        }
    }

    /// All that waits is brought to `wear`.
    pub(crate) fn settle_all(&self, wear: &Wear) {
        self.pending.settle_all(wear);
    }

    #[inline]
    pub(crate) fn add_fence(&self) {
        self.add(&self.fences, 1);
    }

    #[inline]
    pub(crate) fn add_window(&self, lines: u64, streamed_bytes: u64) {
        self.add(&self.windows, 1);
        if lines > 0 {
            self.add(&self.lines, lines);
        }
        if streamed_bytes > 0 {
            self.add(&self.streamed_bytes, streamed_bytes);
        }
    }
}

impl core::ops::Add for Tally {
    type Output = Tally;
    fn add(self, other: Tally) -> Tally {
        Tally {
            fences: self.fences + other.fences,
            lines: self.lines + other.lines,
            streamed_bytes: self.streamed_bytes + other.streamed_bytes,
            windows: self.windows + other.windows,
        }
    }
}

impl core::ops::Sub for Tally {
    type Output = Tally;
    fn sub(self, other: Tally) -> Tally {
        Tally {
            fences: self.fences - other.fences,
            lines: self.lines - other.lines,
            streamed_bytes: self.streamed_bytes - other.streamed_bytes,
            windows: self.windows - other.windows,
        }
    }
}
