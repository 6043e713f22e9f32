//! Extended attributes: what they may be, what becomes of their space, and what is never done
//! by halves.

use lode_engine::{
    Error, FormatOptions, Ino, NewInode, Op, OpenOptions, Pool, SetAttr, XATTR_LIST_MAX,
    XATTR_VALUE_MAX, XattrChange, XattrWhen, mode,
};
use lode_testkit::fs::TestPool;
use lode_testkit::op::Fill;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };

fn pool(bytes: u64) -> (Memory, TestPool) {
    let memory = Memory::new(bytes);
    let host = TestHost::new(1);
    Pool::format(memory.clone(), host.clone(), &FormatOptions::default()).unwrap();
    let pool = Pool::open(memory.clone(), host, &OpenOptions::default()).unwrap();
    (memory, pool)
}

fn again(memory: &Memory) -> TestPool {
    Pool::open(memory.clone(), TestHost::new(2), &OpenOptions::default()).unwrap()
}

fn set(pool: &TestPool, ino: Ino, name: &[u8], value: &[u8]) -> Result<(), Error> {
    pool.setxattr(ino, &XattrChange { name, value: Some(value), when: XattrWhen::Always })
}

fn remove(pool: &TestPool, ino: Ino, name: &[u8]) -> Result<(), Error> {
    pool.setxattr(ino, &XattrChange { name, value: None, when: XattrWhen::Present })
}

fn bytes(len: usize) -> Vec<u8> {
    Fill { len: len as u64, fill: len as u64 + 1 }.bytes()
}

fn sound(pool: &TestPool) {
    let report = pool.check(&mut |_, _| ()).unwrap();
    assert_eq!(report.damage, []);
}

#[test]
fn names_and_values_have_limits_and_nothing_behind_them_is_stored() {
    let (_, pool) = pool(16 << 20);
    let ino = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    let before = pool.statfs().pages_free;
    assert_eq!(set(&pool, ino, b"", b"x"), Err(Error::Invalid));
    assert_eq!(set(&pool, ino, b"a\0b", b"x"), Err(Error::Invalid));
    assert_eq!(set(&pool, ino, &[b'n'; 256], b"x"), Err(Error::NameTooLong));
    assert_eq!(set(&pool, ino, b"n", &bytes(XATTR_VALUE_MAX + 1)), Err(Error::TooLong));
    assert_eq!(pool.getxattr(ino, b"n"), Err(Error::NoAttribute));
    assert_eq!(remove(&pool, ino, b"n"), Err(Error::NoAttribute));
    let twice = [b"n", b"n"].map(|name| XattrChange {
        name: name.as_slice(),
        value: Some(&[1; 5000][..]),
        when: XattrWhen::Always,
    });
    let none = SetAttr::default();
    assert_eq!(pool.setattr_with(ino, &none, &twice), Err(Error::Invalid));
    assert_eq!(pool.create_with(pool.root(), b"g", &NEW, &twice), Err(Error::Invalid));
    assert_eq!(pool.statfs().pages_free, before);
    assert_eq!((pool.getattr(ino).unwrap().xattrs, pool.statfs().inodes), (0, 2));
    sound(&pool);
}

#[test]
fn the_names_of_an_inode_are_no_more_than_can_be_listed() {
    let (memory, pool) = pool(32 << 20);
    let ino = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    let name = |number: usize| format!("user.{number:0>250}").into_bytes();
    let most = XATTR_LIST_MAX / 256;
    for number in 0..most {
        set(&pool, ino, &name(number), b"x").unwrap();
    }
    assert_eq!(set(&pool, ino, b"user.a", b"x"), Err(Error::NoSpace));
    set(&pool, ino, &name(7), b"another value").unwrap();
    remove(&pool, ino, &name(8)).unwrap();
    set(&pool, ino, b"user.a", b"x").unwrap();
    drop(pool);
    let pool = again(&memory);
    assert_eq!(pool.listxattr(ino).unwrap().len(), most);
    assert_eq!(pool.getxattr(ino, &name(7)).unwrap(), b"another value");
    sound(&pool);
}

