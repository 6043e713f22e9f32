//! `lode stats`: what a mounted pool has counted and how it is, asked from its server, once or
//! again and again.

use std::io;
use std::time::Duration;

use std::path::{Path, PathBuf};

use lode_fuse::mountpoint::Mounted;

use crate::args::StatsArgs;
use crate::ask::Asked;
use crate::failure::{Failure, Kind, Result};
use crate::mounts;
use crate::output::Output;
use crate::report::{PoolFacts, StatsReport};
use crate::screen::{Screen, Turns, write_out};

/// Runs it.
///
/// # Errors
/// `NotMounted`, also when the mount goes while it is watched; what asking the server gives.
pub(crate) fn run(args: &StatsArgs, output: &Output) -> Result<()> {
    let place = Place::of(&args.dir)?;
    let mut server = Asked::at(&place.point)?;
    let pool = server.info()?.pool;
    if let Some(every) = args.watch.or(args.every) {
        return watch(&place, &pool, every, args.count, output);
    }
    if !args.prometheus {
        return output.print(&server.stats(&pool)?);
    }
    write_out(&server.metrics(&pool)?).map_err(|error| unwritten(&error))?;
    Ok(())
}

/// Where the server is.
struct Place {
    point: PathBuf,
    /// None where it serves the pool at `point` without a mount.
    mount: Option<Mounted>,
}

impl Place {
    fn of(path: &Path) -> Result<Self> {
        let clean = mounts::clean_path(path)?;
        if mounts::is_served(&clean) {
            return Ok(Self { point: clean, mount: None });
        }
        let mount = mounts::lode_at(path)?;
        mounts::must_answer(&mount)?;
        Ok(Self { point: mount.point.clone(), mount: Some(mount) })
    }

    fn gone(&self) -> Failure {
        let what = match &self.mount {
            Some(_) => "the pool was unmounted while it was watched",
            None => "the server ended while it was watched",
        };
        Failure::new(Kind::NotMounted, what).at(&self.point)
    }
}

/// Shows a report every so often, until a signal, `count` of them, or the end of the mount.
fn watch(
    place: &Place,
    pool: &PoolFacts,
    every: Duration,
    count: Option<u64>,
    output: &Output,
) -> Result<()> {
    let mut turns = Turns::new(every)
        .map_err(|error| Failure::new(Kind::Failed, format!("waiting failed: {error}")))?;
    let mut screen = Screen::new();
    let mut before: Option<StatsReport> = None;
    let mut left = count.unwrap_or(u64::MAX);
    loop {
        let report = next(place, pool, before.as_ref())?;
        let shown = if output.json {
            output.json_line(&report).map(|line| write_out(&line))?
        } else {
            screen.show(&report.picture(before.as_ref(), screen.width()))
        };
        left = left.saturating_sub(1);
        if !shown.map_err(|error| unwritten(&error))? || left == 0 {
            return Ok(());
        }
        before = Some(report);
        let again = turns.wait();
        if !again.map_err(|error| Failure::new(Kind::Failed, format!("waiting failed: {error}")))? {
            return Ok(());
        }
    }
}

/// The next report of the same mount.
fn next(place: &Place, pool: &PoolFacts, before: Option<&StatsReport>) -> Result<StatsReport> {
    let report = match Asked::at(&place.point).and_then(|mut server| server.stats(pool)) {
        Ok(report) => report,
        // Why it does not answer is seen at the mount point.
        Err(failure) => {
            let Some(mount) = &place.mount else { return Err(place.gone()) };
            if mounts::at(&mount.point)?.is_none() {
                return Err(place.gone());
            }
            mounts::must_answer(mount)?;
            return Err(failure);
        }
    };
    if before.is_some_and(|before| before.counted.pid != report.counted.pid) {
        return Err(place.gone());
    }
    Ok(report)
}

fn unwritten(error: &io::Error) -> Failure {
    Failure::new(Kind::Failed, format!("writing the output failed: {error}"))
}
