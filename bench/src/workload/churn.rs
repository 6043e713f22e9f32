//! Ageing: the calls of a file server in a pool that is full but for a twentieth, until it has been
//! written many times over.
//!
//! The pool is kept full by making and removing files, and its logs are kept busy by renames, so
//! that both goals are reached at about the same time. Neither is timed: the calls of the list are.

use std::io;
use std::time::{Duration, Instant};

use super::personalities::FILESERVER;
use super::personality::{Personality, Thread, place};
use super::stage::Stage;
use crate::calls::Calls;
use crate::stats::Histogram;
use crate::worker::{Step, clock_ns};

/// How long it goes on.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Until so many bytes are stored.
    pub bytes: u64,
    /// And so many log pages collected.
    pub log_pages: u64,
    /// But no longer than this.
    pub time: Duration,
}

/// How a pool is, and what was done to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Pages that it has.
    pub pages: u64,
    /// Those of them that hold nothing.
    pub pages_free: u64,
    /// Bytes that were stored to it since it was opened.
    pub bytes: u64,
    /// Log pages that were collected since.
    pub log_pages: u64,
}

/// What was found.
pub struct Aged {
    /// Time of a call in each part of the first tenth.
    pub first: Vec<f64>,
    /// The same of the last.
    pub last: Vec<f64>,
    /// Of all single calls of the first tenth, and of the last.
    pub samples: [Histogram; 2],
    /// How much of the goal was reached: 1 for all of it.
    pub reached: f64,
    /// What was done.
    pub spent: Look,
    /// The most pages that held nothing at any time.
    pub pages_free_max: u64,
    /// How long it took.
    pub time: Duration,
}

/// Parts of a tenth, as many as rounds of other workloads.
const PARTS: usize = 7;
const TENTHS: usize = 10;
/// One page in so many is free.
const FREE_PART: u64 = 20;
/// Pages that it may be short of that, or over: a large file, with its log.
const SLACK: u64 = 64;
/// Times through the list before anything is timed.
const WARM_UP: usize = 64;
/// Renames between two looks at the logs, and after one time through the list.
const RENAMES: usize = 32;
const RENAMES_MAX: usize = 4096;
const PAGE: u64 = 4096;

/// A part of the whole way: calls and the time they took.
#[derive(Clone, Copy, Default)]
struct Part {
    calls: u64,
    busy: Duration,
}

struct Churn<'a, C: Calls> {
    thread: Thread<C>,
    look: &'a dyn Fn() -> io::Result<Look>,
    /// What looking at the clock twice takes.
    clock: Duration,
}

impl<C: Calls> Churn<'_, C> {
    /// Makes files, or removes some, until the pool is as full as it is to be.
    fn fill(&mut self) -> io::Result<()> {
        loop {
            let Look { pages, pages_free, .. } = (self.look)()?;
            let wanted = pages / FREE_PART;
            if pages_free > wanted + SLACK {
                self.thread.add()?;
            } else if pages_free + SLACK < wanted {
                self.thread.delete()?;
            } else {
                return Ok(());
            }
        }
    }

    /// Goes through the list once, each call timed by itself.
    fn list(&mut self, part: &mut Part, mut samples: Option<&mut Histogram>) -> io::Result<()> {
        for number in 0..self.thread.list_len() {
            let began = Instant::now();
            self.thread.step(number as u64)?;
            let busy = began.elapsed().saturating_sub(self.clock);
            part.busy += busy;
            part.calls += 1;
            if let Some(samples) = &mut samples {
                samples.add(u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX));
            }
        }
        Ok(())
    }

    /// Renames files until so many log pages are collected.
    fn rename(&mut self, log_pages: u64) -> io::Result<()> {
        for number in 0..RENAMES_MAX {
            if number % RENAMES == 0 && (self.look)()?.log_pages >= log_pages {
                break;
            }
            self.thread.rename()?;
        }
        Ok(())
    }
}

impl Goal {
    fn reached(&self, spent: &Look) -> f64 {
        let bytes = spent.bytes as f64 / self.bytes.max(1) as f64;
        bytes.min(spent.log_pages as f64 / self.log_pages.max(1) as f64).min(1.0)
    }
}