#[test]
fn values_that_end_give_their_pages_back() {
    let (_, pool) = pool(16 << 20);
    let ino = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    set(&pool, ino, b"first", b"x").unwrap();
    let before = pool.statfs().pages_free;
    for round in 0..50 {
        for len in [5000, 65_536, 10, 8192, 0] {
            set(&pool, ino, b"user.x", &bytes(len + round)[..len.max(round)]).unwrap();
        }
        remove(&pool, ino, b"user.x").unwrap();
    }
    let collected = pool.stats().ops[Op::CollectThorough as usize];
    assert!(collected > 0, "a log of many changes is collected");
    set(&pool, ino, b"user.x", &bytes(60_000)).unwrap();
    let child = pool.create(pool.root(), b"g", &NEW).unwrap().ino;
    set(&pool, child, b"user.y", &bytes(60_000)).unwrap();
    pool.unlink(pool.root(), b"g").unwrap();
    remove(&pool, ino, b"user.x").unwrap();
    pool.maintain().unwrap();
    assert!(before - pool.statfs().pages_free <= 3, "log pages at most");
    sound(&pool);
}

/// A value whose pages can't lie side by side is kept in pieces.
#[test]
fn a_long_value_finds_room_among_files() {
    let (memory, pool) = pool(2 << 20);
    let root = pool.root();
    let ino = pool.create(root, b"f", &NEW).unwrap().ino;
    let mut files = Vec::new();
    while let Ok(file) = pool.create(root, format!("{}", files.len()).as_bytes(), &NEW) {
        if pool.write(file.ino, 0, &[1; 4096]).is_err() {
            break;
        }
        files.push(file.ino);
    }
    for number in (0..files.len()).step_by(2) {
        pool.unlink(root, format!("{number}").as_bytes()).unwrap();
    }
    pool.maintain().unwrap();
    set(&pool, ino, b"user.x", &bytes(65_536)).unwrap();
    drop(pool);
    let pool = again(&memory);
    assert_eq!(pool.getxattr(ino, b"user.x").unwrap(), bytes(65_536));
    sound(&pool);
}

#[test]
fn a_full_pool_refuses_and_removes() {
    let (memory, pool) = pool(512 << 10);
    let ino = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    let mut count = 0;
    while set(&pool, ino, format!("user.{count}").as_bytes(), &bytes(9000)).is_ok() {
        count += 1;
    }
    let free = pool.statfs().pages_free;
    for name in [b"user.x".as_slice(), b"user.0"] {
        assert_eq!(set(&pool, ino, name, &bytes(65_536)), Err(Error::NoSpace));
    }
    assert_eq!(pool.statfs().pages_free, free, "what was refused took nothing");
    assert_eq!(pool.getxattr(ino, b"user.0").unwrap(), bytes(9000));
    for number in 0..count {
        remove(&pool, ino, format!("user.{number}").as_bytes()).unwrap();
    }
    drop(pool);
    let pool = again(&memory);
    assert_eq!(pool.getattr(ino).unwrap().xattrs, 0);
    set(&pool, ino, b"user.x", &bytes(60_000)).unwrap();
    sound(&pool);
}

#[test]
fn only_the_change_time_moves() {
    let (memory, pool) = pool(4 << 20);
    let ino = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    let times = SetAttr { mtime_ns: Some(5), atime_ns: Some(6), ..SetAttr::default() };
    pool.setattr(ino, &times).unwrap();
    set(&pool, ino, b"user.a", b"x").unwrap();
    set(&pool, ino, b"user.b", &bytes(5000)).unwrap();
    remove(&pool, ino, b"user.a").unwrap();
    let attr = pool.getattr(ino).unwrap();
    assert_eq!((attr.mtime_ns, attr.atime_ns, attr.xattrs), (5, 6, 1));
    drop(pool);
    assert_eq!(again(&memory).getattr(ino).unwrap(), attr);
}
