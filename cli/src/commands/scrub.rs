//! `lode scrub`: loads all that a pool has, mounted or not, and repairs what can be repaired.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lode_engine::{Finding, Opening, Outcome, What};
use lode_fuse::control::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use super::fsck::{CLEAN, DAMAGE_LEFT, REPAIRED, exit_when_interrupted};
use crate::ask::understand;
use crate::explain::mount_failure;
use crate::failure::{Failure, Result};
use crate::human::printable;
use crate::mounts;
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::region::{self, MappedPool};
use crate::report::{BadMemoryFacts, ExemptFacts, FindingFacts, KeptFacts, ScrubReport};
use crate::sizes::parse_size;

/// Bytes of a step, where no rate says less.
const STEP_BYTES: u64 = 8 << 20;
/// The least bytes of a step: a page, so that it keeps to the smallest rates from the beginning.
const STEP_LEAST: u64 = 4 << 10;
/// Steps in a second, at most, where there is a rate.
const STEPS: u64 = 10;
/// Inodes whose paths are asked for at once.
pub(super) const PATHS: usize = 100;
/// Where snapshots are in a mount.
const SNAPSHOTS: &str = ".lode/snapshots";

/// `lode scrub`.
#[derive(Args, Debug)]
pub(crate) struct ScrubArgs {
    /// The pool, or the directory it is mounted at
    #[arg(value_name = "POOL|DIR")]
    pub(crate) target: PathBuf,
    /// Look at no more bytes a second than these, as 100M
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub(crate) rate: Option<u64>,
    /// Write nothing: of a pool that is not mounted
    #[arg(short = 'n')]
    pub(crate) no: bool,
}

/// What a step has found.
#[derive(Deserialize)]
struct Step {
    done: u64,
    all: u64,
    over: bool,
    forgotten: u64,
    #[serde(default)]
    exempt_pages: u64,
    /// Which these are that this step has met.
    #[serde(default)]
    exempt: Vec<ExemptFacts>,
    findings: Vec<FindingFacts>,
    /// Its number, of a mounted pool.
    #[serde(default)]
    scrub: Option<u64>,
    /// At the end: bad memory, and the pages of it that are kept from use, with a bit for each bad line.
    #[serde(default)]
    bad_memory: BadMemoryFacts,
    #[serde(default)]
    kept: Vec<(u64, u64)>,
}

/// What can be scrubbed.
trait Scrubbed {
    fn step(&mut self, start: bool, bytes: u64) -> Result<Step>;
    fn paths(&mut self, inos: &[u64]) -> Result<Vec<(u64, String)>>;
}

/// Runs it; returns the exit status, which is as those of fsck programs.
///
/// # Errors
/// Where the pool can't be opened, or its server can't be asked.
pub(crate) fn run(args: &ScrubArgs, output: &Output) -> Result<u8> {
    if args.rate == Some(0) {
        return Err(Failure::usage("at 0 bytes a second it would never end")
            .advise("leave --rate out: then it goes as fast as it can"));
    }
    exit_when_interrupted("scrub");
    let target = mounts::clean_path(&args.target)?;
    let mount = match mounts::at(&target)? {
        Some(mount) => Some(mount),
        None if target.is_dir() => mounts::lode_at(&args.target).map(Some)?,
        None => mounts::of_pool(&target)?,
    };
    let report = match mount {
        Some(_) if args.no => {
            return Err(Failure::usage(
                "a mounted pool is repaired where that can be done, so there is no -n",
            )
            .advise("unmount it first, or mount it read-only"));
        }
        Some(mount) => {
            mounts::must_answer(&mount)?;
            let mut mounted = Mounted { dir: &mount.point, scrub: None };
            scrub(&mut mounted, Vec::new(), args, output)?
        }
        None => {
            let pool = region::open_pool(&target, args.no, output)?;
            let by_opening = by_opening(&pool.opening(), !args.no);
            let mut closed = Closed { path: &target, pool, scrub: None };
            let report = scrub(&mut closed, by_opening, args, output)?;
            if !args.no {
                closed.pool.close().map_err(|error| Failure::engine(&target, &error))?;
            }
            report
        }
    };
    output.print(&report)?;
    Ok(report.status)
}

/// What opening the pool has found, and repaired if it `writes`: the scrub comes too late for that.
fn by_opening(opening: &Opening, writes: bool) -> Vec<FindingFacts> {
    let outcome = if writes { Outcome::Repaired } else { Outcome::Left };
    let found = |what, ino, at| {
        FindingFacts::from(&Finding { what, outcome, ino, at, offset: 0, bytes: 0 })
    };
    let superblock =
        opening.superblock_damage.iter().map(|damage| found(damage.what, 0, damage.at));
    // (What it has found to be lost, and went on without, the scrub tells.)
    let others = opening.chain_damage.iter().chain(&opening.checkpoint_damage);
    let others = others.map(|damage| found(What::Metadata, damage.ino, damage.at));
    superblock.chain(others).collect()
}

