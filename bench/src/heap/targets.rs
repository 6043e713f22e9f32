//! What must hold of memory from a pool, judged from the rows.

use lode_loan::Method;

use super::build::WORKLOADS;
use super::subject::Pages;
use crate::report::{Figure, Report, Row, Target};

/// What the figure is called that says how much of a subject's memory huge pages map.
pub(super) const HUGE_PART: &str = "mapped by pages of 2 MiB";
/// What the figure is called that says by how much a build took longer than with the system's malloc.
pub(super) const MORE: &str = "longer than malloc's, in the middle round";
/// A build may take so much longer.
const BUILD_MORE: f64 = 0.03;
/// Parts that may differ by so much are the same.
const SAME: f64 = 0.05;
/// What swapping takes of the indirect method's time in the paper, 4.1.
const PAPER: &str = "the paper's is 7.8 x";

/// Something that is to take at most, or at least, so many times as long as something else.
struct Wanted {
    subject: &'static str,
    than: &'static str,
    times: f64,
}

const fn wanted(subject: &'static str, than: &'static str, times: f64) -> Wanted {
    Wanted { subject, than, times }
}

/// At most.
const TOUCH: [Wanted; 5] = [
    wanted("direct", "anonymous", 1.1),
    wanted("direct-bare", "anonymous", 1.1),
    wanted("direct-ready", "anonymous", 1.1),
    wanted("indirect", "direct-bare", 1.05),
    wanted("mmap", "indirect", 1.8),
];
/// At least.
const SWAP: Wanted = wanted("swap", "direct-bare", 5.0);

fn row<'r>(rows: &'r [Row], workload: &str, subject: &str) -> Option<&'r Row> {
    rows.iter().find(|row| row.workload == workload && row.subject == subject)
}

fn times(rows: &[Row], workload: &str, wanted: &Wanted) -> Option<f64> {
    let [of, than] = [wanted.subject, wanted.than].map(|id| row(rows, workload, id));
    Some(of?.ns_per_op / than?.ns_per_op)
}

fn huge_part(figures: &[Figure], workload: &str, subject: &str) -> Option<f64> {
    let same = |figure: &&Figure| {
        figure.workload == workload && figure.subject == subject && figure.what == HUGE_PART
    };
    figures.iter().find(same).map(|figure| figure.value)
}

/// All targets that a run can tell of.
pub(super) fn judge(report: &Report) -> Vec<Target> {
    let (rows, mut all) = (&report.rows, Vec::new());
    for workload in Pages::ALL.map(Pages::workload) {
        for one in &TOUCH {
            let Some(times) = times(rows, &workload, one) else { continue };
            let [of, than] =
                [one.subject, one.than].map(|id| huge_part(&report.figures, &workload, id));
            let (of, than) = (of.unwrap_or(0.0), than.unwrap_or(0.0));
            let is_same = (of - than).abs() <= SAME;
            let pages = match is_same {
                true => String::new(),
                false => format!(
                    ", not on the same pages: {:.0} % and {:.0} % are by 2 MiB",
                    of * 100.0,
                    than * 100.0
                ),
            };
            all.push(Target {
                what: format!("{}, {workload}", one.subject),
                figure: format!("at most {} x {}", one.times, one.than),
                measured: format!("{times:.2} x{pages}"),
                met: is_same.then_some(times <= one.times),
            });
        }
    }
    if !rows.is_empty() {
        all.push(swap(report));
    }
    all.extend(Method::ALL.into_iter().filter_map(|method| build(report, method)));
    all
}

fn build(report: &Report, method: Method) -> Option<Target> {
    let more = |workload: &str| {
        let is_it = |figure: &&Figure| {
            figure.what == MORE && figure.workload == workload && figure.subject == method.name()
        };
        report.figures.iter().find(is_it).map(|figure| figure.value)
    };
    let [all, compile, link] = WORKLOADS.map(more);
    let all = all?;
    let percent = |part: f64| format!("{:+.1} %", part * 100.0);
    let phases = match (compile, link) {
        (Some(compile), Some(link)) => {
            format!(" (compiling {}, linking {})", percent(compile), percent(link))
        }
        _ => String::new(),
    };
    Some(Target {
        what: format!("{}, build", method.name()),
        figure: "at most 3 % more than malloc".to_owned(),
        measured: percent(all) + &phases,
        met: Some(all <= BUILD_MORE),
    })
}

