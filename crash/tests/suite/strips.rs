//! Level `full`: what a power failure leaves reads right, what flips is never shown, and what is left out is noticed.

use lode_crash::case::Case;
use lode_crash::explore::{Limits, Stop};
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Job, Mutant, Set, job_of, run_batch, run_mutants};
use lode_crash::workload::{flips, scenarios, seq1};
use lode_engine::Rule;

/// One case in so many is run with checksums, too.
const SHARE: usize = 12;
/// What is left out of what level `full` adds.
const RULES: [Rule; 4] =
    [Rule::StripsWrittenBack, Rule::ParityKept, Rule::SecondChecksum, Rule::StripsVerified];

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
    let outcome = run_batch(&jobs, &batch(Limits::QUICK), &());
    let failures = outcome.failures.iter().take(4);
    let text: String =
        failures.map(|(job, failure)| format!("{}\n{failure}\n", jobs[*job].id)).collect();
    assert!(outcome.failures.is_empty(), "{} jobs fail\n{text}", outcome.failures.len());
}

#[test]
fn what_is_left_out_of_checksums_is_noticed() {
    let hard = scenarios().into_iter().filter(|case| case.geometry.strip.is_some());
    let bits = flips().into_iter().filter(|case| case.geometry.strip.is_some());
    let profiles = [Profile::Adr];
    let jobs = [jobs(Set::Hard, hard, &profiles), jobs(Set::Bits, bits, &profiles)].concat();
    let batch = batch(Limits::GLANCE);
    let sound = run_batch(&jobs, &batch, &());
    assert!(sound.failures.is_empty(), "{}", sound.failures[0].1);
    let mutants: Vec<Mutant> = RULES.iter().map(|rule| Mutant::Rule(*rule)).collect();
    for verdict in run_mutants(&mutants, &jobs, &sound, &batch, &()) {
        assert!(verdict.killed_by.is_some(), "{verdict}");
        println!("{verdict}, {:?}", verdict.time);
    }
}
