//! A run: subjects take turns in each workload, so that whatever drifts on the machine drifts for all of them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lode_pmem::RegionError;

use super::cell::Cell;
use super::measure::{Round, round, round_of_two};
use super::remote::{self, Asked, Running, Server};
use super::same::{self, Same};
use super::slower::{FACTORS, Shape, Slowed};
use super::subject::{Blocks, Subject, every, region_files};
use super::targets::{self, Judged};
use super::{strays, windows};
use crate::course::Course;
use crate::error::Result;
use crate::machine;
use crate::place::Place;
use crate::report::{Report, Row};
use crate::run::Watch;
use crate::stats::{median, spread};
use crate::turns;

/// What to measure.
pub struct Settings {
    /// Be done in 90 seconds.
    pub quick: bool,
    /// Subjects by their names, as [`subject_ids`] has them; all where there are none.
    pub subjects: Vec<String>,
    /// Where the run makes its directory; where memory is, if not said.
    pub dir: Option<PathBuf>,
    /// Only show what strays do.
    pub only_strays: bool,
    /// This program, for servers.
    pub lode: PathBuf,
}

/// How much of everything.
struct Extent {
    bytes: u64,
    rounds: usize,
    slice: Duration,
    remote: Duration,
    regions: &'static [u64],
}

const QUICK: Extent = Extent {
    bytes: 32 << 20,
    rounds: 5,
    slice: Duration::from_millis(12),
    remote: Duration::from_millis(150),
    regions: &[16 << 20, 64 << 20],
};
const FULL: Extent = Extent {
    bytes: 128 << 20,
    rounds: 9,
    slice: Duration::from_millis(40),
    remote: Duration::from_millis(500),
    regions: &[64 << 20, 256 << 20, 1 << 30],
};
/// Memory that a run takes at most.
const BYTES_MAX: u64 = 8 << 30;
/// After so long a quick run begins nothing new.
const QUICK_MAX: Duration = Duration::from_secs(80);

struct Run<'a> {
    extent: &'static Extent,
    place: &'a Place,
    course: Course<'a>,
    /// What of what is left out has failed, where the machine has all that it needs.
    failed: Vec<String>,
}

/// What may be asked for alone: devices in this process, and servers by NBD.
pub fn subject_ids() -> Vec<&'static str> {
    let devices = every().into_iter().map(|subject| subject.id);
    devices.chain(Server::ALL.map(Server::id)).collect()
}

/// What was measured side by side, by subject.
type Rates = Vec<(String, Vec<f64>, Vec<f64>)>;

/// Runs it all.
///
/// # Errors
/// Where nothing can be measured: no place, no memory.
pub fn run(settings: &Settings, watch: &dyn Watch) -> Result<Report> {
    let last = settings.quick.then(|| Instant::now() + QUICK_MAX);
    let place = Place::new(settings.dir.as_deref(), BYTES_MAX)?;
    let report = Report { machine: machine::here(&place, None)?, ..Report::default() };
    let extent = if settings.quick { &QUICK } else { &FULL };
    let is_whole = settings.subjects.is_empty();
    let is_wanted = |id: &str| is_whole || settings.subjects.iter().any(|one| one == id);
    let subjects: Vec<Subject> = every().into_iter().filter(|one| is_wanted(one.id)).collect();
    let servers: Vec<Server> = Server::ALL.into_iter().filter(|one| is_wanted(one.id())).collect();
    let cells = Cell::all().len() * extent.rounds * subjects.len();
    let asked = Asked::all().len() * extent.rounds * servers.len();
    let others = if is_whole { FACTORS.len() * Shape::ALL.len() * extent.rounds } else { 0 };
    let all = (cells + asked + others) as u64;
    let course = Course::new(watch, report, all, last);
    let mut run = Run { extent, place: &place, course, failed: Vec::new() };
    if settings.only_strays {
        run.strays(&settings.lode);
        return Ok(run.course.report);
    }
    run.cells(&subjects);
    if is_whole {
        run.slower();
        run.windows();
        run.strays(&settings.lode);
    }
    if !servers.is_empty() {
        run.remote(&settings.lode, &servers);
    }
    let Run { course: Course { mut report, .. }, failed, .. } = run;
    let judged = Judged::new(&report, is_whole.then_some(&*failed));
    report.targets = judged.targets();
    Ok(report)
}

