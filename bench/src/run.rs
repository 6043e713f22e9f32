//! Measures: all subjects of a cell side by side, taking turns round by round, so that whatever
//! drifts on the machine drifts for all of them.

use std::io;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use lode_fuse::Awake;

use crate::breakdown;
use crate::error::{BenchError, Result};
use crate::machine;
use crate::place::Place;
use crate::plan::{Cell, cells};
use crate::report::{Breakdown, Figure, LeftOut, Machine, Report, Row, Steps};
use crate::stats::{Histogram, median, spread};
use crate::subject::{self, MOUNTS, Outcome, Programs, Ready, Subject, Timed};
use crate::targets;
use crate::turns;
use crate::worker::{Until, Worker, clock_ns, sample_every};
use crate::workload::{Mode, Workload};

/// Rounds of each cell: figures are medians over them.
const ROUNDS: usize = 7;
/// The same where protection levels are compared, in a full run.
const ROUNDS_OF_LEVELS: usize = 15;
/// A slice of time in a full run.
const SLICE: Duration = Duration::from_millis(100);
/// The same in a quick run, at most.
const SLICE_QUICK: Duration = Duration::from_millis(40);
/// And at least.
const SLICE_MIN: Duration = Duration::from_millis(4);
/// A quick run's time for measuring; making ready and ending take the rest of 90 seconds.
const QUICK: Duration = Duration::from_secs(65);
/// After so long it begins nothing new.
const QUICK_MAX: Duration = Duration::from_secs(82);
/// Of that, what a breakdown takes.
const QUICK_BREAKDOWN: Duration = Duration::from_secs(14);
/// Before it counts.
const WARM_UP: Duration = Duration::from_millis(3);
/// Memory that a run may take at most (all subjects do with as many threads as there may be), and
/// the part of what is free that it leaves. (What subjects say is what they may take at most.)
const BYTES_MAX: u64 = 48 << 30;
const FREE_PART: u64 = 8;

/// What to measure.
pub struct Settings {
    /// Workloads; all where there are none.
    pub workloads: Vec<&'static Workload>,
    /// Subjects; all where there are none.
    pub subjects: Vec<&'static dyn Subject>,
    /// Numbers of threads; the usual ones where there are none.
    pub threads: Vec<usize>,
    /// Be done in 90 seconds.
    pub quick: bool,
    /// Look into what operations consist of, too.
    pub breakdown: bool,
    /// And at each protection level.
    pub levels: bool,
    /// Processors may fall asleep, as the machine has it.
    pub may_sleep: bool,
    /// Where the run makes its directory; where memory is, if not said.
    pub dir: Option<PathBuf>,
    /// What subjects are made of.
    pub programs: Programs,
}

/// Whoever watches a run.
pub trait Watch {
    /// So many of all slices of time are done; what is measured now.
    fn progress(&self, done: u64, all: u64, what: &str);
    /// Whether no more is wanted: what was measured by then is reported.
    fn is_over(&self) -> bool;
}

/// A subject that could be made ready.
struct Started {
    id: &'static str,
    /// On the emulated medium.
    emulated: bool,
    ready: Box<dyn Ready>,
}

/// What a subject has shown in a cell.
struct Measured {
    id: &'static str,
    emulated: bool,
    workers: Vec<Box<dyn Worker>>,
    every: u64,
    /// Of each round.
    ns_per_op: Vec<f64>,
    ops_per_s: Vec<f64>,
    samples: Histogram,
    failed: Option<io::Error>,
}

