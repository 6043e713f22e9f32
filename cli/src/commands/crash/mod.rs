//! `lode crash`: explores what the power may leave, shows one state, measures its own strength.

mod mutants;
mod replay;
mod run;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lode_crash::case::Case;
use lode_crash::explore::{Limits, Stop};
use lode_crash::run::{Batch, html};
use lode_crash::workload::parse_script;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::args::{CrashCommand, EffortArgs};
use crate::failure::{Failure, Kind, Result};
use crate::output::Output;
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

/// Writes a page, if one is asked for.
fn write_page(path: Option<&Path>, page: impl FnOnce() -> String) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, page()).map_err(|error| {
        let failure = Failure::io("writing the page", path, &error);
        failure.advise("check the directory of --html, and that there is space")
    })
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

/// Finds out before hours of work whether a page can be written; what is there stays until then.
fn check_page(path: Option<&Path>, script: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let whole = |path: &Path| fs::canonicalize(path).ok();
    if script.is_some_and(|script| whole(script).is_some() && whole(script) == whole(path)) {
        let failure = Failure::usage("the page would take the place of the script".to_owned());
        return Err(failure.at(path).advise("name another file for --html"));
    }
    let is_new = !path.exists();
    fs::OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(
        |error| {
            let failure = Failure::io("writing the page", path, &error);
            failure.advise("name a file in a directory that can be written for --html")
        },
    )?;
    if is_new {
        // (It was there a moment ago.)
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// The exit status where time ended before anything, or all of it, was known.
const UNKNOWN: u8 = Kind::Failed.code();
/// The exit status of what a signal ended.
const INTERRUPTED: u8 = 130;

/// Whether somebody wants no more to be looked at: what was found by then is told all the same.
struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on SIGINT and SIGTERM ask for it; the second one ends the process.
    fn by_signals() -> Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_default(signal, Arc::clone(&asked))
                .and_then(|_| flag::register(signal, Arc::clone(&asked)))
                .map_err(|error| {
                    Failure::new(Kind::Failed, format!("waiting for signals failed: {error}"))
                })?;
        }
        Ok(Self(asked))
    }

    fn came(&self) -> bool {
        self.0.load(Relaxed)
    }

    fn stop(&self) -> Stop {
        let asked = Arc::clone(&self.0);
        Stop::when(move || asked.load(Relaxed))
    }

    /// The exit status where nothing is wrong with what was looked at.
    fn status(&self) -> u8 {
        if self.came() { INTERRUPTED } else { 0 }
    }
}

fn batch(
    effort: &EffortArgs,
    limits: Limits,
    time_max: Option<Duration>,
    interrupt: &Interrupt,
) -> Batch {
    let workers = match effort.jobs {
        Some(jobs) => usize::from(jobs),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let time_max = effort.time.map(Duration::from_secs).or(time_max);
    Batch { limits, workers, time_max, stop: interrupt.stop() }
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
