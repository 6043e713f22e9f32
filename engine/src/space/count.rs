//! How many pages are free, as each lane counts what it gives and takes.
//!
//! Guarantees: what all lanes have counted together is the number of free pages, exactly where nobody takes or gives meanwhile. Who
//! only wants to know that there are plenty looks at none of these: a processor whose count another one has looked at has to wait for it
//! with its next page, and there is one to look at for each processor. A total, which hardly anybody changes, has all but
//! the last few pages of each lane.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A lane tells the total what it has counted when it is so many pages more, or fewer, than what it told last.
const UNTOLD_PAGES: u64 = 64;

/// What lanes have told. Alone in its lines.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Total(AtomicU64);

impl Total {
    /// Whether there are at least `pages`, in whatever each of so many lanes has not told.
    #[inline]
    pub(super) fn has(&self, pages: u64, lanes: usize) -> bool {
        let untold = (lanes as u64).saturating_mul(UNTOLD_PAGES);
        // (Beside others it may be below zero for a moment.)
        let told = u64::try_from(self.0.load(Relaxed).cast_signed()).unwrap_or(0);
        told >= pages.saturating_add(untold)
    }
}

/// What one lane has counted: pages given minus pages taken, modulo 2^64.
#[derive(Default)]
pub(super) struct Balance {
    pages: AtomicU64,
    /// What of it the total has.
    told: AtomicU64,
}

impl Balance {
    /// So many pages were given through the lane.
    #[inline]
    pub(super) fn give(&self, pages: u64, total: &Total) {
        let now = self.pages.fetch_add(pages, Relaxed).wrapping_add(pages);
        self.look(now, total);
    }

    /// So many pages were taken through the lane.
    #[inline]
    pub(super) fn take(&self, pages: u64, total: &Total) {
        let now = self.pages.fetch_sub(pages, Relaxed).wrapping_sub(pages);
        self.look(now, total);
    }

    /// All of it.
    #[inline]
    pub(super) fn pages(&self) -> u64 {
        self.pages.load(Relaxed)
    }

    #[inline]
    fn look(&self, now: u64, total: &Total) {
        if is_much(now.wrapping_sub(self.told.load(Relaxed))) {
            self.tell(total);
        }
    }

    /// Tells the total what it has not yet. (Of several who do, one does for all.)
    #[cold]
    fn tell(&self, total: &Total) {
        let told = self.told.load(Relaxed);
        let now = self.pages.load(Relaxed);
        let untold = now.wrapping_sub(told);
        if is_much(untold) && self.told.compare_exchange(told, now, Relaxed, Relaxed).is_ok() {
            total.0.fetch_add(untold, Relaxed);
        }
    }
}

fn is_much(untold: u64) -> bool {
    untold.cast_signed().unsigned_abs() >= UNTOLD_PAGES
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn what_is_said_to_be_there_is_and_plenty_is_seen_without_a_look_at_the_lanes() {
        let (total, lanes) = (Total::default(), [Balance::default(), Balance::default()]);
        let (mut free, mut random) = (0_u64, 1_u64);
        for step in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (lane, pages) = (&lanes[(random >> 60) as usize % 2], (random >> 40) % 90);
            match random >> 63 == 0 && free >= pages {
                true => {
                    lane.take(pages, &total);
                    free -= pages;
                }
                false => {
                    lane.give(pages, &total);
                    free += pages;
                }
            }
            let sum = lanes.iter().fold(0, |sum: u64, lane| sum.wrapping_add(lane.pages()));
            assert_eq!(sum, free, "step {step}");
            assert!(!total.has(free + 1, 2), "step {step}: {free} pages");
            let sure = free.saturating_sub(2 * 2 * UNTOLD_PAGES);
            assert!(sure == 0 || total.has(sure, 2), "step {step}: {free} pages");
        }
    }

    #[test]
    fn threads_of_one_lane_lose_nothing() {
        let (total, lane) = (Total::default(), Balance::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100_000 {
                        lane.give(3, &total);
                        lane.take(2, &total);
                    }
                });
            }
        });
        lane.tell(&total);
        let told = total.0.load(Relaxed);
        assert_eq!((lane.pages(), lane.told.load(Relaxed)), (400_000, told));
        // (What was told last may be more: all of them may have given by then what they take.)
        assert!(!is_much(told.wrapping_sub(400_000)));
    }
}