fn since(now: &Look, before: &Look) -> Look {
    Look { bytes: now.bytes - before.bytes, log_pages: now.log_pages - before.log_pages, ..*now }
}

/// Ages the pool on `stage` until the goal is reached or nobody wants more (then nothing is told).
/// Its files stay.
///
/// # Errors
/// Where the subject fails.
pub fn age<C: Calls>(
    stage: &mut Stage<C>,
    goal: &Goal,
    look: &dyn Fn() -> io::Result<Look>,
    is_over: &dyn Fn() -> bool,
) -> io::Result<Option<Aged>> {
    let of = Personality { files: 0, ..FILESERVER };
    let place = place(stage, &of)?;
    // As many names as there could be files.
    let names = look()?.pages * PAGE / (of.file_bytes / 2);
    let thread = Thread::new(stage, (0, names as usize), &of, place)?.leaving();
    let mut churn = Churn { thread, look, clock: Duration::from_nanos(clock_ns()) };
    churn.fill()?;
    for _ in 0..WARM_UP {
        churn.list(&mut Part::default(), None)?;
        churn.fill()?;
    }
    let (before, began) = (look()?, Instant::now());
    let mut parts = [Part::default(); PARTS * TENTHS];
    let mut samples = [Histogram::new(), Histogram::new()];
    let mut pages_free_max = 0;
    loop {
        let spent = since(&look()?, &before);
        pages_free_max = spent.pages_free.max(pages_free_max);
        let (reached, time) = (goal.reached(&spent), began.elapsed());
        // On the way to the goal, or to the end of the time if that comes first.
        let way = reached.max(time.as_secs_f64() / goal.time.as_secs_f64());
        let at = (way * (PARTS * TENTHS) as f64) as usize;
        let Some(part) = parts.get_mut(at) else {
            let (first, last) = tenths(&parts);
            return Ok(Some(Aged { first, last, samples, reached, spent, pages_free_max, time }));
        };
        if is_over() {
            return Ok(None);
        }
        let [first, last] = &mut samples;
        let samples = match at / PARTS {
            0 => Some(first),
            tenth if tenth == TENTHS - 1 => Some(last),
            _ => None,
        };
        churn.list(part, samples)?;
        let written = since(&look()?, &before).bytes as f64 / goal.bytes.max(1) as f64;
        churn
            .rename(before.log_pages + (written.min(1.0) * goal.log_pages as f64).ceil() as u64)?;
        churn.fill()?;
    }
}

/// Times of a call in the parts of the first tenth and of the last.
fn tenths(parts: &[Part]) -> (Vec<f64>, Vec<f64>) {
    let ns = |part: &Part| part.busy.as_secs_f64() * 1e9 / part.calls as f64;
    let times = |parts: &[Part]| parts.iter().filter(|part| part.calls > 0).map(ns).collect();
    let last = parts.get(parts.len() - PARTS..).unwrap_or_default();
    (times(parts.get(..PARTS).unwrap_or_default()), times(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Posix;

    #[test]
    fn what_looking_at_the_clock_takes_is_no_part_of_a_call() {
        let dir = tempfile::tempdir_in(crate::place::usual()).unwrap();
        let mut stage = Stage::new(Posix::new(dir.path(), false).unwrap());
        let of = Personality { files: 0, ..FILESERVER };
        let place = place(&mut stage, &of).unwrap();
        let thread = Thread::new(&stage, (0, 100), &of, place).unwrap();
        let look = || Ok(Look::default());
        // A clock that takes longer than any call.
        let mut churn = Churn { thread, look: &look, clock: Duration::from_secs(60) };
        for _ in 0..20 {
            churn.thread.add().unwrap();
        }
        let (mut part, mut samples) = (Part::default(), Histogram::new());
        churn.list(&mut part, Some(&mut samples)).unwrap();
        assert_eq!(part.calls, of.calls.len() as u64);
        assert_eq!((part.busy, samples.percentile(100.0)), (Duration::ZERO, Some(0)));
    }
}
