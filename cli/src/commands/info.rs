//! `lode info`: what a pool is, asked from its server where it is mounted.

use std::path::Path;

use lode_fuse::mountpoint::Life;
use lode_stream::point_of;

use super::receive::engine_failure;
use crate::args::InfoArgs;
use crate::ask::Asked;
use crate::failure::{Failure, Result};
use crate::human::printable;
use crate::mounts;
use crate::output::Output;
use crate::region;
use crate::report::{BadMemoryFacts, InfoReport, OpeningFacts, PoolFacts, ReceivingFacts};

/// Runs it.
///
/// # Errors
/// What opening the pool or asking its server gives.
pub(crate) fn run(args: &InfoArgs, output: &Output) -> Result<()> {
    let target = mounts::clean_path(&args.target)?;
    let mount = match mounts::at(&target)? {
        Some(mount) => Some(mount),
        None if target.is_dir() => mounts::lode_at(&args.target).map(Some)?,
        // A dead mount of it says nothing; the pool itself can be looked at.
        None => mounts::of_pool(&target)?.filter(|mount| mounts::life(mount) != Life::Dead),
    };
    match mount {
        Some(mount) => {
            mounts::must_answer(&mount)?;
            output.print(&Asked::at(&mount.point)?.info()?.report(&mount.point))
        }
        None if mounts::is_served(&target) => {
            let report = Asked::at(&target)?.info()?.report(&target);
            output.print(&InfoReport { mount: None, ..report })
        }
        None => output.print(&unmounted(&target, output)?),
    }
}

fn unmounted(path: &Path, output: &Output) -> Result<InfoReport> {
    let pool = region::open_pool(path, true, output)?;
    let failed = |error| Failure::engine(path, &error);
    let (info, bad) = (pool.info().map_err(failed)?, pool.bad_memory().map_err(failed)?);
    let point = point_of(&pool).map_err(|error| engine_failure(path, &error))?;
    let receiving =
        point.map(|point| ReceivingFacts { name: printable(&point.name), offset: point.offset });
    Ok(InfoReport {
        pool: PoolFacts::new(path, &info),
        region: region::facts(pool.medium()),
        space: pool.statfs().into(),
        opening: OpeningFacts::from(&pool.opening()),
        bad_memory: BadMemoryFacts::new(&bad),
        mount: None,
        receiving,
    })
}