/// Runs it all.
///
/// # Errors
/// Where nothing can be measured: no place, no memory, no subject.
pub fn run(settings: &Settings, watch: &dyn Watch) -> Result<Report> {
    let began = Instant::now();
    let place = Place::new(settings.dir.as_deref(), BYTES_MAX)?;
    // For all subjects: how long a processor takes to wake is the machine's matter.
    let awake = if settings.may_sleep { None } else { Awake::keep().ok() };
    let machine =
        Machine { awake: awake.is_some(), ..machine::here(&place, settings.programs.emulate)? };
    let mut report = Report { machine, ..Report::default() };
    let cells = cells(&settings.workloads, &settings.threads, settings.quick);
    let subjects = choose(settings, &cells, &place, &mut report.left_out)?;
    let started = start(&subjects, &place, settings, watch, &mut report.left_out)?;
    let rounds = if settings.levels && !settings.quick { ROUNDS_OF_LEVELS } else { ROUNDS };
    let looks = u32::from(settings.breakdown) + u32::from(settings.levels);
    let aside = QUICK_BREAKDOWN * looks;
    let mut run = Run {
        watch,
        quick: settings.quick,
        deadline: began + QUICK.saturating_sub(aside),
        rounds,
        done: 0,
        all: (cells.len() * started.len() * rounds) as u64,
        clock_ns: clock_ns(),
    };
    let mut groups = groups(started);
    // What is asked for by name is measured, however long it takes.
    let last = (settings.quick && settings.workloads.is_empty())
        .then_some(began + QUICK_MAX.saturating_sub(aside));
    for cell in &cells {
        if watch.is_over() {
            break;
        }
        if last.is_some_and(|last| Instant::now() > last) {
            let what = cell.to_string();
            report.left_out.push(LeftOut { what, why: "90 seconds were over".to_owned() });
            continue;
        }
        for group in &mut groups {
            if cell.workload.once {
                run.once(cell, group, &mut report);
            } else {
                run.cell(cell, group, &mut report);
            }
        }
    }
    // Before their mounts are taken off.
    drop(groups);
    if settings.breakdown && !watch.is_over() {
        look_into(breakdown::measure, settings, watch, &mut report);
    }
    if settings.levels && !watch.is_over() {
        look_into(breakdown::levels::measure, settings, watch, &mut report);
    }
    report.limits = limits(&report.rows);
    report.targets = targets::judge(&report);
    Ok(report)
}

