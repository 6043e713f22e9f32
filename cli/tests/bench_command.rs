//! `lode bench`: what it takes, what it prints, and that nothing of it stays.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{LODE, Ran, Scratch, lode, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn wrong_command_lines_are_told() {
    for args in [
        &["bench", "--workload", "creat"][..],
        &["bench", "--workload", ""],
        &["bench", "--subject", "ramfs"],
        &["bench", "--subject", "tmpfs,ramfs"],
        &["bench", "--threads", "0"],
        &["bench", "--threads", "65"],
        &["bench", "--threads", "two"],
        &["bench", "--trust", "--protect"],
        &["bench", "--trust", "--subject", "limit"],
        &["bench", "--list", "--quick"],
        &["bench", "--clean", "--list"],
        &["bench", "somewhere"],
    ] {
        let with_json: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let error = lode(&with_json).expect(2).error_json();
        assert_eq!(
            (&error["error"]["kind"], &error["command"]),
            (&"usage".into(), &"bench".into())
        );
    }
}

#[test]
fn wrong_command_lines_of_programs_are_told() {
    for args in [
        &["--workload", "tpch"][..],
        &["--workload", "create"],
        &["--subject", "ext4"],
        &["--rounds", "0"],
        &["--threads", "1"],
        &["--list", "--quick"],
        &["somewhere"],
    ] {
        let all: Vec<&str> = ["bench", "programs", "--json"].iter().chain(args).copied().collect();
        let error = lode(&all).expect(2).error_json();
        assert_eq!(error["error"]["kind"], "usage", "{args:?}");
        assert_eq!(error["command"], "bench programs", "{args:?}");
    }
    // Flags of the one are not the other's.
    lode(&["bench", "--quick", "programs"]).expect(2);
}

#[test]
fn programs_are_listed_with_what_they_do() {
    let listed = lode(&["bench", "programs", "--list", "--json"]).expect(0).json();
    let ids = |key: &str| -> BTreeSet<String> {
        let all = listed[key].as_array().unwrap().iter();
        all.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        ids("workloads"),
        ["untar", "tar", "build", "sfs", "clamav", "tpcc"].map(str::to_owned).into()
    );
    assert!(ids("subjects").contains("ext4-volume"));
    let text = lode(&["bench", "programs", "--list"]).expect(0).out;
    assert!(text.contains("ext4-volume") && text.contains("clamscan"), "{text}");
}

#[test]
fn programs_have_rows_like_those_of_other_runs_and_nothing_stays() {
    let scratch = Scratch::new();
    let (dir, page) = (scratch.dir("run"), scratch.path("page.html"));
    let args = [
        "bench",
        "programs",
        "--quick",
        "--json",
        "--rounds",
        "2",
        "--workload",
        "untar",
        "--subject",
        "tmpfs,ramfs",
        "--dir",
        text(&dir),
        "--html",
        text(&page),
    ];
    if !rustix::process::geteuid().is_root() {
        let error = lode(&args).expect(1).error_json();
        assert!(error["error"]["what"].as_str().unwrap().contains("only root"), "{error}");
        return;
    }
    let report = lode(&args).expect(0).json();
    assert_eq!((&report["schema"], &report["command"]), (&1.into(), &"bench programs".into()));
    let rows = report["rows"].as_array().unwrap();
    let subjects: Vec<_> = rows.iter().map(|row| row["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["tmpfs", "ramfs"]);
    for row in rows {
        assert_eq!((&row["workload"], &row["repetitions"]), (&"untar".into(), &2.into()), "{row}");
        assert!(row["ns_per_op"].as_f64().unwrap() > 1e5 && row["p50_ns"].is_null(), "{row}");
    }
    assert_eq!(
        (&report["targets"][0]["met"], &report["left_out"]),
        (&true.into(), &Value::Array(vec![]))
    );
    assert!(fs::read_to_string(page).unwrap().contains("Memory, RAM disks and volumes"));
    nothing_is_left(&dir);
}

/// What the page has of a figure, up to the next one.
fn figure<'p>(page: &'p str, title: &str) -> &'p str {
    let figures = page.split("<h2>").skip(1);
    let found = figures.filter_map(|one| one.split("</h2>").next().map(|head| (head, one)));
    let mut found = found.filter(|(head, _)| *head == title).map(|(_, one)| one);
    found.next().unwrap_or_else(|| panic!("no figure {title:?}"))
}

