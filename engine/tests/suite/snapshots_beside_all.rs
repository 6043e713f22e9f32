//! Snapshots are what the model was at their epoch while all goes on at once: writers, the collector, scrubs that have something to
//! repair, and the end of other snapshots.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lode_engine::layout::{CrcTable, Superblock};
use lode_engine::{
    AccessTimes, Error, FormatOptions, Ino, NewInode, OpenOptions, Outcome, Pool, Protection,
    XattrChange, XattrWhen, ino_beside, mode,
};
use lode_model::Model;
use lode_testkit::execute::{Handles, execute};
use lode_testkit::fs::TestPool;
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::harm::scrubbed;
use lode_testkit::op::{Op, Path};
use lode_testkit::rng::Rng;
use lode_testkit::run::same;
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot_from};
use lode_testkit::{Memory, TestHost};

const PAGE: u64 = 4096;
const WRITERS: usize = 2;
/// Operations of each, at most: more fill the pool.
const OPS_MOST: usize = 12_000;
/// Snapshots of writers' work that each run makes.
const SNAPSHOTS: usize = 120;
/// Snapshots that are there at a time.
const KEPT: usize = 5;
const FIRST: &str = "first";
const DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };
const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, ..DIR };

/// What a writer does in a subtree of its own.
#[derive(Default)]
struct Written {
    /// In its order; those that have begun.
    ops: Mutex<Vec<Op>>,
    returned: AtomicUsize,
}

/// A snapshot, and what it must be.
type Kept = (String, Snapshot);

struct All {
    pool: TestPool,
    written: [Written; WRITERS],
    /// Those that nobody looks at just now.
    kept: Mutex<Vec<Kept>>,
    over: AtomicBool,
}

/// Ends the others when it is dropped, in a panic too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn home(writer: usize) -> Path {
    Path::of(&format!("w{writer}"))
}

fn below(tree: &Snapshot, dir: &Path) -> Snapshot {
    let inside = tree.0.iter().filter(|(path, _)| path.0.starts_with(&dir.0));
    Snapshot(inside.map(|(path, seen)| (path.clone(), seen.clone())).collect())
}

/// The model of a writer's subtree, as far as it has been brought.
struct Follower {
    model: Model,
    handles: Handles,
    done: usize,
}

impl Follower {
    fn new(writer: usize) -> Self {
        let model = Model::new();
        model.create(model.root(), &home(writer).0[0], &DIR).unwrap();
        Self { model, handles: Handles::new(), done: 0 }
    }

    fn tree(&self, writer: usize) -> Snapshot {
        let tree = snapshot_from(&self.model, self.model.root(), Times::NONE, None).unwrap();
        below(&tree, &home(writer))
    }

    /// Goes on to an operation behind the first `least`, of these, at which the model is what was found.
    fn find(&mut self, writer: usize, found: &Snapshot, least: usize, ops: &[Op]) {
        let mut first = None;
        loop {
            if self.done >= least {
                match difference(&self.tree(writer), found) {
                    None => return,
                    what => _ = first.get_or_insert(what),
                }
            }
            let Some(op) = ops.get(self.done) else {
                panic!("writer {writer}, operations {least} to {}: {first:?}", ops.len());
            };
            let _ = execute(&self.model, &mut self.handles, op);
            self.done += 1;
        }
    }
}

