//! When the host has no memory for what grows with input or pool, operations say so and
//! leave the pool sound.

use lode_engine::{
    Error, Fallocate, FormatOptions, NewInode, OpenOptions, Pool, RenameMode, SetAttr, XattrChange,
    XattrWhen, mode,
};
use lode_testkit::fs::TestPool;
use lode_testkit::snapshot::{Times, difference, snapshot};
use lode_testkit::{Memory, TestHost};

use crate::allocator::{alone, armed};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };
const LEAST_BYTES: usize = 2048;

fn open(memory: &Memory) -> TestPool {
    Pool::open(memory.clone(), TestHost::new(1), &OpenOptions::default()).unwrap()
}

/// A pool whose indexes must be built anew, large enough that they need large allocations.
fn made() -> Memory {
    let memory = Memory::new(64 << 20);
    // So that the medium itself allocates nothing later.
    memory.prefault();
    Pool::format(memory.clone(), TestHost::new(1), &FormatOptions::default()).unwrap();
    let pool = open(&memory);
    let dir = pool.create(pool.root(), b"dir", &NEW_DIR).unwrap().ino;
    for number in 0..1500 {
        pool.create(dir, format!("file-{number}").as_bytes(), &NEW).unwrap();
    }
    let file = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
    for step in 0..600 {
        pool.write(file, step * 8192, &[step as u8; 5000]).unwrap();
    }
    let value = Some(&[7; 20_000][..]);
    let there = XattrChange { name: b"user.there", value, when: XattrWhen::Always };
    pool.setxattr(file, &there).unwrap();
    pool.close().unwrap();
    memory
}

