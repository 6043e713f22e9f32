//! Logs that a snapshot sees are collected behind what it sees, and say the same.

use lode_engine::{
    AccessTimes, Fallocate, FormatOptions, Ino, NewInode, Op, OpenOptions, Pool, Protection,
    RenameMode, SetAttr, XattrChange, XattrWhen, mode,
};
use lode_testkit::rng::Rng;
use lode_testkit::snapshot::{Times, difference, snapshot_from};
use lode_testkit::{Memory, TestHost};

type TestPool = Pool<Memory, TestHost>;

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
const DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, ..NEW };

fn options() -> OpenOptions {
    OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() }
}

fn pool_of(bytes: u64, protection: Protection) -> (Memory, TestPool) {
    let memory = Memory::new(bytes);
    let format = FormatOptions { protection, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let pool = TestPool::open(memory.clone(), TestHost::new(1), &options()).unwrap();
    (memory, pool)
}

fn log_pages(pool: &TestPool, ino: Ino) -> usize {
    pool.dump_inode(ino).unwrap().log_pages.len()
}

/// The pool, after a crash and after a clean unmount, is sound and is what it was, and so is its snapshot.
fn survives(memory: &Memory, pool: TestPool, names: &[&[u8]]) {
    let root = |pool: &TestPool, name: &[u8]| match name {
        b"" => pool.root(),
        name => pool.snapshot_root(name).unwrap(),
    };
    let trees: Vec<_> = names
        .iter()
        .map(|name| snapshot_from(&pool, root(&pool, name), Times::ALL, None).unwrap())
        .collect();
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
    let crashed = memory.copy();
    pool.close().unwrap();
    drop(pool);
    for image in [crashed, memory.copy()] {
        let pool = TestPool::open(image.clone(), TestHost::new(2), &options()).unwrap();
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
        for (name, wanted) in names.iter().zip(&trees) {
            let found = snapshot_from(&pool, root(&pool, name), Times::ALL, Some(wanted)).unwrap();
            assert_eq!(difference(wanted, &found), None, "{:?}", String::from_utf8_lossy(name));
        }
        pool.close().unwrap();
        drop(pool);
        // Later snapshots go with each return to an older one.
        for (name, wanted) in names.iter().zip(&trees).rev().filter(|(name, _)| !name.is_empty()) {
            TestPool::rollback(image.clone(), TestHost::new(3), name).unwrap();
            let pool = TestPool::open(image.clone(), TestHost::new(3), &options()).unwrap();
            let found = snapshot_from(&pool, pool.root(), Times::ALL, Some(wanted)).unwrap();
            assert_eq!(
                difference(wanted, &found),
                None,
                "back to {:?}",
                String::from_utf8_lossy(name)
            );
            assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
            pool.close().unwrap();
        }
        let pool = TestPool::open(image, TestHost::new(2), &options()).unwrap();
        for name in names.iter().skip(1).take(1) {
            pool.delete_snapshot(name).unwrap();
        }
        pool.maintain().unwrap();
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
    }
}

/// A file is overwritten a million times while a snapshot of it is kept: its log has at most four times the lines
/// that what is in it takes, and a few pages.
#[test]
fn the_log_of_a_file_that_is_overwritten_under_a_snapshot_does_not_grow() {
    let (memory, pool) = pool_of(64 << 20, Protection::None);
    let ino = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
    let pages = 300;
    for page in 0..pages {
        pool.write(ino, page * 4096, &[1; 4096]).unwrap();
    }
    pool.create_snapshot(b"a").unwrap();
    let mut rng = Rng::new(7);
    let most = 4 * (2 * pages as usize / 63) + 12;
    let free = pool.statfs().pages_free;
    for turn in 0..1_000_000u64 {
        pool.write(ino, rng.below(pages) * 4096, &[turn as u8; 4096]).unwrap();
        if turn % 1000 == 0 {
            let found = log_pages(&pool, ino);
            assert!(found <= most, "{found} pages after {turn} writes, {most} are enough");
        }
    }
    let more = free - pool.statfs().pages_free;
    assert!(more <= pages + most as u64 + 64, "{more} pages more");
    survives(&memory, pool, &[b"", b"a"]);
}

/// The same of single pages of a large file, each snapshot of which costs what has changed since.
#[test]
fn snapshots_keep_what_has_changed_between_them_and_not_how_often() {
    let (memory, pool) = pool_of(64 << 20, Protection::Metadata);
    let ino = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
    let other = pool.create(pool.root(), b"other", &NEW).unwrap().ino;
    for page in 0..1000 {
        pool.write(ino, page * 4096, &[1; 4096]).unwrap();
        pool.write(other, (1000 - page) * 8192, &[1; 4096]).unwrap();
    }
    let before = log_pages(&pool, ino);
    for name in [b"a", b"b", b"c", b"d"] {
        pool.create_snapshot(name).unwrap();
        for turn in 0..5000u64 {
            pool.write(ino, turn % 5 * 4096, &[turn as u8; 4096]).unwrap();
            pool.write(other, turn % 7 * 8192, &[turn as u8; 600]).unwrap();
        }
    }
    let found = log_pages(&pool, ino);
    assert!(found <= before + 4 * 8, "{found} pages, {before} before");
    survives(&memory, pool, &[b"", b"a", b"b", b"c", b"d"]);
}

/// What ends what the snapshot sees is said again: names, attributes, holes, the ends of files.
#[test]
fn what_has_ended_stays_ended() {
    for protection in [Protection::None, Protection::Metadata, Protection::Full] {
        let (memory, pool) = pool_of(64 << 20, protection);
        let root = pool.root();
        let dir = pool.create(root, b"dir", &DIR).unwrap().ino;
        let file = pool.create(root, b"file", &NEW).unwrap().ino;
        let name = |number: u64| format!("name-{number:0width$}", width = 1 + number as usize % 60);
        for number in 0..200 {
            pool.create(dir, name(number).as_bytes(), &NEW).unwrap();
            pool.write(file, number * 8192, &[1; 8192]).unwrap();
        }
        let set = |number: u64, value: Option<&[u8]>| {
            let (name, when) = (format!("user.{number}"), XattrWhen::Always);
            let change = XattrChange { name: name.as_bytes(), value, when };
            pool.setxattr(file, &change).unwrap();
        };
        (0..40).for_each(|number| set(number, Some(&[5; 100])));
        set(1000, Some(&[6; 9000]));
        pool.create_snapshot(b"a").unwrap();
        let before = (log_pages(&pool, dir), log_pages(&pool, file));
        for number in (0..200).step_by(3) {
            pool.unlink(dir, name(number).as_bytes()).unwrap();
        }
        for number in (1..200).step_by(6) {
            let new = format!("moved-{number}");
            let replace = RenameMode::Replace;
            pool.rename(dir, name(number).as_bytes(), dir, new.as_bytes(), replace).unwrap();
            pool.create(dir, b"over", &NEW).unwrap();
            pool.rename(dir, b"over", dir, name(number + 1).as_bytes(), replace).unwrap();
        }
        pool.unlink(dir, name(2).as_bytes()).unwrap();
        (0..40).step_by(2).for_each(|number| set(number, None));
        set(1000, None);
        (1..40).step_by(4).for_each(|number| set(number, Some(b"new")));
        for number in (0..150).step_by(5) {
            pool.fallocate(file, Fallocate::Punch, number * 8192, 4096).unwrap();
        }
        pool.setattr(file, &SetAttr { size: Some(300 * 4096 + 77), ..SetAttr::default() }).unwrap();
        pool.write(file, 390 * 4096, &[9; 5000]).unwrap();
        // All of that is said in few lines, among many that mean nothing by now.
        for turn in 0..4000u64 {
            let name = format!("short-lived-{turn}");
            pool.create(dir, name.as_bytes(), &NEW).unwrap();
            pool.write(file, turn % 9 * 4096 + 100, &[turn as u8; 700]).unwrap();
            set(turn, Some(b"short-lived"));
            pool.unlink(dir, name.as_bytes()).unwrap();
            set(turn, None);
        }
        let found = (log_pages(&pool, dir), log_pages(&pool, file));
        let most = |before: usize| 3 * before + 30;
        assert!(found.0 <= most(before.0) && found.1 <= most(before.1), "{found:?} of {before:?}");
        let done = pool.stats().ops[Op::CollectThorough as usize];
        println!("{protection:?}: {before:?} {found:?} {done}");
        assert!(done >= 2, "{done} logs were rewritten");
        survives(&memory, pool, &[b"", b"a"]);
    }
}

/// An overwrite that the pages that stay tell of, and that is home long since, is not stored again after a crash.
#[test]
fn what_is_home_stays_home() {
    let (memory, pool) = pool_of(64 << 20, Protection::None);
    let ino = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
    let chmod = |bits: u32| {
        pool.setattr(ino, &SetAttr { mode: Some(bits), ..SetAttr::default() }).unwrap();
    };
    pool.write(ino, 0, &[1; 8192]).unwrap();
    chmod(0o600);
    pool.create_snapshot(b"a").unwrap();
    // The page becomes another one; then the overwrite is the last record in the inode's own lines.
    pool.write(ino, 100, &[2; 10]).unwrap();
    chmod(0o601);
    pool.write(ino, 200, &[3; 10]).unwrap();
    // What says that it is home means nothing else by the time when the log is written anew.
    for turn in 0..180 {
        pool.write(ino, 4096, &[turn; 4096]).unwrap();
    }
    pool.setattr(ino, &SetAttr { size: Some(4096), ..SetAttr::default() }).unwrap();
    for turn in 0..200 {
        chmod(0o600 | turn & 7);
    }
    assert!(log_pages(&pool, ino) <= 4, "{} pages", log_pages(&pool, ino));
    assert_eq!(pool.stats().ops[Op::CollectThorough as usize], 1);
    let file = pool.hold(ino).unwrap();
    let mapped = pool.map(&file, 0, 4096).unwrap();
    memory.put(mapped[0].pool_offset + 200, b"by a program");
    let crashed = memory.copy();
    let pool = TestPool::open(crashed, TestHost::new(2), &options()).unwrap();
    let mut found = [0; 12];
    pool.read(ino, 200, &mut found).unwrap();
    assert_eq!(&found, b"by a program");
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}
