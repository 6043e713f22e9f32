//! One case under one profile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lode_engine::Rule;

use super::{JobId, Mutant};
use crate::case::Case;
use crate::explore::{
    CrashPath, Failure, Limits, Memo, Replay, Setup, Stop, Tally, explore, replay, shrink,
};
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
    /// Whether another job is of the same case, on the same pool.
    pub fn same_case(&self, other: &Job) -> bool {
        let of = |job: &Job| (job.id.set, job.id.number, job.id.seed);
        of(self) == of(other)
    }

    /// What it runs on.
    pub fn setup(&self) -> Setup {
        let JobId { profile, whole_lines, seed, .. } = self.id;
        let rules = Rules { profile, whole_lines, left_out: None };
        Setup {
            geometry: self.case.geometry.clone(),
            rules,
            left_out: None,
            seed,
            asked: Arc::default(),
            stop: Stop::default(),
        }
    }

    /// Explores it. `memo` knows what was judged of the same case under other profiles.
    pub fn run(
        &self,
        setup: &Setup,
        limits: &Limits,
        memo: &mut Memo,
    ) -> Result<Tally, Box<Failure>> {
        explore(&self.case, setup, limits, memo)
    }

    /// Goes one way, with a mutant or without.
    pub fn replay(&self, path: &CrashPath, mutant: Option<Mutant>) -> Replay {
        let mut setup = self.setup();
        if let Some(mutant) = mutant {
            mutant.leave_out(&mut setup);
        }
        replay(&self.case, &setup, path)
    }

    /// The mutant that goes by this name, of those that this case comes to: a rule's name, or
    /// a place as [`Mutant::site`] says it.
    pub fn mutant(&self, name: &str) -> Option<Mutant> {
        let rule = Rule::ALL.iter().map(|rule| Mutant::Rule(*rule));
        if let Some(rule) = rule.into_iter().find(|rule| rule.is_called(name)) {
            return Some(rule);
        }
        [Limits::GLANCE, Limits::QUICK].iter().find_map(|limits| {
            let tally = self.run(&self.setup(), limits, &mut Memo::default()).ok()?;
            let mut sites = tally.sites.iter().map(|site| Mutant::Site(*site));
            sites.find(|mutant| mutant.is_called(name))
        })
    }

    /// Makes a failing case shorter, to be shown beside what was found first; tries nothing
    /// after `time_max`, nor when `setup` says to stop.
    pub fn shrink(
        &self,
        setup: &Setup,
        failure: Box<Failure>,
        limits: &Limits,
        time_max: Duration,
    ) -> Box<Failure> {
        let stop = setup.stop.or_at(Some(Instant::now() + time_max));
        let setup = Setup { stop, ..setup.clone() };
        shrink(failure, SHRINK_TRIES, &|case| match setup.stop.is_asked() {
            true => None,
            false => explore(case, &setup, limits, &mut Memo::default()).err(),
        })
    }
}
