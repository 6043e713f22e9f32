//! Files of a pool at level full as memory: what is stored there is read, and has checksums again when the map ends.
// A list of ranges may be of one.
#![allow(clippy::single_range_in_vec_init)]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::scratch;
use lode::{
    File, FormatOptions, Log, MapOptions, OpenOptions, Pool, PoolOptions, Protection, Staging,
};

const PAGE: u64 = 4096;

/// A pool at level full, in a directory that cleans up after itself.
fn made() -> (tempfile::TempDir, PathBuf) {
    let dir = scratch();
    let path = dir.path().join("pool");
    let format =
        FormatOptions { protection: Protection::Full, dead_zone: 0, ..FormatOptions::default() };
    PoolOptions::new().create(&path, 16 << 20, &format).unwrap().close().unwrap();
    (dir, path)
}

fn file(pool: &Pool, bytes: &[u8]) -> File {
    pool.write("f", bytes).unwrap();
    pool.open_with("f", OpenOptions::new().read(true).write(true)).unwrap()
}

fn writable() -> MapOptions {
    let mut options = MapOptions::new();
    options.write(true);
    options
}

/// The pool as it would be if this process ended now.
fn copied(path: &Path) -> (tempfile::TempDir, PathBuf) {
    let dir = scratch();
    let copy = dir.path().join("copy");
    std::fs::copy(path, &copy).unwrap();
    (dir, copy)
}

/// Flips a bit where the pool has these bytes, in the file's data.
fn flip(path: &Path, bytes: &[u8]) {
    let image = std::fs::read(path).unwrap();
    let at = image.windows(bytes.len()).position(|part| part == bytes).unwrap();
    let pool = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    pool.write_all_at(&[image[at] ^ 1], at as u64).unwrap();
}

#[test]
fn stores_are_read_and_protected_when_the_map_ends() {
    let (_dir, path) = made();
    let pool = Pool::open(&path).unwrap();
    let file = file(&pool, &[1; 20_000]);
    let map = file.map(PAGE, 8000, &writable()).unwrap();
    // SAFETY: the map is of 8000 bytes, and nobody else has it.
    unsafe { std::ptr::copy_nonoverlapping(b"by the pointer".as_ptr(), map.as_ptr().add(900), 14) };
    map.persist(900..914).unwrap();
    map.store(5000, b"by the map").unwrap();
    map.persist(5000..5010).unwrap();
    file.write_all_at(b"by the file", PAGE + 7000).unwrap();
    let mut wanted = vec![1; 20_000];
    for (at, bytes) in
        [(900, &b"by the pointer"[..]), (5000, b"by the map"), (7000, b"by the file")]
    {
        wanted[PAGE as usize + at..][..bytes.len()].copy_from_slice(bytes);
    }
    let mut found = [0; 11];
    map.load(7000, &mut found).unwrap();
    assert_eq!(&found, b"by the file");
    assert!(pool.read("f").unwrap() == wanted);
    // It ends with the process, too, and is made whole by who opens the pool next.
    let (_copied, copy) = copied(&path);
    let after = Pool::open(&copy).unwrap();
    assert_eq!(after.opening().unwrap().exempt_pages, 2);
    assert!(after.read("f").unwrap() == wanted);
    after.close().unwrap();
    flip(&copy, b"by the pointer");
    assert!(Pool::open(&copy).unwrap().read("f").unwrap() == wanted);
    drop(map);
    drop(file);
    pool.close().unwrap();
    for bytes in [&b"by the pointer"[..], b"by the map", b"by the file"] {
        let (_copied, copy) = copied(&path);
        flip(&copy, bytes);
        let after = Pool::open(&copy).unwrap();
        assert!(after.opening().unwrap().clean);
        assert!(after.read("f").unwrap() == wanted);
    }
}