/// Figures 10, 12 and 13 of the paper, of what real programs took on real loop devices of volumes.
#[test]
fn figures_of_programs_are_drawn_from_the_rows_of_their_runs() {
    const DEVICES: [&str; 3] = ["tmpfs", "ext4-ram", "ext4-volume"];
    const WITHOUT: [&str; 2] = ["cached-nobarrier", "ext4-nobarrier"];
    const WITH: [&str; 2] = ["ext4-cached", "ext4-volume"];
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root may make loop devices and mount them");
        return;
    }
    let scratch = Scratch::new();
    let (dir, page) = (scratch.dir("run"), scratch.path("page.html"));
    let subjects = [&DEVICES[..], &WITHOUT, &WITH[..1]].concat().join(",");
    let args = ["bench", "programs", "--quick", "--json", "--rounds", "1", "--workload"];
    let args = [&args[..], &["untar,tar", "--subject", &subjects, "--dir", text(&dir)]].concat();
    let report = lode(&[&args[..], &["--html", text(&page)]].concat()).expect(0).json();
    let left_out = report["left_out"].as_array().unwrap();
    if let Some(one) = left_out.first() {
        // (No loop devices, no file system, no program: and nothing else.)
        let why = one["why"].as_str().unwrap();
        assert!(!why.contains("failed"), "{left_out:?}");
        println!("skipped: {}: {why}", one["what"]);
        return;
    }
    let page = fs::read_to_string(page).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12, "{rows:?}");
    let ns = |program: &str, subject: &str| {
        let mut rows = rows.iter();
        let row = rows.find(|row| row["workload"] == program && row["subject"] == subject);
        row.unwrap()["ns_per_op"].as_f64().unwrap()
    };
    let figures = [
        ("Memory, RAM disks and volumes", "Figure 13", "tmpfs", &DEVICES[..]),
        ("Write schemes and guards, without barriers", "Figure 10", WITHOUT[0], &WITHOUT),
        ("Write schemes and guards, with barriers", "Figure 12", WITHOUT[0], &WITH),
    ];
    for (title, paper, unit, subjects) in figures {
        let drawn = figure(&page, title);
        assert!(drawn.contains(paper), "{title}");
        assert_eq!(drawn.matches("<svg").count(), 2, "{title}");
        for (program, plot) in ["untar", "tar"].iter().zip(drawn.split("<svg").skip(1)) {
            for subject in subjects {
                let times = ns(program, subject) / ns(program, unit);
                let told = match times < 10.0 {
                    true => format!("{times:.2} x"),
                    false => format!("{times:.1} x"),
                };
                assert!(plot.contains(subject), "{title}, {program}: no {subject}");
                assert!(plot.contains(&told), "{title}, {program}, {subject}: no {told}");
            }
        }
    }
    nothing_is_left(&dir);
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn a_small_run_has_every_key_and_nothing_of_it_stays() {
    let scratch = Scratch::new();
    let (dir, page) = (scratch.dir("run"), scratch.path("page.html"));
    let args = [
        "bench",
        "--quick",
        "--json",
        "--workload",
        "create,read-4k",
        "--subject",
        "tmpfs,limit",
        "--threads",
        "1,2",
        "--dir",
        text(&dir),
        "--html",
        text(&page),
    ];
    let report = lode(&args).expect(0).json();
    let top = [
        "schema",
        "command",
        "machine",
        "rows",
        "breakdown",
        "risk",
        "figures",
        "targets",
        "limits",
        "left_out",
    ];
    assert_eq!(keys(&report), top.into());
    assert_eq!((&report["schema"], &report["command"]), (&1.into(), &"bench".into()));
    let machine = [
        "cpu",
        "cores",
        "kernel",
        "flush",
        "windows",
        "medium",
        "page_bytes",
        "load",
        "fuse_io_uring",
        "awake",
        "emulated",
    ];
    assert_eq!(keys(&report["machine"]), machine.into());
    let rows = report["rows"].as_array().unwrap();
    let mut cells = BTreeSet::new();
    for row in rows {
        let wanted = [
            "workload",
            "subject",
            "threads",
            "size",
            "mode",
            "ns_per_op",
            "ops_per_s",
            "p50_ns",
            "p99_ns",
            "repetitions",
            "spread",
            "emulated",
        ];
        assert_eq!(keys(row), wanted.into());
        assert!(row["repetitions"].as_u64().unwrap() >= 7, "{row}");
        let (ns, rate) = (row["ns_per_op"].as_f64().unwrap(), row["ops_per_s"].as_f64().unwrap());
        assert!(ns > 1.0 && rate > 1.0 && row["spread"].as_f64().unwrap() >= 0.0, "{row}");
        assert!(row["p50_ns"].as_u64().unwrap() <= row["p99_ns"].as_u64().unwrap(), "{row}");
        if row["threads"] == 1 {
            // (Medians of rounds, each of which has both.)
            assert!((ns * rate / 1e9 - 1.0).abs() < 0.01, "{row}");
        }
        let of = |key: &str| row[key].as_str().unwrap().to_owned();
        cells.insert(format!(
            "{} {} {} {}",
            of("workload"),
            of("subject"),
            row["threads"],
            of("mode")
        ));
    }
    let mut wanted = BTreeSet::new();
    for workload in ["create", "read-4k"] {
        for subject in ["tmpfs", "limit"] {
            for cell in ["1 private", "2 private", "2 shared"] {
                wanted.insert(format!("{workload} {subject} {cell}"));
            }
        }
    }
    assert_eq!(cells, wanted);
    assert_eq!(report["left_out"], Value::Array(vec![]));
    assert!(fs::read_to_string(page).unwrap().contains("<svg"));
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
}

