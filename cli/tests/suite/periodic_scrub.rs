//! The scrub that a server begins by itself: it finds what nobody reads and says so, gives way to one that is asked for, and
//! keeps no mount from its end.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::prometheus::parse;
use crate::common::server::Server;
use crate::common::{Scratch, lode, text};
use lode_fuse::control::Client;
use serde_json::{Value, json};

/// So slow that it is still at it when the test is over.
const SLOW: &str = "scrub=1s,scrub-rate=64K";

fn stats(dir: &Path) -> Value {
    lode(&["stats", text(dir), "--json"]).expect(0).json()
}

/// The statistics, once they say this.
#[track_caller]
fn wait_for(dir: &Path, what: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let stats = stats(dir);
        if what(&stats["scrub"]) {
            return stats;
        }
        assert!(Instant::now() < end, "it did not happen: {stats}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn made(scratch: &Scratch, level: &str) -> PathBuf {
    let pool = scratch.path("pool");
    lode(&["mkfs", text(&pool), "--size", "32M", "--protect", level]).expect(0);
    pool
}

/// Changes the identity of the root directory, of which there is another copy, behind the pool's back.
fn scribble(pool: &Path) {
    let image = fs::read(pool).unwrap();
    let at = u64::from_le_bytes(image[96..104].try_into().unwrap()) * 512;
    let file = fs::OpenOptions::new().write(true).open(pool).unwrap();
    file.write_all_at(&[0x5a; 32], at).unwrap();
}

fn lines<'a>(log: &'a str, with: &str) -> Vec<&'a str> {
    log.lines().filter(|line| line.contains(with)).collect()
}

#[test]
fn it_repairs_what_nobody_reads_and_says_so() {
    let scratch = Scratch::new();
    let (pool, log) = (made(&scratch, "metadata"), scratch.path("log"));
    let server = Server::mount_with(&pool, &scratch.dir("mnt"), &log, "scrub=1s");
    fs::write(server.dir.join("file"), vec![7; 1 << 20]).unwrap();
    let clean = wait_for(&server.dir, |scrub| scrub["ended"].as_u64() > Some(0));
    assert_eq!((&clean["scrub"]["period_s"], &clean["scrub"]["repaired"]), (&1.into(), &0.into()));
    assert_eq!(clean["health"]["protection"], "metadata");
    assert!(clean["scrub"]["done_bytes"].as_u64() > Some(1 << 20), "{clean}");
    scribble(&pool);
    let found = wait_for(&server.dir, |scrub| scrub["repaired"].as_u64() == Some(1));
    assert!(found["scrub"]["ended_ns"].as_u64() > clean["scrub"]["ended_ns"].as_u64());
    assert_eq!((&found["scrub"]["left"], &found["scrub"]["lost"]), (&0.into(), &0.into()));
    let metrics = lode(&["stats", text(&server.dir), "--prometheus"]).expect(0).out;
    let metrics = parse(&metrics).unwrap();
    assert_eq!(metrics["lode_scrub_period_seconds"].value(), 1.0);
    assert!(metrics["lode_scrubs_total"].value() >= 2.0);
    assert!(metrics["lode_scrub_ended_seconds"].value() > 1e9);
    let text_of = lode(&["stats", text(&server.dir)]).expect(0).out;
    assert!(text_of.contains("every 1s") && text_of.contains("last scrub"), "{text_of}");
    lode(&["scrub", text(&server.dir)]).expect(0);
    server.umount();
    let log = fs::read_to_string(&log).unwrap();
    assert!(!lines(&log, "INFO scrubbed: nothing is bad").is_empty(), "{log}");
    let found = lines(&log, "WARN scrubbed: something was bad");
    assert_eq!(found.len(), 1, "{log}");
    assert!(found[0].contains("repaired=1 left=0 lost=0"), "{log}");
    lode(&["fsck", text(&pool)]).expect(0);
}

#[test]
fn what_is_lost_is_named_with_path_and_offset() {
    let scratch = Scratch::new();
    let (pool, log) = (made(&scratch, "full"), scratch.path("log"));
    let dir = scratch.dir("mnt");
    Server::mount(&pool, &dir, &log).run_with(|| {
        fs::create_dir(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/a \"file\""), vec![7; 64 << 10]).unwrap();
    });
    let dump = lode(&["dump", text(&pool), "/sub/a \"file\"", "--json"]).expect(0).json();
    let at = dump["inodes"][0]["extents"][0]["pool_offset"].as_u64().unwrap() + 8192 + 512;
    // Two strips of a page: more than its parity gives back.
    let file = fs::OpenOptions::new().write(true).open(&pool).unwrap();
    file.write_all_at(&[0x5a; 1024], at).unwrap();
    let server = Server::mount_with(&pool, &dir, &log, "scrub=1s,scrub_rate=1G");
    let found = wait_for(&dir, |scrub| scrub["lost"].as_u64() == Some(1));
    assert!(found["health"]["strips_lost"].as_u64() > Some(0), "{found}");
    server.umount();
    let log = fs::read_to_string(&log).unwrap();
    let named = lines(&log, "this can't be read: lost");
    let (path, place) = ("path=\"/sub/a \\\"file\\\"\"", format!("offset={at}"));
    for part in [path, "file_offset=8704", "bytes=1024", &place, "what=\"data\""] {
        assert!(named[0].contains(part), "{part} in {log}");
    }
}

