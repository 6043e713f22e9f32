//! Snapshots while files are mapped: each has what was stored before it, and nothing that was stored later.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// A list of ranges may be of one.
#![allow(clippy::single_range_in_vec_init)]

mod common;

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use common::{PoolFile, errno};
use lode::{File, FormatOptions, Log, Map, MapOptions, OpenOptions, Pool, Protection, Staging};

const PAGE: u64 = 4096;

/// Does a test with a pool of each level that does something of its own with maps.
fn at_each_level(megabytes: u64, test: impl Fn(&PoolFile)) {
    for protection in [Protection::None, Protection::Metadata, Protection::Full] {
        let format = FormatOptions { protection, dead_zone: 0, ..FormatOptions::default() };
        test(&PoolFile::with(megabytes, &format));
    }
}

fn made(pool: &Pool, name: &str, pages: u64, byte: u8) -> File {
    pool.write(name, vec![byte; (pages * PAGE) as usize]).unwrap();
    pool.open_with(name, OpenOptions::new().read(true).write(true)).unwrap()
}

fn writable() -> MapOptions {
    let mut options = MapOptions::new();
    options.write(true);
    options
}

/// A store of the program's own.
fn put(map: &Map, at: u64, byte: u8) {
    assert!(at < map.len());
    // SAFETY: a byte of a writable map.
    unsafe { map.as_ptr().add(at as usize).write_volatile(byte) };
}

fn get(map: &Map, at: u64) -> u8 {
    assert!(at < map.len());
    // SAFETY: a byte of a map.
    unsafe { map.as_ptr().add(at as usize).read_volatile() }
}

fn of(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(PAGE as usize).map(|page| page[0]).collect()
}

fn in_snapshot(pool: &Pool, snapshot: &str, name: &str) -> Vec<u8> {
    of(&pool.snapshot(snapshot).unwrap().read(name).unwrap())
}

/// The pool as a crash now would leave it.
fn crashed(pool: &PoolFile) -> (tempfile::TempDir, Pool) {
    let dir = common::scratch();
    let copy = dir.path().join("copy");
    std::fs::copy(&pool.path, &copy).unwrap();
    let opened = Pool::open(&copy).unwrap();
    (dir, opened)
}

#[test]
fn a_snapshot_keeps_what_maps_held_then_and_all_maps_go_on() {
    at_each_level(16, |at| {
        let pool = at.open();
        let file = made(&pool, "f", 4, 1);
        let map = file.map(0, 4 * PAGE, &writable()).unwrap();
        let reader = file.map(PAGE, 3 * PAGE, &MapOptions::new()).unwrap();
        put(&map, 0, 2);
        pool.create_snapshot("a").unwrap();
        put(&map, PAGE, 3);
        put(&map, PAGE + 1, 3);
        map.persist(0..4 * PAGE).unwrap();
        // A write goes to the maps, and not to the snapshot.
        file.write_all_at(&[4; 10], 2 * PAGE).unwrap();
        assert_eq!([0, 1, 2, 3].map(|page| get(&map, page * PAGE)), [2, 3, 4, 1]);
        assert_eq!([0, 1, 2].map(|page| get(&reader, page * PAGE)), [3, 4, 1]);
        // One that is made later, too, and stores through it.
        let later = file.map(0, 4 * PAGE, &writable()).unwrap();
        put(&later, 3 * PAGE, 5);
        assert_eq!((get(&map, 3 * PAGE), get(&reader, 2 * PAGE)), (5, 5));
        pool.create_snapshot("b").unwrap();
        put(&map, 3 * PAGE, 6);
        put(&later, 0, 6);
        assert_eq!(of(&pool.read("f").unwrap()), [6, 3, 4, 6]);
        let all = |pool: &Pool| {
            assert_eq!(in_snapshot(pool, "a", "f"), [2, 1, 1, 1]);
            assert_eq!(in_snapshot(pool, "b", "f"), [2, 3, 4, 5]);
        };
        all(&pool);
        map.persist(0..4 * PAGE).unwrap();
        let (_dir, after) = crashed(at);
        all(&after);
        assert_eq!(of(&after.read("f").unwrap()), [6, 3, 4, 6]);
        drop((map, reader, later));
        all(&pool);
        drop(file);
        pool.close().unwrap();
        all(&Pool::open(&at.path).unwrap());
    });
}

