//! One case under one profile.

use std::time::{Duration, Instant};

use super::JobId;
use crate::case::Case;
use crate::explore::{CrashPath, Failure, Limits, Replay, Setup, Tally, explore, replay, shrink};
use crate::region::Rules;

/// Cases that are tried to make a failing one shorter.
const SHRINK_TRIES: usize = 60;

/// One case under one profile.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// The case.
    pub case: Case,
}

impl Job {
    /// What it runs on.
    pub fn setup(&self) -> Setup {
        let JobId { profile, whole_lines, seed, .. } = self.id;
        let rules = Rules { profile, whole_lines, left_out: None };
        Setup { geometry: self.case.geometry.clone(), rules, left_out: None, seed }
    }

    /// Explores it.
    pub fn run(&self, setup: &Setup, limits: &Limits) -> Result<Tally, Box<Failure>> {
        explore(&self.case, setup, limits)
    }

    /// Goes one way.
    pub fn replay(&self, path: &CrashPath) -> Replay {
        replay(&self.case, &self.setup(), path)
    }

    /// Makes a failing case shorter, to be shown beside what was found first; tries no more
    /// cases after `time_max`.
    pub fn shrink(
        &self,
        setup: &Setup,
        failure: Box<Failure>,
        limits: &Limits,
        time_max: Duration,
    ) -> Box<Failure> {
        let began = Instant::now();
        shrink(failure, SHRINK_TRIES, &|case| match began.elapsed() < time_max {
            true => explore(case, setup, limits).err(),
            false => None,
        })
    }
}
