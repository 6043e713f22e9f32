//! A limit for the memory of the indexes is kept, whatever is done meanwhile and by how many, and nothing
//! that is seen of the pool depends on what is in memory.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use lode_engine::{
    AccessTimes, Error, FormatOptions, Ino, NewInode, OpenOptions, PAGE_BYTES, Pool, Staging, mode,
};
use lode_model::Model;
use lode_testkit::execute::{Handles, execute};
use lode_testkit::format::SLOT;
use lode_testkit::fs::{Fs, TestPool};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::Path;
use lode_testkit::rng::Rng;
use lode_testkit::run::same;
use lode_testkit::snapshot::{Times, difference, snapshot};
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };
const KIB: u64 = 1 << 10;
/// Directories of the pool, and files of each.
const DIRS: u64 = 30;
const FILES: u64 = 60;

fn open(memory: &Memory, index_memory: Option<u64>) -> TestPool {
    let options = OpenOptions { index_memory, atime: AccessTimes::Never, ..OpenOptions::default() };
    Pool::open(memory.clone(), TestHost::with_cpus(1, 2), &options).unwrap()
}

fn named(kind: &str, number: u64) -> Vec<u8> {
    format!("{kind}{number}").into_bytes()
}

fn fill(fs: &dyn Fs) {
    for dir_number in 0..DIRS {
        let dir = fs.create(fs.root(), &named("d", dir_number), &NEW_DIR).unwrap().ino;
        for number in 0..FILES {
            let file = fs.create(dir, &named("f", number), &NEW).unwrap();
            fs.write(file.ino, 0, &vec![1; (dir_number * FILES + number) as usize]).unwrap();
        }
    }
}

/// A closed pool with many files, whose sizes are their numbers, and what its indexes take when none of
/// them is in memory, and when all are.
fn made() -> (Memory, u64, u64) {
    let memory = Memory::new(64 << 20);
    let format = FormatOptions { lanes: 2, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let pool = open(&memory, None);
    fill(&pool);
    let all = pool.gauges().unwrap().memory.total();
    pool.close().unwrap();
    let none = open(&memory.copy(), None).gauges().unwrap().memory.total();
    (memory, none, all)
}

/// Looks at some file, which must be as it was made.
fn look(pool: &TestPool, rng: &mut Rng) -> Ino {
    let (dir_number, number) = (rng.below(DIRS), rng.below(FILES));
    let dir = pool.lookup(pool.root(), &named("d", dir_number)).unwrap().ino;
    let attr = pool.lookup(dir, &named("f", number)).unwrap();
    assert_eq!(attr.size, dir_number * FILES + number);
    let mut bytes = vec![0; attr.size as usize + 1];
    assert_eq!(pool.read(attr.ino, 0, &mut bytes), Ok(attr.size as usize));
    assert!(bytes[..attr.size as usize].iter().all(|&byte| byte == 1));
    attr.ino
}

fn look_often(pool: &TestPool, times: usize) {
    let mut rng = Rng::new(times as u64);
    for _ in 0..times {
        look(pool, &mut rng);
    }
}

/// Random operations of each of `threads` in a subtree of its own, looks at all the others between
/// them, and how much memory there was at most, whenever somebody asked.
fn busy(pool: &TestPool, threads: usize, count: usize) -> u64 {
    let (model, most) = (Model::new(), AtomicU64::new(0));
    fill(&model);
    for thread in 0..threads {
        let name = named("t", thread as u64);
        pool.create(pool.root(), &name, &NEW_DIR).unwrap();
        model.create(model.root(), &name, &NEW_DIR).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (model, most) = (&model, &most);
            scope.spawn(move || {
                let below = Path::of(&format!("t{thread}"));
                let shape = Shape { below, maintain_every: 50, ..Shape::default() };
                let mut rng = Rng::new(thread as u64);
                let (mut handles, mut model_handles) = (Handles::new(), Handles::new());
                for op in Generator::new(thread as u64 + 70, shape).take(count) {
                    let found = execute(pool, &mut handles, &op);
                    let wanted = execute(model, &mut model_handles, &op);
                    assert!(same(&wanted, &found), "{op}: {wanted:?}, {found:?}");
                    for _ in 0..6 {
                        look(pool, &mut rng);
                        most.fetch_max(pool.gauges().unwrap().memory.total(), SeqCst);
                    }
                }
                handles.values().for_each(|open| pool.release(open.ino()));
                model_handles.values().for_each(|open| model.release(open.ino()));
            });
        }
    });
    let wanted = snapshot(&model, Times::NONE, None).unwrap();
    let found = snapshot(pool, Times::NONE, Some(&wanted)).unwrap();
    assert_eq!(difference(&wanted, &found), None);
    let report = pool.check(&mut |_, _| ()).unwrap();
    assert_eq!(report.damage, []);
    most.into_inner()
}

