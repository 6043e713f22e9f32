//! What a run found, as values that serialize.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Batch, Job, JobId, Outcome, ReplayId, Set, Verdict};
use crate::case::{Case, Trouble};
use crate::explore::{Failure, Setup, Tally};
use crate::states::Explored;
use crate::workload::print_script;

/// Failures of a run that are made shorter.
const SHRUNK_MAX: usize = 3;

/// A run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Cases, each under one profile.
    pub cases: usize,
    /// Of those, the ones that were not run, for want of time or after many failures.
    pub cases_left_out: usize,
    /// Operations with the power failing in them.
    pub operations: u64,
    /// Moments at which it failed, inside and after recoveries included.
    pub points: u64,
    /// States that these may have left: of exhausted points all (of a point at most 1e18 are
    /// counted), of the others those that were tried.
    pub states: f64,
    /// States recovered and judged.
    pub judged: u64,
    /// Different images among the judged ones, byte by byte, all profiles together.
    pub distinct: usize,
    /// As many are different without the file data in them: they differ in metadata.
    pub distinct_metadata: usize,
    /// States that the judge could not have told from one that was judged.
    pub pruned: f64,
    /// Operations that found no space, and must have changed nothing.
    pub no_space: u64,
    /// Schedules of two threads that were run.
    pub schedules: u64,
    /// Bits that were flipped.
    pub flips: u64,
    /// States in which memory could not be loaded, besides what the crash left.
    pub poisoned: u64,
    /// Cases of two threads.
    pub threads: u64,
    /// Of those, the ones of which not all schedules with two preemptions were run.
    pub threads_cut_short: u64,
    /// Points all of whose states (of whole stores) were judged or pruned.
    pub exhausted: u64,
    /// Seconds.
    pub seconds: f64,
    /// States judged in a second.
    pub judged_per_second: f64,
    /// By kind of operation.
    pub by_operation: Vec<OperationReport>,
    /// Cases with a wrong state; each ends at its first.
    pub failures: usize,
    /// What was wrong.
    pub failed: Vec<FailureReport>,
}

/// One kind of operation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct OperationReport {
    /// For example "rename".
    pub operation: String,
    /// Moments.
    pub points: u64,
    /// States.
    pub states: f64,
    /// States judged.
    pub judged: u64,
    /// States pruned.
    pub pruned: f64,
    /// Failures.
    pub failures: usize,
}

/// One failure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FailureReport {
    /// For `lode crash replay`, as it was found.
    pub id: String,
    /// Name of the case.
    pub case: String,
    /// What was found against what was expected.
    pub what: String,
    /// The whole story as text, after operations were left out that it does not take.
    pub text: String,
    /// What is left of the case, as a script.
    pub script: String,
    /// The id of the state for that script.
    pub script_id: String,
}

/// A failure: where it was found, and its shortest story.
#[derive(Clone, Debug)]
pub struct Story {
    /// The job that found it.
    pub job: JobId,
    /// The state as it was found.
    pub id: ReplayId,
    /// The operation in which the power failed first.
    pub operation: String,
    /// What is left after operations were left out that it does not take.
    pub shrunk: Box<Failure>,
}

/// One mutant.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MutantReport {
    /// Place in the code, or name of the rule.
    pub site: String,
    /// What was left out: a fence, a write-back, a rule.
    pub kind: String,
    /// The replay id of the state that showed it; `null` if none did.
    pub killed_by: Option<String>,
    /// What was wrong with it; or that the state is wrong without it, too.
    pub how: Option<String>,
    /// Cases tried to their end.
    pub tried: usize,
    /// There was no time to try all.
    pub late: bool,
    /// How long that took.
    pub seconds: f64,
}

/// The stories of the failures of a batch, the first ones made shorter in at most `time_max`, as
/// long as the batch is not to stop.
pub fn stories(jobs: &[Job], outcome: &Outcome, batch: &Batch, time_max: Duration) -> Vec<Story> {
    let began = Instant::now();
    let story = |(place, (number, failure)): (usize, &(usize, Box<Failure>))| {
        let job = &jobs[*number];
        let time = if place < SHRUNK_MAX { time_max } else { Duration::ZERO };
        let left = time.saturating_sub(began.elapsed());
        let setup = Setup { stop: batch.stop.clone(), ..job.setup() };
        let shrunk = job.shrink(&setup, failure.clone(), &batch.limits, left);
        Story::new(job.id, failure, shrunk)
    };
    outcome.failures.iter().enumerate().map(story).collect()
}

