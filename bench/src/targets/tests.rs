//! How rows are judged.

use super::*;
use crate::report::Machine;

fn row(workload: &str, subject: &str, threads: usize, mode: Mode, ns_per_op: f64) -> Row {
    Row {
        workload: workload.into(),
        subject: subject.into(),
        threads,
        size: 0,
        mode: mode.name().into(),
        ns_per_op,
        ops_per_s: threads as f64 * 1e9 / ns_per_op,
        p50_ns: None,
        p99_ns: None,
        repetitions: 7,
        spread: 0.0,
        emulated: false,
    }
}

fn judge_rows(windows: &str, rows: Vec<Row>) -> Vec<Target> {
    judge_report(windows, rows, vec![])
}

fn judge_report(windows: &str, rows: Vec<Row>, figures: Vec<Figure>) -> Vec<Target> {
    let machine = Machine { windows: windows.into(), cores: 2, ..Machine::default() };
    judge(&Report { machine, rows, figures, ..Report::default() })
}

fn alone(rows: &[(&str, &str, f64)]) -> Vec<Row> {
    rows.iter().map(|(workload, subject, ns)| row(workload, subject, 1, Private, *ns)).collect()
}

#[track_caller]
fn one(found: Vec<Target>) -> (String, Option<bool>) {
    let [target] = <[Target; 1]>::try_from(found).unwrap();
    (target.measured, target.met)
}

#[test]
fn without_rows_nothing_is_said() {
    assert_eq!(judge_rows("key", vec![]), []);
    assert_eq!(judge_rows("none", alone(&[("append-4k", LIMIT, 1.0)])), []);
}

#[test]
fn a_time_is_held_against_the_limit() {
    let of = |ns| judge_rows("key", alone(&[("read-4k", LIMIT, 200.0), ("read-4k", LIBRARY, ns)]));
    assert_eq!(one(of(250.0)), ("1.25 x (250 ns to 200 ns)".into(), Some(true)));
    assert_eq!(one(of(252.0)).1, Some(false));
}

#[test]
fn a_rate_is_held_against_each_of_the_others() {
    let of = |ext4, xfs| {
        let rows = [("create", MOUNT, 10.0), ("create", EXT4, ext4), ("create", XFS, xfs)];
        one(judge_rows("key", alone(&rows)))
    };
    assert_eq!(of(30.0, 20.0), ("3.00 x ext4, 2.00 x xfs".into(), Some(true)));
    assert_eq!((of(29.0, 20.0).1, of(30.0, 19.0).1), (Some(false), Some(false)));
}

#[test]
fn who_is_missing_leaves_open_what_the_others_do_not_decide() {
    let of =
        |ext4| one(judge_rows("key", alone(&[("create", MOUNT, 10.0), ("create", EXT4, ext4)])));
    assert_eq!(of(31.0), ("3.10 x ext4".into(), None));
    assert_eq!(of(29.0).1, Some(false));
}

#[test]
fn an_emulated_medium_is_not_held_against_those_that_have_none() {
    let mut rows = alone(&[("varmail", LIBRARY, 10.0), ("varmail", EXT4, 1000.0)]);
    assert_eq!(one(judge_rows("key", rows.clone())).1, Some(true));
    rows[0].emulated = true;
    let (measured, met) = one(judge_rows("key", rows));
    assert!(measured.contains("machine's own times") && met.is_none(), "{measured}");
}

#[test]
fn scaling_is_that_from_one_thread_to_two_in_the_right_mode() {
    let of = |ns, mode| {
        let mut rows = alone(&[("read-4k", LIMIT, 100.0), ("read-4k", LIBRARY, 1000.0)]);
        rows.push(row("read-4k", LIMIT, 2, Shared, 125.0));
        rows.push(row("read-4k", LIBRARY, 2, mode, ns));
        judge_rows("key", rows).into_iter().find(|target| target.what.contains("2 threads"))
    };
    // The limit gains 1.6 x.
    let found = of(1250.0, Shared).unwrap();
    assert_eq!((found.measured.as_str(), found.met), ("1.00 (1.60 x, limit 1.60 x)", Some(true)));
    assert_eq!(of(1500.0, Shared).unwrap().met, Some(false));
    assert_eq!(of(1250.0, Private), None);
}

