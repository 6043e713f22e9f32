//! The keys of every report are those that `docs/json.md` lists.

mod bench;
mod snapshots;
mod volumes;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use lode_engine::{
    Attr, Corruption, ExtentDump, InodeDump, Op, Opening, PoolInfo, RecordDump, StatFs,
};
use serde_json::Value;

use lode_crash::corrupt::{Copies, Form, Injected, Phase, Row, Verdict};

use super::*;
use crate::output::{Output, SCHEMA};
use crate::raw::Raw;
use crate::superblock;

const SHARED: [&str; 4] = ["pool", "region", "space", "opening"];

fn pool() -> PoolFacts {
    let info = PoolInfo {
        uuid: [7; 16],
        label: b"home".to_vec(),
        version: 1,
        bytes: 1 << 30,
        lanes: 16,
        protection: lode_engine::Protection::None,
        dead_zone: 0,
        strip_bytes: 0,
        page_class: lode_engine::PageClass::Small,
        session: 3,
        epoch: 0,
        created_ns: 0,
        clean: true,
        features: [0; 3],
        losses: None,
    };
    PoolFacts::new(std::path::Path::new("/p"), &info)
}

fn region() -> RegionFacts {
    let emulated =
        lode_pmem::Emulated { profile: lode_pmem::Profile::PCM, write_bytes_per_s: Some(1) };
    RegionFacts {
        durability: "power".into(),
        flush: "msync".into(),
        windows: "key".into(),
        emulated: Some(emulated.into()),
        memory: MemoryFacts::default(),
    }
}

fn space() -> SpaceFacts {
    StatFs { pages: 4, pages_free: 3, pages_available: 3, inodes: 2, inodes_free: 1 }.into()
}

fn opening() -> OpeningFacts {
    OpeningFacts::from(&Opening::default())
}

fn inode() -> InodeReport {
    let attr = Attr {
        ino: 9,
        generation: 1,
        mode: 0o100_644,
        links: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 4096,
        pages: 1,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        btime_ns: 0,
        xattrs: 0,
    };
    let record = RecordDump {
        at: 64,
        kind: "INODE",
        session: 1,
        lane: 0,
        sequence: 1,
        part: 0,
        parts: 1,
        fields: vec![("mode", 5)],
        text: b"name".to_vec(),
    };
    let extent = ExtentDump { file_offset: 0, pool_offset: 4096, bytes: 4096, class: 0 };
    InodeReport::from(&InodeDump {
        attr,
        nonce: 1,
        slot_at: 512,
        log_pages: vec![8192],
        records: vec![record],
        extents: vec![extent],
    })
}

fn repairs() -> Vec<RepairFacts> {
    let mut repairs = Repairs::default();
    repairs.add(&lode_engine::Salvage::Attached { ino: 1, dir: b"/lost+found", name: b"#1" });
    repairs.into_facts()
}

fn damage() -> DamageFacts {
    let lost = Corruption { what: "seal is wrong", at: 64, ino: 9 };
    let (path, snapshot) = (Some(".lode/snapshots/s/f".into()), Some("s".into()));
    DamageFacts { path, snapshot, ..DamageFacts::from(&lost) }
}

