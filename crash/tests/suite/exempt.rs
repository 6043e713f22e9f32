//! Mapped files at level `full`: a power failure leaves what is mapped exempt or whole, and what is left out of that is noticed.

use lode_crash::explore::{Limits, Stop};
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Job, Mutant, Set, job_of, mutants_of, run_batch, run_mutants};
use lode_crash::workload::seq1;
use lode_engine::Rule;

/// What is left out of exemptions.
const RULES: [Rule; 2] = [Rule::ExemptSaid, Rule::ExemptWhole];

fn batch(limits: Limits) -> Batch {
    Batch { limits, workers: 2, time_max: None, stop: Stop::NEVER }
}

fn jobs(profiles: &[Profile]) -> Vec<Job> {
    let cases = seq1().into_iter().filter(|case| case.name.starts_with("at full"));
    let under = |(number, case)| {
        let job = move |profile| job_of((Set::Hard, number), Clone::clone(&case), profile, 1);
        profiles.iter().copied().map(job)
    };
    cases.enumerate().flat_map(under).collect()
}

#[test]
fn what_is_mapped_is_exempt_or_whole_wherever_it_is_cut_off() {
    let jobs = jobs(&Profile::ALL);
    let outcome = run_batch(&jobs, &batch(Limits::QUICK), &());
    let failures = outcome.failures.iter().take(4);
    let text: String =
        failures.map(|(job, failure)| format!("{}\n{failure}\n", jobs[*job].id)).collect();
    assert!(outcome.failures.is_empty(), "{} jobs fail\n{text}", outcome.failures.len());
}

#[test]
fn what_is_left_out_of_exemptions_is_noticed() {
    let (jobs, batch) = (jobs(&[Profile::Adr]), batch(Limits::GLANCE));
    let sound = run_batch(&jobs, &batch, &());
    assert!(sound.failures.is_empty(), "{}", sound.failures[0].1);
    let is_ours = |mutant: &Mutant| mutant.site().contains("/exempt.rs");
    let sites = mutants_of(&sound).into_iter().filter(is_ours);
    let mutants: Vec<Mutant> = sites.chain(RULES.map(Mutant::Rule)).collect();
    assert!(mutants.len() >= RULES.len() + 3, "{mutants:?}");
    for verdict in run_mutants(&mutants, &jobs, &sound, &batch, &()) {
        assert!(verdict.killed_by.is_some(), "{verdict}");
        println!("{verdict}, {:?}", verdict.time);
    }
}
