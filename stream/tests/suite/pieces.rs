//! A stream that is cut off anywhere goes on from where it was cut, after a crash too; what is no stream, or another
//! one, is an error, and the pool is what it was when that is given up.

use crate::common::{TestPool, has, name, open, pages, receive, source, stream, target, tree_of};
use lode_engine::{Error as Engine, Fallocate, NewInode, mode};
use lode_stream::{Begun, Error, Receiver, Start, point_of};
use lode_testkit::rng::Rng;
use lode_testkit::snapshot::{Snapshot, difference};
use lode_testkit::system::PoolSystem;
use lode_testkit::{Memory, TestHost};

/// Streams to receive one after the other, and the trees that they give.
fn streams(seed: u64) -> Vec<(Vec<u8>, Snapshot)> {
    let (system, trees) = source(seed, 3, 200);
    streams_of(&system, trees)
}

fn streams_of(system: &PoolSystem, trees: Vec<Snapshot>) -> Vec<(Vec<u8>, Snapshot)> {
    let first = stream(system.pool(), &name(0), None);
    let next = |number: usize| stream(system.pool(), &name(number), Some(&name(number - 1)));
    [first, next(1), next(2)].into_iter().zip(trees).collect()
}

#[test]
fn cut_at_every_4_kib_and_resumed() {
    let mut all_cuts = 0;
    for seed in 0..6 {
        for whole in [false, true] {
            let memory = target(seed);
            for (number, (bytes, tree)) in streams(seed).into_iter().enumerate() {
                let (mut end, mut cuts) = (0, 0);
                loop {
                    end += 4096;
                    // (Each time as after a crash: the pool is not closed.)
                    let pool = open(&memory, true).unwrap();
                    let at = point_of(&pool).unwrap().map_or(0, |point| point.offset as usize);
                    // From where it was cut, or all again.
                    let from = if whole { 0 } else { at };
                    let received = receive(&pool, &bytes[from..end.min(bytes.len())], false);
                    match received {
                        Ok(_) => break,
                        Err(Error::Cut { offset }) => {
                            let noted = point_of(&pool).unwrap().map_or(0, |point| point.offset);
                            assert_eq!(offset, noted);
                            assert!(offset as usize <= end && offset as usize + (300 << 10) > end);
                            cuts += 1;
                        }
                        Err(error) => panic!("seed {seed}, stream {number}, to {end}: {error}"),
                    }
                }
                assert!(cuts + 1 >= bytes.len() / 4096);
                all_cuts += cuts;
                let pool = open(&memory, false).unwrap();
                has(&pool, &name(number), &tree, &format!("seed {seed}"));
            }
        }
    }
    println!("{all_cuts} cuts");
    assert!(all_cuts > 500);
}

#[test]
fn each_frame_can_come_twice() {
    // As where a crash comes between a change and its note: the note is of before.
    for seed in 0..4 {
        let memory = target(seed);
        let (system, trees) = source(seed, 3, 200);
        for (number, (bytes, tree)) in streams_of(&system, trees).into_iter().enumerate() {
            receive_twice(&memory, &bytes);
            let pool = open(&memory, false).unwrap();
            let what = format!("seed {seed}, stream {number}");
            has(&pool, &name(number), &tree, &what);
            let sent = system.pool().snapshot_root(&name(number)).unwrap();
            assert_eq!(pages(system.pool(), sent), pages(&pool, pool.root()), "{what}");
        }
    }
}

#[test]
fn room_behind_the_end_stays_where_a_size_comes_twice() {
    let memory = target(0);
    let pool = open(&memory, false).unwrap();
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    let ino = pool.create(pool.root(), b"f", &new).unwrap().ino;
    pool.write(ino, 0, &[1; 5000]).unwrap();
    pool.fallocate(ino, Fallocate::Allocate { keep_size: true }, 0, 100_000).unwrap();
    pool.create_snapshot(b"s0").unwrap();
    pool.append(ino, &[2; 9000]).unwrap();
    pool.create_snapshot(b"s1").unwrap();
    let there = target(1);
    for bytes in [stream(&pool, b"s0", None), stream(&pool, b"s1", Some(b"s0"))] {
        receive_twice(&there, &bytes);
    }
    let there = open(&there, false).unwrap();
    assert_eq!(pages(&pool, pool.root()), pages(&there, there.root()));
}

