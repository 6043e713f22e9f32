//! Memory by each of the methods: until it is refused, until files need it, and after its lender is gone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use lode_engine::{Error, Fallocate, FormatOptions, NewInode, OpenOptions, PAGE_BYTES, Pool, mode};
use lode_host::StdHost;
use lode_lend::source::{Source, of};
use lode_loan::{CHUNK_BYTES, Method, Refusal};
use lode_pmem::loan::lock;
use lode_pmem::{Mapped, Medium, RegionOptions};

const BYTES: u64 = 48 << 20;
const NEW: NewInode = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };

type TestPool = Arc<Pool<Mapped, StdHost>>;

fn made(path: &Path) -> TestPool {
    let region = Mapped::create(path, BYTES, &RegionOptions::default(), false).unwrap();
    Pool::format(&region, StdHost::with_cpus(1), &FormatOptions::default()).unwrap();
    drop(region);
    opened(path)
}

fn opened(path: &Path) -> TestPool {
    let region = Mapped::open(path, &RegionOptions::default()).unwrap();
    Arc::new(Pool::open(region, StdHost::with_cpus(1), &OpenOptions::default()).unwrap())
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn sound(pool: &TestPool) {
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}

fn take_all(source: &dyn Source) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        match source.take() {
            Ok(chunk) => all.push(chunk),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::NoSpace);
                return all;
            }
        }
    }
}

fn range(chunk: u64) -> std::ops::Range<u64> {
    chunk * CHUNK_BYTES..(chunk + 1) * CHUNK_BYTES
}

#[test]
fn programs_have_what_files_leave_and_all_of_it_comes_back() {
    for method in Method::ALL {
        let directory = directory();
        let path = directory.path().join("pool");
        let pool = made(&path);
        let free = pool.space().pages_free;
        let spared = 3 * CHUNK_BYTES / PAGE_BYTES;
        let source = of(method, Arc::clone(&pool), spared);
        let all = take_all(&*source);
        let distinct: BTreeSet<u64> = all.iter().copied().collect();
        assert!(all.len() >= 17 && distinct.len() == all.len(), "{method:?}: {all:?}");
        assert!(pool.space().pages_available >= spared, "{method:?}");
        assert_eq!(pool.lent().unwrap().len(), all.len());
        // What was there is not seen by the program.
        for chunk in [all[0], all[5]] {
            source.zero(chunk);
            let mut bytes = vec![1; CHUNK_BYTES as usize];
            pool.medium().load(chunk * CHUNK_BYTES, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0), "{method:?}");
        }
        sound(&pool);
        // A chunk in the middle comes back, and is taken again; twice given it is nothing.
        source.give(all[5]);
        source.give(all[5]);
        source.give(u64::MAX);
        assert_eq!(source.take(), Ok(all[5]), "{method:?}");
        all.iter().for_each(|chunk| source.give(*chunk));
        drop(source);
        pool.maintain().unwrap();
        let lost = free - pool.space().pages_free;
        assert!(lost <= 4, "{method:?}: {lost} pages are not back: tables and logs need fewer");
        assert_eq!(pool.lent().unwrap(), []);
        sound(&pool);
        pool.close().unwrap();
        drop(pool);
        assert!(opened(&path).opening().clean);
    }
}

/// Runs `fill` on a pool whose chunks are lent, each of which is given back when it is asked for; says how many were left.
fn filled(method: Method, fill: impl Fn(&TestPool)) -> usize {
    let directory = directory();
    let pool = made(&directory.path().join("pool"));
    let source = of(method, Arc::clone(&pool), 0);
    let all = take_all(&*source);
    assert!(all.len() >= 17);
    assert!(pool.space().pages_free > pool.space().pages_available, "files keep their reserve");
    let lent = Arc::new(Mutex::new(all));
    let (left, program) = (Arc::clone(&lent), Arc::clone(&source));
    let give = move |pages: u64| {
        assert!(pages > 0);
        let Some(chunk) = left.lock().unwrap().pop() else { return false };
        // Another thread does it, as a program's session does.
        std::thread::scope(|scope| scope.spawn(|| program.give(chunk)).join().unwrap());
        true
    };
    pool.host().ask(Some(Arc::new(give)));
    // To lend more nobody is asked.
    assert_eq!(source.take(), Err(Refusal::NoSpace));
    fill(&pool);
    pool.host().ask(None);
    sound(&pool);
    let left = lent.lock().unwrap().len();
    drop(source);
    pool.close().unwrap();
    left
}

#[test]
fn files_that_grow_by_writes_get_all_before_there_is_no_space() {
    for method in Method::ALL {
        let left = filled(method, |pool| {
            let ino = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
            let error = (0..1000).find_map(|_| pool.append(ino, &[1; 1 << 18]).err());
            assert_eq!(error, Some(Error::NoSpace));
            assert!(pool.getattr(ino).unwrap().size > BYTES * 9 / 10);
        });
        assert_eq!(left, 0, "{method:?}");
    }
}

#[test]
fn files_that_are_backed_get_all_before_there_is_no_space() {
    for method in Method::ALL {
        let left = filled(method, |pool| {
            let ino = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
            let how = Fallocate::Allocate { keep_size: false };
            pool.fallocate(ino, how, 0, 16 * CHUNK_BYTES).unwrap();
            assert_eq!(pool.fallocate(ino, how, 0, BYTES), Err(Error::NoSpace));
        });
        assert_eq!(left, 0, "{method:?}");
    }
}

#[test]
fn a_new_owner_leaves_alone_what_is_locked() {
    for method in Method::ALL {
        let directory = directory();
        let path = directory.path().join("pool");
        let pool = made(&path);
        let source = of(method, Arc::clone(&pool), 0);
        let descriptor = source.descriptor().unwrap();
        let chunks = [(); 4].map(|()| source.take().unwrap());
        assert!(!source.locked(chunks[1]));
        assert!(lock(descriptor.as_fd(), range(chunks[1])).unwrap());
        assert!(source.locked(chunks[1]) && !source.locked(chunks[0]));
        // As if it was killed: nothing is closed.
        drop(source);
        assert!(Arc::into_inner(pool).is_some(), "somebody has the pool still");
        let pool = opened(&path);
        assert!(!pool.opening().clean);
        assert_eq!(pool.lent().unwrap(), [chunks[1]], "{method:?}");
        sound(&pool);
        let source = of(method, Arc::clone(&pool), 0);
        assert!(source.locked(chunks[1]));
        let all = take_all(&*source);
        assert!(all.contains(&chunks[0]) && !all.contains(&chunks[1]), "{method:?}");
        // The program ends: its descriptor is closed.
        drop(descriptor);
        assert!(!source.locked(chunks[1]));
        source.give(chunks[1]);
        assert_eq!(source.take(), Ok(chunks[1]), "{method:?}");
        all.iter().chain([&chunks[1]]).for_each(|chunk| source.give(*chunk));
        drop(source);
        sound(&pool);
        pool.close().unwrap();
    }
}
