//! Files without a name: they last as long as they are open, and get their name whole.

use lode_engine::{
    Error, FormatOptions, NewInode, Op, OpenOptions, Pool, XattrChange, XattrWhen, mode,
};
use lode_testkit::fs::TestPool;
use lode_testkit::op::Fill;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o640, uid: 7, gid: 8, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };

fn pool() -> (Memory, TestPool) {
    pool_of(16 << 20)
}

fn pool_of(bytes: u64) -> (Memory, TestPool) {
    let memory = Memory::new(bytes);
    let host = TestHost::new(1);
    Pool::format(memory.clone(), host.clone(), &FormatOptions::default()).unwrap();
    let pool = Pool::open(memory.clone(), host, &OpenOptions::default()).unwrap();
    (memory, pool)
}

fn again(memory: &Memory, read_only: bool) -> TestPool {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Pool::open(memory.clone(), TestHost::new(2), &options).unwrap()
}

fn sound(pool: &TestPool) {
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}

fn bytes(len: u64) -> Vec<u8> {
    Fill { len, fill: 3 }.bytes()
}

/// Inodes and free pages, when nothing waits for a round.
fn space(pool: &TestPool) -> (u64, u64) {
    pool.maintain().unwrap();
    (pool.statfs().inodes, pool.statfs().pages_free)
}

#[test]
fn a_file_without_a_name_is_whole_and_is_gone_with_its_last_opening() {
    let (_, pool) = pool();
    // What one makes, stays: tables, and pages of the directory's log.
    let ino = pool.create_nameless(pool.root(), &NEW, &[]).unwrap().ino;
    pool.release(ino);
    let before = space(&pool);
    let xattr = XattrChange { name: b"user.x", value: Some(&[9; 5000]), when: XattrWhen::Always };
    let attr = pool.create_nameless(pool.root(), &NEW, &[xattr]).unwrap();
    assert_eq!((attr.links, attr.mode, attr.uid, attr.gid), (0, NEW.mode, 7, 8));
    pool.write(attr.ino, 100, &bytes(50_000)).unwrap();
    pool.acquire(attr.ino).unwrap();
    pool.release(attr.ino);
    assert_eq!(pool.getattr(attr.ino).unwrap().size, 50_100);
    assert_eq!(pool.getxattr(attr.ino, b"user.x").unwrap(), [9; 5000]);
    let mut entries = 0;
    pool.readdir(pool.root(), 0, &mut |_| {
        entries += 1;
        true
    })
    .unwrap();
    assert_eq!((entries, pool.statfs().inodes), (0, before.0 + 1));
    sound(&pool);
    pool.release(attr.ino);
    assert_eq!(pool.getattr(attr.ino), Err(Error::Stale));
    assert_eq!(space(&pool), before);
    sound(&pool);
    assert_eq!(pool.stats().ops[Op::Tmpfile as usize], 2);
}

#[test]
fn a_name_comes_with_all_that_was_written() {
    let (memory, pool) = pool();
    let dir = pool.create(pool.root(), b"d", &NEW_DIR).unwrap().ino;
    let ino = pool.create_nameless(pool.root(), &NEW, &[]).unwrap().ino;
    pool.append(ino, &bytes(9000)).unwrap();
    assert_eq!(pool.link(ino, dir, b"n").unwrap().links, 1);
    assert_eq!(pool.link(ino, dir, b"n"), Err(Error::Exists));
    assert_eq!(pool.link(ino, pool.root(), b"m").unwrap().links, 2);
    pool.release(ino);
    drop(pool);
    let pool = again(&memory, false);
    assert_eq!(pool.opening().orphans, 0);
    let found = pool.lookup(dir, b"n").unwrap();
    assert_eq!((found.ino, found.links, found.size), (ino, 2, 9000));
    let mut read = vec![0; 9000];
    assert_eq!((pool.read(ino, 0, &mut read), &read), (Ok(9000), &bytes(9000)));
    sound(&pool);
}

