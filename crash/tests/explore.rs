//! The power may fail at any moment: whatever the memory then holds opens, shows what had
//! returned and nothing by halves, and works.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use lode_crash::explore::Limits;
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Job, Outcome, Set, jobs_of, run_batch};
use lode_crash::workload::{scenarios, seq1};

const BATCH: Batch = Batch { limits: Limits::QUICK, workers: 2, time_max: None };

fn run(what: &str, jobs: &[Job]) -> Outcome {
    let outcome = run_batch(jobs, &BATCH, &());
    let judged = outcome.tally.judged();
    let each_second = judged as f64 / outcome.time.as_secs_f64();
    println!("{what}: {judged} states judged in {:?}, {each_second:.0} a second", outcome.time);
    let mut slow: Vec<_> = jobs
        .iter()
        .zip(&outcome.tallies)
        .filter_map(|(job, tally)| Some((tally.as_ref()?.time, job)))
        .collect();
    slow.sort_by_key(|one| std::cmp::Reverse(one.0));
    for (time, job) in slow.iter().take(12) {
        println!("{time:?} {} {}", job.id, job.case.name);
    }
    for (job, failure) in outcome.failures.iter().take(4) {
        println!("{}\n{failure}", jobs[*job].id);
    }
    assert!(outcome.failures.is_empty(), "{what}: {} jobs fail", outcome.failures.len());
    outcome
}

#[test]
fn hard_sequences_survive_a_cut_anywhere() {
    for profile in [Profile::Adr] {
        run(profile.name(), &jobs_of((Set::Hard, 0, 1), scenarios(), profile, 1));
    }
}

#[test]
fn every_operation_alone_survives_a_cut_anywhere() {
    for profile in [Profile::Adr] {
        run(profile.name(), &jobs_of((Set::Seq1, 0, 1), seq1(), profile, 1));
    }
}

#[test]
fn two_threads_survive_a_cut_anywhere() {
    for profile in [Profile::Adr] {
        run(
            profile.name(),
            &jobs_of((Set::Pairs, 0, 1), lode_crash::workload::two_threads(), profile, 1),
        );
    }
}
