//! Writes by sectors: what a power failure leaves is right, and what is left out of their journal is noticed.

use std::time::Duration;

use lode_crash::case::Case;
use lode_crash::explore::Limits;
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Mutant, Set, mutants_of, run_mutants};
use lode_crash::workload::{scenarios, two_threads};
use lode_engine::Rule;

use crate::batches::{batch, jobs, survive};

/// What is left out of the journal.
const RULES: [Rule; 6] = [
    Rule::SectorsReplayed,
    Rule::SectorsSeal,
    Rule::SectorsPlaces,
    Rule::SectorsApart,
    Rule::SectorsEnded,
    Rule::SectorsAwaited,
];

/// How long a mutant is looked for.
const PATIENCE: Duration = Duration::from_secs(60);

fn of_sectors(cases: Vec<Case>) -> impl Iterator<Item = Case> {
    cases.into_iter().filter(|case| case.name.contains("sectors"))
}

#[test]
fn sectors_survive_a_cut_anywhere() {
    survive(&jobs(Set::Hard, of_sectors(scenarios()), &Profile::ALL), Limits::QUICK);
}

#[test]
fn sectors_that_two_threads_write_survive_a_cut_anywhere() {
    let limits = Limits { schedules: 60, ..Limits::QUICK };
    survive(&jobs(Set::Pairs, of_sectors(two_threads()), &[Profile::Adr]), limits);
}

#[test]
fn what_is_left_out_of_the_journal_of_sectors_is_noticed() {
    let mut all = jobs(Set::Hard, of_sectors(scenarios()), &[Profile::Adr]);
    all.extend(jobs(Set::Pairs, of_sectors(two_threads()), &[Profile::Adr]));
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
