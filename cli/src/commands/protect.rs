//! `lode protect`: gives a pool that is not mounted another protection level.

use lode_engine::{Error, Pool, Protection, Unusable};
use lode_host::StdHost;
use lode_pmem::RegionOptions;

use crate::args::ProtectArgs;
use crate::failure::{Failure, Kind, Result};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::region::{self, MappedPool};
use crate::report::{PoolFacts, ProtectReport};

/// How a pool gets a larger dead zone.
const ANOTHER_ZONE: &str = "a dead zone is chosen with second copies: `lode protect POOL none` first, and up again with --dead-zone";

/// Runs it.
///
/// # Errors
/// `Usage` for a pool in which copies can't be so far apart, `NoSpace` where there is no room for them,
/// `Unsupported` where inode tables are in the way, `Busy` where the pool is mounted, and what opening gives.
pub(crate) fn run(args: &ProtectArgs, output: &Output) -> Result<()> {
    if args.level == Protection::None && args.dead_zone.is_some() {
        return Err(Failure::usage("--dead-zone means nothing at level none")
            .advise("choose metadata or full, or leave --dead-zone out"));
    }
    let region = region::open(&args.pool, &RegionOptions::new())?;
    let mut progress = Progress::of(Unit::Share, "changing the level", output.progress);
    let mut told = |done, all| progress.set(done, all);
    let changed = Pool::protect(region, StdHost::new(), args.level, args.dead_zone, &mut told);
    drop(progress);
    let changed = changed.map_err(|error| refused(args, &error, &by_now(args, output)))?;
    let pool = region::open_pool(&args.pool, true, output)?;
    let facts = pool.info().map_err(|error| Failure::engine(&args.pool, &error))?;
    if !changed && args.dead_zone.is_some_and(|wanted| wanted > facts.dead_zone) {
        let has = format!(
            "the pool has level {} already, and a dead zone of {} bytes",
            args.level.name(),
            facts.dead_zone
        );
        return Err(Failure::usage(has).at(&args.pool).advise(ANOTHER_ZONE));
    }
    output.print(&ProtectReport {
        changed,
        pool: PoolFacts::new(&args.pool, &facts),
        space: pool.statfs().into(),
    })
}

/// Which level the pool has, where it did not get the one that was asked for: checksums come behind second copies.
fn by_now(args: &ProtectArgs, output: &Output) -> String {
    let level = region::open_pool(&args.pool, true, output).ok().and_then(|pool| pool.info().ok());
    match level {
        Some(facts) => format!("the pool is at level {} now", facts.protection.name()),
        None => "`lode info POOL` says which level it has by now".to_owned(),
    }
}

/// Why the pool has not got its level, and which one it has `by_now`.
fn refused(args: &ProtectArgs, error: &Error, by_now: &str) -> Failure {
    let failure = match error {
        Error::NotAPool(Unusable::TooSmall { least }) => Failure::usage(format!(
            "too small: a pool with two copies of metadata, so far apart, needs at least {least} bytes"
        ))
        .advise("`lode resize POOL` makes it larger; or choose a smaller --dead-zone"),
        Error::Invalid if args.dead_zone.is_some() => {
            Failure::usage("the second copies that the pool has are not so far apart")
                .advise(ANOTHER_ZONE)
        }
        Error::NoSpace if args.level == Protection::Full => {
            Failure::new(Kind::NoSpace, "no room for second copies of metadata, or for checksums and parity")
                .advise(format!("delete files, or make the pool larger with `lode resize`; {by_now}"))
        }
        Error::NoSpace => Failure::new(Kind::NoSpace, "no room for second copies of metadata")
            .advise(format!("delete files, or make the pool larger with `lode resize`; {by_now}")),
        Error::NotSupported => Failure::new(
            Kind::Unsupported,
            "inode tables, which can't be moved, are where second copies or checksums would go at any distance",
        )
        .advise(format!("make a pool with `lode mkfs --protect`, and copy the files; {by_now}")),
        Error::Corrupt(damage) if MappedPool::is_in_snapshot(damage.ino) => Failure::engine(&args.pool, error)
            .advise(format!("`lode fsck -n POOL` names what snapshots have lost: `lode snapshot delete` of those that have ends it; {by_now}")),
        Error::Corrupt(_) | Error::Lost(_) | Error::Media { .. } => Failure::engine(&args.pool, error)
            .advise(format!("`lode fsck -n POOL` lists damage of metadata, `lode scrub -n POOL` that of files, too; {by_now}")),
        _ => Failure::engine(&args.pool, error),
    };
    failure.at(&args.pool)
}
