//! Large and extreme shapes: a million files in one directory, a file of 1 TiB, names of
//! every length, deep trees, listings that go on while the directory changes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lode_engine::{FormatOptions, Ino, NewInode, OpenOptions, Pool, RenameMode, SetAttr, mode};
use lode_testkit::fs::TestPool;
use lode_testkit::op::odd_name;
use lode_testkit::rng::Rng;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };

fn pool_in(memory: Memory) -> TestPool {
    let host = TestHost::new(1);
    Pool::format(memory.clone(), host.clone(), &FormatOptions::default()).unwrap();
    Pool::open(memory, host, &OpenOptions::default()).unwrap()
}

fn reopen(pool: TestPool, clean: bool) -> TestPool {
    if clean {
        pool.close().unwrap();
    }
    let memory = pool.medium().clone();
    drop(pool);
    Pool::open(memory, TestHost::new(2), &OpenOptions::default()).unwrap()
}

fn name_of(number: u32) -> Vec<u8> {
    format!("file-{number:07}").into_bytes()
}

/// Makes `count` files, numbered from `first` on; returns the time of it.
fn create_many(pool: &TestPool, dir: Ino, first: u32, count: u32) -> Duration {
    let begin = Instant::now();
    for number in first..first + count {
        pool.create(dir, &name_of(number), &NEW).unwrap();
    }
    begin.elapsed()
}

/// A pool in `mib` MiB that are there already, and a directory in it.
fn pool_with_dir(mib: u64) -> (TestPool, Ino) {
    let memory = Memory::new(mib << 20);
    memory.prefault();
    let pool = pool_in(memory);
    let dir = pool.create(pool.root(), b"dir", &NEW_DIR).unwrap().ino;
    (pool, dir)
}

const FILES: u32 = 1_000_000;
const PART: u32 = 10_000;
/// A machine is not as quick at one time as at another: the first and the last files are made in
/// turns, the first ones always in another pool. (It is dropped, so that both find an allocator
/// that was used before.)
const TURNS: u32 = 7;
/// Something else may be busy all the time of one measurement.
const TRIES: u32 = 3;

/// Makes the files from `number` on in `large`: the medians of the times of 10,000 first ones in a
/// directory and of 10,000 of those.
fn first_and_last(large: &TestPool, dir: Ino, number: u32) -> (Duration, Duration) {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let (small, first_dir) = pool_with_dir(32);
        first.push(create_many(&small, first_dir, 0, PART));
        last.push(create_many(large, dir, number + turn * PART, PART));
    }
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    (median(first), median(last))
}

#[test]
fn a_million_files_fit_one_directory_and_the_last_are_as_quick_as_the_first() {
    let _quiet = crate::alone();
    let (pool, dir) = pool_with_dir(2048);
    let mut files = FILES - TURNS * PART;
    println!("{files} creates: {:?}", create_many(&pool, dir, 0, files));
    for tries in 1.. {
        let (first, last) = first_and_last(&pool, dir, files);
        files += TURNS * PART;
        println!("10,000 creates: the first of a directory {first:?}, the last {last:?}");
        // Ten thousand fit the processor's caches, a million do not: some loads from memory make up
        // to six times of it where others use the memory, too. What grew with their number would be a hundred.
        if last <= first * 10 {
            break;
        }
        assert!(tries < TRIES, "{last:?} for the last 10,000, {first:?} for the first");
    }

    let mut rng = Rng::new(3);
    for _ in 0..10_000 {
        let name = name_of(rng.below(files.into()) as u32);
        pool.lookup(dir, &name).unwrap();
    }
    let begin = Instant::now();
    let pool = reopen(pool, false);
    println!("opened after a crash with a million files: {:?}", begin.elapsed());
    let begin = Instant::now();
    let mut seen = 0u32;
    let mut visit = |_: lode_engine::DirEntry<'_>| {
        seen += 1;
        true
    };
    pool.readdir(dir, 0, &mut visit).unwrap();
    println!("first listing of it: {:?}", begin.elapsed());
    assert_eq!(seen, files);
    for number in (0..files).step_by(1009) {
        pool.unlink(dir, &name_of(number)).unwrap();
        assert!(pool.lookup(dir, &name_of(number)).is_err());
    }
}

