//! Barriers wait for what is in flight (PMBD, section IV.C.2).
//!
//! Guarantees: who holds a [`Closed`] knows that every write that had begun has ended, and that none begins. A write says that it begins
//! by one atomic exchange in a line that no other thread stores to, and that it ends by a plain store: an atomic change behind its
//! fence would wait for all that it has stored, and what comes next with it.

use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Release, SeqCst},
    fence,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thread_local::ThreadLocal;

/// Looks before the processor is left to others.
const SPINS: u32 = 200;

/// A thread's, 1 while it writes. Alone in its lines: the neighbour line is fetched with it.
#[repr(align(128))]
#[derive(Default)]
struct Slot(AtomicU32);

/// Whoever writes, and whoever waits for that.
#[derive(Default)]
pub(super) struct Gate {
    slots: ThreadLocal<Slot>,
    is_closed: AtomicBool,
    closing: Mutex<()>,
}

/// A write of this thread is in flight.
pub(super) struct Pass<'g>(&'g AtomicU32);

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

/// No write is in flight, until this is dropped.
pub(super) struct Closed<'g> {
    gate: &'g Gate,
    _closing: MutexGuard<'g, ()>,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.gate.is_closed.store(false, SeqCst);
    }
}

impl Gate {
    /// Begins a write, once no barrier is under way. (A thread has one at a time.)
    #[inline]
    pub(super) fn enter(&self) -> Pass<'_> {
        loop {
            if let Some(pass) = self.try_enter() {
                return pass;
            }
            self.wait();
        }
    }

    /// The same, if no barrier is under way.
    #[inline]
    pub(super) fn try_enter(&self) -> Option<Pass<'_>> {
        let Slot(in_flight) = self.slots.get().unwrap_or_else(|| self.first());
        let before = in_flight.swap(1, SeqCst);
        debug_assert_eq!(before, 0, "a thread that writes twice at a time");
        let pass = Pass(in_flight);
        (!self.is_closed.load(SeqCst)).then_some(pass)
    }

    /// The slot of a thread that has had none. Whoever closes sees it, or this thread sees that it has closed.
    #[cold]
    fn first(&self) -> &Slot {
        let slot = self.slots.get_or_default();
        fence(SeqCst);
        slot
    }

    /// Waits for the barrier that is under way: it has the lock until it is done.
    #[cold]
    pub(super) fn wait(&self) {
        drop(self.closing.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until what is in flight has ended; nothing begins meanwhile. `waits` is called before, where something is in flight.
    pub(super) fn close(&self, waits: impl Fn()) -> Closed<'_> {
        let closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_closed.store(true, SeqCst);
        let closed = Closed { gate: self, _closing: closing };
        fence(SeqCst);
        for Slot(in_flight) in &self.slots {
            let mut looks = 0;
            if in_flight.load(Acquire) != 0 {
                waits();
            }
            while in_flight.load(Acquire) != 0 {
                looks += 1;
                match looks < SPINS {
                    true => std::hint::spin_loop(),
                    false => std::thread::yield_now(),
                }
            }
        }
        closed
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_barrier_waits_for_what_is_in_flight_and_holds_what_comes() {
        let gate = Gate::default();
        let pass = gate.enter();
        std::thread::scope(|scope| {
            let (said, hear) = channel();
            let barrier = said.clone();
            let gate = &gate;
            scope.spawn(move || {
                let closed = gate.close(|| ());
                barrier.send("closed").unwrap();
                std::thread::sleep(Duration::from_millis(50));
                barrier.send("opens").unwrap();
                drop(closed);
            });
            assert!(hear.recv_timeout(Duration::from_millis(50)).is_err(), "it did not wait");
            scope.spawn(move || {
                while !gate.is_closed.load(SeqCst) {
                    std::thread::yield_now();
                }
                let _pass = gate.enter();
                said.send("entered").unwrap();
            });
            std::thread::sleep(Duration::from_millis(50));
            drop(pass);
            let heard: Vec<_> = hear.iter().collect();
            assert_eq!(heard, ["closed", "opens", "entered"]);
        });
    }
}
