//! Programs that know nothing of it, with main memory of a pool: `lode heap run`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "../../heap/preload/tests/common/library.rs"]
mod library;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::server::Server;
use common::{LODE, fsck, lode, text};
use library::library;
use rustix::process::{Pid, Signal, kill_process};

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
            // (Its first blocks are DRAM, whatever comes behind.)
            let (pool, dram) = (figure(line, "pool_touched"), figure(line, "dram_peak"));
            let dram = dram.saturating_sub(384 << 10);
            assert!(pool > 0 && pool * 10 >= (pool + dram) * 9, "{line}");
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

/// A mount lends, to whoever names its directory or its pool, and no server of its own is started.
#[test]
fn a_program_has_memory_of_a_pool_that_is_mounted() {
    let (base, pool) = pool();
    let (dir, log) = (base.path().join("mount"), base.path().join("log"));
    std::fs::create_dir(&dir).unwrap();
    let server = Server::mount(&pool, &dir, &log);
    for named in [text(&dir), text(&pool)] {
        // Behind its memory, as it is: how much the mount has lent, and that the mount goes on being one.
        let program = "import subprocess, sys
a = bytearray(64 << 20)
lent = subprocess.run(sys.argv[1:], capture_output=True, text=True)
print(lent.stdout)";
        let asks = [LODE, "heap", "stats", text(&dir), "--json"];
        let arguments = [&["--pool", named, "--", "python3", "-c", program][..], &asks].concat();
        let done = heap_run(&arguments).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let stats: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        let lent = stats["pools"][0]["lent_bytes"].as_u64().unwrap();
        assert!(lent >= 64 << 20, "{lent}");
        std::fs::write(dir.join("file"), named).unwrap();
    }
    until("all is back", || lent(&dir) == 0);
    server.umount();
    fsck(&pool).expect(0);
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

/// As behind `nohup`, or in the background of a script.
#[test]
fn what_is_ignored_stays_so_for_the_command() {
    let (_dir, pool) = pool();
    let script = "trap '' HUP INT QUIT USR1; exec \"$@\"";
    let ask = "grep SigIgn /proc/self/status; kill -HUP $PPID; kill -INT $PPID; sleep 0.3";
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120", "sh", "-c", script, "sh", LODE, "heap", "run", "--pool"]);
    command.arg(&pool).args(["--", "sh", "-c", ask]).env("LODE_HEAP_LIBRARY", library());
    let done = command.output().unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    let bits = u64::from_str_radix(said.trim().trim_start_matches("SigIgn:").trim(), 16).unwrap();
    let wanted = [1, 2, 3, 10].map(|signal| 1_u64 << (signal - 1)).iter().sum::<u64>();
    assert!(done.status.success() && bits & wanted == wanted, "{}: {said}", done.status);
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
    kill_process(Pid::from_child(&running), Signal::TERM).unwrap();
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

/// `lode heap run` of a shell's script. Killed on drop.
struct Running(Child);

impl Running {
    fn start(pool: &Path, more: &[&str], script: &str) -> Self {
        let mut command = Command::new(LODE);
        command.args(["heap", "run", "--pool", text(pool)]).args(more);
        command.args(["--", "sh", "-c", script]).env("LODE_HEAP_LIBRARY", library());
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    #[track_caller]
    fn ends(&mut self) -> Option<i32> {
        until("it has ended", || self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Programs of Python whose lines in a ledger tell of so many bytes of the pool, or more.
fn with_memory(ledger: &Path, least: u64) -> usize {
    let lines = std::fs::read_to_string(ledger.join("ledger")).unwrap_or_default();
    let touched =
        lines.lines().filter(|line| line.contains("\"program\":\"python3\"")).map(|line| {
            let rest = line.split("\"pool_touched\":").nth(1).unwrap();
            rest.split(',').next().unwrap().parse::<u64>().unwrap()
        });
    touched.filter(|bytes| *bytes >= least).count()
}

#[test]
fn the_server_that_a_command_started_stays_while_another_command_uses_it() {
    let (dir, pool) = pool();
    let file = |name: &str| dir.path().join(name);
    let waits = |up: &str, goes_on: &str| {
        let (up, goes_on) = (file(up), file(goes_on));
        format!(
            "touch {0}; while [ -e {0} -a ! -e {1} ]; do sleep 0.01; done",
            text(&up),
            text(&goes_on)
        )
    };
    let mut first = Running::start(&pool, &[], &waits("first", "end"));
    until("the first is there", || file("first").exists());
    // It has asked for no memory when the first one's command ends.
    let python = "; exec python3 -c 'a = bytearray(64 << 20)'";
    let ledger = ["--ledger", text(dir.path())];
    let mut second = Running::start(&pool, &ledger, &(waits("second", "go") + python));
    until("the second is there", || file("second").exists());
    std::fs::write(file("end"), "").unwrap();
    assert_eq!(first.ends(), Some(0), "it does not wait for the other");
    lode(&["heap", "stats", text(&pool)]).expect(0);
    std::fs::write(file("go"), "").unwrap();
    assert_eq!(second.ends(), Some(0));
    assert_eq!(with_memory(dir.path(), 64 << 20), 1);
    lode(&["heap", "stats", text(&pool)]).expect(11);
    fsck(&pool).expect(0);
}

#[test]
fn the_server_of_a_command_ends_when_its_lode_is_killed() {
    let (dir, pool) = pool();
    let (up, end) = (dir.path().join("up"), dir.path().join("end"));
    let script = format!(
        "touch {0}; while [ -e {0} -a ! -e {1} ]; do sleep 0.01; done",
        text(&up),
        text(&end)
    );
    let mut running = Running::start(&pool, &[], &script);
    until("it is there", || up.exists());
    lode(&["heap", "stats", text(&pool)]).expect(0);
    running.0.kill().unwrap();
    until("nobody serves the pool", || lode(&["heap", "stats", text(&pool)]).code == 11);
    until("the pool is closed", || lode(&["info", text(&pool)]).code == 0);
    std::fs::write(end, "").unwrap();
    fsck(&pool).expect(0);
}

/// One's server ends just when the next one comes.
#[test]
fn commands_that_come_as_a_server_ends_have_memory_of_the_next() {
    let (dir, pool) = pool();
    let turns = 6;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..turns {
                    let ledger = ["--ledger", text(dir.path())];
                    let script = "exec python3 -c 'a = bytearray(32 << 20)'";
                    assert_eq!(Running::start(&pool, &ledger, script).ends(), Some(0));
                }
            });
        }
    });
    assert_eq!(with_memory(dir.path(), 32 << 20), 2 * turns);
    fsck(&pool).expect(0);
}

/// A program of Python with memory of a mounted pool, which is talked to by lines. Killed on drop.
struct Told {
    child: Child,
    lines: Receiver<String>,
}

const DEADLINE: Duration = Duration::from_secs(60);

impl Told {
    fn start(dir: &Path, method: &str, script: &str) -> Self {
        let mut command = Command::new(LODE);
        command.args(["heap", "run", "--pool", text(dir), "--method", method, "--"]);
        command.args(["python3", "-c", script]).env("LODE_HEAP_LIBRARY", library());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).try_for_each(|it| said.send(it))
        });
        Self { child, lines }
    }

    #[track_caller]
    fn says(&self, line: &str) {
        assert_eq!(self.lines.recv_timeout(DEADLINE).as_deref(), Ok(line));
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Bytes of its anonymous memory.
    fn anonymous(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lent(dir: &Path) -> u64 {
    figure(dir, "lent_bytes")
}

fn figure(dir: &Path, key: &str) -> u64 {
    let stats = lode(&["heap", "stats", text(dir), "--json"]).expect(0).json();
    stats["pools"][0][key].as_u64().unwrap()
}

/// Bytes of the pool's file that somebody has locked.
fn locked(pool: &Path) -> u64 {
    let (file, mut bytes) = (std::fs::File::open(pool).unwrap(), 0);
    // (Locks of the region's last byte and behind it are a server's.)
    let all = 0..file.metadata().unwrap().len();
    let mut add = |part: std::ops::Range<u64>| bytes += part.end - part.start;
    lode_pmem::loan::locked_by_others(file.as_fd(), all, &mut add).unwrap();
    bytes
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const HOLDS: &str = "
import sys
blocks = [bytes([i]) * (3 << 20) for i in range(1, 9)]
def whole(): assert all(block.count(block[0]) == 3 << 20 for block in blocks)
def say(word): print(word, flush=True); sys.stdin.readline(); whole()
say('has')
blocks += [bytes([i]) * (3 << 20) for i in range(20, 30)]
say('alone')
blocks += [bytes([i]) * (3 << 20) for i in range(40, 50)]
say('again')
blocks.clear()
";

#[test]
fn what_a_killed_process_had_is_back_and_locked_no_more() {
    let (dir, pool) = pool();
    let (mount, log) = (dir.path().join("mnt"), dir.path().join("log"));
    std::fs::create_dir(&mount).unwrap();
    let server = Server::mount(&pool, &mount, &log);
    for method in ["direct", "indirect", "mmap"] {
        let before = locked(&pool);
        let mut program = Told::start(&mount, method, HOLDS);
        program.says("has");
        let had = lent(&mount);
        assert!(had >= 24 << 20, "{method}: {had}");
        assert_eq!(locked(&pool) - before, had, "{method}");
        program.child.kill().unwrap();
        assert_eq!(program.child.wait().unwrap().signal(), Some(9));
        until("it is back", || lent(&mount) == 0);
        assert_eq!(locked(&pool), before, "{method}");
    }
    server.umount();
    fsck(&pool).expect(0);
}

#[test]
fn a_program_outlives_its_owner_has_dram_and_then_memory_of_the_next() {
    let (dir, pool) = pool();
    let (mount, log) = (dir.path().join("mnt"), dir.path().join("log"));
    std::fs::create_dir(&mount).unwrap();
    for method in ["direct", "indirect", "mmap"] {
        let server = Server::mount(&pool, &mount, &log);
        let mut program = Told::start(&mount, method, HOLDS);
        program.says("has");
        let (had, anonymous) = (lent(&mount), program.anonymous());
        assert!(had >= 24 << 20, "{method}: {had}");
        server.kill();
        program.go_on();
        program.says("alone");
        assert!(program.anonymous() >= anonymous + (30 << 20), "{method}: from DRAM");
        // The next one has files, which take all that there is.
        let server = Server::mount_with(&pool, &mount, &log, "heap_reserve=0");
        assert_eq!(lent(&mount), had, "{method}");
        let file = mount.join("file");
        let full = std::fs::write(&file, vec![0xee; 600 << 20]).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
        std::fs::remove_file(&file).unwrap();
        let anonymous = program.anonymous();
        program.go_on();
        program.says("again");
        assert!(lent(&mount) >= had + (30 << 20), "{method}: of the new owner's");
        assert!(program.anonymous() < anonymous + (8 << 20), "{method}");
        program.go_on();
        until("it has ended", || lent(&mount) == 0);
        assert!(program.child.wait().unwrap().success(), "{method}");
        server.umount();
        fsck(&pool).expect(0);
    }
}

/// Has 18 blocks of 16 MiB, and then one; again and again, until there is no memory.
const FREES: &str = "
import sys
def say(word): print(word, flush=True); sys.stdin.readline(); assert blocks[0].count(7) == 16 << 20
try:
    while True:
        blocks = [bytes([7]) * (16 << 20) for _ in range(18)]
        say('has')
        del blocks[1:]
        say('freed')
except MemoryError:
    say('no memory')
";

#[test]
fn files_that_fill_the_pool_get_what_a_program_holds_unused_before_there_is_no_space() {
    let (dir, pool) = pool();
    let (mount, log) = (dir.path().join("mnt"), dir.path().join("log"));
    std::fs::create_dir(&mount).unwrap();
    let (file, more) = (mount.join("file"), mount.join("more"));
    for method in ["direct", "indirect", "mmap"] {
        let server = Server::mount_with(&pool, &mount, &log, "heap_reserve=0");
        let mut program = Told::start(&mount, method, FREES);
        let mut turns = 1..=20;
        loop {
            assert!(turns.next().is_some(), "{method}: all went back before it was wished for");
            program.says("has");
            assert!(lent(&mount) >= 288 << 20, "{method}: {}", lent(&mount));
            program.go_on();
            program.says("freed");
            // What is freed goes back by itself, too, where the file takes its time.
            let wishes = figure(&mount, "wishes");
            std::fs::write(&file, vec![0xee; 420 << 20]).unwrap();
            if figure(&mount, "wishes") > wishes {
                break;
            }
            std::fs::remove_file(&file).unwrap();
            program.go_on();
        }
        // There is no space when the program has nothing but what it uses, and files have the rest.
        let full = std::fs::write(&more, vec![0xdd; 100 << 20]).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
        assert!((16 << 20..40 << 20).contains(&lent(&mount)), "{method}: {}", lent(&mount));
        let (stored, left) = (more.metadata().unwrap().len(), rustix::fs::statvfs(&mount).unwrap());
        assert!(stored >= 10 << 20, "{method}: {stored}");
        assert!(left.f_bavail * left.f_frsize < 4 << 20, "{method}: {} left", left.f_bavail);
        program.go_on();
        program.says("no memory");
        program.go_on();
        until("it has ended", || lent(&mount) == 0);
        assert!(program.child.wait().unwrap().success(), "{method}");
        let bytes = std::fs::read(&file).unwrap();
        assert!(bytes.len() == 420 << 20 && bytes.iter().all(|byte| *byte == 0xee), "{method}");
        [&file, &more].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
        server.umount();
        fsck(&pool).expect(0);
    }
}

/// The state of a process, and the number of the system call that its first thread is in.
fn state(pid: u32) -> (char, Option<u32>) {
    let of = |what| std::fs::read_to_string(format!("/proc/{pid}/{what}")).unwrap();
    let state = of("stat").rsplit_once(") ").unwrap().1.chars().next().unwrap();
    (state, of("syscall").split(' ').next().unwrap().parse().ok())
}

#[test]
fn what_a_stopped_program_is_granted_is_its_own_when_the_owner_is_killed_before_it_goes_on() {
    const PPOLL: u32 = 271;
    let (dir, pool) = pool();
    let (mount, log) = (dir.path().join("mnt"), dir.path().join("log"));
    std::fs::create_dir(&mount).unwrap();
    // (Besides what it is granted then, there may be none.)
    let more = "try:\n    for i in range(20, 30): blocks.append(bytes([i]) * (3 << 20))\nexcept MemoryError: pass\n";
    let script = HOLDS.replace("blocks += [bytes([i]) * (3 << 20) for i in range(20, 30)]\n", more);
    for method in ["direct", "indirect", "mmap"] {
        let server = Server::mount(&pool, &mount, &log);
        let mut program = Told::start(&mount, method, &script);
        program.says("has");
        let (granted, pid) = (figure(&mount, "granted_bytes"), program.child.id());
        // It has asked, and is stopped before it is answered.
        server.freeze();
        program.go_on();
        until("it asks", || state(pid).1 == Some(PPOLL));
        kill_process(Pid::from_child(&program.child), Signal::STOP).unwrap();
        until("it is stopped", || state(pid).0 == 'T');
        server.thaw();
        // (What is counted as granted is locked for it.)
        until("it is answered", || figure(&mount, "granted_bytes") > granted);
        let has = lent(&mount);
        server.kill();
        // The next owner's files take all that there is.
        let server = Server::mount_with(&pool, &mount, &log, "heap_reserve=0");
        assert_eq!(lent(&mount), has, "{method}");
        let file = mount.join("file");
        std::fs::write(&file, vec![0xee; 600 << 20]).unwrap_err();
        kill_process(Pid::from_child(&program.child), Signal::CONT).unwrap();
        program.says("alone");
        // (Read from the pool, not from what the system keeps of it.)
        server.umount();
        fsck(&pool).expect(0);
        let server = Server::mount(&pool, &mount, &log);
        let bytes = std::fs::read(&file).unwrap();
        assert!(bytes.len() > 400 << 20 && bytes.iter().all(|byte| *byte == 0xee), "{method}");
        std::fs::remove_file(&file).unwrap();
        program.go_on();
        program.says("again");
        program.go_on();
        until("it has ended", || lent(&mount) == 0);
        assert!(program.child.wait().unwrap().success(), "{method}");
        server.umount();
        fsck(&pool).expect(0);
    }
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
        let least = if workload.starts_with("build") { 3 } else { 5 };
        assert!(row["repetitions"].as_u64() >= Some(least), "{row}");
        assert!(row["ns_per_op"].as_f64().unwrap() > 1.0 && row["mode"] == "heap", "{row}");
    };
    let subjects =
        "anonymous direct direct-ready direct-bare indirect mmap bitmap bitmap-64".split(' ');
    let is_root = rustix::process::geteuid().is_root();
    for workload in ["touch-4k", "touch-2m"].iter().filter(|one| is_root || **one == "touch-4k") {
        subjects.clone().for_each(|subject| has(workload, subject));
    }
    for method in ["direct", "indirect", "mmap"] {
        for ns in [150, 1000] {
            has("touch-4k", &format!("{method}-{ns}ns"));
        }
        for workload in ["build", "build-compile", "build-link"] {
            has(workload, "malloc");
            has(workload, method);
        }
    }
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