#[test]
fn the_end_of_such_snapshots_frees_what_they_held_and_no_more() {
    // (Where metadata is there twice, twice as long.)
    const LOGS: u64 = 6;
    at_each_level(16, |at| {
        let pool = at.open();
        let file = made(&pool, "f", 8, 1);
        let map = file.map(0, 8 * PAGE, &writable()).unwrap();
        pool.create_snapshot("first").unwrap();
        pool.delete_snapshot("first").unwrap();
        let free = || pool.statfs().unwrap().pages_free;
        let before = free();
        for round in 0..3 {
            pool.create_snapshot(format!("s{round}")).unwrap();
            for page in 0..4 {
                put(&map, page * PAGE, 10 + round);
            }
        }
        let alone =
            || pool.snapshots().unwrap().iter().map(|one| one.pages_alone).collect::<Vec<_>>();
        assert_eq!(alone(), [4, 4, 4]);
        pool.delete_snapshot("s1").unwrap();
        let wait_for = |wanted: u64| {
            let began = Instant::now();
            // (Logs that snapshots saw are longer than they were.)
            while !(wanted - LOGS..=wanted).contains(&free()) {
                assert!(began.elapsed().as_secs() < 20, "{} pages are free, not {wanted}", free());
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        };
        wait_for(before - 8);
        assert_eq!(alone(), [4, 4]);
        assert_eq!(in_snapshot(&pool, "s2", "f")[..5], [11, 11, 11, 11, 1]);
        pool.delete_snapshot("s0").unwrap();
        pool.delete_snapshot("s2").unwrap();
        wait_for(before);
        // With no snapshot at all, stores move nothing.
        let before = free();
        for page in 0..8 {
            put(&map, page * PAGE, 99);
        }
        assert_eq!((free(), of(&pool.read("f").unwrap())), (before, vec![99; 8]));
    });
}

#[test]
fn files_that_are_cut_grow_and_are_written_while_they_are_mapped() {
    at_each_level(16, |at| {
        let pool = at.open();
        let file = made(&pool, "f", 6, 1);
        let map = file.map(0, 6 * PAGE, &writable()).unwrap();
        pool.create_snapshot("a").unwrap();
        file.set_len(4 * PAGE + 10).unwrap();
        file.punch_hole(0, PAGE + 5).unwrap();
        // What was given up is in the map, and nobody's: not the snapshot's, nor the file's.
        for page in 0..6 {
            put(&map, page * PAGE + 9, 7);
        }
        file.append(&[2; 3 * PAGE as usize]).unwrap();
        file.write_all_at(&[3; 2 * PAGE as usize], 2 * PAGE).unwrap();
        assert_eq!([0, 1, 2, 3, 4, 5].map(|page| get(&map, page * PAGE)), [1, 0, 3, 3, 1, 1]);
        let now = pool.read("f").unwrap();
        assert_eq!((of(&now), now.len()), (vec![0, 0, 3, 3, 1, 2, 2, 2], 7 * PAGE as usize + 10));
        assert_eq!((now[9], now[PAGE as usize + 9], now[4 * PAGE as usize + 9]), (0, 7, 7));
        assert!(pool.snapshot("a").unwrap().read("f").unwrap().iter().all(|byte| *byte == 1));
        let (_dir, after) = crashed(at);
        assert!(after.snapshot("a").unwrap().read("f").unwrap().iter().all(|byte| *byte == 1));
        assert_eq!(of(&after.read("f").unwrap()), of(&now));
        // The file goes, and its maps.
        pool.create_snapshot("b").unwrap();
        pool.remove_file("f").unwrap();
        drop(file);
        put(&map, 2 * PAGE, 8);
        drop(map);
        assert_eq!(in_snapshot(&pool, "b", "f"), [0, 0, 3, 3, 1, 2, 2, 2]);
        pool.close().unwrap();
    });
}

#[test]
fn what_is_staged_is_in_no_snapshot_before_it_is_committed() {
    at_each_level(16, |at| {
        let pool = at.open();
        let file = made(&pool, "f", 4, 1);
        let map = file.map(0, 4 * PAGE, &writable()).unwrap();
        map.stage(0..2 * PAGE, Staging::Copied).unwrap();
        put(&map, 0, 2);
        pool.create_snapshot("a").unwrap();
        put(&map, PAGE, 3);
        map.commit(&[0..2 * PAGE]).unwrap();
        put(&map, 0, 4);
        pool.create_snapshot("b").unwrap();
        put(&map, 0, 5);
        map.stage(0..4 * PAGE, Staging::Zeroed).unwrap();
        put(&map, 0, 6);
        map.discard().unwrap();
        assert_eq!([0, 1, 2, 3].map(|page| get(&map, page * PAGE)), [5, 3, 1, 1]);
        put(&map, 2 * PAGE, 9);
        put(&map, 3 * PAGE, 9);
        assert_eq!(of(&pool.read("f").unwrap()), [5, 3, 9, 9]);
        assert_eq!(in_snapshot(&pool, "a", "f"), [1, 1, 1, 1]);
        assert_eq!(in_snapshot(&pool, "b", "f"), [4, 3, 1, 1]);
    });
}

#[test]
fn logs_go_on_and_a_snapshot_has_their_beginning() {
    at_each_level(16, |at| {
        let pool = at.open();
        let log = Log::open(&pool, "log", 1 << 16).unwrap();
        for round in 0..20u8 {
            log.append(&[round; 100]).unwrap();
            pool.create_snapshot(format!("s{round}")).unwrap();
            log.append(&vec![round; 30_000]).unwrap();
        }
        let entries: Vec<usize> =
            log.entries(0).unwrap().map(|entry| entry.unwrap().1.len()).collect();
        assert_eq!(entries, [100, 30_000].repeat(20));
        for round in 0..20u8 {
            let bytes = pool.snapshot(format!("s{round}")).unwrap().read("log").unwrap();
            pool.write("copy", bytes).unwrap();
            let copy = Log::open(&pool, "copy", 0).unwrap();
            assert_eq!(copy.entries(0).unwrap().count(), 2 * usize::from(round) + 1);
        }
    });
}

/// Ends the threads of a test, also when it fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Threads that store a number first in one page and then in another, of the same file or another one, and write it with a call
/// in between: no snapshot has a later one without the earlier.
#[test]
fn a_snapshot_has_a_beginning_of_what_each_thread_stores() {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 60;
    at_each_level(64, |at| {
        let pool = at.open();
        let one = made(&pool, "one", 64, 0);
        let other = made(&pool, "other", 64, 0);
        let called = made(&pool, "called", 1, 0);
        let maps = [
            one.map(0, 64 * PAGE, &writable()).unwrap(),
            other.map(0, 64 * PAGE, &writable()).unwrap(),
        ];
        let done = AtomicBool::new(false);
        let word = |map: &Map, page: u64| {
            // SAFETY: an aligned word of a writable map.
            unsafe { &*map.as_ptr().add((page * PAGE) as usize).cast::<AtomicU64>() }
        };
        let mut last = [0; THREADS as usize];
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (maps, done, called) = (&maps, &done, &called);
                scope.spawn(move || {
                    let mut number = 0u64;
                    while !done.load(SeqCst) {
                        number += 1;
                        word(&maps[0], 7 * thread).store(number, SeqCst);
                        word(&maps[1], 3 * thread).store(number, SeqCst);
                        if number.is_multiple_of(8) {
                            called.write_all_at(&number.to_le_bytes(), 8 * thread).unwrap();
                        }
                        word(&maps[0], 7 * thread + 1).store(number, SeqCst);
                    }
                });
            }
            let _ends = Ends(&done);
            for round in 0..ROUNDS {
                // Each has gone on since the last one, and goes on.
                for (thread, last) in (0..).zip(&mut last) {
                    let began = Instant::now();
                    let now = || word(&maps[0], 7 * thread).load(SeqCst);
                    while now() == *last {
                        assert!(began.elapsed().as_secs() < 60, "thread {thread} stands still");
                        std::thread::yield_now();
                    }
                    *last = now();
                }
                pool.create_snapshot(format!("{round}")).unwrap();
                let read = |pool: &Pool| {
                    let snapshot = pool.snapshot(format!("{round}")).unwrap();
                    ["one", "other", "called"].map(|name| snapshot.read(name).unwrap())
                };
                let [one, other, called] = read(&pool);
                let at = |bytes: &[u8], at: u64| {
                    u64::from_le_bytes(bytes[at as usize..][..8].try_into().unwrap())
                };
                for thread in 0..THREADS {
                    let [a, b, d] = [
                        at(&one, 7 * thread * PAGE),
                        at(&other, 3 * thread * PAGE),
                        at(&one, (7 * thread + 1) * PAGE),
                    ];
                    let c = at(&called, 8 * thread);
                    let in_order = a >= b && b >= d && a <= d + 1 && b >= c && d / 8 * 8 <= c;
                    assert!(in_order, "round {round}, thread {thread}: {a} {b} {c} {d}");
                }
                // It is the same when it is read later.
                if round % 10 == 9 {
                    std::thread::yield_now();
                    assert!(read(&pool) == [one, other, called], "round {round} changed");
                }
                if round > 3 {
                    pool.delete_snapshot(format!("{}", round - 3)).unwrap();
                }
            }
        });
    });
}