#[test]
fn the_limit_is_kept_at_every_look_and_nothing_else_is_seen_of_it() {
    let (memory, none, all) = made();
    // What two threads may have in use, and what came in since there was last made room.
    const IN_USE: u64 = 40 * KIB;
    for (threads, room) in [(1, 100 * KIB), (2, 100 * KIB), (2, 0)] {
        let limit = none + room;
        assert!(limit + IN_USE + 200 * KIB < all, "{limit} is no limit where all are {all}");
        let pool = open(&memory.copy(), Some(limit));
        let most = busy(&pool, threads, 500);
        // (Free space, tables and what else has to be there grow in some hundred operations.)
        let standing = pool.gauges().unwrap().memory;
        let grown = (standing.free_space + standing.tables + standing.wear).saturating_sub(none);
        println!("{threads} threads, {room} for inodes: {most} of {limit}, {none} without any");
        assert!(most <= limit + grown + IN_USE, "{most} of {limit}");
        assert!(pool.stats().dropped_inodes > 1000);
        let seen = snapshot(&pool, Times::NONE, None).unwrap();
        let again = open(&pool.medium().copy(), None);
        let found = snapshot(&again, Times::NONE, Some(&seen)).unwrap();
        assert_eq!(difference(&seen, &found), None);
    }
}

#[test]
fn without_a_limit_nothing_is_dropped() {
    let (memory, _, all) = made();
    let pool = open(&memory, None);
    look_often(&pool, 20_000);
    pool.maintain().unwrap();
    assert_eq!((pool.stats().dropped_inodes, pool.gauges().unwrap().memory_limit), (0, None));
    let found = pool.gauges().unwrap().memory.total();
    assert!(found > all * 8 / 10 && found < all * 12 / 10, "{found} {all}");
}

/// It is weighed again as it grows: others go for it.
#[test]
fn what_grows_while_it_is_in_use_takes_the_room_of_others() {
    let (memory, none, _) = made();
    let pool = open(&memory, Some(none + 300 * KIB));
    let of_all = || {
        let memory = pool.gauges().unwrap().memory;
        memory.inodes + memory.entries + memory.extents
    };
    let standing = of_all();
    let of_inodes = || of_all() - standing;
    let ino = pool.create(pool.root(), b"long", &NEW).unwrap().ino;
    let file = pool.hold(ino).unwrap();
    look_often(&pool, 5000);
    assert!(of_inodes() > 200 * KIB);
    for step in 0..4000 {
        pool.write_held(&file, step * 2 * PAGE_BYTES, &[1; PAGE_BYTES as usize]).unwrap();
    }
    pool.maintain().unwrap();
    let found = of_inodes();
    assert!(pool.gauges().unwrap().memory.extents > 150 * KIB);
    assert!(found < 340 * KIB, "{found}");
    pool.let_go(file);
    look_often(&pool, 5000);
    assert!(pool.gauges().unwrap().memory.extents < 50 * KIB, "it is dropped as others are");
}

