//! Scrubs that repair: in each case they find what was damaged, wherever the power fails nothing is lost, and what is left
//! out of the repair is noticed.

use lode_crash::explore::{Limits, Stop};
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Job, Mutant, Set, job_of, mutants_of, run_batch, run_mutants};
use lode_crash::workload::{scenarios, two_threads};
use lode_engine::Rule;

/// Where a scrub stores.
const FILES: [&str; 2] = ["engine/src/scrub/", "engine/src/file/relocate.rs"];
const RULES: [Rule; 1] = [Rule::RepairsFenced];

fn jobs(profiles: &[Profile]) -> Vec<Job> {
    let numbered = |set, cases: Vec<lode_crash::case::Case>| {
        cases.into_iter().enumerate().map(move |(number, case)| ((set, number), case))
    };
    let cases = numbered(Set::Hard, scenarios()).chain(numbered(Set::Pairs, two_threads()));
    let cases = cases.filter(|(_, case)| case.name.contains("a scrub"));
    let under = |(id, case): ((Set, usize), lode_crash::case::Case)| {
        profiles.iter().map(move |profile| job_of(id, case.clone(), *profile, 1))
    };
    cases.flat_map(under).collect()
}

fn batch(limits: Limits) -> Batch {
    Batch { limits, workers: 2, time_max: None, stop: Stop::NEVER }
}

#[test]
fn a_scrub_that_is_cut_off_loses_nothing_and_what_it_has_told_to_be_repaired_is() {
    let jobs = jobs(&Profile::ALL);
    assert_eq!(jobs.len(), 3 * 21);
    let outcome = run_batch(&jobs, &batch(Limits::GLANCE), &());
    let failures = outcome.failures.iter();
    let text: String =
        failures.map(|(job, failure)| format!("{}\n{failure}\n", jobs[*job].id)).collect();
    assert!(outcome.failures.is_empty(), "{text}");
    let tally = &outcome.tally;
    println!("{} points, {} judged in {:?}", tally.points, tally.judged(), tally.time);
    assert!(tally.inside_points > 100, "{}", tally.inside_points);
}

#[test]
fn what_is_left_out_of_a_repair_is_noticed() {
    let jobs = jobs(&[Profile::Adr]);
    let batch = batch(Limits::GLANCE);
    let sound = run_batch(&jobs, &batch, &());
    let mut mutants = mutants_of(&sound);
    mutants.retain(|mutant| match mutant {
        Mutant::Site(site) => FILES.iter().any(|file| site.site().file.starts_with(file)),
        Mutant::Rule(rule) => RULES.contains(rule),
    });
    assert!(mutants.len() >= 4, "{mutants:?}");
    let verdicts = run_mutants(&mutants, &jobs, &sound, &batch, &());
    verdicts.iter().for_each(|verdict| println!("{verdict}"));
    let missed = verdicts.iter().filter(|verdict| verdict.killed_by.is_none());
    let missed: Vec<String> = missed.map(|verdict| verdict.to_string()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}