/// What is read into a map that a snapshot sees, of the same file and of each other's, waits for nobody who waits for it.
#[test]
fn files_can_be_read_into_maps() {
    at_each_level(32, |at| {
        let pool = at.open();
        let files = [made(&pool, "a", 16, 1), made(&pool, "b", 16, 2)];
        let maps = [0, 1].map(|at: usize| files[at].map(0, 16 * PAGE, &writable()).unwrap());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (file, map) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let (file, map, done): (&File, &Map, _) = (&files[file], &maps[map], &done);
                scope.spawn(move || {
                    while !done.load(SeqCst) {
                        let (at, len) = (map.as_ptr(), 8 * PAGE as usize);
                        // SAFETY: half of a writable map. (That others store there, too, is what is tried.)
                        let into = unsafe { std::slice::from_raw_parts_mut(at, len) };
                        file.read_exact_at(into, 8 * PAGE).unwrap();
                    }
                });
            }
            let _ends = Ends(&done);
            for round in 0..100 {
                pool.create_snapshot(format!("{round}")).unwrap();
                pool.delete_snapshot(format!("{round}")).unwrap();
            }
        });
    });
}

/// The last thing that a child process of this test says.
const LAST: &str = "this is to be the end";

/// A child process of this test has to come to its last words, and to end by a SIGSEGV.
fn ends_in_child(name: &str) {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env("LODE_TEST_CHILD", "1");
    let dir = common::scratch();
    child.env(lode_testkit::real::SCRATCH, dir.path());
    let ended = child.output().unwrap();
    assert_eq!(ended.status.signal(), Some(libc::SIGSEGV), "{}", ended.status);
    assert!(String::from_utf8_lossy(&ended.stdout).contains(LAST));
}