/// A device that is open.
struct Started {
    id: &'static str,
    device: Box<dyn Blocks>,
    /// What is read beside it.
    same: Option<Same>,
}

impl Started {
    fn new(subject: &Subject, path: &Path, bytes: u64) -> io::Result<Self> {
        let device = subject.start(path, bytes)?;
        let is_judged = same::JUDGED.contains(&subject.id);
        let same = if is_judged { Same::of(&*device, subject.is_whole(), path)? } else { None };
        Ok(Self { id: subject.id, device, same })
    }

    /// One round of it, and of bare reads in turn with its own.
    fn round(&self, extent: &Extent, cell: &Cell) -> io::Result<(Round, Option<Round>)> {
        let (device, bytes, slice) = (&*self.device, extent.bytes, extent.slice);
        match &self.same {
            Some(same) if !cell.writes => {
                let [round, bare] = round_of_two([device, same], bytes, cell, slice)?;
                Ok((round, Some(bare)))
            }
            _ => Ok((round(device, bytes, cell, slice)?, None)),
        }
    }
}

fn add(rates: &mut Rates, subject: String, round: Round) {
    let at = rates.iter().position(|(of, ..)| *of == subject).unwrap_or_else(|| {
        rates.push((subject, Vec::new(), Vec::new()));
        rates.len() - 1
    });
    if let Some((_, ns, ops)) = rates.get_mut(at) {
        ns.push(round.ns_per_op);
        ops.push(round.ops_per_s);
    }
}

/// Whether the machine has not what was to be measured. All else that goes wrong has failed.
fn is_lacking(error: &io::Error) -> bool {
    let of_region = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(of_region, Some(RegionError::NoWindows { .. } | RegionError::NoSuchInstruction { .. }))
}