#[test]
fn an_emulated_medium_slows_whom_it_can_and_that_is_told() {
    let scratch = Scratch::new();
    let dir = scratch.dir("run");
    let args = [
        "bench",
        "--quick",
        "--json",
        "--fence-ns",
        "200000",
        "--workload",
        "rename",
        "--subject",
        "limit,lode-library,lode-mount,tmpfs",
        "--threads",
        "1",
        "--dir",
        text(&dir),
    ];
    let report = lode(&args).expect(0).json();
    let emulated = report["machine"]["emulated"].as_str().unwrap();
    assert!(emulated.contains("fence +200000 ns"), "{emulated}");
    let row = |subject: &str| {
        let rows = report["rows"].as_array().unwrap();
        rows.iter().find(|row| row["subject"] == subject).unwrap_or_else(|| panic!("{report}"))
    };
    for (subject, slowed) in [("limit", true), ("lode-library", true), ("lode-mount", true)] {
        let row = row(subject);
        assert_eq!(row["emulated"], slowed, "{row}");
        assert!(row["ns_per_op"].as_f64().unwrap() > 200_000.0, "{row}");
    }
    assert_eq!(row("tmpfs")["emulated"], false);
}

#[test]
fn a_breakdown_tells_the_parts_of_what_was_asked_for() {
    let scratch = Scratch::new();
    let (dir, page) = (scratch.dir("run"), scratch.path("page.html"));
    let args = [
        "bench",
        "--quick",
        "--json",
        "--breakdown",
        "--workload",
        "append-4k,stat",
        "--subject",
        "limit",
        "--threads",
        "1",
        "--dir",
        text(&dir),
        "--html",
        text(&page),
    ];
    let report = lode(&args).expect(0).json();
    let all = report["breakdown"].as_array().unwrap();
    assert_eq!((all.len(), &all[0]["workload"]), (1, &"append-4k".into()));
    let parts = ["copy", "fences", "allocation", "index", "record"];
    let parts = parts.into_iter().chain(["checksums", "second_copies", "rest"]);
    let sum: f64 = parts.map(|part| all[0][format!("{part}_ns")].as_f64().unwrap()).sum();
    assert!((sum / all[0]["ns_per_op"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{report}");
    assert!(fs::read_to_string(page).unwrap().contains("What an operation consists of"));
}

#[test]
fn levels_are_compared_split_into_parts_and_judged() {
    let scratch = Scratch::new();
    let (dir, page) = (scratch.dir("run"), scratch.path("page.html"));
    let args = ["bench", "--protect", "--quick", "--json", "--workload", "overwrite-512"];
    let place = ["--threads", "1", "--dir", text(&dir), "--html", text(&page)];
    let report = lode(&[&args[..], &place].concat()).expect(0).json();
    let rows = report["rows"].as_array().unwrap();
    let subjects: BTreeSet<&str> =
        rows.iter().map(|row| row["subject"].as_str().unwrap()).collect();
    for level in ["none", "metadata", "full"] {
        for relaxed in ["", "-relaxed"] {
            let id = format!("lode-{level}{relaxed}");
            assert!(subjects.contains(id.as_str()), "no {id}: {subjects:?}");
        }
    }
    assert!(subjects.contains("lode-snapshots"), "{subjects:?}");
    let split = report["breakdown"].as_array().unwrap();
    let sums = |subject: &str| {
        let of = |one: &&Value| one["subject"] == subject;
        split.iter().find(of).unwrap()["checksums_ns"].as_f64().unwrap()
    };
    assert!(sums("lode-full") > 0.0 && sums("lode-none") == 0.0, "{split:?}");
    let targets = report["targets"].as_array().unwrap();
    for words in ["level full, overwrite 512 B", "a snapshot every"] {
        let of = |one: &&Value| one["what"].as_str().unwrap().starts_with(words);
        assert!(targets.iter().find(of).unwrap()["met"].is_boolean(), "{words}");
    }
    assert!(fs::metadata(page).unwrap().len() > 1000);
    nothing_is_left(&dir);
}

#[test]
fn what_pools_can_be_trusted_with_is_measured_drawn_and_judged() {
    let scratch = Scratch::new();
    let (dir, page) = (scratch.dir("run"), scratch.path("page.html"));
    let args =
        ["bench", "--trust", "--quick", "--json", "--dir", text(&dir), "--html", text(&page)];
    let report = lode(&args).expect(0).json();
    let all = |key: &str| report[key].as_array().unwrap().clone();
    assert_eq!(all("left_out"), Vec::<Value>::new());
    for scheme in ["no", "simple", "two-way", "dead-zone"] {
        let scheme = format!("{scheme} replication");
        let risk = all("risk");
        let of: Vec<_> = risk.iter().filter(|one| one["scheme"] == scheme.as_str()).collect();
        let sizes: Vec<_> = of.iter().map(|one| one["scribble_bytes"].as_u64().unwrap()).collect();
        assert_eq!(sizes, (0..=26).map(|log2| 1 << log2).collect::<Vec<u64>>(), "{scheme}");
        let most: Vec<_> = of.iter().map(|one| one["max_bytes"].as_u64().unwrap()).collect();
        assert!(most.is_sorted(), "{scheme}: {most:?}");
        assert_eq!(most[0], if scheme == "no replication" { 4096 } else { 0 }, "{scheme}");
        assert!(of.iter().any(|one| one["nova_mean_pages"].is_number()), "{scheme}");
    }
    for what in ["full, files of 4 KiB: parity", "manifests in memory, of the space in use"] {
        assert!(all("figures").iter().any(|one| one["what"] == what), "{what}");
    }
    let judged = all("targets");
    assert_eq!(judged.len(), 7, "{judged:?}");
    for one in &judged {
        let measured = one["measured"].as_str().unwrap();
        match measured.strip_suffix(" us") {
            // (A busy machine may take a few times as long.)
            Some(time_us) => assert!(time_us.parse::<f64>().unwrap() < 25.0, "{one}"),
            // All else is no matter of the machine: what is lost, and what it takes.
            None => assert_eq!(one["met"], true, "{one}"),
        }
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("Metadata at risk") && page.contains("(modelled)"));
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
}

#[test]
fn the_list_has_what_can_be_asked_for() {
    let list = lode(&["bench", "--list", "--json"]).expect(0).json();
    let ids = |key: &str| -> Vec<String> {
        let all = list[key].as_array().unwrap().iter();
        all.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    assert!(ids("subjects").contains(&"null-fuse".to_owned()));
    let help = lode(&["bench", "--list"]).expect(0).out;
    for id in ids("workloads").iter().chain(&ids("subjects")) {
        assert!(help.contains(id.as_str()), "{id}");
    }
    let append = list["workloads"].as_array().unwrap().iter().find(|one| one["id"] == "append-4k");
    assert_eq!(append.unwrap()["size"], 4096);
    assert!(append.unwrap()["limit"].as_str().unwrap().contains("fence"));
}

/// What is mounted below a directory.
fn mounted_below(dir: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| Path::new(point).starts_with(dir)).map(str::to_owned).collect()
}

fn loops_below(dir: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    let files = devices
        .filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.filter(|file| Path::new(file).starts_with(dir)).collect()
}

/// Processes with `dir` in their command line.
fn servers_below(dir: &Path) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let dir = text(dir).as_bytes();
    lines.filter(|line| line.windows(dir.len()).any(|part| part == dir)).count()
}

#[track_caller]
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        sleep(Duration::from_millis(20));
    }
}

