//! A share of the corruption matrix: whatever is damaged, in whichever copy, however and whenever, nothing wrong is
//! shown as right, and nothing is refused or lost that has a good copy left.

use std::collections::BTreeSet;

use lode_crash::corrupt::{
    Copies, Form, InjectionId, Matrix, Phase, Printed, Verdict, inject, run_matrix,
};
use lode_crash::explore::Stop;
use lode_engine::{Protection, Rule};

/// What is to be damaged.
const KINDS: [&str; 30] = [
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
    "EXEMPT",
    "WHOLE",
    "log page header",
    "checkpoint",
    "manifest",
    "checksum",
    "parity",
    "data",
    "mapped data",
    "value",
];
/// A checkpoint is there when a pool was closed, and nothing of that is recovered.
const CLOSED: [&str; 2] = ["checkpoint", "manifest"];
/// What there is one of, at every level: what is found out anew without it, parity, and values and bytes of files that
/// no strip is kept of.
const ONE_COPY: [&str; 6] = ["locator", "checkpoint", "manifest", "parity", "mapped data", "value"];

/// In which forms, at which times and in which copies a kind was not damaged.
fn missing(rows: &[Printed], kind: &str) -> Vec<String> {
    let phases = if CLOSED.contains(&kind) { &Phase::ALL[..2] } else { &Phase::ALL[..] };
    let copies = if ONE_COPY.contains(&kind) { &Copies::ALL[..1] } else { &Copies::ALL[..] };
    let wanted = Form::ALL.iter().map(|form| form.name());
    let wanted = wanted.chain(phases.iter().map(|phase| phase.name()));
    let wanted = wanted.chain(copies.iter().map(|copies| copies.name()));
    let met: BTreeSet<&str> = rows
        .iter()
        .filter(|row| row.kind == kind)
        .flat_map(|row| [row.form, row.phase, row.copies])
        .collect();
    wanted.filter(|word| !met.contains(word)).map(|word| format!("{kind}, {word}")).collect()
}

