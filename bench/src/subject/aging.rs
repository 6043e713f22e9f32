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
use crate::workload::Stage;
use crate::workload::churn::{Aged, Goal, Look, age};

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
/// interrupted.
///
/// # Errors
/// Where the pool fails.
pub fn churn(
    path: &Path,
    options: &PoolOptions,
    plan: &Plan,
    is_over: &dyn Fn() -> bool,
) -> io::Result<Option<Outcome>> {
    let file = Gone(path.to_owned());
    let aged = aged(path, (options, &FormatOptions::default()), plan, is_over)?;
    let Some(aged) = aged else { return Ok(None) };
    let gauges = gauges(path)?;
    drop(file);
    Ok(Some(outcome(aged, plan, &gauges)))
}

/// Makes a pool at `path`, ages it, and closes it; it is not as it should be where that was interrupted.
///
/// # Errors
/// Where the pool fails.
pub(super) fn aged(
    path: &Path,
    (options, format): (&PoolOptions, &FormatOptions),
    plan: &Plan,
    is_over: &dyn Fn() -> bool,
) -> io::Result<Option<Aged>> {
    let pool = options.create(path, plan.bytes, format)?;
    let mut stage = Stage::new(InProcess::new(pool.clone())?);
    let goal = Goal { bytes: plan.bytes * plan.times, log_pages: plan.log_pages, time: plan.time };
    let aged = age(&mut stage, &goal, &|| look(&pool), is_over)?;
    drop(stage);
    pool.close()?;
    Ok(aged)
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

fn outcome(aged: Aged, plan: &Plan, gauges: &Gauges) -> Outcome {
    let Aged { first, last, samples, reached, spent, pages_free_max, time } = aged;
    let [first_samples, last_samples] = samples;
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
    let used = 1.0 - pages_free_max as f64 / spent.pages as f64;
    Outcome {
        times: vec![
            Timed { workload: "churn-first", ns_per_op: first, samples: first_samples },
            Timed { workload: "churn-last", ns_per_op: last, samples: last_samples },
        ],
        figures: vec![
            figure(REACHED, reached, "part"),
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
            time: Duration::from_millis(700),
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
