//! Rounds: of each program all subjects take turns, on ground that is made anew for each run.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::kit::{Kit, Load};
use super::postgres::let_through;
use super::program::{ALL, Program, Work};
use super::stack::{Ground, Sizes, Stack};
use super::subject::{self, Subject};
use crate::error::{BenchError, Result};
use crate::machine;
use crate::place::Place;
use crate::report::{LeftOut, Report, Row, Target};
use crate::run::{Watch, enough_for};
use crate::stats::{median, spread};
use crate::subject::Programs;
use crate::turns;
use crate::workload::Mode;

/// Rounds, as long as there is time.
const ROUNDS: usize = 5;
/// Time for all of them, where nobody says how many rounds there are to be; there is always one.
const TIME: Duration = Duration::from_secs(360);
const TIME_QUICK: Duration = Duration::from_secs(40);
/// Of pools, devices and memory.
const SIZES: Sizes = Sizes { pool: 896 << 20, device: 640 << 20 };
const SIZES_QUICK: Sizes = Sizes { pool: 448 << 20, device: 320 << 20 };
/// Memory beside these: what the kernel caches, and programs.
const BYTES_MORE: u64 = 768 << 20;

/// What to run.
pub struct Settings {
    /// Programs; the usual ones where there are none.
    pub programs: Vec<&'static dyn Program>,
    /// Subjects; the usual ones where there are none.
    pub subjects: Vec<&'static Subject>,
    /// Rounds, however long they take.
    pub rounds: Option<usize>,
    /// Be done in a minute.
    pub quick: bool,
    /// Where the run makes its directory; where memory is, if not said.
    pub dir: Option<PathBuf>,
    /// What subjects are made of.
    pub made_of: Programs,
}

/// Runs it all.
///
/// # Errors
/// Where nothing can be measured: no place, no memory, no subject.
pub fn run(settings: &Settings, watch: &dyn Watch) -> Result<Report> {
    let began = Instant::now();
    let sizes = if settings.quick { SIZES_QUICK } else { SIZES };
    let room = sizes.pool + (64 << 20);
    let place = Place::new(settings.dir.as_deref(), room)?;
    let machine = machine::here(&place, settings.made_of.emulate)?;
    let mut report = Report { machine, ..Report::default() };
    let subjects = chosen_subjects(settings, &place, &mut report.left_out)?;
    let programs = chosen_programs(settings, &place, &mut report.left_out)?;
    enough_for(room + 2 * sizes.device + BYTES_MORE)?;
    let_through(place.dir())?;
    let kit = Kit::new(&place, Load::new(settings.quick))?;
    let ground = Ground::new(&place, &settings.made_of, sizes, &subjects)?;
    let time = if settings.quick { TIME_QUICK } else { TIME };
    let mut runs = Runs {
        ground: &ground,
        kit: &kit,
        watch,
        began,
        time,
        rounds: settings.rounds,
        number: 0,
        all: programs.len() * subjects.len() * settings.rounds.unwrap_or(ROUNDS),
        counts: Counts::default(),
    };
    for (done, program) in programs.iter().enumerate() {
        if watch.is_over() {
            break;
        }
        let emulated = settings.made_of.emulate.is_some();
        runs.program(*program, &subjects, programs.len() - done, emulated, &mut report);
    }
    report.targets = runs.counts.judged();
    Ok(report)
}

fn chosen_subjects(
    settings: &Settings,
    place: &Place,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<&'static Subject>> {
    let usual = |one: &&Subject| one.usual && (one.quick || !settings.quick);
    let mut chosen = match settings.subjects.as_slice() {
        [] => subject::ALL.iter().filter(usual).collect(),
        some => some.to_vec(),
    };
    chosen.retain(|subject| match subject.missing(place) {
        None => true,
        Some(why) => {
            left_out.push(LeftOut { what: subject.id.to_owned(), why });
            false
        }
    });
    if chosen.is_empty() { Err(nothing_left(left_out)) } else { Ok(chosen) }
}

fn chosen_programs(
    settings: &Settings,
    place: &Place,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<&'static dyn Program>> {
    let mut chosen: Vec<&dyn Program> = match settings.programs.as_slice() {
        [] => ALL.iter().copied().filter(|one| one.quick() || !settings.quick).collect(),
        some => some.to_vec(),
    };
    chosen.retain(|program| match program.missing(place.dir()) {
        None => true,
        Some(why) => {
            left_out.push(LeftOut { what: program.id().to_owned(), why });
            false
        }
    });
    if chosen.is_empty() { Err(nothing_left(left_out)) } else { Ok(chosen) }
}

fn nothing_left(left_out: &[LeftOut]) -> BenchError {
    let all: Vec<_> = left_out.iter().map(|one| format!("{}: {}", one.what, one.why)).collect();
    BenchError::NoSubject(all.join("; "))
}

