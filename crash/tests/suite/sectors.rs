//! Writes by sectors: what a power failure leaves is right, and what is left out of their journal is noticed.

use std::time::Duration;

use lode_crash::case::Case;
use lode_crash::explore::{Limits, Stop};
use lode_crash::region::Profile;
use lode_crash::run::{
    Batch, Job, Mutant, Outcome, Set, job_of, mutants_of, run_batch, run_mutants,
};
use lode_crash::workload::{scenarios, two_threads};
use lode_engine::Rule;

/// What is left out of the journal.
const RULES: [Rule; 5] = [
    Rule::SectorsReplayed,
    Rule::SectorsSeal,
    Rule::SectorsPlaces,
    Rule::SectorsApart,
    Rule::SectorsEnded,
];

/// How long a mutant is looked for.
const PATIENCE: Duration = Duration::from_secs(60);

fn batch(limits: Limits) -> Batch {
    Batch { limits, workers: 2, time_max: None, stop: Stop::NEVER }
}

fn jobs(set: Set, cases: Vec<Case>, profiles: &[Profile]) -> Vec<Job> {
    let cases = cases.into_iter().filter(|case| case.name.contains("sectors")).enumerate();
    let under = |(number, case): (usize, Case)| {
        profiles.iter().map(move |profile| job_of((set, number), case.clone(), *profile, 1))
    };
    cases.flat_map(under).collect()
}

fn survive(jobs: &[Job], limits: Limits) -> Outcome {
    assert!(!jobs.is_empty());
    let outcome = run_batch(jobs, &batch(limits), &());
    let failures = outcome.failures.iter().take(4);
    let text: String =
        failures.map(|(job, failure)| format!("{}\n{failure}\n", jobs[*job].id)).collect();
    assert!(outcome.failures.is_empty(), "{} jobs fail\n{text}", outcome.failures.len());
    outcome
}

#[test]
fn sectors_survive_a_cut_anywhere() {
    survive(&jobs(Set::Hard, scenarios(), &Profile::ALL), Limits::QUICK);
}

#[test]
fn sectors_that_two_threads_write_survive_a_cut_anywhere() {
    let limits = Limits { schedules: 60, ..Limits::QUICK };
    survive(&jobs(Set::Pairs, two_threads(), &[Profile::Adr]), limits);
}

#[test]
fn what_is_left_out_of_the_journal_of_sectors_is_noticed() {
    let mut all = jobs(Set::Hard, scenarios(), &[Profile::Adr]);
    all.extend(jobs(Set::Pairs, two_threads(), &[Profile::Adr]));
    let limits = Limits { schedules: 60, ..Limits::GLANCE };
    let sound = survive(&all, limits);
    let is_ours = |mutant: &Mutant| mutant.site().contains("/sectors.rs");
    let sites = mutants_of(&sound).into_iter().filter(is_ours);
    let mutants: Vec<Mutant> = sites.chain(RULES.map(Mutant::Rule)).collect();
    assert!(mutants.len() >= RULES.len() + 5, "{mutants:?}");
    let mut missed = Vec::new();
    for mutant in mutants {
        // (What is noticed at all is noticed within some seconds; a mutant that is not would take hours.)
        let batch = Batch { time_max: Some(PATIENCE), ..batch(limits) };
        for verdict in run_mutants(&[mutant], &all, &sound, &batch, &()) {
            println!("{verdict}, {:?}", verdict.time);
            missed.extend(verdict.killed_by.is_none().then(|| verdict.to_string()));
        }
    }
    assert!(missed.is_empty(), "nobody notices: {missed:?}");
}
