//! A share of the corruption matrix: whatever is damaged, in whichever copy, however and whenever, nothing wrong is
//! shown as right, and nothing is refused or lost that has a good copy left.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use lode_crash::corrupt::{InjectionId, Matrix, Verdict, inject, run_matrix};
use lode_crash::explore::Stop;
use lode_engine::Protection;

#[test]
fn damage_shows_nothing_wrong_and_costs_no_more_than_it_must() {
    let matrix = Matrix {
        injections: 10_000,
        seed: 1,
        levels: Protection::ALL.to_vec(),
        workers: 2,
        time_max: None,
        stop: Stop::NEVER,
    };
    let outcome = run_matrix(&matrix, &()).unwrap();
    let failed: Vec<String> = outcome
        .failed
        .iter()
        .map(|one| format!("{}: {}: {}", one.id, one.damage, one.what))
        .collect();
    println!("{} injections in {:?}", outcome.tally.all(), outcome.time);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!(outcome.tally.all(), 10_000);
    for verdict in [Verdict::Whole, Verdict::Unprotected, Verdict::Refused, Verdict::Lost] {
        assert!(outcome.tally.count(verdict) > 100, "{}", verdict.name());
    }
    let rows = outcome.tally.printed();
    let kinds: BTreeSet<&str> = rows.iter().map(|row| row.kind).collect();
    for kind in [
        "superblock",
        "locator",
        "lane",
        "table header",
        "identity",
        "INODE",
        "TEXT",
        "ATTR",
        "LINKS",
        "DEATH",
        "ADD",
        "DEL",
        "MAP",
        "SIZE",
        "UNMAP",
        "JOURNAL",
        "RETIRE",
        "PAD",
        "XATTR",
        "XDEL",
        "log page header",
        "checkpoint",
        "manifest",
        "checksum",
        "parity",
        "data",
        "value",
    ] {
        assert!(kinds.contains(kind), "no {kind} was damaged: {kinds:?}");
    }
    // One line of metadata in one of two copies loses nothing.
    let is_metadata = |kind: &str| {
        !["data", "value", "target", "journal", "checksum", "parity", "free"].contains(&kind)
    };
    let short = rows.iter().filter(|row| {
        row.level != "none" && row.copies != "both" && ["flip", "zero"].contains(&row.form)
    });
    for row in short.filter(|row| is_metadata(row.kind)) {
        assert_eq!((row.refused, row.lost), (0, 0), "{row:?}");
    }
}

#[test]
fn one_injection_is_done_again_by_its_name() {
    let id: InjectionId = "metadata-1-1-21".parse().unwrap();
    assert_eq!(id.to_string(), "metadata-1-1-21");
    let [once, again] = [inject(id), inject(id)].map(Result::unwrap);
    assert_eq!((once.damage, once.verdict), (again.damage, again.verdict));
    for wrong in ["metadata", "some-1-1-1", "full-1-1", "full-1-x-1"] {
        assert!(wrong.parse::<InjectionId>().is_err(), "{wrong}");
    }
}
