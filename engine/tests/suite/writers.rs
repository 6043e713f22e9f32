//! Writers of one file at the same time, some of which store their pages before they have it locked: each write is whole, made once,
//! where it was said to be, and no page is lost or had twice.

use std::sync::Barrier;

use lode_engine::{
    FormatOptions, Ino, NewInode, OpenOptions, PAGE_BYTES, Pool, Protection, SetAttr, XattrChange,
    XattrWhen, mode,
};
use lode_testkit::fs::TestPool;
use lode_testkit::rng::Rng;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const PAGE: usize = PAGE_BYTES as usize;
const THREADS: usize = 4;
/// Pages that each thread overwrites.
const OWN: usize = 12;
const ROUNDS: u32 = 300;
const ON_THEIR_WAY: u64 = 16;

fn open(memory: &Memory, spins: u32) -> TestPool {
    let host = TestHost::with_cpus(1, 2).spinning(spins);
    Pool::open(memory.clone(), host, &OpenOptions::default()).unwrap()
}

fn pool(protection: Protection, spins: u32) -> (Memory, TestPool) {
    let memory = Memory::new(96 << 20);
    let format = FormatOptions { lanes: 2, protection, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::with_cpus(1, 2), &format).unwrap();
    let pool = open(&memory, spins);
    (memory, pool)
}

/// Pages that say whose they are.
fn stamped(thread: usize, round: u32, pages: usize) -> Vec<u8> {
    let words = (0..pages * PAGE / 8).map(|word| {
        ((thread as u64 + 1) << 56 | u64::from(round) << 32 | word as u64).to_le_bytes()
    });
    words.flatten().collect()
}

/// What one thread knows of the file: where, and what is there.
type Known = Vec<(u64, Vec<u8>)>;

/// Writes as one of several threads.
fn write_beside(pool: &TestPool, ino: Ino, thread: usize) -> Known {
    let file = pool.hold(ino).unwrap();
    let mut random = Rng::new(7 + thread as u64);
    let mut own: Vec<Vec<u8>> = vec![vec![0; PAGE]; OWN];
    let mut known = Known::new();
    let first = thread * OWN;
    for round in 1..=ROUNDS {
        let pages = 1 + random.below(3) as usize;
        let bytes = stamped(thread, round, pages);
        if random.once_in(3) {
            let at = pool.append_held(&file, &bytes).unwrap();
            known.push((at, bytes));
            continue;
        }
        let page = random.below((OWN - pages) as u64 + 1) as usize;
        let at = ((first + page) * PAGE) as u64;
        // (Some go another way, with the lock held all the time.)
        if random.once_in(8) {
            pool.write_held(&file, at + 100, &bytes[..50]).unwrap();
            own[page][100..150].copy_from_slice(&bytes[..50]);
            continue;
        }
        pool.write_held(&file, at, &bytes).unwrap();
        for (into, bytes) in own[page..].iter_mut().zip(bytes.chunks(PAGE)) {
            into.copy_from_slice(bytes);
        }
    }
    pool.let_go(file);
    let own = own.into_iter().enumerate();
    known.extend(own.map(|(page, bytes)| (((first + page) * PAGE) as u64, bytes)));
    known
}

fn assert_holds(pool: &TestPool, ino: Ino, known: &Known) {
    for (at, expected) in known {
        let mut bytes = vec![0xEE; expected.len()];
        assert_eq!(pool.read(ino, *at, &mut bytes).unwrap(), expected.len());
        assert!(bytes == *expected, "other bytes at {at}");
    }
}

/// Many write to a new file; what is in it then.
fn write_by_many(pool: &TestPool) -> Ino {
    let ino = pool.create(pool.root(), b"a", &NEW).unwrap().ino;
    let size = (THREADS * OWN * PAGE) as u64;
    pool.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
    let begin = Barrier::new(THREADS);
    let known: Vec<Known> = std::thread::scope(|scope| {
        let job = |thread| {
            begin.wait();
            write_beside(pool, ino, thread)
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || job(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut all: Known = known.into_iter().flatten().collect();
    all.sort();
    let mut end = 0;
    for (at, bytes) in &all {
        assert_eq!(*at, end, "writes lie over each other, or apart");
        end += bytes.len() as u64;
    }
    assert_eq!(pool.getattr(ino).unwrap().size, end);
    assert_holds(pool, ino, &all);
    ino
}

#[test]
fn what_many_write_to_one_file_is_all_there_once() {
    // (Who never looks waits asleep; who looks for long waits in its place of the queue, and who does so for a moment gives that up.)
    let levels = Protection::ALL.into_iter();
    for (protection, spins) in levels.flat_map(|level| [0, 3, 10_000].map(|spins| (level, spins))) {
        let (memory, pool) = pool(protection, spins);
        let mut free = Vec::new();
        for _ in 0..9 {
            write_by_many(&pool);
            pool.unlink(pool.root(), b"a").unwrap();
            free.push(pool.statfs().pages_free);
        }
        // (Some are on their way from one state to another at any time.)
        assert!(free[8] + ON_THEIR_WAY > free[0], "pages are lost at {protection:?}: {free:?}");
        write_by_many(&pool);
        // (Who finds it so reads all logs.)
        drop(pool);
        let pool = open(&memory, 0);
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![], "at {protection:?}");
    }
}

#[test]
fn what_is_not_plain_is_not_written_as_if_it_were() {
    let (_memory, pool) = pool(Protection::None, 0);
    let ino = pool.create(pool.root(), b"a", &NEW).unwrap().ino;
    let is_written = |byte: u8| {
        // (As whole pages, which may be stored before the file is locked, and as a part of one.)
        let (page, free) = (vec![byte; 16 * PAGE], pool.statfs().pages_free);
        let whole = pool.write_plain(ino, 0, &page, |mode| mode & 0o6000 == 0, b"user.a").unwrap();
        let part =
            pool.write_plain(ino, 20, &page[..5], |mode| mode & 0o6000 == 0, b"user.a").unwrap();
        assert_eq!(whole, part);
        let mut there = vec![0; 16 * PAGE];
        let bytes = pool.read(ino, 0, &mut there).unwrap();
        assert_eq!(there[..bytes] == page[..], whole, "{byte}");
        assert!(whole || pool.statfs().pages_free == free, "no page is lost");
        whole
    };
    assert!(is_written(1));
    let bits = |mode| pool.setattr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() });
    bits(0o4755).unwrap();
    assert!(!is_written(2));
    bits(0o2755).unwrap();
    assert!(!is_written(2));
    bits(0o1755).unwrap();
    assert!(is_written(3));
    let value = XattrChange { name: b"user.b", value: Some(b"b"), when: XattrWhen::Always };
    pool.setxattr(ino, &value).unwrap();
    assert!(is_written(4));
    pool.setxattr(ino, &XattrChange { name: b"user.a", ..value }).unwrap();
    assert!(!is_written(5));
    assert_eq!(pool.write_plain(ino, u64::MAX, b"a", |_| true, b"user.a"), Ok(false));
}
