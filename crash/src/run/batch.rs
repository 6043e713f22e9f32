//! Many jobs on all processors.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Job;
use crate::explore::{Failure, Images, Limits, Memo, Setup, Stop, Tally};

/// Failures after which no new job is begun.
const FAILURES_MAX: usize = 8;

/// How a batch runs.
#[derive(Clone, Debug)]
pub struct Batch {
    /// How far to look in each job.
    pub limits: Limits,
    /// Threads.
    pub workers: usize,
    /// After so long nothing more is looked at.
    pub time_max: Option<Duration>,
    /// Says when to look at nothing more before that.
    pub stop: Stop,
}

/// Who is told how far a batch has come.
pub trait Progress: Sync {
    /// A job has ended: so many of all, and states judged so far.
    fn job_done(&self, done: usize, all: usize, judged: u64);
}

impl Progress for () {
    fn job_done(&self, _done: usize, _all: usize, _judged: u64) {}
}

/// What came of a batch.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Everything counted.
    pub tally: Tally,
    /// Jobs that were run, by their place in the list, and which of them failed.
    pub failures: Vec<(usize, Box<Failure>)>,
    /// What each job counted, by its place in the list; `None` where it was not run to its end.
    pub tallies: Vec<Option<Tally>>,
    /// How long it took.
    pub time: Duration,
}

impl Outcome {
    /// Jobs that were not run to their end for want of time, or after too many failures.
    pub fn left_out(&self) -> usize {
        self.tallies.iter().filter(|tally| tally.is_none()).count() - self.failures.len()
    }

    fn note(&mut self, number: usize, result: Result<Tally, Box<Failure>>) {
        match result {
            Ok(mut tally) => {
                self.tally.add(&tally);
                tally.images = Images::default();
                self.tallies[number] = Some(tally).filter(|tally| !tally.cut_short);
            }
            Err(failure) => self.failures.push((number, failure)),
        }
    }
}

/// Runs jobs; those of one case, where they follow each other, know what the others have judged.
/// Failures are as they were found; the caller may shrink them.
pub fn run_batch(jobs: &[Job], batch: &Batch, progress: &dyn Progress) -> Outcome {
    let began = Instant::now();
    let (next, done, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let tallies = vec![None; jobs.len()];
    let all = Mutex::new(Outcome { tallies, ..Outcome::default() });
    let numbered: Vec<(usize, &Job)> = jobs.iter().enumerate().collect();
    let mut groups: Vec<&[(usize, &Job)]> =
        numbered.chunk_by(|one, two| one.1.same_case(two.1)).collect();
    if groups.len() < batch.workers {
        // To know what the others have judged is worth less than a processor.
        groups = numbered.chunks(1).collect();
    }
    let late = batch.stop.or_at(batch.time_max.map(|most| began + most));
    let work = || {
        while let Some(group) = groups.get(next.fetch_add(1, Relaxed)) {
            let mut memo = Memo::default();
            for (number, job) in *group {
                if stop.load(Relaxed) || late.is_asked() {
                    return;
                }
                let setup = Setup { stop: late.clone(), ..job.setup() };
                let result = job.run(&setup, &batch.limits, &mut memo);
                let mut all = all.lock();
                all.note(*number, result);
                stop.fetch_or(all.failures.len() >= FAILURES_MAX, Relaxed);
                let judged = all.tally.judged();
                drop(all);
                progress.job_done(done.fetch_add(1, Relaxed) + 1, jobs.len(), judged);
            }
        }
    };
    on_workers(batch.workers, &work);
    let mut all = all.into_inner();
    all.failures.sort_by_key(|(number, _)| *number);
    all.time = began.elapsed();
    all
}

/// Runs `work` on so many threads, whose panics (each one a failure that is reported) print nothing.
pub(crate) fn on_workers(workers: usize, work: &(dyn Fn() + Sync)) {
    const NAME: &str = "lode-crash";
    let old = std::sync::Arc::new(std::panic::take_hook());
    let loud = old.clone();
    std::panic::set_hook(Box::new(move |info| {
        if !thread::current().name().is_some_and(|name| name.starts_with(NAME)) {
            loud(info);
        }
    }));
    thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            let worker = thread::Builder::new().name(NAME.to_owned());
            worker.spawn_scoped(scope, work).expect("a thread");
        }
    });
    std::panic::set_hook(Box::new(move |info| old(info)));
}
