//! What must hold of block devices, judged from the rows. What a whole run was to show and has not is told, too, with why.

use super::cell::Cell;
use super::remote::{Asked, Server};
use super::same;
use crate::course::LATE;
use crate::report::{Report, Row, Target};

/// A part of what its limit does, at least.
const OF_LIMIT: f64 = 0.85;
/// What a key may cost.
const KEY: f64 = 1.05;
/// What is left out where no regions can be made, and where nothing is measured by NBD.
pub(super) const REGIONS: &str = "regions";
pub(super) const NBD: &str = "nbd";

/// A run that is judged.
pub(super) struct Judged<'r> {
    report: &'r Report,
    /// Of a whole run, what of all that is left out has failed.
    failed: Option<&'r [String]>,
}

/// What must hold of what.
struct Wanted {
    what: String,
    figure: String,
    /// Subjects without which it can't be told, and the workload.
    of: [String; 2],
    workload: String,
}

impl<'r> Judged<'r> {
    /// This one. Of one that is not whole nothing is told of what was not measured.
    pub(super) fn new(report: &'r Report, failed: Option<&'r [String]>) -> Self {
        Self { report, failed }
    }

    /// All targets that it can tell of.
    pub(super) fn targets(&self) -> Vec<Target> {
        let mut all = Vec::new();
        for cell in &Cell::all() {
            for subject in ["none", "volume-512", "volume-4096"] {
                let limit = match (cell.writes, subject) {
                    (false, _) => same::name(subject),
                    (true, "none") => "limit".to_owned(),
                    (true, _) => "volume-limit".to_owned(),
                };
                all.extend(self.at_least(cell, subject, limit));
            }
            all.extend(self.key(cell));
        }
        for asked in Asked::all() {
            for server in [Server::Raw, Server::Volume] {
                all.extend(self.remote(asked, server));
            }
        }
        all
    }

    /// A target, of what was measured and whether that will do.
    fn target(&self, wanted: Wanted, measured: Option<(String, bool)>) -> Option<Target> {
        let Wanted { what, figure, of, workload } = wanted;
        let (measured, met) = match measured {
            Some((measured, met)) => (measured, Some(met)),
            None => self.not_measured(&of, &workload)?,
        };
        Some(Target { what, figure, measured, met })
    }

    /// Why these were not measured: not met where something has failed.
    fn not_measured(&self, of: &[String], workload: &str) -> Option<(String, Option<bool>)> {
        let failed = self.failed?;
        let is_of = |what: &str| {
            let one = |of: &String| what == of || what == format!("{of}: {workload}");
            of.iter().any(one) || what == workload
        };
        let group = if workload.starts_with(NBD) { NBD } else { REGIONS };
        let left_out = || self.report.left_out.iter();
        let why = left_out().find(|one| is_of(&one.what) || one.what == group);
        // (Of what a quick run did not come to only the first is told.)
        let Some(why) = why.or_else(|| left_out().find(|one| one.why == LATE)) else {
            return Some(("not measured".to_owned(), None));
        };
        let met = failed.contains(&why.what).then_some(false);
        Some((format!("not measured: {}", why.why), met))
    }

    fn row(&self, cell: &Cell, subject: &str) -> Option<&Row> {
        let (workload, mode) = (cell.workload(), cell.order.name());
        self.report.rows.iter().find(|row| {
            row.workload == workload
                && row.mode == mode
                && row.threads == cell.depth
                && row.subject == subject
        })
    }

    /// The rate is so much of another's.
    fn at_least(&self, cell: &Cell, subject: &str, limit: String) -> Option<Target> {
        let rate = |subject: &str| self.row(cell, subject).map(|row| row.ops_per_s);
        let part = rate(subject).zip(rate(&limit)).map(|(rate, of)| rate / of);
        let wanted = Wanted {
            what: format!("{subject}, {}", cell.short()),
            figure: format!("at least 85 % of {limit}"),
            of: [subject.to_owned(), limit],
            workload: cell.short(),
        };
        self.target(wanted, part.map(|part| (format!("{:.0} %", part * 100.0), part >= OF_LIMIT)))
    }

    /// How long an access takes: to read, as a multiple of a bare one of the same memory.
    fn takes(&self, cell: &Cell, subject: &str) -> Option<f64> {
        let ns = self.row(cell, subject)?.ns_per_op;
        let unit = match cell.writes {
            true => 1.0,
            false => self.row(cell, &same::name(subject))?.ns_per_op,
        };
        Some(ns / unit)
    }

    fn key(&self, cell: &Cell) -> Option<Target> {
        let ratio = self.takes(cell, "key").zip(self.takes(cell, "none"));
        let ratio = ratio.map(|(key, none)| key / none);
        let wanted = Wanted {
            what: format!("key, {}", cell.short()),
            figure: "at most 5 % more than none".to_owned(),
            of: ["key", "none"].map(str::to_owned),
            workload: cell.short(),
        };
        let told = |ratio: f64| (format!("{:+.1} %", (ratio - 1.0) * 100.0), ratio <= KEY);
        self.target(wanted, ratio.map(told))
    }