#[test]
fn staged_pages_become_the_files() {
    let (_dir, path) = made();
    let pool = Pool::open(&path).unwrap();
    let file = file(&pool, &[1; 4 * PAGE as usize]);
    let map = file.map(0, 4 * PAGE, &writable()).unwrap();
    map.stage(0..2 * PAGE, Staging::Copied).unwrap();
    map.store(10, b"both").unwrap();
    map.store(5000, b"or neither").unwrap();
    assert!(pool.read("f").unwrap() == [1; 4 * PAGE as usize]);
    map.commit(&[0..2 * PAGE]).unwrap();
    map.store(100, b"later").unwrap();
    let mut wanted = vec![1; 4 * PAGE as usize];
    wanted[10..14].copy_from_slice(b"both");
    wanted[5000..5010].copy_from_slice(b"or neither");
    wanted[100..105].copy_from_slice(b"later");
    assert!(pool.read("f").unwrap() == wanted);
    let (_copied, copy) = copied(&path);
    assert!(Pool::open(&copy).unwrap().read("f").unwrap() == wanted);
    drop(map);
    assert!(pool.read("f").unwrap() == wanted);
    drop(file);
    pool.close().unwrap();
    flip(&path, b"or neither");
    assert!(Pool::open(&path).unwrap().read("f").unwrap() == wanted);
}

#[test]
fn a_map_to_read_leaves_checksums_as_they_are() {
    let (_dir, path) = made();
    let pool = Pool::open(&path).unwrap();
    let file = file(&pool, &[1; 9000]);
    let map = file.map(0, 9000, &MapOptions::new()).unwrap();
    let (_copied, copy) = copied(&path);
    assert_eq!(Pool::open(&copy).unwrap().opening().unwrap().exempt_pages, 0);
    file.write_all_at(b"changed", 10).unwrap();
    let mut found = [0; 7];
    map.load(10, &mut found).unwrap();
    assert_eq!(&found, b"changed");
    let (_copied, copy) = copied(&path);
    let after = Pool::open(&copy).unwrap();
    assert_eq!(after.opening().unwrap().exempt_pages, 3);
    assert!(after.read("f").unwrap() == pool.read("f").unwrap());
}

#[test]
fn a_log_is_what_was_appended() {
    let (_dir, path) = made();
    let pool = Pool::open(&path).unwrap();
    let log = Log::open(&pool, "log", 100_000).unwrap();
    let entries: Vec<Vec<u8>> = (0..500u32).map(|n| format!("entry {n} of many").into()).collect();
    for entry in &entries {
        log.append(entry).unwrap();
    }
    let all = |log: &Log| -> Vec<Vec<u8>> {
        log.entries(0).unwrap().map(|entry| entry.unwrap().1).collect()
    };
    assert_eq!(all(&log), entries);
    let (_copied, copy) = copied(&path);
    let after = Pool::open(&copy).unwrap();
    assert_eq!(all(&Log::open(&after, "log", 0).unwrap()), entries);
    drop(log);
    pool.close().unwrap();
    flip(&path, b"entry 77 of many");
    let pool = Pool::open(&path).unwrap();
    assert_eq!(all(&Log::open(&pool, "log", 0).unwrap()), entries);
}

#[test]
fn what_a_snapshot_has_of_maps_has_checksums() {
    let (_dir, path) = made();
    let pool = Pool::open(&path).unwrap();
    let file = file(&pool, &[1; 4 * PAGE as usize]);
    let map = file.map(0, 4 * PAGE, &writable()).unwrap();
    map.store(10, b"before the snapshot").unwrap();
    map.persist(10..29).unwrap();
    pool.create_snapshot("a").unwrap();
    map.store(10, b"after  the snapshot").unwrap();
    map.persist(10..29).unwrap();
    let bytes = |text: &[u8; 19]| {
        let mut bytes = vec![1; 4 * PAGE as usize];
        bytes[10..29].copy_from_slice(text);
        bytes
    };
    let (_copied, copy) = copied(&path);
    flip(&copy, b"before the snapshot");
    let after = Pool::open(&copy).unwrap();
    // What was stored to since, and no more.
    assert_eq!(after.opening().unwrap().exempt_pages, 1);
    assert!(after.read("f").unwrap() == bytes(b"after  the snapshot"));
    assert!(after.snapshot("a").unwrap().read("f").unwrap() == bytes(b"before the snapshot"));
    drop((map, file));
    pool.close().unwrap();
    flip(&path, b"before the snapshot");
    flip(&path, b"after  the snapshot");
    let pool = Pool::open(&path).unwrap();
    assert!(pool.read("f").unwrap() == bytes(b"after  the snapshot"));
    assert!(pool.snapshot("a").unwrap().read("f").unwrap() == bytes(b"before the snapshot"));
}
