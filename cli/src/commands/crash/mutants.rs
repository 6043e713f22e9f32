//! `lode crash mutants`: whether the explorer notices whatever is left out.

use std::time::{Duration, Instant};

use lode_crash::explore::Limits;
use lode_crash::region::Profile;
use lode_crash::run::{
    Batch, Mutant, MutantReport, Report, What, html, left_out, mutants_of, run_batch, run_mutants,
    select, stories,
};

use super::{Bar, UNKNOWN, WRONG, batch, check_page, page_or_findings};
use crate::args::CrashMutantsArgs;
use crate::failure::{Failure, Kind, Result};
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::page::write_page;
use crate::report::{MutantsReport, RunReport};

/// Decides everything random.
const SEED: u64 = 1;
/// What mutants are tried under: the profile that loses most. One that is noticed here is needed.
const PROFILES: [Profile; 1] = [Profile::Adr];

/// Runs it; returns the exit status.
///
/// # Errors
/// Where a page can't be written, or no mutant is wanted.
pub(super) fn run(args: &CrashMutantsArgs, output: &Output) -> Result<u8> {
    let began = Instant::now();
    let page = args.html.as_deref();
    check_page(page, None)?;
    let interrupt = Interrupt::by_signals()?;
    let mut batch = batch(&args.effort, Limits::QUICK, None, &interrupt);
    let jobs = select(&What::ForMutants, &PROFILES, SEED, &batch.stop);
    let bar = Bar::new("exploring without mutants", output);
    // A glance comes to all places; what is found by more than that is looked at without the mutant, too.
    let glance = Batch { limits: Limits::GLANCE, ..batch.clone() };
    let sound = run_batch(&jobs, &glance, &bar);
    drop(bar);
    if !sound.failures.is_empty() {
        // Whatever is wrong anyway would kill any mutant.
        let stories = stories(&jobs, &sound, &batch, Duration::from_secs(60));
        let report = Report::new(&jobs, &sound, &stories);
        let profiles = PROFILES.iter().map(ToString::to_string).collect();
        let report = RunReport::new(report, profiles, SEED, left_out(&What::ForMutants), None);
        write_page(page, || report.page(&stories))?;
        output.print(&report)?;
        return Ok(WRONG);
    }
    let mutants = wanted(mutants_of(&sound), &args.only, sound.left_out() > 0)?;
    batch.time_max = batch.time_max.map(|most| most.saturating_sub(began.elapsed()));
    let bar = Bar::new("mutants", output);
    let verdicts = run_mutants(&mutants, &jobs, &sound, &batch, &bar);
    drop(bar);
    let verdicts: Vec<MutantReport> = verdicts.iter().map(MutantReport::from).collect();
    let written = write_page(page, || html::mutants_page(&verdicts));
    let sound = Report::new(&jobs, &sound, &[]);
    let report = MutantsReport::new(verdicts, &sound, began.elapsed());
    output.print(&report)?;
    let survivors = report.survivors();
    page_or_findings(written, survivors > 0)?;
    Ok(match survivors {
        0 if report.is_cut_short() && !interrupt.came() => UNKNOWN,
        0 => interrupt.status(),
        _ => WRONG,
    })
}

/// The mutants that the command line asks for; `cut_short`: there are more places than these.
fn wanted(mut mutants: Vec<Mutant>, only: &[String], cut_short: bool) -> Result<Vec<Mutant>> {
    mutants.retain(|mutant| {
        let site = mutant.site();
        only.is_empty() || only.iter().any(|text| site.contains(text.as_str()))
    });
    if mutants.is_empty() && cut_short {
        let what = "there was no time to find the places of mutants";
        return Err(Failure::new(Kind::Failed, what).advise("give it more time (--time)"));
    }
    if mutants.is_empty() {
        let all = "`lode crash mutants --json` names all sites";
        return Err(
            Failure::usage(format!("no mutant has {} in its site", only.join(" or "))).advise(all)
        );
    }
    Ok(mutants)
}