fn is_child() -> bool {
    std::env::var_os("LODE_TEST_CHILD").is_some()
}

#[test]
fn a_store_to_what_a_program_has_mapped_read_only_still_ends_it() {
    if !is_child() {
        ends_in_child("a_store_to_what_a_program_has_mapped_read_only_still_ends_it");
        return;
    }
    let at = PoolFile::new(16);
    let pool = at.open();
    let file = made(&pool, "f", 2, 1);
    let map = file.map(0, 2 * PAGE, &writable()).unwrap();
    let reader = file.map(0, 2 * PAGE, &MapOptions::new()).unwrap();
    pool.create_snapshot("a").unwrap();
    put(&map, 0, 2);
    assert_eq!(get(&reader, 0), 2);
    println!("{LAST}");
    put(&reader, PAGE, 3);
}

#[test]
fn a_store_that_finds_no_space_ends_the_program_and_changes_nothing() {
    if !is_child() {
        ends_in_child("a_store_that_finds_no_space_ends_the_program_and_changes_nothing");
        return;
    }
    let at = PoolFile::new(16);
    let pool = at.open();
    let file = made(&pool, "f", 512, 1);
    let map = file.map(0, 512 * PAGE, &writable()).unwrap();
    pool.create_snapshot("a").unwrap();
    let other = made(&pool, "other", 0, 0);
    while other.append(&[9; PAGE as usize]).is_ok() {}
    println!("{LAST}");
    for page in 0..512 {
        put(&map, page * PAGE, 2);
    }
}

