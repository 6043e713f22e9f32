//! The power may fail at any moment: whatever the memory then holds opens, shows what had
//! returned and nothing by halves, and works. Every operation alone, and two threads under every
//! schedule with few preemptions, in three profiles. (`lode crash run` has more.)
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Mutex;

use lode_crash::case::Case;
use lode_crash::explore::{Limits, Stop};
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Job, Set, job_of, run_batch};
use lode_crash::workload::{pairs, scenarios, seq1, share, two_threads};

/// One pair in so many is run here.
const SHARE: usize = 100;
/// One case in so many is run with twins, too.
const TWINS_SHARE: usize = 24;

fn survive(set: Set, cases: impl IntoIterator<Item = (usize, Case)>, limits: Limits) {
    // One after the other: each takes all processors.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let batch = Batch { limits, workers: 2, time_max: None, stop: Stop::NEVER };
    // Profiles of one case side by side: they know what the others have judged.
    let under = |(number, case): (usize, Case)| {
        Profile::ALL.map(|profile| job_of((set, number), case.clone(), profile, 1))
    };
    let jobs: Vec<Job> = cases.into_iter().flat_map(under).collect();
    let outcome = run_batch(&jobs, &batch, &());
    let (time, judged) = (outcome.time, outcome.tally.judged());
    let each_second = judged as f64 / time.as_secs_f64();
    let (points, exhausted) = (outcome.tally.points, outcome.tally.states.exhausted);
    if set == Set::Seq1 {
        assert!(each_second >= 5000.0, "{each_second} a second");
        // The others are of data in many words, every combination of which looks different.
        assert!(exhausted * 100 >= points * 97, "{exhausted} of {points} points exhausted");
    }
    println!("{}: {judged} judged in {time:?}, {each_second:.0} a second", set.name());
    println!("{}: {exhausted} of {points} points exhausted", set.name());
    let shown = outcome.failures.iter().take(4);
    let text: String =
        shown.map(|(job, failure)| format!("{}\n{failure}\n", jobs[*job].id)).collect();
    assert!(outcome.failures.is_empty(), "{} jobs fail\n{text}", outcome.failures.len());
}

#[test]
fn hard_sequences_survive_a_cut_anywhere() {
    survive(Set::Hard, scenarios().into_iter().enumerate(), Limits::QUICK);
}

#[test]
fn every_operation_alone_survives_a_cut_anywhere() {
    survive(Set::Seq1, seq1().into_iter().enumerate(), Limits::ALONE);
}

#[test]
fn two_threads_survive_a_cut_anywhere() {
    let limits = Limits { schedules: 400, ..Limits::QUICK };
    survive(Set::Pairs, two_threads().into_iter().enumerate(), limits);
}

#[test]
fn a_share_of_all_pairs_survives_a_cut_anywhere() {
    let numbers = share(0, SHARE);
    survive(Set::Seq2, numbers.iter().copied().zip(pairs(&numbers, &Stop::NEVER)), Limits::QUICK);
}

#[test]
fn every_operation_alone_survives_a_cut_anywhere_where_metadata_has_twins() {
    let twice = |mut case: Case| {
        case.geometry.bytes = 2 * case.geometry.bytes + (256 << 10);
        case.geometry.made = case.geometry.made.map(|made| 2 * made + (128 << 10));
        case.geometry.dead_zone = Some(0);
        case
    };
    let limits = Limits::QUICK;
    // (Those of full pools fill a pool of one size.)
    let cases = seq1().into_iter().filter(|case| !case.name.starts_with("full"));
    let cases = cases.map(twice).enumerate().filter(|(number, _)| number % TWINS_SHARE == 3);
    survive(Set::Hard, cases, limits);
}