/// What a subject has shown with a program.
struct Measured {
    subject: &'static Subject,
    ns_per_op: Vec<f64>,
    failed: Option<BenchError>,
}

/// What came of all runs.
#[derive(Default)]
struct Counts {
    runs: u32,
    failed: u32,
    /// File systems and pools that were looked at after their runs.
    checks: u32,
}

impl Counts {
    fn judged(&self) -> Vec<Target> {
        if self.runs == 0 {
            return Vec::new();
        }
        let Self { runs, failed, checks } = self;
        vec![Target {
            what: "programs, each run".to_owned(),
            figure: "does its work, and leaves file systems and pools that are sound".to_owned(),
            measured: format!("{} of {runs} did; {checks} sound", runs - failed),
            met: Some(*failed == 0),
        }]
    }
}

/// What the runs have in common.
struct Runs<'a> {
    ground: &'a Ground<'a>,
    kit: &'a Kit,
    watch: &'a dyn Watch,
    began: Instant,
    time: Duration,
    rounds: Option<usize>,
    /// Of runs so far.
    number: usize,
    /// That there may be.
    all: usize,
    counts: Counts,
}

impl Runs<'_> {
    /// All subjects with one program, of `left` that are still to be measured.
    fn program(
        &mut self,
        program: &'static dyn Program,
        subjects: &[&'static Subject],
        left: usize,
        emulated: bool,
        report: &mut Report,
    ) {
        let measured =
            |subject: &&'static Subject| Measured { subject, ns_per_op: Vec::new(), failed: None };
        let mut measured: Vec<_> = subjects.iter().map(measured).collect();
        let begun = Instant::now();
        let share = self.time.saturating_sub(self.began.elapsed()) / left.max(1) as u32;
        let rounds = self.rounds.unwrap_or(ROUNDS);
        let mut round = 0;
        let mut last = Duration::ZERO;
        while round < rounds && !self.watch.is_over() {
            // Another round takes about as long as the last one.
            let late = round > 0 && begun.elapsed() + last > share;
            if late && self.rounds.is_none() {
                break;
            }
            let from = Instant::now();
            self.round(program, &mut measured, round);
            last = from.elapsed();
            round += 1;
        }
        let is_whole = !self.watch.is_over();
        for one in measured {
            if let Some(error) = one.failed {
                let what = format!("{}: {}", one.subject.id, program.id());
                report.left_out.push(LeftOut { what, why: format!("failed: {error}") });
            } else if is_whole && !one.ns_per_op.is_empty() {
                report.rows.push(row(program, one.subject, &one.ns_per_op, emulated));
            }
        }
    }

    /// One run of each subject.
    fn round(&mut self, program: &dyn Program, measured: &mut [Measured], round: usize) {
        for number in turns::order(measured.len(), round) {
            let Some(one) = measured.get_mut(number) else { continue };
            if one.failed.is_some() || self.watch.is_over() {
                continue;
            }
            let told = format!("{}, {}", program.id(), one.subject.id);
            self.watch.progress(self.number as u64, self.all as u64, &told);
            self.number += 1;
            let outcome = self.one(program, one.subject);
            // Whoever asks for the end may have ended the program, too: that is no failure of it.
            if self.watch.is_over() {
                return;
            }
            self.counts.runs += 1;
            match outcome {
                Ok((ns, checks)) => {
                    self.counts.checks += checks;
                    one.ns_per_op.push(ns);
                }
                Err(error) => {
                    self.counts.failed += 1;
                    one.failed = Some(error);
                }
            }
        }
    }

    /// One run, on new ground: its time, and how much was looked at afterwards.
    fn one(&self, program: &dyn Program, subject: &'static Subject) -> Result<(f64, u32)> {
        let name = format!("run{}", self.number);
        let stack = Stack::up(self.ground, subject, &name)?;
        let work = Work { root: stack.root(), beside: self.ground.place.dir(), kit: self.kit };
        program.prepare(&work)?;
        stack.cool()?;
        let ns = program.run(&work)?;
        program.verify(&work)?;
        Ok((ns, stack.down()?))
    }
}

fn row(program: &dyn Program, subject: &Subject, ns_per_op: &[f64], emulated: bool) -> Row {
    let middle = median(ns_per_op);
    Row {
        workload: program.id().to_owned(),
        subject: subject.id.to_owned(),
        // The run is one, whatever it starts.
        threads: 1,
        size: program.size(),
        mode: Mode::Private.name().to_owned(),
        ns_per_op: middle,
        ops_per_s: 1e9 / middle.max(1e-9),
        p50_ns: None,
        p99_ns: None,
        repetitions: ns_per_op.len(),
        spread: spread(ns_per_op),
        emulated: emulated && subject.has_pool(),
    }
}

#[cfg(test)]
mod tests;
