//! Whether a thread that has nothing to do looks on for a moment before it sleeps.
//!
//! Who asks one request at a time asks the next one within microseconds, and to put a processor to sleep and to wake it takes
//! longer than that. But who asks seldom is waited for in vain, and who asks from this very processor is kept from asking: each
//! look in vain doubles how often is slept at once until the next, so both lose a thousandth of their time. And who asks many
//! at a time is better served many at a time, on a processor that has rested: after those it is slept at once for a while.

use std::time::{Duration, Instant};

/// What it takes to be woken, and how long is looked on at most.
const MOST: Duration = Duration::from_micros(25);
/// Looks in vain are at least so many waits apart, after some.
const MOST_SLEEPS: u32 = 1024;
/// So often is slept at once after several requests came at a time.
const SLEEPS_OF_MANY: u32 = 64;

/// What looking on was good for.
#[derive(Debug, Default)]
pub struct Linger {
    /// How often to sleep at once before the next look.
    sleeps: u32,
    /// How often it was after the last look.
    penalty: u32,
}

impl Linger {
    /// Looks until `has_come`, or for as long as that pays, behind so many requests. Says whether it has.
    pub fn look(&mut self, requests: u32, mut has_come: impl FnMut() -> bool) -> bool {
        match requests {
            0 => return false,
            1 if self.sleeps == 0 => {}
            1 => {
                self.sleeps -= 1;
                return false;
            }
            _ => {
                self.sleeps = self.sleeps.max(SLEEPS_OF_MANY);
                return false;
            }
        }
        let begin = Instant::now();
        while begin.elapsed() < MOST {
            if has_come() {
                self.penalty /= 4;
                return true;
            }
        }
        self.penalty = (2 * self.penalty).clamp(1, MOST_SLEEPS);
        self.sleeps = self.penalty;
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