/// What an operation does; the buffer is there before memory runs out.
type Work = fn(&TestPool, &mut [u8]) -> Result<(), Error>;
type Operation = (&'static str, Work);
const BUFFER: usize = 3 << 20;

fn operations() -> Vec<Operation> {
    fn ino(pool: &TestPool, name: &[u8]) -> Result<u64, Error> {
        Ok(pool.lookup(pool.root(), name)?.ino)
    }
    vec![
        ("lookup", |p, _| p.lookup(ino(p, b"dir")?, b"file-700").map(|_| ())),
        ("create", |p, _| p.create(ino(p, b"dir")?, b"new", &NEW).map(|_| ())),
        ("mkdir", |p, _| p.create(ino(p, b"dir")?, b"new", &NEW_DIR).map(|_| ())),
        ("symlink", |p, b| p.symlink(ino(p, b"dir")?, b"new", &b[1..4001], 1, 1).map(|_| ())),
        ("unlink", |p, _| p.unlink(ino(p, b"dir")?, b"file-3")),
        ("rename", |p, _| {
            let (dir, root) = (ino(p, b"dir")?, p.root());
            p.rename(dir, b"file-4", root, b"file", RenameMode::Replace)
        }),
        ("link", |p, _| p.link(ino(p, b"file")?, ino(p, b"dir")?, b"new").map(|_| ())),
        ("read", |p, b| p.read(ino(p, b"file")?, 5000, &mut b[..100_000]).map(|_| ())),
        ("write", |p, b| p.write(ino(p, b"file")?, 10, b)),
        ("small write", |p, _| p.write(ino(p, b"file")?, 8192 + 64, &[1; 512])),
        ("append", |p, b| p.append(ino(p, b"file")?, &b[..1 << 20]).map(|_| ())),
        ("truncate", |p, _| {
            let size = Some(100_000);
            p.setattr(ino(p, b"file")?, &SetAttr { size, ..SetAttr::default() }).map(|_| ())
        }),
        ("punch", |p, _| p.fallocate(ino(p, b"file")?, Fallocate::Punch, 0, 3 << 20)),
        ("allocate", |p, _| {
            let how = Fallocate::Allocate { keep_size: false };
            p.fallocate(ino(p, b"file")?, how, 0, 8 << 20)
        }),
        ("readdir", |p, _| {
            let dir = ino(p, b"dir")?;
            p.readdir(dir, 0, &mut |_| true)
        }),
        ("setxattr", |p, b| {
            let change = XattrChange {
                name: b"user.long",
                value: Some(&b[..65_536]),
                when: XattrWhen::Always,
            };
            p.setxattr(ino(p, b"file")?, &change)
        }),
        ("getxattr", |p, _| {
            assert_eq!(p.getxattr(ino(p, b"file")?, b"user.there")?.len(), 20_000);
            p.listxattr(ino(p, b"file")?).map(|_| ())
        }),
        ("maintain", |p, _| p.maintain()),
        ("check", |p, _| p.check(&mut |_, _| ()).map(|_| ())),
        ("close", |p, _| p.close()),
    ]
}

#[test]
fn refused_memory_is_an_error_and_leaves_the_pool_sound() {
    // (No other one's allocations are refused.)
    let _alone = alone();
    let memory = made();
    for all_later in [false, true] {
        opening(&memory, all_later);
        for (name, operation) in operations() {
            one_operation(&memory, name, operation, all_later);
        }
    }
}

fn opening(memory: &Memory, all_later: bool) {
    let wanted = snapshot(&open(&memory.copy()), Times::NONE, None).unwrap();
    for clean in [true, false] {
        let memory = memory.copy();
        memory.prefault();
        if !clean {
            drop(open(&memory));
        }
        for granted in 0..200 {
            let memory = memory.copy();
            memory.prefault();
            let host = TestHost::new(1);
            let options = OpenOptions::default();
            let (opened, refused) = armed(LEAST_BYTES, granted, all_later, || {
                Pool::open(memory.clone(), host, &options)
            });
            match opened {
                Ok(pool) => assert_eq!(
                    difference(&wanted, &snapshot(&pool, Times::NONE, Some(&wanted)).unwrap()),
                    None
                ),
                Err(error) => {
                    assert_eq!(error, Error::NoMemory, "opening, {granted} granted");
                    let pool = open(&memory);
                    let found = snapshot(&pool, Times::NONE, Some(&wanted)).unwrap();
                    assert_eq!(difference(&wanted, &found), None);
                }
            }
            if !refused {
                println!("opening (clean {clean}) makes {granted} large allocations");
                break;
            }
        }
    }
}

fn one_operation(memory: &Memory, name: &str, operation: Work, all_later: bool) {
    // No NUL in it: it serves as a symbolic link's target too.
    let mut buffer = vec![b't'; BUFFER];
    for granted in 0..200 {
        let memory = memory.copy();
        memory.prefault();
        let pool = open(&memory);
        let before = snapshot(&open(&memory.copy()), Times::NONE, None).unwrap();
        let (result, refused) =
            armed(LEAST_BYTES, granted, all_later, || operation(&pool, &mut buffer));
        match result {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, Error::NoMemory, "{name}, {granted} granted");
                assert!(refused, "{name}: no memory, but none was refused");
                // Nothing has happened, and the same can be done once there is memory.
                let found = snapshot(&pool, Times::NONE, Some(&before)).unwrap();
                assert_eq!(difference(&before, &found), None, "{name}, {granted} granted");
                let again = operation(&pool, &mut buffer);
                assert_eq!(again, Ok(()), "{name}, {granted} granted, with memory again");
            }
        }
        if name != "close" {
            let report = pool.check(&mut |_, _| ()).unwrap();
            assert_eq!(report.damage, [], "{name}, {granted} granted");
        }
        let after = snapshot(&pool, Times::NONE, None).unwrap();
        drop(pool);
        let again = open(&memory.copy());
        let found = snapshot(&again, Times::NONE, Some(&after)).unwrap();
        assert_eq!(difference(&after, &found), None, "{name}, opened again");
        if !refused {
            println!("{name} makes {granted} large allocations");
            return;
        }
    }
    panic!("{name} makes more than 200 large allocations");
}
