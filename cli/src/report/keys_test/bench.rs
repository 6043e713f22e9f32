//! What `lode bench` tells.

use lode_bench::report::{Breakdown, Figure, LeftOut, Machine, Report, Risk, Row, Steps, Target};

use crate::output::Report as _;
use crate::report::BenchReport;

/// A report with something of everything.
pub(super) fn sample() -> BenchReport {
    let row = Row {
        workload: "append-4k".into(),
        subject: "limit".into(),
        threads: 2,
        size: 4096,
        mode: "private".into(),
        ns_per_op: 403.4,
        ops_per_s: 4_958_000.0,
        p50_ns: Some(380),
        p99_ns: Some(12_340),
        repetitions: 7,
        spread: 0.034,
        emulated: false,
    };
    let target = |met| Target {
        what: "library, append 4 KiB".into(),
        figure: "at most 1.5 x its limit".into(),
        measured: "1.62 x".into(),
        met,
    };
    BenchReport::from(Report {
        machine: Machine {
            cores: 2,
            page_bytes: 2 << 20,
            emulated: Some("pcm (read +300 ns)".into()),
            ..Machine::default()
        },
        rows: vec![row],
        breakdown: vec![Breakdown {
            workload: "append-4k".into(),
            subject: "lode-engine".into(),
            ns_per_op: 1000.0,
            samples: 100,
            copy_ns: 512.0,
            fences_ns: 256.0,
            allocation_ns: 128.0,
            index_ns: 64.0,
            record_ns: 32.0,
            checksums_ns: 4.0,
            second_copies_ns: 2.0,
            rest_ns: 2.0,
        }],
        risk: vec![Risk {
            scheme: "two-way replication".into(),
            modelled: true,
            scribble_bytes: 8 << 10,
            max_bytes: 4096,
            mean_pages: 0.000_123_4,
            nova_max_bytes: Some(4096),
            nova_mean_pages: Some(2.9e-5),
        }],
        figures: vec![Figure {
            workload: "churn".into(),
            subject: "lode-library".into(),
            what: "log pages collected".into(),
            value: 1_000_003.4,
            unit: "pages".into(),
        }],
        targets: vec![target(Some(true)), target(Some(false)), target(None)],
        limits: vec![Steps { workload: "append-4k".into(), steps: "a fence".into() }],
        left_out: vec![LeftOut { what: "xfs".into(), why: "mkfs.xfs is missing".into() }],
    })
}

#[test]
fn measurements_are_readable_and_fit_the_width() {
    let text = sample().text();
    for part in [
        "append-4k, 2 threads, private",
        "EMULATED: pcm (read +300 ns)",
        "  limit, not slowed  ",
        "403 ns    4.96 M    380 ns   12.3 us    3.4%",
        "  NO  library, append 4 KiB: at most 1.5 x its limit; measured 1.62 x",
        "  ?   library",
        "xfs: mkfs.xfs is missing",
        "churn, lode-library\n  log pages collected  ",
        " 1000003 pages",
        "  8 KiB                                             4 KiB      1.2e-4     4 KiB  0.000029\n",
        "  append-4k               1.00 us  512 ns  256 ns  128 ns 64.0 ns 32.0 ns 4.00 ns 2.00 ns 2.00 ns",
    ] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}