/// Receives a stream, each frame of it twice.
fn receive_twice(memory: &Memory, bytes: &[u8]) {
    let mut noted: Option<Vec<u8>> = None;
    loop {
        let pool = open(memory, true).unwrap();
        let at = point_of(&pool).unwrap().map_or(0, |point| point.offset as usize);
        let mut rest = &bytes[at..];
        let start = Start::read(&mut rest).unwrap();
        let Begun::Receiver(mut receiver) = Receiver::begin(&pool, &start, false).unwrap() else {
            panic!("there already")
        };
        let mut left = 2;
        let done = receiver.run(&mut rest, &mut |_| {
            left -= 1;
            left > 0
        });
        match done {
            Ok(()) => break,
            Err(Error::Interrupted { .. }) => {}
            Err(error) => panic!("at {at}: {error}"),
        }
        let now = pool.receiving().unwrap().unwrap().note;
        match noted.take() {
            // Each second time it goes on.
            Some(before) if before == now => {}
            _ => {
                let again = open_note(memory, bytes, at.max(header_len(bytes)));
                noted = Some(now);
                pool.note_receiving(&again).unwrap();
            }
        }
    }
}

/// The note of a stream that was received up to a frame's end, made by receiving it so far elsewhere.
fn open_note(memory: &Memory, bytes: &[u8], at: usize) -> Vec<u8> {
    let pool = open(memory, true).unwrap();
    let mut note = pool.receiving().unwrap().unwrap().note;
    // Behind the version: checksum (4), offset (8), frames (8).
    let mut frames = u64::from_le_bytes(note[16..24].try_into().unwrap());
    frames -= 1;
    note[8..16].copy_from_slice(&(at as u64).to_le_bytes());
    note[16..24].copy_from_slice(&frames.to_le_bytes());
    note[4..8].copy_from_slice(&chain_before(bytes, at).to_le_bytes());
    note
}

fn header_len(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize
}

/// The checksum of a stream up to a frame's end: the last frame before bears it.
fn chain_before(bytes: &[u8], at: usize) -> u32 {
    let mut pos = header_len(bytes);
    let mut crc = u32::from_le_bytes(bytes[pos - 4..pos].try_into().unwrap());
    while pos < at {
        let len = u32::from_le_bytes(bytes[pos + 4..pos + 8].try_into().unwrap()) as usize;
        crc = u32::from_le_bytes(bytes[pos + 8..pos + 12].try_into().unwrap());
        pos += 12 + len;
    }
    crc
}

/// Gives up what is being received, if anything is, and sees that the pool is what it was.
fn given_up(memory: &Memory, before: &Snapshot, what: &str) {
    match TestPool::abandon_receiving(memory.clone(), TestHost::new(3)) {
        Ok(()) | Err(Engine::NotFound) => {}
        Err(error) => panic!("{what}: {error:?}"),
    }
    let pool = open(memory, false).unwrap();
    let found = tree_of(&pool, pool.root(), Some(before));
    assert_eq!(difference(before, &found), None, "{what}");
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![], "{what}");
    pool.close().unwrap();
}

#[test]
fn damaged_streams_are_errors_and_leave_nothing() {
    let all = streams(5);
    let memory = target(5);
    receive(&open(&memory, true).unwrap(), &all[0].0, false).unwrap();
    let (bytes, before) = (&all[1].0, &all[0].1);
    let mut rng = Rng::new(1);
    for round in 0..400 {
        let mut odd = bytes.clone();
        let at = rng.below(odd.len() as u64) as usize;
        let what = match round % 4 {
            0 => {
                odd[at] ^= 1 << rng.below(8);
                "a bit"
            }
            1 => {
                odd.truncate(at);
                "the end"
            }
            2 => {
                let len = (1 + rng.below(5000) as usize).min(odd.len() - at);
                odd.drain(at..at + len);
                "a part is missing"
            }
            _ => {
                let from = rng.below(odd.len() as u64) as usize;
                let part = odd[from..(from + 700).min(odd.len())].to_vec();
                odd.splice(at..at, part);
                "a part is there twice"
            }
        };
        if odd == *bytes {
            continue;
        }
        let image = memory.copy();
        let pool = open(&image, true).unwrap();
        let received = receive(&pool, &odd, false);
        drop(pool);
        assert!(received.is_err(), "{what} at {at}");
        given_up(&image, before, what);
    }
}