/// What is wanted again and again stays, however many others are wanted once. (Of what is in memory
/// nobody notices that its log is damaged.)
#[test]
fn what_is_wanted_again_is_not_dropped_for_what_is_wanted_once() {
    let (memory, none, _) = made();
    let pool = open(&memory, Some(none + 150 * KIB));
    let root = pool.root();
    let [hot, cold] = ["d0", "d1"].map(|dir| {
        let dir = pool.lookup(root, dir.as_bytes()).unwrap().ino;
        pool.lookup(dir, b"f1").unwrap().ino
    });
    assert!(pool.getattr(hot).is_ok() && pool.getattr(cold).is_ok());
    for ino in [hot, cold] {
        pool.medium().put(ino * SLOT as u64, &[0xAA; 64]);
    }
    for dir_number in 2..DIRS {
        let dir = pool.lookup(root, &named("d", dir_number)).unwrap().ino;
        for number in 0..FILES {
            pool.lookup(dir, &named("f", number)).unwrap();
            assert!(pool.getattr(hot).is_ok(), "dropped after {dir_number} {number}");
        }
    }
    assert!(matches!(pool.getattr(cold), Err(Error::Corrupt(_))));
}

/// Files that are gone but open, that have no name, or that are mapped, and how often each is open.
#[test]
fn what_no_log_tells_stays_in_memory() {
    let (memory, _, _) = made();
    let pool = open(&memory, Some(0));
    let root = pool.root();
    let inodes = pool.statfs().inodes;
    let dir = pool.lookup(root, b"d3").unwrap().ino;
    let read = |ino| {
        let mut bytes = [0; 3];
        pool.read(ino, 0, &mut bytes).map(|len| bytes[..len].to_vec())
    };

    let gone = pool.create(root, b"gone", &NEW).unwrap().ino;
    pool.write(gone, 0, b"one").unwrap();
    let dropped = pool.create(dir, b"dropped", &NEW).unwrap().ino;
    pool.acquire(gone).unwrap();
    pool.acquire(dropped).unwrap();
    pool.acquire(dropped).unwrap();
    pool.unlink(root, b"gone").unwrap();
    let nameless = pool.create_nameless(root, &NEW, &[]).unwrap().ino;
    pool.write(nameless, 0, b"two").unwrap();
    let mapped = pool.create(root, b"mapped", &NEW).unwrap().ino;
    pool.write(mapped, 0, &[5; PAGE_BYTES as usize]).unwrap();
    let handle = pool.hold(mapped).unwrap();
    pool.map(&handle, 0, PAGE_BYTES).unwrap();
    pool.stage(&handle, 0, PAGE_BYTES, Staging::Zeroed).unwrap();
    pool.let_go(handle);

    look_often(&pool, 3000);
    pool.maintain().unwrap();
    assert!(pool.stats().dropped_inodes > 2000);
    assert_eq!((read(gone), read(nameless)), (Ok(b"one".to_vec()), Ok(b"two".to_vec())));
    assert_eq!(read(mapped), Ok(vec![5; 3]));
    let handle = pool.hold(mapped).unwrap();
    assert_eq!((pool.maps(&handle), pool.staged(&handle)), (Ok(1), Ok(vec![(0, PAGE_BYTES)])));
    pool.let_go(handle);
    pool.link(nameless, root, b"named").unwrap();
    pool.release(nameless);
    pool.release(gone);
    assert_eq!(read(gone), Err(Error::Stale));
    // This one was dropped, and is open twice: it ends with the second release.
    pool.unlink(dir, b"dropped").unwrap();
    look_often(&pool, 1000);
    assert!(read(dropped).is_ok());
    pool.release(dropped);
    look_often(&pool, 1000);
    assert!(read(dropped).is_ok());
    pool.release(dropped);
    assert_eq!(read(dropped), Err(Error::Stale));
    // `mapped` and `named` have come.
    assert_eq!(pool.statfs().inodes, inodes + 2);
}