#[test]
fn one_processor_can_not_tell_what_two_threads_gain() {
    let mut rows = alone(&[("create-unlink", LIBRARY, 100.0), ("append-4k", LIBRARY, 100.0)]);
    rows.extend(alone(&[("append-4k", LIMIT, 90.0)]));
    rows.push(row("create-unlink", LIBRARY, 2, Private, 200.0));
    rows.push(row("append-4k", LIBRARY, 2, Private, 200.0));
    rows.push(row("append-4k", LIMIT, 2, Private, 90.0));
    for (cores, met) in [(1, None), (2, Some(false))] {
        let machine = Machine { cores, ..Machine::default() };
        let all = judge(&Report { machine, rows: rows.clone(), ..Report::default() });
        let of_two: Vec<_> =
            all.iter().filter(|target| target.what.contains("2 threads")).collect();
        assert_eq!(of_two.len(), 2);
        for target in of_two {
            assert_eq!(target.met, met, "{target:?}");
            assert_eq!(target.measured.contains("one processor"), met.is_none(), "{target:?}");
        }
    }
}

#[test]
fn the_mount_is_judged_by_its_worst_operation() {
    let of = |rename| {
        let rows = [
            ("stat", MOUNT, 113.0),
            ("stat", NULL, 100.0),
            ("stat", LIBRARY, 10.0),
            ("rename", MOUNT, rename),
            ("rename", NULL, 100.0),
            ("rename", LIBRARY, 100.0),
            ("mkdir", MOUNT, 1e9),
        ];
        let all = judge_rows("key", alone(&rows));
        all.into_iter().find(|target| target.what == "mount, every operation").unwrap()
    };
    assert_eq!(of(230.0).met, Some(true));
    let slow = of(460.0);
    assert_eq!(slow.met, Some(false));
    assert_eq!(slow.measured, "1 of 2 take longer; the worst is rename: 2.00 x");
}

#[test]
fn an_emulated_mount_is_not_held_against_a_server_that_has_no_medium() {
    let rows = [("stat", MOUNT, 1e9), ("stat", NULL, 100.0), ("stat", LIBRARY, 10.0)];
    let mut rows = alone(&rows);
    assert_eq!(one(judge_rows("key", rows.clone())).1, Some(false));
    for slow in [0, 2] {
        rows[slow].emulated = true;
    }
    let (measured, met) = one(judge_rows("key", rows));
    assert!(measured.contains("machine's own times") && met.is_none(), "{measured}");
}

#[test]
fn windows_need_keys_and_the_library_both_ways() {
    let rows = || alone(&[("append-4k", GUARDED, 104.0), ("append-4k", UNGUARDED, 100.0)]);
    assert_eq!(one(judge_rows("key", rows())), ("append 4 KiB +4.0 %".into(), Some(true)));
    let (measured, met) = one(judge_rows("none", rows()));
    assert!(measured.contains("no memory protection keys") && met.is_none(), "{measured}");
}

#[test]
fn openings_are_judged_by_the_number_of_files_and_of_one_thread() {
    let mut opening = row("mount-clean", "engine", 1, Private, 1.5e6);
    assert_eq!(judge_rows("key", vec![opening.clone()]), []);
    opening.size = 50_000;
    let of_two = Row { threads: 2, ns_per_op: 9e6, ..opening.clone() };
    assert_eq!(judge_rows("key", vec![of_two.clone()]), []);
    assert_eq!(
        one(judge_rows("key", vec![of_two, opening])),
        ("1.50 ms; the data was never stored".into(), Some(true))
    );
}

#[test]
fn an_aged_pool_is_judged_when_it_has_aged_enough_and_tells_how_its_space_lies() {
    let of = |last: f64, reached: f64| {
        let rows = [("churn-first", LIBRARY, 100.0), ("churn-last", LIBRARY, last)];
        let figure = |what: &str, value| Figure {
            workload: "churn".into(),
            subject: LIBRARY.into(),
            what: what.into(),
            value,
            unit: "part".into(),
        };
        let figures = vec![figure(REACHED, reached), figure(FREE_HUGE, 0.25)];
        one(judge_report("key", alone(&rows), figures))
    };
    let text = "+8.0 %; 25.0 % of the free space in aligned 2 MiB extents";
    assert_eq!(of(108.0, 1.0), (text.into(), Some(true)));
    assert_eq!(of(109.0, 1.0).1, Some(false));
    let (measured, met) = of(101.0, 0.5);
    assert!(measured.contains("over after 50.0 %") && met.is_none(), "{measured}");
    assert_eq!(of(120.0, 0.5).1, Some(false));
}

