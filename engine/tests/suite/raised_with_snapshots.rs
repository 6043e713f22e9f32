//! A pool with snapshots gets a higher level, and each of them has what it had, under the numbers that it had: also after
//! what comes later, whatever that is. What they alone see is free when they are gone, to the page.

use std::collections::BTreeMap;

use lode_engine::{
    AccessTimes, Error, FormatOptions, Ino, OpenOptions, PageClass, Pool, Protection,
};
use lode_model::Model;
use lode_testkit::execute::{Handles, execute, resolve_from};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::{Fill, Op, Path, Target};
use lode_testkit::rng::Rng;
use lode_testkit::run::time_of;
use lode_testkit::snapshot::{Times, difference, snapshot, snapshot_from};
use lode_testkit::system::{PoolSystem, System};
use lode_testkit::{Memory, TestHost, seeds};

type TestPool = Pool<Memory, TestHost>;

/// Below these bits a number is that of the inode, above it tells the snapshot.
const INO_BITS: u32 = 40;

fn options() -> OpenOptions {
    OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() }
}

/// A pool, and the model of it.
struct Used {
    system: PoolSystem,
    model: Model,
    handles: (Handles, Handles),
    rng: Rng,
    made: u32,
    snapshots: Vec<String>,
    generator: Generator,
    step: usize,
}

/// Numbers and generations of inodes in snapshots, by snapshot and path.
type Numbers = BTreeMap<(String, Path), (Ino, u64)>;

impl Used {
    fn new(seed: u64) -> Self {
        Self::sized(seed, [8, 20, 40][seed as usize % 3] << 20)
    }

    fn sized(seed: u64, bytes: u64) -> Self {
        let log_lines = [9, 63][seed as usize / 3 % 2];
        let page_class = if seed % 5 == 4 { PageClass::Huge } else { PageClass::Small };
        let format = FormatOptions { lanes: 2, log_lines, page_class, ..FormatOptions::default() };
        let host = TestHost::new(seed);
        let system = PoolSystem::new(bytes, host, &format, options()).unwrap();
        let shape = Shape { remount_every: 70, maintain_every: 30, names: 5, ..Shape::default() };
        Self {
            system,
            model: Model::new(),
            handles: (Handles::new(), Handles::new()),
            rng: Rng::new(seed ^ 0x1eaf),
            made: 0,
            snapshots: Vec::new(),
            generator: Generator::new(seed, shape),
            step: 0,
        }
    }

    fn operate(&mut self, steps: usize) {
        for _ in 0..steps {
            let op = self.generator.op();
            self.step(&op);
            match self.rng.below(25) {
                0 | 1 => self.make(),
                2 if self.snapshots.len() > 2 => self.delete(),
                _ => {}
            }
        }
    }

    fn step(&mut self, op: &Op) {
        self.step += 1;
        self.system.set_now(time_of(self.step));
        self.model.set_now(time_of(self.step));
        if matches!(op, Op::Remount | Op::Crash) {
            self.forget();
            return self.system.remount(*op == Op::Remount).unwrap();
        }
        let found = execute(self.system.fs(), &mut self.handles.0, op);
        if found == Err(Error::NoSpace) {
            return;
        }
        let wanted = execute(&self.model, &mut self.handles.1, op);
        let same = matches!((&wanted, &found), (Ok(_), Ok(_))) || wanted == found;
        assert!(same, "{op}: {wanted:?} expected, {found:?} found");
    }

    /// Nothing is open any more.
    fn forget(&mut self) {
        self.handles = (Handles::new(), Handles::new());
        System::remount(&mut self.model, true).unwrap();
    }

    fn make(&mut self) {
        let name = format!("snapshot-{}", self.made);
        match self.system.pool().create_snapshot(name.as_bytes()) {
            Ok(()) => self.model.create_snapshot(name.as_bytes()).unwrap(),
            Err(Error::NoSpace) => return,
            Err(error) => panic!("{name}: {error:?}"),
        }
        self.made += 1;
        self.snapshots.push(name);
    }