impl Story {
    /// Of a failure as it was found, and of what is left of it.
    pub fn new(job: JobId, found: &Failure, shrunk: Box<Failure>) -> Self {
        let id = ReplayId { job, path: found.path.clone() };
        Self { job, id, operation: operation_of(&found.case, found), shrunk }
    }

    /// What is left of the case, as a script.
    pub fn script(&self) -> String {
        print_script(&self.shrunk.case)
    }

    /// The id of the state for that script.
    pub fn script_id(&self) -> ReplayId {
        let job = JobId { set: Set::Script, number: 0, ..self.job };
        ReplayId { job, path: self.shrunk.path.clone() }
    }
}

/// The verb of the operation in which the power failed first.
fn operation_of(case: &Case, failure: &Failure) -> String {
    if failure.path.schedule.is_some() {
        return "(two threads)".to_owned();
    }
    if failure.case.trouble == Trouble::Bit {
        return "(a bit flips)".to_owned();
    }
    let op = failure.path.legs.first().map(|leg| case.ops.get(leg.step).map(ToString::to_string));
    let line = op.map_or_else(|| "none".to_owned(), |op| op.unwrap_or("remount".to_owned()));
    line.split(' ').next().unwrap_or_default().to_owned()
}

impl Report {
    /// Whether nothing was looked at of what should have been.
    pub fn is_empty(&self) -> bool {
        self.cases_left_out > 0 && self.judged == 0 && self.flips == 0 && self.failures == 0
    }

    /// Of a batch and its failures.
    pub fn new(jobs: &[Job], outcome: &Outcome, stories: &[Story]) -> Self {
        let Tally { operations, .. } = &outcome.tally;
        let (points, all) = outcome.tally.total();
        let seconds = outcome.time.as_secs_f64();
        Self {
            cases: jobs.len(),
            cases_left_out: outcome.left_out(),
            operations: *operations,
            points,
            states: all.states,
            judged: all.judged,
            distinct: outcome.tally.images.count(),
            distinct_metadata: outcome.tally.images.metadata(),
            pruned: all.pruned,
            no_space: outcome.tally.no_space,
            schedules: outcome.tally.schedules,
            flips: outcome.tally.flips,
            poisoned: outcome.tally.poisoned,
            threads: outcome.tally.threads.0,
            threads_cut_short: outcome.tally.threads.1,
            exhausted: all.exhausted,
            seconds,
            judged_per_second: all.judged as f64 / seconds.max(1e-9),
            by_operation: by_operation(&outcome.tally, stories),
            failures: stories.len(),
            failed: stories.iter().map(FailureReport::new).collect(),
        }
    }
}

/// A row for each kind of operation that was cut off, and for each that failed.
fn by_operation(tally: &Tally, stories: &[Story]) -> Vec<OperationReport> {
    let mut all = tally.by_operation.clone();
    for story in stories {
        all.entry(story.operation.clone()).or_default();
    }
    let row = |(operation, (points, states)): (String, (u64, Explored))| OperationReport {
        points,
        states: states.states,
        judged: states.judged,
        pruned: states.pruned,
        failures: stories.iter().filter(|story| story.operation == operation).count(),
        operation,
    };
    all.into_iter().map(row).collect()
}

impl FailureReport {
    /// Of a failure's story.
    pub fn new(story: &Story) -> Self {
        Self {
            id: story.id.to_string(),
            case: story.shrunk.case.name.clone(),
            what: story.shrunk.what.clone(),
            text: story.shrunk.to_string(),
            script: story.script(),
            script_id: story.script_id().to_string(),
        }
    }
}

impl From<&Verdict> for MutantReport {
    fn from(verdict: &Verdict) -> Self {
        let killed = verdict.killed_by.as_ref();
        let anyway = |(id, what): &(_, String)| format!("{id} is wrong without it, too: {what}");
        Self {
            site: verdict.mutant.site(),
            kind: verdict.mutant.kind().to_owned(),
            killed_by: killed.map(|(id, _)| id.to_string()),
            how: killed
                .map(|(_, what)| what.clone())
                .or_else(|| verdict.wrong_anyway.as_ref().map(anyway)),
            tried: verdict.tried,
            late: verdict.late,
            seconds: verdict.time.as_secs_f64(),
        }
    }
}
