//! `lode info`: what a pool is, asked from its server where it is mounted.

use std::path::Path;

use crate::args::InfoArgs;
use crate::failure::{Failure, Kind, Result};
use crate::mounts::{self, Mount};
use crate::output::Output;
use crate::region;
use crate::report::{InfoReport, MountFacts, OpeningFacts, PoolFacts};
use crate::server;

/// Runs it.
///
/// # Errors
/// What opening the pool or asking its server gives.
pub(crate) fn run(args: &InfoArgs, output: &Output) -> Result<()> {
    let target = mounts::clean_path(&args.target)?;
    let mount = match mounts::at(&target)?.filter(Mount::is_lode) {
        Some(mount) if mount.is_dead() => {
            return Err(Failure::new(Kind::NotMounted, "the server of this mount is gone")
                .at(&args.target)
                .advise(format!(
                    "`lode mount {} {}` mounts it again and recovers it",
                    mount.source.display(),
                    args.target.display()
                )));
        }
        Some(mount) => Some(mount),
        None if target.is_dir() => mounts::lode_at(&args.target).map(Some)?,
        None => mounts::of_pool(&target)?.filter(|mount| !mount.is_dead()),
    };
    match mount {
        Some(mount) => output.print(&mounted(&mount)?),
        None => output.print(&unmounted(&target, output)?),
    }
}

fn mounted(mount: &Mount) -> Result<InfoReport> {
    let server = server::ask(&mount.dir)?;
    Ok(InfoReport {
        pool: PoolFacts::new(&mount.source, &server.info),
        region: server.region,
        space: server.space.into(),
        opening: server.opening,
        mount: Some(MountFacts {
            dir: mount.dir.display().to_string(),
            pid: server.pid,
            read_only: server.read_only,
            relaxed: server.relaxed,
        }),
    })
}

fn unmounted(path: &Path, output: &Output) -> Result<InfoReport> {
    let pool = region::open_pool(path, true, output)?;
    let info = pool.info().map_err(|error| Failure::engine(path, &error))?;
    Ok(InfoReport {
        pool: PoolFacts::new(path, &info),
        region: region::facts(pool.medium()),
        space: pool.statfs().into(),
        opening: OpeningFacts::from(&pool.opening()),
        mount: None,
    })
}
