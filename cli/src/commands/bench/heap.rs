//! `lode bench heap`: main memory from a pool, as the paper by Oikawa draws it.

use std::cell::RefCell;
use std::path::PathBuf;

use clap::Args;
use lode_bench::heap::{self, Settings, child};
use lode_bench::html;

use super::{Bar, explain};
use crate::failure::{Failure, Kind, Result};
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::page;
use crate::progress::Progress;
use crate::report::BenchReport;
use crate::sizes::parse_size;

const AFTER_HELP: &str = "\
Figures are comparable within one run only. docs/bench.md tells what is measured, and how.
Ends with 0 whatever the figures are, and with 130 when it was interrupted: then what was measured by then is told.";

/// `lode bench heap`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct HeapBenchArgs {
    /// Be done in 90 seconds: less memory, fewer rounds, a smaller program
    #[arg(long)]
    quick: bool,
    /// Write a page for a browser, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Directory for the pools of the run [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Memory that each round takes
    #[arg(long, hide = true, value_name = "SIZE", value_parser = parse_size)]
    bytes: Option<u64>,
    /// Be a process of another run
    #[arg(long, hide = true, value_name = "WORD", num_args = 1.., allow_hyphen_values = true)]
    child: Vec<String>,
}

/// Runs it; returns the exit status.
///
/// # Errors
/// Where nothing can be measured.
pub(super) fn run(args: &HeapBenchArgs, output: &Output) -> Result<u8> {
    if !args.child.is_empty() {
        let done = child::run(&args.child);
        return done.map(|()| 0).map_err(|error| Failure::new(Kind::Failed, error.to_string()));
    }
    if let Some(page) = &args.html {
        page::check(page)?;
    }
    let lode = std::env::current_exe().map_err(|error| {
        Failure::new(Kind::Failed, format!("finding this program failed: {error}"))
    })?;
    let settings = Settings { quick: args.quick, bytes: args.bytes, dir: args.dir.clone(), lode };
    let interrupt = Interrupt::by_signals()?;
    let progress = RefCell::new(Progress::new("measuring", output.progress));
    let watch = Bar { progress, interrupt: &interrupt };
    let report = heap::run(&settings, &watch).map_err(|error| explain(&error))?;
    drop(watch);
    page::write_page(args.html.as_deref(), || html::page(&report))?;
    output.print(&BenchReport::from(report))?;
    Ok(interrupt.status())
}
