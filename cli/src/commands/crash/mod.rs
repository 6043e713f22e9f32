//! `lode crash`: explores what the power may leave, shows one state, measures its own strength.

mod mutants;
mod replay;
mod run;

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use lode_crash::case::Case;
use lode_crash::explore::Limits;
use lode_crash::run::{Batch, html};
use lode_crash::workload::parse_script;

use crate::args::{CrashCommand, EffortArgs};
use crate::failure::{Failure, Kind, Result};
use crate::output::Output;
use crate::progress::Progress;

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
    }
}

/// A file's script.
fn script(path: &Path) -> Result<Case> {
    let text = fs::read_to_string(path).map_err(|error| {
        let failure = Failure::io("reading the script", path, &error);
        failure.advise("check the path; docs/crash-scripts.md shows what a script looks like")
    })?;
    parse_script(&text).map_err(|error| {
        Failure::usage(error.to_string())
            .at(path)
            .advise("correct that line; docs/crash-scripts.md has all operations")
    })
}

/// Writes a page, if one is asked for.
fn write_page(path: Option<&Path>, page: impl FnOnce() -> String) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, page()).map_err(|error| {
        let failure = Failure::io("writing the page", path, &error);
        failure.advise("check the directory of --html, and that there is space")
    })
}

/// Finds out before hours of work whether a page can be written.
fn check_page(path: Option<&Path>) -> Result<()> {
    write_page(path, String::new)
}

fn batch(effort: &EffortArgs, limits: Limits, time_max: Option<Duration>) -> Batch {
    let workers = match effort.jobs {
        Some(jobs) => usize::from(jobs),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    Batch { limits, workers, time_max: effort.time.map(Duration::from_secs).or(time_max) }
}

/// A progress bar that the workers share.
struct Bar(Mutex<Progress>);

impl Bar {
    fn new(what: &'static str, output: &Output) -> Self {
        Self(Mutex::new(Progress::new(what, output.progress)))
    }
}

impl lode_crash::run::Progress for Bar {
    fn job_done(&self, done: usize, all: usize, judged: u64) {
        let Ok(mut progress) = self.0.lock() else { return };
        let more = match judged {
            0 => String::new(),
            _ => format!("{} states judged", html::figure(judged as f64)),
        };
        progress.set_with(done as u64, all as u64, more);
    }
}
