//! `lode bench`: tables for people.

use std::fmt::Write as _;

use lode_bench::programs::{all_programs, all_subjects};
use lode_bench::report::{Breakdown, Figure, LeftOut, Report as Run, Risk, Row, Target};
use lode_bench::run::steps;
use lode_bench::subject::Subject;
use lode_bench::workload::Workload;
use serde::Serialize;

use crate::output::Report;
use crate::sizes::human;

/// `lode bench`.
#[derive(Serialize)]
pub(crate) struct BenchReport {
    #[serde(flatten)]
    run: Run,
}

impl From<Run> for BenchReport {
    fn from(run: Run) -> Self {
        Self { run }
    }
}

/// Time for people: three figures.
fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

/// A number a second, for people.
fn rate(per_second: f64) -> String {
    let (value, unit) = match per_second {
        n if n < 1e3 => (n, ""),
        n if n < 1e6 => (n / 1e3, " k"),
        n => (n / 1e6, " M"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$}{unit}")
}

impl Report for BenchReport {
    fn text(&self) -> String {
        let Run { machine, rows, figures, breakdown, risk, targets, limits, left_out } = &self.run;
        let page = machine.page_bytes >> 10;
        let mut text = format!(
            "{}, {} processors, Linux {}, load {}\n{}, pages of {page} KiB, {}, windows: {}\n",
            machine.cpu,
            machine.cores,
            machine.kernel,
            machine.load,
            machine.medium,
            machine.flush,
            machine.windows,
        );
        if !machine.fuse_io_uring {
            let rings = lode_fuse::wire::RINGS_ALLOWED;
            let _ = writeln!(text, "requests of mounts come without io_uring: echo Y > {rings}");
        }
        let awake = if machine.awake {
            "kept awake: none falls asleep during the run"
        } else {
            "may fall asleep, and take their time to wake"
        };
        let _ = writeln!(text, "processors {awake}");
        if let Some(medium) = &machine.emulated {
            let _ = writeln!(text, "EMULATED: {medium}, but where it says \"not slowed\"");
        }
        table(rows, machine.emulated.is_some(), &mut text);
        parts(breakdown, &mut text);
        at_risk(risk, &mut text);
        others(figures, &mut text);
        if !limits.is_empty() {
            text += "\nlimit does:\n";
        }
        for one in limits {
            // Writing to a text can't fail.
            let _ = writeln!(text, "  {:<14} {}", one.workload, one.steps);
        }
        judged(targets, &mut text);
        omitted(left_out, &mut text);
        text
    }
}

fn table(rows: &[Row], emulated: bool, text: &mut String) {
    let mut before = None;
    for row in rows {
        let cell = (row.title(), row.threads, &row.mode);
        if before.as_ref() != Some(&cell) {
            let threads = if row.threads == 1 { "1 thread" } else { "threads" };
            let number = if row.threads == 1 { String::new() } else { format!("{} ", row.threads) };
            let head = format!("{}, {number}{threads}, {}", row.title(), row.mode);
            let _ = writeln!(
                text,
                "\n{head:<34} {:>9} {:>9} {:>9} {:>9} {:>7}",
                "an op", "ops/s", "p50", "p99", "spread"
            );
            before = Some(cell);
        }
        let shown = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| time(ns as f64));
        let slowed = if emulated && !row.emulated { ", not slowed" } else { "" };
        let _ = writeln!(
            text,
            "  {:<32} {:>9} {:>9} {:>9} {:>9} {:>6.1}%",
            format!("{}{slowed}", row.subject),
            time(row.ns_per_op),
            rate(row.ops_per_s),
            shown(row.p50_ns),
            shown(row.p99_ns),
            row.spread * 100.0
        );
    }
}

/// What the parts of an operation are called where there is little room, in their order.
const PARTS: [&str; 8] = ["copy", "fences", "alloc", "index", "record", "sums", "twins", "rest"];

fn parts(all: &[Breakdown], text: &mut String) {
    if all.is_empty() {
        return;
    }
    let _ = write!(text, "\n{:<25} {:>7}", "breakdown", "an op");
    for name in PARTS {
        let _ = write!(text, " {name:>7}");
    }
    text.push('\n');
    for one in all {
        let _ = write!(text, "  {:<23} {:>7}", one.title(), time(one.ns_per_op));
        for (_, ns) in one.parts() {
            let _ = write!(text, " {:>7}", time(ns));
        }
        text.push('\n');
    }
}

