//! Mutants: the engine with one thing left out. Each must be noticed.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::batch::on_workers;
use super::{Batch, Job, Outcome, Progress, ReplayId};
use lode_engine::Rule;

use crate::explore::{Failure, LARGE, Limits, Memo, Setup, Tally};
use crate::region::LeftOut;

/// What is left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mutant {
    /// An instruction, at a place in the code.
    Site(LeftOut),
    /// A rule.
    Rule(Rule),
}

impl Mutant {
    /// What is left out, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Mutant::Site(left_out) => left_out.kind(),
            Mutant::Rule(_) => "rule",
        }
    }

    /// The engine with this left out.
    pub(super) fn leave_out(self, setup: &mut Setup) {
        match self {
            Mutant::Site(site) => setup.rules.left_out = Some(site),
            Mutant::Rule(rule) => setup.left_out = Some(rule),
        }
    }

    /// Whether somebody who writes this text means it: its site, or the kind and the site.
    pub(super) fn is_called(&self, text: &str) -> bool {
        self.site() == text || self.to_string() == text
    }

    /// Where: a place in the code, or the rule's name.
    pub fn site(&self) -> String {
        match self {
            Mutant::Site(left_out) => left_out.site().to_string(),
            Mutant::Rule(rule) => rule.name().to_owned(),
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.site())
    }
}

/// What became of a mutant.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What was left out.
    pub mutant: Mutant,
    /// The state that showed it, and what was wrong with it; `None` if nothing did.
    pub killed_by: Option<(ReplayId, String)>,
    /// Jobs that were tried.
    pub tried: usize,
    /// There was no time to try any.
    pub late: bool,
    /// How long that took.
    pub time: Duration,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.killed_by {
            Some((id, what)) => write!(f, "{}: {id}: {what}", self.mutant),
            None => write!(f, "{}: not noticed in {} cases", self.mutant, self.tried),
        }
    }
}

/// The mutants: every rule, and every place of the code that `sound` came to; there is no other
/// list of these.
pub fn mutants_of(sound: &Outcome) -> Vec<Mutant> {
    let sites = sound.tally.sites.iter().map(|site| Mutant::Site(*site));
    sites.chain(Rule::ALL.iter().map(|rule| Mutant::Rule(*rule))).collect()
}

/// Runs every mutant against the jobs until one notices it. `sound` is what the jobs gave
/// without a mutant: a job that never comes to a place can't miss it.
pub fn run_mutants(
    mutants: &[Mutant],
    jobs: &[Job],
    sound: &Outcome,
    batch: &Batch,
    progress: &dyn Progress,
) -> Vec<Verdict> {
    let began = Instant::now();
    let mut verdicts = Vec::new();
    for mutant in mutants {
        let late = batch.time_max.is_some_and(|most| began.elapsed() >= most);
        let time = Duration::ZERO;
        let untried = Verdict { mutant: *mutant, killed_by: None, tried: 0, late: true, time };
        verdicts.push(if late { untried } else { run_mutant(*mutant, jobs, sound, batch) });
        progress.job_done(verdicts.len(), mutants.len(), 0);
    }
    verdicts
}

/// Who noticed a mutant, the first of them in the order of the tries.
type Noticed = Option<(usize, (ReplayId, String))>;

fn run_mutant(mutant: Mutant, jobs: &[Job], sound: &Outcome, batch: &Batch) -> Verdict {
    let began = Instant::now();
    let tries = tries(mutant, jobs, sound, batch);
    let next = AtomicUsize::new(0);
    let noticed: Mutex<Noticed> = Mutex::new(None);
    on_workers(batch.workers, &|| {
        loop {
            let number = next.fetch_add(1, Relaxed);
            let Some((job, limits)) = tries.get(number) else { return };
            if noticed.lock().as_ref().is_some_and(|(first, _)| *first < number) {
                return;
            }
            let mut setup = job.setup();
            mutant.leave_out(&mut setup);
            if let Err(failure) = job.run(&setup, limits, &mut Memo::default()) {
                let mut noticed = noticed.lock();
                if noticed.as_ref().is_none_or(|(first, _)| number < *first) {
                    *noticed = Some((number, summary(job, &failure)));
                }
                return;
            }
        }
    });
    let noticed = noticed.into_inner();
    let tried = noticed.as_ref().map_or(tries.len(), |(number, _)| number + 1);
    let killed_by = noticed.map(|(_, by)| by);
    Verdict { mutant, killed_by, tried, late: false, time: began.elapsed() }
}

