//! `lode heap`: memory of a pool that no file needs, for programs.

mod serve;
mod stats;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::args::{RegionArgs, parse_interval};
use crate::emulation::EmulationArgs;
use crate::failure::Result;
use crate::options::{MountOptions, OptionList};
use crate::output::Output;

/// `lode heap`.
#[derive(Subcommand, Debug)]
pub(crate) enum HeapCommand {
    /// Lend a pool's memory to programs, without a mount; returns once it can be had
    Serve(ServeArgs),
    /// Show who has how much memory of a pool, mounted or served
    Stats(HeapStatsArgs),
}

impl HeapCommand {
    /// The name, for messages and JSON.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Serve(_) => "heap serve",
            Self::Stats(_) => "heap stats",
        }
    }
}

const AFTER_SERVE_HELP: &str = "\
Programs are given memory by `lode heap run`. SIGTERM ends the server, and closes the pool cleanly; what
programs have then stays theirs until they end, and the next server, or mount, leaves it alone.";

/// `lode heap serve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_SERVE_HELP)]
pub(crate) struct ServeArgs {
    /// File or device that holds the pool
    pub(crate) pool: PathBuf,
    /// Options, separated by commas: heap_limit=SIZE, heap_program_limit=SIZE, heap_reserve=SIZE,
    /// index-memory=SIZE, windows=MODE, flush=NAME, emulate=NAME and its like
    #[arg(short = 'o', value_name = "OPTIONS", value_parser = OptionList)]
    pub(crate) options: Vec<MountOptions>,
    #[command(flatten)]
    pub(crate) region: RegionArgs,
    #[command(flatten)]
    pub(crate) emulation: EmulationArgs,
    /// Serve in this process until SIGTERM or SIGINT, logging to standard error
    #[arg(long, short = 'f')]
    pub(crate) foreground: bool,
    /// Be the server of another `lode heap serve`: report to it on standard output
    #[arg(long, hide = true, value_name = "LOG")]
    pub(crate) serve_with_log: Option<PathBuf>,
}

const AFTER_STATS_HELP: &str = "\
Watching ends with 0 at SIGINT or SIGTERM, with 11 when the server goes away.";

/// `lode heap stats`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_STATS_HELP)]
pub(crate) struct HeapStatsArgs {
    /// The directory it is mounted at, or the pool [default: all that this user serves]
    #[arg(value_name = "DIR|POOL")]
    pub(crate) target: Option<PathBuf>,
    /// Show it again and again, every second or every SECONDS; with --json, one object a line
    #[arg(long, short = 'w', value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
        value_parser = parse_interval)]
    pub(crate) watch: Option<Duration>,
}

/// Runs it; returns the exit code.
///
/// # Errors
/// What opening the pool, or asking its server, gives.
pub(crate) fn run(command: &HeapCommand, output: &Output) -> Result<u8> {
    match command {
        HeapCommand::Serve(args) => serve::serve(args, output)?,
        HeapCommand::Stats(args) => stats::stats(args, output)?,
    }
    Ok(0)
}
