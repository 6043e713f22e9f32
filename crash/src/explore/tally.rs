//! How much was looked at.

use std::collections::{BTreeMap, BTreeSet};

use std::time::Duration;

use lode_engine::Rule;

use super::Images;
use crate::region::LeftOut;
use crate::states::Explored;

/// Counts of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tally {
    /// Operations with the power failing in them.
    pub operations: u64,
    /// Moments at which it failed.
    pub points: u64,
    /// Their states.
    pub states: Explored,
    /// Moments inside recoveries.
    pub inside_points: u64,
    /// Their states.
    pub inside: Explored,
    /// Moments in operations after a recovery.
    pub then_points: u64,
    /// Their states.
    pub then: Explored,
    /// The same by kind of operation: moments and states, inside and after recovery included.
    pub by_operation: BTreeMap<String, (u64, Explored)>,
    /// How long it took.
    pub time: Duration,
    /// Operations that found no space.
    pub no_space: u64,
    /// Bits that were flipped.
    pub flips: u64,
    /// States in which memory could not be loaded.
    pub poisoned: u64,
    /// Schedules of two threads that were run.
    pub schedules: u64,
    /// Cases of two threads, and those of which not all schedules were run.
    pub threads: (u64, u64),
    /// The judged images.
    pub images: Images,
    /// The places in the code that fenced and wrote back, in operations and recoveries.
    pub sites: BTreeSet<LeftOut>,
    /// The rules that were come to.
    pub rules: BTreeSet<Rule>,
    /// It was stopped before all was looked at.
    pub cut_short: bool,
}

impl Tally {
    /// Adds another run's.
    pub fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.points += other.points;
        self.states.add(&other.states);
        self.inside_points += other.inside_points;
        self.inside.add(&other.inside);
        self.then_points += other.then_points;
        self.then.add(&other.then);
        for (operation, (points, states)) in &other.by_operation {
            let row = self.by_operation.entry(operation.clone()).or_default();
            row.0 += points;
            row.1.add(states);
        }
        self.time += other.time;
        self.no_space += other.no_space;
        self.flips += other.flips;
        self.poisoned += other.poisoned;
        self.schedules += other.schedules;
        self.threads.0 += other.threads.0;
        self.threads.1 += other.threads.1;
        self.images.add(&other.images);
        self.sites.extend(other.sites.iter().copied());
        self.rules.extend(other.rules.iter().copied());
        self.cut_short |= other.cut_short;
    }

    /// Moments and states, all together.
    pub fn total(&self) -> (u64, Explored) {
        let mut all = self.states;
        all.add(&self.inside);
        all.add(&self.then);
        (self.points + self.inside_points + self.then_points, all)
    }

    /// States that were recovered and judged.
    pub fn judged(&self) -> u64 {
        self.states.judged + self.inside.judged + self.then.judged
    }

    /// States that were not judged because the judge could not tell them from one that was.
    pub fn pruned(&self) -> f64 {
        self.states.pruned + self.inside.pruned + self.then.pruned
    }
}