impl All {
    fn new(protection: Protection) -> Self {
        let (memory, host) = (Memory::new(128 << 20), TestHost::with_cpus(1, 4));
        let format =
            FormatOptions { lanes: 4, log_lines: 9, protection, ..FormatOptions::default() };
        Pool::format(memory.clone(), host.clone(), &format).unwrap();
        let options = OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() };
        let pool = Pool::open(memory, host, &options).unwrap();
        for writer in 0..WRITERS {
            pool.create(pool.root(), &home(writer).0[0], &DIR).unwrap();
        }
        let (kept, over) = (Mutex::default(), AtomicBool::new(false));
        Self { pool, written: Default::default(), kept, over }
    }

    /// Does it; if that fails, the others end, too. (Whoever has come to an end was told to.)
    fn or_ends<T>(&self, does: impl FnOnce() -> T) -> T {
        let _ends = Ends(&self.over);
        does()
    }

    fn seen(&self, name: &str, hint: Option<&Snapshot>) -> Snapshot {
        let root = self.pool.snapshot_root(name.as_bytes()).unwrap();
        snapshot_from(&self.pool, root, Times::NONE, hint).unwrap()
    }

    fn is_same(&self, (name, wanted): &Kept) {
        let found = self.seen(name, Some(wanted));
        assert_eq!(difference(wanted, &found), None, "{name}");
    }

    fn write(&self, writer: usize, seed: u64) {
        let shape = Shape { below: home(writer), depth: 3, ..Shape::default() };
        let mut generator = Generator::new(seed * 10 + writer as u64, shape);
        let (model, mut handles) = (Follower::new(writer).model, [Handles::new(), Handles::new()]);
        let Written { ops, returned } = &self.written[writer];
        while !self.over.load(SeqCst) {
            if returned.load(SeqCst) >= OPS_MOST {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let op = generator.op();
            ops.lock().unwrap().push(op.clone());
            let mut found = execute(&self.pool, &mut handles[0], &op);
            // (Who deletes snapshots, and who collects, may be kept from the processor.)
            while found == Err(Error::NoSpace) {
                if self.over.load(SeqCst) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
                found = execute(&self.pool, &mut handles[0], &op);
            }
            returned.fetch_add(1, SeqCst);
            let wanted = execute(&model, &mut handles[1], &op);
            assert!(same(&wanted, &found), "{op}: {wanted:?}, {found:?}");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn collect(&self) {
        while !self.over.load(SeqCst) {
            self.pool.maintain().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn delete(&self, seed: u64) {
        let mut rng = Rng::new(seed);
        while !self.over.load(SeqCst) {
            std::thread::sleep(Duration::from_micros(300));
            let mut kept = self.kept.lock().unwrap();
            if kept.len() > KEPT {
                let at = rng.below(kept.len() as u64) as usize;
                let (name, _) = kept.swap_remove(at);
                drop(kept);
                self.pool.delete_snapshot(name.as_bytes()).unwrap();
            }
        }
    }

    /// Damages one of these places, if there are any, and scrubs, again and again. Says how often that found something.
    fn scrub(&self, places: &[u64], seed: u64) -> usize {
        let (mut rng, memory, mut found) = (Rng::new(seed), self.pool.medium(), 0);
        while !self.over.load(SeqCst) {
            let at = (!places.is_empty()).then(|| rng.pick(places));
            if let Some(at) = at {
                memory.put(at, &[memory.get(at, 1)[0] ^ 1 << rng.below(8)]);
            }
            let findings = scrubbed(&self.pool).unwrap();
            let is_repaired = findings.iter().all(|one| one.outcome == Outcome::Repaired);
            assert!(is_repaired, "{at:x?}: {findings:?}");
            found += findings.len();
        }
        found
    }

    /// Makes snapshots, finds for each which operations it has, and looks at others.
    fn watch(&self, seed: u64, first: &Kept) {
        let mut rng = Rng::new(seed);
        let mut followers: [Follower; WRITERS] = std::array::from_fn(Follower::new);
        for number in 0..SNAPSHOTS {
            let name = format!("s{number}");
            let least = self.written.each_ref().map(|it| it.returned.load(SeqCst));
            self.pool.create_snapshot(name.as_bytes()).unwrap();
            let ops = self.written.each_ref().map(|it| it.ops.lock().unwrap().clone());
            let tree = self.seen(&name, None);
            for (writer, follower) in followers.iter_mut().enumerate() {
                follower.find(writer, &below(&tree, &home(writer)), least[writer], &ops[writer]);
            }
            let mut kept = self.kept.lock().unwrap();
            kept.push((name, tree));
            let at = rng.below(kept.len() as u64) as usize;
            let looked = kept.swap_remove(at);
            drop(kept);
            self.is_same(&looked);
            self.is_same(first);
            self.kept.lock().unwrap().push(looked);
        }
    }
}

/// Files that nobody changes while others write, some of which only the first snapshot sees: by their numbers there.
fn calm(pool: &TestPool) -> Vec<Ino> {
    let mut inos = Vec::new();
    for number in 0..6 {
        let name = format!("calm{number}");
        let ino = pool.create(pool.root(), name.as_bytes(), &FILE).unwrap().ino;
        let bytes: Vec<u8> = (0..5 * PAGE - 300).map(|at| (at / 7 + number) as u8).collect();
        // (A record each, so that the log has pages.)
        for page in (0..12).step_by(2) {
            let part = &bytes[page * 300..][..PAGE as usize];
            pool.write(ino, page as u64 * PAGE, part).unwrap();
        }
        let value = Some(&bytes[..3000]);
        let change = XattrChange { name: b"user.long", value, when: XattrWhen::Always };
        pool.setxattr(ino, &change).unwrap();
        inos.push(ino);
    }
    pool.create_snapshot(FIRST.as_bytes()).unwrap();
    for (number, ino) in inos.iter().enumerate().take(4) {
        match number {
            0 | 1 => pool.unlink(pool.root(), format!("calm{number}").as_bytes()).unwrap(),
            _ => pool.write(*ino, 2 * PAGE, &[9; PAGE as usize]).map(drop).unwrap(),
        }
    }
    pool.maintain().unwrap();
    let root = pool.snapshot_root(FIRST.as_bytes()).unwrap();
    inos.iter().map(|ino| ino_beside(*ino, root)).collect()
}

/// Bytes of these inodes, and of what is kept of them, each of which the pool can do without.
fn places(pool: &TestPool, protection: Protection, inos: &[Ino]) -> Vec<u64> {
    let raw = pool.medium().get(0, 512);
    let strips = Superblock::parse(raw[..].try_into().unwrap()).unwrap().geometry().strips;
    let apart = PAGE << raw[92];
    let mut places = Vec::new();
    for ino in inos {
        let dump = pool.dump_inode(*ino).unwrap();
        for at in &dump.log_pages {
            places.extend([at + 3, (at + 84) ^ apart]);
        }
        for extent in dump.extents.iter().filter(|_| protection == Protection::Full) {
            for page in (extent.pool_offset..extent.pool_offset + extent.bytes).step_by(4096) {
                let page = page / PAGE;
                let kept = [CrcTable::First, CrcTable::Second].map(|it| strips.crcs_at(page, it));
                places.extend([page * PAGE + 700, page * PAGE + 1300, strips.parity_at(page)]);
                places.extend(kept);
            }
        }
    }
    places
}

#[test]
fn each_snapshot_is_the_model_at_its_epoch_beside_writers_collector_scrubs_and_deletions() {
    for (seed, protection) in (0..).zip(Protection::ALL) {
        let all = All::new(protection);
        let seen = calm(&all.pool);
        // (Without second copies there is nothing that the pool could do without.)
        let has_copies = protection != Protection::None;
        let places = if has_copies { places(&all.pool, protection, &seen) } else { Vec::new() };
        let first = (FIRST.to_owned(), all.seen(FIRST, None));
        assert!(places.len() > 6 || !has_copies, "{places:?}");
        let began = Instant::now();
        std::thread::scope(|scope| {
            let ends = Ends(&all.over);
            for writer in 0..WRITERS {
                let all = &all;
                scope.spawn(move || all.or_ends(|| all.write(writer, seed)));
            }
            scope.spawn(|| all.or_ends(|| all.collect()));
            scope.spawn(|| all.or_ends(|| all.delete(seed)));
            let scrubs = scope.spawn(|| all.or_ends(|| all.scrub(&places, seed)));
            all.watch(seed, &first);
            drop(ends);
            let ops: usize = all.written.iter().map(|it| it.ops.lock().unwrap().len()).sum();
            let repaired = scrubs.join().unwrap();
            println!(
                "{protection:?}: {ops} operations, {repaired} repaired, {:?}",
                began.elapsed()
            );
            assert_eq!(repaired > 5, has_copies, "{repaired} repaired");
            assert!(ops > 500, "{ops} operations");
        });
        // What is left, with all that was repaired.
        all.is_same(&first);
        let kept = all.kept.lock().unwrap();
        kept.iter().for_each(|one| all.is_same(one));
        let findings = scrubbed(&all.pool).unwrap();
        assert!(findings.iter().all(|one| one.outcome == Outcome::Repaired), "{findings:?}");
        assert_eq!(all.pool.check(&mut |_, _| ()).unwrap().damage, []);
    }
}
