//! The loop that measures: one for all subjects and workloads.
//!
//! What is timed is a batch of operations in a row, by two looks at the clock. Every so many
//! operations one is timed by itself, for the percentiles; how many depends on how long they
//! take, so that looking at the clock is about one hundredth of it.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::stats::Histogram;

/// One thread's part of a workload.
pub trait Step: Send {
    /// Operations in a row, after which [`Step::prepare`] is needed again.
    fn batch(&self) -> u64 {
        u64::MAX
    }

    /// Makes ready for a batch, and puts right what the last one of `done` operations has left. Not timed.
    ///
    /// # Errors
    /// Where the subject fails.
    fn prepare(&mut self, _done: u64) -> io::Result<()> {
        Ok(())
    }

    /// Does operation `number` of the batch.
    ///
    /// # Errors
    /// Where the subject fails.
    fn step(&mut self, number: u64) -> io::Result<()>;
}

/// How much a thread did in a slice of time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Slice {
    /// Operations.
    pub operations: u64,
    /// How long they took.
    pub busy: Duration,
}

/// When a slice ends.
#[derive(Debug)]
pub struct Until<'a> {
    /// After so long in operations, by the first thread to get there.
    pub busy: Duration,
    /// Time each operation of so many.
    pub every: u64,
    /// What looking at the clock twice takes.
    pub clock_ns: u64,
    /// Set by that thread, for the others.
    pub stop: &'a AtomicBool,
}

/// A [`Step`] that is measured.
pub trait Worker: Send {
    /// Works for a slice of time, at least one operation.
    ///
    /// # Errors
    /// Where the subject fails.
    fn slice(&mut self, until: &Until<'_>, samples: &mut Histogram) -> io::Result<Slice>;
}

/// Preparing may take so many times as long as what is measured.
const PREPARE_MAX: u32 = 12;

/// A worker that does `step`.
pub fn worker(step: impl Step + 'static) -> Box<dyn Worker> {
    Box::new(Looping { step, done: 0 })
}

struct Looping<S> {
    step: S,
    /// Operations since the last preparation.
    done: u64,
}

impl<S: Step> Worker for Looping<S> {
    fn slice(&mut self, until: &Until<'_>, samples: &mut Histogram) -> io::Result<Slice> {
        let mut slice = Slice::default();
        let late = Instant::now() + until.busy * PREPARE_MAX;
        loop {
            self.step.prepare(self.done)?;
            self.done = 0;
            let watcher = WATCHER.get().unwrap_or(|_| ());
            watcher(true);
            let busy = self.batch(until, until.busy.saturating_sub(slice.busy), samples);
            watcher(false);
            let busy = busy?;
            slice.busy += busy;
            slice.operations += self.done;
            if slice.busy >= until.busy || Instant::now() >= late {
                until.stop.store(true, Relaxed);
            }
            if until.stop.load(Relaxed) {
                return Ok(slice);
            }
        }
    }
}

impl<S: Step> Looping<S> {
    #[inline]
    fn batch(
        &mut self,
        until: &Until<'_>,
        left: Duration,
        samples: &mut Histogram,
    ) -> io::Result<Duration> {
        let most = self.step.batch();
        let mut to_sample = until.every;
        let began = Instant::now();
        while self.done < most {
            to_sample -= 1;
            if to_sample == 0 {
                to_sample = until.every;
                let from = Instant::now();
                self.step.step(self.done)?;
                let now = Instant::now();
                let ns = u64::try_from((now - from).as_nanos()).unwrap_or(u64::MAX);
                samples.add(ns.saturating_sub(until.clock_ns));
                if now - began >= left {
                    until.stop.store(true, Relaxed);
                }
            } else {
                self.step.step(self.done)?;
            }
            self.done += 1;
            if until.stop.load(Relaxed) {
                break;
            }
        }
        Ok(began.elapsed())
    }
}

thread_local! {
    /// Who is told when this thread begins what is timed, and when it ends it.
    static WATCHER: Cell<Option<fn(bool)>> = const { Cell::new(None) };
}

/// Does `work`, of which `watcher` is told when this thread begins what is timed, and when it ends it.
pub fn watched<R>(watcher: fn(bool), work: impl FnOnce() -> R) -> R {
    WATCHER.set(Some(watcher));
    let done = work();
    WATCHER.set(None);
    done
}

/// What looking at the clock adds to an operation that is timed by itself.
pub fn clock_ns() -> u64 {
    let mut all = Histogram::new();
    for _ in 0..10_000 {
        let from = Instant::now();
        let ns = from.elapsed().as_nanos();
        all.add(u64::try_from(ns).unwrap_or(u64::MAX));
    }
    all.percentile(50.0).unwrap_or_default()
}

/// Which operations to time by themselves, where one takes `ns`: odd, so that it does not go in
/// step with batches.
pub fn sample_every(ns: f64, clock_ns: u64) -> u64 {
    const PART: f64 = 100.0;
    let every = 2.0 * clock_ns as f64 * PART / ns.max(1.0);
    (every as u64).clamp(1, 1024) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts, in batches of ten.
    #[derive(Default)]
    struct Counting {
        prepared: Vec<u64>,
        done: Vec<u64>,
    }

    impl Step for Counting {
        fn batch(&self) -> u64 {
            10
        }
        fn prepare(&mut self, done: u64) -> io::Result<()> {
            self.prepared.push(done);
            Ok(())
        }
        fn step(&mut self, number: u64) -> io::Result<()> {
            self.done.push(number);
            Ok(())
        }
    }

    fn until(stop: &AtomicBool, busy: Duration) -> Until<'_> {
        Until { busy, every: 3, clock_ns: 0, stop }
    }