    fn delete(&mut self) {
        let at = self.rng.below(self.snapshots.len() as u64) as usize;
        match self.system.pool().delete_snapshot(self.snapshots[at].as_bytes()) {
            Ok(()) => self.model.delete_snapshot(self.snapshots.remove(at).as_bytes()).unwrap(),
            Err(Error::NoSpace) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    /// All trees are the model's, all pages are somebody's or free, and a scrub finds nothing.
    fn compare(&self, case: &str) {
        let pool = self.system.pool();
        let wanted = snapshot(&self.model, Times::ALL, None).unwrap();
        let found = snapshot(pool, Times::ALL, Some(&wanted)).unwrap();
        assert_eq!(difference(&wanted, &found), None, "{case}");
        let report = pool.check(&mut |_, _| ()).unwrap();
        assert_eq!((report.damage, report.differing, report.mended), (vec![], vec![], 0), "{case}");
        let mut scrub = pool.begin_scrub().unwrap();
        while !scrub.is_over() {
            pool.scrub(&mut scrub, 1 << 20).unwrap();
        }
        assert_eq!(scrub.take_findings(), [], "{case}");
    }

    fn numbers(&self) -> Numbers {
        let pool = self.system.pool();
        let mut numbers = Numbers::new();
        for name in &self.snapshots {
            let root = pool.snapshot_root(name.as_bytes()).unwrap();
            for path in snapshot_from(pool, root, Times::ALL, None).unwrap().0.into_keys() {
                let ino = resolve_from(pool, root, &path).unwrap();
                let generation = pool.getattr(ino).unwrap().generation;
                numbers.insert((name.clone(), path), (ino & ((1 << INO_BITS) - 1), generation));
            }
        }
        numbers
    }

    /// Gives the pool another level. Says whether there was room for that.
    fn protect(&mut self, level: Protection, dead_zone: u64, case: &str) -> bool {
        let (before, is_closed) = (self.numbers(), self.rng.below(2) == 0);
        let had = self.system.pool().info().unwrap().protection;
        if is_closed {
            self.system.pool().close().unwrap();
        }
        let memory = self.system.memory().copy();
        let raised =
            TestPool::protect(memory.clone(), TestHost::new(5), level, dead_zone, &mut |_, _| ());
        assert!(matches!(raised, Ok(true) | Err(Error::NoSpace)), "{case}: {raised:?}");
        self.forget();
        self.system.take(memory).unwrap();
        let has = self.system.pool().info().unwrap().protection;
        // (On the way to full it may have got so far.)
        let right = if raised == Ok(true) { has == level } else { has >= had && has < level };
        assert!(right, "{case}: {has:?} after {raised:?}");
        assert_eq!(self.numbers(), before, "{case}");
        self.compare(case);
        raised == Ok(true)
    }
}

/// Says whether all levels found room.
fn history(seed: u64) -> bool {
    let mut used = Used::new(seed);
    let case = |what: &str| format!("seed {seed}, {what}");
    used.operate(130);
    used.make();
    used.operate(40);
    let dead_zone = [0, 60_000][seed as usize / 6 % 2];
    let mut all = true;
    if seed.is_multiple_of(2) {
        all &= used.protect(Protection::Metadata, dead_zone, &case("metadata"));
        used.operate(50);
    }
    all &= used.protect(Protection::Full, dead_zone, &case("full"));
    used.operate(50);
    used.compare(&case("later"));
    if seed.is_multiple_of(3) {
        let to = [Protection::None, Protection::Metadata][seed as usize / 3 % 2];
        if used.system.pool().info().unwrap().protection > to {
            assert!(used.protect(to, 0, &case("lower")));
        }
        used.operate(30);
        all &= used.protect(Protection::Full, dead_zone, &case("full again"));
        used.operate(30);
    }
    if seed % 4 == 1 && !used.snapshots.is_empty() {
        used.roll_back(&case("rolled back"));
    }
    while !used.snapshots.is_empty() {
        used.delete();
        used.system.pool().maintain().unwrap();
        used.compare(&case("one is deleted"));
        used.operate(5);
    }
    used.forget();
    used.system.remount(true).unwrap();
    used.compare(&case("none is left"));
    all
}

impl Used {
    fn roll_back(&mut self, case: &str) {
        let at = self.rng.below(self.snapshots.len() as u64) as usize;
        let name = self.snapshots[at].clone();
        self.system.pool().close().unwrap();
        let memory = self.system.memory().copy();
        TestPool::rollback(memory.clone(), TestHost::new(3), name.as_bytes()).unwrap();
        self.model.rollback(name.as_bytes()).unwrap();
        self.snapshots.truncate(at + 1);
        self.forget();
        self.system.take(memory).unwrap();
        self.compare(case);
        self.operate(20);
    }
}

#[test]
fn snapshots_have_what_they_had_when_the_pool_gets_a_higher_level_and_later() {
    let count = seeds::count("LODE_RAISED_SEQUENCES", 120);
    let all = seeds::sum(count, |seed| history(seed).into());
    assert!(all * 10 >= count * 9, "in {all} of {count} there was room");
}

#[test]
fn where_there_is_no_room_the_pool_stays_as_it_was_and_where_there_is_it_is_raised() {
    let (mut raised, mut refused) = (0, 0);
    for seed in 0..24 {
        let mut used = Used::sized(seed, 3 << 20);
        used.operate(60);
        used.make();
        used.operate(20);
        let left = 20 + 14 * seed;
        let case = format!("seed {seed}: {left} pages left");
        let create = Op::Create { path: Path::of("/filler"), mode: 0o100_600, rdev: 0 };
        used.step(&create);
        for _ in 0..(3 << 20) / 4096 {
            if used.system.pool().statfs().pages_free > left {
                let (to, data) = (Target::Path(Path::of("/filler")), Fill { len: 4096, fill: 7 });
                used.step(&Op::Append { to, data });
            }
        }
        used.make();
        let to = [Protection::Metadata, Protection::Full][seed as usize % 2];
        match used.protect(to, 0, &case) {
            true => raised += 1,
            false => refused += 1,
        }
        used.operate(20);
        used.compare(&case);
    }
    assert!(raised > 3 && refused > 3, "{raised} raised, {refused} refused");
}
