//! Streams that are forged: their checksums are right, and what they ask for is not.

#![allow(clippy::unwrap_used, clippy::panic)]

use lode_engine::{FormatOptions, OpenOptions, Pool, SnapshotId, mode};
use lode_testkit::rng::Rng;
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot_from};
use lode_testkit::{Memory, TestHost};

use super::{Begun, Receiver, Start};
use crate::wire::{Change, Frames, Header};
use crate::{Error, Result, Sender};

type TestPool = Pool<Memory, TestHost>;

fn open(memory: &Memory) -> TestPool {
    let options = OpenOptions { receiving: true, ..OpenOptions::default() };
    TestPool::open(memory.clone(), TestHost::new(2), &options).unwrap()
}

fn header(older: Option<(Vec<u8>, SnapshotId)>) -> Header {
    let id = SnapshotId { pool: [9; 16], epoch: 9, created_ns: 9 };
    Header { name: b"forged".to_vec(), id, older, staging: b".moves".to_vec() }
}

fn forged(header: &Header, changes: &[Change]) -> Vec<u8> {
    let (mut bytes, crc) = header.encode();
    let mut frames = Frames::behind(crc);
    changes.iter().for_each(|change| frames.put(change, &mut bytes));
    frames.put(&Change::End { frames: changes.len() as u64 }, &mut bytes);
    bytes
}

fn receive(pool: &TestPool, mut bytes: &[u8]) -> Result<()> {
    let start = Start::read(&mut bytes)?;
    match Receiver::begin(pool, &start, false)? {
        Begun::Receiver(mut receiver) => receiver.run(&mut bytes, &mut |_| true),
        _ => Ok(()),
    }
}

/// A pool with `d/f` and a snapshot, what it is, and a header of a difference to that.
fn pool() -> (Memory, Snapshot, Header) {
    let memory = Memory::new(4 << 20);
    TestPool::format(memory.clone(), TestHost::new(1), &FormatOptions::default()).unwrap();
    let pool = open(&memory);
    let first = [
        make("d", mode::DIRECTORY | 0o755),
        make("d/f", mode::FILE | 0o644),
        Change::Write { path: b"d/f".to_vec(), offset: 0, data: vec![1; 5000] },
        make("e", mode::DIRECTORY | 0o755),
    ];
    receive(&pool, &forged(&header(None), &first)).unwrap();
    let id = pool.snapshot_id(b"forged").unwrap();
    let tree = snapshot_from(&pool, pool.root(), Times::ALL, None).unwrap();
    pool.close().unwrap();
    let id_then = SnapshotId { epoch: 10, ..id };
    let next = Header { name: b"next".to_vec(), id: id_then, ..header(Some((b"x".to_vec(), id))) };
    (memory, tree, next)
}

fn make(path: &str, bits: u32) -> Change {
    let target = if bits & mode::TYPE == mode::SYMLINK { b"e".to_vec() } else { Vec::new() };
    Change::Make { path: path.into(), mode: bits, rdev: 0, target }
}

fn abandoned(memory: &Memory, before: &Snapshot, what: &str) {
    TestPool::abandon_receiving(memory.clone(), TestHost::new(3)).unwrap();
    let pool = open(memory);
    let found = snapshot_from(&pool, pool.root(), Times::ALL, Some(before)).unwrap();
    assert_eq!(difference(before, &found), None, "{what}");
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![], "{what}");
}