/// Scrubs it. What is known to be found is told first, and once.
fn scrub(
    pool: &mut dyn Scrubbed,
    mut findings: Vec<FindingFacts>,
    args: &ScrubArgs,
    output: &Output,
) -> Result<ScrubReport> {
    let known = findings.len();
    let rate = args.rate;
    let most = rate.map_or(STEP_BYTES, |rate| (rate / STEPS).clamp(STEP_LEAST, STEP_BYTES));
    let began = Instant::now();
    let mut progress = Progress::of(Unit::Bytes, "scrubbing the pool", output.progress);
    let (mut start, mut exempt) = (true, Vec::new());
    let last = loop {
        let mut step = pool.step(start, most)?;
        start = false;
        step.findings.retain(|one| {
            let is_it = |it: &FindingFacts| (&it.what, it.at) == (&one.what, one.at);
            !findings.iter().take(known).any(is_it)
        });
        findings.append(&mut step.findings);
        exempt.append(&mut step.exempt);
        progress.set(step.done, step.all);
        if step.over {
            break step;
        }
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(step.done as f64 / rate as f64);
            thread::sleep(due.saturating_sub(began.elapsed()));
        }
    };
    drop(progress);
    // (One range may have been met by several steps.)
    exempt.dedup_by(|next: &mut ExemptFacts, last: &mut ExemptFacts| last.takes_in(next));
    name(pool, &mut findings, &mut exempt)?;
    let count = |outcome| findings.iter().filter(|one| one.outcome == outcome).count() as u64;
    let (repaired, left, lost) = (count("repaired"), count("left"), count("lost"));
    let status = match (left + lost, repaired) {
        (0, 0) => CLEAN,
        (0, _) => REPAIRED,
        _ => DAMAGE_LEFT,
    };
    let (bytes, forgotten, exempt_pages) = (last.done, last.forgotten, last.exempt_pages);
    let target = args.target.display().to_string();
    let (bad_memory, kept) = (last.bad_memory, last.kept);
    let kept = kept.into_iter().map(KeptFacts::new).collect();
    Ok(ScrubReport {
        target,
        status,
        bytes,
        repaired,
        left,
        lost,
        forgotten,
        exempt_pages,
        exempt,
        findings,
        bad_memory,
        kept,
    })
}

/// Gives findings, and what was passed over, the paths of their files, as far as they have any.
fn name(
    pool: &mut dyn Scrubbed,
    findings: &mut [FindingFacts],
    exempt: &mut [ExemptFacts],
) -> Result<()> {
    let mut inos: Vec<u64> = findings.iter().filter_map(|one| one.inode).collect();
    inos.extend(exempt.iter().map(|one| one.inode));
    inos.sort_unstable();
    inos.dedup();
    for some in inos.chunks(PATHS) {
        for (ino, path) in pool.paths(some)? {
            let of_it = findings.iter_mut().filter(|one| one.inode == Some(ino));
            of_it.for_each(|one| one.path = Some(path.clone()));
            let of_it = exempt.iter_mut().filter(|one| one.inode == ino);
            of_it.for_each(|one| one.path = Some(path.clone()));
        }
    }
    Ok(())
}

/// Paths of inodes, as far as they have any, as one sees them in a mount.
pub(super) fn paths_in(pool: &MappedPool, inos: &[u64]) -> lode_engine::Result<Vec<(u64, String)>> {
    let mut paths = Vec::new();
    for (ino, path) in pool.paths_of(inos)? {
        let path = printable(&path);
        let seen = match pool.snapshot_of(ino)? {
            Some(name) => format!("{SNAPSHOTS}/{}/{path}", printable(&name)),
            None => path,
        };
        paths.push((ino, seen));
    }
    Ok(paths)
}

/// A pool that this command has opened.
struct Closed<'a> {
    path: &'a Path,
    pool: MappedPool,
    scrub: Option<lode_engine::Scrub>,
}

impl Scrubbed for Closed<'_> {
    fn step(&mut self, _start: bool, bytes: u64) -> Result<Step> {
        let failed = |error| Failure::engine(self.path, &error);
        let scrub = match &mut self.scrub {
            Some(scrub) => scrub,
            none => none.insert(self.pool.begin_scrub().map_err(failed)?),
        };
        self.pool.scrub(scrub, bytes).map_err(failed)?;
        let bad = self.pool.bad_memory().map_err(failed)?;
        let kept = bad.iter().filter(|bad| !bad.in_use).map(|bad| (bad.page, bad.lines));
        Ok(Step {
            done: scrub.done(),
            all: scrub.all(),
            over: scrub.is_over(),
            forgotten: scrub.forgotten(),
            exempt_pages: scrub.exempt_pages(),
            exempt: scrub.take_exempt().iter().map(ExemptFacts::from).collect(),
            findings: scrub.take_findings().iter().map(FindingFacts::from).collect(),
            scrub: None,
            bad_memory: BadMemoryFacts::new(&bad),
            kept: kept.collect(),
        })
    }

    fn paths(&mut self, inos: &[u64]) -> Result<Vec<(u64, String)>> {
        paths_in(&self.pool, inos).map_err(|error| Failure::engine(self.path, &error))
    }
}

/// A pool that a server has mounted.
struct Mounted<'a> {
    dir: &'a Path,
    /// The number of the scrub, once it has begun.
    scrub: Option<u64>,
}

impl Mounted<'_> {
    /// Over a connection of its own: a server does not wait for who may go no faster.
    fn ask(&self, request: &Value) -> Result<Value> {
        let answer = Client::for_mount(self.dir).and_then(|mut client| client.request(request));
        answer.map_err(|error| mount_failure(self.dir, &error))
    }
}

impl Scrubbed for Mounted<'_> {
    fn step(&mut self, start: bool, bytes: u64) -> Result<Step> {
        let request = json!({ "op": "scrub", "start": start, "bytes": bytes, "scrub": self.scrub });
        let step: Step = understand(self.dir, self.ask(&request)?)?;
        self.scrub = step.scrub;
        Ok(step)
    }

    fn paths(&mut self, inos: &[u64]) -> Result<Vec<(u64, String)>> {
        #[derive(Deserialize)]
        struct Paths {
            paths: Vec<(u64, String)>,
        }
        let answer = self.ask(&json!({ "op": "paths", "inos": inos }))?;
        Ok(understand::<Paths>(self.dir, answer)?.paths)
    }
}
