//! A pool of its own for `churn`, in this process.

use std::io;
use std::path::Path;
use std::time::Duration;

use lode::{FormatOptions, Pool, PoolOptions};
use lode_engine::{Gauges, OpenOptions, PageClass};
use lode_host::StdHost;
use lode_pmem::{LINE_BYTES, Mapped, RegionOptions};

use super::library::InProcess;
use super::{Gone, Outcome, Timed};
use crate::report::Figure;
use crate::stats::Histogram;
use crate::workload::Stage;
use crate::workload::churn::{Ageing, Goal, Look, PARTS, PARTS_IN_ALL, Part};

/// How large the pool is, and how long it goes on.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes of the pool.
    pub bytes: u64,
    /// How often they are to be written.
    pub times: u64,
    /// Log pages that are to be collected.
    pub log_pages: u64,
    /// The longest that it may take.
    pub time: Duration,
}

/// What `lode bench` does.
pub const PLAN: Plan =
    Plan { bytes: 1 << 30, times: 10, log_pages: 1_000_000, time: Duration::from_secs(15 * 60) };

/// Makes a pool at `path`, ages it, and looks how its free space lies; nothing where it was
/// interrupted. While it goes the last tenth of its way, a young pool beside it goes its first steps, by turns.
///
/// # Errors
/// Where the pools fail.
pub fn churn(
    path: &Path,
    options: &PoolOptions,
    plan: &Plan,
    is_over: &dyn Fn() -> bool,
) -> io::Result<Option<Outcome>> {
    let how = (options, &FormatOptions::default());
    let young_path = path.with_extension("young");
    let files = [path, &young_path].map(|path| Gone(path.to_owned()));
    let (mut old, mut young) = (Aged::new(path, how, plan)?, None);
    let mut found = Found::default();
    let mut aside = (Part::default(), Histogram::new());
    while let Some(part) = old.ageing.part()? {
        if is_over() {
            return Ok(None);
        }
        let Some(at) = part.checked_sub(PARTS_IN_ALL - PARTS).filter(|at| *at < PARTS) else {
            old.ageing.step(&mut aside.0, &mut aside.1)?;
            continue;
        };
        let young = match &mut young {
            Some(young) => young,
            none => none.insert(Aged::new(&young_path, how, plan)?),
        };
        let both = found.parts.iter_mut().zip(&mut found.samples);
        for (one, (parts, samples)) in [young, &mut old].into_iter().zip(both) {
            if let Some(part) = parts.get_mut(at) {
                one.ageing.step(part, samples)?;
            }
        }
    }
    if let Some(young) = young {
        young.close()?;
    }
    let way = old.close()?;
    let gauges = gauges(path)?;
    drop(files);
    Ok(Some(outcome(&way, found, plan, &gauges)))
}

/// Times of calls: in a young pool, and in an aged one.
struct Found {
    parts: [[Part; PARTS]; 2],
    samples: [Histogram; 2],
}

impl Default for Found {
    fn default() -> Self {
        Self { parts: Default::default(), samples: [Histogram::new(), Histogram::new()] }
    }
}

/// A pool that ages.
struct Aged {
    pool: Pool,
    stage: Stage<InProcess>,
    ageing: Ageing<InProcess>,
}

impl Aged {
    fn new(
        path: &Path,
        (options, format): (&PoolOptions, &FormatOptions),
        plan: &Plan,
    ) -> io::Result<Self> {
        let pool = options.create(path, plan.bytes, format)?;
        let mut stage = Stage::new(InProcess::new(pool.clone())?);
        let bytes = plan.bytes * plan.times;
        let goal = Goal { bytes, log_pages: plan.log_pages, time: plan.time };
        let looked_at = pool.clone();
        let ageing = Ageing::new(&mut stage, goal, Box::new(move || look(&looked_at)))?;
        Ok(Self { pool, stage, ageing })
    }

    /// Closes the pool; what it has gone through is left.
    fn close(self) -> io::Result<Way> {
        let Self { pool, stage, ageing } = self;
        let way = Way {
            spent: ageing.spent()?,
            reached: ageing.reached()?,
            time: ageing.time(),
            pages_free_max: ageing.pages_free_max(),
        };
        drop((stage, ageing));
        pool.close()?;
        Ok(way)
    }
}

/// What a pool has gone through.
struct Way {
    spent: Look,
    /// How much of the goal.
    reached: f64,
    time: Duration,
    pages_free_max: u64,
}

/// Makes a pool at `path`, ages it, and closes it; false, and not as it should be, where that was interrupted.
///
/// # Errors
/// Where the pool fails.
pub(super) fn age(
    path: &Path,
    how: (&PoolOptions, &FormatOptions),
    plan: &Plan,
    is_over: &dyn Fn() -> bool,
) -> io::Result<bool> {
    let mut aged = Aged::new(path, how, plan)?;
    let mut aside = (Part::default(), Histogram::new());
    while aged.ageing.part()?.is_some() {
        if is_over() {
            return Ok(false);
        }
        aged.ageing.step(&mut aside.0, &mut aside.1)?;
    }
    aged.close().map(|_| true)
}

