//! `lode stats`: the exact counters of a mounted pool, asked from its server.

use crate::args::StatsArgs;
use crate::failure::Result;
use crate::mounts;
use crate::output::Output;
use crate::server;

/// Runs it.
///
/// # Errors
/// `NotMounted`, and what asking the server gives.
pub(crate) fn run(args: &StatsArgs, output: &Output) -> Result<()> {
    let mount = mounts::lode_at(&args.dir)?;
    mounts::must_answer(&mount)?;
    output.print(&server::ask_stats(&mount.point)?)
}
