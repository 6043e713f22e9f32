//! Who waits to write to an inode, in their order.
//!
//! A thread that writes again and again gives the lock back for some nanoseconds: who looks from another processor whether it is free would
//! find it so hardly ever, and fall asleep at last. So who comes while somebody waits waits, too.
//!
//! It is advice, and no lock: who has waited for long asks for the lock as others do, and then the order is another one.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Places in a row, the one behind the other.
#[derive(Default)]
pub(super) struct Queue {
    next: AtomicU8,
    /// The first that may be somebody's: those before it have been left, or passed by one behind them.
    first: AtomicU8,
}

/// A place, until it is dropped.
pub(super) struct Place<'q> {
    queue: &'q Queue,
    number: u8,
}

impl Queue {
    /// Whether somebody waits.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.next.load(Relaxed) != self.first.load(Relaxed)
    }

    /// Takes the last place.
    pub(super) fn join(&self) -> Place<'_> {
        Place { queue: self, number: self.next.fetch_add(1, Relaxed) }
    }
}

impl Place<'_> {
    /// Whether nobody is before this one, but whom others have passed.
    #[inline]
    pub(super) fn is_next(&self) -> bool {
        !is_behind(self.number, self.queue.first.load(Relaxed))
    }
}

/// Whether one place comes after another one. (Of more who wait than a byte can tell apart some find it the wrong way round: they use up
/// their looks, and the next who leaves puts it right.)
#[inline]
fn is_behind(number: u8, other: u8) -> bool {
    number.wrapping_sub(other).cast_signed() > 0
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let behind = self.number.wrapping_add(1);
        let ahead = |first| is_behind(behind, first).then_some(behind);
        let _ = self.queue.first.fetch_update(Relaxed, Relaxed, ahead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_in_their_order_also_behind_the_last_number() {
        let queue = Queue { next: AtomicU8::new(u8::MAX), first: AtomicU8::new(u8::MAX) };
        assert!(!queue.is_used());
        let [one, two, three] = [(); 3].map(|()| queue.join());
        let next = |places: &[&Place<'_>]| places.iter().filter(|place| place.is_next()).count();
        assert!(queue.is_used() && one.is_next() && next(&[&two, &three]) == 0);
        drop(one);
        assert!(queue.is_used() && two.is_next() && next(&[&three]) == 0);
        drop(two);
        assert!(three.is_next());
        drop(three);
        assert!(!queue.is_used());
    }

    #[test]
    fn who_was_passed_is_next_and_keeps_nobody_waiting() {
        let queue = Queue::default();
        let [one, two, three] = [(); 3].map(|()| queue.join());
        assert!(!two.is_next());
        // (It had waited for long, and got the lock as others do.)
        drop(two);
        assert!(one.is_next() && three.is_next());
        let four = queue.join();
        assert!(!four.is_next());
        drop(three);
        assert!(one.is_next() && four.is_next() && queue.is_used());
        drop(four);
        assert!(one.is_next() && !queue.is_used(), "who comes now need not wait");
        drop(one);
        assert!(!queue.is_used() && queue.join().is_next());
    }
}
