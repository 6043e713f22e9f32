//! A lock that allocates nothing, and that a fork can carry over: it is taken before, and let go on both sides.
//!
//! Who has it takes no signals: a handler may want it, too.
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

const FREE: u32 = 0;
const HELD: u32 = 1;
const AWAITED: u32 = 2;

/// A value behind a lock.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    /// What signals wait for who has the lock: what it took before.
    signals: UnsafeCell<u64>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by who holds the lock alone.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            signals: UnsafeCell::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let signals = sys::block_signals();
        let taken = self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            self.wait();
        }
        // SAFETY: the lock is held.
        unsafe { *self.signals.get() = signals };
        Guard(self)
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..100 {
            if self.word.load(Ordering::Relaxed) == FREE {
                break;
            }
            core::hint::spin_loop();
        }
        while self.word.swap(AWAITED, Ordering::Acquire) != FREE {
            sys::futex_wait(&self.word, AWAITED);
        }
    }

    /// A guard for a lock that was taken before, by a guard that was forgotten.
    ///
    /// # Safety
    /// It was: by this thread, or by the one that this one was forked from; and there is one such guard.
    pub(crate) unsafe fn taken(&self) -> Guard<'_, T> {
        Guard(self)
    }
}

/// Who has it holds the lock.
pub(crate) struct Guard<'a, T>(&'a Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, by this guard alone.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the lock is held until the next line.
        let signals = unsafe { *self.0.signals.get() };
        if self.0.word.swap(FREE, Ordering::Release) == AWAITED {
            sys::futex_wake(&self.0.word);
        }
        sys::restore_signals(signals);
    }
}
