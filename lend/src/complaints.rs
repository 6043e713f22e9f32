//! The log of what is refused: as often as it can be read, whoever sends how much.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lines in a row, and how long it takes until there may be one more.
const BURST: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// Who writes the log.
pub(crate) struct Complaints(Mutex<Left>);

struct Left {
    lines: u32,
    since: Instant,
    left_out: u64,
}

impl Complaints {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Left { lines: BURST, since: Instant::now(), left_out: 0 }))
    }

    /// Logs what a process did, and what became of it.
    pub(crate) fn note(&self, pid: u32, what: &dyn std::fmt::Display) {
        if let Some(left_out) = self.may() {
            tracing::warn!(pid, left_out, "memory is not lent: {what}");
        }
    }

    /// How many lines were left out before this one, if there may be one.
    fn may(&self) -> Option<u64> {
        let mut left = self.0.lock();
        let more = left.since.elapsed().as_nanos() / PAUSE.as_nanos();
        if more > 0 {
            left.lines = u32::try_from(more).unwrap_or(BURST).saturating_add(left.lines).min(BURST);
            left.since = Instant::now();
        }
        if left.lines == 0 {
            left.left_out += 1;
            return None;
        }
        left.lines -= 1;
        Some(std::mem::take(&mut left.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_leaves_few_lines() {
        let complaints = Complaints::new();
        let lines = (0..10_000).filter(|_| complaints.may().is_some()).count();
        assert!((10..20).contains(&lines), "{lines}");
    }
}
