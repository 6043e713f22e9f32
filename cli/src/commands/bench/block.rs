//! `lode bench block`: block devices, as the paper on PMBD draws them.

use std::cell::RefCell;
use std::path::PathBuf;

use clap::Args;
use lode_bench::block::{self, Settings, strays};
use lode_bench::html;

use super::{Bar, explain};
use crate::failure::{Failure, Kind, Result};
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::page;
use crate::progress::Progress;
use crate::report::BenchReport;
use crate::words::Words;

const SUBJECTS: Words<String> = Words { parse: parse_subject, words: block::subject_ids };

const AFTER_HELP: &str = "\
Figures are comparable within one run only. docs/bench.md tells what is measured, and how.
Ends with 0 whatever the figures are, and with 130 when it was interrupted: then what was measured by then is told.";

/// `lode bench block`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct BlockBenchArgs {
    /// Be done in 90 seconds: smaller regions, shorter rounds
    #[arg(long)]
    quick: bool,
    /// Only these ways to protect, to store, to be a device or to serve one, separated by commas; then nothing else is measured
    #[arg(long = "subject", value_name = "ID,..", value_delimiter = ',', value_parser = SUBJECTS)]
    subjects: Vec<String>,
    /// Only show what strays do: stores and loads by a wrong pointer, in the middle of a write
    #[arg(long, conflicts_with = "subjects")]
    strays: bool,
    /// Do a stray, and perhaps die of it
    #[arg(long, hide = true, value_name = "PROTECTION:KIND")]
    stray: Option<String>,
    /// Write a page for a browser, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Directory for the regions and pools of the run [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

fn parse_subject(text: &str) -> std::result::Result<String, String> {
    match block::subject_ids().contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("there is no subject `{text}`")),
    }
}

/// Runs it; returns the exit status.
///
/// # Errors
/// Where nothing can be measured.
pub(crate) fn run(args: &BlockBenchArgs, output: &Output) -> Result<u8> {
    if let Some(what) = &args.stray {
        return Ok(strays::commit(what) as u8);
    }
    if let Some(page) = &args.html {
        page::check(page)?;
    }
    let lode = std::env::current_exe().map_err(|error| {
        Failure::new(Kind::Failed, format!("finding this program failed: {error}"))
    })?;
    let settings = Settings {
        quick: args.quick,
        subjects: args.subjects.clone(),
        only_strays: args.strays,
        dir: args.dir.clone(),
        lode,
    };
    let interrupt = Interrupt::by_signals()?;
    let progress = RefCell::new(Progress::new("measuring", output.progress));
    let watch = Bar { progress, interrupt: &interrupt };
    let report = block::run(&settings, &watch).map_err(|error| explain(&error))?;
    drop(watch);
    page::write_page(args.html.as_deref(), || html::page(&report))?;
    output.print(&BenchReport::from(report))?;
    Ok(interrupt.status())
}