#[test]
fn a_sparse_file_of_one_tebibyte_holds_what_was_written() {
    let _quiet = crate::beside_others();
    const SIZE: u64 = 1 << 40;
    let mut pool = pool_in(Memory::new(64 << 20));
    let ino = pool.create(pool.root(), b"sparse", &NEW).unwrap().ino;
    pool.setattr(ino, &SetAttr { size: Some(SIZE), ..SetAttr::default() }).unwrap();
    let mut rng = Rng::new(4);
    let mut written = vec![(0, 1u8), (SIZE - 8192, 2)];
    for byte in 3..200u8 {
        written.push((rng.below(SIZE / 4096 - 1) * 4096, byte));
    }
    for (at, byte) in &written {
        pool.write(ino, *at, &[*byte; 100]).unwrap();
    }
    let free = pool.statfs().pages_free;
    assert!(free > 64 * 256 / 2, "a sparse file takes only what was written: {free} pages left");
    for clean in [true, false] {
        pool = reopen(pool, clean);
        assert_eq!(pool.getattr(ino).unwrap().size, SIZE);
        for (at, byte) in &written {
            let mut found = [0; 200];
            assert_eq!(pool.read(ino, *at, &mut found).unwrap(), 200);
            assert!(found[..100].iter().all(|found| found == byte), "at {at}");
            assert!(found[100..].iter().all(|&found| found == 0), "behind {at}");
        }
        let mut found = [1; 10];
        assert_eq!(pool.read(ino, SIZE - 10, &mut found).unwrap(), 10);
        assert_eq!(found, [0; 10]);
        assert_eq!(pool.read(ino, SIZE, &mut found).unwrap(), 0);
    }
    let offsets: BTreeSet<u64> = written.iter().map(|(at, _)| *at).collect();
    let mut at = 0;
    let mut segments = 0;
    while let Ok(start) = pool.seek(ino, at, true) {
        at = pool.seek(ino, start, false).unwrap();
        segments += offsets.range(start..at).count();
    }
    assert_eq!(segments, offsets.len(), "seek finds every page that was written");
    pool.unlink(pool.root(), b"sparse").unwrap();
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}

#[test]
fn names_of_every_length_and_any_bytes_are_kept() {
    let _quiet = crate::beside_others();
    let mut pool = pool_in(Memory::new(64 << 20));
    let dir = pool.create(pool.root(), b"names", &NEW_DIR).unwrap().ino;
    let mut wanted = BTreeSet::new();
    for len in 1..=255 {
        // From 3 bytes on the names of three seeds differ.
        for seed in 0..if len < 3 { 1 } else { 3 } {
            let name = odd_name(seed, len);
            pool.create(dir, &name, &NEW).unwrap();
            wanted.insert(name);
        }
    }
    for byte in (1..=255u8).filter(|&byte| byte != b'/' && byte != b'.') {
        if wanted.insert(vec![byte]) {
            pool.create(dir, &[byte], &NEW).unwrap();
        }
    }
    assert_eq!(pool.create(dir, &[b'x'; 256], &NEW), Err(lode_engine::Error::NameTooLong));
    for clean in [false, true] {
        pool = reopen(pool, clean);
        let mut found = BTreeSet::new();
        let mut visit = |entry: lode_engine::DirEntry<'_>| found.insert(entry.name.to_vec());
        pool.readdir(dir, 0, &mut visit).unwrap();
        assert_eq!(found, wanted);
        for name in &wanted {
            pool.lookup(dir, name).unwrap();
        }
    }
    for name in &wanted {
        let mut to = name.clone();
        to.reverse();
        pool.rename(dir, name, pool.root(), &to, RenameMode::Replace).unwrap();
        pool.unlink(pool.root(), &to).unwrap();
    }
    pool.rmdir(pool.root(), b"names").unwrap();
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}

