//! Who goes on: decides one run, and remembers what else it could have decided.

use lode_testkit::rng::Rng;

use super::choice::{Cursor, Schedule};

/// Decides which thread goes on at each switch point of a run: as a schedule says, then as
/// usual or at random.
#[derive(Debug)]
pub struct Chooser {
    given: Schedule,
    cursor: Cursor,
    random: Option<Random>,
    made: Vec<Choice>,
    preemptions: u32,
    diverged: bool,
}

/// A choice that was made where there was one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) taken: u8,
    pub(super) usual: u8,
    /// All threads that could have gone on, as bits.
    pub(super) ready: u64,
    /// Whether another choice than the usual one stops a thread that could go on.
    pub(super) preempts: bool,
    /// Preemptions before.
    pub(super) before: u32,
}

#[derive(Debug)]
struct Random {
    rng: Rng,
    /// A switch at one point in so many.
    once_in: u64,
}

impl Chooser {
    /// Every choice as usual: threads run to their ends, one after the other.
    pub fn usual() -> Self {
        Self::replay(Schedule::default())
    }

    /// The choices of a schedule again, then the usual ones.
    pub fn replay(given: Schedule) -> Self {
        Self {
            given,
            cursor: Cursor::default(),
            random: None,
            made: Vec::new(),
            preemptions: 0,
            diverged: false,
        }
    }

    /// Random choices that a seed decides, with many switches or with few.
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let once_in = 2 << rng.below(6);
        Self { random: Some(Random { rng, once_in }), ..Self::usual() }
    }

    /// The choices that were made: to replay the run.
    pub fn schedule(&self) -> Schedule {
        let unusual = |choice: &Choice| choice.taken != choice.usual;
        let end = self.made.iter().rposition(unusual).map_or(0, |last| last + 1);
        let mut schedule = Schedule::default();
        self.made[..end].iter().for_each(|choice| schedule.push(choice.taken));
        schedule
    }

    /// How often a thread was stopped that could have gone on.
    pub fn preemptions(&self) -> u32 {
        self.preemptions
    }

    /// Whether a given choice could not be made: the run is not the one it was made for.
    pub fn diverged(&self) -> bool {
        self.diverged
    }

    /// Choices of the given schedule.
    pub(super) fn given(&self) -> usize {
        self.given.len()
    }

    /// All choices made.
    pub(super) fn made(&self) -> &[Choice] {
        &self.made
    }

    /// One of the threads in `ready`, which is not empty.
    pub(super) fn choose(&mut self, ready: u64, current: Option<usize>) -> usize {
        let lowest = ready.trailing_zeros() as usize;
        if ready.is_power_of_two() {
            return lowest;
        }
        let going_on = current.filter(|&current| ready >> current & 1 == 1);
        let usual = going_on.unwrap_or(lowest);
        let taken = match self.given.next(&mut self.cursor) {
            Some(thread) if ready >> thread & 1 == 1 => usize::from(thread),
            Some(_) => {
                self.diverged = true;
                usual
            }
            None => self.random.as_mut().map_or(usual, |random| random.choose(ready, going_on)),
        };
        let before = self.preemptions;
        let preempts = going_on.is_some();
        self.preemptions += u32::from(preempts && taken != usual);
        let (taken_bits, usual_bits) = (taken as u8, usual as u8);
        self.made.push(Choice { taken: taken_bits, usual: usual_bits, ready, preempts, before });
        taken
    }

    /// Ends the run: given choices that were not asked for belong to another run.
    pub(super) fn end(&mut self) {
        self.diverged |= self.made.len() < self.given();
    }
}

impl Random {
    fn choose(&mut self, ready: u64, going_on: Option<usize>) -> usize {
        let mut others = ready;
        if let Some(current) = going_on {
            if !self.rng.once_in(self.once_in) {
                return current;
            }
            others &= !(1 << current);
        }
        for _ in 0..self.rng.below(u64::from(others.count_ones())) {
            others &= others - 1;
        }
        others.trailing_zeros() as usize
    }
}