/// A kernel that remembers many inodes has them open: that takes some bytes each, not an index.
#[test]
fn an_open_inode_that_is_dropped_takes_a_few_bytes() {
    const MANY: u64 = 20_000;
    let memory = Memory::new(64 << 20);
    Pool::format(memory.clone(), TestHost::new(1), &FormatOptions::default()).unwrap();
    let pool = open(&memory, Some(0));
    let inos: Vec<Ino> = (0..MANY)
        .map(|number| pool.create(pool.root(), &named("f", number), &NEW).unwrap().ino)
        .collect();
    pool.maintain().unwrap();
    let before = pool.gauges().unwrap();
    assert!(before.inodes_in_memory < 10, "{before:?}");
    inos.iter().for_each(|&ino| pool.acquire(ino).unwrap());
    pool.maintain().unwrap();
    let open = pool.gauges().unwrap();
    assert!(open.inodes_in_memory < 10, "{open:?}");
    let each = (open.memory.inodes - before.memory.inodes) / MANY;
    assert!((8..48).contains(&each), "{each} bytes for each inode that is open");
    // All are still open: a file that is removed ends when it is closed.
    pool.unlink(pool.root(), &named("f", 9)).unwrap();
    assert!(pool.getattr(inos[9]).is_ok());
    inos.iter().for_each(|&ino| pool.release(ino));
    pool.maintain().unwrap();
    assert_eq!(pool.getattr(inos[9]), Err(Error::Stale));
    let after = pool.gauges().unwrap().memory.inodes;
    assert!(after < before.memory.inodes + 8 * KIB, "{after} {before:?}");
}

/// A directory that takes more than all indexes may is served, and dropped when it is not wanted.
#[test]
fn a_directory_larger_than_the_limit_is_served_and_dropped() {
    const MANY: u64 = 20_000;
    let memory = Memory::new(64 << 20);
    Pool::format(memory.clone(), TestHost::new(1), &FormatOptions::default()).unwrap();
    let pool = open(&memory, None);
    let dir = pool.create(pool.root(), b"large", &NEW_DIR).unwrap().ino;
    for number in 0..MANY {
        pool.create(dir, &named("f", number), &NEW).unwrap();
    }
    let other = pool.create(pool.root(), b"other", &NEW_DIR).unwrap().ino;
    for number in 0..200 {
        pool.create(other, &named("f", number), &NEW).unwrap();
    }
    pool.close().unwrap();
    let none = open(&memory.copy(), None).gauges().unwrap().memory.total();
    let pool = open(&memory, Some(none + 200 * KIB));
    for number in 0..MANY {
        pool.lookup(dir, &named("f", number)).unwrap();
        if number % 100 == 0 {
            let entries = pool.gauges().unwrap().memory.entries;
            assert!(entries > 500 * KIB, "it was dropped while it was wanted: {entries}");
        }
    }
    for _ in 0..3 {
        for number in 0..200 {
            pool.lookup(other, &named("f", number)).unwrap();
        }
        pool.maintain().unwrap();
    }
    let memory = pool.gauges().unwrap().memory;
    assert!(memory.total() <= none + 200 * KIB && memory.entries < 100 * KIB, "{memory:?}");
}

/// What has come without having been counted yet is below the limit, too.
#[test]
fn who_looks_at_more_than_there_is_room_for_stays_under_the_limit() {
    let memory = Memory::new(64 << 20);
    let format = FormatOptions { lanes: 2, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let pool = open(&memory, None);
    let mut files = Vec::new();
    for dir_number in 0..100 {
        let dir = pool.create(pool.root(), &named("d", dir_number), &NEW_DIR).unwrap().ino;
        files.extend((0..200).map(|it| pool.create(dir, &named("f", it), &NEW).unwrap().ino));
    }
    let all = pool.gauges().unwrap().memory.total();
    pool.close().unwrap();
    drop(pool);
    let none = open(&memory, None).gauges().unwrap().memory.total();
    for part in [2, 3, 8] {
        let limit = none + (all - none) / part;
        let pool = open(&memory.copy(), Some(limit));
        for some in files.chunks(25) {
            some.iter().for_each(|ino| assert_eq!(pool.getattr(*ino).unwrap().ino, *ino));
            let total = pool.gauges().unwrap().memory.total();
            assert!(total <= limit, "{total} of {limit}, {none} of {all} without inodes");
        }
        assert!(pool.stats().dropped_inodes > 5000);
    }
}
