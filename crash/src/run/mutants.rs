//! Mutants: the engine with one thing left out. Each must be noticed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::batch::on_workers;
use super::{Batch, Job, Outcome, Progress, ReplayId};
use lode_engine::Rule;

use crate::explore::{Failure, Limits, Memo, Setup, Stop, Tally};
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
    /// A state in which it was noticed, but which is wrong without it, too: so nothing is known of it.
    pub wrong_anyway: Option<(ReplayId, String)>,
    /// Jobs that were tried to their end, or until one noticed it.
    pub tried: usize,
    /// There was no time to try all.
    pub late: bool,
    /// How long that took.
    pub time: Duration,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.killed_by, &self.wrong_anyway) {
            (Some((id, what)), _) => write!(f, "{}: {id}: {what}", self.mutant),
            (None, Some((id, _))) => write!(f, "{}: {id} is wrong without it, too", self.mutant),
            (None, None) => write!(f, "{}: not noticed in {} cases", self.mutant, self.tried),
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
/// without a mutant: a job that never comes to a place can't miss it. Verdicts are in the order of the mutants.
///
/// Each mutant has a worker to itself, which then tries nothing behind what notices it; where there are fewer mutants
/// than workers, all of them look for one.
pub fn run_mutants(
    mutants: &[Mutant],
    jobs: &[Job],
    sound: &Outcome,
    batch: &Batch,
    progress: &dyn Progress,
) -> Vec<Verdict> {
    let began = Instant::now();
    let late = batch.stop.or_at(batch.time_max.map(|most| began + most));
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let verdicts = Mutex::new(vec![None; mutants.len()]);
    let work = |workers: usize| {
        let of_each = Batch { workers, ..batch.clone() };
        loop {
            let number = next.fetch_add(1, Relaxed);
            let Some(mutant) = mutants.get(number) else { return };
            let verdict = run_mutant(*mutant, jobs, sound, &of_each, &late);
            verdicts.lock()[number] = Some(verdict);
            progress.job_done(done.fetch_add(1, Relaxed) + 1, mutants.len(), 0);
        }
    };
    if mutants.len() < batch.workers {
        work(batch.workers);
    } else {
        on_workers(batch.workers, &|| work(1));
    }
    verdicts.into_inner().into_iter().flatten().collect()
}

/// Who noticed a mutant, the first of them in the order of the tries; and whether the engine is wrong
/// there without it, too.
type Noticed = Option<(usize, (ReplayId, String), bool)>;

fn run_mutant(
    mutant: Mutant,
    jobs: &[Job],
    sound: &Outcome,
    batch: &Batch,
    late: &Stop,
) -> Verdict {
    let began = Instant::now();
    let tries = tries(mutant, jobs, sound, batch);
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let noticed: Mutex<Noticed> = Mutex::new(None);
    let first = Arc::new(AtomicUsize::new(usize::MAX));
    let look = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            let Some((job, limits)) = tries.get(number) else { return };
            let (first_noticed, out_of_time) = (first.clone(), late.clone());
            let is_over = move || first_noticed.load(Relaxed) < number || out_of_time.is_asked();
            if is_over() {
                return;
            }
            let mut setup = Setup { stop: Stop::when(is_over), ..job.setup() };
            mutant.leave_out(&mut setup);
            match job.run(&setup, limits, &mut Memo::default()) {
                Ok(tally) => finished.fetch_add(usize::from(!tally.cut_short), Relaxed),
                Err(failure) => {
                    first.fetch_min(number, Relaxed);
                    // It was noticed by looks that nobody has taken without it.
                    let anyway = job.replay(&failure.path, None).wrong;
                    let mut noticed = noticed.lock();
                    if noticed.as_ref().is_none_or(|(first, ..)| number < *first) {
                        *noticed = Some((number, summary(job, &failure), anyway));
                    }
                    return;
                }
            };
        }
    };
    // (A worker that has a mutant to itself is one already.)
    if batch.workers == 1 {
        look();
    } else {
        on_workers(batch.workers, &look);
    }
    let noticed = noticed.into_inner();
    let tried = noticed.as_ref().map_or(finished.into_inner(), |(number, ..)| number + 1);
    let late = noticed.is_none() && tried < tries.len() || tries.is_empty() && late.is_asked();
    let (killed_by, wrong_anyway) = match noticed {
        Some((_, by, false)) => (Some(by), None),
        Some((_, by, true)) => (None, Some(by)),
        None => (None, None),
    };
    Verdict { mutant, killed_by, wrong_anyway, tried, late, time: began.elapsed() }
}