impl Run<'_> {
    /// Something is not in the report.
    fn leave_out(&mut self, what: &str, error: &io::Error) {
        if !is_lacking(error) {
            self.failed.push(what.to_owned());
        }
        self.course.leave_out(what, error);
    }

    /// All take their turns, in another order in each round, and give rounds of what rows call so. Who fails once is out of it.
    fn turns<T>(
        &mut self,
        what: &str,
        all: &mut [T],
        id: impl Fn(&T) -> String,
        mut turn: impl FnMut(&mut T, &Extent) -> io::Result<Vec<(String, Round)>>,
    ) -> Rates {
        let mut rates: Vec<Option<Rates>> = all.iter().map(|_| Some(Rates::new())).collect();
        for round in 0..self.extent.rounds {
            for number in turns::order(all.len(), round) {
                let (Some(one), Some(of)) = (all.get_mut(number), rates.get_mut(number)) else {
                    continue;
                };
                let Some(mut so_far) = of.take() else { continue };
                self.course.step(&format!("{what}, {}", id(one)));
                match turn(one, self.extent) {
                    Ok(rounds) => {
                        rounds.into_iter().for_each(|(of, round)| add(&mut so_far, of, round));
                        *of = Some(so_far);
                    }
                    Err(error) => self.leave_out(&format!("{}: {what}", id(one)), &error),
                }
            }
        }
        rates.into_iter().flatten().flatten().collect()
    }

    fn cells(&mut self, subjects: &[Subject]) {
        if subjects.is_empty() {
            return;
        }
        let mut started: Vec<Started> = Vec::new();
        let place = self.place;
        let path_of = |subject: &Subject| place.pools().join(subject.id);
        let files = subjects.iter().map(|it| (path_of(it), it.region_bytes(self.extent.bytes)));
        if let Err(error) = region_files(&files.collect::<Vec<_>>()) {
            return self.leave_out(targets::REGIONS, &error);
        }
        for subject in subjects {
            let path = path_of(subject);
            match Started::new(subject, &path, self.extent.bytes) {
                Ok(one) => started.push(one),
                Err(error) => self.leave_out(subject.id, &error),
            }
        }
        for cell in Cell::all() {
            if self.course.is_over(&cell.short()) {
                return;
            }
            self.cell(&cell, &mut started);
        }
    }

    fn cell(&mut self, cell: &Cell, started: &mut [Started]) {
        let id = |one: &Started| one.id.to_owned();
        let rates = self.turns(&cell.short(), started, id, |one, extent| {
            let (round, bare) = one.round(extent, cell)?;
            let bare = bare.map(|bare| (same::name(one.id), bare));
            Ok([(one.id.to_owned(), round)].into_iter().chain(bare).collect())
        });
        let (workload, mode) = (cell.workload(), cell.order.name());
        self.rows(&workload, mode, (cell.depth, cell.bytes), rates);
    }

    fn rows(&mut self, workload: &str, mode: &str, (threads, size): (usize, u64), rates: Rates) {
        for (subject, ns, ops) in rates.into_iter().filter(|(_, ns, _)| !ns.is_empty()) {
            self.course.report.rows.push(Row {
                workload: workload.to_owned(),
                subject,
                threads,
                size,
                mode: mode.to_owned(),
                ns_per_op: median(&ns),
                ops_per_s: median(&ops),
                p50_ns: None,
                p99_ns: None,
                repetitions: ns.len(),
                spread: spread(&ns),
                emulated: false,
            });
        }
    }

    fn slower(&mut self) {
        let mut programs = Vec::new();
        for slower in FACTORS {
            let path = self.place.pools().join(slower.name());
            match Slowed::new(&path, self.extent.bytes, slower) {
                Ok(slowed) => programs.push((slower.name(), slowed)),
                Err(error) => self.leave_out(&slower.name(), &error),
            }
        }
        for shape in Shape::ALL {
            if self.course.is_over(shape.name()) {
                return;
            }
            let id = |(name, _): &(String, Slowed)| name.clone();
            let rates = self.turns(shape.name(), &mut programs, id, |(name, slowed), extent| {
                let ns_per_op = slowed.round(shape, extent.slice)?;
                Ok(vec![(name.clone(), Round { ns_per_op, ops_per_s: 1e9 / ns_per_op })])
            });
            self.rows(shape.name(), "slower", (1, 0), rates);
        }
    }

    fn windows(&mut self) {
        if self.course.is_over("windows") {
            return;
        }
        // (Not where memory is mapped by large pages, which need hardly any page tables.)
        match windows::measure(self.place.dir(), self.extent.regions) {
            Ok(figures) => self.course.report.figures.extend(figures),
            Err(error) => self.leave_out("windows", &error),
        }
    }

    fn strays(&mut self, lode: &Path) {
        if self.course.is_over("strays") {
            return;
        }
        match strays::measure(lode) {
            Ok(figures) => self.course.report.figures.extend(figures),
            Err(error) => self.leave_out("strays", &error),
        }
    }

    fn remote(&mut self, lode: &Path, wanted: &[Server]) {
        if let Some(why) = remote::missing() {
            return self.course.leave_out(targets::NBD, &why);
        }
        let mut servers: Vec<(Server, Running)> = Vec::new();
        for server in wanted.iter().copied() {
            // What is read is there before it is.
            let started = server.start(lode, self.place.pools());
            match started.and_then(|running| running.fill().map(|()| running)) {
                Ok(running) => servers.push((server, running)),
                Err(error) => self.leave_out(server.id(), &error),
            }
        }
        for asked in Asked::all() {
            if self.course.is_over(&asked.short()) {
                return;
            }
            let id = |(server, _): &(Server, Running)| server.id().to_owned();
            let rates =
                self.turns(&asked.short(), &mut servers, id, |(server, running), extent| {
                    let ops_per_s = running.ask(asked, extent.remote)?;
                    let ns_per_op = asked.depth as f64 * 1e9 / ops_per_s.max(1e-9);
                    Ok(vec![(server.id().to_owned(), Round { ns_per_op, ops_per_s })])
                });
            self.rows(&asked.workload(), "random", (asked.depth, asked.bytes), rates);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    struct Silent;

    impl Watch for Silent {
        fn progress(&self, _done: u64, _all: u64, _what: &str) {}

        fn is_over(&self) -> bool {
            false
        }
    }

    fn started(id: &'static str, fails: bool) -> Started {
        Started { id, device: Box::new(Fails(fails)), same: None }
    }

    /// A device that fails, or does nothing.
    struct Fails(bool);

    impl Blocks for Fails {
        fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            if self.0 { Err(io::Error::other("it fails")) } else { Ok(()) }
        }

        fn write(&self, at: u64, _: &[u8]) -> io::Result<()> {
            self.read(at, &mut [])
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_take_as_many_turns_and_who_fails_once_has_no_row_and_is_told_once() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::new(Some(base.path()), 16 << 20).unwrap();
        let course = Course::new(&Silent, Report::default(), 1, None);
        let mut run = Run { extent: &QUICK, place: &place, course, failed: Vec::new() };
        let mut asked = BTreeMap::new();
        let mut all = ["a", "b", "c"];
        let rates = run.turns(
            "work",
            &mut all,
            |one| (*one).to_owned(),
            |one, _| {
                let times = asked.entry(*one).or_insert(0);
                *times += 1;
                if *one == "b" && *times == 2 {
                    return Err(io::Error::other("it fails"));
                }
                let round = Round { ns_per_op: f64::from(*times), ops_per_s: 1.0 };
                Ok(vec![((*one).to_owned(), round), (format!("{one}-limit"), round)])
            },
        );
        let rounds: Vec<f64> = (1..=QUICK.rounds).map(|round| round as f64).collect();
        let told: Vec<_> = rates.iter().map(|(of, ns, ops)| (&**of, ns, ops.len())).collect();
        let wanted = ["a", "a-limit", "c", "c-limit"].map(|of| (of, &rounds, QUICK.rounds));
        assert_eq!(told, wanted);
        assert_eq!(asked[&"b"], 2);
        let left_out: Vec<_> = run.course.report.left_out.iter().map(|one| &*one.what).collect();
        assert_eq!((left_out, &*run.failed), (vec!["b: work"], &["b: work".to_owned()][..]));
    }

    #[test]
    fn a_device_that_fails_is_not_measured_and_its_targets_are_not_met() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::new(Some(base.path()), 16 << 20).unwrap();
        let course = Course::new(&Silent, Report::default(), 1, None);
        let mut run = Run { extent: &QUICK, place: &place, course, failed: Vec::new() };
        let cell = Cell::all().into_iter().find(|cell| cell.short() == "WR-RND-sz4-Q1").unwrap();
        run.cell(&cell, &mut [started("limit", false), started("none", true)]);
        let report = &run.course.report;
        assert_eq!(report.rows.len(), 1, "{:?}", report.rows);
        let targets = Judged::new(report, Some(&*run.failed)).targets();
        let none = targets.iter().find(|one| one.what == "none, WR-RND-sz4-Q1").unwrap();
        assert_eq!((none.met, &*none.measured), (Some(false), "not measured: it fails"));
    }

    #[test]
    fn what_the_machine_lacks_has_not_failed() {
        let why = RegionError::NoWindows { mode: lode_pmem::WindowMode::Key, why: "no keys" };
        assert!(is_lacking(&io::Error::other(why)));
        assert!(!is_lacking(&io::Error::other("it fails")));
        assert!(!is_lacking(&io::ErrorKind::NotFound.into()));
    }

    #[test]
    fn each_subject_can_be_asked_for_by_a_name_of_its_own() {
        let ids = subject_ids();
        for id in ["none", "volume-limit", "lode-raw", "lode-volume", "nbdkit-memory"] {
            assert_eq!(ids.iter().filter(|one| **one == id).count(), 1, "{id}");
        }
    }
}