/// A long run of subjects with servers, mounts and loop devices, as far as this user may have them.
fn long_run(dir: &Path) -> Child {
    let root = rustix::process::geteuid().is_root();
    let subjects = if root { "tmpfs,lode-mount,null-fuse,ext4" } else { "lode-mount,null-fuse" };
    let args = ["bench", "--json", "--progress", "--subject", subjects, "--dir", text(dir)];
    let mut command = Command::new(LODE);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let last = if root { "ext4" } else { "null-fuse" };
    wait_for("the last subject", || mounted_below(dir).iter().any(|at| at.ends_with(last)));
    child
}

fn nothing_is_left(dir: &Path) {
    assert_eq!(mounted_below(dir), Vec::<String>::new());
    assert_eq!(loops_below(dir), Vec::<String>::new());
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
    // A loop device and a server end a moment after their mount.
    wait_for("the servers' end", || servers_below(dir) == 0);
}

#[test]
fn what_a_killed_run_leaves_is_taken_away_by_the_next() {
    let scratch = Scratch::new();
    for clean in [&["--clean"][..], &["--quick", "--workload", "append-64", "--subject", "limit"]] {
        let dir = scratch.dir("run");
        let mut run = long_run(&dir);
        run.kill().unwrap();
        run.wait().unwrap();
        assert!(!mounted_below(&dir).is_empty(), "nothing was left: the test tests nothing");
        let mut args = vec!["bench", "--json", "--dir", text(&dir)];
        args.extend(clean);
        let ran = lode(&args).expect(0).json();
        if clean == ["--clean"] {
            assert_eq!(ran["runs"], 1);
        }
        nothing_is_left(&dir);
    }
}

