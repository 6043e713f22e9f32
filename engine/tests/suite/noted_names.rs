//! Names that were looked up before, which are found without asking the directory: whatever ends or changes an
//! entry, the next look-up says so, in whatever thread.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use lode_engine::{Error, FormatOptions, Ino, NewInode, OpenOptions, Pool, RenameMode, mode};
use lode_testkit::fs::TestPool;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };

fn pool() -> TestPool {
    let (memory, host) = (Memory::new(16 << 20), TestHost::with_cpus(1, 4));
    Pool::format(memory.clone(), host.clone(), &FormatOptions { lanes: 4, ..Default::default() })
        .unwrap();
    Pool::open(memory, host, &OpenOptions::default()).unwrap()
}

/// What a name leads to; looked up three times, so that it is noted by whatever it takes.
fn led(pool: &TestPool, dir: Ino, name: &str) -> Option<Ino> {
    let look = || match pool.lookup(dir, name.as_bytes()) {
        Ok(attr) => Some(attr.ino),
        Err(Error::NotFound) => None,
        Err(error) => panic!("{name}: {error}"),
    };
    let first = look();
    assert_eq!([look(), look()], [first; 2], "{name}");
    first
}

#[test]
fn a_name_leads_where_it_leads_now_whatever_changed_it() {
    let pool = pool();
    let root = pool.root();
    let other = pool.create(root, b"other", &NEW_DIR).unwrap().ino;
    let long = "n".repeat(33);
    for name in ["a", "a-name-of-thirty-two-bytes-it-is", &long] {
        let bytes = name.as_bytes();
        let (one, two) = (root, other);
        let make = |dir| {
            let ino = pool.create(dir, bytes, &NEW).unwrap().ino;
            assert_eq!(led(&pool, dir, name), Some(ino));
            ino
        };
        assert_eq!(led(&pool, one, name), None);
        make(one);
        pool.unlink(one, bytes).unwrap();
        assert_eq!(led(&pool, one, name), None, "unlinked");

        let dir = pool.create(one, bytes, &NEW_DIR).unwrap().ino;
        assert_eq!(led(&pool, one, name), Some(dir));
        pool.rmdir(one, bytes).unwrap();
        assert_eq!(led(&pool, one, name), None, "removed");

        let first = make(one);
        pool.rename(one, bytes, two, bytes, RenameMode::Replace).unwrap();
        assert_eq!([led(&pool, one, name), led(&pool, two, name)], [None, Some(first)], "renamed");

        let second = make(one);
        pool.rename(one, bytes, two, bytes, RenameMode::Exchange).unwrap();
        let now = [led(&pool, one, name), led(&pool, two, name)];
        assert_eq!(now, [Some(first), Some(second)], "exchanged");

        pool.rename(one, bytes, two, bytes, RenameMode::Replace).unwrap();
        let now = [led(&pool, one, name), led(&pool, two, name)];
        assert_eq!(now, [None, Some(first)], "renamed over");

        let linked = pool.link(first, one, bytes).unwrap().ino;
        assert_eq!(led(&pool, one, name), Some(linked));
        pool.unlink(one, bytes).unwrap();
        assert_eq!([led(&pool, one, name), led(&pool, two, name)], [None, Some(first)], "linked");
        pool.unlink(two, bytes).unwrap();
    }
}

#[test]
fn a_directory_that_ended_has_no_names_of_the_one_that_has_its_number() {
    let pool = pool();
    let old = pool.create(pool.root(), b"old", &NEW_DIR).unwrap().ino;
    let found = pool.find(old).unwrap();
    pool.create(old, b"name", &NEW).unwrap();
    assert!(led(&pool, old, "name").is_some());
    pool.unlink(old, b"name").unwrap();
    pool.rmdir(pool.root(), b"old").unwrap();
    // Numbers come back after a round.
    let mut dirs = (0..1000).map(|number| {
        pool.maintain().unwrap();
        pool.create(pool.root(), format!("dir {number}").as_bytes(), &NEW_DIR).unwrap().ino
    });
    let again = dirs.find(|ino| *ino == old).expect("the number is used again");
    pool.create(again, b"name", &NEW).unwrap();
    assert!(led(&pool, again, "name").is_some());
    let looked = pool.lookup_in(&found, b"name").map(|found| found.attr.ino);
    assert!(matches!(looked, Err(Error::Stale | Error::NotFound)), "{looked:?}");
}

#[test]
fn an_open_file_whose_name_is_gone_is_not_found_by_it() {
    let pool = pool();
    let (root, name) = (pool.root(), "name");
    let ino = pool.create(root, name.as_bytes(), &NEW).unwrap().ino;
    pool.acquire(ino).unwrap();
    assert_eq!(led(&pool, root, name), Some(ino));
    pool.unlink(root, name.as_bytes()).unwrap();
    assert_eq!(led(&pool, root, name), None);
    let second = pool.create(root, name.as_bytes(), &NEW).unwrap().ino;
    assert_eq!(led(&pool, root, name), Some(second));
    pool.release(ino);
    assert_eq!(led(&pool, root, name), Some(second));
}

/// Ends those who look, also where a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// One thread makes, moves and removes names and looks at each step; two others look all the time, so that names
/// are noted while they end.
#[test]
fn looks_of_others_keep_no_name_that_has_ended() {
    const NAMES: usize = 4;
    let pool = pool();
    let (root, over, start) = (pool.root(), AtomicBool::new(false), Barrier::new(3));
    let names: Vec<String> = (0..NAMES).map(|number| format!("name {number}")).collect();
    let look = |name: &str| match pool.lookup(root, name.as_bytes()) {
        Ok(attr) => Some(attr.ino),
        Err(Error::NotFound) => None,
        Err(error) => panic!("{name}: {error}"),
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                start.wait();
                while !over.load(SeqCst) {
                    for name in &names {
                        look(name);
                    }
                }
            });
        }
        start.wait();
        let _ends = Ends(&over);
        for turn in 0..3000 {
            let (name, to) = (&names[turn % NAMES], &names[(turn + 1) % NAMES]);
            let ino = pool.create(root, name.as_bytes(), &NEW).unwrap().ino;
            assert_eq!([look(name), look(to)], [Some(ino), None]);
            let how = RenameMode::Replace;
            pool.rename(root, name.as_bytes(), root, to.as_bytes(), how).unwrap();
            assert_eq!([look(name), look(to)], [None, Some(ino)]);
            pool.unlink(root, to.as_bytes()).unwrap();
            assert_eq!([look(name), look(to)], [None, None]);
        }
    });
}
