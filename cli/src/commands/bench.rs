//! `lode bench`: Lode beside others, and beside what physics asks for.

mod block;
mod heap;
mod programs;

use std::cell::RefCell;
use std::io::{Write as _, stdout};

use lode_bench::place::{take_away_leftovers, usual};
use lode_bench::run::{self, Settings, Watch};
use lode_bench::subject::{Programs, serve_null_fuse};
use lode_bench::{BenchError, html, subject, workload};

use crate::args::{BenchArgs, BenchCommand};
use crate::emulation::EmulationArgs;
use crate::failure::{Failure, Kind, Result};
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::page;
use crate::progress::Progress;
use crate::report::{BenchListReport, BenchReport, CleanedReport};

pub(crate) use block::BlockBenchArgs;
pub(crate) use heap::HeapBenchArgs;
pub(crate) use programs::ProgramsArgs;

/// The operations of `--protect`: those of the dissertation's Figure 4.9.
const PROTECT: [&str; 5] = ["create", "append-4k", "overwrite-4k", "overwrite-512", "read-4k"];

/// Its programs, which a quick run has no time for.
const PROTECT_PROGRAMS: [&str; 6] =
    ["fileserver", "webserver", "webproxy", "varmail", "oltp", "sqlite-wal"];

/// What `--trust` looks at.
const TRUST: [&str; 3] = ["risk", "space", "snapshots"];

/// Runs it; returns the exit status.
///
/// # Errors
/// Where nothing can be measured.
pub(crate) fn run(args: &BenchArgs, output: &Output) -> Result<u8> {
    match &args.what {
        Some(BenchCommand::Programs(args)) => return programs::run(args, output),
        Some(BenchCommand::Block(args)) => return block::run(args, output),
        Some(BenchCommand::Heap(args)) => return heap::run(args, output),
        None => {}
    }
    if let Some(dir) = &args.serve_null_fuse {
        return serve_null_fuse(dir).map(|()| 0).map_err(|error| explain(&error));
    }
    if let Some(pool) = &args.weigh {
        let told = subject::weigh(pool).and_then(|text| stdout().write_all(text.as_bytes()));
        return told.map(|()| 0).map_err(|error| Failure::io("weighing", pool, &error));
    }
    if args.list {
        return output.print(&BenchListReport::new(workload::ALL, subject::every())).map(|()| 0);
    }
    if args.clean {
        let base = args.dir.clone().unwrap_or_else(usual);
        let runs = take_away_leftovers(&base).map_err(|error| explain(&error))?;
        return output.print(&CleanedReport { runs }).map(|()| 0);
    }
    if let Some(page) = &args.html {
        page::check(page)?;
    }
    let interrupt = Interrupt::by_signals()?;
    let progress = RefCell::new(Progress::new("measuring", output.progress));
    let watch = Bar { progress, interrupt: &interrupt };
    let report = run::run(&settings(args)?, &watch).map_err(|error| explain(&error))?;
    drop(watch);
    page::write_page(args.html.as_deref(), || html::page(&report))?;
    output.print(&BenchReport::from(report))?;
    Ok(interrupt.status())
}

/// What subjects are made of.
fn made_of(emulation: &EmulationArgs, quick: bool) -> Result<Programs> {
    let lode = std::env::current_exe().map_err(|error| {
        Failure::new(Kind::Failed, format!("finding this program failed: {error}"))
    })?;
    let (emulate, mount_options) = (emulation.profile(), emulation.words());
    Ok(Programs { lode, emulate, mount_options, quick })
}

fn settings(args: &BenchArgs) -> Result<Settings> {
    let mut threads: Vec<_> = args.threads.iter().copied().map(usize::from).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut workloads = args.workloads.clone();
    let mut subjects: Vec<_> = args.subjects.iter().map(|subject| subject.0).collect();
    let (more, usual): (&[_], &[_]) = match (args.protect, args.trust) {
        (true, _) => (subject::LEVELS, &PROTECT),
        (_, true) => (&[subject::TRUST], &TRUST),
        _ => (&[], &[]),
    };
    if !more.is_empty() {
        subjects.extend(more);
        if workloads.is_empty() {
            let programs = PROTECT_PROGRAMS.iter().filter(|_| args.protect && !args.quick);
            workloads.extend(usual.iter().chain(programs).copied().filter_map(workload::by_id));
        }
        if threads.is_empty() {
            threads.push(1);
        }
    }
    Ok(Settings {
        workloads,
        subjects,
        threads,
        quick: args.quick,
        breakdown: args.breakdown,
        levels: args.protect,
        may_sleep: args.may_sleep,
        dir: args.dir.clone(),
        programs: made_of(&args.emulation, args.quick)?,
    })
}

/// A progress bar, and whether somebody wants no more.
struct Bar<'a> {
    progress: RefCell<Progress>,
    interrupt: &'a Interrupt,
}

impl Watch for Bar<'_> {
    fn progress(&self, done: u64, all: u64, what: &str) {
        self.progress.borrow_mut().set_with(done, all, what.to_owned());
    }

    fn is_over(&self) -> bool {
        self.interrupt.came()
    }
}

fn explain(error: &BenchError) -> Failure {
    let text = error.to_string();
    match error {
        BenchError::Io { doing, path, source } => Failure::io(doing, path, source)
            .advise("check the directory of --dir, and that there is memory and space"),
        BenchError::NoMemory { .. } => Failure::new(Kind::NoSpace, text).advise(
            "end other programs, or choose fewer subjects: --subject ID,.. (--protect has its own)",
        ),
        BenchError::NoSubject(_) => Failure::new(Kind::Failed, text)
            .advise("run as root, or choose other subjects; `lode bench --list` has them"),
        _ => Failure::new(Kind::Failed, text),
    }
}