#[test]
fn what_had_a_name_gets_none_again() {
    let (_, pool) = pool();
    let ino = pool.create_nameless(pool.root(), &NEW, &[]).unwrap().ino;
    pool.link(ino, pool.root(), b"n").unwrap();
    pool.unlink(pool.root(), b"n").unwrap();
    assert_eq!(pool.link(ino, pool.root(), b"n"), Err(Error::NotFound));
    pool.release(ino);
    sound(&pool);
}

#[test]
fn only_files_are_made_without_a_name_and_only_in_directories() {
    let (_, pool) = pool();
    let root = pool.root();
    assert_eq!(pool.create_nameless(root, &NEW_DIR, &[]), Err(Error::Invalid));
    let file = pool.create(root, b"f", &NEW).unwrap().ino;
    assert_eq!(pool.create_nameless(file, &NEW, &[]), Err(Error::NotDirectory));
    let dir = pool.create(root, b"d", &NEW_DIR).unwrap().ino;
    pool.acquire(dir).unwrap();
    pool.rmdir(root, b"d").unwrap();
    assert_eq!(pool.create_nameless(dir, &NEW, &[]), Err(Error::NotFound));
    assert_eq!(pool.statfs().inodes, 3);
}

#[test]
fn a_crash_ends_files_without_a_name_and_frees_what_they_had() {
    let (memory, pool) = pool();
    let ino = pool.create_nameless(pool.root(), &NEW, &[]).unwrap().ino;
    pool.release(ino);
    let before = space(&pool);
    for _ in 0..20 {
        let ino = pool.create_nameless(pool.root(), &NEW, &[]).unwrap().ino;
        pool.append(ino, &bytes(20_000)).unwrap();
    }
    drop(pool);
    // Who only reads sees none of them, and leaves them there.
    let image = memory.image();
    let pool = again(&memory, true);
    assert_eq!((pool.opening().orphans, pool.statfs().inodes), (20, before.0));
    assert_eq!(pool.getattr(ino), Err(Error::Stale));
    sound(&pool);
    drop(pool);
    assert!(memory.image() == image);
    for orphans in [20, 0] {
        let pool = again(&memory, false);
        assert_eq!(pool.opening().orphans, orphans);
        assert_eq!(space(&pool), before);
        sound(&pool);
    }
}

#[test]
fn a_close_ends_files_without_a_name() {
    let (memory, pool) = pool();
    let free = pool.statfs().pages_free;
    for _ in 0..20 {
        let ino = pool.create_nameless(pool.root(), &NEW, &[]).unwrap().ino;
        pool.append(ino, &bytes(20_000)).unwrap();
    }
    pool.close().unwrap();
    drop(pool);
    let pool = again(&memory, false);
    assert!(pool.opening().clean);
    assert_eq!((pool.opening().orphans, pool.statfs().inodes), (0, 1));
    assert_eq!(pool.statfs().pages_free, free);
    sound(&pool);
}

/// The index of an inode that nobody uses right now is dropped when there are very many; that
/// of a file without a name must stay, or its end would be missed.
#[test]
fn files_without_a_name_stay_known_beside_many_others() {
    let (memory, pool) = pool_of(400 << 20);
    let ino = pool.create_nameless(pool.root(), &NEW, &[]).unwrap().ino;
    pool.append(ino, &bytes(5000)).unwrap();
    // More than the 64 x 4096 that are kept.
    for number in 0..300_000 {
        pool.create(pool.root(), format!("f{number}").as_bytes(), &NEW).unwrap();
    }
    pool.release(ino);
    assert_eq!(pool.getattr(ino), Err(Error::Stale));
    drop(pool);
    assert_eq!(again(&memory, false).opening().orphans, 0);
}

#[test]
fn a_mode_of_more_bits_than_a_mode_has_makes_nothing() {
    let (_, pool) = pool();
    for bits in [1 << 16, 1 << 31] {
        let new = NewInode { mode: NEW.mode | bits, ..NEW };
        assert_eq!(pool.create(pool.root(), b"n", &new), Err(Error::Invalid));
        assert_eq!(pool.create_nameless(pool.root(), &new, &[]), Err(Error::Invalid));
    }
    sound(&pool);
}