#[test]
fn a_run_that_lives_is_let_alone_and_one_that_is_interrupted_tells_what_it_has() {
    let scratch = Scratch::new();
    let dir = scratch.dir("run");
    let run = long_run(&dir);
    let cleaned = lode(&["bench", "--clean", "--json", "--dir", text(&dir)]).expect(0).json();
    assert_eq!(cleaned["runs"], 0);
    assert!(!mounted_below(&dir).is_empty());
    sleep(Duration::from_secs(2));
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    let done = run.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(130));
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(report["rows"].is_array());
    nothing_is_left(&dir);
}

#[test]
fn who_is_not_root_is_told_what_is_left_out() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: to become another user needs root");
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("run");
    std::os::unix::fs::chown(scratch.path(""), Some(65_534), None).unwrap();
    std::os::unix::fs::chown(&dir, Some(65_534), None).unwrap();
    let mut command = Command::new(LODE);
    command.args(["bench", "--quick", "--json"]).uid(65_534).gid(65_534);
    command.args(["--workload", "append-64", "--threads", "1"]);
    command.args(["--subject", "ext4,limit", "--dir", text(&dir)]);
    if let Err(error) = command.output() {
        println!("skipped: another user can't run the program here ({error})");
        return;
    }
    let Ran { code, out, err, .. } = common::run(&mut command);
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["left_out"][0]["what"], "ext4");
    assert!(report["left_out"][0]["why"].as_str().unwrap().contains("root"));
    assert_eq!(report["rows"][0]["subject"], "limit");
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
}