    /// Durable against volatile: at least as many requests as nbdkit's.
    fn remote(&self, asked: Asked, server: Server) -> Option<Target> {
        let rate = |server: Server| {
            let same = |row: &&Row| {
                row.workload == asked.workload()
                    && row.threads == asked.depth
                    && row.subject == server.id()
            };
            self.report.rows.iter().find(same).map(|row| row.ops_per_s)
        };
        let part = rate(server).zip(rate(Server::Nbdkit)).map(|(rate, of)| rate / of);
        let wanted = Wanted {
            what: format!("{}, {}", server.id(), asked.short()),
            figure: "at least nbdkit's memory plugin, same client".to_owned(),
            of: [server, Server::Nbdkit].map(|server| server.id().to_owned()),
            workload: asked.short(),
        };
        self.target(wanted, part.map(|part| (format!("{part:.2} x"), part >= 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::Order;
    use super::*;
    use crate::report::LeftOut;

    fn rows(of: &[(&str, f64)], writes: bool) -> Report {
        let cell = Cell { writes, order: Order::Random, bytes: 4096, depth: 1 };
        let row = |&(subject, ops_per_s): &(&str, f64)| Row {
            workload: cell.workload(),
            subject: subject.to_owned(),
            threads: 1,
            size: 4096,
            mode: cell.order.name().to_owned(),
            ns_per_op: 1e9 / ops_per_s,
            ops_per_s,
            p50_ns: None,
            p99_ns: None,
            repetitions: 7,
            spread: 0.0,
            emulated: false,
        };
        Report { rows: of.iter().map(row).collect(), ..Report::default() }
    }

    fn met(of: &[(&str, f64)], what: &str) -> Option<bool> {
        let report = rows(of, what.contains("WR"));
        let judged = Judged::new(&report, None).targets();
        judged.iter().find(|target| target.what == what).unwrap().met
    }

    #[test]
    fn a_part_of_the_limit_is_judged_by_rates_and_a_key_by_times() {
        assert_eq!(met(&[("limit", 100.0), ("none", 85.0)], "none, WR-RND-sz4-Q1"), Some(true));
        assert_eq!(met(&[("limit", 100.0), ("none", 84.0)], "none, WR-RND-sz4-Q1"), Some(false));
        let volume = "volume-512, WR-RND-sz4-Q1";
        assert_eq!(met(&[("volume-limit", 10.0), ("volume-512", 8.0)], volume), Some(false));
        assert_eq!(met(&[("none", 105.0), ("key", 100.0)], "key, WR-RND-sz4-Q1"), Some(true));
        assert_eq!(met(&[("none", 106.0), ("key", 100.0)], "key, WR-RND-sz4-Q1"), Some(false));
        assert_eq!(Judged::new(&Report::default(), None).targets(), []);
    }

    #[test]
    fn reads_are_judged_by_bare_ones_of_the_same_memory() {
        for subject in ["none", "volume-512", "volume-4096"] {
            let (limit, what) = (same::name(subject), format!("{subject}, RD-RND-sz4-Q1"));
            assert_eq!(met(&[(&limit, 10.0), (subject, 8.6), ("limit", 99.0)], &what), Some(true));
            assert_eq!(met(&[(&limit, 10.0), (subject, 8.4), ("limit", 1.0)], &what), Some(false));
        }
        let of = |key| [("none-limit", 10.0), ("none", 9.0), ("key-limit", 20.0), ("key", key)];
        let what = "key, RD-RND-sz4-Q1";
        assert_eq!((met(&of(17.2), what), met(&of(17.0), what)), (Some(true), Some(false)));
    }

    #[test]
    fn a_whole_run_tells_of_each_target_also_where_it_was_not_measured_and_why() {
        let report = |left_out: &[(&str, &str)]| {
            let told = |(what, why): &(&str, &str)| LeftOut {
                what: (*what).to_owned(),
                why: (*why).to_owned(),
            };
            let rows = rows(&[("limit", 100.0), ("none", 85.0)], true);
            Report { left_out: left_out.iter().map(told).collect(), ..rows }
        };
        let of = |report: &Report, failed: &[&str], what: &str| {
            let failed: Vec<String> = failed.iter().map(|what| (*what).to_owned()).collect();
            let all = Judged::new(report, Some(&*failed)).targets();
            // Sixteen workloads of three devices and a key, eight by NBD of two servers.
            assert_eq!(all.len(), 16 * 4 + 8 * 2);
            let one = all.into_iter().find(|target| target.what == what).unwrap();
            (one.measured, one.met)
        };
        let said = |what: &str, met| (what.to_owned(), met);
        let (write, read) = ("none, WR-RND-sz4-Q1", "none, RD-RND-sz4-Q1");
        let (key, served) = ("key, WR-RND-sz4-Q1", "lode-raw, nbd-read-4k, depth 1");
        let no = report(&[("key", "no keys"), ("nbd", "fio is missing")]);
        assert_eq!(of(&no, &[], write), said("85 %", Some(true)));
        assert_eq!(of(&no, &[], read), said("not measured", None));
        // What the machine lacks can't be told here; what has failed has not been met.
        assert_eq!(of(&no, &[], key), said("not measured: no keys", None));
        assert_eq!(of(&no, &[], served), said("not measured: fio is missing", None));
        for what in ["none: RD-RND-sz4-Q1", "none", "regions"] {
            let failed = report(&[("volume-512", "another"), (what, "it fails")]);
            let wanted = said("not measured: it fails", Some(false));
            assert_eq!(of(&failed, &[what], read), wanted, "{what}");
        }
        for what in ["lode-raw", "nbdkit-memory: nbd-read-4k, depth 1"] {
            let failed = report(&[("lode-volume", "another"), (what, "it fails")]);
            let wanted = said("not measured: it fails", Some(false));
            assert_eq!(of(&failed, &[what], served), wanted, "{what}");
        }
        let late = report(&[("RD-SEQ-sz4-Q1", LATE)]);
        assert_eq!(of(&late, &[], read), said("not measured: 90 seconds were over", None));
        // Who asked for others has not asked for these.
        let part = Judged::new(&no, None).targets();
        assert_eq!(part.iter().map(|one| &*one.what).collect::<Vec<_>>(), [write]);
    }
}
