//! A mount keeps to the memory that its indexes may take, however many files the kernel knows.
//! `LODE_INDEX_FILES` says how many files there are.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::path::Path;
use std::time::Instant;

use common::{Scratch, lode, text};
use serde_json::Value;

const FILES: u64 = 20_000;
const IN_EACH: u64 = 1000;
/// For each file less than half of what one in memory takes.
const LIMIT_BYTES: u64 = 200;
/// For each file that the kernel knows: that it does, and that it is open.
const KNOWN_BYTES: u64 = 130;
/// Buffers of the server's threads, and what its allocator does not give back.
const SERVER_BYTES: u64 = 32 << 20;

fn stats(dir: &Path) -> Value {
    lode(&["stats", text(dir), "--json"]).expect(0).json()
}

fn number(stats: &Value, path: &str) -> u64 {
    let found = stats.pointer(path).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("{path} in {stats}"))
}

fn anonymous_bytes(pid: u64) -> u64 {
    let all = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = all.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Looks at all files as `find -size` does, and at the memory now and then: the most of it.
fn find(dir: &Path) -> (u64, u64) {
    let (mut found, mut most) = (0, 0);
    for subdirectory in fs::read_dir(dir).unwrap() {
        for file in fs::read_dir(subdirectory.unwrap().path()).unwrap() {
            assert_eq!(file.unwrap().metadata().unwrap().len(), 1);
            found += 1;
        }
        most = most.max(number(&stats(dir), "/memory/total_bytes"));
    }
    (found, most)
}

#[test]
fn a_mount_keeps_to_its_index_memory_whatever_the_kernel_knows() {
    let files = std::env::var("LODE_INDEX_FILES").map_or(FILES, |text| text.parse().unwrap());
    let scratch = Scratch::new();
    let size = format!("{}M", 64 + files / 128);
    let (pool, dir) = (scratch.pool("pool", &size), scratch.dir("mnt"));
    lode(&["mount", text(&pool), text(&dir), "-o", "index_memory=0"]).expect(0);
    for number in 0..files / IN_EACH {
        let subdirectory = dir.join(number.to_string());
        fs::create_dir(&subdirectory).unwrap();
        (0..IN_EACH)
            .for_each(|number| fs::write(subdirectory.join(number.to_string()), "x").unwrap());
    }
    let all = stats(&dir);
    assert_eq!((&all["memory"]["limit_bytes"], &all["dropped_inodes"]), (&Value::Null, &0.into()));
    lode(&["umount", text(&dir)]).expect(0);

    let limit = files * LIMIT_BYTES + (1 << 20);
    let option = format!("noatime,index_memory={limit}");
    lode(&["mount", text(&pool), text(&dir), "-o", &option]).expect(0);
    let idle = stats(&dir);
    assert_eq!(number(&idle, "/memory/limit_bytes"), limit);
    let (pid, begin) = (number(&idle, "/pid"), Instant::now());
    let idle_bytes = anonymous_bytes(pid);
    let (found, most) = find(&dir);
    let took = begin.elapsed();
    let (after, bytes) = (stats(&dir), anonymous_bytes(pid));
    println!(
        "{found} files found in {took:?}: indexes took {most} bytes of {limit}, {} without a limit; the \
         server {bytes}, {idle_bytes} before; {} dropped, {} in memory",
        number(&all, "/memory/total_bytes"),
        number(&after, "/dropped_inodes"),
        number(&after, "/inodes_in_memory")
    );
    assert_eq!(found, files / IN_EACH * IN_EACH);
    assert!(number(&all, "/memory/total_bytes") > limit * 3 / 2, "there is no need of a limit");
    // (What came in since there was last made room may be too much.)
    assert!(most <= limit + limit / 50, "{most} of {limit}");
    assert!(number(&after, "/dropped_inodes") > files / 2);
    let known = KNOWN_BYTES * files;
    assert!(bytes < idle_bytes + limit + known + SERVER_BYTES, "{bytes}, {idle_bytes} before");
    assert_eq!(find(&dir).0, found);
    // What the kernel knows it gives back, when it forgets the mount.
    lode(&["umount", text(&dir)]).expect(0);
    lode(&["fsck", "-n", text(&pool)]).expect(0);
}
