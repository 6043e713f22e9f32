//! What clients cause and the log is to say, without letting them fill it.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How often one is told.
const PAUSE: Duration = Duration::from_secs(10);

/// Complaints of one kind: the first is told at once, and then one in a while, for all that came between.
#[derive(Default, Debug)]
pub struct Complaints(Mutex<State>);

#[derive(Default, Debug)]
struct State {
    told: Option<Instant>,
    /// Since then.
    kept: u64,
}

impl Complaints {
    /// Whether a complaint is to be told now; and for how many, itself and those that were not told before it.
    pub fn due(&self) -> Option<u64> {
        self.due_at(Instant::now())
    }

    fn due_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        state.kept += 1;
        if state.told.is_some_and(|told| now.saturating_duration_since(told) < PAUSE) {
            return None;
        }
        state.told = Some(now);
        Some(std::mem::take(&mut state.kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_and_then_one_for_many() {
        let complaints = Complaints::default();
        let now = Instant::now();
        assert_eq!(complaints.due_at(now), Some(1));
        for _ in 0..1000 {
            assert_eq!(complaints.due_at(now + PAUSE / 2), None);
        }
        assert_eq!(complaints.due_at(now + PAUSE), Some(1001));
        assert_eq!(complaints.due_at(now + PAUSE), None);
        assert_eq!(complaints.due_at(now + 3 * PAUSE), Some(2));
    }
}