fn at_risk(all: &[Risk], text: &mut String) {
    let mut before = None;
    for (point, next) in all.iter().zip(all.iter().skip(1).map(Some).chain([None])) {
        // Of sizes at which as much is at risk, people are told the first and the last.
        let same = |next: &Risk| (&next.scheme, next.max_bytes) == (&point.scheme, point.max_bytes);
        if before == Some(&point.scheme) && next.is_some_and(same) {
            continue;
        }
        if before != Some(&point.scheme) {
            let modelled = if point.modelled { ", modelled" } else { "" };
            let head = format!("metadata at risk, {}{modelled}", point.scheme);
            let [most, mean] = ["at most", "pages, mean"];
            let _ = writeln!(text, "\n{head:<47} {most:>9} {mean:>11}   NOVA-Fortis");
            before = Some(&point.scheme);
        }
        let known = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let there = [
            known(point.nova_max_bytes.map(human)),
            known(point.nova_mean_pages.map(|mean| mean.to_string())),
        ];
        let [of, most] = [point.scribble_bytes, point.max_bytes].map(human);
        let mean = format!("{:.1e}", point.mean_pages);
        let [there, there_mean] = there;
        let _ = writeln!(text, "  {of:<45} {most:>9} {mean:>11} {there:>9} {there_mean:>9}");
    }
}

fn others(figures: &[Figure], text: &mut String) {
    let mut before = None;
    for figure in figures {
        let head = (&figure.workload, &figure.subject);
        if before != Some(head) {
            let _ = writeln!(text, "\n{}, {}", figure.workload, figure.subject);
            before = Some(head);
        }
        let _ = writeln!(text, "  {:<64} {:>16}", figure.what, figure.shown());
    }
}

fn judged(targets: &[Target], text: &mut String) {
    if !targets.is_empty() {
        *text += "\nMust hold:\n";
    }
    for target in targets {
        let met = match target.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "?",
        };
        let Target { what, figure, measured, .. } = target;
        let _ = writeln!(text, "  {met:<3} {what}: {figure}; measured {measured}");
    }
}

fn omitted(left_out: &[LeftOut], text: &mut String) {
    if !left_out.is_empty() {
        *text += "\nLeft out:\n";
    }
    for LeftOut { what, why } in left_out {
        let _ = writeln!(text, "  {what}: {why}");
    }
}

/// `lode bench --list`.
#[derive(Serialize)]
pub(crate) struct BenchListReport {
    workloads: Vec<ListedWorkload>,
    subjects: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    id: String,
    about: String,
}

#[derive(Serialize)]
struct ListedWorkload {
    id: String,
    about: String,
    size: u64,
    /// What the subject `limit` does; `null` where it has no part.
    limit: Option<String>,
}

impl BenchListReport {
    pub(crate) fn new(
        workloads: &[Workload],
        subjects: impl Iterator<Item = &'static dyn Subject>,
    ) -> Self {
        let limits = steps();
        let workload = |workload: &Workload| {
            let limit = limits.iter().find(|(of, _)| of.id == workload.id);
            ListedWorkload {
                id: workload.id.to_owned(),
                about: workload.about.to_owned(),
                size: workload.size,
                limit: limit.map(|(_, steps)| steps.steps.clone()),
            }
        };
        let subject = |subject: &dyn Subject| Listed {
            id: subject.id().to_owned(),
            about: subject.about().to_owned(),
        };
        Self {
            workloads: workloads.iter().map(workload).collect(),
            subjects: subjects.map(subject).collect(),
        }
    }
}

impl BenchListReport {
    /// Of `lode bench programs`.
    pub(crate) fn of_programs() -> Self {
        let workloads = all_programs().iter().map(|program| ListedWorkload {
            id: program.id().to_owned(),
            about: program.about().to_owned(),
            size: program.size(),
            limit: None,
        });
        let subjects = all_subjects()
            .iter()
            .map(|subject| Listed { id: subject.id.to_owned(), about: subject.about.to_owned() });
        Self { workloads: workloads.collect(), subjects: subjects.collect() }
    }
}

impl Report for BenchListReport {
    fn text(&self) -> String {
        let mut text = "Workloads:\n".to_owned();
        for ListedWorkload { id, about, limit, .. } in &self.workloads {
            let _ = writeln!(text, "  {id:<14} {about}");
            if let Some(limit) = limit {
                let _ = writeln!(text, "  {:<14}   limit: {limit}", "");
            }
        }
        text += "Subjects:\n";
        let width = self.subjects.iter().map(|subject| subject.id.len()).fold(14, usize::max);
        for Listed { id, about } in &self.subjects {
            let _ = writeln!(text, "  {id:<width$} {about}");
        }
        text
    }
}

/// `lode bench --clean`.
#[derive(Serialize)]
pub(crate) struct CleanedReport {
    /// Killed runs whose things were taken away.
    pub(crate) runs: usize,
}

impl Report for CleanedReport {
    fn text(&self) -> String {
        match self.runs {
            0 => "Nothing was left.\n".to_owned(),
            runs => format!("Taken away: what {runs} killed runs had left.\n"),
        }
    }
}