#[test]
fn memory_is_judged_where_there_was_room_for_a_million_files() {
    let of = |files: f64, bytes| {
        let figure = |what: &str, value, unit: &str| Figure {
            workload: "memory".into(),
            subject: "lode-engine".into(),
            what: what.into(),
            value,
            unit: unit.into(),
        };
        let figures = vec![figure(FILE_COUNT, files, "files"), figure(IDLE, bytes, "bytes")];
        one(judge_report("key", vec![], figures))
    };
    assert_eq!(of(1e6, 150e6), ("150.0 MB".into(), Some(true)));
    assert_eq!(of(1e6, 151e6).1, Some(false));
    assert_eq!(of(1e5, 1e6).1, None);
}

/// What a rule judges by.
fn factors(rule: &Rule) -> Vec<f64> {
    match rule {
        Rule::Rate(_, _, others) => others.iter().map(|(_, factor)| *factor).collect(),
        Rule::Takes(_, most_ns) => vec![*most_ns as f64],
        Rule::Time(_, _, _, factor)
        | Rule::ScalesAsLimit(_, _, factor)
        | Rule::Scales(_, _, factor)
        | Rule::MountAdds(factor)
        | Rule::Windows(factor)
        | Rule::Opens(_, _, factor)
        | Rule::Weighs(_, factor)
        | Rule::Figure(_, _, factor)
        | Rule::Ages(_, _, factor) => vec![*factor],
    }
}

#[test]
fn what_is_said_is_what_is_judged() {
    for entry in TABLE {
        // (What is said without a number: the option says it, once as much, nothing at all.)
        if [
            "stays under that",
            "at least ext4's rate",
            "no metadata at risk",
            "none loses metadata",
        ]
        .contains(&entry.figure)
        {
            continue;
        }
        let words: Vec<&str> = entry.figure.split([' ', ',']).collect();
        let said =
            words.windows(2).filter_map(|pair| Some((pair[0].parse::<f64>().ok()?, pair[1])));
        let said: Vec<[f64; 4]> = said
            .map(|(number, unit)| match unit {
                "%" => [number, number / 100.0, 1.0 + number / 100.0, 100.0 / number],
                "ms" => [number * 1e6; 4],
                "us" => [number * 1e3; 4],
                "MB" => [number * 1e6; 4],
                _ => [number; 4],
            })
            .collect();
        let are_same = |one: f64, other: f64| (one - other).abs() <= other.abs() * 1e-9;
        for factor in factors(&entry.rule) {
            let is_said = said.iter().flatten().any(|said| are_same(*said, factor));
            assert!(is_said, "{}: {} is said, {factor} judged by", entry.what, entry.figure);
        }
        assert!(!said.is_empty(), "{}: {}", entry.what, entry.figure);
    }
}

#[test]
fn lines_differ() {
    let mut all: Vec<_> = TABLE.iter().map(|entry| entry.what).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), TABLE.len());
}

#[test]
fn what_trust_takes_is_judged_by_its_figures_and_by_half_of_its_operations() {
    let figure = |workload: &str, what: &str, value: f64| Figure {
        workload: workload.into(),
        subject: TRUST.id().into(),
        what: what.into(),
        value,
        unit: "part".into(),
    };
    let space =
        |value| one(judge_report("key", vec![], vec![figure("space", REDUNDANCY_METADATA, value)]));
    assert_eq!(space(0.0209), ("2.090 %".to_owned(), Some(true)));
    assert_eq!(space(0.032), ("3.200 %".to_owned(), Some(false)));
    let risk = |value| one(judge_report("key", vec![], vec![figure("risk", AT_RISK, value)])).1;
    assert_eq!((risk(0.0), risk(4096.0)), (Some(true), Some(false)));
    let create = |p50_ns| {
        let row = row(CREATE_AT_MANY, TRUST.id(), 1, Private, 9000.0);
        one(judge_rows("key", vec![Row { p50_ns, ..row }]))
    };
    assert_eq!(create(Some(5000)), ("5.00 us".to_owned(), Some(true)));
    assert_eq!(create(Some(5001)).1, Some(false));
}
