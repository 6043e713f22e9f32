//! A run: subjects take turns in each workload, so that whatever drifts on the machine drifts for all of them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::cell::Cell;
use super::measure::{Round, round, round_of_two};
use super::remote::{self, Asked, Running, Server};
use super::same::{self, Same};
use super::slower::{FACTORS, Shape, Slowed};
use super::subject::{Blocks, Subject, every, region_files};
use super::{strays, targets, windows};
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
    let mut run = Run { extent, place: &place, course: Course::new(watch, report, all, last) };
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
    run.course.report.targets = targets::judge(&run.course.report.rows);
    Ok(run.course.report)
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
        let same = if is_judged { Same::of(&*device, path)? } else { None };
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

impl Run<'_> {
    fn cells(&mut self, subjects: &[Subject]) {
        if subjects.is_empty() {
            return;
        }
        let mut started: Vec<Started> = Vec::new();
        let path_of = |subject: &Subject| self.place.pools().join(subject.id);
        let files = subjects.iter().map(|it| (path_of(it), it.region_bytes(self.extent.bytes)));
        if let Err(error) = region_files(&files.collect::<Vec<_>>()) {
            return self.course.leave_out("regions", &error);
        }
        for subject in subjects {
            let path = path_of(subject);
            match Started::new(subject, &path, self.extent.bytes) {
                Ok(one) => started.push(one),
                Err(error) => self.course.leave_out(subject.id, &error),
            }
        }
        for cell in Cell::all() {
            if self.course.is_over(&cell.short()) {
                return;
            }
            self.cell(&cell, &started);
        }
    }

    fn cell(&mut self, cell: &Cell, started: &[Started]) {
        let rates_of = |one: &Started| (one.id.to_owned(), Vec::new(), Vec::new());
        let mut rates: Rates = started.iter().map(rates_of).collect();
        let mut bare: Rates = Vec::new();
        let mut failed = Vec::new();
        for round in 0..self.extent.rounds {
            for number in turns::order(started.len(), round) {
                let (Some(one), Some((_, ns, ops))) = (started.get(number), rates.get_mut(number))
                else {
                    continue;
                };
                self.course.step(&format!("{}, {}", cell.short(), one.id));
                match one.round(self.extent, cell) {
                    Ok((round, of_memory)) => {
                        ns.push(round.ns_per_op);
                        ops.push(round.ops_per_s);
                        if let Some(round) = of_memory {
                            add(&mut bare, same::name(one.id), round);
                        }
                    }
                    Err(error) => failed.push((one.id, error)),
                }
            }
        }
        for (id, error) in failed {
            self.course.leave_out(format!("{id}: {}", cell.short()), &error);
            rates.retain(|(of, ..)| of != id);
            bare.retain(|(of, ..)| *of != same::name(id));
        }
        rates.append(&mut bare);
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
                Err(error) => self.course.leave_out(slower.name(), &error),
            }
        }
        for shape in Shape::ALL {
            if self.course.is_over(shape.name()) {
                return;
            }
            let mut rates: Rates =
                programs.iter().map(|(name, _)| (name.clone(), Vec::new(), Vec::new())).collect();
            for _ in 0..self.extent.rounds {
                for ((name, slowed), (_, ns, ops)) in programs.iter_mut().zip(&mut rates) {
                    self.course.step(&format!("{}, {name}", shape.name()));
                    match slowed.round(shape, self.extent.slice) {
                        Ok(of_unit) => {
                            ns.push(of_unit);
                            ops.push(1e9 / of_unit);
                        }
                        Err(error) => self.course.leave_out(name.clone(), &error),
                    }
                }
            }
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
            Err(error) => self.course.leave_out("windows", &error),
        }
    }

    fn strays(&mut self, lode: &Path) {
        if self.course.is_over("strays") {
            return;
        }
        match strays::measure(lode) {
            Ok(figures) => self.course.report.figures.extend(figures),
            Err(error) => self.course.leave_out("strays", &error),
        }
    }

    fn remote(&mut self, lode: &Path, wanted: &[Server]) {
        if let Some(why) = remote::missing() {
            return self.course.leave_out("nbd", &io::Error::other(why));
        }
        let mut servers: Vec<(Server, Running)> = Vec::new();
        for server in wanted.iter().copied() {
            match server.start(lode, self.place.pools()) {
                Ok(running) => servers.push((server, running)),
                Err(error) => self.course.leave_out(server.id(), &error),
            }
        }
        // What is read is there before it is.
        for (_, running) in &servers {
            if let Err(error) = running.fill() {
                self.course.leave_out("nbd", &error);
            }
        }
        for asked in Asked::all() {
            if self.course.is_over(&asked.workload()) {
                return;
            }
            let mut rates: Rates = Vec::new();
            rates
                .extend(servers.iter().map(|(of, _)| (of.id().to_owned(), Vec::new(), Vec::new())));
            for round in 0..self.extent.rounds {
                for number in turns::order(servers.len(), round) {
                    let (Some((server, running)), Some((_, ns, ops))) =
                        (servers.get(number), rates.get_mut(number))
                    else {
                        continue;
                    };
                    self.course.step(&format!("{}, {}", asked.workload(), server.id()));
                    match running.ask(asked, self.extent.remote) {
                        Ok(per_s) => {
                            ns.push(asked.depth as f64 * 1e9 / per_s.max(1e-9));
                            ops.push(per_s);
                        }
                        Err(error) => self.course.leave_out(server.id(), &error),
                    }
                }
            }
            self.rows(&asked.workload(), "random", (asked.depth, asked.bytes), rates);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::subject_ids;

    #[test]
    fn each_subject_can_be_asked_for_by_a_name_of_its_own() {
        let ids = subject_ids();
        for id in ["none", "volume-limit", "lode-raw", "lode-volume", "nbdkit-memory"] {
            assert_eq!(ids.iter().filter(|one| **one == id).count(), 1, "{id}");
        }
    }
}
