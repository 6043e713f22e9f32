//! Memory that is lent: after every crash it is free again, or its program's that outlives its lender; and what is left out of
//! that is noticed.

use lode_crash::explore::{Limits, Stop};
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Job, Mutant, Set, job_of, run_batch, run_mutants};
use lode_crash::workload::seq1;
use lode_engine::Rule;

/// What is left out of lending; of files without names, that a crash ends them.
const RULES: [Rule; 5] =
    [Rule::LentFree, Rule::LentApart, Rule::LentOwed, Rule::HeldKept, Rule::NamelessErased];

fn batch(limits: Limits) -> Batch {
    Batch { limits, workers: 2, time_max: None, stop: Stop::NEVER }
}

fn jobs(profiles: &[Profile]) -> Vec<Job> {
    let is_ours = |name: &str| name.starts_with("lent, ") || name.starts_with("held: ");
    let cases = seq1().into_iter().filter(|case| is_ours(&case.name));
    let under = |(number, case)| {
        let job = move |profile| job_of((Set::Hard, number), Clone::clone(&case), profile, 1);
        profiles.iter().copied().map(job)
    };
    cases.enumerate().flat_map(under).collect()
}

#[test]
fn what_is_lent_is_free_after_every_crash_or_its_programs() {
    let jobs = jobs(&Profile::ALL);
    assert!(jobs.len() >= 15 * Profile::ALL.len());
    let outcome = run_batch(&jobs, &batch(Limits::GLANCE), &());
    let failures = outcome.failures.iter().take(4);
    let text: String =
        failures.map(|(job, failure)| format!("{}\n{failure}\n", jobs[*job].id)).collect();
    assert!(outcome.failures.is_empty(), "{} jobs fail\n{text}", outcome.failures.len());
}

#[test]
fn what_is_left_out_of_lending_is_noticed() {
    let (jobs, batch) = (jobs(&[Profile::Adr]), batch(Limits::GLANCE));
    let sound = run_batch(&jobs, &batch, &());
    assert!(sound.failures.is_empty(), "{}", sound.failures[0].1);
    let mutants: Vec<Mutant> = RULES.map(Mutant::Rule).into();
    for verdict in run_mutants(&mutants, &jobs, &sound, &batch, &()) {
        assert!(verdict.killed_by.is_some(), "{verdict}");
        println!("{verdict}, {:?}", verdict.time);
    }
}