#[test]
fn what_can_not_be_done_is_an_error_and_nothing_is_left_of_it() {
    let path = |path: &str| path.as_bytes().to_vec();
    let leave = |it: &str, number| Change::Leave { path: path(it), number };
    let come = |it: &str, number| Change::Come { path: path(it), number };
    let xattr =
        |name: &[u8]| Change::SetXattr { path: path("d"), name: name.into(), value: vec![] };
    let cases: Vec<(&str, Vec<Change>)> = vec![
        (
            "a directory in itself",
            vec![leave("d", 1), come("e/d", 1), leave("e", 2), come("e/d/e", 2)],
        ),
        ("what did not leave", vec![come("x", 7)]),
        ("a directory that does not come", vec![leave("d", 1), Change::Clear]),
        ("a name of nothing", vec![Change::Attach { path: path("x"), number: 5 }]),
        ("its own directory", vec![make(".moves/x", mode::FILE)]),
        ("its own directory itself", vec![make(".moves", mode::FILE)]),
        (
            "a directory that is not empty",
            vec![Change::Remove { path: path("d"), is_directory: true }],
        ),
        ("a directory as a file", vec![Change::Remove { path: path("d"), is_directory: false }]),
        ("a second name of a directory", vec![Change::Hold { path: path("d"), number: 1 }]),
        ("a link to a directory", vec![Change::Link { path: path("x"), existing: path("d") }]),
        ("no type", vec![make("x", 0o644)]),
        ("a type that is none", vec![make("x", 0o170_644)]),
        ("a mode that is none", vec![make("x", 0o300_644)]),
        ("a name that is there", vec![make("d/f", mode::DIRECTORY)]),
        (
            "a link without a target",
            vec![Change::Make { path: path("x"), mode: mode::SYMLINK, rdev: 0, target: vec![] }],
        ),
        (
            "a file with a target",
            vec![Change::Make { path: path("x"), mode: mode::FILE, rdev: 0, target: vec![1] }],
        ),
        ("through a link", vec![make("l", mode::SYMLINK), make("l/x", mode::FILE)]),
        ("below a file", vec![make("d/f/x", mode::FILE)]),
        ("bytes of a directory", vec![Change::Write { path: path("d"), offset: 0, data: vec![1] }]),
        (
            "bytes far away",
            vec![Change::Write { path: path("d/f"), offset: u64::MAX - 3, data: vec![1; 9] }],
        ),
        (
            "more room than there is",
            vec![Change::Allocate { path: path("d/f"), offset: 0, len: 1 << 40 }],
        ),
        ("room behind all", vec![Change::Allocate { path: path("d/f"), offset: u64::MAX, len: 9 }]),
        ("a hole behind all", vec![Change::Punch { path: path("d/f"), offset: u64::MAX, len: 9 }]),
        ("no room", vec![Change::Zero { path: path("d/f"), offset: 0, len: 0 }]),
        ("a size that is none", vec![Change::Size { path: path("d/f"), size: u64::MAX }]),
        ("an attribute without a name", vec![xattr(b"")]),
        ("an attribute with a NUL", vec![xattr(b"user.\0")]),
        ("an attribute with a long name", vec![xattr(&[b'x'; 300])]),
    ];
    for (what, changes) in cases {
        let (memory, before, header) = pool();
        let pool = open(&memory);
        let received = receive(&pool, &forged(&header, &changes));
        let right = matches!(received, Err(Error::Pool { .. } | Error::Impossible { .. }));
        assert!(right, "{what}: {received:?}");
        drop(pool);
        abandoned(&memory, &before, what);
    }
}

#[test]
fn a_stream_with_other_frames_is_not_spliced_in() {
    let (memory, before, header) = pool();
    let pool = open(&memory);
    let len = header.encode().0.len();
    let one = forged(&header, &[make("x", mode::FILE | 0o600)]);
    // (A frame has 12 bytes and its contents, the end has 8 of those.)
    assert!(matches!(receive(&pool, &one[..one.len() - 20]), Err(Error::Cut { .. })));
    // Its first frame goes on behind the end of that one; the number of frames would be right.
    let (mut other, crc) = header.encode();
    let mut frames = Frames::behind(crc);
    frames.put(&make("longer", mode::FILE | 0o600), &mut other);
    frames.put(&Change::End { frames: 2 }, &mut other);
    assert!(other.len() > one.len() && one.len() > len + 20);
    let received = receive(&pool, &other);
    assert!(matches!(received, Err(Error::Damaged { .. })), "{received:?}");
    drop(pool);
    abandoned(&memory, &before, "spliced");
}