/// Schedules of two threads, where a quick look has missed a mutant.
const SOME_SCHEDULES: u64 = 600;

/// The jobs that may notice a mutant, the shortest first; what a quick look misses is looked for
/// again, where that does not take long.
fn tries<'j>(
    mutant: Mutant,
    jobs: &'j [Job],
    sound: &Outcome,
    batch: &Batch,
) -> Vec<(&'j Job, Limits)> {
    let mut order: Vec<usize> =
        (0..jobs.len()).filter(|job| concerns(mutant, sound, *job)).collect();
    order.sort_by_key(|job| sound.tallies[*job].as_ref().map_or(u64::MAX, cost));
    let is_small = |job: &&Job| job.case.geometry.bytes <= LARGE;
    let (small, large): (Vec<&Job>, Vec<&Job>) =
        order.iter().map(|job| &jobs[*job]).partition(is_small);
    let with = |jobs: &[&'j Job], limits| jobs.iter().map(|job| (*job, limits)).collect::<Vec<_>>();
    let (quick, deep) = (batch.limits, Limits::DEEP);
    let threads: Vec<&Job> =
        small.iter().copied().filter(|job| !job.case.beside.is_empty()).collect();
    let alone: Vec<&Job> = small.iter().copied().filter(|job| job.case.beside.is_empty()).collect();
    let torn = Limits { points: Limits::DEEP.points, inside_every: 0, then_every: 0, ..quick };
    let woven = Limits { schedules: SOME_SCHEDULES, ..quick };
    let first: Vec<&Job> = small.iter().copied().filter(|job| is_hinted(mutant, job)).collect();
    [
        with(&first, woven),
        with(&first, Limits::DEEP),
        with(&small, Limits::GLANCE),
        with(&small, quick),
        with(&alone, torn),
        with(&threads, woven),
        with(&small, deep),
        with(&large, quick),
    ]
    .concat()
}

/// Roughly, in judged states, what a job takes.
fn cost(tally: &Tally) -> u64 {
    tally.judged() + 4 * tally.flips
}

/// Where some rules are best looked for. This only saves time: the others follow.
const HINTS: &[(Rule, &str)] = &[
    (Rule::OneRound, "two threads: two rounds and a slot, two lanes"),
    (Rule::PieceZeroed, "two threads: close and create, two lanes"),
    (Rule::PagesRise, "a page comes back into its log"),
    (Rule::OverwrittenAfterFence, "two threads: overwritten and taken, one lane"),
    (Rule::WatermarkFenced, "two threads: round and round, one lane"),
    (Rule::IdentitySeal, FLIPS),
    (Rule::LogPageSeal, FLIPS),
    (Rule::PieceSeal, FLIPS),
    (Rule::SuperblockSeal, FLIPS),
    (Rule::CheckpointSeal, FLIPS),
    (Rule::LinkCheck, FLIPS),
    (Rule::LinkBad, FLIPS),
    (Rule::LookBeyond, FLIPS),
    (Rule::TailKnown, FLIPS),
    (Rule::MiddleKept, FLIPS),
    (Rule::FinishedBehind, FLIPS),
];
const FLIPS: &str = "a bit flips, short log pages";

fn is_hinted(mutant: Mutant, job: &Job) -> bool {
    HINTS.iter().any(|(rule, name)| mutant == Mutant::Rule(*rule) && job.case.name == *name)
}

fn concerns(mutant: Mutant, sound: &Outcome, job: usize) -> bool {
    sound.tallies[job].as_ref().is_some_and(|tally| match mutant {
        Mutant::Site(site) => tally.sites.contains(&site),
        Mutant::Rule(rule) => tally.rules.contains(&rule),
    })
}

fn summary(job: &Job, failure: &Failure) -> (ReplayId, String) {
    let id = ReplayId { job: job.id, path: failure.path.clone() };
    let mut lines = failure.what.lines();
    let first = lines.next().unwrap_or_default().trim().to_owned();
    // A wrong tree is told in the lines that follow.
    let more = if first.ends_with(':') { lines.next().unwrap_or_default().trim() } else { "" };
    (id, format!("{first} {more}").trim().to_owned())
}
