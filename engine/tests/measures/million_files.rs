//! What a million files take in main memory: after the pool was opened, when all have been touched, and
//! with a limit. Takes minutes and 5 GiB in `/dev/shm`, so it is run by hand:
//!
//!     cargo test --release -p lode-engine --test measures million_files -- --ignored --nocapture

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use lode_engine::{FormatOptions, Gauges, Ino, NewInode, OpenOptions, Pool, mode};
use lode_pmem::{Mapped, RegionOptions};
use lode_testkit::TestHost;

type FilePool = Pool<Mapped, TestHost>;

const FILES: u32 = 1_000_000;
const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };
const MB: u64 = 1_000_000;

/// In a process of its own, so that what another pool has had is not in the way.
const WORK: &str = "LODE_MILLION_FILES";

fn open(path: &Path, limit: Option<u64>) -> FilePool {
    let region = Mapped::open(path, &RegionOptions::new()).unwrap();
    let options = OpenOptions { index_memory: limit, ..OpenOptions::default() };
    Pool::open(region, TestHost::with_cpus(2, 2), &options).unwrap()
}

/// Main memory of this process, but for what it has mapped.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn name_of_dir(number: u32) -> Vec<u8> {
    format!("directory-{number}").into_bytes()
}

fn name_of_file(number: u32) -> Vec<u8> {
    format!("file-{number}").into_bytes()
}

fn make(path: &Path, in_each: u32) {
    let region = Mapped::create(path, 5 << 30, &RegionOptions::new(), false).unwrap();
    Pool::format(region, TestHost::with_cpus(1, 2), &FormatOptions::default()).unwrap();
    let (pool, begin) = (open(path, None), Instant::now());
    for dir_number in 0..FILES / in_each {
        let dir = pool.create(pool.root(), &name_of_dir(dir_number), &NEW_DIR).unwrap().ino;
        for number in 0..in_each {
            let file = pool.create(dir, &name_of_file(number), &NEW).unwrap();
            pool.write(file.ino, 0, &[number as u8; 100]).unwrap();
        }
    }
    let took = begin.elapsed();
    told("made", &pool.gauges().unwrap(), 0);
    let begin = Instant::now();
    pool.close().unwrap();
    println!("making took {took:?}, closing {:?}", begin.elapsed());
}

fn told(what: &str, gauges: &Gauges, before: u64) {
    let (memory, rss) = (gauges.memory, resident() - before);
    println!(
        "{what:24}: {:4} MB resident, indexes {:4} MB ({} inodes in memory: {} MB, entries {} MB, extents {} MB, tables {} MB)",
        rss / MB,
        memory.total() / MB,
        gauges.inodes_in_memory,
        memory.inodes / MB,
        memory.entries / MB,
        memory.extents / MB,
        memory.tables / MB,
    );
}

/// Calls `each` with every file, found through its directory; now and then `look`.
fn visit(pool: &FilePool, in_each: u32, mut each: impl FnMut(Ino), mut look: impl FnMut()) {
    let begin = Instant::now();
    for dir_number in 0..FILES / in_each {
        let dir = pool.lookup(pool.root(), &name_of_dir(dir_number)).unwrap().ino;
        for number in 0..in_each {
            each(pool.lookup(dir, &name_of_file(number)).unwrap().ino);
            if (dir_number * in_each + number) % 50_000 == 999 {
                look();
            }
        }
    }
    println!("visiting took {:?}", begin.elapsed());
}

fn measure(path: &Path, in_each: u32, limit: Option<u64>) {
    let before = resident();
    let pool = open(path, limit);
    let gauges = pool.gauges().unwrap();
    told("opened", &gauges, before);
    assert!(gauges.memory.total() < 150 * MB && resident() - before < 150 * MB);
    let (mut most, mut most_resident) = (0, 0);
    let mut look = || {
        most = most.max(pool.gauges().unwrap().memory.total());
        most_resident = most_resident.max(resident() - before);
    };
    visit(&pool, in_each, |_| (), &mut look);
    told("all found", &pool.gauges().unwrap(), before);
    let mut byte = [0];
    let read = |ino: Ino| {
        pool.acquire(ino).unwrap();
        assert_eq!(pool.read(ino, 0, &mut byte), Ok(1));
        pool.release(ino);
    };
    visit(&pool, in_each, read, &mut look);
    told("all opened and read", &pool.gauges().unwrap(), before);
    // As a kernel does that remembers them all.
    visit(&pool, in_each, |ino| pool.acquire(ino).unwrap(), &mut look);
    told("all open at once", &pool.gauges().unwrap(), before);
    visit(&pool, in_each, |ino| pool.release(ino), &mut look);
    pool.maintain().unwrap();
    told("after maintenance", &pool.gauges().unwrap(), before);
    println!(
        "the most: {} MB resident, indexes {} MB; dropped {}",
        most_resident / MB,
        most / MB,
        pool.stats().dropped_inodes
    );
    assert!(most < 600 * MB && most_resident < 600 * MB, "{most} {most_resident}");
    assert!(limit.is_none_or(|limit| most <= limit), "{most}");
    pool.close().unwrap();
}

#[test]
#[ignore = "takes minutes and 5 GiB of main memory"]
fn a_million_files_take_what_they_may() {
    let _quiet = crate::alone();
    if let Ok(work) = std::env::var(WORK) {
        let words: Vec<&str> = work.split(' ').collect();
        let [path, in_each, what] = words[..] else { panic!("{work}") };
        let (path, in_each) = (Path::new(path), in_each.parse().unwrap());
        match what {
            "make" => make(path, in_each),
            "endless" => measure(path, in_each, None),
            limit => measure(path, in_each, Some(limit.parse().unwrap())),
        }
        return;
    }
    for in_each in [1000, FILES] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("pool");
        for what in ["make", "endless", "100000000"] {
            println!("\n{in_each} files in each directory: {what}");
            let status = Command::new(std::env::current_exe().unwrap())
                .args(["million_files", "--ignored", "--nocapture", "--test-threads=1"])
                .env(WORK, format!("{} {in_each} {what}", path.display()))
                .status();
            assert!(status.unwrap().success(), "{in_each} {what}");
        }
    }
}
