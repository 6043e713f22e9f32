//! `lode crash run`: sequences of operations, the power failing everywhere in them.

use std::time::{Duration, Instant};

use lode_crash::explore::Limits;
use lode_crash::region::Profile;
use lode_crash::run::{Report, What, left_out, run_batch, select, stories};

use super::{Bar, UNKNOWN, WRONG, batch, check_page, page_or_findings, script};
use crate::args::CrashRunArgs;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::page::write_page;
use crate::progress::while_working;
use crate::report::RunReport;

/// After so long a quick run looks no further; making its report takes a few seconds more.
const QUICK: Duration = Duration::from_secs(38);
/// For making failures shorter.
const SHRINK: Duration = Duration::from_secs(60);
/// The same in a quick run.
const SHRINK_QUICK: Duration = Duration::from_secs(4);

/// Runs it; returns the exit status.
///
/// # Errors
/// Where a script can't be read, or a page not be written.
pub(super) fn run(args: &CrashRunArgs, output: &Output) -> Result<u8> {
    let page = args.html.as_deref();
    let what = what(args)?;
    check_page(page, args.script.as_deref())?;
    let mut profiles = args.profiles.clone();
    if profiles.is_empty() {
        profiles.extend(Profile::ALL);
    }
    profiles.sort_unstable();
    profiles.dedup();
    let limits = match what {
        What::Full | What::Script(_) => Limits::FULL,
        What::Seq1 => Limits::ALONE,
        _ => Limits::QUICK,
    };
    let quick = what == What::Quick;
    let interrupt = Interrupt::by_signals()?;
    let mut batch = batch(&args.effort, limits, quick.then_some(QUICK), &interrupt);
    let began = Instant::now();
    // Making many pairs takes a while: it counts.
    let late = batch.stop.or_at(batch.time_max.map(|most| began + most));
    let select = || select(&what, &profiles, args.seed, &late);
    let jobs = while_working("preparing", output.progress, select);
    batch.time_max = batch.time_max.map(|most| most.saturating_sub(began.elapsed()));
    let bar = Bar::new("exploring", output);
    let outcome = run_batch(&jobs, &batch, &bar);
    drop(bar);
    let shrink = if quick { SHRINK_QUICK } else { SHRINK };
    let stories = stories(&jobs, &outcome, &batch, shrink);
    let report = Report::new(&jobs, &outcome, &stories);
    let failures = report.failures;
    let profiles = profiles.iter().map(ToString::to_string).collect();
    let script = match (&args.script, &what) {
        (Some(path), What::Script(case)) => Some((path.as_path(), &**case)),
        _ => None,
    };
    let report = RunReport::new(report, profiles, args.seed, left_out(&what), script);
    let written = write_page(page, || report.page(&stories));
    output.print(&report)?;
    page_or_findings(written, failures > 0)?;
    Ok(match failures {
        0 if report.is_empty() && !interrupt.came() => UNKNOWN,
        0 => interrupt.status(),
        _ => WRONG,
    })
}

fn what(args: &CrashRunArgs) -> Result<What> {
    Ok(match (&args.script, args.seq) {
        (Some(path), _) => What::Script(Box::new(script(path)?)),
        (None, Some(1)) => What::Seq1,
        (None, Some(_)) => What::Seq2,
        (None, None) if args.quick => What::Quick,
        (None, None) if args.full => What::Full,
        (None, None) => What::Usual,
    })
}