/// One report of each command with nothing absent.
fn samples() -> BTreeMap<&'static str, Value> {
    let value = |report: &dyn erased::Json| report.json();
    let mut samples = BTreeMap::new();
    samples.insert("mkfs", value(&MkfsReport { pool: pool(), region: region(), space: space() }));
    samples.insert(
        "mount",
        value(&MountReport {
            dir: "/d".into(),
            pid: 1,
            log: Some("/l".into()),
            read_only: false,
            snapshot: Some("s".into()),
            relaxed: false,
            pool: pool(),
            region: region(),
            opening: opening(),
        }),
    );
    let umount = UmountReport {
        dir: "/d".into(),
        pool: "/p".into(),
        pid: Some(1),
        unasked: false,
        clean: true,
        lazy: false,
    };
    samples.insert("umount", value(&umount));
    samples.insert(
        "fsck",
        value(&FsckReport {
            pool: "/p".into(),
            status: 4,
            mode: "check".into(),
            repaired: false,
            opening: opening(),
            files: 1,
            directories: 1,
            others: 1,
            pages_used: 1,
            pages_free: 1,
            damage: vec![damage()],
            repairs: repairs(),
        }),
    );
    samples.insert("scrub", value(&scrub::tests::report()));
    samples.extend(snapshots::snapshots());
    samples.extend(snapshots::streams());
    samples.extend(volumes::volumes());
    samples.insert("heap serve", value(&heap::tests::served(pool(), region(), opening())));
    samples.insert("heap stats", value(&heap::tests::report()));
    let mount = MountFacts {
        dir: "/d".into(),
        pid: 1,
        read_only: false,
        snapshot: Some("s".into()),
        relaxed: false,
        io_uring: true,
    };
    samples.insert(
        "info",
        value(&InfoReport {
            pool: pool(),
            region: region(),
            space: space(),
            opening: opening(),
            bad_memory: BadMemoryFacts::default(),
            mount: Some(mount),
            receiving: Some(ReceivingFacts { name: "s".into(), offset: 9 }),
        }),
    );
    samples.insert("label", value(&LabelReport { changed: true, pool: pool() }));
    let resized = ResizeReport { bytes_before: 1 << 20, pool: pool(), space: space() };
    samples.insert("resize", value(&resized));
    let protected = ProtectReport { changed: true, pool: pool(), space: space() };
    samples.insert("protect", value(&protected));
    samples.insert("stats", value(&stats()));
    samples.insert("man", value(&ManReport { pages: vec!["/m/lode.1".into()] }));
    let script = CompletionsReport { shell: "bash".into(), script: "s".into() };
    samples.insert("completions", value(&script));
    samples.insert("dump", dump());
    samples.insert("bench", value(&bench::sample()));
    let list = BenchListReport::new(lode_bench::workload::ALL, lode_bench::subject::every());
    samples.insert("bench --list", value(&list));
    samples.insert("bench --clean", value(&CleanedReport { runs: 1 }));
    samples.insert("crash run", value(&crash_run()));
    samples.insert("crash replay", value(&crash_replay()));
    samples.insert("crash mutants", value(&crash_mutants()));
    samples.insert("crash corrupt", value(&crash_corrupt()));
    let id = "full-1-2-3".parse().expect("an id");
    let injected = Injected {
        damage: "flip".into(),
        pool: "Closed".into(),
        verdict: Verdict::Wrong,
        what: Some("what".into()),
    };
    samples.insert("crash corrupt ID", value(&InjectionReport::new(id, &injected)));
    samples
}

fn explored() -> lode_crash::run::Report {
    let rows = [lode_crash::run::OperationReport {
        operation: "rename".into(),
        points: 1,
        states: 2.0,
        judged: 1,
        pruned: 1.0,
        failures: 1,
    }];
    let failure = lode_crash::run::FailureReport {
        id: "seq1-1:adr:1:s0p0c1".into(),
        case: "c".into(),
        what: "w".into(),
        text: "t\n".into(),
        script: "ops:\n".into(),
        script_id: "script-0:adr:1:s0p0c1".into(),
    };
    lode_crash::run::Report {
        cases: 2,
        cases_left_out: 1,
        operations: 1,
        points: 1,
        states: 2.0,
        judged: 1,
        distinct: 1,
        distinct_metadata: 1,
        pruned: 1.0,
        no_space: 1,
        schedules: 1,
        flips: 1,
        poisoned: 1,
        threads: 1,
        threads_cut_short: 1,
        exhausted: 1,
        seconds: 0.5,
        judged_per_second: 2.0,
        by_operation: rows.into(),
        failures: 1,
        failed: vec![failure],
    }
}

fn crash_run() -> RunReport {
    let case = lode_crash::workload::parse_script("unlink /a").expect("a script");
    RunReport::new(
        explored(),
        vec!["adr".into()],
        1,
        "pairs",
        Some((std::path::Path::new("/s"), &case)),
    )
}

fn crash_replay() -> ReplayReport {
    ReplayReport {
        id: "seq1-1:adr:1:s0p0c1".into(),
        case: "c".into(),
        without: Some("rule r".into()),
        wrong: true,
        what: "w".into(),
        cuts: vec!["power fails".into()],
        text: "t\n".into(),
        script: "ops:\n".into(),
    }
}

fn crash_mutants() -> MutantsReport {
    let verdict = |killed: Option<&str>| lode_crash::run::MutantReport {
        late: false,
        site: "engine/src/a/name/that/is/longer/than/its/column.rs:123".into(),
        kind: "write-back".into(),
        killed_by: killed.map(str::to_owned),
        how: killed.map(|_| "what was found ".repeat(20)),
        tried: 3,
        seconds: 0.5,
    };
    let verdicts = vec![verdict(Some("seq1-1:adr:1:s0p0c1x2.0.1x3.4.5.6.7:r0p1c1")), verdict(None)];
    MutantsReport::new(verdicts, &explored(), std::time::Duration::from_secs(1))
}

