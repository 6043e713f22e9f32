//! Programs that know nothing of it, with main memory of a pool: `lode heap run`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use common::{LODE, fsck, lode, text};

/// The library that programs get: built here, since nothing that is linked needs it.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--quiet",
            "--offline",
            "--profile",
            "test",
            "--package",
            "lode-preload",
        ]);
        let done = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Path::new(LODE).with_file_name("liblode_malloc.so")
    })
}

/// `lode heap run` of a command, ended after two minutes.
fn heap_run(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120", LODE, "heap", "run"]).args(arguments);
    command.env("LODE_HEAP_LIBRARY", library()).stdin(Stdio::null());
    command
}

/// A pool in memory, in a directory of its own.
fn pool() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = dir.path().join("pool");
    lode(&["mkfs", "--size", "512M", text(&pool)]).expect(0);
    (dir, pool)
}

#[test]
fn real_programs_give_the_same_results_by_each_method() {
    let (dir, pool) = pool();
    let numbers: String =
        (0..200_000_u32).map(|i| format!("{}\n", i.wrapping_mul(2_654_435_761))).collect();
    std::fs::write(dir.path().join("numbers"), numbers).unwrap();
    std::fs::write(dir.path().join("a.c"), "int f(int x) { return x * 3; }\n").unwrap();
    let script = "
        for i in 1 2 3; do echo $(echo $i | sed s/2/x/); done
        sort -n numbers | md5sum
        python3 -c 'import json; d = {i: str(i) * 20 for i in range(100000)}; print(len(json.dumps(d)))'
        sqlite3 :memory: 'with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000)
            select count(*), sum(length(t)) from (select hex(i * 7) as t from n order by t)'
        gcc -O2 -S -o - a.c";
    let run = |mut command: Command| {
        let done = command.args(["sh", "-c", script]).current_dir(dir.path()).output().unwrap();
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && error.is_empty(), "{}: {error}", done.status);
        String::from_utf8(done.stdout).unwrap()
    };
    let plain = run(Command::new("env"));
    for method in ["direct", "indirect", "mmap"] {
        let ledger = dir.path().join(method);
        std::fs::create_dir(&ledger).unwrap();
        let arguments =
            ["--pool", text(&pool), "--method", method, "--ledger", text(&ledger), "--"];
        assert_eq!(run(heap_run(&arguments)), plain, "{method}");
        let lines = std::fs::read_to_string(ledger.join("ledger")).unwrap();
        let figure = |line: &str, key: &str| -> u64 {
            let rest = line.split(&format!("\"{key}\":")).nth(1).unwrap();
            rest.split(',').next().unwrap().parse().unwrap()
        };
        for program in ["sort", "python3", "sqlite3", "cc1"] {
            let named = format!("\"program\":\"{program}\"");
            let line = lines.lines().find(|line| line.contains(&named)).expect(program);
            let (pool, dram) = (figure(line, "pool_touched"), figure(line, "dram_peak"));
            assert!(pool * 10 >= (pool + dram) * 9, "{line}");
        }
        // Its server has ended, and nothing is lent any more.
        lode(&["heap", "stats", text(&pool)]).expect(11);
        fsck(&pool).expect(0);
    }
}

#[test]
fn mappings_are_taken_from_the_size_that_is_said() {
    let (dir, pool) = pool();
    let dram = |from: &[&str], name: &str| -> u64 {
        let ledger = dir.path().join(name);
        std::fs::create_dir(&ledger).unwrap();
        let rest = ["--ledger", text(&ledger), "--", "python3", "-c"];
        let program = "a = [str(i) for i in range(300000)]";
        let arguments = [&["--pool", text(&pool)], from, &rest, &[program]].concat();
        assert!(heap_run(&arguments).status().unwrap().success());
        // (What is found first by this name may be a script that starts it.)
        let lines = std::fs::read_to_string(ledger.join("ledger")).unwrap();
        let figures = lines.split("\"dram_peak\":").skip(1);
        figures.map(|rest| rest.split(',').next().unwrap().parse().unwrap()).max().unwrap()
    };
    let least = 10 << 20;
    assert!(dram(&[], "default") < least);
    assert!(dram(&["--map-from", "none"], "none") > least);
    assert!(dram(&["--map-from", "1G"], "large") > least);
    assert!(dram(&["--map-from", "4K"], "small") < least);
    let done = heap_run(&["--pool", text(&pool), "--map-from", "much", "--", "true"]).output();
    assert!(!done.unwrap().status.success());
}

