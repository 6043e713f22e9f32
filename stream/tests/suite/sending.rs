//! A stream that is made while others change the pool: of snapshots that are there to its end, or it is an error; no
//! piece of it takes long.

use crate::common::{TestPool, format, has, open, options, receive, stream, target, tree_of};
use lode_engine::{NewInode, mode};
use lode_stream::{Error, Sender};
use lode_testkit::{Memory, TestHost};

/// A pool with many files in snapshot `a`, of which a few have changed in `b`: one of the first, and one of the last.
fn pool(files: usize) -> TestPool {
    let memory = Memory::new(32 << 20);
    TestPool::format(memory.clone(), TestHost::new(9), &format(0)).unwrap();
    let pool = TestPool::open(memory, TestHost::new(10), &options(false)).unwrap();
    let new = NewInode { mode: mode::FILE | 0o640, uid: 1, gid: 2, rdev: 0 };
    let file = |name: usize| pool.create(pool.root(), format!("{name:05}").as_bytes(), &new);
    let inos: Vec<_> = (0..files).map(|name| file(name).unwrap().ino).collect();
    pool.create_snapshot(b"a").unwrap();
    for ino in [inos[0], inos[files - 1]] {
        pool.write(ino, 0, &vec![7; 300_000]).unwrap();
    }
    pool.create_snapshot(b"b").unwrap();
    pool
}

#[test]
fn a_snapshot_that_is_deleted_meanwhile_is_an_error() {
    for (older, deleted) in [(Some(&b"a"[..]), &b"a"[..]), (Some(b"a"), b"b"), (None, b"b")] {
        let pool = pool(3000);
        let whole = stream(&pool, b"b", older);
        let mut sender = Sender::new(&pool, b"b", older).unwrap();
        let mut bytes = Vec::new();
        while bytes.len() < 100_000 {
            assert!(sender.next(&pool, &mut bytes).unwrap());
        }
        pool.delete_snapshot(deleted).unwrap();
        let failed = loop {
            match sender.next(&pool, &mut bytes) {
                Ok(more) => assert!(more, "a stream of {} bytes", bytes.len()),
                Err(error) => break error,
            }
        };
        let name = String::from_utf8(deleted.to_vec()).unwrap();
        assert!(matches!(&failed, Error::Deleted(gone) if *gone == name), "{failed:?}");
        assert!(whole.starts_with(&bytes), "other bytes were told");
    }
}

#[test]
fn a_piece_looks_at_few_entries() {
    let pool = pool(5000);
    let mut sender = Sender::new(&pool, b"b", Some(b"a")).unwrap();
    let (mut bytes, mut pieces, mut empty) = (Vec::new(), 0, 0);
    loop {
        let before = bytes.len();
        let more = sender.next(&pool, &mut bytes).unwrap();
        (pieces, empty) = (pieces + 1, empty + usize::from(bytes.len() == before));
        if !more {
            break;
        }
    }
    // Each entry is looked at in each of four phases.
    assert!(pieces >= 4 * 5000 / 1024 && empty > 10, "{pieces} pieces, {empty} of them empty");
    let there = open(&target(1), true).unwrap();
    receive(&there, &stream(&pool, b"a", None), false).unwrap();
    receive(&there, &bytes, false).unwrap();
    let root = pool.snapshot_root(b"b").unwrap();
    has(&there, b"b", &tree_of(&pool, root, None), "in pieces");
}
