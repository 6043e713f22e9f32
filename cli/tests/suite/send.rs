//! `lode send` and `lode receive` through pipes and files: whole snapshots, differences, cut off, killed at random,
//! refused; until the end the pool is what it was.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::random::{Random, seed};
use crate::common::server::Server;
use crate::common::{LODE, Ran, Scratch, fsck, lode, text};
use lode_engine::{AccessTimes, NewInode, OpenOptions, Pool, mode};
use lode_host::StdHost;
use lode_pmem::{Mapped, RegionOptions};
use lode_testkit::execute::{Handles, execute};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::Op;
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot_from};

type MappedPool = Pool<Mapped, StdHost>;

/// Opens a pool in this process.
fn open(path: &Path, read_only: bool) -> MappedPool {
    let region = RegionOptions { read_only, ..RegionOptions::new() };
    let region = Mapped::open(path, &region).unwrap();
    let options = OpenOptions { read_only, atime: AccessTimes::Never, ..OpenOptions::default() };
    Pool::open(region, StdHost::new(), &options).unwrap()
}

/// A tree, as far as it is sent.
fn tree(pool: &MappedPool, root: u64) -> Snapshot {
    let mut tree = snapshot_from(pool, root, Times::ALL, None).unwrap();
    for seen in tree.0.values_mut() {
        (seen.times[2], seen.times[3]) = (None, None);
    }
    tree
}

/// What a snapshot has, or what there is.
fn tree_in(path: &Path, name: Option<&str>) -> Snapshot {
    let pool = open(path, true);
    let root = name.map_or(pool.root(), |name| pool.snapshot_root(name.as_bytes()).unwrap());
    tree(&pool, root)
}

#[track_caller]
fn same(one: &Snapshot, other: &Snapshot) {
    assert_eq!(difference(one, other), None);
}

/// Random work in a pool, and a file of some MiB.
fn work(path: &Path, seed: u64, snapshot: &str) {
    let pool = open(path, false);
    let (mut generator, mut handles) = (Generator::new(seed, Shape::default()), Handles::new());
    for _ in 0..400 {
        let op = generator.op();
        if !matches!(op, Op::Remount | Op::Crash) {
            let _ = execute(&pool, &mut handles, &op);
        }
    }
    let new = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
    let name = format!("large{seed}");
    let ino = pool.create(pool.root(), name.as_bytes(), &new).unwrap().ino;
    let bytes: Vec<u8> =
        (0..3 << 20).map(|at: u32| (at.wrapping_mul(seed as u32) >> 5) as u8).collect();
    pool.write(ino, 4096, &bytes).unwrap();
    drop(handles);
    pool.close().unwrap();
    drop(pool);
    lode(&["snapshot", "create", text(path), snapshot]).expect(0);
}

/// Writes a stream to a file.
fn send_to(file: &Path, args: &[&str]) -> Ran {
    let out = File::create(file).unwrap();
    let mut command = Command::new(LODE);
    command.arg("send").args(args).stdin(Stdio::null()).stdout(out);
    ended(command.output().unwrap())
}

fn ended(done: std::process::Output) -> Ran {
    let line = "lode".to_owned();
    let code = done.status.code().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { line, code, out: text(done.stdout), err: text(done.stderr) }
}

/// Starts receiving a file from an offset on.
fn receiver(pool: &Path, file: &Path, from: u64, more: &[&str]) -> Command {
    let mut stream = File::open(file).unwrap();
    stream.seek(SeekFrom::Start(from)).unwrap();
    let mut command = Command::new(LODE);
    command.args(["receive", text(pool)]).args(more).stdin(stream);
    command
}

fn receive(pool: &Path, file: &Path, from: u64, more: &[&str]) -> Ran {
    ended(receiver(pool, file, from, more).output().unwrap())
}

/// Where the stream goes on; `None` if nothing is being received.
fn offset(pool: &Path) -> Option<u64> {
    let status = lode(&["receive", "--status", text(pool), "--json"]).expect(0).json();
    assert_eq!(status["command"], "receive");
    match status["state"].as_str().unwrap() {
        "receiving" => status["offset"].as_u64(),
        "idle" => None,
        other => panic!("{other}"),
    }
}

