//! Who watches a pool waits for no operation, and none waits for ever because of him.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use lode_engine::{Fallocate, FormatOptions, NewInode, OpenOptions, Pool, SetAttr, mode};
use lode_testkit::{HostHooks, Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };

fn formatted() -> Memory {
    let memory = Memory::new(64 << 20);
    Pool::format(memory.clone(), TestHost::new(1), &FormatOptions::default()).unwrap();
    memory
}

/// A clock that can stand still: the operation that asks for the time waits at the barrier,
/// twice, with all that it holds.
struct Slow {
    armed: Arc<AtomicBool>,
    barrier: Arc<Barrier>,
}

impl HostHooks for Slow {
    fn asks_time(&self) {
        if self.armed.swap(false, SeqCst) {
            self.barrier.wait();
            self.barrier.wait();
        }
    }
}

/// A host with such a clock.
fn slow(armed: &Arc<AtomicBool>, barrier: &Arc<Barrier>) -> TestHost {
    let slow = Slow { armed: armed.clone(), barrier: barrier.clone() };
    TestHost::in_order(1, 1).telling(Arc::new(slow))
}

#[test]
fn an_inode_in_use_is_counted_and_not_waited_for() {
    let (armed, barrier) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    let host = slow(&armed, &barrier);
    let pool = Pool::open(formatted(), host, &OpenOptions::default()).unwrap();
    pool.create(pool.root(), b"first", &NEW).unwrap();
    let (say, hear) = mpsc::channel();
    let found = std::thread::scope(|scope| {
        armed.store(true, SeqCst);
        scope.spawn(|| pool.create(pool.root(), b"second", &NEW).unwrap());
        barrier.wait();
        // The directory is locked now.
        scope.spawn(|| say.send(pool.gauges().unwrap()).unwrap());
        let found = hear.recv_timeout(Duration::from_secs(20));
        barrier.wait();
        found
    });
    let found = found.expect("it waited for the directory");
    assert_eq!((found.inodes_in_memory, found.inodes_busy), (2, 1));
    let after = pool.gauges().unwrap();
    assert_eq!((after.inodes_in_memory, after.inodes_busy), (3, 0));
    assert_eq!(found.memory.entries, 0, "those of the only directory are not known");
    assert!(after.memory.entries > 0 && after.memory.inodes > found.memory.inodes);
}

#[test]
fn many_work_while_one_watches() {
    const FILES: u64 = 4000;
    const LIVE: u64 = 100;
    let pool = Pool::open(formatted(), TestHost::with_cpus(1, 2), &OpenOptions::default()).unwrap();
    let working = AtomicU64::new(2);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (pool, working) = (&pool, &working);
            let name = format!("dir{thread}");
            let dir = pool.create(pool.root(), name.as_bytes(), &NEW_DIR).unwrap().ino;
            scope.spawn(move || {
                for number in 0..FILES {
                    pool.create(dir, number.to_string().as_bytes(), &NEW).unwrap();
                    if number >= LIVE {
                        pool.unlink(dir, (number - LIVE).to_string().as_bytes()).unwrap();
                    }
                }
                working.fetch_sub(1, SeqCst);
            });
        }
        while working.load(SeqCst) > 0 {
            pool.gauges().unwrap();
        }
    });
    let after = pool.gauges().unwrap();
    assert_eq!((after.inodes_in_memory, after.inodes_busy), (2 * (LIVE + 1) + 1, 0));
    assert_eq!(after.space, pool.statfs());
}

/// Who reads a volume without a lock takes no place for right while the inode is being changed: its pages may be another's by then.
#[test]
fn who_reads_by_sectors_waits_for_who_changes_the_inode() {
    let (armed, barrier) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    let host = slow(&armed, &barrier);
    let pool = Pool::open(formatted(), host, &OpenOptions::default()).unwrap();
    let ino = pool.create(pool.root(), b"v", &NEW).unwrap().ino;
    pool.fallocate(ino, Fallocate::Allocate { keep_size: false }, 0, 2 << 20).unwrap();
    pool.write(ino, 0, &vec![1; 2 << 20]).unwrap();
    let file = pool.hold(ino).unwrap();
    let read = || {
        let mut bytes = [0; 4096];
        assert_eq!(pool.read_held_quietly(&file, 4096, &mut bytes), Ok(4096));
        bytes
    };
    // The second time its place is known.
    assert_eq!([read(), read()], [[1; 4096]; 2]);
    let (said, hears) = mpsc::channel();
    std::thread::scope(|scope| {
        armed.store(true, SeqCst);
        let change = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let pool = &pool;
        scope.spawn(move || pool.setattr(ino, &change).unwrap());
        barrier.wait();
        scope.spawn(|| said.send(read()).unwrap());
        let early = hears.recv_timeout(Duration::from_millis(200));
        barrier.wait();
        assert!(early.is_err(), "it was read in the middle of a change");
        assert_eq!(hears.recv_timeout(Duration::from_secs(20)), Ok([1; 4096]));
    });
    pool.let_go(file);
}
