//! The power may fail at any moment: whatever the memory then holds opens, shows what had
//! returned and nothing by halves, and works. What takes long and measures nothing: hard sequences, two threads under every
//! schedule with few preemptions, pairs, twins of metadata, in three profiles. (`explore` has every operation
//! alone, `lode crash run` has more.)
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{SHORT, survive};
use lode_crash::case::Case;
use lode_crash::explore::{Limits, Stop};
use lode_crash::run::Set;
use lode_crash::workload::{pair_count, pairs, scenarios, seq1, share, two_threads};

/// One pair in so many is run here.
const SHARE: usize = 200;
/// The last operations of pairs are those on snapshots; one in so many of these pairs is run here.
const SNAPSHOTS: usize = 4;
const SNAPSHOTS_SHARE: usize = 7;
/// One case in so many is run with twins, too.
const TWINS_SHARE: usize = 48;

#[test]
fn hard_sequences_survive_a_cut_anywhere() {
    survive(Set::Hard, scenarios().into_iter().enumerate(), SHORT);
}

#[test]
fn two_threads_survive_a_cut_anywhere() {
    let limits = Limits { schedules: 120, ..SHORT };
    let cases = two_threads().into_iter().enumerate();
    survive(Set::Pairs, cases.filter(|(_, case)| !case.geometry.is_large()), limits);
}

/// (Each state takes long to look at.)
#[test]
fn two_threads_with_large_pages_survive_a_cut_anywhere() {
    let limits = Limits { inside_every: 0, then_every: 0, large_schedules: 8, ..Limits::GLANCE };
    let cases = two_threads().into_iter().enumerate();
    survive(Set::Pairs, cases.filter(|(_, case)| case.geometry.is_large()), limits);
}

#[test]
fn a_share_of_all_pairs_survives_a_cut_anywhere() {
    let numbers = share(0, SHARE);
    survive(Set::Seq2, numbers.iter().copied().zip(pairs(&numbers, &Stop::NEVER)), SHORT);
}

/// A snapshot is made, ends, or becomes what there is, and something else is done behind it.
#[test]
fn pairs_that_begin_with_a_snapshot_survive_a_cut_anywhere() {
    let operations = pair_count().isqrt();
    let first = pair_count() - SNAPSHOTS * operations;
    let numbers: Vec<usize> = (first..pair_count()).step_by(SNAPSHOTS_SHARE).collect();
    let cases = pairs(&numbers, &Stop::NEVER);
    let of_snapshot = |case: &Case| {
        let name = case.name.split_once(": ").map_or("", |(_, name)| name);
        ["snapshot ", "drop ", "rollback "].iter().any(|op| name.starts_with(op))
    };
    assert!(cases.iter().all(of_snapshot));
    survive(Set::Seq2, numbers.into_iter().zip(cases), SHORT);
}

#[test]
fn every_operation_alone_survives_a_cut_anywhere_where_metadata_has_twins() {
    let twice = |mut case: Case| {
        case.geometry.bytes = 2 * case.geometry.bytes + (256 << 10);
        case.geometry.made = case.geometry.made.map(|made| 2 * made + (128 << 10));
        case.geometry.dead_zone = Some(0);
        case
    };
    let limits = SHORT;
    // (Those of full pools fill a pool of one size.)
    let cases = seq1().into_iter().filter(|case| !case.name.starts_with("full"));
    let cases = cases.map(twice).enumerate().filter(|(number, _)| number % TWINS_SHARE == 3);
    survive(Set::Hard, cases, limits);
}
