//! Pools with snapshots that get a higher level: what they see moves in each of these cases, and what is left out of that is
//! noticed.

use lode_crash::explore::{Limits, Stop};
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Job, Mutant, Set, job_of, mutants_of, run_batch, run_mutants};
use lode_crash::workload::scenarios;
use lode_engine::Rule;

/// Where the fence of each log is that is written anew.
const NEW: &str = "engine/src/level/seen.rs";
const FILES: [&str; 2] = [NEW, "engine/src/inode/seen.rs"];
const RULES: [Rule; 2] = [Rule::SeenComesHome, Rule::KeptSummed];

fn jobs(profiles: &[Profile]) -> Vec<Job> {
    let cases = scenarios().into_iter().enumerate();
    let cases = cases.filter(|(_, case)| case.name.starts_with("a pool with snapshots gets "));
    let under = |(number, case): (usize, _)| {
        profiles
            .iter()
            .map(move |profile| job_of((Set::Hard, number), Clone::clone(&case), *profile, 1))
    };
    cases.flat_map(under).collect()
}

fn batch(limits: Limits) -> Batch {
    Batch { limits, workers: 2, time_max: None, stop: Stop::NEVER }
}

#[test]
fn logs_that_snapshots_see_move_in_each_case_and_what_is_left_out_is_noticed() {
    let jobs = jobs(&[Profile::Adr]);
    assert_eq!(jobs.len(), 6);
    let batch = batch(Limits::GLANCE);
    let sound = run_batch(&jobs, &batch, &());
    let failures = sound.failures.iter().take(3);
    let text: String =
        failures.map(|(job, failure)| format!("{}\n{failure}\n", jobs[*job].id)).collect();
    assert!(sound.failures.is_empty(), "{text}");
    let mut unmoved = Vec::new();
    for (job, tally) in jobs.iter().zip(&sound.tallies) {
        let sites = tally.iter().flat_map(|tally| &tally.sites);
        let anew = sites.filter(|site| site.site().file == NEW).count();
        if anew == 0 {
            unmoved.push(job.case.name.clone());
        }
    }
    assert!(unmoved.is_empty(), "nothing is written anew: {unmoved:#?}");
    let mut mutants = mutants_of(&sound);
    mutants.retain(|mutant| match mutant {
        Mutant::Site(site) => FILES.contains(&site.site().file),
        Mutant::Rule(rule) => RULES.contains(rule),
    });
    assert!(mutants.len() >= 4, "{mutants:?}");
    let verdicts = run_mutants(&mutants, &jobs, &sound, &batch, &());
    let missed: Vec<String> = verdicts
        .iter()
        .filter(|verdict| verdict.killed_by.is_none())
        .map(|verdict| verdict.to_string())
        .collect();
    verdicts.iter().for_each(|verdict| println!("{verdict}"));
    assert!(missed.is_empty(), "{missed:#?}");
}