/// A pool with snapshots `a` and `b`, and their streams, whole and as a difference.
fn sent(scratch: &Scratch) -> (PathBuf, PathBuf, PathBuf) {
    let pool = scratch.pool("from", "64M");
    work(&pool, 3, "a");
    work(&pool, 4, "b");
    let (whole, since) = (scratch.path("whole"), scratch.path("since"));
    send_to(&whole, &[text(&pool), "a"]).expect(0);
    send_to(&since, &[text(&pool), "b", "--since", "a"]).expect(0);
    (pool, whole, since)
}

#[test]
fn through_a_pipe_and_on_to_the_next_pool() {
    let scratch = Scratch::new();
    let (from, ..) = sent(&scratch);
    let to = scratch.path("to");
    lode(&["mkfs", text(&to), "--size", "48M", "--protect", "metadata"]).expect(0);
    let onward = scratch.path("onward");
    lode(&["mkfs", text(&onward), "--size", "64M", "--protect", "full"]).expect(0);
    for (source, target) in [(&from, &to), (&to, &onward)] {
        for args in [&["a"][..], &["b", "--since", "a"]] {
            let mut send = Command::new(LODE)
                .args(["send", text(source), "--json"])
                .args(args)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let stream = send.stdout.take().unwrap();
            let mut receive = Command::new(LODE);
            receive.args(["receive", text(target), "--json"]).stdin(stream);
            let received = ended(receive.output().unwrap()).expect(0).json();
            assert_eq!(
                (&received["state"], &received["name"]),
                (&"received".into(), &args[0].into())
            );
            let sent = ended(send.wait_with_output().unwrap()).expect(0);
            let sent: serde_json::Value = serde_json::from_str(&sent.err).unwrap();
            assert_eq!((&sent["name"], &sent["from"]), (&args[0].into(), &0.into()));
            assert!(sent["bytes"].as_u64().unwrap() > 1000);
        }
        for name in ["a", "b"] {
            same(&tree_in(&from, Some(name)), &tree_in(target, Some(name)));
        }
        same(&tree_in(&from, None), &tree_in(target, None));
        fsck(target).expect(0);
    }
}

#[test]
fn cut_off_and_gone_on_with() {
    let scratch = Scratch::new();
    let (from, whole, since) = sent(&scratch);
    let (to, part) = (scratch.pool("to", "64M"), scratch.path("part"));
    let mut random = Random::new(5);
    for (stream, name, args) in [(&whole, "a", &["a"][..]), (&since, "b", &["b", "--since", "a"])] {
        let bytes = fs::read(stream).unwrap();
        let before = tree_in(&to, None);
        let mut end = 0;
        while end < bytes.len() {
            end = (end + 1 + random.below(700_000) as usize).min(bytes.len());
            let at = offset(&to).unwrap_or(0);
            // Made again each time, from where it goes on.
            let at_text = at.to_string();
            send_to(&part, &[&[text(&from)], args, &["--from", &at_text]].concat()).expect(0);
            let made = fs::read(&part).unwrap();
            assert!(made == bytes[at as usize..], "another stream the second time, from {at}");
            fs::write(&part, &made[..end - at as usize]).unwrap();
            let ran = receive(&to, &part, 0, &[]);
            if end == bytes.len() {
                ran.expect(0);
                break;
            }
            let ran = ran.expect(1);
            let noted = offset(&to);
            let told = noted.map_or("from its beginning".to_owned(), |at| format!("--from {at}"));
            assert!(ran.err.contains(&told), "{}", ran.err);
            same(&before, &tree_in(&to, None));
        }
        assert_eq!(offset(&to), None);
        same(&tree_in(&from, Some(name)), &tree_in(&to, None));
    }
    let end = fs::metadata(&whole).unwrap().len() + 1;
    let ran = send_to(&part, &[text(&from), "a", "--from", &end.to_string()]).expect(2);
    assert!(ran.err.contains("can't begin"), "{}", ran.err);
}