fn crash_corrupt() -> CorruptReport {
    let id = "full-1-2-3".parse().expect("an id");
    let mut outcome = lode_crash::corrupt::Outcome::default();
    let row = Row {
        level: lode_engine::Protection::Full,
        kind: lode_crash::corrupt::Kind::Data,
        copies: Copies::Both,
        form: Form::Flip,
        phase: Phase::Rest,
    };
    outcome.tally.note(row, Verdict::Wrong);
    let (damage, what) = ("flip".to_owned(), "what".to_owned());
    let verdict = Verdict::Wrong;
    outcome.failed.push(lode_crash::corrupt::Failed { id, verdict, damage, what });
    CorruptReport::new(&outcome, 1, 2)
}

#[test]
fn damage_that_is_wrong_is_named_with_how_to_see_it_again() {
    let text = crash_corrupt().text();
    for part in ["full: data, both", "lode crash corrupt full-1-2-3", "1 wrong", "Not injected"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn mutants_fit_their_columns_and_survivors_stand_out() {
    let text = crash_mutants().text();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.contains("NOTHING") && text.contains("1 of 2 killed"), "{text}");
}

#[test]
fn a_failure_is_told_with_what_to_type_next() {
    let text = crash_run().text();
    for part in [
        "FAILURE seq1-1:adr:1:s0p0c1",
        "lode crash replay seq1-1:adr:1:s0p0c1 --script /s",
        "    ops:",
        "1 failure.",
        "Left out: pairs",
    ] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
}

fn stats() -> StatsReport {
    let operations: serde_json::Map<String, Value> =
        Op::ALL.iter().map(|op| (op.name().to_owned(), 0.into())).collect();
    let counted = serde_json::json!({
        "pid": 1,
        "time_ns": 1_000_000_000,
        "age_ns": 1_000_000_000,
        "ops": operations,
        "fences": 1,
        "lines": 1,
        "streamed_bytes": 1,
        "windows": 1,
        "collected": { "fast_pages": 1, "thorough_pages": 2 },
        "dropped_inodes": 3,
        "space": space(),
        "free_extents": { "by_size": [1, 0, 3], "huge": 1, "giant": 0 },
        "waiting_pages": 1,
        "waiting_slots": 1,
        "free_slots": 1,
        "snapshots": { "count": 2, "bytes": 4096 },
        "exempt_pages": 1,
        "inodes_in_memory": 1,
        "inodes_busy": 0,
        "memory": {
            "inodes_bytes": 1 << 10,
            "entries_bytes": 1,
            "extents_bytes": 1,
            "free_space_bytes": 1,
            "tables_bytes": 1,
            "wear_bytes": 1,
            "total_bytes": 1029,
            "limit_bytes": 1 << 20,
        },
        "wear": {
            "region_bytes": 2 << 20,
            "regions": 512,
            "stored_regions": 2,
            "stored_bytes": 192,
            "most_region": 3,
            "most_bytes": 128,
            "bucket_regions": 1,
            "buckets": [64, 0, 0, 128],
        },
        "heap": heap::tests::facts(),
        "health": health::tests::health(),
        "scrub": health::tests::scrubs(),
    });
    let counted = serde_json::from_value(counted).unwrap();
    StatsReport { dir: "/d".into(), counted, pool: pool() }
}

/// The same, two seconds and ten creates later.
fn stats_later() -> StatsReport {
    let mut later = stats();
    later.counted.age_ns += 2_000_000_000;
    later.counted.operations.insert("create".into(), 10.into());
    later.counted.fences += 3;
    later
}

#[test]
fn stats_are_readable_and_fit_the_width() {
    let text = stats().text();
    for part in [
        "/d, counted since it was mounted:",
        "1.0 KiB of 1 MiB, 1 inodes, 3 dropped",
        "1 fast, 2 thorough",
        "lent to programs     6 MiB of 8 MiB, 0 sessions",
        "2 MiB without a session, 0 bytes ready",
        "▄··█",
        "192 bytes stored to 2 of 512 regions of 2 MiB; most to region 3: 128 bytes",
        "16 KiB or more      3  ████████████████",
        "4 KiB or more       1  █████▎",
    ] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    assert!(!text.contains("a second") && !text.contains("create"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let mut unworn = stats();
    unworn.counted.wear.most_region = None;
    assert!(unworn.text().contains("nothing was stored"));
}

#[test]
fn rates_are_those_of_the_time_between() {
    let text = stats_later().picture(Some(&stats()), 60);
    let numbers = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().skip(1).take(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(numbers("create"), "10 5.0", "{text}");
    assert_eq!(numbers("fences"), "4 1.5");
    assert_eq!(numbers("lines"), "1 0.0");
    // A server that was started anew, or no time at all, is no reason for nonsense.
    let backwards = stats().picture(Some(&stats_later()), 60);
    assert!(backwards.lines().any(|line| line.starts_with("fences") && line.contains("0.0")));
}

fn dump() -> Value {
    use std::io::Write;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&superblock::tests::sample(1)).unwrap();
    let unreadable = RefCell::new(vec![UnreadableReport { inode: 1, what: "w".into() }]);
    let report = DumpReport {
        superblocks: superblock::read_copies(&Raw::File(file), 512).unwrap(),
        pool: Some(pool()),
        opening: Some(opening()),
        inodes: [inode()],
        unreadable: &unreadable,
    };
    serde_json::to_value(&report).unwrap()
}

mod erased {
    //! `serde::Serialize` of any report behind a reference.
    pub(super) trait Json {
        fn json(&self) -> serde_json::Value;
    }
    impl<T: serde::Serialize> Json for T {
        fn json(&self) -> serde_json::Value {
            serde_json::to_value(self).unwrap()
        }
    }
}

/// Keys by section of the documentation, `a.b` and `a[].b` for nested ones.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let mut sections: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in include_str!("../../../docs/json.md").lines() {
        if let Some(title) = line.strip_prefix("### ").or_else(|| line.strip_prefix("## ")) {
            section = title.trim_matches('`').to_owned();
        } else if let Some(row) = line.strip_prefix("| `") {
            let key = row.split('`').next().unwrap().to_owned();
            sections.entry(section.clone()).or_default().insert(key);
        }
    }
    sections
}

/// The paths of all keys in `value`; shared objects go to `shared`.
fn paths(value: &Value, prefix: &str, top: bool, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) if !prefix.ends_with("fields") => {
            for (key, value) in object {
                let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                if top && SHARED.contains(&key.as_str()) {
                    found.insert(path);
                } else {
                    paths(value, &path, false, found);
                }
            }
        }
        Value::Array(list) => {
            assert!(!list.is_empty(), "a sample without {prefix}");
            for value in list {
                paths(value, &format!("{prefix}[]"), false, found);
            }
        }
        _ => {
            found.insert(prefix.to_owned());
        }
    }
}