#[test]
fn damage_shows_nothing_wrong_and_costs_no_more_than_it_must() {
    let matrix = Matrix {
        injections: 20_000,
        seed: 1,
        levels: Protection::ALL.to_vec(),
        left_out: None,
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
    assert_eq!(outcome.tally.all(), 20_000);
    for verdict in [Verdict::Whole, Verdict::Unprotected, Verdict::Refused, Verdict::Lost] {
        assert!(outcome.tally.count(verdict) > 100, "{}", verdict.name());
    }
    for row in outcome.tally.printed().iter().filter(|row| row.level != "none") {
        assert_eq!(row.open, 0, "{row:?}");
    }
    let rows = outcome.tally.printed();
    let missing: Vec<String> = KINDS.iter().flat_map(|kind| missing(&rows, kind)).collect();
    assert!(missing.is_empty(), "nothing was damaged so: {missing:?}");
    // One line of metadata in one of two copies loses nothing. (Of a superblock whose other copy a crash has cut off it does.)
    let is_cut = |row: &&Printed| row.kind == "superblock" && row.phase == "recovery";
    let is_metadata = |kind: &str| {
        !["data", "mapped data", "value", "target", "journal", "checksum", "parity", "free"]
            .contains(&kind)
    };
    let short = rows.iter().filter(|row| {
        row.level != "none" && row.copies != "both" && ["flip", "zero"].contains(&row.form)
    });
    for row in short.filter(|row| is_metadata(row.kind) && !is_cut(row)) {
        assert_eq!((row.refused, row.lost), (0, 0), "{row:?}");
    }
}

/// Programs had a file mapped when the pool was left: nobody can tell damage to what they stored into from that, but what
/// says that it is so is found or healed like all metadata.
#[test]
fn what_was_mapped_may_be_anything_where_it_was_damaged_and_nothing_else() {
    let matrix = Matrix {
        injections: 10 * 400,
        seed: 4,
        levels: vec![Protection::Full],
        left_out: None,
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
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let rows = outcome.tally.printed();
    assert!(rows.iter().all(|row| row.open == 0));
    let of = |kind: &str| rows.iter().filter(|row| row.kind == kind).collect::<Vec<_>>();
    let mapped = of("mapped data");
    let count = |of: fn(&Printed) -> u64| mapped.iter().map(|row| of(row)).sum::<u64>();
    let all = [count(|row| row.injections), count(|row| row.unprotected), count(|row| row.refused)];
    println!("mapped data: {all:?}: injections, unprotected, refused, in {:?}", outcome.time);
    assert!(all.iter().all(|count| *count > 4), "{all:?}");
    // Nothing is lost of one copy of a record; nor of both, but with an error.
    let records = ["EXEMPT", "WHOLE"].map(of).concat();
    assert!(records.iter().any(|row| row.copies == "both" && row.refused + row.lost > 0));
    let one_line = |row: &&Printed| ["flip", "zero"].contains(&row.form) && row.copies != "both";
    assert!(records.iter().any(one_line));
    for row in records.into_iter().filter(|row| one_line(row)) {
        assert_eq!((row.unprotected, row.refused, row.lost), (0, 0, 0), "{row:?}");
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

/// What was found, and is mended: each stays so.
#[test]
fn what_went_wrong_once_does_not_again() {
    for id in [
        // Damage behind the end of a file cost bytes in front of it.
        "full-5-263-34",
        // The first copy of a death went bad between the looks of a recovery, and it came back where it had not happened.
        "full-5-275-219",
        // Where it could not be told whether an inode had ended, what others did with it was taken for cut off.
        "none-7-78-384",
        // A directory was to be moved to where the way to the root was not whole yet: that ended the salvage.
        "none-7-204-323",
        "none-8-15-45",
        "none-8-21-168",
        // What had ended was there again, and what was behind the end of its log was erased where somebody's data was by then.
        "metadata-8-85-226",
        // A rename was undone of which one part was in a log page that was lost; what its new name led to had its old one.
        "none-8-51-118",
        // Ones over a strip, both of its checksums and its parity were taken for data.
        "full-1-191-176",
        "full-1-191-282",
        // A log that ended in a page without records lost its last record.
        "full-1-446-290",
        "none-1-1242-18",
        "none-1-1242-183",
        "none-1-2370-75",
        // What was lost was a record that the opening had stored.
        "full-1-689-308",
        // What was lost was data of the operation that was cut off.
        "full-1-839-27",
        "full-1-839-95",
        // Copies of which one went bad between the look of a recovery and its store.
        "metadata-1-34-39",
        "full-1-95-324",
        "full-1-740-368",
        "full-1-821-352",
        // Old bytes beside a fresh piece ended in less than a line, in bad memory.
        "metadata-1-190-247",
        "metadata-1-874-190",
        // A log that has no other copy went on in bad memory.
        "none-1-1449-111",
        "none-1-2025-399",
        "none-1-2310-72",
        // What a scribble had left of a link to an inode table looked right, and overruled its other copy.
        "metadata-11-1210-148",
        // Both checksums of a symbolic link's target were hit, and the target was not.
        "full-11-614-97",
        // Damage took back a removal that was cut off and whole; what was there again, and damaged itself, was nobody known.
        "metadata-11-130-114",
        // Bytes waited in a journal, whole, whose home was damaged: alone, and together with the journal.
        "full-20261129-245-284",
        "full-31337-789-232",
        // A scrub did not tell of what only a snapshot reads in a journal, nor of a dead inode whose log had lost its end.
        "none-777-930-154",
        "full-777-728-273",
        // It told of the torn link behind the end of a log that a crash had left.
        "none-31337-396-28",
        // Strips of zeros were refused beside others of their page that were lost, and a scrub made them right.
        "full-99-76-365",
        // An old entry in a snapshot was refused for what has become of its inode since, and told of with its directory.
        "full-99-614-213",
    ] {
        let injected = inject(id.parse().unwrap()).unwrap();
        assert!(injected.verdict < Verdict::Open, "{id}: {}: {:?}", injected.damage, injected.what);
    }
}

/// An engine that leaves out what finds damage is noticed.
#[test]
fn an_engine_that_does_not_look_is_noticed() {
    let mut missed = Vec::new();
    for (rule, level, injections) in [
        (Rule::StripsVerified, Protection::Full, 150),
        (Rule::RecordSeal, Protection::None, 450),
        (Rule::IdentitySeal, Protection::Metadata, 920),
        (Rule::LogPageSeal, Protection::None, 2000),
        (Rule::LookBeyond, Protection::None, 430),
        (Rule::TailKnown, Protection::None, 20),
        (Rule::CheckpointSum, Protection::None, 130),
        (Rule::ValueSum, Protection::None, 540),
        (Rule::ExemptWhole, Protection::Full, 600),
    ] {
        // (The first nearly always is enough. Which damage a seed does changes with all that a pool's bytes depend on.)
        let is_noticed = (3..13).any(|seed| {
            let matrix = Matrix {
                injections,
                seed,
                levels: vec![level],
                left_out: Some(rule),
                workers: 2,
                time_max: None,
                stop: Stop::NEVER,
            };
            !run_matrix(&matrix, &()).unwrap().failed.is_empty()
        });
        if !is_noticed {
            missed.push(rule.name());
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
