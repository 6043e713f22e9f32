//! `lode stats`: the exact counters of a mounted pool, asked from its server.

use crate::args::StatsArgs;
use crate::failure::{Failure, Kind, Result};
use crate::mounts;
use crate::output::Output;
use crate::report::StatsReport;
use crate::server;

/// Runs it.
///
/// # Errors
/// `NotMounted`, and what asking the server gives.
pub(crate) fn run(args: &StatsArgs, output: &Output) -> Result<()> {
    let mount = mounts::lode_at(&args.dir)?;
    if mount.is_dead() {
        return Err(Failure::new(Kind::NotMounted, "the server of this mount is gone")
            .at(&args.dir)
            .advise("mount it again with `lode mount`"));
    }
    let server = server::ask(&mount.dir)?;
    output.print(&StatsReport::new(&mount.dir, server.pid, &server.stats, server.space))
}