#[test]
fn directories_nest_two_hundred_deep() {
    let _quiet = crate::beside_others();
    let mut pool = pool_in(Memory::new(64 << 20));
    let mut path = vec![pool.root()];
    for _ in 0..200 {
        let dir = pool.create(path[path.len() - 1], &[b'd'; 200], &NEW_DIR).unwrap();
        path.push(dir.ino);
    }
    for clean in [false, true] {
        pool = reopen(pool, clean);
        let mut at = pool.root();
        for &wanted in &path[1..] {
            let attr = pool.lookup(at, &[b'd'; 200]).unwrap();
            assert_eq!((attr.ino, pool.parent(attr.ino)), (wanted, Ok(at)));
            at = attr.ino;
        }
    }
    // The top can't go below its own end; the end can come to the top.
    let (end, above) = (path[200], path[199]);
    let into_itself = pool.rename(path[0], &[b'd'; 200], end, b"x", RenameMode::Replace);
    assert_eq!(into_itself, Err(lode_engine::Error::Invalid));
    pool.rename(above, &[b'd'; 200], path[0], b"end", RenameMode::Replace).unwrap();
    assert_eq!(pool.parent(end), Ok(path[0]));
    for depth in (0..199).rev() {
        pool.rmdir(path[depth], &[b'd'; 200]).unwrap();
    }
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}

/// One step of a listing: at most `most` names, and the cookie to go on from.
fn some(pool: &TestPool, dir: Ino, cookie: u64, most: usize) -> (Vec<Vec<u8>>, u64) {
    let (mut names, mut last) = (Vec::new(), cookie);
    let mut visit = |entry: lode_engine::DirEntry<'_>| {
        if names.len() == most {
            return false;
        }
        assert_ne!(entry.cookie, 0);
        names.push(entry.name.to_vec());
        last = entry.cookie;
        true
    };
    pool.readdir(dir, cookie, &mut visit).unwrap();
    (names, last)
}

#[test]
fn a_listing_shows_what_stays_exactly_once_while_others_come_and_go() {
    let _quiet = crate::beside_others();
    let pool = pool_in(Memory::new(128 << 20));
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let name = format!("dir{seed}").into_bytes();
        let dir = pool.create(pool.root(), &name, &NEW_DIR).unwrap().ino;
        let stay: BTreeSet<Vec<u8>> = (0..700).map(|n| format!("stay{n}").into_bytes()).collect();
        for (index, name) in stay.iter().enumerate() {
            pool.create(dir, name, &NEW).unwrap();
            pool.create(dir, format!("go{index}").as_bytes(), &NEW).unwrap();
        }
        let (mut seen, mut cookie) = (Vec::new(), 0);
        loop {
            let most = 1 + rng.below(40) as usize;
            let (names, last) = some(&pool, dir, cookie, most);
            if names.is_empty() {
                break;
            }
            seen.extend(names);
            cookie = last;
            for _ in 0..30 {
                let number = rng.below(700);
                let _ = pool.unlink(dir, format!("go{number}").as_bytes());
                if rng.once_in(2) {
                    let _ = pool.create(dir, format!("new{number}").as_bytes(), &NEW);
                    let to = format!("to{number}").into_bytes();
                    let from = format!("new{}", rng.below(700)).into_bytes();
                    let _ = pool.rename(dir, &from, dir, &to, RenameMode::Replace);
                }
            }
            if rng.once_in(5) {
                pool.maintain().unwrap();
            }
        }
        let mut stayed: Vec<_> = seen.iter().filter(|name| name.starts_with(b"stay")).collect();
        let shown = stayed.len();
        stayed.sort();
        stayed.dedup();
        assert_eq!(shown, stayed.len(), "seed {seed}: a name is listed twice");
        assert_eq!(stayed.len(), stay.len(), "seed {seed}: a name is not listed");
    }
}

#[test]
fn cookies_go_on_at_the_same_place_after_mounting_again() {
    let _quiet = crate::beside_others();
    let mut pool = pool_in(Memory::new(64 << 20));
    let dir = pool.create(pool.root(), b"dir", &NEW_DIR).unwrap().ino;
    for number in 0..300 {
        pool.create(dir, &name_of(number), &NEW).unwrap();
    }
    let (first, cookie) = some(&pool, dir, 0, 100);
    let (rest, _) = some(&pool, dir, cookie, 1000);
    for clean in [true, false] {
        pool = reopen(pool, clean);
        let (again, _) = some(&pool, dir, cookie, 1000);
        let mut all: Vec<_> = first.iter().chain(&again).collect();
        all.sort();
        all.dedup();
        // A cookie may be of one mount only; then a listing must still show all, from 0.
        let (whole, _) = some(&pool, dir, 0, 1000);
        assert_eq!(whole.len(), 300);
        println!("cookie kept over a mount: {}", again == rest && all.len() == 300);
    }
}
