//! What the tests of streams share: pools with snapshots of random work, and what the model says of each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

use lode_engine::{AccessTimes, Error, FormatOptions, Ino, OpenOptions, Pool, Protection, mode};
use lode_model::Model;
use lode_stream::{Begun, Receiver, Sender, Start};
use lode_testkit::execute::{Handles, execute};
use lode_testkit::fs::Fs;
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::Op;
use lode_testkit::run::time_of;
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot_from};
use lode_testkit::system::{PoolSystem, System};
use lode_testkit::{Memory, TestHost};

pub type TestPool = Pool<Memory, TestHost>;

pub const LEVELS: [Protection; 3] = [Protection::None, Protection::Metadata, Protection::Full];

pub fn options(receiving: bool) -> OpenOptions {
    OpenOptions { receiving, atime: AccessTimes::Never, ..OpenOptions::default() }
}

pub fn format(seed: u64) -> FormatOptions {
    let protection = LEVELS[seed as usize % 3];
    let log_lines = [9, 20, 63][seed as usize / 3 % 3];
    FormatOptions { lanes: 2, log_lines, protection, ..FormatOptions::default() }
}

/// What a stream brings of a tree: not the times that nobody can set.
pub fn sent(mut tree: Snapshot) -> Snapshot {
    for seen in tree.0.values_mut() {
        (seen.times[2], seen.times[3]) = (None, None);
    }
    tree
}

pub fn tree_of(fs: &dyn Fs, root: u64, hint: Option<&Snapshot>) -> Snapshot {
    sent(snapshot_from(fs, root, Times::ALL, hint).unwrap())
}

/// A pool with snapshots `s0`, `s1`, ... of random work, and what each has.
pub fn source(seed: u64, snapshots: usize, steps: usize) -> (PoolSystem, Vec<Snapshot>) {
    let host = TestHost::new(seed);
    let mut system = PoolSystem::new(16 << 20, host, &format(seed / 3), options(false)).unwrap();
    let mut model = Model::new();
    let shape = Shape { remount_every: 70, maintain_every: 25, ..Shape::default() };
    let mut generator = Generator::new(seed, shape);
    let (mut handles, mut of_model) = (Handles::new(), Handles::new());
    let mut trees = Vec::new();
    for step in 0..snapshots * steps {
        system.set_now(time_of(step));
        model.set_now(time_of(step));
        let op = generator.op();
        if matches!(op, Op::Remount | Op::Crash) {
            (handles, of_model) = (Handles::new(), Handles::new());
            system.remount(op == Op::Remount).unwrap();
            System::remount(&mut model, true).unwrap();
        } else if execute(system.fs(), &mut handles, &op) != Err(Error::NoSpace) {
            let _ = execute(&model, &mut of_model, &op);
        }
        if step % steps == steps - 1 {
            let name = format!("s{}", trees.len());
            // (None can be made while a file is mapped.)
            (handles, of_model) = (Handles::new(), Handles::new());
            system.remount(true).unwrap();
            System::remount(&mut model, true).unwrap();
            system.pool().create_snapshot(name.as_bytes()).unwrap();
            trees.push(tree_of(&model, model.root(), None));
        }
    }
    (system, trees)
}

pub fn name(number: usize) -> Vec<u8> {
    format!("s{number}").into_bytes()
}

/// The stream of a snapshot.
pub fn stream(pool: &TestPool, name: &[u8], older: Option<&[u8]>) -> Vec<u8> {
    let mut sender = Sender::new(pool, name, older).unwrap();
    let mut bytes = Vec::new();
    while sender.next(pool, &mut bytes).unwrap() {}
    bytes
}

/// An empty pool.
pub fn target(seed: u64) -> Memory {
    let memory = Memory::new(16 << 20);
    Pool::format(memory.clone(), TestHost::new(seed), &format(seed)).unwrap();
    memory
}

pub fn open(memory: &Memory, receiving: bool) -> Result<TestPool, Error> {
    TestPool::open(memory.clone(), TestHost::new(77), &options(receiving))
}

/// Receives a stream, or a part of one, into a pool; says whether the pool had it before.
pub fn receive(pool: &TestPool, mut bytes: &[u8], force: bool) -> lode_stream::Result<bool> {
    let start = Start::read(&mut bytes)?;
    match Receiver::begin(pool, &start, force)? {
        Begun::Receiver(mut receiver) => receiver.run(&mut bytes, &mut |_| true).map(|()| false),
        Begun::There => Ok(true),
        Begun::RollBack(name) => panic!("to be rolled back to {name:?}"),
    }
}

/// Panics unless the pool has this tree, now and as this snapshot, and is sound.
#[track_caller]
pub fn has(pool: &TestPool, name: &[u8], wanted: &Snapshot, what: &str) {
    for root in [pool.root(), pool.snapshot_root(name).unwrap()] {
        let found = tree_of(pool, root, Some(wanted));
        assert_eq!(difference(wanted, &found), None, "{what}");
    }
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![], "{what}");
}

/// Mapped pages of each file of a tree, by path.
pub fn pages(pool: &TestPool, root: Ino) -> Vec<(String, u64)> {
    let (mut found, mut left) = (Vec::new(), vec![(root, String::new())]);
    while let Some((dir, path)) = left.pop() {
        pool.readdir(dir, 0, &mut |entry| {
            let path = format!("{path}/{}", String::from_utf8_lossy(entry.name));
            match entry.kind {
                mode::DIRECTORY => left.push((entry.ino, path)),
                mode::FILE => found.push((path, entry.ino)),
                _ => {}
            }
            true
        })
        .unwrap();
    }
    found.sort();
    let pages = |(path, ino)| (path, pool.getattr(ino).unwrap().pages);
    found.into_iter().map(pages).collect()
}