#[test]
fn system_calls_store_to_what_was_stored_to_before() {
    at_each_level(16, |at| {
        let pool = at.open();
        let file = made(&pool, "f", 2, 1);
        let map = file.map(0, 2 * PAGE, &writable()).unwrap();
        pool.create_snapshot("a").unwrap();
        put(&map, 0, 2);
        let zero = std::fs::File::open("/dev/zero").unwrap();
        let read = |page: u64| {
            // SAFETY: a page of a writable map.
            let into = unsafe {
                std::slice::from_raw_parts_mut(map.as_ptr().add((page * PAGE) as usize), 1)
            };
            std::os::unix::fs::FileExt::read_at(&zero, into, 0)
        };
        assert_eq!(read(0).unwrap(), 1);
        // (Where other tests have maps in very many pieces, the store has opened this page, too.)
        let second = match read(1) {
            Ok(_) => 0,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
                1
            }
        };
        assert_eq!(of(&pool.read("f").unwrap()), [0, second]);
        assert_eq!(in_snapshot(&pool, "a", "f"), [1, 1]);
    });
}

#[test]
fn a_name_that_is_taken_leaves_the_maps_as_they_are() {
    at_each_level(16, |at| {
        let pool = at.open();
        let file = made(&pool, "f", 2, 1);
        let map = file.map(0, 2 * PAGE, &writable()).unwrap();
        pool.create_snapshot("a").unwrap();
        assert_eq!(errno(pool.create_snapshot("a")), libc::EEXIST);
        put(&map, 0, 2);
        assert_eq!(in_snapshot(&pool, "a", "f"), [1, 1]);
    });
}

/// What it costs, for docs/bench.md: run it alone, with `--ignored --nocapture`.
#[test]
#[ignore = "tells times"]
fn what_a_snapshot_of_maps_costs() {
    const ROUNDS: usize = 101;
    at_each_level(400, |at| {
        let pool = at.open();
        let median = |mut times: Vec<u128>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        for (pages, stores) in [(0, 0), (300, 0), (10_000, 0), (300, 50), (10_000, 50)] {
            let file = made(&pool, "f", pages.max(1), 0);
            let mapped = || file.map(0, pages * PAGE, writable().populate(true)).unwrap();
            let map = (pages > 0).then(mapped);
            let (mut making, mut storing) = (Vec::new(), Vec::new());
            for round in 0..ROUNDS {
                // All pages are there, and were stored to since the last one.
                for page in map.iter().flat_map(|_| 0..pages) {
                    put(map.as_ref().unwrap(), page * PAGE, round as u8);
                }
                let began = Instant::now();
                pool.create_snapshot("s").unwrap();
                making.push(began.elapsed().as_nanos());
                for page in 0..stores {
                    let began = Instant::now();
                    put(map.as_ref().unwrap(), page * 37 % pages * PAGE, 1);
                    storing.push(began.elapsed().as_nanos());
                }
                pool.delete_snapshot("s").unwrap();
            }
            let how = if stores > 0 { "that lie apart" } else { "in one piece" };
            println!(
                "{pages} pages mapped for stores, {how}: a snapshot takes {} ns",
                median(making)
            );
            if stores > 0 {
                println!("  the first store to a page takes {} ns", median(storing));
            }
        }
    });
}
