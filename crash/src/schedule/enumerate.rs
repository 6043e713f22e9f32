//! All schedules of a program with few preemptions, those with fewest first.

use lode_testkit::rng::Rng;

use super::{Chooser, Schedule};

/// Which schedules to try.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How often a thread that could go on may be stopped in a run. (Switches where it
    /// waits or ends are free.)
    pub preemptions: u32,
    /// Schedules to try at most; if there are more, those with most preemptions are a random
    /// choice.
    pub budget: u64,
    /// Random schedules to try after that, with any number of preemptions.
    pub random: u64,
    /// Decides everything random.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self { preemptions: 2, budget: 10_000, random: 0, seed: 0 }
    }
}

/// Hands out schedules of a program that does the same each time the same choices are made.
///
/// Each one that was run shows the choices that it left; those with few enough preemptions
/// are tried later, each once.
#[derive(Debug)]
pub struct Schedules {
    plan: Plan,
    rng: Rng,
    /// Beginnings of schedules to try, by number of preemptions.
    open: Vec<Vec<Schedule>>,
    last: Option<Chooser>,
    tried: u64,
    tried_random: u64,
    dropped: u64,
}

impl Schedules {
    /// The schedules of a plan.
    pub fn new(plan: Plan) -> Self {
        let mut open = vec![Vec::new(); plan.preemptions as usize + 1];
        open[0].push(Schedule::default());
        let rng = Rng::new(plan.seed);
        Self { plan, rng, open, last: None, tried: 0, tried_random: 0, dropped: 0 }
    }

    /// What decides the next run; `None` when all are done. Run it before asking for more.
    pub fn next_run(&mut self) -> Option<&mut Chooser> {
        if let Some(last) = self.last.take() {
            self.note(&last);
        }
        let chooser = match self.next_open() {
            Some(beginning) => {
                self.tried += 1;
                Chooser::replay(beginning)
            }
            None if self.tried_random < self.plan.random => {
                self.tried_random += 1;
                Chooser::random(self.rng.bits())
            }
            None => return None,
        };
        Some(self.last.insert(chooser))
    }

    /// Runs started so far, the random ones too.
    pub fn runs(&self) -> u64 {
        self.tried + self.tried_random
    }

    /// Whether all schedules with few enough preemptions were run; asked at the end.
    pub fn is_exhaustive(&self) -> bool {
        self.dropped == 0 && self.last.is_none() && self.open.iter().all(Vec::is_empty)
    }

    fn next_open(&mut self) -> Option<Schedule> {
        if self.tried >= self.plan.budget {
            return None;
        }
        let level = self.open.iter_mut().find(|level| !level.is_empty())?;
        let at = self.rng.below(level.len() as u64) as usize;
        Some(level.swap_remove(at))
    }

    /// Keeps the choices that a run left open.
    fn note(&mut self, run: &Chooser) {
        if self.tried_random > 0 {
            return;
        }
        if run.diverged() {
            self.dropped += 1;
            return;
        }
        let mut beginning = Schedule::default();
        for (at, choice) in run.made().iter().enumerate() {
            let cost = choice.before + u32::from(choice.preempts);
            if at >= run.given() && cost <= self.plan.preemptions {
                let mut others = choice.ready & !(1 << choice.taken);
                while others != 0 {
                    let mut other = beginning.clone();
                    other.push(others.trailing_zeros() as u8);
                    self.open(cost as usize, other);
                    others &= others - 1;
                }
            }
            beginning.push(choice.taken);
        }
    }

    /// Keeps a beginning, or, when there are more than can be tried, perhaps in place of another.
    fn open(&mut self, cost: usize, beginning: Schedule) {
        let room = self.plan.budget.saturating_sub(self.tried) as usize;
        let level = &mut self.open[cost];
        if level.len() < room {
            return level.push(beginning);
        }
        self.dropped += 1;
        let at = self.rng.below(room as u64 + 1) as usize;
        if let Some(place) = level.get_mut(at) {
            *place = beginning;
        }
    }
}
