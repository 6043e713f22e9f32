//! Memory that goes bad while a pool is being recovered: what recovery has taken for what happened stays that.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lode_engine::layout::Superblock;
use lode_engine::{
    FormatOptions, NewInode, OpenOptions, Pool, Protection, RenameMode, Result, mode,
};
use lode_pmem::Medium;
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot};
use lode_testkit::{Healing, Hooks, Memory, Poisoned, TestHost, Told};

const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const LINE: usize = 64;

/// A line that is lost after so many loads.
#[derive(Clone)]
struct Loses {
    line: u64,
    is_poison: bool,
    loads_left: Arc<AtomicU64>,
}

fn late(image: &[u8], line: u64, is_poison: bool, loads_left: &Arc<AtomicU64>) -> Told {
    let memory = Poisoned::new(Memory::from_image(image), Healing::ByLines);
    Told { memory, hooks: Arc::new(Loses { line, is_poison, loads_left: loads_left.clone() }) }
}

impl Hooks<Poisoned<Memory>> for Loses {
    fn loads(&self, memory: &Poisoned<Memory>, _: u64, _: u64) {
        if self.loads_left.fetch_sub(1, Relaxed) != 0 {
            return;
        }
        match self.is_poison {
            true => memory.poison(self.line, 1),
            false => memory.inner().put(self.line, &[0; LINE]),
        }
    }
}

fn open<M: Medium>(medium: M) -> Result<Pool<M, TestHost>> {
    Pool::open(medium, TestHost::new(9), &OpenOptions::default())
}

fn seen<M: Medium>(pool: &Pool<M, TestHost>, case: &str) -> Snapshot {
    snapshot(pool, Times::ALL, None).unwrap_or_else(|what| panic!("{case}: {what}"))
}

type Step = fn(&Pool<Memory, TestHost>);

/// The image before and after one operation, which nothing has come behind.
fn around(step: Step) -> [Vec<u8>; 2] {
    let memory = Memory::new(1 << 20);
    let format = FormatOptions {
        lanes: 1,
        log_lines: 5,
        protection: Protection::Metadata,
        dead_zone: 8192,
        ..FormatOptions::default()
    };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let pool = open(memory.clone()).unwrap();
    for number in 0..9 {
        pool.create(pool.root(), format!("file {number}").as_bytes(), &FILE).unwrap();
    }
    let before = memory.image();
    step(&pool);
    [before, memory.image()]
}

/// An operation, and a crash in it.
struct Crashed {
    before: Vec<u8>,
    after: Vec<u8>,
    trees: [Snapshot; 2],
    apart: usize,
}

impl Crashed {
    fn of(step: Step) -> Self {
        let [before, after] = around(step);
        let superblock = Superblock::parse(after[..512].try_into().unwrap()).unwrap();
        let open = |image: &[u8]| open(Memory::from_image(image)).unwrap();
        let trees = [&before, &after].map(|image| seen(&open(image), "undamaged"));
        assert!(difference(&trees[0], &trees[1]).is_some());
        let apart = superblock.geometry().twin_pages as usize * 4096;
        Self { before, after, trees, apart }
    }

    /// Lines of metadata that the operation stored.
    fn lines(&self) -> Vec<usize> {
        let of = |image: &[u8], at: usize| image[at..at + LINE].to_vec();
        let is_stored = |line: &usize| {
            let twin = line ^ self.apart;
            *line < twin
                && of(&self.after, *line) == of(&self.after, twin)
                && of(&self.before, *line) != of(&self.after, *line)
        };
        (0..self.after.len()).step_by(LINE).filter(is_stored).collect()
    }

    /// What is left where these lines were not stored.
    fn without(&self, lines: &[usize]) -> Vec<u8> {
        let mut image = self.after.clone();
        for at in lines {
            image[*at..at + LINE].copy_from_slice(&self.before[*at..at + LINE]);
        }
        image
    }

    /// The first copy of a line goes bad at any moment of recovery: all of the operation happened, or nothing.
    fn any_moment(&self, image: &[u8], line: usize, step: usize) {
        for is_poison in [true, false] {
            let left = Arc::new(AtomicU64::new(u64::MAX / 2));
            open(late(image, line as u64, is_poison, &left)).unwrap();
            let loads = u64::MAX / 2 - left.load(Relaxed);
            for load in (line as u64 / 64 % step as u64..loads).step_by(step) {
                let case = format!("line {line:#x}, poison {is_poison}, load {load} of {loads}");
                let pool =
                    open(late(image, line as u64, is_poison, &Arc::new(AtomicU64::new(load))));
                let pool = pool.unwrap_or_else(|error| panic!("{case}: {error:?}"));
                let found = seen(&pool, &case);
                let differs = self.trees.each_ref().map(|tree| difference(tree, &found));
                assert!(differs.iter().any(Option::is_none), "{case}: {differs:#?}");
                assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, [], "{case}");
            }
        }
    }
}

/// A crash lost the second copy of a line; or that, and all of another line.
fn any_moment(step: Step) {
    let crashed = Crashed::of(step);
    let lines = crashed.lines();
    assert!(lines.len() > 1);
    for line in &lines {
        let twin = line ^ crashed.apart;
        crashed.any_moment(&crashed.without(&[twin]), *line, 2);
        for other in lines.iter().filter(|other| *other != line) {
            let image = crashed.without(&[twin, *other, other ^ crashed.apart]);
            crashed.any_moment(&image, *line, 7);
        }
    }
}

#[test]
fn what_recovery_took_first_it_takes_again_of_an_unlink() {
    any_moment(|pool| pool.unlink(pool.root(), b"file 3").unwrap());
}

#[test]
fn what_recovery_took_first_it_takes_again_of_a_create() {
    any_moment(|pool| {
        pool.create(pool.root(), b"a name that takes more than one line, and a page", &FILE)
            .unwrap();
    });
}

#[test]
fn what_recovery_took_first_it_takes_again_of_a_rename() {
    any_moment(|pool| {
        let (root, how) = (pool.root(), RenameMode::Replace);
        pool.rename(root, b"file 1", root, b"file 2", how).unwrap();
    });
}
