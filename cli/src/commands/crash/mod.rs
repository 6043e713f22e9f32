//! `lode crash`: explores what the power may leave, shows one state, measures its own strength, and damages pools.

mod corrupt;
mod mutants;
mod replay;
mod run;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use lode_crash::case::Case;
use lode_crash::explore::{Limits, Stop};
use lode_crash::run::{Batch, html};
use lode_crash::workload::parse_script;

use crate::args::{CrashCommand, EffortArgs};
use crate::failure::{Failure, Kind, Result};
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::page;
use crate::progress::Progress;

/// Bytes of a script, at most.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;

/// The exit status for a state that is wrong, or a mutant that was not noticed.
const WRONG: u8 = Kind::Corrupt.code();

/// Runs it; returns the exit status.
///
/// # Errors
/// Where nothing can be explored at all.
pub(crate) fn run(command: &CrashCommand, output: &Output) -> Result<u8> {
    match command {
        CrashCommand::Run(args) => run::run(args, output),
        CrashCommand::Replay(args) => replay::run(args, output),
        CrashCommand::Mutants(args) => mutants::run(args, output),
        CrashCommand::Corrupt(args) => corrupt::run(args, output),
    }
}

/// A file's script.
fn script(path: &Path) -> Result<Case> {
    let mut bytes = Vec::new();
    let opened = fs::File::open(path);
    let read = opened.and_then(|file| file.take(SCRIPT_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| {
        let failure = Failure::io("reading the script", path, &error);
        failure.advise("check the path; docs/crash-scripts.md shows what a script looks like")
    })?;
    let wrong = |what: &str| {
        let failure = Failure::usage(what.to_owned()).at(path);
        failure.advise("docs/crash-scripts.md shows what a script looks like")
    };
    if bytes.len() as u64 > SCRIPT_BYTES_MAX {
        return Err(wrong("this is longer than a script can be (1 MiB)"));
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("this is no text"))?;
    let case = parse_script(&text).map_err(|error| {
        Failure::usage(error.to_string())
            .at(path)
            .advise("correct that line; docs/crash-scripts.md has all operations")
    })?;
    lode_engine::check_format(case.geometry.bytes, &case.geometry.format()).map_err(|error| {
        let failure = Failure::usage(format!("there is no such pool: {error}")).at(path);
        failure.advise("give `pool` a larger size, or fewer lanes")
    })?;
    Ok(case)
}

/// What became of the page counts less than what was found: where that is wrong, it is only told.
fn page_or_findings(written: Result<()>, wrong: bool) -> Result<()> {
    match written {
        Err(failure) if wrong => {
            eprintln!("lode crash: {failure}");
            Ok(())
        }
        written => written,
    }
}

/// As [`page::check`]; the page is not to take the place of the script.
fn check_page(path: Option<&Path>, script: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let whole = |path: &Path| fs::canonicalize(path).ok();
    if script.is_some_and(|script| whole(script).is_some() && whole(script) == whole(path)) {
        let failure = Failure::usage("the page would take the place of the script".to_owned());
        return Err(failure.at(path).advise("name another file for --html"));
    }
    page::check(path)
}

/// The exit status where time ended before anything, or all of it, was known, or a verdict is open.
const UNKNOWN: u8 = Kind::Failed.code();
fn stop(interrupt: &Interrupt) -> Stop {
    let interrupt = interrupt.clone();
    Stop::when(move || interrupt.came())
}

fn workers(effort: &EffortArgs) -> usize {
    match effort.jobs {
        Some(jobs) => usize::from(jobs),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

fn batch(
    effort: &EffortArgs,
    limits: Limits,
    time_max: Option<Duration>,
    interrupt: &Interrupt,
) -> Batch {
    let workers = workers(effort);
    let time_max = effort.time.map(Duration::from_secs).or(time_max);
    Batch { limits, workers, time_max, stop: stop(interrupt) }
}

/// A progress bar that the workers share.
struct Bar {
    progress: Mutex<Progress>,
    /// What is counted.
    of: &'static str,
}

impl Bar {
    fn new(what: &'static str, output: &Output) -> Self {
        Self::counting(what, "states judged", output)
    }
}

impl Bar {
    fn counting(what: &'static str, of: &'static str, output: &Output) -> Self {
        Self { progress: Mutex::new(Progress::new(what, output.progress)), of }
    }
}

impl lode_crash::run::Progress for Bar {
    fn job_done(&self, done: usize, all: usize, judged: u64) {
        let Ok(mut progress) = self.progress.lock() else { return };
        let more = match judged {
            0 => String::new(),
            _ => format!("{} {}", html::figure(judged as f64), self.of),
        };
        progress.set_with(done as u64, all as u64, more);
    }
}