#[test]
fn streams_behind_each_other_and_nothing_else() {
    let scratch = Scratch::new();
    let (from, whole, since) = sent(&scratch);
    let (to, all) = (scratch.pool("to", "64M"), scratch.path("all"));
    let both = [fs::read(&whole).unwrap(), fs::read(&since).unwrap()].concat();
    // The second time they are there already.
    for _ in 0..2 {
        fs::write(&all, &both).unwrap();
        receive(&to, &all, 0, &[]).expect(0);
        same(&tree_in(&from, Some("b")), &tree_in(&to, None));
        same(&tree_in(&from, Some("a")), &tree_in(&to, Some("a")));
        fs::write(&all, [&both[..], b"more"].concat()).unwrap();
        refused(receive(&to, &all, 0, &[]), 1, "behind the end");
    }
    fs::write(&all, &both[..both.len() - 1]).unwrap();
    refused(receive(&to, &all, 0, &[]), 1, "too early");
    // Where nothing comes, it is said where to go on.
    let half = scratch.pool("half", "64M");
    fs::write(&all, &both[..300_000]).unwrap();
    refused(receive(&half, &all, 0, &[]), 1, "too early");
    let at = offset(&half).unwrap();
    refused(receive(&half, Path::new("/dev/null"), 0, &[]), 1, &format!("--from {at}"));
}

#[test]
fn killed_at_random_and_gone_on_with() {
    let seed = seed("receivers killed");
    let mut random = Random::new(seed);
    for level in ["none", "metadata", "full"] {
        killed_at_random(level, &mut random, seed);
    }
}

fn killed_at_random(level: &str, random: &mut Random, seed: u64) {
    let scratch = Scratch::new();
    let (from, whole, since) = sent(&scratch);
    let to = scratch.path("to");
    lode(&["mkfs", text(&to), "--size", "64M", "--protect", level]).expect(0);
    let began = Instant::now();
    let (mut kills, mut in_the_middle) = (0, 0);
    for (stream, name) in [(&whole, "a"), (&since, "b")] {
        let before = tree_in(&to, None);
        let after = tree_in(&from, Some(name));
        let bytes = fs::read(stream).unwrap();
        let mut left = 40;
        loop {
            // From where it goes on, or all again; the last time to the end.
            let at = if random.below(3) == 0 { 0 } else { offset(&to).unwrap_or(0) };
            if left == 0 || began.elapsed() > Duration::from_secs(30) {
                receive(&to, stream, at, &[]).expect(0);
                break;
            }
            let mut child = Command::new(LODE)
                .args(["receive", text(&to)])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let rest = &bytes[at as usize..];
            let part = random.below(rest.len().min(400_000) as u64 + 1) as usize;
            // (It may have come to the end, and be gone.)
            let _ = child.stdin.as_mut().unwrap().write_all(&rest[..part]);
            std::thread::sleep(Duration::from_micros(random.below(4_000)));
            child.kill().unwrap();
            child.wait().unwrap();
            (left, kills) = (left - 1, kills + 1);
            let found = tree_in(&to, None);
            match offset(&to) {
                Some(at) => {
                    in_the_middle += u64::from(at > 0);
                    same(&before, &found);
                }
                None if difference(&before, &found).is_some() => {
                    same(&after, &found);
                    break;
                }
                None => {}
            }
            if random.below(8) == 0 {
                fsck(&to).expect(0);
            }
            if random.below(12) == 0 && offset(&to).is_some() {
                lode(&["receive", "--abandon", text(&to)]).expect(0);
                assert_eq!(offset(&to), None);
                same(&before, &tree_in(&to, None));
            }
        }
        same(&after, &tree_in(&to, None));
        same(&after, &tree_in(&to, Some(name)));
        fsck(&to).expect(0);
        lode(&["scrub", text(&to)]).expect(0);
        // Once more is no more.
        let again = receive(&to, stream, 0, &["--json"]).expect(0).json();
        assert_eq!(again["state"], "there");
    }
    println!("{level}: {kills} kills, {in_the_middle} of them in the middle of a stream");
    assert!(in_the_middle > 3, "seed {seed}: {in_the_middle} of {kills} kills hit something");
}

/// Fails, with a code and words in what it says.
#[track_caller]
fn refused(ran: Ran, code: i32, words: &str) {
    let ran = ran.expect(code);
    assert!(ran.err.contains(words) && ran.err.contains("what to do"), "{}", ran.err);
}

