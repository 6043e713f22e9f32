//! One case under one profile.

use super::JobId;
use crate::case::Case;
use crate::explore::{CrashPath, Failure, Limits, Setup, Tally, explore, replay, shrink};
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
    pub fn replay(&self, path: &CrashPath) -> Result<Tally, Box<Failure>> {
        replay(&self.case, &self.setup(), path)
    }

    /// Makes a failing case shorter, to be shown beside what was found first.
    pub fn shrink(&self, failure: Box<Failure>, limits: &Limits) -> Box<Failure> {
        let setup = self.setup();
        shrink(failure, SHRINK_TRIES, &|case| explore(case, &setup, limits).err())
    }
}
