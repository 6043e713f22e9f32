//! `lode crash corrupt`: pools are damaged in every way, and what is made of them is judged.

use std::time::Duration;

use lode_crash::corrupt::{InjectionId, Matrix, Verdict, inject, run_matrix};
use lode_engine::Protection;

use super::{Bar, WRONG, stop, workers};
use crate::args::CrashCorruptArgs;
use crate::failure::{Failure, Kind, Result};
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::report::{CorruptReport, InjectionReport};

/// Runs it; returns the exit status.
///
/// # Errors
/// Where a pool can't be made.
pub(super) fn run(args: &CrashCorruptArgs, output: &Output) -> Result<u8> {
    if let Some(id) = args.id {
        return one(id, output);
    }
    let interrupt = Interrupt::by_signals()?;
    let levels =
        if args.levels.is_empty() { Protection::ALL.to_vec() } else { args.levels.clone() };
    let matrix = Matrix {
        injections: args.injections,
        seed: args.seed,
        levels,
        left_out: None,
        workers: workers(&args.effort),
        time_max: args.effort.time.map(Duration::from_secs),
        stop: stop(&interrupt),
    };
    let bar = Bar::counting("damaging", "injections", output);
    let outcome = run_matrix(&matrix, &bar);
    drop(bar);
    let outcome = outcome.map_err(broken)?;
    let wrong = outcome.tally.count(Verdict::Wrong);
    output.print(&CorruptReport::new(&outcome, args.seed, args.injections))?;
    Ok(if wrong > 0 { WRONG } else { interrupt.status() })
}

fn one(id: InjectionId, output: &Output) -> Result<u8> {
    let injected = inject(id).map_err(broken)?;
    let report = InjectionReport::new(id, &injected);
    let wrong = report.wrong;
    output.print(&report)?;
    Ok(if wrong { WRONG } else { 0 })
}

/// A pool that is wrong before anything was damaged.
fn broken(what: String) -> Failure {
    Failure::new(Kind::Failed, what)
        .advise("this is a fault of lode's own: a pool is wrong that nothing was done to; `lode crash run` looks for those")
}