/// The shortest jobs, at which most mutants are noticed: no hint is needed for those.
const SHORTEST: usize = 24;
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
    let (large, small): (Vec<&Job>, Vec<&Job>) =
        order.iter().map(|job| &jobs[*job]).partition(|job| job.case.geometry.is_large());
    let with = |jobs: &[&'j Job], limits| jobs.iter().map(|job| (*job, limits)).collect::<Vec<_>>();
    let (quick, deep) = (batch.limits, Limits::DEEP);
    let threads: Vec<&Job> =
        small.iter().copied().filter(|job| !job.case.beside.is_empty()).collect();
    let alone: Vec<&Job> = small.iter().copied().filter(|job| job.case.beside.is_empty()).collect();
    let torn = Limits { points: Limits::DEEP.points, inside_every: 0, then_every: 0, ..quick };
    let woven = Limits { schedules: SOME_SCHEDULES, large_schedules: SOME_SCHEDULES, ..quick };
    // (Also where the few schedules of the look without a mutant have not come to it: here there are more.)
    let of_rule: Vec<&Job> = jobs.iter().filter(|job| is_hinted(mutant, job)).collect();
    let of_file: Vec<&Job> =
        order.iter().map(|job| &jobs[*job]).filter(|job| is_of_file(mutant, job)).collect();
    let (shortest, longer) = small.split_at(SHORTEST.min(small.len()));
    [
        with(&of_rule, Limits::GLANCE),
        with(&of_rule, woven),
        with(&of_rule, Limits::DEEP),
        with(shortest, Limits::GLANCE),
        with(&of_file, quick),
        with(longer, Limits::GLANCE),
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
    (Rule::WatermarkCopies, "a table piece, then data, then a table piece"),
    (Rule::RoundEveryLane, "two threads: round and rename over, two lanes"),
    (Rule::TwinsMended, "two copies of metadata"),
    (Rule::PieceZeroed, "two threads: close and create, two lanes"),
    (Rule::PagesRise, "a page comes back into its log"),
    (Rule::OverwrittenAfterFence, "snapshots end in order"),
    (Rule::WatermarkFenced, "two threads: round and round, one lane"),
    (Rule::ValueAfterFence, "two threads: value freed and taken, two lanes"),
    (Rule::FreeAfterUnlinked, "two threads: a page of a fast collection is taken, one lane"),
    (Rule::EndedFirst, "snapshots end in order"),
    (Rule::FreeAfterFence, "two threads: full: freed and taken, two lanes"),
    (Rule::FreeAfterSwap, "two threads: pages of a thorough collection are taken, one lane"),
    (Rule::BatchBeforeFence, "two threads: round and round, two lanes"),
    (Rule::LentFree, "lent, direct: a session ends meanwhile"),
    (Rule::LentApart, "lent, direct: files are written beside it"),
    (Rule::LentOwed, "lent, indirect: its file ends first"),
    (Rule::HeldKept, "held: an owner is gone, and its program is not"),
    (Rule::JournalHalves, "two threads: overwrites of two pages, two lanes"),
    (Rule::SectorsReplayed, "sectors that overlap, two lanes"),
    (Rule::SectorsSeal, "sectors that overlap, one lane"),
    (Rule::SectorsPlaces, "sectors that overlap, one lane"),
    (Rule::SectorsApart, "sectors that overlap, two lanes"),
    (Rule::SectorsEnded, "sectors and other writes, two lanes"),
    (Rule::SectorsKnown, "two threads: sectors by a handle and a write, two lanes"),
    (
        Rule::BesideKnown,
        "two threads: side by side: an overwrite, and its page in another file, two lanes",
    ),
    (Rule::BesideLatest, "side by side: overwrites and snapshots, two lanes"),
    (Rule::SectorsAwaited, "two threads: sectors and snapshot, one lane"),
    (Rule::LinkDoubted, "a log gets a page again"),
    (Rule::TailZeroed, "overwrites, then truncate and extend"),
    (Rule::JournalClipped, "overwrite, unlink, pages used again, short log pages"),
    (Rule::Located, "a full pool grows by a page"),
    (Rule::OrphansFreed, "collection of a file's log, short log pages"),
    (Rule::LocatorSum, "a bit flips, whole log pages"),
    (Rule::StripsWrittenBack, "checksums of whole pages"),
    (Rule::ParityKept, "a bit of file data flips"),
    (Rule::SecondChecksum, "a bit of file data flips"),
    (Rule::StripsVerified, "a bit of file data flips"),
    (Rule::IdentitySeal, FLIPS),
    (Rule::LogPageSeal, FLIPS),
    (Rule::PieceSeal, FLIPS),
    (Rule::SuperblockSeal, FLIPS),
    (Rule::CheckpointSeal, FLIPS),
    (Rule::CheckpointSum, FLIPS),
    (Rule::LinkCheck, FLIPS),
    (Rule::LinkBad, FLIPS),
    (Rule::LookBeyond, FLIPS),
    (Rule::TailKnown, FLIPS),
    (Rule::MiddleKept, FLIPS),
    (Rule::FinishedBehind, FLIPS),
    (Rule::OneUnfinished, "a bit of a page that begins flips, 5 in front"),
    (Rule::JournalSeen, "behind what a snapshot sees: an overwrite on its way"),
    (Rule::LinkTorn, "two threads: inline and a slot, one lane"),
    (Rule::XattrInOne, "attributes come along"),
    (Rule::MapsProtected, "what a snapshot sees of a mapped file"),
    (Rule::SeenComesHome, "a pool with snapshots gets checksums, and has overwrites on their way"),
    (Rule::KeptSummed, "a pool with snapshots gets checksums"),
    (Rule::RepairsFenced, "a scrub, of metadata"),
];
const FLIPS: &str = "a bit flips, short log pages";

fn is_hinted(mutant: Mutant, job: &Job) -> bool {
    HINTS.iter().any(|(rule, name)| mutant == Mutant::Rule(*rule) && job.case.name == *name)
}

/// Where instructions are best looked for that a glance at the shortest cases has missed: of all places of a file, as its
/// lines move.
const FILE_HINTS: &[(&str, &str)] = &[
    ("engine/src/file/journalled.rs", "huge pages with journalled writes"),
    ("engine/src/inode/collect.rs", "two threads: collection and a slot, one lane"),
    ("engine/src/inode/collect.rs", "two threads: inline and a slot, one lane"),
    ("engine/src/inode/rewrite.rs", "two threads: collection and a slot, one lane"),
    (
        "engine/src/inode/seen.rs",
        "a pool with snapshots gets checksums, and has overwrites on their way",
    ),
    ("engine/src/level/seen.rs", "a pool with snapshots gets checksums"),
    ("engine/src/recovery/repair.rs", "two threads: snapshot and rename across, two lanes"),
    ("engine/src/recovery/sectors.rs", "sectors and truncations, two lanes"),
    ("engine/src/recovery/close.rs", "a log goes from the inode to a page"),
    ("engine/src/store/space.rs", "two threads: full: unlinked and taken, one lane"),
    ("engine/src/store/superblock.rs", "behind what a snapshot sees: attributes, and a rollback"),
];

fn is_of_file(mutant: Mutant, job: &Job) -> bool {
    let Mutant::Site(left_out) = mutant else { return false };
    let file = left_out.site().file;
    FILE_HINTS.iter().any(|(of, name)| file == *of && job.case.name == *name)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Profile;
    use crate::run::{What, run_batch, select};

    #[test]
    fn each_hint_names_a_case() {
        let jobs = select(&What::ForMutants, &[Profile::Adr], 1, &Stop::NEVER);
        let names = HINTS.iter().map(|hint| hint.1).chain(FILE_HINTS.iter().map(|hint| hint.1));
        for name in names {
            assert!(jobs.iter().any(|job| job.case.name == name), "{name}");
        }
    }

    #[test]
    fn verdicts_are_the_same_however_many_look() {
        let mut jobs = select(&What::ForMutants, &[Profile::Adr], 1, &Stop::NEVER);
        jobs.retain(|job| job.case.name.starts_with("sectors that overlap"));
        assert_eq!(jobs.len(), 2);
        let (limits, time_max, stop) = (Limits::GLANCE, None, Stop::NEVER);
        let batch = |workers| Batch { limits, workers, time_max, stop: stop.clone() };
        let sound = run_batch(&jobs, &batch(2), &());
        // (Those that are noticed there, which is soon.)
        let mut mutants = mutants_of(&sound);
        mutants.retain(|mutant| jobs.iter().any(|job| is_hinted(*mutant, job)));
        let told = |workers| -> Vec<String> {
            let verdicts = run_mutants(&mutants, &jobs, &sound, &batch(workers), &());
            assert!(verdicts.iter().map(|verdict| verdict.mutant).eq(mutants.iter().copied()));
            verdicts.iter().map(|verdict| format!("{verdict} ({} tried)", verdict.tried)).collect()
        };
        let alone = told(1);
        assert_eq!(alone.len(), 4, "{alone:?}");
        assert_eq!(alone, told(2));
        assert_eq!(alone, told(mutants.len() + 1));
    }
}
