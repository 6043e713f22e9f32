//! What the programs share that explore whole sets of cases.

use std::sync::Mutex;

use lode_crash::case::Case;
use lode_crash::explore::{Limits, Stop};
use lode_crash::region::Profile;
use lode_crash::run::{Batch, Job, Outcome, Set, job_of, run_batch};

/// To explore is to allocate, mostly: a tenth less of the processors than with the C library's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A third of the recoveries are cut off themselves, and of the operations behind them, that `lode crash run` has: these are three
/// quarters of all states.
pub const SHORT: Limits = Limits { inside_every: 24, then_every: 72, ..Limits::QUICK };

/// Explores cases in three profiles; nothing may be wrong.
pub fn survive(
    set: Set,
    cases: impl IntoIterator<Item = (usize, Case)>,
    limits: Limits,
) -> Outcome {
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
    let (points, exhausted) = (outcome.tally.points, outcome.tally.states.exhausted);
    println!("{}: {judged} judged in {time:?}", set.name());
    let [inside, then] = [&outcome.tally.inside, &outcome.tally.then].map(|of| of.judged);
    println!("{}: {inside} of these inside a recovery, {then} after one", set.name());
    println!("{}: {exhausted} of {points} points exhausted", set.name());
    let shown = outcome.failures.iter().take(4);
    let text: String =
        shown.map(|(job, failure)| format!("{}\n{failure}\n", jobs[*job].id)).collect();
    assert!(outcome.failures.is_empty(), "{} jobs fail\n{text}", outcome.failures.len());
    outcome
}
