//! What a snapshot costs does not grow with those that were there before it and are gone.

use std::time::{Duration, Instant};

use lode_engine::{FormatOptions, NewInode, OpenOptions, Pool, mode};
use lode_pmem::Tally;
use lode_testkit::fs::TestPool;
use lode_testkit::{Memory, TestHost};

/// Snapshots that came and went before, and that are made then.
const GONE: u32 = 3000;
const MADE: u32 = 301;

/// A pool of one file, in which snapshots were made and deleted, each of which kept a page of it.
struct Past {
    pool: TestPool,
    ino: u64,
    times: Vec<Duration>,
    spent: Tally,
}

impl Past {
    fn of(snapshots: u32) -> Self {
        let host = TestHost::new(1);
        let memory = Memory::new(16 << 20);
        Pool::format(memory.clone(), host.clone(), &FormatOptions::default()).unwrap();
        let pool = TestPool::open(memory, host, &OpenOptions::default()).unwrap();
        let new = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
        let ino = pool.create(pool.root(), b"file", &new).unwrap().ino;
        let mut past = Self { pool, ino, times: Vec::new(), spent: Tally::default() };
        (0..snapshots).for_each(|number| past.one_more(number));
        past.pool.maintain().unwrap();
        (past.times, past.spent) = (Vec::new(), Tally::default());
        past
    }

    fn one_more(&mut self, number: u32) {
        let name = format!("snapshot-{number}");
        let (before, began) = (self.pool.stats().door, Instant::now());
        self.pool.create_snapshot(name.as_bytes()).unwrap();
        self.times.push(began.elapsed());
        self.spent = self.spent + (self.pool.stats().door - before);
        self.pool.write(self.ino, 0, &[number as u8; 4096]).unwrap();
        self.pool.delete_snapshot(name.as_bytes()).unwrap();
        if number.is_multiple_of(16) {
            self.pool.maintain().unwrap();
        }
    }

    fn median(&mut self) -> Duration {
        self.times.sort_unstable();
        self.times[self.times.len() / 2]
    }
}

#[test]
fn a_snapshot_is_made_as_fast_after_thousands_that_are_gone() {
    let _quiet = crate::alone();
    let [mut new, mut old] = [0, GONE].map(Past::of);
    // (In turns, so that a busy machine slows down both.)
    for number in GONE..GONE + MADE {
        new.one_more(number);
        old.one_more(number);
    }
    let times = [new.median(), old.median()];
    println!("median: {:?} without a past, {:?} with one", times[0], times[1]);
    assert!(times[1] < 2 * times[0] + Duration::from_micros(2), "{times:?}");
    println!("{:?}\n{:?}", new.spent, old.spent);
    // (The list's log goes on to another page, or is rewritten, for one of them here and for the other there.)
    for (old, new) in [(old.spent.fences, new.spent.fences), (old.spent.lines, new.spent.lines)] {
        assert!(old * 10 <= new * 11, "{old}, {new}");
    }
    // Nothing of them is left, in memory or on the medium.
    let [new, old] = [&new, &old].map(|past| {
        // (A log is collected by who writes to it, once no snapshot sees it.)
        (0..200).for_each(|fill| past.pool.write(past.ino, 0, &[fill; 4096]).unwrap());
        past.pool.maintain().unwrap();
        (past.pool.statfs().pages_free, past.pool.manifest_bytes().unwrap())
    });
    assert!(new.0.abs_diff(old.0) <= 4, "{new:?}, {old:?}");
    assert!(old.1.memory <= 2 * new.1.memory && old.1.checkpoint <= 2 * new.1.checkpoint);
}