#[test]
fn half_of_it_is_seen_by_nobody() {
    let scratch = Scratch::new();
    let (from, whole, since) = sent(&scratch);
    let (to, part, dir) = (scratch.pool("to", "64M"), scratch.path("part"), scratch.dir("mnt"));
    receive(&to, &whole, 0, &[]).expect(0);
    let bytes = fs::read(&since).unwrap();
    fs::write(&part, &bytes[..bytes.len() / 2]).unwrap();
    refused(receive(&to, &part, 0, &[]), 1, "ends too early");
    let before = tree_in(&from, Some("a"));
    same(&before, &tree_in(&to, None));
    // Who would write to it is told what to do.
    for args in [
        &["mount", text(&to), text(&dir)][..],
        &["snapshot", "create", text(&to), "x"],
        &["snapshot", "rollback", text(&to), "a"],
        &["label", text(&to), "x"],
        &["protect", text(&to), "metadata"],
        &["resize", text(&to), "--size", "80M"],
    ] {
        let ran = lode(args);
        assert!(ran.err.contains("lode receive --abandon"), "{args:?}: {}", ran.err);
        assert_eq!(ran.code, 6, "{args:?}: {}", ran.err);
    }
    refused(receive(&to, &whole, 0, &[]), 6, "another stream");
    let info = lode(&["info", text(&to), "--json"]).expect(0).json();
    assert_eq!(info["receiving"]["name"], "b");
    assert_eq!(info["receiving"]["offset"].as_u64(), offset(&to));
    assert!(lode(&["info", text(&to)]).expect(0).out.contains("receiving"));
    fsck(&to).expect(0);
    lode(&["fsck", "-p", text(&to)]).expect(0);
    assert!(offset(&to).is_some());
    // Read-only it is mounted as it was.
    lode(&["mount", "-o", "ro", text(&to), text(&dir)]).expect(0);
    let ran = receive(&to, &since, 0, &[]);
    assert_eq!(ran.code, 6, "{}", ran.err);
    let names = fs::read_dir(&dir).unwrap().count();
    let root = |path: &lode_testkit::op::Path| path.0.len() == 1;
    assert_eq!(names, before.0.keys().filter(|path| root(path)).count());
    lode(&["umount", text(&dir)]).expect(0);
    let abandoned = lode(&["receive", "--abandon", text(&to), "--json"]).expect(0).json();
    assert_eq!((&abandoned["state"], &abandoned["name"]), (&"abandoned".into(), &"b".into()));
    refused_without_advice(lode(&["receive", "--abandon", text(&to)]), 8);
    same(&before, &tree_in(&to, None));
    receive(&to, &since, 0, &[]).expect(0);
    same(&tree_in(&from, Some("b")), &tree_in(&to, None));
}

#[track_caller]
fn refused_without_advice(ran: Ran, code: i32) {
    let ran = ran.expect(code);
    assert!(ran.err.contains("nothing is being received"), "{}", ran.err);
}

#[test]
fn what_does_not_fit_is_refused_unless_forced() {
    let scratch = Scratch::new();
    let (from, whole, since) = sent(&scratch);
    let (to, part) = (scratch.pool("to", "64M"), scratch.path("part"));
    refused(receive(&to, &since, 0, &[]), 8, "does not have");
    fs::write(&part, "no stream, and long enough to look at").unwrap();
    refused(receive(&to, &part, 0, &[]), 1, "not a stream");
    refused(receive(&to, Path::new("/dev/null"), 0, &[]), 1, "ends too early");
    let mut odd = fs::read(&whole).unwrap();
    let middle = odd.len() / 2;
    odd[middle] ^= 1;
    fs::write(&part, &odd).unwrap();
    refused(receive(&to, &part, 0, &[]), 1, "damaged");
    receive(&to, &whole, offset(&to).unwrap(), &[]).expect(0);
    refused(send_to(&part, &[text(&from), "c"]), 8, "no snapshot c");
    refused(send_to(&part, &[text(&from), "b", "--since", "c"]), 8, "no snapshot c");
    // Changed since: refused, or lost.
    work(&to, 9, "its-own");
    refused(receive(&to, &since, 0, &[]), 10, "changed since snapshot a");
    receive(&to, &since, 0, &["--force"]).expect(0);
    same(&tree_in(&from, Some("b")), &tree_in(&to, None));
    // Not empty: refused, or replaced.
    let other = scratch.pool("other", "64M");
    work(&other, 11, "x");
    send_to(&part, &[text(&other), "x"]).expect(0);
    refused(receive(&to, &part, 0, &[]), 10, "not empty");
    receive(&to, &part, 0, &["--force"]).expect(0);
    same(&tree_in(&other, None), &tree_in(&to, None));
    same(&tree_in(&from, Some("b")), &tree_in(&to, Some("b")));
    // A pool that is too small keeps what it had.
    let small = scratch.pool("small", "2M");
    refused(receive(&small, &whole, 0, &[]), 7, "space");
    lode(&["receive", "--abandon", text(&small)]).expect(0);
    assert_eq!(tree_in(&small, None).0.len(), 1);
    fsck(&small).expect(0);
}

