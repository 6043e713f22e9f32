//! Snapshots while files are mapped: what a power failure leaves is right, and what is left out is noticed.

use lode_crash::case::Case;
use lode_crash::explore::Limits;
use lode_crash::region::Profile;
use lode_crash::run::{Mutant, Set, mutants_of, run_mutants};
use lode_crash::workload::{scenarios, seq1, two_threads};
use lode_engine::Rule;

use crate::batches::{batch, jobs, survive};

fn hard() -> impl Iterator<Item = Case> {
    scenarios().into_iter().filter(|case| case.name.contains("sees of a mapped file"))
}

#[test]
fn what_a_snapshot_sees_in_maps_survives_a_cut_anywhere() {
    let alone = seq1().into_iter().filter(|case| case.name.starts_with("seen in a map"));
    survive(&jobs(Set::Seq1, alone, &Profile::ALL), Limits::QUICK);
    survive(&jobs(Set::Hard, hard(), &Profile::ALL), Limits::QUICK);
}

#[test]
fn a_snapshot_beside_stores_through_maps_survives_a_cut_anywhere() {
    let cases = two_threads().into_iter().filter(|case| case.name.contains("mapped"));
    let limits = Limits { schedules: 400, ..Limits::QUICK };
    survive(&jobs(Set::Pairs, cases, &[Profile::Adr]), limits);
}

#[test]
fn what_is_left_out_of_moving_pages_under_maps_is_noticed() {
    let jobs = jobs(Set::Hard, hard(), &[Profile::Adr]);
    let sound = survive(&jobs, Limits::GLANCE);
    let moves = |mutant: &Mutant| {
        ["file/relocate.rs", "file/shown.rs"].iter().any(|it| mutant.site().contains(it))
    };
    let mut mutants: Vec<Mutant> = mutants_of(&sound).into_iter().filter(moves).collect();
    assert!(!mutants.is_empty());
    mutants.extend([Rule::MapsProtected, Rule::MapsFollow].map(Mutant::Rule));
    for verdict in run_mutants(&mutants, &jobs, &sound, &batch(Limits::GLANCE), &()) {
        println!("{verdict}");
        assert!(verdict.killed_by.is_some(), "nobody notices: {verdict}");
    }
}
