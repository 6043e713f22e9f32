//! A run: subjects take turns, each in a process of its own that lives for all rounds.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lode_loan::{CHUNK_BYTES, Method};

use super::block::PAGE;
use super::build::{self, Build};
use super::helper::Helper;
use super::owner::{Owner, pool_bytes};
use super::subject::{ALL, From, Lender, Pages, Subject};
use super::swap::Swap;
use super::{MODE, targets};
use crate::course::Course;
use crate::error::{BenchError, Result};
use crate::machine;
use crate::place::Place;
use crate::report::{Figure, Report, Row};
use crate::run::{Watch, enough_for};
use crate::stats::{median, spread};

/// What to measure.
pub struct Settings {
    /// Be done in 90 seconds.
    pub quick: bool,
    /// Bytes that each round takes, instead of the usual.
    pub bytes: Option<u64>,
    /// Where the run makes its directory; where memory is, if not said.
    pub dir: Option<PathBuf>,
    /// This program, for servers and for those who touch.
    pub lode: PathBuf,
}

/// How much of everything.
struct Extent {
    bytes: u64,
    rounds: usize,
    units: usize,
    builds: usize,
}

const QUICK: Extent = Extent { bytes: 128 << 20, rounds: 5, units: 6, builds: 3 };
const FULL: Extent = Extent { bytes: 512 << 20, rounds: 9, units: 24, builds: 9 };
/// C files where somebody asks for less memory than a quick run takes.
const UNITS_LEAST: usize = 2;
/// Bytes that a round takes at least, and at most.
const BYTES: std::ops::RangeInclusive<u64> = (8 << 20)..=(4 << 30);

/// After so long a quick run begins nothing new.
const QUICK_MAX: Duration = Duration::from_secs(70);
/// How long one touching may take, or a warm-up.
const PATIENCE: Duration = Duration::from_secs(120);

struct Run<'a> {
    lode: &'a Path,
    extent: Extent,
    place: &'a Place,
    course: Course<'a>,
}

/// Who touches memory, and how long that took.
struct Toucher {
    subject: Subject,
    helper: Helper,
    /// Nanoseconds a page.
    ns: Vec<f64>,
}

/// The servers of a run.
type Owners = Vec<(Lender, Owner)>;

/// Runs it all.
///
/// # Errors
/// Where nothing can be measured: no place, no memory.
pub fn run(settings: &Settings, watch: &dyn Watch) -> Result<Report> {
    let last = settings.quick.then(|| Instant::now() + QUICK_MAX);
    let extent = extent(settings);
    let pools: u64 = Lender::ALL.iter().map(|one| pool_bytes(*one, extent.bytes)).sum();
    // (Beside the pools: who touches, and what is swapped to.)
    let needed = pools + 3 * extent.bytes;
    let place = Place::new(settings.dir.as_deref(), needed)?;
    enough_for(needed)?;
    let report = Report { machine: machine::here(&place, None)?, ..Report::default() };
    let touched = ALL.len() * Pages::ALL.len() * extent.rounds;
    let all = (touched + (1 + Method::ALL.len()) * (extent.builds + 1)) as u64;
    let (lode, place) = (settings.lode.as_path(), &place);
    let course = Course::new(watch, report, all, last);
    let mut run = Run { lode, extent, place, course };
    for pages in Pages::ALL {
        run.stage(pages)?;
    }
    if run.course.report.rows.iter().any(|row| row.emulated) {
        run.course.leave_out(
            "slower memory",
            &"what a program stores into its memory is not slowed, nor are page tables: what the server does is",
        );
    }
    run.course.report.targets = targets::judge(&run.course.report);
    Ok(run.course.report)
}

fn extent(settings: &Settings) -> Extent {
    let usual = if settings.quick { QUICK } else { FULL };
    let Some(bytes) = settings.bytes else { return usual };
    let bytes = bytes.clamp(*BYTES.start(), *BYTES.end()).next_multiple_of(CHUNK_BYTES);
    let units = if bytes < QUICK.bytes { UNITS_LEAST } else { usual.units };
    Extent { bytes, units, ..usual }
}