#[test]
fn it_gives_way_to_one_that_is_asked_for() {
    let scratch = Scratch::new();
    let pool = made(&scratch, "none");
    let server = Server::mount_with(&pool, &scratch.dir("mnt"), &scratch.path("log"), SLOW);
    let dir = &server.dir;
    fs::write(dir.join("file"), vec![7; 4 << 20]).unwrap();
    wait_for(dir, |scrub| scrub["running"] == true && scrub["done_bytes"].as_u64() > Some(0));
    let began = Instant::now();
    let asked = lode(&["scrub", text(dir), "--json"]).expect(0).json();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(asked["bytes"].as_u64() > Some(4 << 20), "{asked}");
    // That was one for the server's own, too: this begins anew a period later.
    let after = wait_for(dir, |scrub| scrub["running"] == true);
    assert_eq!(after["scrub"]["ended"], 1, "{after}");
    server.umount();
}

#[test]
fn who_asks_goes_on_with_his_own_or_is_told() {
    let scratch = Scratch::new();
    let pool = made(&scratch, "none");
    let server = Server::mount_with(&pool, &scratch.dir("mnt"), &scratch.path("log"), "scrub=1s");
    let dir = &server.dir;
    fs::write(dir.join("file"), vec![7; 4 << 20]).unwrap();
    let mut client = Client::for_mount(dir).unwrap();
    let mut ask = |request: Value| client.request(&request).map_err(|error| error.to_string());
    let start = json!({ "op": "scrub", "start": true, "bytes": 4096 });
    let first = ask(start.clone()).unwrap();
    // The server's own waits meanwhile.
    std::thread::sleep(Duration::from_millis(2500));
    let go_on = |step: &Value| json!({ "op": "scrub", "scrub": step["scrub"], "bytes": 4096 });
    let more = ask(go_on(&first)).unwrap();
    assert!(more["done"].as_u64() > first["done"].as_u64(), "{first} {more}");
    assert_eq!(stats(dir)["scrub"]["ended"], 0);
    let second = ask(start).unwrap();
    let refused = ask(go_on(&first)).unwrap_err();
    assert!(refused.contains("another scrub has begun"), "{refused}");
    assert!(ask(json!({ "op": "scrub" })).is_err(), "which one?");
    let mut step = ask(go_on(&second)).unwrap();
    while step["over"] != true {
        step = ask(go_on(&second)).unwrap();
    }
    assert!(ask(go_on(&second)).is_err(), "it is over");
    server.umount();
}

#[test]
fn a_mount_ends_at_once_in_the_middle_of_it() {
    let scratch = Scratch::new();
    let pool = made(&scratch, "none");
    for _ in 0..3 {
        let server = Server::mount_with(&pool, &scratch.dir("mnt"), &scratch.path("log"), SLOW);
        fs::write(server.dir.join("file"), vec![7; 4 << 20]).unwrap();
        wait_for(&server.dir, |scrub| scrub["running"] == true);
        let began = Instant::now();
        server.umount();
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    lode(&["fsck", text(&pool)]).expect(0);
}

#[test]
fn without_the_option_there_is_none_and_a_remount_makes_none() {
    let scratch = Scratch::new();
    let (pool, dir) = (made(&scratch, "none"), scratch.dir("mnt"));
    lode(&["mount", text(&pool), text(&dir), "-o", "scrub=0"]).expect(0);
    assert_eq!(stats(&dir)["scrub"]["period_s"], Value::Null);
    let remount = |options: &str| lode(&["mount", text(&pool), text(&dir), "-o", options]);
    let refused = remount("remount,scrub=1h").expect(2);
    assert!(refused.err.contains("when the pool is scrubbed"), "{}", refused.err);
    remount("remount,scrub-rate=1M").expect(2);
    remount("remount,scrub=0,scrub-rate=100M").expect(0);
    lode(&["umount", text(&dir)]).expect(0);
    let idle = lode(&["mount", text(&pool), text(&dir), "-o", "scrub-rate=1M"]).expect(2);
    assert!(idle.err.contains("scrub-rate= means nothing"), "{}", idle.err);
    lode(&["mount", text(&pool), text(&dir), "-o", "ro,scrub=48h,scrub-rate=1M"]).expect(0);
    assert_eq!(stats(&dir)["scrub"]["period_s"], 172_800);
    remount("remount,ro,scrub=2d").expect(0);
    lode(&["umount", text(&dir)]).expect(0);
    lode(&["mount", text(&pool), text(&dir), "-o", "scrub=weekly"]).expect(2);
}
