//! Barriers wait for what is in flight (PMBD, section IV.C.2).
//!
//! Guarantees: who holds a [`Closed`] knows that every write that had begun has ended, and that none begins. To write costs two
//! atomic changes of a line that other threads rarely use.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SLOTS: usize = 16;
/// Looks before the processor is left to others.
const SPINS: u32 = 200;

/// Alone in its lines: the neighbour line is fetched with it.
#[repr(align(128))]
#[derive(Default)]
struct Slot(AtomicUsize);

/// Whoever writes, and whoever waits for that.
#[derive(Default)]
pub(super) struct Gate {
    slots: [Slot; SLOTS],
    is_closed: AtomicBool,
    closing: Mutex<()>,
}

/// A write is in flight.
pub(super) struct Pass<'g>(&'g AtomicUsize);

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
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

/// The slot of this thread.
fn slot_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SLOT: Cell<Option<usize>> = const { Cell::new(None) };
    }
    SLOT.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, SeqCst);
        SLOT.set(Some(number));
        number
    })
}

impl Gate {
    /// Begins a write, once no barrier is under way.
    #[inline]
    pub(super) fn enter(&self) -> Pass<'_> {
        let [first, ..] = &self.slots;
        let Slot(in_flight) = self.slots.get(slot_number() % SLOTS).unwrap_or(first);
        loop {
            in_flight.fetch_add(1, SeqCst);
            let pass = Pass(in_flight);
            if !self.is_closed.load(SeqCst) {
                return pass;
            }
            drop(pass);
            // The barrier has it until it is done.
            drop(self.closing.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Waits until what is in flight has ended; nothing begins meanwhile. `waits` is called before, where something is in flight.
    pub(super) fn close(&self, waits: impl Fn()) -> Closed<'_> {
        let closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_closed.store(true, SeqCst);
        let closed = Closed { gate: self, _closing: closing };
        for Slot(in_flight) in &self.slots {
            let mut looks = 0;
            if in_flight.load(SeqCst) != 0 {
                waits();
            }
            while in_flight.load(SeqCst) != 0 {
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
