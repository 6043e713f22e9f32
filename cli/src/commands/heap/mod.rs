//! `lode heap`: memory of a pool that no file needs, for programs.

mod run;
mod serve;
mod stats;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use lode_loan::Method;

use crate::args::{RegionArgs, parse_interval};
use crate::emulation::EmulationArgs;
use crate::failure::Result;
use crate::options::{MountOptions, OptionList};
use crate::output::Output;
use crate::sizes::parse_size;

/// `lode heap`.
#[derive(Subcommand, Debug)]
pub(crate) enum HeapCommand {
    /// Lend a pool's memory to programs, without a mount; returns once it can be had
    Serve(ServeArgs),
    /// Run a command with main memory of a pool
    Run(HeapRunArgs),
    /// Show who has how much memory of a pool, mounted or served
    Stats(HeapStatsArgs),
}

impl HeapCommand {
    /// The name, for messages and JSON.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Serve(_) => "heap serve",
            Self::Run(_) => "heap run",
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
    /// End when no `lode heap run` uses it any more, and no program has memory
    #[arg(long, hide = true, requires = "serve_with_log")]
    pub(crate) while_used: bool,
}

const AFTER_RUN_HELP: &str = "\
The exit code is the command's, 128 and the signal's number where one ended it; 125 where this fails, 126 where
the command can't be run, 127 where it is not there. While the pool has no owner, memory is DRAM.";

/// `lode heap run`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_RUN_HELP)]
pub(crate) struct HeapRunArgs {
    /// The pool, which is served meanwhile where nobody does, or the directory it is mounted at
    #[arg(long, value_name = "POOL|DIR")]
    pub(crate) pool: PathBuf,
    /// Where memory comes from: `direct` (free pages), `indirect` (files that are set aside), `mmap` (a file of each program)
    #[arg(long, value_name = "METHOD", default_value = "direct", value_parser = parse_method)]
    pub(crate) method: Method,
    /// Keep blocks below this size in DRAM
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) dram_below: Option<u64>,
    /// Take what a program maps by `mmap` itself, of this size and more, from the pool, too; `none` of it
    #[arg(long, value_name = "SIZE|none", default_value = "64K", value_parser = parse_map_from)]
    pub(crate) map_from: MapFrom,
    /// Have each process write into DIR/ledger, when it ends, how much memory it had from where
    #[arg(long, value_name = "DIR")]
    pub(crate) ledger: Option<PathBuf>,
    /// The command and its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}

/// From which size on mappings of programs come from the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MapFrom(Option<u64>);

impl MapFrom {
    /// As the environment has it.
    pub(crate) fn text(self) -> String {
        self.0.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string())
    }
}

fn parse_map_from(text: &str) -> std::result::Result<MapFrom, String> {
    if text == "none" {
        return Ok(MapFrom(None));
    }
    parse_size(text).map(|bytes| MapFrom(Some(bytes)))
}

fn parse_method(text: &str) -> std::result::Result<Method, String> {
    Method::of_name(text).ok_or_else(|| "one of: direct, indirect, mmap".to_owned())
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
        HeapCommand::Run(args) => return run::run(args),
        HeapCommand::Stats(args) => stats::stats(args, output)?,
    }
    Ok(0)
}