fn look(pool: &Pool) -> io::Result<Look> {
    let (space, stats) = (pool.statfs()?, pool.stats()?);
    Ok(Look {
        pages: space.pages,
        pages_free: space.pages_free,
        bytes: stats.door.streamed_bytes + stats.door.lines * LINE_BYTES as u64,
        log_pages: stats.collected.fast_pages + stats.collected.thorough_pages,
    })
}

/// How the pool at `path` is: what the library does not tell.
fn gauges(path: &Path) -> io::Result<Gauges> {
    let region = Mapped::open(path, &RegionOptions::new()).map_err(io::Error::other)?;
    let pool = lode_engine::Pool::open(region, StdHost::new(), &OpenOptions::default());
    pool.and_then(|pool| pool.gauges()).map_err(io::Error::other)
}

fn outcome(way: &Way, found: Found, plan: &Plan, gauges: &Gauges) -> Outcome {
    let Way { spent, reached, time, pages_free_max } = way;
    let times = found.parts.map(|parts| parts.iter().filter_map(Part::ns_per_op).collect());
    let ([first, last], [first_samples, last_samples]) = (times, found.samples);
    let figure = |what: &str, value: f64, unit: &str| Figure {
        workload: "churn".to_owned(),
        subject: String::new(),
        what: what.to_owned(),
        value,
        unit: unit.to_owned(),
    };
    let free = gauges.space.pages_free.max(1) as f64;
    let huge = (gauges.free_extents.huge * PageClass::Huge.pages()) as f64 / free;
    let written = spent.bytes as f64 / plan.bytes as f64;
    let used = 1.0 - *pages_free_max as f64 / spent.pages as f64;
    Outcome {
        times: vec![
            Timed { workload: "churn-first", ns_per_op: first, samples: first_samples },
            Timed { workload: "churn-last", ns_per_op: last, samples: last_samples },
        ],
        figures: vec![
            figure(REACHED, *reached, "part"),
            figure(HUGE, huge, "part"),
            figure("used space, at least", used, "part"),
            figure("written", written, "pool sizes"),
            figure("log pages collected", spent.log_pages as f64, "pages"),
            figure("time", time.as_secs_f64(), "s"),
        ],
        ..Outcome::default()
    }
}

/// The figure that says how much was done of what was to be done.
pub const REACHED: &str = "done of what was to be done";
/// The figure that says how much of the free space is in large pieces.
pub const HUGE: &str = "free space in aligned 2 MiB extents";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_ages_full_until_it_is_written_and_its_logs_are_collected() {
        let dir = tempfile::tempdir_in(crate::place::usual()).unwrap();
        let path = dir.path().join("churn");
        let plan =
            Plan { bytes: 64 << 20, times: 2, log_pages: 2000, time: Duration::from_secs(60) };
        let options = PoolOptions::new();
        let found = churn(&path, &options, &plan, &|| false).unwrap().unwrap();
        let figure = |what: &str| found.figures.iter().find(|one| one.what == what).unwrap().value;
        assert_eq!(figure(REACHED), 1.0);
        assert!(figure("written") >= 2.0 && figure("written") < 3.0, "{:?}", found.figures);
        assert!(figure("log pages collected") >= 2000.0, "{:?}", found.figures);
        assert!((0.93..0.97).contains(&figure("used space, at least")), "{:?}", found.figures);
        assert!((0.0..=1.0).contains(&figure(HUGE)));
        for timed in &found.times {
            assert_eq!(timed.ns_per_op.len(), 7, "{}", timed.workload);
            assert!(timed.ns_per_op.iter().all(|ns| *ns > 100.0), "{:?}", timed.ns_per_op);
            assert!(timed.samples.percentile(50.0).is_some());
        }
        assert!(!path.exists());
    }

    #[test]
    fn one_that_takes_too_long_tells_how_far_it_got_and_one_that_is_interrupted_nothing() {
        let dir = tempfile::tempdir_in(crate::place::usual()).unwrap();
        let path = dir.path().join("churn");
        let plan = Plan {
            bytes: 64 << 20,
            times: 1 << 20,
            log_pages: 1 << 40,
            time: Duration::from_secs(3),
        };
        let options = PoolOptions::new();
        let found = churn(&path, &options, &plan, &|| false).unwrap().unwrap();
        let reached = found.figures.iter().find(|one| one.what == REACHED).unwrap().value;
        assert!(reached > 0.0 && reached < 0.5, "{reached}");
        assert!(found.times.iter().all(|timed| !timed.ns_per_op.is_empty()));
        assert!(churn(&path, &options, &plan, &|| true).unwrap().is_none());
        assert!(!path.exists());
    }
}
