//! Memory by each of the methods: until it is refused, until files need it, and after its lender is gone.

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
            Ok(chunk) => {
                all.push(chunk);
                assert!(all.len() as u64 <= BYTES / CHUNK_BYTES, "more than there is: {all:?}");
            }
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

/// Stores to all of the region that nobody has, as files do that are removed again.
fn used_up(path: &Path) {
    use std::os::unix::fs::FileExt;
    let pool = opened(path);
    let free = take_all(&*of(Method::Direct, Arc::clone(&pool), 0));
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let bytes = vec![0xa5; CHUNK_BYTES as usize];
    free.iter().for_each(|chunk| file.write_all_at(&bytes, range(*chunk).start).unwrap());
    pool.close().unwrap();
}

fn is_zero(pool: &TestPool, chunk: u64) -> bool {
    let mut bytes = vec![1; CHUNK_BYTES as usize];
    pool.medium().load(range(chunk).start, &mut bytes).unwrap();
    bytes.iter().all(|byte| *byte == 0)
}

#[test]
fn no_program_sees_what_was_there_before_or_what_another_has_left() {
    use std::os::unix::fs::FileExt;
    for method in Method::ALL {
        let directory = directory();
        let path = directory.path().join("pool");
        made(&path).close().unwrap();
        used_up(&path);
        let pool = opened(&path);
        let source = of(method, Arc::clone(&pool), 0);
        let descriptor = std::fs::File::from(source.descriptor().unwrap());
        let chunks = [(); 3].map(|()| source.take().unwrap());
        for chunk in chunks {
            source.zero(chunk);
            assert!(is_zero(&pool, chunk), "{method:?}: what a file had");
            // A program stores there; another one has it next, as the owner keeps it ready.
            descriptor.write_all_at(&[0x5a; 10_000], range(chunk).start + 700_000).unwrap();
            source.zero(chunk);
            assert!(is_zero(&pool, chunk), "{method:?}: what a program had");
        }
        // What is not lent is not touched.
        let another = chunks.iter().max().unwrap() + 1;
        let before = is_zero(&pool, another);
        source.zero(another);
        assert_eq!(is_zero(&pool, another), before);
        chunks.iter().for_each(|chunk| source.give(*chunk));
        drop(source);
        sound(&pool);
        pool.close().unwrap();
    }
}

#[test]
fn what_is_lent_still_outlives_its_source_and_comes_back() {
    for method in Method::ALL {
        let directory = directory();
        let pool = made(&directory.path().join("pool"));
        let source = of(method, Arc::clone(&pool), 0);
        let chunks = [(); 3].map(|()| source.take().unwrap());
        let free = pool.space().pages_free;
        drop(source);
        pool.maintain().unwrap();
        assert!(chunks.iter().all(|chunk| pool.is_lent(*chunk)), "{method:?}");
        sound(&pool);
        // The session is gone, and with it its files; somebody else gives back what it had.
        let other = of(Method::Direct, Arc::clone(&pool), 0);
        chunks.iter().for_each(|chunk| other.give(*chunk));
        drop(other);
        pool.maintain().unwrap();
        // (By the indirect method files are everybody's: a source ends with its pool.)
        if method != Method::Indirect {
            let back = pool.space().pages_free - free;
            assert!(back >= 3 * CHUNK_BYTES / PAGE_BYTES, "{method:?}: {back} pages are back");
        }
        sound(&pool);
        pool.close().unwrap();
    }
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
    let reserve = pool.space().pages_free - pool.space().pages_available;
    let all = take_all(&*source);
    assert!(all.len() >= 17 && reserve > 0);
    assert!(pool.space().pages_free >= reserve, "files keep their reserve");
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
fn nobody_is_asked_for_memory_that_is_to_be_lent() {
    for method in Method::ALL {
        let directory = directory();
        let pool = made(&directory.path().join("pool"));
        let source = of(method, Arc::clone(&pool), 0);
        let all = take_all(&*source);
        // Not even for an inode there is room.
        let file = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
        while pool.append(file, &[1; 4096]).is_ok() {}
        let mut others = Vec::new();
        let full = loop {
            assert!(others.len() < 100_000);
            match pool.create_nameless(pool.root(), &NEW, &[]) {
                Ok(made) => others.push(pool.take_over(made.ino).unwrap()),
                Err(error) => break error,
            }
        };
        assert_eq!(full, Error::NoSpace);
        let asked = Arc::new(Mutex::new(0));
        let count = Arc::clone(&asked);
        let give = move |_| {
            *count.lock().unwrap() += 1;
            false
        };
        pool.host().ask(Some(Arc::new(give)));
        for source in [Arc::clone(&source), of(method, Arc::clone(&pool), 0)] {
            assert_eq!(source.take(), Err(Refusal::NoSpace), "{method:?}");
        }
        assert_eq!(*asked.lock().unwrap(), 0, "{method:?}");
        all.iter().for_each(|chunk| source.give(*chunk));
        assert_eq!(*asked.lock().unwrap(), 0, "{method:?}");
        drop(source);
        pool.host().ask(None);
        others.into_iter().for_each(|other| pool.let_go(other));
        sound(&pool);
        pool.close().unwrap();
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
