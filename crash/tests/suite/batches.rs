//! Batches of cases, run as most tests here run them.

use lode_crash::case::Case;
use lode_crash::explore::{Limits, Stop};
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Job, Outcome, Set, job_of, run_batch};

pub(crate) fn batch(limits: Limits) -> Batch {
    Batch { limits, workers: 2, time_max: None, stop: Stop::NEVER }
}

pub(crate) fn jobs(
    set: Set,
    cases: impl IntoIterator<Item = Case>,
    profiles: &[Profile],
) -> Vec<Job> {
    let cases = cases.into_iter().enumerate();
    let under = |(number, case): (usize, Case)| {
        profiles.iter().map(move |profile| job_of((set, number), case.clone(), *profile, 1))
    };
    cases.flat_map(under).collect()
}

pub(crate) fn survive(jobs: &[Job], limits: Limits) -> Outcome {
    assert!(!jobs.is_empty());
    let outcome = run_batch(jobs, &batch(limits), &());
    let failures = outcome.failures.iter().take(4);
    let text: String =
        failures.map(|(job, failure)| format!("{}\n{failure}\n", jobs[*job].id)).collect();
    assert!(outcome.failures.is_empty(), "{} jobs fail\n{text}", outcome.failures.len());
    outcome
}
