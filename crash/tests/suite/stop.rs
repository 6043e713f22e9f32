//! An exploration ends when it is to: what it has seen counts, and nothing is taken for wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use lode_crash::explore::{Limits, Memo, Setup, Stop, explore};
use lode_crash::region::Profile;
use lode_crash::run::{
    Batch, Job, Set, Verdict, job_of, jobs_of, mutants_of, run_batch, run_mutants,
};
use lode_crash::workload::{flips, scenarios, seq1, two_threads};

/// A case of each kind.
fn jobs() -> Vec<Job> {
    let cases = [
        (Set::Seq1, seq1().remove(40)),
        (Set::Hard, scenarios().remove(7)),
        (Set::Pairs, two_threads().remove(28)),
        (Set::Bits, flips().remove(0)),
    ];
    cases.map(|(set, case)| job_of((set, 0), case, Profile::Adr, 1)).into()
}

#[test]
fn a_stop_ends_any_case_and_nothing_is_wrong() {
    for job in jobs() {
        let whole = explore(&job.case, &job.setup(), &Limits::GLANCE, &mut Memo::default());
        let whole = whole.unwrap();
        assert!(!whole.cut_short, "{}", job.case.name);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let stop = Stop::when(move || count.fetch_add(1, Relaxed) >= 9);
        let setup = Setup { stop, ..job.setup() };
        let part = explore(&job.case, &setup, &Limits::GLANCE, &mut Memo::default()).unwrap();
        assert!(part.cut_short, "{}", job.case.name);
        assert_eq!(asked.load(Relaxed), 10, "{}: asked once more", job.case.name);
        let seen = |tally: &lode_crash::explore::Tally| tally.judged() + tally.flips;
        assert!(seen(&part) < seen(&whole), "{}", job.case.name);
    }
}

#[test]
fn the_later_a_stop_the_more_is_seen_and_nothing_panics() {
    let job = job_of((Set::Seq1, 40), seq1().remove(40), Profile::Adr, 1);
    let until = |questions: usize| {
        let asked = AtomicUsize::new(0);
        let stop = Stop::when(move || asked.fetch_add(1, Relaxed) >= questions);
        let setup = Setup { stop, ..job.setup() };
        explore(&job.case, &setup, &Limits::QUICK, &mut Memo::default()).unwrap()
    };
    let mut before = 0;
    // (One question after the other at first, then by steps: each begins anew.)
    let more = |questions: &usize| Some(questions + 1 + questions / 8);
    for questions in std::iter::successors(Some(0), more) {
        let tally = until(questions);
        assert!(tally.judged() >= before, "{questions}: {} after {before}", tally.judged());
        before = tally.judged();
        if !tally.cut_short {
            break;
        }
    }
    assert!(before > 100, "{before}");
}

#[test]
fn a_case_that_time_ends_is_left_out_and_what_was_seen_of_it_counts() {
    // Alone it takes minutes.
    let cases = scenarios().into_iter().filter(|case| case.name.contains("journal"));
    let jobs = jobs_of(Set::Hard, cases.take(1), Profile::Adr, 1);
    let limits = Limits { inside_every: 1, then_every: 1, ..Limits::DEEP };
    let time_max = Some(Duration::from_millis(400));
    let outcome = run_batch(&jobs, &Batch { limits, workers: 1, time_max, stop: Stop::NEVER }, &());
    assert!(outcome.time < Duration::from_secs(8), "{:?}", outcome.time);
    assert_eq!((outcome.left_out(), outcome.failures.len()), (1, 0));
    assert!(outcome.tally.judged() > 0);
}

#[test]
fn a_mutant_that_time_ends_is_not_said_to_live() {
    let jobs: Vec<Job> = jobs().into_iter().filter(|job| job.id.set == Set::Hard).collect();
    let batch = Batch { limits: Limits::GLANCE, workers: 2, time_max: None, stop: Stop::NEVER };
    let sound = run_batch(&jobs, &batch, &());
    let mutants = mutants_of(&sound);
    let no_time = Batch { time_max: Some(Duration::ZERO), ..batch };
    let verdicts = run_mutants(&mutants, &jobs, &sound, &no_time, &());
    let is_open = |verdict: &Verdict| verdict.late && verdict.killed_by.is_none();
    assert!(verdicts.iter().all(|verdict| is_open(verdict) && verdict.tried == 0));
}