fn swap(report: &Report) -> Target {
    let workload = Pages::Small.workload();
    let times = times(&report.rows, &workload, &SWAP);
    Target {
        what: format!("{}, {workload}", SWAP.subject),
        figure: format!("at least {} x {}", SWAP.times, SWAP.than),
        measured: match times {
            Some(times) => format!("{times:.1} x; {PAPER}"),
            None => format!("not measured; {PAPER}"),
        },
        met: times.map(|times| times >= SWAP.times),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(of: &[(&str, &str, f64)], huge: &[(&str, f64)]) -> Report {
        let row = |&(workload, subject, ns): &(&str, &str, f64)| Row {
            workload: workload.to_owned(),
            subject: subject.to_owned(),
            threads: 1,
            size: 4096,
            mode: super::super::MODE.to_owned(),
            ns_per_op: ns,
            ops_per_s: 1e9 / ns,
            p50_ns: None,
            p99_ns: None,
            repetitions: 7,
            spread: 0.0,
            emulated: false,
        };
        let figure = |&(subject, value): &(&str, f64)| Figure {
            workload: "touch-2m".to_owned(),
            subject: subject.to_owned(),
            what: HUGE_PART.to_owned(),
            value,
            unit: "part".to_owned(),
        };
        Report {
            rows: of.iter().map(row).collect(),
            figures: huge.iter().map(figure).collect(),
            ..Report::default()
        }
    }

    fn met(report: &Report, what: &str) -> Option<bool> {
        judge(report).iter().find(|target| target.what == what).unwrap().met
    }

    #[test]
    fn times_are_judged_on_the_same_pages_alone() {
        let both = |ns| [("touch-2m", "anonymous", 100.0), ("touch-2m", "direct", ns)];
        let what = "direct, touch-2m";
        let same = [("anonymous", 1.0), ("direct", 0.99)];
        assert_eq!(met(&report(&both(110.0), &same), what), Some(true));
        assert_eq!(met(&report(&both(111.0), &same), what), Some(false));
        let other = report(&both(90.0), &[("anonymous", 0.0), ("direct", 1.0)]);
        assert_eq!(met(&other, what), None);
        let small = [("touch-4k", "indirect", 100.0), ("touch-4k", "mmap", 181.0)];
        assert_eq!(met(&report(&small, &[]), "mmap, touch-4k"), Some(false));
    }

    #[test]
    fn swapping_is_judged_where_it_was_measured_and_a_build_by_hundredths() {
        let rows = [("touch-4k", "direct-bare", 10.0), ("touch-4k", "swap", 50.0)];
        assert_eq!(met(&report(&rows, &[]), "swap, touch-4k"), Some(true));
        let without = judge(&report(&rows[..1], &[]));
        assert_eq!((without[0].met, without[0].measured.contains("7.8 x")), (None, true));
        let more = |workload: &str, value| Figure {
            workload: workload.to_owned(),
            subject: "mmap".to_owned(),
            what: MORE.to_owned(),
            value,
            unit: "part".to_owned(),
        };
        let judged = |all, link| {
            let figures =
                vec![more("build", all), more("build-compile", 0.01), more("build-link", link)];
            let report = Report { figures, ..Report::default() };
            judge(&report).swap_remove(0)
        };
        let judged = [judged(0.03, 0.2), judged(0.031, 0.0)];
        assert_eq!(judged.each_ref().map(|target| target.met), [Some(true), Some(false)]);
        assert_eq!(judged[0].what, "mmap, build");
        assert_eq!(judged[0].measured, "+3.0 % (compiling +1.0 %, linking +20.0 %)");
        assert_eq!(judge(&Report::default()), []);
    }
}
