//! Many injections, on all processors; and one of them again, by its name.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lode_engine::{Protection, Rule};
use lode_testkit::rng::{Rng, mix};
use lode_testkit::run::panic_text;
use parking_lot::Mutex;

use super::base::Base;
use super::damage::Damage;
use super::tally::{Row, Tally, Verdict};
use super::trial::{Wrong, try_one};
use crate::explore::Stop;
use crate::run::{Progress, on_workers};

/// Injections into one pool.
const PER_BASE: u64 = 400;
/// Failures after which no new pool is begun.
const FAILURES_MAX: usize = 20;

/// Names an injection: `full-1-12-345` is number 345 into pool 12 of seed 1 at level `full`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InjectionId {
    /// Level of the pool.
    pub level: Protection,
    /// Decides everything random.
    pub seed: u64,
    /// Which pool.
    pub base: u64,
    /// Which injection into it.
    pub number: u64,
}

impl fmt::Display for InjectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}-{}", self.level.name(), self.seed, self.base, self.number)
    }
}

impl FromStr for InjectionId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} names no injection: it looks like full-1-12-345");
        let pieces: Vec<&str> = text.split('-').collect();
        let [level, seed, base, number] = pieces[..] else { return Err(bad()) };
        let level = Protection::ALL.into_iter().find(|one| one.name() == level).ok_or_else(bad)?;
        let parse = |text: &str| text.parse().map_err(|_| bad());
        Ok(Self { level, seed: parse(seed)?, base: parse(base)?, number: parse(number)? })
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Injections in all.
    pub injections: u64,
    /// Decides everything random.
    pub seed: u64,
    /// Levels of the pools, in turn.
    pub levels: Vec<Protection>,
    /// What the engine leaves out from the damage on: the judge is to notice.
    pub left_out: Option<Rule>,
    /// Threads.
    pub workers: usize,
    /// After so long no more is injected.
    pub time_max: Option<Duration>,
    /// Says when to end before that.
    pub stop: Stop,
}

/// An injection after which something is not as it should be.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Which.
    pub id: InjectionId,
    /// Open or wrong.
    pub verdict: Verdict,
    /// What was damaged, how and when.
    pub damage: String,
    /// What is wrong.
    pub what: String,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Verdicts.
    pub tally: Tally,
    /// The first of the worst of each pool.
    pub failed: Vec<Failed>,
    /// Pools.
    pub bases: u64,
    /// How long it took.
    pub time: Duration,
}

/// An injection that was run by its name.
#[derive(Clone, Debug)]
pub struct Injected {
    /// What was damaged, how and when.
    pub damage: String,
    /// How the pool was left, and its size.
    pub pool: String,
    /// What became of it.
    pub verdict: Verdict,
    /// What is wrong, where something is.
    pub what: Option<String>,
}

/// Runs one again.
///
/// # Errors
/// Where the pool itself can't be made.
pub fn inject(id: InjectionId) -> Result<Injected, String> {
    let base = make(id)?;
    let (damage, verdict, what) = one(&base, id, None);
    let pool = format!(
        "{} bytes, {:?}, dead zone {}",
        base.bytes,
        base.left,
        if base.level == Protection::None { 0 } else { base.dead_zone }
    );
    Ok(Injected { damage: damage.story(), pool, verdict, what })
}

fn make(id: InjectionId) -> Result<Base, String> {
    let made = catch_unwind(AssertUnwindSafe(|| Base::make(id.level, id.seed, id.base)));
    made.unwrap_or_else(|payload| Err(panic_text(payload.as_ref())))
}

fn one(base: &Base, id: InjectionId, left_out: Option<Rule>) -> (Damage, Verdict, Option<String>) {
    let mut rng = Rng::new(mix(id.seed ^ mix(id.base ^ mix(id.number))));
    let damage = Damage::draw(base, &mut rng);
    let tried = catch_unwind(AssertUnwindSafe(|| try_one(base, &damage, left_out, rng)));
    match tried.unwrap_or_else(|payload| Err(panic_text(payload.as_ref()).into())) {
        Ok(verdict) => (damage, verdict, None),
        Err(Wrong { what, is_open: true }) => (damage, Verdict::Open, Some(what)),
        Err(Wrong { what, .. }) => (damage, Verdict::Wrong, Some(what)),
    }
}

/// Injects many times.
///
/// # Errors
/// Where a pool is wrong without any damage.
pub fn run_matrix(matrix: &Matrix, progress: &dyn Progress) -> Result<Outcome, String> {
    let began = Instant::now();
    let bases = matrix.injections.div_ceil(PER_BASE);
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let all = Mutex::new((Outcome::default(), None));
    let late = matrix.stop.or_at(matrix.time_max.map(|most| began + most));
    let work = || {
        loop {
            let base = next.fetch_add(1, Relaxed);
            let is_enough = { all.lock().0.failed.len() >= FAILURES_MAX };
            if base >= bases || is_enough || late.is_asked() {
                return;
            }
            let level = matrix.levels[(base % matrix.levels.len() as u64) as usize];
            let id = InjectionId { level, seed: matrix.seed, base, number: 0 };
            let count = PER_BASE.min(matrix.injections - base * PER_BASE);
            let found = run_base((id, count), matrix.left_out, &late);
            let mut all = all.lock();
            match found {
                Ok((tally, failed)) => {
                    all.0.tally.add(&tally);
                    all.0.failed.extend(failed);
                    all.0.bases += 1;
                }
                Err(what) => all.1 = Some(format!("the pool of {id}: {what}")),
            }
            let injected = all.0.tally.all();
            drop(all);
            let done = done.fetch_add(1, Relaxed) + 1;
            progress.job_done(done as usize, bases as usize, injected);
        }
    };
    on_workers(matrix.workers, &work);
    let (mut outcome, broken) = all.into_inner();
    outcome.time = began.elapsed();
    match broken {
        Some(what) => Err(what),
        None => Ok(outcome),
    }
}

fn run_base(
    (id, count): (InjectionId, u64),
    left_out: Option<Rule>,
    late: &Stop,
) -> Result<(Tally, Option<Failed>), String> {
    let base = make(id)?;
    let (mut tally, mut failed) = (Tally::default(), None::<Failed>);
    for number in 0..count {
        if late.is_asked() {
            break;
        }
        let id = InjectionId { number, ..id };
        let (damage, verdict, what) = one(&base, id, left_out);
        let Damage { kind, copies, form, phase, .. } = damage;
        let row = Row { level: id.level, kind, copies, form, phase };
        tally.note(row, verdict);
        if let Some(what) = what
            && failed.as_ref().is_none_or(|first| first.verdict < verdict)
        {
            failed = Some(Failed { id, verdict, damage: damage.story(), what });
        }
    }
    Ok((tally, failed))
}