#[test]
fn each_key_is_documented_and_each_documented_key_is_there() {
    let documented = documented();
    for (command, sample) in samples() {
        let mut found = BTreeSet::new();
        paths(&sample, "", true, &mut found);
        let mut listed = documented[command].clone();
        if command == "info" {
            // The rows for what is not there: a mount, and what is being received.
            listed.remove("mount");
            listed.remove("receiving");
        }
        assert_eq!(
            found, listed,
            "keys of `lode {command} --json` (left) and docs/json.md (right)"
        );
    }
}

#[test]
fn shared_objects_are_documented() {
    let documented = documented();
    let shared: [(&str, &dyn erased::Json); 4] =
        [("pool", &pool()), ("region", &region()), ("space", &space()), ("opening", &opening())];
    for (name, sample) in shared {
        let mut found = BTreeSet::new();
        paths(&sample.json(), "", false, &mut found);
        assert_eq!(found, documented[name], "keys of the object {name}");
    }
}

#[test]
fn every_output_names_schema_and_command() {
    let output = Output::of_json("stats");
    let value: Value = serde_json::from_str(&output.json_text(&stats()).unwrap()).unwrap();
    assert_eq!((&value["schema"], &value["command"]), (&SCHEMA.into(), &"stats".into()));
    assert_eq!(value["operations"]["collect_fast"], 0);
}

#[test]
fn the_servers_message_survives_its_way() {
    let samples = samples();
    let report: MountReport = serde_json::from_value(samples["mount"].clone()).unwrap();
    assert_eq!(serde_json::to_value(&report).unwrap(), samples["mount"]);
}