#[test]
fn other_streams_do_not_fit() {
    let (all, others) = (streams(6), streams(7));
    let memory = target(6);
    let pool = open(&memory, true).unwrap();
    // A difference to what is not there; bytes in the middle of nothing.
    assert!(matches!(receive(&pool, &all[1].0, false), Err(Error::NoOlder)));
    assert!(matches!(receive(&pool, &[0; 100], false), Err(Error::NothingBegun)));
    assert!(matches!(receive(&pool, b"something else", false), Err(Error::NotAStream)));
    assert!(matches!(receive(&pool, b"", false), Err(Error::Cut { offset: 0 })));
    assert!(matches!(
        receive(&pool, &all[0].0[..all[0].0.len() / 2], false),
        Err(Error::Cut { .. })
    ));
    // Something else is being received.
    assert!(matches!(receive(&pool, &others[0].0, false), Err(Error::OtherStream(_))));
    let at = point_of(&pool).unwrap().unwrap().offset as usize;
    let gone_on = receive(&pool, &others[0].0[at..], false);
    assert!(matches!(gone_on, Err(Error::Damaged { .. } | Error::Cut { .. })), "{gone_on:?}");
    assert!(matches!(
        receive(&pool, &all[0].0[at + 1..], false),
        Err(Error::Damaged { .. } | Error::Cut { .. })
    ));
    receive(&pool, &all[0].0[at..], false).unwrap();
    // It is not empty, and has another snapshot of that name.
    assert!(matches!(receive(&pool, &others[0].0, false), Err(Error::NameTaken(_))));
    assert!(matches!(
        receive(&pool, &others[1].0, false),
        Err(Error::NameTaken(_) | Error::NoOlder)
    ));
    pool.delete_snapshot(&name(0)).unwrap();
    assert!(matches!(receive(&pool, &all[0].0, false), Err(Error::NotEmpty)));
}

#[test]
fn a_pool_that_was_changed_is_not_overwritten_unless_that_is_wanted() {
    let all = streams(8);
    let memory = target(8);
    let pool = open(&memory, true).unwrap();
    receive(&pool, &all[0].0, false).unwrap();
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    pool.create(pool.root(), b"of its own", &new).unwrap();
    let Err(Error::Changed { older, what }) = receive(&pool, &all[1].0, false) else {
        panic!("received over a change")
    };
    assert_eq!((older.as_str(), what.as_str()), ("s0", "/of its own"));
    let start = Start::read(&mut all[1].0.as_slice()).unwrap();
    let Begun::RollBack(back) = Receiver::begin(&pool, &start, true).unwrap() else {
        panic!("no rollback")
    };
    pool.close().unwrap();
    drop(pool);
    TestPool::rollback(memory.clone(), TestHost::new(4), &back).unwrap();
    receive(&open(&memory, true).unwrap(), &all[1].0, true).unwrap();
    has(&open(&memory, false).unwrap(), &name(1), &all[1].1, "rolled back");
    // All of it again, over what is there; until the end that is there for others, and snapshots stay.
    let other = streams(9).remove(0);
    let pool = open(&memory, true).unwrap();
    pool.delete_snapshot(&name(0)).unwrap();
    receive(&pool, &other.0[..other.0.len() / 2], true).unwrap_err();
    pool.close().unwrap();
    drop(pool);
    let image = memory.copy();
    given_up(&image, &all[1].1, "given up");
    receive(&open(&memory, true).unwrap(), &other.0, true).unwrap();
    let pool = open(&memory, false).unwrap();
    has(&pool, &name(0), &other.1, "all replaced");
    let kept = pool.snapshot_root(&name(1)).unwrap();
    assert_eq!(difference(&all[1].1, &tree_of(&pool, kept, Some(&all[1].1))), None);
}
