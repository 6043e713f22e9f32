//! What must hold of block devices, judged from the rows.

use super::cell::{Cell, Order};
use super::{remote, same};
use crate::report::{Row, Target};

/// A part of what its limit does, at least.
const OF_LIMIT: f64 = 0.85;
/// What a key may cost.
const KEY: f64 = 1.05;

fn row<'r>(rows: &'r [Row], cell: &Cell, subject: &str) -> Option<&'r Row> {
    let (workload, mode) = (cell.workload(), cell.order.name());
    rows.iter().find(|row| {
        row.workload == workload
            && row.mode == mode
            && row.threads == cell.depth
            && row.subject == subject
    })
}

/// All targets that these rows can tell of.
pub fn judge(rows: &[Row]) -> Vec<Target> {
    let mut all = Vec::new();
    for cell in Cell::all().iter().filter(|cell| cell.order == Order::Random) {
        for subject in ["none", "volume-512", "volume-4096"] {
            let limit = match (cell.writes, subject) {
                (false, _) => same::name(subject),
                (true, "none") => "limit".to_owned(),
                (true, _) => "volume-limit".to_owned(),
            };
            all.extend(at_least(rows, cell, subject, &limit));
        }
        all.extend(key(rows, cell));
    }
    all.extend(remote::judge(rows));
    all
}

/// The rate is so much of another's.
fn at_least(rows: &[Row], cell: &Cell, subject: &str, limit: &str) -> Option<Target> {
    let part = row(rows, cell, subject)?.ops_per_s / row(rows, cell, limit)?.ops_per_s;
    Some(Target {
        what: format!("{subject}, {}", cell.short()),
        figure: format!("at least 85 % of {limit}"),
        measured: format!("{:.0} %", part * 100.0),
        met: Some(part >= OF_LIMIT),
    })
}

/// How long an access takes: to read, as a multiple of a bare one of the same memory.
fn takes(rows: &[Row], cell: &Cell, subject: &str) -> Option<f64> {
    let ns = row(rows, cell, subject)?.ns_per_op;
    let unit = match cell.writes {
        true => 1.0,
        false => row(rows, cell, &same::name(subject))?.ns_per_op,
    };
    Some(ns / unit)
}

fn key(rows: &[Row], cell: &Cell) -> Option<Target> {
    let none = takes(rows, cell, "none")?;
    let ratio = takes(rows, cell, "key").map(|key| key / none);
    Some(Target {
        what: format!("key, {}", cell.short()),
        figure: "at most 5 % more than none".to_owned(),
        measured: match ratio {
            Some(ratio) => format!("{:+.1} %", (ratio - 1.0) * 100.0),
            None => "not measured".to_owned(),
        },
        met: ratio.map(|ratio| ratio <= KEY),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(of: &[(&str, f64)], writes: bool) -> Vec<Row> {
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
        of.iter().map(row).collect()
    }

    fn met(of: &[(&str, f64)], what: &str) -> Option<bool> {
        let judged = judge(&rows(of, what.contains("WR")));
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
        assert_eq!(met(&[("none", 100.0)], "key, WR-RND-sz4-Q1"), None);
        assert_eq!(judge(&[]), []);
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
}