/// What looks into operations.
type Look = fn(
    &[&'static Workload],
    &breakdown::Settings,
    &dyn Fn(&str) -> bool,
) -> io::Result<Vec<Breakdown>>;

fn look_into(look: Look, settings: &Settings, watch: &dyn Watch, report: &mut Report) {
    let how = breakdown::Settings { quick: settings.quick, emulate: settings.programs.emulate };
    let ids = breakdown::chosen(&settings.workloads);
    let is_over = |id: &str| {
        watch.progress(0, 0, &format!("breakdown of {id}"));
        watch.is_over()
    };
    let found = enough_for(breakdown::POOL).map_err(io::Error::other);
    match found.and_then(|()| look(&ids, &how, &is_over)) {
        Ok(found) => report.breakdown.extend(found),
        Err(error) => {
            let (what, why) = ("breakdown".to_owned(), error.to_string());
            report.left_out.push(LeftOut { what, why });
        }
    }
}

/// The subjects that can be measured here; the others are told.
fn choose(
    settings: &Settings,
    cells: &[Cell],
    place: &Place,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<&'static dyn Subject>> {
    let asked = if settings.subjects.is_empty() { subject::ALL } else { &settings.subjects };
    let mut chosen = Vec::new();
    for &subject in asked {
        match subject.missing(place) {
            None => chosen.push(subject),
            Some(why) => left_out.push(LeftOut { what: subject.id().to_owned(), why }),
        }
    }
    if chosen.is_empty() {
        return Err(nothing_left(left_out));
    }
    let needed = chosen.iter().map(|subject| subject.bytes_max(cells)).sum();
    enough_for(needed)?;
    Ok(chosen)
}

/// An error unless there is so much memory to be had.
pub(crate) fn enough_for(needed: u64) -> Result<()> {
    let free = machine::available().unwrap_or(BYTES_MAX) / FREE_PART * (FREE_PART - 1);
    let free = free.min(BYTES_MAX);
    if needed > free { Err(BenchError::NoMemory { needed, free }) } else { Ok(()) }
}

fn nothing_left(left_out: &[LeftOut]) -> BenchError {
    let all: Vec<_> = left_out.iter().map(|one| format!("{}: {}", one.what, one.why)).collect();
    BenchError::NoSubject(all.join("; "))
}

fn start(
    subjects: &[&'static dyn Subject],
    place: &Place,
    settings: &Settings,
    watch: &dyn Watch,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Started>> {
    let mut started = Vec::new();
    for subject in subjects {
        if watch.is_over() {
            break;
        }
        watch.progress(0, 0, subject.id());
        match subject.start(place, &settings.programs) {
            Ok(ready) => {
                let emulated = settings.programs.emulate.is_some() && subject.takes_emulation();
                started.push(Started { id: subject.id(), emulated, ready });
            }
            Err(error) => {
                left_out.push(LeftOut { what: subject.id().to_owned(), why: error.to_string() });
            }
        }
    }
    // Who wants no more has a report, without rows.
    if started.is_empty() && !watch.is_over() { Err(nothing_left(left_out)) } else { Ok(started) }
}

/// Those that take turns among themselves. Mounts whose levels are compared do: the requests of one that has its turn behind a
/// subject without a server find a processor asleep, and what that takes is more than levels differ by.
fn groups(started: Vec<Started>) -> [Vec<Started>; 2] {
    started.into_iter().partition(|one| !MOUNTS.contains(&one.id)).into()
}

/// What the whole run has in common.
struct Run<'a> {
    watch: &'a dyn Watch,
    quick: bool,
    deadline: Instant,
    /// Of each cell.
    rounds: usize,
    done: u64,
    all: u64,
    clock_ns: u64,
}

impl Run<'_> {
    fn cell(&mut self, cell: &Cell, started: &mut [Started], report: &mut Report) {
        let done = self.done + (self.rounds * started.len()) as u64;
        let mut measured = self.ready(cell, started, report);
        let count = measured.len();
        let slice = self.slice(started.len().max(count));
        let mut rounds = 0;
        while rounds < self.rounds && !self.watch.is_over() {
            for number in turns::order(count, rounds) {
                if let Some(subject) = measured.get_mut(number) {
                    self.told(cell, subject.id);
                    subject.round(slice, self.clock_ns);
                }
                self.done = (self.done + 1).min(done);
            }
            rounds += 1;
        }
        // Those that had no part in it count as done, too.
        self.done = done;
        for subject in measured {
            match subject.failed {
                Some(ref error) => report.left_out.push(left_out(cell, subject.id, error)),
                // Of what was interrupted, only whole figures are told.
                None if rounds == self.rounds => report.rows.push(subject.row(cell)),
                None => {}
            }
        }
    }

    /// A workload that each subject does once, one after the other.
    fn once(&mut self, cell: &Cell, started: &mut [Started], report: &mut Report) {
        if let Err(error) = enough_for(cell.workload.bytes_more) {
            let (what, why) = (cell.workload.id.to_owned(), error.to_string());
            report.left_out.push(LeftOut { what, why });
            return;
        }
        for Started { id, emulated, ready } in started {
            self.told(cell, id);
            match ready.long_run(cell, &|| self.watch.is_over()) {
                Ok(Some(found)) => found.put((id, *emulated), report),
                Ok(None) => {}
                Err(error) => report.left_out.push(left_out(cell, id, &error)),
            }
            self.done += self.rounds as u64;
        }
    }

    fn told(&self, cell: &Cell, subject: &str) {
        self.watch.progress(self.done, self.all, &format!("{cell}, {subject}"));
    }

    /// Prepares all subjects, warms them up, and lets what they owe be written.
    fn ready(&self, cell: &Cell, started: &mut [Started], report: &mut Report) -> Vec<Measured> {
        let mut measured = Vec::new();
        for Started { id, emulated, ready } in &mut *started {
            self.told(cell, id);
            let variants = ready.variants(cell).unwrap_or_else(|error| {
                report.left_out.push(left_out(cell, id, &error));
                Vec::new()
            });
            for (way, workers) in variants {
                let id = if way.is_empty() { *id } else { way };
                let mut one = Measured::new((id, *emulated), workers);
                one.warm_up(self.clock_ns);
                if let Err(error) = ready.settle() {
                    one.failed.get_or_insert(error);
                }
                measured.push(one);
            }
        }
        measured
    }

    /// How long each subject works in a round.
    fn slice(&self, subjects: usize) -> Duration {
        if !self.quick {
            return SLICE;
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        let slices = u32::try_from(self.all.saturating_sub(self.done)).unwrap_or(u32::MAX);
        // About half of the time goes into making ready, and into what can't be cut short.
        let share = left / slices.max(subjects as u32).max(1) / 2;
        share.clamp(SLICE_MIN, SLICE_QUICK)
    }
}

fn left_out(cell: &Cell, subject: &str, error: &io::Error) -> LeftOut {
    LeftOut { what: format!("{subject}: {cell}"), why: error.to_string() }
}

impl Measured {
    fn new((id, emulated): (&'static str, bool), workers: Vec<Box<dyn Worker>>) -> Self {
        let samples = Histogram::new();
        Self {
            id,
            emulated,
            workers,
            every: 1,
            ns_per_op: vec![],
            ops_per_s: vec![],
            samples,
            failed: None,
        }
    }

    /// Fills caches, and finds out how often an operation can be timed by itself.
    fn warm_up(&mut self, clock_ns: u64) {
        self.round(WARM_UP, clock_ns);
        self.ns_per_op.clear();
        self.ops_per_s.clear();
        self.samples = Histogram::new();
    }

    /// All threads work for a slice of time. How often one of their operations is timed by itself then depends
    /// on the fastest slice so far: one that was cold or disturbed would have the clock looked at too often.
    fn round(&mut self, busy: Duration, clock_ns: u64) {
        if self.failed.is_some() {
            return;
        }
        let stop = AtomicBool::new(false);
        let until = Until { busy, every: self.every, clock_ns, stop: &stop };
        let together = Barrier::new(self.workers.len());
        let outcomes: Vec<_> = thread::scope(|scope| {
            let handles: Vec<_> = self
                .workers
                .iter_mut()
                .map(|worker| {
                    let (until, together) = (&until, &together);
                    scope.spawn(move || {
                        let mut samples = Histogram::new();
                        together.wait();
                        worker.slice(until, &mut samples).map(|slice| (slice, samples))
                    })
                })
                .collect();
            let panicked = || Err(io::Error::other("a thread panicked"));
            handles.into_iter().map(|handle| handle.join().unwrap_or_else(|_| panicked())).collect()
        });
        let (mut operations, mut busy, mut rate) = (0, Duration::ZERO, 0.0);
        for outcome in outcomes {
            match outcome {
                Ok((slice, samples)) => {
                    operations += slice.operations;
                    busy += slice.busy;
                    rate += slice.operations as f64 / slice.busy.as_secs_f64().max(1e-9);
                    self.samples.merge(&samples);
                }
                Err(error) => self.failed = Some(error),
            }
        }
        let ns_per_op = busy.as_secs_f64() * 1e9 / (operations as f64).max(1.0);
        self.every = self.every.max(sample_every(ns_per_op, clock_ns));
        self.ns_per_op.push(ns_per_op);
        self.ops_per_s.push(rate);
    }

    fn row(&self, cell: &Cell) -> Row {
        Row {
            workload: cell.workload.id.to_owned(),
            subject: self.id.to_owned(),
            threads: cell.threads,
            size: cell.workload.size,
            mode: cell.mode.name().to_owned(),
            ns_per_op: median(&self.ns_per_op),
            ops_per_s: median(&self.ops_per_s),
            p50_ns: self.samples.percentile(50.0),
            p99_ns: self.samples.percentile(99.0),
            repetitions: self.ns_per_op.len(),
            spread: spread(&self.ns_per_op),
            emulated: self.emulated,
        }
    }
}

impl Outcome {
    /// Tells it as what `subject` has done.
    fn put(self, (subject, emulated): (&str, bool), report: &mut Report) {
        let row = |timed: &Timed| timed.row(subject, emulated);
        report.rows.extend(self.times.iter().map(row));
        let named = |figure| Figure { subject: subject.to_owned(), ..figure };
        report.figures.extend(self.figures.into_iter().map(named));
        report.risk.extend(self.risk);
    }
}

impl Timed {
    fn row(&self, subject: &str, emulated: bool) -> Row {
        let ns_per_op = median(&self.ns_per_op);
        Row {
            workload: self.workload.to_owned(),
            subject: subject.to_owned(),
            threads: 1,
            size: 0,
            mode: Mode::Private.name().to_owned(),
            ns_per_op,
            ops_per_s: 1e9 / ns_per_op,
            p50_ns: self.samples.percentile(50.0),
            p99_ns: self.samples.percentile(99.0),
            repetitions: self.ns_per_op.len(),
            spread: spread(&self.ns_per_op),
            emulated,
        }
    }
}

/// The steps of the workloads that there are rows of.
fn limits(rows: &[Row]) -> Vec<Steps> {
    let measured = |workload: &Workload| {
        rows.iter().any(|row| row.workload == workload.id && row.subject == "limit")
    };
    steps().into_iter().filter(|(workload, _)| measured(workload)).map(|(_, steps)| steps).collect()
}

/// What the subject `limit` does for each workload it has a part in.
pub fn steps() -> Vec<(&'static Workload, Steps)> {
    let limit = subject::by_id("limit");
    let told = |workload: &'static Workload| {
        let steps = limit?.steps(workload)?.to_owned();
        Some((workload, Steps { workload: workload.id.to_owned(), steps }))
    };
    crate::workload::ALL.iter().filter_map(told).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell as Slot;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::worker::Slice;

    /// Wants no more when it has been asked so often.
    struct Impatient(Slot<u32>);

    impl Watch for Impatient {
        fn progress(&self, _done: u64, _all: u64, _what: &str) {}

        fn is_over(&self) -> bool {
            let left = self.0.get();
            self.0.set(left.saturating_sub(1));
            left == 0
        }
    }

    #[test]
    fn a_run_that_is_interrupted_while_subjects_are_started_has_a_report_without_rows() {
        for patience in 0..3 {
            let base = tempfile::tempdir().unwrap();
            let settings = Settings {
                workloads: vec![],
                subjects: ["limit", "ablation"].map(|id| subject::by_id(id).unwrap()).to_vec(),
                threads: vec![],
                quick: true,
                breakdown: true,
                levels: true,
                may_sleep: true,
                dir: Some(base.path().to_owned()),
                programs: Programs {
                    lode: "".into(),
                    emulate: None,
                    mount_options: vec![],
                    quick: true,
                },
            };
            let report = run(&settings, &Impatient(Slot::new(patience))).unwrap();
            assert!(!report.machine.kernel.is_empty());
            let empty = Report { machine: report.machine.clone(), ..Report::default() };
            assert_eq!(report, empty, "asked {patience} times before");
        }
    }

    #[test]
    fn all_subjects_with_all_threads_take_no_more_than_a_run_may() {
        let most = |threads: &[usize], quick| -> u64 {
            let cells = cells(&[], threads, quick);
            subject::ALL.iter().map(|subject| subject.bytes_max(&cells)).sum()
        };
        assert!(most(&[crate::plan::THREADS_MAX], false) <= BYTES_MAX);
        // As docs/bench.md says.
        assert!(most(&[], false) <= 21 << 29, "{}", most(&[], false));
        assert!(most(&[], true) <= 19 << 29, "{}", most(&[], true));
    }

    /// Operations that take so many nanoseconds, slice by slice; notes which of them are timed.
    struct Slices {
        ns: std::vec::IntoIter<u64>,
        every: Arc<Mutex<Vec<u64>>>,
    }

    impl Worker for Slices {
        fn slice(&mut self, until: &Until<'_>, _samples: &mut Histogram) -> io::Result<Slice> {
            self.every.lock().unwrap().push(until.every);
            let busy = Duration::from_nanos(self.ns.next().unwrap());
            Ok(Slice { operations: 1, busy })
        }
    }

    #[test]
    fn how_often_an_operation_is_timed_depends_on_the_fastest_round_not_on_a_cold_start() {
        const CLOCK: u64 = 40;
        let every = Arc::new(Mutex::new(vec![]));
        let ns = vec![20_000, 100, 5_000, 200].into_iter();
        let slices: Box<dyn Worker> = Box::new(Slices { ns, every: Arc::clone(&every) });
        let mut measured = Measured::new(("limit", false), vec![slices]);
        measured.warm_up(CLOCK);
        for _ in 0..3 {
            measured.round(Duration::ZERO, CLOCK);
        }
        let fast = sample_every(100.0, CLOCK);
        assert_eq!(*every.lock().unwrap(), [1, 1, fast, fast]);
        assert_eq!(measured.ns_per_op, [100.0, 5_000.0, 200.0]);
    }
}
