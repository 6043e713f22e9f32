//! The power may fail at any moment: whatever the memory then holds opens, shows what had
//! returned and nothing by halves, and works. Every operation alone, and two threads under every
//! schedule with few preemptions, in three profiles. (`lode crash run` has more.)
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Mutex;

use lode_crash::case::Case;
use lode_crash::explore::Limits;
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Set, jobs_of, run_batch};
use lode_crash::workload::{scenarios, seq1, share, two_threads};

/// One pair in so many is run here.
const SHARE: usize = 24;

fn survive(set: Set, step: usize, cases: &[Case], limits: Limits) {
    // One after the other: each takes all processors.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let batch = Batch { limits, workers: 2, time_max: None };
    let mut jobs = Vec::new();
    for profile in Profile::ALL {
        jobs.extend(jobs_of((set, 0, step), cases.iter().cloned(), profile, 1));
    }
    // Profiles of one case side by side: they know what the others have judged.
    jobs.sort_by_key(|job| job.id.number);
    let outcome = run_batch(&jobs, &batch, &());
    let (time, judged) = (outcome.time, outcome.tally.judged());
    let each_second = judged as f64 / time.as_secs_f64();
    if set == Set::Seq1 {
        assert!(each_second >= 5000.0, "{each_second} a second");
    }
    println!("{}: {judged} judged in {time:?}, {each_second:.0} a second", set.name());
    let shown = outcome.failures.iter().take(4);
    let text: String =
        shown.map(|(job, failure)| format!("{}\n{failure}\n", jobs[*job].id)).collect();
    assert!(outcome.failures.is_empty(), "{} jobs fail\n{text}", outcome.failures.len());
}

#[test]
fn hard_sequences_survive_a_cut_anywhere() {
    survive(Set::Hard, 1, &scenarios(), Limits::QUICK);
}

#[test]
fn every_operation_alone_survives_a_cut_anywhere() {
    survive(Set::Seq1, 1, &seq1(), Limits::ALONE);
}

#[test]
fn two_threads_survive_a_cut_anywhere() {
    let limits = Limits { schedules: 400, ..Limits::QUICK };
    survive(Set::Pairs, 1, &two_threads(), limits);
}

#[test]
fn a_share_of_all_pairs_survives_a_cut_anywhere() {
    survive(Set::Seq2, SHARE, &share(0, SHARE), Limits::QUICK);
}
