//! Snapshots that come and go, of which there is always one: logs of files do not grow with how many there have been, those of
//! directories by little.

use lode_engine::{
    AccessTimes, FormatOptions, Ino, NewInode, OpenOptions, Pool, Protection, RenameMode,
    XattrChange, XattrWhen, mode,
};
use lode_testkit::rng::Rng;
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot_from};
use lode_testkit::{Memory, TestHost};

type TestPool = Pool<Memory, TestHost>;

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
const DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, ..NEW };

/// Snapshots that are kept at a time.
const KEPT: usize = 3;
const ROUNDS: usize = 120;

fn options() -> OpenOptions {
    OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() }
}

fn pool_of(protection: Protection) -> (Memory, TestPool) {
    let memory = Memory::new(64 << 20);
    let format = FormatOptions { protection, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let pool = TestPool::open(memory.clone(), TestHost::new(1), &options()).unwrap();
    (memory, pool)
}

fn seen(pool: &TestPool, root: Ino) -> Snapshot {
    snapshot_from(pool, root, Times::ALL, None).unwrap()
}

/// Works, makes a snapshot and ends the oldest, again and again, and goes on with the pool as it is after a crash and after
/// a clean end now and then: the log of the inode has as many pages at the end as it had at some time in the first third, or
/// some more, and `each` for each snapshot since. All snapshots that are there at the end are what was there when they were made.
fn rotate(
    (mut memory, mut pool): (Memory, TestPool),
    ino: Ino,
    each: usize,
    mut work: impl FnMut(&TestPool, usize),
) {
    let mut kept: Vec<(String, Snapshot)> = Vec::new();
    let (mut most, mut found) = (0, 0);
    for round in 0..ROUNDS {
        work(&pool, round);
        let name = format!("s{round}");
        pool.create_snapshot(name.as_bytes()).unwrap();
        kept.push((name, seen(&pool, pool.root())));
        if kept.len() > KEPT {
            pool.delete_snapshot(kept.remove(0).0.as_bytes()).unwrap();
            pool.maintain().unwrap();
        }
        found = pool.dump_inode(ino).unwrap().log_pages.len();
        if round < ROUNDS / 3 {
            most = most.max(found);
        }
        if round % 40 == 39 {
            assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, [], "round {round}");
            if round % 80 == 79 {
                pool.maintain().unwrap();
                pool.close().unwrap();
            }
            memory = memory.copy();
            drop(pool);
            pool = TestPool::open(memory.clone(), TestHost::new(2), &options()).unwrap();
        }
        for (name, wanted) in &kept {
            let root = pool.snapshot_root(name.as_bytes()).unwrap();
            let found = snapshot_from(&pool, root, Times::ALL, Some(wanted)).unwrap();
            assert_eq!(difference(wanted, &found), None, "{name} in round {round}");
        }
    }
    let enough = most + 20 + each * (ROUNDS - ROUNDS / 3);
    assert!(found <= enough, "{found} pages of the log, {most} in the first third");
}

#[test]
fn the_log_of_a_directory_whose_names_come_and_go_grows_by_little() {
    for protection in [Protection::None, Protection::Metadata] {
        let (memory, pool) = pool_of(protection);
        let dir = pool.create(pool.root(), b"dir", &DIR).unwrap().ino;
        for number in 0..300 {
            pool.create(dir, format!("old{number}").as_bytes(), &NEW).unwrap();
        }
        rotate((memory, pool), dir, 2, |pool, _| {
            for turn in 0..20 {
                let name = |number| format!("new{}", (turn * 50 + number) % 256);
                for number in 0..50 {
                    pool.create(dir, name(number).as_bytes(), &NEW).unwrap();
                }
                for number in 0..50 {
                    pool.unlink(dir, name(number).as_bytes()).unwrap();
                }
            }
        });
    }
}

/// Each round an old name goes for good, and a new one comes to stay.
#[test]
fn the_log_of_a_directory_of_which_all_names_change_grows_by_what_changes() {
    let (memory, pool) = pool_of(Protection::None);
    let dir = pool.create(pool.root(), b"dir", &DIR).unwrap().ino;
    let name = |number: usize| format!("name{number}");
    let (names, each) = (400, 30);
    for number in 0..names {
        pool.create(dir, name(number).as_bytes(), &NEW).unwrap();
    }
    rotate((memory, pool), dir, 2, |pool, round| {
        for number in round * each..(round + 1) * each {
            pool.create(dir, name(names + number).as_bytes(), &NEW).unwrap();
            pool.unlink(dir, name(number).as_bytes()).unwrap();
        }
        for turn in 0..200 {
            let short = format!("short{turn}");
            pool.create(dir, short.as_bytes(), &NEW).unwrap();
            pool.unlink(dir, short.as_bytes()).unwrap();
        }
    });
}

#[test]
fn the_log_of_a_file_that_is_overwritten_does_not_grow() {
    for protection in [Protection::None, Protection::Full] {
        let (memory, pool) = pool_of(protection);
        let ino = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
        let pages = 300;
        for page in 0..pages {
            pool.write(ino, page * 4096, &[1; 4096]).unwrap();
        }
        let mut rng = Rng::new(7);
        rotate((memory, pool), ino, 0, |pool, round| {
            for _ in 0..400 {
                pool.write(ino, rng.below(pages) * 4096, &[round as u8; 4096]).unwrap();
                pool.write(ino, rng.below(pages) * 4096 + 70, &[round as u8; 500]).unwrap();
            }
        });
    }
}

/// Attributes come and go, and names are taken by renames: no record says what these end.
#[test]
fn the_log_of_a_directory_in_which_no_record_says_what_has_ended_grows_by_what_changes() {
    let (memory, pool) = pool_of(Protection::None);
    let dir = pool.create(pool.root(), b"dir", &DIR).unwrap().ino;
    let set = |pool: &TestPool, number: u64, value: Option<&[u8]>| {
        let (name, when) = (format!("user.{number}"), XattrWhen::Always);
        let done = pool.setxattr(dir, &XattrChange { name: name.as_bytes(), value, when });
        assert!(done.is_ok() || value.is_none(), "{done:?}");
    };
    for number in 0..200 {
        pool.create(dir, format!("old{number}").as_bytes(), &NEW).unwrap();
    }
    (0..40).for_each(|number| set(&pool, number, Some(&[5; 100])));
    rotate((memory, pool), dir, 18, |pool, round| {
        for turn in 0..150 {
            let name = format!("old{}", (round * 150 + turn) % 200);
            pool.create(dir, b"over", &NEW).unwrap();
            pool.rename(dir, b"over", dir, name.as_bytes(), RenameMode::Replace).unwrap();
            set(pool, turn as u64 % 45, Some(&[round as u8; 70]));
            if turn % 3 == 0 {
                set(pool, (turn as u64 + 1) % 45, None);
            }
        }
    });
}