#[test]
fn block_devices_have_rows_in_each_workload_and_a_page_and_nothing_stays() {
    let scratch = Scratch::new();
    let (dir, page) = (scratch.dir("run"), scratch.path("page.html"));
    let args = ["bench", "block", "--quick", "--json", "--subject", "none,mprotect-batch", "--dir"];
    let args = [&args[..], &[text(&dir), "--html", text(&page)]].concat();
    let report = lode(&args).expect(0).json();
    assert_eq!((&report["schema"], &report["command"]), (&1.into(), &"bench block".into()));
    let rows = report["rows"].as_array().unwrap();
    let of = |subject: &str| rows.iter().filter(|row| row["subject"] == subject).count();
    assert_eq!((of("none"), of("mprotect-batch")), (16, 16), "{rows:?}");
    // Bare reads of the same memory are beside those that are judged by them.
    assert_eq!((of("none-limit"), rows.len()), (8, 40), "{rows:?}");
    for row in rows {
        assert!(row["ops_per_s"].as_f64().unwrap() > 0.0, "{row}");
    }
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("Figure 5") && page.contains("WR-SEQ-sz256-Q32"));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "something stayed");
    let error = lode(&["bench", "block", "--subject", "limits", "--json"]).expect(2).error_json();
    assert_eq!(error["command"], "bench block");
}

#[test]
fn what_strays_do_is_shown() {
    let report = lode(&["bench", "block", "--strays", "--json"]).expect(0).json();
    let figures = report["figures"].as_array().unwrap();
    let kept_out = |subject: &str, workload: &str| {
        let same = |one: &&serde_json::Value| {
            one["subject"] == subject && one["workload"].as_str().unwrap().starts_with(workload)
        };
        figures.iter().find(same).map(|one| one["value"].as_f64().unwrap())
    };
    assert_eq!(kept_out("none", "stray store"), Some(0.0));
    assert_eq!(kept_out("mprotect", "stray store"), Some(1.0));
    assert_eq!(kept_out("mprotect", "stray load"), Some(0.0));
    // (Where there are keys.)
    for (subject, workload, wanted) in
        [("key", "stray store", 1.0), ("key", "stray load", 0.0), ("key-rw", "stray load", 1.0)]
    {
        match kept_out(subject, workload) {
            Some(found) => assert_eq!(found, wanted, "{subject}, {workload}"),
            None => eprintln!("skipped: this machine has no protection keys"),
        }
    }
}
