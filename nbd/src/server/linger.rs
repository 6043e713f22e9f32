//! Whether a thread that has nothing to do looks on for a moment before it sleeps.
//!
//! Who asks one request at a time asks the next one within microseconds, and to put a processor to sleep and to wake it takes
//! longer than that. But who asks seldom is waited for in vain, and who asks from this very processor is kept from asking: each
//! look in vain doubles how often is slept at once until the next, so both lose a thousandth of their time. And who asks many
//! at a time is better served many at a time, on a processor that has rested: after those it is slept at once for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What it takes to be woken, and how long is looked on at most.
const MOST: Duration = Duration::from_micros(25);
/// Looks in vain are at least so many waits apart, after some.
const MOST_SLEEPS: u32 = 1024;
/// So often is slept at once after several requests came at a time.
const SLEEPS_OF_MANY: u32 = 64;

/// How the threads of a server have waited, after they had done what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Waits {
    /// They looked on, and something came.
    pub paid: u64,
    /// They looked on in vain, and slept then.
    pub in_vain: u64,
    /// They slept at once.
    pub slept: u64,
}

impl Waits {
    /// Those of both.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            paid: self.paid + other.paid,
            in_vain: self.in_vain + other.in_vain,
            slept: self.slept + other.slept,
        }
    }
}

/// The [`Waits`] of one thread, as they grow. Only that thread changes them.
#[derive(Debug, Default)]
pub struct Counts {
    paid: AtomicU64,
    in_vain: AtomicU64,
    slept: AtomicU64,
}

impl Counts {
    /// As they are now.
    pub fn get(&self) -> Waits {
        let Self { paid, in_vain, slept } = self;
        Waits {
            paid: paid.load(Relaxed),
            in_vain: in_vain.load(Relaxed),
            slept: slept.load(Relaxed),
        }
    }
}

fn one_more(of: &AtomicU64) {
    of.store(of.load(Relaxed) + 1, Relaxed);
}

/// What looking on was good for.
#[derive(Debug, Default)]
pub struct Linger {
    /// How often to sleep at once before the next look.
    sleeps: u32,
    /// How often it was after the last look.
    penalty: u32,
    counts: Arc<Counts>,
}

impl Linger {
    /// Of a thread whose waits are counted there.
    pub fn new(counts: Arc<Counts>) -> Self {
        Self { counts, ..Self::default() }
    }

    /// Looks until `has_come`, or for as long as that pays, behind so many requests. Says whether it has.
    pub fn look(&mut self, requests: u32, mut has_come: impl FnMut() -> bool) -> bool {
        let looks = match requests {
            0 => return false,
            1 if self.sleeps == 0 => true,
            1 => {
                self.sleeps -= 1;
                false
            }
            _ => {
                self.sleeps = self.sleeps.max(SLEEPS_OF_MANY);
                false
            }
        };
        if !looks {
            one_more(&self.counts.slept);
            return false;
        }
        let begin = Instant::now();
        // (Once at least, also where the thread was kept from its processor before.)
        loop {
            if has_come() {
                self.penalty /= 4;
                one_more(&self.counts.paid);
                return true;
            }
            if begin.elapsed() >= MOST {
                break;
            }
        }
        self.penalty = (2 * self.penalty).clamp(1, MOST_SLEEPS);
        self.sleeps = self.penalty;
        one_more(&self.counts.in_vain);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often is looked before so many waits, where something comes each time, or never.
    fn looks(linger: &mut Linger, waits: usize, comes: bool) -> usize {
        let mut looks = 0;
        for _ in 0..waits {
            let mut looked = false;
            linger.look(1, || {
                looked = true;
                comes
            });
            looks += usize::from(looked);
        }
        looks
    }

    #[test]
    fn who_asks_on_at_once_is_looked_for_each_time() {
        let mut linger = Linger::default();
        assert_eq!(looks(&mut linger, 1000, true), 1000);
        // One that came late changes little.
        assert_eq!(looks(&mut linger, 1, false), 1);
        assert!(looks(&mut linger, 1000, true) >= 998);
    }

    #[test]
    fn who_asks_late_is_hardly_ever_looked_for() {
        let mut linger = Linger::default();
        assert!(looks(&mut linger, 2048, false) <= 12);
        assert!(looks(&mut linger, 100 * 1024, false) <= 100);
        // Once it asks at once again that is found out.
        assert!(looks(&mut linger, 4096, true) >= 2048);
    }

    #[test]
    fn who_asks_many_at_a_time_is_looked_for_later() {
        let mut linger = Linger::default();
        for requests in [2, 16] {
            assert!(!linger.look(requests, || true));
            assert_eq!(looks(&mut linger, SLEEPS_OF_MANY as usize, true), 0);
            assert_eq!(looks(&mut linger, 10, true), 10);
        }
        // Who has asked nothing is not looked for, and changes nothing.
        assert!(!linger.look(0, || true));
        assert_eq!(looks(&mut linger, 10, true), 10);
    }

    #[test]
    fn each_wait_behind_a_request_is_counted_as_what_it_was() {
        let counts = Arc::new(Counts::default());
        let mut linger = Linger::new(Arc::clone(&counts));
        assert_eq!(looks(&mut linger, 10, true), 10);
        assert_eq!(counts.get(), Waits { paid: 10, ..Waits::default() });
        // Late ones: a look, a sleep at once, a look, the first of two sleeps.
        assert_eq!(looks(&mut linger, 4, false), 2);
        linger.look(0, || true);
        assert_eq!(counts.get(), Waits { paid: 10, in_vain: 2, slept: 2 });
        linger.look(16, || true);
        let all = counts.get();
        assert_eq!(all, Waits { paid: 10, in_vain: 2, slept: 3 });
        assert_eq!(all.and(all), Waits { paid: 20, in_vain: 4, slept: 6 });
    }

    #[test]
    fn a_look_in_vain_takes_what_it_may() {
        let mut linger = Linger::default();
        let times: Vec<Duration> = (0..64)
            .map(|_| {
                linger = Linger::default();
                let begin = Instant::now();
                assert!(!linger.look(1, || false));
                begin.elapsed()
            })
            .collect();
        let least = times.into_iter().min().unwrap_or_default();
        assert!((MOST..2 * MOST).contains(&least), "{least:?}");
    }
}
