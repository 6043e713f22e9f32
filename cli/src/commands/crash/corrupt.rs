//! `lode crash corrupt`: pools are damaged in every way, and what is made of them is judged.

use std::time::Duration;

use lode_crash::corrupt::{InjectionId, Matrix, Verdict, inject, run_matrix};
use lode_engine::Protection;

use super::{Bar, UNKNOWN, WRONG, stop, workers};
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
    output.print(&CorruptReport::new(&outcome, args.seed, args.injections))?;
    Ok(status(outcome.tally.worst()).unwrap_or_else(|| interrupt.status()))
}

/// The exit status of what is not as it should be.
fn status(worst: Option<Verdict>) -> Option<u8> {
    match worst? {
        Verdict::Wrong => Some(WRONG),
        Verdict::Open => Some(UNKNOWN),
        Verdict::Whole | Verdict::Unprotected | Verdict::Refused | Verdict::Lost => None,
    }
}

fn one(id: InjectionId, output: &Output) -> Result<u8> {
    let injected = inject(id).map_err(broken)?;
    output.print(&InjectionReport::new(id, &injected))?;
    Ok(status(Some(injected.verdict)).unwrap_or(0))
}

/// A pool that is wrong before anything was damaged.
fn broken(what: String) -> Failure {
    Failure::new(Kind::Failed, what)
        .advise("this is a fault of lode's own: a pool is wrong that nothing was done to; `lode crash run` looks for those")
}

#[cfg(test)]
mod tests {
    use lode_crash::corrupt::{Copies, Form, Kind, Phase, Row, Tally};

    use super::*;

    #[test]
    fn whatever_is_not_as_it_should_be_is_an_error() {
        let (level, copies, form, phase) =
            (Protection::Full, Copies::Both, Form::Flip, Phase::Rest);
        let row = Row { level, kind: Kind::Data, copies, form, phase };
        assert_eq!(status(Tally::default().worst()), None);
        // One of them among many that are right, whichever comes last.
        for verdict in Verdict::ALL {
            let wanted = match verdict {
                Verdict::Open => Some(1),
                Verdict::Wrong => Some(4),
                _ => None,
            };
            assert_eq!(wanted.is_none(), verdict.is_right());
            let mut tally = Tally::default();
            for one in [Verdict::Whole, verdict, Verdict::Lost] {
                tally.note(row, one);
            }
            assert_eq!(
                (status(tally.worst()), status(Some(verdict))),
                (wanted, wanted),
                "{verdict:?}"
            );
        }
        let mut both = Tally::default();
        both.note(row, Verdict::Wrong);
        both.note(row, Verdict::Open);
        assert_eq!(status(both.worst()), Some(4));
    }
}
