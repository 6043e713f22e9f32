//! Who waits to write to an inode, in their order.
//!
//! A thread that writes again and again gives the lock back for some nanoseconds: who looks from another processor whether it is free would
//! find it so hardly ever, and fall asleep at last. So who comes while somebody waits waits, too.
//!
//! It is advice, and no lock: who has waited for long asks for the lock as others do, and then the order is another one.

use core::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// Places in a row, of which those before the first have been given up.
#[derive(Default)]
pub(super) struct Queue {
    next: AtomicU16,
    first: AtomicU16,
}

/// A place, until it is dropped.
pub(super) struct Place<'q> {
    queue: &'q Queue,
    number: u16,
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
    /// Whether nobody is before this one.
    #[inline]
    pub(super) fn is_next(&self) -> bool {
        self.queue.first.load(Relaxed) == self.number
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.queue.first.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_in_their_order_also_behind_the_last_number() {
        let queue = Queue { next: AtomicU16::new(u16::MAX), first: AtomicU16::new(u16::MAX) };
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
    fn who_left_before_its_turn_keeps_nobody_in_the_queue() {
        let queue = Queue::default();
        let [one, two] = [(); 2].map(|()| queue.join());
        drop(two);
        // (Nobody is before it, and it is not told: it asks for the lock at last.)
        assert!(!one.is_next() && queue.is_used());
        drop(one);
        assert!(!queue.is_used() && queue.join().is_next());
    }
}