#[test]
fn exit_codes_are_the_commands() {
    let (_dir, pool) = pool();
    let code = |rest: &[&str]| {
        let done = heap_run(&[&["--pool", text(&pool), "--"], rest].concat()).output().unwrap();
        done.status.code().or(done.status.signal().map(|signal| 128 + signal)).unwrap()
    };
    assert_eq!(code(&["sh", "-c", "exit 7"]), 7);
    assert_eq!(code(&["sh", "-c", "kill -9 $$"]), 137);
    assert_eq!(code(&["/nonexistent"]), 127);
    assert_eq!(code(&["/etc/passwd"]), 126);
    let done = heap_run(&["--pool", "/nonexistent", "--", "true"]).output().unwrap();
    assert_eq!(done.status.code(), Some(125));
}

#[test]
fn signals_are_passed_on_and_children_keep_the_server() {
    let (dir, pool) = pool();
    let ready = dir.path().join("ready");
    // The command leaves a child behind that has memory; it ends when the file is gone.
    let script = format!(
        "python3 -c 'import os, time\na = bytearray(20 << 20)\nopen(\"{0}\", \"w\")\nwhile os.path.exists(\"{0}\"): time.sleep(0.01)\nassert not any(a)' &
        trap 'exit 9' TERM; while :; do sleep 0.01; done",
        text(&ready)
    );
    let mut command = Command::new(LODE);
    command.args(["heap", "run", "--pool", text(&pool), "--", "sh", "-c", &script]);
    let mut running = command.env("LODE_HEAP_LIBRARY", library()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let wait = |what: &str| {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    };
    while !ready.exists() {
        wait("the child is there");
    }
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&running),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(running.try_wait().unwrap().is_none(), "its child has memory still");
    lode(&["heap", "stats", text(&pool)]).expect(0);
    std::fs::remove_file(&ready).unwrap();
    let status = loop {
        if let Some(status) = running.try_wait().unwrap() {
            break status;
        }
        wait("it has ended");
    };
    assert_eq!(status.code(), Some(9));
    lode(&["heap", "stats", text(&pool)]).expect(11);
}

/// The smallest run there is: what it says is not judged here, but that it says it.
#[test]
fn a_measurement_has_its_rows_and_targets_and_nothing_of_it_stays() {
    let scratch = tempfile::tempdir_in("/dev/shm").unwrap();
    let (dir, page) = (scratch.path().join("run"), scratch.path().join("page.html"));
    std::fs::create_dir(&dir).unwrap();
    let mut command = Command::new("timeout");
    command.args(["-s", "TERM", "-k", "30", "180", LODE, "bench", "heap", "--quick", "--json"]);
    command.args(["--bytes", "16M", "--dir", text(&dir), "--html", text(&page)]);
    let done = command.env("LODE_HEAP_LIBRARY", library()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["command"], "bench heap");
    let all = |key: &str| report[key].as_array().unwrap().clone();
    let rows = all("rows");
    let has = |workload: &str, subject: &str| {
        let of =
            |row: &&serde_json::Value| row["workload"] == workload && row["subject"] == subject;
        let row =
            rows.iter().find(of).unwrap_or_else(|| panic!("{workload}, {subject}: {report:#}"));
        let least = if workload == "build" { 3 } else { 5 };
        assert!(row["repetitions"].as_u64() >= Some(least), "{row}");
        assert!(row["ns_per_op"].as_f64().unwrap() > 1.0 && row["mode"] == "heap", "{row}");
    };
    let subjects =
        ["anonymous", "direct", "direct-ready", "direct-bare", "indirect", "mmap", "bitmap"];
    let is_root = rustix::process::geteuid().is_root();
    for workload in ["touch-4k", "touch-2m"].iter().filter(|one| is_root || **one == "touch-4k") {
        subjects.iter().for_each(|subject| has(workload, subject));
    }
    ["direct-150ns", "direct-1000ns"].iter().for_each(|subject| has("touch-4k", subject));
    ["malloc", "direct", "indirect", "mmap"].iter().for_each(|subject| has("build", subject));
    let targets: Vec<_> = all("targets").iter().map(|one| one["what"].clone()).collect();
    for what in [
        "direct, touch-4k",
        "direct-ready, touch-4k",
        "indirect, touch-4k",
        "mmap, touch-4k",
        "swap, touch-4k",
        "direct, build",
        "indirect, build",
        "mmap, build",
    ] {
        assert!(targets.contains(&what.into()), "{what}: {targets:?}");
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("Main memory from a pool"));
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(text(&dir)), "{mounts}");
    // None of its servers is left.
    let shown = lode(&["heap", "stats", "--json"]).expect(0).out;
    assert!(!shown.contains(text(&dir)), "{shown}");
}

#[test]
fn words_that_mean_nothing_to_a_measurement_are_told() {
    for args in [&["--quick", "somewhere"][..], &["--bytes", "many"], &["--subject", "direct"]] {
        let all: Vec<&str> = ["bench", "heap", "--json"].iter().chain(args).copied().collect();
        let error = lode(&all).expect(2).error_json();
        assert_eq!(error["command"], "bench heap", "{error}");
    }
    assert!(lode(&["bench", "heap", "--child", "touch"]).expect(1).err.contains("mean nothing"));
}
