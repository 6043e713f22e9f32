//! Level `full`: what a power failure leaves reads right.

use lode_crash::case::Case;
use lode_crash::explore::{Limits, Stop};
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Job, Set, job_of, run_batch};
use lode_crash::workload::seq1;

/// One case in so many is run with checksums, too.
const SHARE: usize = 24;

fn batch(limits: Limits) -> Batch {
    Batch { limits, workers: 2, time_max: None, stop: Stop::NEVER }
}

fn jobs(set: Set, cases: impl IntoIterator<Item = Case>, profiles: &[Profile]) -> Vec<Job> {
    let cases = cases.into_iter().enumerate();
    let under = |(number, case): (usize, Case)| {
        profiles.iter().map(move |profile| job_of((set, number), case.clone(), *profile, 1))
    };
    cases.flat_map(under).collect()
}

#[test]
fn every_operation_alone_survives_a_cut_anywhere_where_data_has_checksums() {
    let full = |mut case: Case| {
        case.geometry.bytes = 2 * case.geometry.bytes + (512 << 10);
        case.geometry.made = case.geometry.made.map(|made| 2 * made + (256 << 10));
        case.geometry.dead_zone = Some(0);
        case.geometry.strip = Some(512);
        case
    };
    // (Those of full pools fill a pool of one size; no snapshot is made there while a file is mapped.)
    let other = |case: &Case| ["full", "seen in a map"].iter().any(|it| case.name.starts_with(it));
    let cases = seq1().into_iter().filter(|case| !other(case));
    let cases = cases.enumerate().filter(|(number, _)| number % SHARE == 5);
    let jobs = jobs(Set::Hard, cases.map(|(_, case)| full(case)), &Profile::ALL);
    // (Most states are of recoveries that are cut off themselves: a third of those that `lode crash run` has.)
    let limits = Limits { inside_every: 24, then_every: 72, ..Limits::QUICK };
    let outcome = run_batch(&jobs, &batch(limits), &());
    let failures = outcome.failures.iter().take(4);
    let text: String =
        failures.map(|(job, failure)| format!("{}\n{failure}\n", jobs[*job].id)).collect();
    assert!(outcome.failures.is_empty(), "{} jobs fail\n{text}", outcome.failures.len());
}
