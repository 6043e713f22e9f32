//! `lode bench programs`: whole programs on file systems on volumes.

use std::cell::RefCell;
use std::path::PathBuf;

use clap::Args;
use lode_bench::html;
use lode_bench::programs::{
    self, Program, Settings, Subject, all_programs, all_subjects, program_by_id, subject_by_id,
};

use super::{Bar, explain, made_of};
use crate::emulation::EmulationArgs;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::page;
use crate::progress::Progress;
use crate::report::{BenchListReport, BenchReport};
use crate::words::Words;

const PROGRAMS: Words<ProgramId> = Words {
    parse: parse_program,
    words: || all_programs().iter().map(|program| program.id()).collect(),
};
const SUBJECTS: Words<SubjectId> = Words {
    parse: parse_subject,
    words: || all_subjects().iter().map(|subject| subject.id).collect(),
};

const AFTER_HELP: &str = "\
Figures are comparable within one run only. docs/bench.md tells what is measured, and how.
Ends with 0 whatever the figures are, with 1 when a run of a program failed or left something that is not sound, and with
130 when it was interrupted.";

/// The exit status where a run failed.
const FAILED: u8 = 1;

/// `lode bench programs`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ProgramsArgs {
    /// Be done in a minute: three programs, with less to do, on three subjects
    #[arg(long)]
    quick: bool,
    /// Only these programs, separated by commas [default: all that this machine has]
    #[arg(long = "workload", value_name = "ID,..", value_delimiter = ',', value_parser = PROGRAMS,
        hide_possible_values = true)]
    workloads: Vec<ProgramId>,
    /// Only these subjects, separated by commas [default: memory, a RAM disk, and volumes with ext4]
    #[arg(long = "subject", value_name = "ID,..", value_delimiter = ',', value_parser = SUBJECTS,
        hide_possible_values = true)]
    subjects: Vec<SubjectId>,
    /// Rounds of each program, however long they take [default: 5, fewer where they take more than some minutes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Write a page for a browser, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Directory for the mounts, pools and images of the run [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    emulation: EmulationArgs,
    /// Tell all programs and subjects, and measure nothing
    #[arg(long, conflicts_with_all = ["quick", "html", "rounds"])]
    list: bool,
}

/// A program by its name.
#[derive(Clone, Copy)]
struct ProgramId(&'static dyn Program);

impl std::fmt::Debug for ProgramId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.id())
    }
}

/// A subject by its name.
#[derive(Clone, Copy)]
struct SubjectId(&'static Subject);

impl std::fmt::Debug for SubjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.id)
    }
}

fn parse_program(text: &str) -> std::result::Result<ProgramId, String> {
    let found = program_by_id(text).map(ProgramId);
    found.ok_or_else(|| "there is no such program: see lode bench programs --list".into())
}

fn parse_subject(text: &str) -> std::result::Result<SubjectId, String> {
    let found = subject_by_id(text).map(SubjectId);
    found.ok_or_else(|| "there is no such subject: see lode bench programs --list".into())
}

/// Runs it; returns the exit status.
///
/// # Errors
/// Where nothing can be measured.
pub(super) fn run(args: &ProgramsArgs, output: &Output) -> Result<u8> {
    if args.list {
        return output.print(&BenchListReport::of_programs()).map(|()| 0);
    }
    if let Some(page) = &args.html {
        page::check(page)?;
    }
    let settings = Settings {
        programs: args.workloads.iter().map(|program| program.0).collect(),
        subjects: args.subjects.iter().map(|subject| subject.0).collect(),
        rounds: args.rounds.map(usize::from),
        quick: args.quick,
        dir: args.dir.clone(),
        made_of: made_of(&args.emulation, args.quick)?,
    };
    let interrupt = Interrupt::by_signals()?;
    let progress = RefCell::new(Progress::new("running", output.progress));
    let watch = Bar { progress, interrupt: &interrupt };
    let report = programs::run(&settings, &watch).map_err(|error| explain(&error))?;
    drop(watch);
    page::write_page(args.html.as_deref(), || html::page(&report))?;
    let is_sound = report.targets.iter().all(|target| target.met != Some(false));
    output.print(&BenchReport::from(report))?;
    Ok(if interrupt.came() || is_sound { interrupt.status() } else { FAILED })
}