    #[test]
    fn batches_are_whole_and_prepared_and_a_slice_counts_them() {
        let (mut looping, mut samples) =
            (Looping { step: Counting::default(), done: 0 }, Histogram::new());
        let stop = AtomicBool::new(false);
        let slice = looping.slice(&until(&stop, Duration::from_millis(2)), &mut samples).unwrap();
        let Counting { prepared, done } = &looping.step;
        assert_eq!(slice.operations, done.len() as u64);
        assert!(prepared.len() > 10 && prepared[0] == 0);
        assert!(prepared[1..].iter().all(|done| *done == 10), "{prepared:?}");
        assert_eq!(done[..12], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
        assert!(slice.busy >= Duration::from_millis(2) || stop.load(Relaxed));
    }

    #[test]
    fn a_slice_that_is_stopped_has_done_something_and_says_so_to_the_next() {
        let (mut looping, mut samples) =
            (Looping { step: Counting::default(), done: 0 }, Histogram::new());
        let stop = AtomicBool::new(true);
        for _ in 0..2 {
            let slice = looping.slice(&until(&stop, Duration::MAX / 100), &mut samples).unwrap();
            assert_eq!(slice.operations, 1);
        }
        assert_eq!(looping.step.prepared, [0, 1]);
    }

    #[test]
    fn a_watcher_sees_what_is_timed_and_nothing_else() {
        thread_local!(static TIMED: Cell<bool> = const { Cell::new(false) });
        struct Looking;
        impl Step for Looking {
            fn batch(&self) -> u64 {
                5
            }
            fn prepare(&mut self, _done: u64) -> io::Result<()> {
                assert!(!TIMED.get());
                Ok(())
            }
            fn step(&mut self, _number: u64) -> io::Result<()> {
                assert!(TIMED.get());
                Ok(())
            }
        }
        let (stop, mut samples) = (AtomicBool::new(false), Histogram::new());
        let mut looping = Looping { step: Looking, done: 0 };
        let slice = watched(
            |timed| TIMED.set(timed),
            || looping.slice(&until(&stop, Duration::from_millis(2)), &mut samples),
        );
        assert!(slice.unwrap().operations > 5 && !TIMED.get());
    }

    #[test]
    fn fast_operations_are_timed_seldom_and_slow_ones_always() {
        assert_eq!(sample_every(1e6, 40), 1);
        assert_eq!(sample_every(100.0, 40), 81);
        assert_eq!(sample_every(0.0, 1000), 1025);
        assert!(clock_ns() < 10_000);
    }
}
