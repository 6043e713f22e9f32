//! Locks that a scheduled thread waits for by letting others go on.
//!
//! In a thread that is not scheduled they are plain locks for one thread: one that is not
//! free there will never be, and panics.

use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use lock_api::{GuardNoSend, RawMutex, RawRwLock};

use super::seat;
use super::state::{Claim, Mode};

/// Value of a lock that one holds alone; below, the number that read.
const ALONE: usize = usize::MAX;

/// Free, or held by one alone, or by some for reading.
#[derive(Debug)]
struct Cell(AtomicUsize);

impl Cell {
    const fn free() -> Self {
        Self(AtomicUsize::new(0))
    }

    fn take(&self, mode: Mode) -> bool {
        let taken = |value: usize| match mode {
            Mode::Read => (value < ALONE - 1).then(|| value + 1),
            Mode::Mutex | Mode::Write => (value == 0).then_some(ALONE),
        };
        self.0.fetch_update(Acquire, Relaxed, taken).is_ok()
    }

    /// Whether it is free now.
    fn give(&self, mode: Mode) -> bool {
        let given = |value: usize| match mode {
            Mode::Read => Some(value - 1),
            Mode::Mutex | Mode::Write => Some(0),
        };
        let before = self.0.fetch_update(AcqRel, Relaxed, given);
        mode != Mode::Read || before == Ok(1)
    }

    fn claim(&self, mode: Mode, at: &'static Location<'static>) -> Claim {
        Claim { lock: std::ptr::from_ref(self).addr(), mode, at }
    }

    #[track_caller]
    fn lock(&self, mode: Mode) {
        let claim = self.claim(mode, Location::caller());
        let take = || self.take(mode);
        if seat::with(|table, me| table.acquire(me, claim, &take)).is_none() && !take() {
            panic!("a thread that is not scheduled waits for a lock at {}", claim.at);
        }
    }

    #[track_caller]
    fn try_lock(&self, mode: Mode) -> bool {
        let claim = self.claim(mode, Location::caller());
        let take = || self.take(mode);
        seat::with(|table, me| table.try_acquire(me, claim, &take)).unwrap_or_else(take)
    }

    fn unlock(&self, mode: Mode) {
        let lock = std::ptr::from_ref(self).addr();
        let give = || self.give(mode);
        if seat::with(|table, me| table.release(me, lock, &give)).is_none() {
            give();
        }
    }

    fn value(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// A mutual exclusion lock for scheduled threads.
#[derive(Debug)]
pub struct SchedMutex(Cell);

/// A readers-writer lock for scheduled threads; readers wait behind a writer that waits.
#[derive(Debug)]
pub struct SchedRwLock(Cell);

// SAFETY: the lock is taken only by the atomic change of its cell from free to held, which
// one thread at most can make until it is given back; acquire and release order go with it.
unsafe impl RawMutex for SchedMutex {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(Cell::free());

    type GuardMarker = GuardNoSend;

    #[track_caller]
    fn lock(&self) {
        self.0.lock(Mode::Mutex);
    }

    #[track_caller]
    fn try_lock(&self) -> bool {
        self.0.try_lock(Mode::Mutex)
    }

    unsafe fn unlock(&self) {
        self.0.unlock(Mode::Mutex);
    }

    fn is_locked(&self) -> bool {
        self.0.value() != 0
    }
}

// SAFETY: as for the mutex; for reading, the cell changes atomically from any number that is
// not `ALONE` to the next, and from free only to `ALONE` for writing.
unsafe impl RawRwLock for SchedRwLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(Cell::free());

    type GuardMarker = GuardNoSend;

    #[track_caller]
    fn lock_shared(&self) {
        self.0.lock(Mode::Read);
    }

    #[track_caller]
    fn try_lock_shared(&self) -> bool {
        self.0.try_lock(Mode::Read)
    }

    unsafe fn unlock_shared(&self) {
        self.0.unlock(Mode::Read);
    }

    #[track_caller]
    fn lock_exclusive(&self) {
        self.0.lock(Mode::Write);
    }

    #[track_caller]
    fn try_lock_exclusive(&self) -> bool {
        self.0.try_lock(Mode::Write)
    }

    unsafe fn unlock_exclusive(&self) {
        self.0.unlock(Mode::Write);
    }

    fn is_locked(&self) -> bool {
        self.0.value() != 0
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.value() == ALONE
    }
}