#[test]
fn who_reads_no_more_and_who_writes_no_more_end_it_cleanly() {
    let scratch = Scratch::new();
    let (from, whole, _) = sent(&scratch);
    let mut send = Command::new(LODE)
        .args(["send", text(&from), "a"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stream = send.stdout.take().unwrap();
    stream.read_exact(&mut [0; 10_000]).unwrap();
    drop(stream);
    refused(ended(send.wait_with_output().unwrap()), 1, "nobody reads");
    // A receiver that is told to end, while its stream stays open.
    let to = scratch.pool("to", "64M");
    let mut receive = Command::new(LODE)
        .args(["receive", text(&to)])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = fs::read(&whole).unwrap();
    let mut input = receive.stdin.take().unwrap();
    input.write_all(&bytes[..bytes.len() / 2]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let pid = rustix::process::Pid::from_child(&receive);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut said = String::new();
    receive.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(receive.wait().unwrap().code(), Some(1), "{said}");
    drop(input);
    let at = offset(&to).unwrap();
    assert!(said.contains("interrupted") && said.contains(&format!("--from {at}")), "{said}");
    // It was closed: nothing is to be recovered but what is looked back to.
    lode(&["fsck", "-n", text(&to)]).expect(0);
}

#[test]
fn a_mounted_pool_sends_and_is_not_received_into() {
    let scratch = Scratch::new();
    let (from, whole, since) = sent(&scratch);
    let (dir, part) = (scratch.dir("from-mnt"), scratch.path("part"));
    let server = Server::mount(&from, &dir, &scratch.path("log"));
    server.run_with(|| {
        // By its directory and by its name, in use, and from the middle on: the same bytes.
        for target in [text(&dir), text(&from)] {
            send_to(&part, &[target, "a"]).expect(0);
            assert!(fs::read(&part).unwrap() == fs::read(&whole).unwrap());
            fs::write(dir.join("new"), vec![7; 1 << 20]).unwrap();
            send_to(&part, &[target, "b", "--since", "a", "--from", "5000"]).expect(0);
            assert!(fs::read(&part).unwrap() == fs::read(&since).unwrap()[5000..]);
        }
        refused(send_to(&part, &[text(&dir), "c"]), 8, "no snapshot c");
        refused(send_to(&part, &[text(&dir), "a", "--since", "c"]), 8, "no snapshot c");
    });
    // Who reads slowly gets it, too.
    let server = Server::mount(&from, &dir, &scratch.path("log"));
    server.run_with(|| {
        let mut send = Command::new(LODE)
            .args(["send", text(&dir), "a"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stream, mut bytes) = (send.stdout.take().unwrap(), vec![0; 200_000]);
        stream.read_exact(&mut bytes).unwrap();
        // (Longer than a server waits for the next question of a connection.)
        std::thread::sleep(Duration::from_secs(12));
        stream.read_to_end(&mut bytes).unwrap();
        ended(send.wait_with_output().unwrap()).expect(0);
        assert!(bytes == fs::read(&whole).unwrap());
        // What is deleted meanwhile is told.
        let mut send = Command::new(LODE)
            .args(["send", text(&dir), "b", "--since", "a"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stream = send.stdout.take().unwrap();
        stream.read_exact(&mut bytes[..100_000]).unwrap();
        lode(&["snapshot", "delete", text(&dir), "a"]).expect(0);
        stream.read_to_end(&mut Vec::new()).unwrap();
        refused(ended(send.wait_with_output().unwrap()), 8, "was deleted");
    });
    let (to, dir) = (scratch.pool("to", "64M"), scratch.dir("mnt"));
    let server = Server::mount(&to, &dir, &scratch.path("log"));
    refused(receive(&to, &whole, 0, &[]), 6, "mounted");
    server.run_with(|| ());
}
