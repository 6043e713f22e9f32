//! Asking programs for what they hold unused, when files are short.
//!
//! What this guarantees: who asks waits [`PATIENCE`] at most. A program has as long to answer, whatever others have given
//! meanwhile; one that says nothing then is waited for no more until it has answered, or given something back. Where nothing
//! came back nobody is asked again for [`PAUSES`] times as long as that took, [`PATIENCE`] at most: so asking in vain is a small part of
//! the time, and what is given up a moment later is found soon where all answer at once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::ledger::{Ledger, SessionId};

/// How long programs have to give back something, in all.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// How many times as long as a round in vain took nobody is asked.
const PAUSES: u32 = 16;

/// Programs that are asked.
pub(crate) struct Round {
    pub(crate) tag: u64,
    began: Instant,
    /// Chunks that files want.
    pub(crate) wanted: u64,
    pub(crate) until: Instant,
    /// Who has not answered yet.
    pub(crate) asked: BTreeSet<SessionId>,
    /// What came back meanwhile.
    pub(crate) returned: u64,
}

/// What was asked, and what came of it.
#[derive(Default)]
pub(crate) struct Wishes {
    pub(crate) round: Option<Round>,
    /// The last round that is over, and what came back in it.
    ended: (u64, u64),
    not_before: Option<Instant>,
    /// Nothing is made ready while files are short.
    short_until: Option<Instant>,
}

impl Wishes {
    /// Files are short now.
    pub(crate) fn note_short(&mut self) {
        self.short_until = Some(Instant::now() + 2 * PATIENCE);
    }

    /// Whether they were just now.
    pub(crate) fn are_short(&self) -> bool {
        self.short_until.is_some_and(|until| Instant::now() < until)
    }

    /// The round to wait for, one that goes on or a new one; none where nobody is to be asked. A new one is to be
    /// told to programs: then the second value is true.
    pub(crate) fn begin(&mut self, ledger: &Ledger, wanted: u64) -> Option<(u64, bool)> {
        if let Some(round) = &self.round {
            return Some((round.tag, false));
        }
        let now = Instant::now();
        if self.not_before.is_some_and(|before| now < before) {
            return None;
        }
        // (Who was asked in a round that others have ended just now has its time still, as what it gives is on its way.)
        let is_silent = |asked: Instant| now.saturating_duration_since(asked) >= PATIENCE;
        let may_have = ledger
            .programs()
            .filter(|(_, it)| !it.chunks.is_empty() && !it.asked.is_some_and(is_silent));
        let asked: BTreeSet<SessionId> = may_have.map(|(id, _)| id).collect();
        if asked.is_empty() {
            return None;
        }
        let tag = self.ended.0 + 1;
        self.round =
            Some(Round { tag, began: now, wanted, until: now + PATIENCE, asked, returned: 0 });
        Some((tag, true))
    }

    /// Whether a session is being asked anew since the round of that tag.
    pub(crate) fn asks_after(&self, id: SessionId, tag: u64) -> bool {
        self.round.as_ref().is_some_and(|round| round.tag > tag && round.asked.contains(&id))
    }

    /// A session has answered, or is gone. True if the round is over by that.
    pub(crate) fn answered(&mut self, id: SessionId) -> bool {
        self.change(|round| {
            round.asked.remove(&id);
        })
    }

    /// So many chunks are free again. True if the round is over by that.
    pub(crate) fn came_back(&mut self, chunks: u64) -> bool {
        self.change(|round| round.returned += chunks)
    }

    fn change(&mut self, change: impl FnOnce(&mut Round)) -> bool {
        let Some(round) = &mut self.round else { return false };
        change(round);
        let is_over = round.asked.is_empty() || round.returned >= round.wanted;
        if is_over {
            self.end();
        }
        is_over
    }

    /// Ends the round.
    pub(crate) fn end(&mut self) {
        let Some(round) = self.round.take() else { return };
        self.ended = (round.tag, round.returned);
        if round.returned == 0 {
            let now = Instant::now();
            let took = now.saturating_duration_since(round.began);
            self.not_before = Some(now + took.saturating_mul(PAUSES).min(PATIENCE));
        }
    }

    /// What came back in a round that is over; none while it goes on.
    pub(crate) fn outcome(&self, tag: u64) -> Option<u64> {
        // (A later one may be over, too: that something came back then is as good.)
        (self.ended.0 >= tag).then_some(self.ended.1)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use lode_loan::Method;

    use super::*;
    use crate::Limits;
    use crate::ledger::Program;

    #[test]
    fn where_all_answer_at_once_they_are_asked_again_soon() {
        let mut ledger = Ledger::new(Limits::of_pool(1 << 30));
        let (name, chunks) = (String::new(), BTreeSet::from([1]));
        let (method, most, asked) = (Method::Direct, 1, None);
        let program = Program { pid: 1, uid: 1, name, method, since_ns: 0, chunks, most, asked };
        ledger.join(7, program);
        let mut wishes = Wishes::default();
        let before = Instant::now();
        assert!(wishes.begin(&ledger, 1).is_some());
        assert!(wishes.answered(7));
        let took = before.elapsed();
        std::thread::sleep((took * PAUSES).min(PATIENCE));
        assert!(wishes.begin(&ledger, 1).is_some(), "it took {took:?}");
        // Silence takes all the time there is, and is not asked for again for as long.
        wishes.round.as_mut().unwrap().began -= PATIENCE;
        wishes.end();
        assert!(wishes.begin(&ledger, 1).is_none());
    }
}