impl Run<'_> {
    /// All that is measured on such pages; with those that pools are mapped by usually, a build, too.
    fn stage(&mut self, pages: Pages) -> Result<()> {
        let is_last = !self.place.is_root() || pages == Pages::Huge;
        let dir = match (self.place.is_root(), pages) {
            (true, Pages::Huge) => self.place.pools().to_owned(),
            (true, Pages::Small) => self.place.tmpfs("small", "size=100%")?,
            (false, Pages::Small) => self.place.dir().to_owned(),
            (false, Pages::Huge) => {
                self.course.leave_out(pages.workload(), &"only root mounts a tmpfs of huge pages");
                return Ok(());
            }
        };
        if self.course.is_over(&pages.workload()) {
            return Ok(());
        }
        let subjects = || ALL.into_iter().filter(|one| pages == Pages::Small || !one.small_only);
        let mut owners = Owners::new();
        for lender in Lender::ALL {
            if !subjects().any(|one| matches!(one.from, From::Lent(from, _) if from == lender)) {
                continue;
            }
            match Owner::start(self.lode, &dir, lender, self.extent.bytes) {
                Ok(owner) => owners.push((lender, owner)),
                Err(error) => self.course.leave_out(format!("server {}", lender.name()), &error),
            }
        }
        // (Taken off behind who is swapped out to it.)
        let swap = (pages == Pages::Small).then(|| self.swap(&dir)).flatten();
        let mut touchers = Vec::new();
        for subject in subjects().filter(|one| one.from != From::Swap || swap.is_some()) {
            match self.toucher(subject, pages, &dir, &owners) {
                Ok(toucher) => touchers.extend(toucher),
                Err(error) => {
                    self.course.leave_out(format!("{}: {}", subject.id, pages.workload()), &error);
                }
            }
        }
        self.rounds(pages, &mut touchers, &owners);
        drop((touchers, swap));
        if is_last {
            self.builds(&owners)?;
        }
        Ok(())
    }

    fn swap(&mut self, dir: &Path) -> Option<Swap> {
        let swap = match self.place.is_root() {
            true => Swap::start(dir, self.extent.bytes * 5 / 4),
            false => Err(io::Error::other("only root can turn swapping on")),
        };
        swap.map_err(|error| self.course.leave_out("swap", &error)).ok()
    }

    /// A process for a subject, which has warmed up; none where its server is not there, which is told already.
    fn toucher(
        &mut self,
        subject: Subject,
        pages: Pages,
        dir: &Path,
        owners: &Owners,
    ) -> io::Result<Option<Toucher>> {
        let mut command = Command::new(self.lode);
        command.args(["bench", "heap", "--child", "touch", subject.how(), pages.name()]);
        command.arg(self.extent.bytes.to_string());
        let owner = owner_of(&subject, owners);
        match (subject.from, owner) {
            (From::Lent(..), None) => return Ok(None),
            (_, Some(owner)) => command.arg(owner.socket()),
            (_, None) => command.arg(""),
        };
        let mut helper = Helper::start(&mut command, dir.join(format!("{}.log", subject.id)))?;
        let part: f64 = parsed(&helper.hear(PATIENCE)?)?;
        if let Some(owner) = owner {
            owner.settle()?;
        }
        if pages == Pages::Huge || part > 0.0 {
            self.course.report.figures.push(Figure {
                workload: pages.workload(),
                subject: subject.id.to_owned(),
                what: targets::HUGE_PART.to_owned(),
                value: part,
                unit: "part".to_owned(),
            });
        }
        Ok(Some(Toucher { subject, helper, ns: Vec::new() }))
    }

    /// All touch by turns, each round begun by another one.
    fn rounds(&mut self, pages: Pages, touchers: &mut Vec<Toucher>, owners: &Owners) {
        for _ in 0..self.extent.rounds {
            if self.course.is_over(&pages.workload()) {
                break;
            }
            let mut failed = Vec::new();
            for toucher in touchers.iter_mut() {
                let id = toucher.subject.id;
                self.course.step(&format!("{}, {id}", pages.workload()));
                let of_page = (self.extent.bytes / PAGE as u64) as f64;
                let touched = toucher.helper.ask(PATIENCE).and_then(|line| parsed::<f64>(&line));
                let owner = owner_of(&toucher.subject, owners);
                match touched.and_then(|ns| owner.map_or(Ok(()), Owner::settle).map(|()| ns)) {
                    Ok(ns) => toucher.ns.push(ns / of_page),
                    Err(error) => failed.push((id, error)),
                }
            }
            for (id, error) in failed {
                self.course.leave_out(format!("{id}: {}", pages.workload()), &error);
                touchers.retain(|toucher| toucher.subject.id != id);
            }
            if !touchers.is_empty() {
                touchers.rotate_left(1);
            }
        }
        if self.course.is_ended() {
            return;
        }
        for subject in ALL {
            let of = touchers.iter().find(|toucher| toucher.subject.id == subject.id);
            if let Some(toucher) = of {
                self.row(
                    (&pages.workload(), subject.id),
                    PAGE as u64,
                    subject.is_emulated(),
                    &toucher.ns,
                );
            }
        }
    }

    fn row(&mut self, (workload, subject): (&str, &str), size: u64, emulated: bool, ns: &[f64]) {
        if ns.is_empty() {
            return;
        }
        self.course.report.rows.push(Row {
            workload: workload.to_owned(),
            subject: subject.to_owned(),
            threads: 1,
            size,
            mode: MODE.to_owned(),
            ns_per_op: median(ns),
            ops_per_s: 1e9 / median(ns),
            p50_ns: None,
            p99_ns: None,
            repetitions: ns.len(),
            spread: spread(ns),
            emulated,
        });
    }

    fn builds(&mut self, owners: &Owners) -> Result<()> {
        let usual = owners.iter().find(|(lender, _)| *lender == Lender::Usual);
        let Some((_, owner)) = usual else { return Ok(()) };
        let dir = self.place.new_dir("build")?;
        let mut build = Build::new(&dir, self.extent.units)
            .map_err(|error| BenchError::io("making what is compiled, in", &dir, error))?;
        let lent = |method| Some((owner.pool(), method));
        let ways: Vec<_> = [None].into_iter().chain(Method::ALL.into_iter().map(lent)).collect();
        let name = |way: &Option<(&Path, Method)>| way.map_or("malloc", |(_, of)| of.name());
        let mut times: Vec<[Vec<f64>; 3]> = ways.iter().map(|_| Default::default()).collect();
        // (The first round warms up, and each is begun by another one.)
        'rounds: for round in 0..=self.extent.builds {
            for at in 0..ways.len() {
                let at = (at + round) % ways.len();
                let (Some(way), Some(times)) = (ways.get(at), times.get_mut(at)) else { continue };
                if self.course.is_over("build") {
                    break 'rounds;
                }
                self.course.step(&format!("build, {}", name(way)));
                // (What a server still does for the build before is not for this one.)
                match owner.rest().and_then(|()| build.once(self.lode, *way)) {
                    Ok(all) if round > 0 => times
                        .iter_mut()
                        .zip(all)
                        .for_each(|(times, seconds)| times.push(seconds * 1e9)),
                    Ok(_) => {}
                    Err(error) => {
                        self.course.leave_out(format!("{}: build", name(way)), &error);
                        return Ok(());
                    }
                }
            }
        }
        if !self.course.is_ended() {
            let names: Vec<_> = ways.iter().map(name).collect();
            self.tell_builds(&names, &times);
        }
        Ok(())
    }

    fn tell_builds(&mut self, names: &[&str], times: &[[Vec<f64>; 3]]) {
        let Some(usual) = times.first() else { return };
        for (at, workload) in build::WORKLOADS.into_iter().enumerate() {
            for (name, times) in names.iter().zip(times) {
                let (Some(usual), Some(times)) = (usual.get(at), times.get(at)) else { continue };
                self.row((workload, name), 0, false, times);
                if usual != times && !times.is_empty() {
                    self.course.report.figures.push(Figure {
                        workload: workload.to_owned(),
                        subject: (*name).to_owned(),
                        what: targets::MORE.to_owned(),
                        value: build::more(usual, times),
                        unit: "part".to_owned(),
                    });
                }
            }
        }
    }
}

fn owner_of<'o>(subject: &Subject, owners: &'o Owners) -> Option<&'o Owner> {
    let From::Lent(lender, _) = subject.from else { return None };
    owners.iter().find(|(of, _)| *of == lender).map(|(_, owner)| owner)
}

fn parsed<T: std::str::FromStr>(line: &str) -> io::Result<T> {
    let wrong = |_| io::Error::other(format!("it told no number but {line:?}"));
    line.trim().parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_enough_rounds_and_takes_whole_chunks() {
        const { assert!(QUICK.rounds >= 5 && FULL.rounds >= 7 && FULL.builds >= 7) };
        let settings =
            |bytes| Settings { quick: true, bytes, dir: None, lode: PathBuf::from("lode") };
        assert_eq!(extent(&settings(None)).bytes, 128 << 20);
        assert_eq!(extent(&settings(Some(1))).bytes, 8 << 20);
        assert_eq!(extent(&settings(Some((20 << 20) + 1))).bytes, 22 << 20);
    }
}
