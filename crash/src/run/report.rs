//! What a run found, as values that serialize.

use serde::Serialize;

use super::{Job, Outcome, ReplayId, Verdict};
use crate::explore::{Failure, Tally};

/// A run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Version of these keys.
    pub schema: u32,
    /// Cases, each under one profile.
    pub cases: usize,
    /// Of those, the ones that were not run, for want of time or after many failures.
    pub cases_left_out: usize,
    /// Operations with the power failing in them.
    pub operations: u64,
    /// Moments at which it failed, inside and after recoveries included.
    pub points: u64,
    /// States that these may have left (of a point at most 1e18 are counted).
    pub states: f64,
    /// States recovered and judged.
    pub judged: u64,
    /// States that the judge could not have told from one that was judged.
    pub pruned: f64,
    /// Points all of whose states (of whole stores) were judged or pruned.
    pub exhausted: u64,
    /// Seconds.
    pub seconds: f64,
    /// States judged in a second.
    pub judged_per_second: f64,
    /// By kind of operation.
    pub by_operation: Vec<OperationReport>,
    /// What was wrong.
    pub failures: Vec<FailureReport>,
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
}

/// One failure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FailureReport {
    /// For `lode crash replay`.
    pub id: String,
    /// Name of the case.
    pub case: String,
    /// What was found against what was expected.
    pub what: String,
    /// The whole story as text.
    pub text: String,
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
    /// What was wrong with it.
    pub how: Option<String>,
    /// Cases tried.
    pub tried: usize,
}

impl Report {
    /// Of a batch.
    pub fn new(jobs: &[Job], outcome: &Outcome) -> Self {
        let Tally { operations, by_operation, .. } = &outcome.tally;
        let (points, all) = outcome.tally.total();
        let seconds = outcome.time.as_secs_f64();
        let rows = by_operation.iter().map(|(operation, (points, states))| OperationReport {
            operation: operation.clone(),
            points: *points,
            states: states.states,
            judged: states.judged,
            pruned: states.pruned,
        });
        let failures = outcome.failures.iter();
        Self {
            schema: 1,
            cases: jobs.len(),
            cases_left_out: outcome.left_out(),
            operations: *operations,
            points,
            states: all.states,
            judged: all.judged,
            pruned: all.pruned,
            exhausted: all.exhausted,
            seconds,
            judged_per_second: all.judged as f64 / seconds.max(1e-9),
            by_operation: rows.collect(),
            failures: failures.map(|(job, one)| FailureReport::new(&jobs[*job], one)).collect(),
        }
    }
}

impl FailureReport {
    /// Of a failure as it was found.
    pub fn new(job: &Job, failure: &Failure) -> Self {
        Self {
            id: ReplayId { job: job.id, path: failure.path.clone() }.to_string(),
            case: failure.case.name.clone(),
            what: failure.what.clone(),
            text: failure.to_string(),
        }
    }
}

impl From<&Verdict> for MutantReport {
    fn from(verdict: &Verdict) -> Self {
        let killed = verdict.killed_by.as_ref();
        Self {
            site: verdict.mutant.site(),
            kind: verdict.mutant.kind().to_owned(),
            killed_by: killed.map(|(id, _)| id.to_string()),
            how: killed.map(|(_, what)| what.clone()),
            tried: verdict.tried,
        }
    }
}
