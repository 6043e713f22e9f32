//! Ageing: the calls of a file server in a pool that is full but for a twentieth, until it has been
//! written many times over.
//!
//! The pool is kept full by making and removing files, and its logs are kept busy by renames, so
//! that both goals are reached at about the same time. Neither is timed: the calls of the list are.
//! An aged pool is compared with a young one that goes its first steps at the same time, by turns.

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

/// Parts of a tenth of the way, as many as rounds of other workloads.
pub const PARTS: usize = 7;
/// Parts of all of it.
pub const PARTS_IN_ALL: usize = 10 * PARTS;
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

/// Calls and the time they took.
#[derive(Clone, Copy, Default)]
pub struct Part {
    calls: u64,
    busy: Duration,
}

impl Part {
    /// Time of a call, in nanoseconds, if there were any.
    pub fn ns_per_op(&self) -> Option<f64> {
        (self.calls > 0).then(|| self.busy.as_secs_f64() * 1e9 / self.calls as f64)
    }
}

/// Looks at a pool.
pub type LookAt = Box<dyn Fn() -> io::Result<Look>>;

struct Churn<C: Calls> {
    thread: Thread<C>,
    look: LookAt,
    /// What looking at the clock twice takes.
    clock: Duration,
}

impl<C: Calls> Churn<C> {
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
    fn list(&mut self, part: &mut Part, samples: &mut Histogram) -> io::Result<()> {
        for number in 0..self.thread.list_len() {
            let began = Instant::now();
            self.thread.step(number as u64)?;
            let busy = began.elapsed().saturating_sub(self.clock);
            part.busy += busy;
            part.calls += 1;
            samples.add(u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX));
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

/// A pool on its way.
pub struct Ageing<C: Calls> {
    churn: Churn<C>,
    goal: Goal,
    /// When the way began.
    before: Look,
    /// How long it has gone on.
    time: Duration,
    /// The most pages that held nothing at any time.
    pages_free_max: u64,
}

impl<C: Calls> Ageing<C> {
    /// Fills the pool on `stage`, and goes through the list some times. Its files stay.
    ///
    /// # Errors
    /// Where the subject fails.
    pub fn new(stage: &mut Stage<C>, goal: Goal, look: LookAt) -> io::Result<Self> {
        let of = Personality { files: 0, ..FILESERVER };
        let place = place(stage, &of)?;
        // As many names as there could be files.
        let names = look()?.pages * PAGE / (of.file_bytes / 2);
        let thread = Thread::new(stage, (0, names as usize), &of, place)?.leaving();
        let mut churn = Churn { thread, look, clock: Duration::from_nanos(clock_ns()) };
        churn.fill()?;
        for _ in 0..WARM_UP {
            churn.list(&mut Part::default(), &mut Histogram::new())?;
            churn.fill()?;
        }
        let before = (churn.look)()?;
        Ok(Self { churn, goal, before, time: Duration::ZERO, pages_free_max: before.pages_free })
    }

    /// Which part of the way it is in, the way to the goal or to the end of the time; none behind the last.
    ///
    /// # Errors
    /// Where the subject fails.
    pub fn part(&self) -> io::Result<Option<usize>> {
        let by_time = self.time.as_secs_f64() / self.goal.time.as_secs_f64();
        let part = (self.reached()?.max(by_time) * PARTS_IN_ALL as f64) as usize;
        Ok((part < PARTS_IN_ALL).then_some(part))
    }

    /// Goes through the list once, which is added to `part`, makes the pool as full again as it is to be, and keeps its logs
    /// on their way.
    ///
    /// # Errors
    /// Where the subject fails.
    pub fn step(&mut self, part: &mut Part, samples: &mut Histogram) -> io::Result<()> {
        let began = Instant::now();
        let goal = self.goal;
        self.churn.list(part, samples)?;
        let written = self.spent()?.bytes as f64 / goal.bytes.max(1) as f64;
        let log_pages = (written.min(1.0) * goal.log_pages as f64).ceil() as u64;
        self.churn.rename(self.before.log_pages + log_pages)?;
        self.churn.fill()?;
        self.pages_free_max = self.pages_free_max.max((self.churn.look)()?.pages_free);
        self.time += began.elapsed();
        Ok(())
    }

    /// What was done.
    ///
    /// # Errors
    /// Where the subject fails.
    pub fn spent(&self) -> io::Result<Look> {
        Ok(since(&(self.churn.look)()?, &self.before))
    }

    /// How much of the goal is reached: 1 for all of it.
    ///
    /// # Errors
    /// Where the subject fails.
    pub fn reached(&self) -> io::Result<f64> {
        Ok(self.goal.reached(&self.spent()?))
    }

    /// How long it has gone on.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// The most pages that held nothing at any time.
    pub fn pages_free_max(&self) -> u64 {
        self.pages_free_max
    }
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
        let look: LookAt = Box::new(|| Ok(Look::default()));
        // A clock that takes longer than any call.
        let mut churn = Churn { thread, look, clock: Duration::from_secs(60) };
        for _ in 0..20 {
            churn.thread.add().unwrap();
        }
        let (mut part, mut samples) = (Part::default(), Histogram::new());
        churn.list(&mut part, &mut samples).unwrap();
        assert_eq!(part.calls, of.calls.len() as u64);
        assert_eq!((part.busy, samples.percentile(100.0)), (Duration::ZERO, Some(0)));
    }
}