#[test]
fn frames_that_are_too_long_or_of_no_kind_are_not_believed() {
    let (memory, before, header) = pool();
    let (bytes, _) = header.encode();
    for (kind, len) in [(10, u32::MAX), (10, 1 << 21), (0, 4), (99, 4)] {
        let mut odd = bytes.clone();
        odd.extend([kind, 0, 0, 0]);
        odd.extend(u32::to_le_bytes(len));
        odd.extend([0; 64]);
        let received = receive(&open(&memory), &odd);
        assert!(matches!(received, Err(Error::Damaged { .. })), "{kind} {len}: {received:?}");
    }
    abandoned(&memory, &before, "frames");
}

/// A change of few names and odd numbers.
fn any(rng: &mut Rng) -> Change {
    let paths = ["", "d", "e", "d/f", "x", "d/x", "e/y", "e/d", "x/y/z", "d/f/g"];
    let mut path = || paths[rng.below(paths.len() as u64) as usize].as_bytes().to_vec();
    let (path, existing) = (path(), path());
    let numbers = [0, 1, 4096, 5000, 1 << 20, 1 << 40, u64::MAX];
    let mut pick = || numbers[rng.below(numbers.len() as u64) as usize];
    let (offset, len) = (pick(), pick());
    let number = rng.below(3);
    let types = [mode::FILE, mode::DIRECTORY, mode::SYMLINK, mode::FIFO, mode::CHARACTER, 0];
    let bits = types[rng.below(6) as usize] | rng.below(0o10_000) as u32;
    match rng.below(16) {
        0 => Change::Leave { path, number },
        1 => Change::Hold { path, number },
        2 => Change::Remove { path, is_directory: rng.below(2) == 0 },
        3 => Change::Make { path, mode: bits, rdev: number, target: Vec::new() },
        4 => Change::Make { path, mode: mode::SYMLINK, rdev: 0, target: existing },
        5 => Change::Link { path, existing },
        6 => Change::Come { path, number },
        7 => Change::Attach { path, number },
        8 => Change::Clear,
        9 => Change::Size { path, size: offset },
        10 => Change::Write { path, offset, data: vec![3; (len % 9000) as usize] },
        11 => Change::Zero { path, offset, len },
        12 => Change::Punch { path, offset, len },
        13 => Change::SetXattr { path, name: b"user.x".to_vec(), value: existing },
        14 => Change::RemoveXattr { path, name: b"user.x".to_vec() },
        _ => Change::Attr { path, mode: bits, uid: 1, gid: 2, atime_ns: 3, mtime_ns: i64::MIN },
    }
}

#[test]
fn random_changes_do_no_harm() {
    let (mut done, mut refused) = (0, 0);
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let (memory, before, header) = pool();
        let pool = open(&memory);
        // Each change that can be made is, so that the next ones meet more.
        let mut tree = super::Tree::new(&pool, b".moves");
        let header_len = header.encode().0.len();
        let begun = receive(&pool, &header.encode().0);
        assert!(matches!(begun, Err(Error::Cut { offset }) if offset as usize == header_len));
        for _ in 0..20 {
            let change = any(&mut rng);
            match tree.apply(&change, 0) {
                Ok(()) => {
                    // Twice is as good as once.
                    let again = tree.apply(&change, 0);
                    assert!(again.is_ok(), "seed {seed}: again {change:?}: {again:?}");
                    done += 1;
                }
                Err(Error::Pool { .. } | Error::Impossible { .. }) => refused += 1,
                Err(error) => panic!("seed {seed}: {change:?}: {error}"),
            }
        }
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![], "seed {seed}");
        drop(pool);
        abandoned(&memory, &before, &format!("seed {seed}"));
    }
    println!("{done} changes made, {refused} refused");
    assert!(done > 500 && refused > 500);
}

#[test]
fn what_is_sent_is_deterministic_across_openings() {
    let (memory, ..) = pool();
    let bytes = || {
        let pool = open(&memory);
        let mut sender = Sender::new(&pool, b"forged", None).unwrap();
        assert_eq!(sender.header().name, b"forged");
        let mut bytes = Vec::new();
        while sender.next(&pool, &mut bytes).unwrap() {}
        bytes
    };
    assert_eq!(bytes(), bytes());
}
