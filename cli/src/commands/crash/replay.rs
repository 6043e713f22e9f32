//! `lode crash replay`: one state.

use lode_crash::run::{Job, Mutant, ReplayId, Set, case, html};
use lode_crash::workload::print_script;

use super::{WRONG, check_page, script};
use crate::args::CrashReplayArgs;
use crate::failure::{Failure, Kind, Result};
use crate::output::Output;
use crate::page::write_page;
use crate::report::ReplayReport;

/// Runs it; returns the exit status.
///
/// # Errors
/// Where the id names nothing.
pub(super) fn run(args: &CrashReplayArgs, output: &Output) -> Result<u8> {
    let job = job(args)?;
    check_page(args.html.as_deref(), args.script.as_deref())?;
    let mutant = args.without.as_deref().map(|name| mutant(&job, name)).transpose()?;
    let replay = job.replay(&args.id.path, mutant);
    if !replay.reached {
        let what = format!("{} leads to no state here", args.id);
        return Err(Failure::new(Kind::NotFound, what).advise(
            "ids hold for one version of lode and one script: run the case again, and take the id \
             that it prints",
        ));
    }
    if let Some(Mutant::Rule(rule)) = mutant
        && !replay.rules.contains(&rule)
    {
        return Err(comes_to_nothing(rule.name()));
    }
    write_page(args.html.as_deref(), || {
        html::replay_page(&args.id, &replay.story, replay.wrong, mutant)
    })?;
    output.print(&ReplayReport {
        id: args.id.to_string(),
        case: replay.story.case.name.clone(),
        without: mutant.map(|mutant| mutant.to_string()),
        wrong: replay.wrong,
        what: replay.story.what.clone(),
        cuts: replay.story.cuts.iter().map(ToString::to_string).collect(),
        text: replay.story.to_string(),
        script: print_script(&replay.story.case),
    })?;
    Ok(if replay.wrong { WRONG } else { 0 })
}

fn mutant(job: &Job, name: &str) -> Result<Mutant> {
    job.mutant(name).ok_or_else(|| comes_to_nothing(name))
}

fn comes_to_nothing(name: &str) -> Failure {
    let what = format!("the case of this id comes to nothing called {name}");
    Failure::new(Kind::NotFound, what)
        .advise("give `site` and `killed_by` of one line of `lode crash mutants --json`")
}

fn job(args: &CrashReplayArgs) -> Result<Job> {
    let ReplayId { job: id, .. } = args.id;
    let case = match (&args.script, id.set) {
        (Some(path), Set::Script) if id.number == 0 => script(path)?,
        (None, Set::Script) => {
            let failure = Failure::usage(format!("the sequence of {} is in a file", args.id));
            return Err(failure.advise("name it: --script FILE"));
        }
        (Some(path), set) if set != Set::Script => {
            let failure = Failure::usage(format!("{} is not of a script", args.id));
            return Err(failure.at(path).advise("leave out --script"));
        }
        (_, set) => case(set, id.number, id.seed).ok_or_else(|| {
            let what = format!("there is no case {}-{}", set.name(), id.number);
            Failure::new(Kind::NotFound, what)
                .advise("check the id; it holds for the version of lode that printed it")
        })?,
    };
    Ok(Job { id, case })
}
