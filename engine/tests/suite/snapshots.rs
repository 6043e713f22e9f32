//! A snapshot has what there was when it was made, whatever happens later: writes, deletions, collection, crashes,
//! the end of other snapshots. What only snapshots see is free when they are gone.

use lode_engine::{
    AccessTimes, Corruption, Error, FormatOptions, NewInode, OpenOptions, Pool, Protection,
    SetAttr, XattrChange, XattrWhen, mode,
};
use lode_model::Model;
use lode_testkit::execute::{Handles, execute};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::Op;
use lode_testkit::rng::Rng;
use lode_testkit::run::time_of;
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot, snapshot_from};
use lode_testkit::system::{PoolSystem, System};
use lode_testkit::{Memory, TestHost, seeds};

type TestPool = Pool<Memory, TestHost>;

fn options() -> OpenOptions {
    OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() }
}

/// A pool, the model of it, and the snapshots that there should be.
struct Kept {
    system: PoolSystem,
    model: Model,
    handles: (Handles, Handles),
    rng: Rng,
    made: u32,
    snapshots: Vec<(String, Snapshot)>,
}

impl Kept {
    fn new(seed: u64, bytes: u64) -> Self {
        let protection =
            [Protection::None, Protection::Metadata, Protection::Full][seed as usize % 3];
        // (In every fourth pool logs are short, and snapshots rare.)
        let log_lines = if is_long(seed) { 9 } else { [9, 20, 63][seed as usize / 3 % 3] };
        let format = FormatOptions { lanes: 2, log_lines, protection, ..FormatOptions::default() };
        let system = PoolSystem::new(bytes, TestHost::new(seed), &format, options()).unwrap();
        let (handles, rng) = ((Handles::new(), Handles::new()), Rng::new(seed ^ 0x5eed));
        Self { system, model: Model::new(), handles, rng, made: 0, snapshots: Vec::new() }
    }

    fn step(&mut self, step: usize, op: &Op) -> Result<(), String> {
        self.system.set_now(time_of(step));
        self.model.set_now(time_of(step));
        if matches!(op, Op::Remount | Op::Crash) {
            self.handles = (Handles::new(), Handles::new());
            self.system.remount(*op == Op::Remount)?;
            System::remount(&mut self.model, true)?;
            return self.compare();
        }
        let found = execute(self.system.fs(), &mut self.handles.0, op);
        if found == Err(Error::NoSpace) {
            return Ok(());
        }
        let wanted = execute(&self.model, &mut self.handles.1, op);
        let same = match (&wanted, &found) {
            (Ok(_), Ok(_)) => true,
            (wanted, found) => wanted == found,
        };
        if same { Ok(()) } else { Err(format!("{op}: {wanted:?} expected, {found:?} found")) }
    }

    fn make(&mut self) -> Result<(), String> {
        let name = format!("snapshot-{}", self.made);
        match self.system.pool().create_snapshot(name.as_bytes()) {
            Ok(()) => {
                let tree = snapshot_from(&self.model, self.model.root(), Times::ALL, None)?;
                self.model.create_snapshot(name.as_bytes()).map_err(|e| format!("{e:?}"))?;
                self.made += 1;
                self.snapshots.push((name, tree));
                Ok(())
            }
            Err(Error::NoSpace | Error::Busy) => Ok(()),
            Err(error) => Err(format!("{name}: {error:?}")),
        }
    }

    fn delete(&mut self) -> Result<(), String> {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(self.snapshots.len() as u64) as usize;
        let (name, tree) = self.snapshots.remove(at);
        match self.system.pool().delete_snapshot(name.as_bytes()) {
            Ok(()) => self.model.delete_snapshot(name.as_bytes()).map_err(|e| format!("{e:?}")),
            Err(Error::NoSpace) => {
                self.snapshots.insert(at, (name, tree));
                Ok(())
            }
            Err(error) => Err(format!("{name}: {error:?}")),
        }
    }

    fn compare(&self) -> Result<(), String> {
        let wanted = snapshot(&self.model, Times::ALL, None)?;
        let found = snapshot(self.system.fs(), Times::ALL, Some(&wanted))?;
        if let Some(what) = difference(&wanted, &found) {
            return Err(what);
        }
        let pool = self.system.pool();
        let names: Vec<String> = pool
            .snapshots()
            .map_err(|error| format!("{error:?}"))?
            .into_iter()
            .map(|info| String::from_utf8(info.name).unwrap())
            .collect();
        if !names.iter().eq(self.snapshots.iter().map(|(name, _)| name)) {
            return Err(format!("other snapshots: {names:?}"));
        }
        self.system.check()
    }
}

fn same_in(pool: &TestPool, name: &str, wanted: &Snapshot) -> Result<(), String> {
    let root = pool.snapshot_root(name.as_bytes()).map_err(|error| format!("{error:?}"))?;
    let found = snapshot_from(pool, root, Times::ALL, Some(wanted))?;
    difference(wanted, &found).map_or(Ok(()), Err)
}

/// Whether the sequence of this seed is a long one, of few names, with few snapshots: so that logs grow long behind
/// what these see.
fn is_long(seed: u64) -> bool {
    seed % 4 == 3
}

/// Whether a snapshot sees the root directory, which is older than all, and its log has been written anew behind that.
fn is_written_anew(kept: &Kept, root_log: &mut Vec<u64>) -> bool {
    let pool = kept.system.pool();
    let pages = pool.dump_inode(pool.root()).map_or(Vec::new(), |dump| dump.log_pages);
    let before = std::mem::replace(root_log, pages);
    let same = root_log.iter().zip(&before).take_while(|(now, before)| now == before).count();
    let gone = before.iter().skip(same).filter(|page| !root_log.contains(page)).count();
    !kept.snapshots.is_empty() && gone >= 2
}

/// Says how often more than a page of the log of the root directory was exchanged while a snapshot saw it.
fn sequence(seed: u64) -> Result<u64, String> {
    let mut shape = Shape { remount_every: 60, maintain_every: 25, ..Shape::default() };
    let (mut steps, mut part) = (160, 24);
    if is_long(seed) {
        (shape.names, shape.depth, steps, part) = (3, 1, 800, 400);
    }
    let mut generator = Generator::new(seed, shape);
    let mut kept = Kept::new(seed, 8 << 20);
    let (mut root_log, mut anew) = (Vec::new(), 0);
    for step in 0..steps {
        let op = generator.op();
        kept.step(step, &op).map_err(|what| format!("step {step}: {what}"))?;
        anew += u64::from(is_written_anew(&kept, &mut root_log));
        match kept.rng.below(part) {
            0 | 1 => kept.make(),
            2 => kept.delete(),
            3 | 4 => kept.compare(),
            _ => Ok(()),
        }
        .map_err(|what| format!("behind step {step} ({op}): {what}"))?;
    }
    kept.compare()?;
    // Without snapshots there is as much space as there would be without their ever having been.
    while !kept.snapshots.is_empty() {
        kept.delete()?;
        kept.compare()?;
    }
    kept.system.remount(true)?;
    kept.handles = (Handles::new(), Handles::new());
    System::remount(&mut kept.model, true)?;
    kept.compare()?;
    Ok(anew)
}

/// Runs the sequences of some seeds on all processors.
fn sequences(count: u64) {
    let run = |seed| sequence(seed).unwrap_or_else(|what| panic!("{what}"));
    let anew = seeds::sum(count, run);
    println!("{anew} logs were written anew behind what snapshots see");
    assert!(anew * 10 >= count, "{anew} logs were written anew");
}

#[test]
fn snapshots_keep_what_there_was_whatever_happens_later() {
    sequences(seeds::count("LODE_SNAPSHOT_SEQUENCES", 1000));
}

#[test]
fn a_rollback_makes_all_what_it_was_and_keeps_older_snapshots() {
    for seed in 0..60 {
        let shape = Shape { remount_every: 40, maintain_every: 25, ..Shape::default() };
        let mut generator = Generator::new(seed, shape);
        let mut kept = Kept::new(seed, 8 << 20);
        for step in 0..150 {
            let op = generator.op();
            kept.step(step, &op).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            if step % 20 == 19 {
                kept.make().unwrap();
            }
        }
        if seed % 2 == 0 {
            kept.system.pool().close().unwrap();
        }
        let Some(at) = kept.snapshots.len().checked_sub(1) else { continue };
        let at = kept.rng.below(at as u64 + 1) as usize;
        let (name, wanted) = kept.snapshots[at].clone();
        let memory = kept.system.memory().copy();
        TestPool::rollback(memory.clone(), TestHost::new(3), name.as_bytes()).unwrap();
        for opened in 0..2 {
            let pool = TestPool::open(memory.clone(), TestHost::new(opened), &options()).unwrap();
            let found = snapshot_from(&pool, pool.root(), Times::ALL, Some(&wanted)).unwrap();
            assert_eq!(difference(&wanted, &found), None, "seed {seed}, {name}");
            assert_eq!(pool.snapshots().unwrap().len(), at + 1, "seed {seed}");
            for (name, wanted) in &kept.snapshots[..=at] {
                assert_eq!(same_in(&pool, name, wanted), Ok(()), "seed {seed}, {name}");
            }
            assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![], "seed {seed}");
            if opened == 0 {
                pool.close().unwrap();
            }
        }
    }
}

/// A pool with one file, of a page.
fn with_a_file() -> (TestPool, u64) {
    with_a_file_at(Protection::None)
}

fn with_a_file_at(protection: Protection) -> (TestPool, u64) {
    let memory = Memory::new(8 << 20);
    let host = TestHost::new(1);
    let format = FormatOptions { protection, ..FormatOptions::default() };
    Pool::format(memory.clone(), host.clone(), &format).unwrap();
    let pool = TestPool::open(memory, host, &options()).unwrap();
    let new = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
    let ino = pool.create(pool.root(), b"file", &new).unwrap().ino;
    pool.write(ino, 0, &[1; 4096]).unwrap();
    (pool, ino)
}

#[test]
fn what_a_snapshot_has_can_be_read_and_not_changed() {
    let (pool, ino) = with_a_file();
    pool.create_snapshot(b"a").unwrap();
    pool.write(ino, 10, &[2; 10]).unwrap();
    let root = pool.snapshot_root(b"a").unwrap();
    let then = pool.lookup(root, b"file").unwrap().ino;
    assert_ne!(then, ino);
    let mut byte = [0; 1];
    assert_eq!(pool.read(then, 12, &mut byte), Ok(1));
    assert_eq!(byte, [1]);
    assert_eq!(pool.write(then, 0, b"no"), Err(Error::ReadOnly));
    assert_eq!(
        pool.setattr(then, &SetAttr { size: Some(0), ..SetAttr::default() }).err(),
        Some(Error::ReadOnly)
    );
    assert_eq!(pool.unlink(root, b"file"), Err(Error::ReadOnly));
    let new = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
    assert_eq!(pool.create(root, b"new", &new).err(), Some(Error::ReadOnly));
    assert_eq!(pool.link(then, pool.root(), b"other").err(), Some(Error::ReadOnly));
    assert_eq!(
        pool.rename(root, b"file", pool.root(), b"other", lode_engine::RenameMode::Replace),
        Err(Error::ReadOnly)
    );
    pool.create(pool.root(), b"other", &new).unwrap();
    let dir = NewInode { mode: mode::DIRECTORY | 0o755, ..new };
    pool.create(pool.root(), b"dir", &dir).unwrap();
    let replace = lode_engine::RenameMode::Replace;
    assert_eq!(pool.rename(pool.root(), b"dir", root, b"dir", replace), Err(Error::ReadOnly));
    assert_eq!(pool.create_nameless(root, &new, &[]).err(), Some(Error::ReadOnly));
    assert_eq!(pool.dump_inode(then).unwrap().attr.ino, then);
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![]);
    // It ends, and so does what is known of it.
    pool.delete_snapshot(b"a").unwrap();
    assert_eq!(pool.read(then, 12, &mut byte), Err(Error::Stale));
    assert_eq!(pool.snapshot_root(b"a"), Err(Error::NotFound));
    assert_eq!(pool.delete_snapshot(b"a"), Err(Error::NotFound));
}

#[test]
fn names_are_checked_and_used_once() {
    let (pool, _) = with_a_file();
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        assert_eq!(pool.create_snapshot(name), Err(Error::Invalid), "{name:?}");
    }
    assert_eq!(pool.create_snapshot(&[b'x'; 129]), Err(Error::NameTooLong));
    pool.create_snapshot(&[b'x'; 128]).unwrap();
    assert_eq!(pool.create_snapshot(&[b'x'; 128]), Err(Error::Exists));
}

#[test]
fn what_each_snapshot_keeps_is_told_to_the_page() {
    Protection::ALL.into_iter().for_each(is_told_to_the_page);
}

fn is_told_to_the_page(protection: Protection) {
    let (pool, ino) = with_a_file_at(protection);
    let pages = |pool: &TestPool| -> Vec<(u64, u64)> {
        pool.snapshots().unwrap().iter().map(|info| (info.pages, info.pages_alone)).collect()
    };
    pool.create_snapshot(b"a").unwrap();
    assert_eq!(pages(&pool), [(0, 0)]);
    pool.write(ino, 0, &[2; 4096]).unwrap();
    assert_eq!(pages(&pool), [(1, 1)]);
    pool.create_snapshot(b"b").unwrap();
    pool.create_snapshot(b"c").unwrap();
    pool.write(ino, 0, &[3; 4096]).unwrap();
    // The page of the second write is seen by two.
    assert_eq!(pages(&pool), [(1, 1), (0, 0), (1, 0)]);
    pool.delete_snapshot(b"b").unwrap();
    pool.maintain().unwrap();
    assert_eq!(pages(&pool), [(1, 1), (1, 1)]);
    let free = pool.statfs().pages_free;
    pool.delete_snapshot(b"c").unwrap();
    pool.maintain().unwrap();
    assert_eq!(pool.statfs().pages_free, free + 1);
    pool.delete_snapshot(b"a").unwrap();
    pool.maintain().unwrap();
    assert_eq!(pool.statfs().pages_free, free + 2);
}

#[test]
fn snapshots_and_maps_that_programs_store_through() {
    let (pool, ino) = with_a_file();
    let file = pool.hold(ino).unwrap();
    pool.map(&file, 0, 4096).unwrap();
    // Nobody could keep a program from storing to what the snapshot would see.
    assert_eq!(pool.create_snapshot(b"a"), Err(Error::Busy));
    assert_eq!(pool.snapshots().unwrap(), vec![]);
    pool.unmap(&file);
    pool.create_snapshot(b"a").unwrap();
    let before = pool.dump_inode(ino).unwrap().extents[0].pool_offset;
    let mapped = pool.map(&file, 0, 4096).unwrap();
    assert_ne!(mapped[0].pool_offset, before, "a page that a snapshot sees is mapped");
    pool.unmap(&file);
    // The rest of the last page becomes zero where any page is mapped: not in what a snapshot sees.
    pool.write(ino, 0, &[7; 8192]).unwrap();
    pool.create_snapshot(b"b").unwrap();
    pool.setattr(ino, &SetAttr { size: Some(5000), ..SetAttr::default() }).unwrap();
    pool.map(&file, 0, 4096).unwrap();
    let then = pool.lookup(pool.snapshot_root(b"b").unwrap(), b"file").unwrap().ino;
    let mut bytes = [0; 8192];
    assert_eq!(pool.read(then, 0, &mut bytes), Ok(8192));
    assert_eq!(bytes, [7; 8192]);
    pool.unmap(&file);
    pool.let_go(file);
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![]);
}

/// Who has a file open that is removed goes on writing to it; a crash cuts that off, again and again.
#[test]
fn a_removed_file_that_a_snapshot_sees_is_no_damage_when_a_crash_cuts_off_its_writer() {
    for (seed, log_lines) in (0..40).zip([4u8, 9, 63].into_iter().cycle()) {
        let mut rng = Rng::new(seed);
        let memory = Memory::new(8 << 20);
        let host = TestHost::new(seed);
        let format = FormatOptions { log_lines, ..FormatOptions::default() };
        Pool::format(memory.clone(), host.clone(), &format).unwrap();
        let pool = TestPool::open(memory.clone(), host, &options()).unwrap();
        let new = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
        let ino = pool.create(pool.root(), b"file", &new).unwrap().ino;
        pool.write(ino, 0, &[1; 9000]).unwrap();
        pool.create_snapshot(b"a").unwrap();
        pool.acquire(ino).unwrap();
        pool.unlink(pool.root(), b"file").unwrap();
        pool.create(pool.root(), b"other", &new).unwrap();
        pool.unlink(pool.root(), b"other").unwrap();
        // The death is settled.
        pool.maintain().unwrap();
        for round in 0..1 + rng.below(6) {
            pool.write(ino, rng.below(40_000), &vec![round as u8; 1 + rng.below(9000) as usize])
                .unwrap();
        }
        let (name, when) = (&b"user.x"[..], XattrWhen::Always);
        let len = 1 + rng.below(if log_lines > 4 { 200 } else { 80 }) as usize;
        pool.setxattr(ino, &XattrChange { name, value: Some(&vec![5; len]), when }).unwrap();
        let mut image = memory.image();
        drop(pool);
        // Some lines of its last transaction never became durable.
        let survey = lode_testkit::format::Survey::of(&image);
        let log = survey.logs.iter().find(|log| log.dead && log.ino == ino).unwrap();
        let lines: Vec<usize> =
            log.runs.iter().flat_map(|run| (0..run.valid).map(|line| run.at(line))).collect();
        let last = image[lines[lines.len() - 1]..][4..16].to_vec();
        let last: Vec<usize> =
            lines.into_iter().filter(|at| image[at + 4..at + 16] == last).collect();
        for _ in 0..last.len().div_ceil(2) {
            let at = last[rng.below(last.len() as u64) as usize];
            image[at..at + 64].fill(0);
        }
        let mut memory = Memory::from_image(&image);
        for opened in 0..3 {
            let pool = TestPool::open(memory.clone(), TestHost::new(9), &options());
            let pool =
                pool.unwrap_or_else(|error| panic!("seed {seed}, opening {opened}: {error}"));
            let root = pool.snapshot_root(b"a").unwrap();
            let then = pool.lookup(root, b"file").unwrap().ino;
            let mut bytes = [0; 9000];
            assert_eq!(pool.read(then, 0, &mut bytes), Ok(9000));
            assert_eq!(bytes, [1; 9000], "seed {seed}");
            assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![], "seed {seed}");
            // What is free is used again.
            let ino =
                pool.create(pool.root(), format!("new{opened}").as_bytes(), &new).unwrap().ino;
            pool.write(ino, 0, &[3; 40_000]).unwrap();
            memory = memory.copy();
        }
    }
}

/// A lower level moves nothing: all snapshots have what they had, and the pool goes on being used.
#[test]
fn a_pool_with_snapshots_gets_a_lower_level() {
    let mut seen = 0;
    for seed in 0..90 {
        let shape = Shape { remount_every: 40, maintain_every: 25, ..Shape::default() };
        let mut generator = Generator::new(seed, shape);
        let mut kept = Kept::new(seed, 8 << 20);
        let used = |kept: &mut Kept, steps: std::ops::Range<usize>, generator: &mut Generator| {
            for step in steps {
                let op = generator.op();
                kept.step(step, &op).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
                if step % 30 == 29 {
                    kept.make().unwrap();
                }
            }
        };
        used(&mut kept, 0..100, &mut generator);
        let level = kept.system.pool().info().unwrap().protection;
        for lower in [Protection::Metadata, Protection::None] {
            if lower >= level {
                continue;
            }
            let step = kept.made as usize * 100;
            kept.step(step, &if seed % 2 == 0 { Op::Remount } else { Op::Crash }).unwrap();
            kept.system.pool().close().unwrap();
            let (memory, host) = (kept.system.memory().clone(), TestHost::new(seed));
            let changed = Pool::protect(memory, host, lower, 0, &mut |_, _| ());
            assert_eq!(changed, Ok(true), "seed {seed}");
            kept.system.remount(true).unwrap();
            let found = kept.system.pool().info().unwrap().protection;
            assert_eq!(found, lower, "seed {seed}");
            for (name, wanted) in &kept.snapshots {
                let same = same_in(kept.system.pool(), name, wanted);
                assert_eq!(same, Ok(()), "seed {seed}, {name}");
                seen += 1;
            }
            kept.compare().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            used(&mut kept, step..step + 50, &mut generator);
            kept.compare().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        }
        while !kept.snapshots.is_empty() {
            kept.delete().unwrap();
        }
        kept.compare().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
    assert!(seen > 100, "{seen} snapshots looked at");
}

/// While two threads write, a snapshot has all that had returned when it was begun, nothing that began when it had
/// returned, and stays what it is.
#[test]
fn a_snapshot_among_writers_is_a_moment() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
    let memory = Memory::new(256 << 20);
    let host = TestHost::with_cpus(1, 4);
    let format = FormatOptions { lanes: 4, ..FormatOptions::default() };
    Pool::format(memory.clone(), host.clone(), &format).unwrap();
    let pool = TestPool::open(memory, host, &options()).unwrap();
    let new = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
    let files = [b"one", b"two"].map(|name| pool.create(pool.root(), name, &new).unwrap().ino);
    files.iter().for_each(|file| pool.write(*file, 0, &[0; 8192]).unwrap());
    let (begun, returned) = ([const { AtomicU64::new(0) }; 2], [const { AtomicU64::new(0) }; 2]);
    let over = AtomicBool::new(false);
    let value = |root: u64, name: &[u8]| {
        let ino = pool.lookup(root, name).unwrap().ino;
        let mut bytes = vec![0; 16 << 10];
        let len = pool.read(ino, 0, &mut bytes).unwrap();
        bytes.truncate(len);
        (u64::from_le_bytes(*bytes.first_chunk().unwrap()), bytes)
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (pool, over, begun, returned) = (&pool, &over, &begun, &returned);
            let file = files[thread];
            scope.spawn(move || {
                let mut number = 0u64;
                while !over.load(SeqCst) {
                    number += 1;
                    // (What many snapshots see of a log stays.)
                    std::thread::sleep(std::time::Duration::from_micros(20));
                    begun[thread].store(number, SeqCst);
                    pool.write(file, 0, &number.to_le_bytes()).unwrap();
                    returned[thread].store(number, SeqCst);
                    match number % 4 {
                        0 => pool.write(file, 4096, &vec![number as u8; 4096]).unwrap(),
                        1 => pool.write(file, 5000, &[number as u8; 100]).unwrap(),
                        2 => pool.append(file, &[number as u8; 50]).map(|_| ()).unwrap(),
                        _ => {
                            let size = Some(8192);
                            pool.setattr(file, &SetAttr { size, ..SetAttr::default() }).unwrap();
                        }
                    }
                }
            });
        }
        let mut seen: Vec<(Vec<u8>, [Vec<u8>; 2])> = Vec::new();
        for round in 0..600u32 {
            std::thread::sleep(std::time::Duration::from_micros(100));
            let name = round.to_string().into_bytes();
            let before = returned.each_ref().map(|it| it.load(SeqCst));
            pool.create_snapshot(&name).unwrap();
            let after = begun.each_ref().map(|it| it.load(SeqCst));
            let root = pool.snapshot_root(&name).unwrap();
            let found = [value(root, b"one"), value(root, b"two")];
            for thread in 0..2 {
                let number = found[thread].0;
                assert!(number >= before[thread], "what had returned is not there");
                assert!(number <= after[thread], "what had not begun is there");
            }
            seen.push((name, found.map(|(_, bytes)| bytes)));
            if round % 3 == 2 {
                let (name, _) = seen.remove(seen.len() / 2);
                pool.delete_snapshot(&name).unwrap();
                pool.maintain().unwrap();
            }
        }
        over.store(true, SeqCst);
        for (name, bytes) in &seen {
            let root = pool.snapshot_root(name).unwrap();
            assert_eq!(&[value(root, b"one").1, value(root, b"two").1], bytes);
        }
    });
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![]);
}

#[test]
fn damage_in_a_pool_with_snapshots_is_told_and_can_be_mended() {
    let (mut damaged, mut salvaged) = (0, 0);
    for seed in 0..300u64 {
        let shape = Shape { remount_every: 40, maintain_every: 25, ..Shape::default() };
        let mut generator = Generator::new(seed % 40, shape);
        let mut kept = Kept::new(seed % 40, 8 << 20);
        for step in 0..60 {
            let op = generator.op();
            kept.step(step, &op).unwrap();
            if step % 12 == 11 {
                kept.make().unwrap();
            }
        }
        if seed % 2 == 0 {
            kept.system.pool().close().unwrap();
        }
        let mut image = kept.system.memory().image();
        let mut rng = Rng::new(seed);
        // Most of the pool is empty: what is damaged is among what is not.
        let lines: Vec<usize> = (0..image.len() / 64)
            .filter(|at| image[at * 64..][..64].iter().any(|b| *b != 0))
            .collect();
        for _ in 0..1 + rng.below(3) {
            let at = lines[rng.below(lines.len() as u64) as usize] * 64;
            let len = 64 * (1 + rng.below(4) as usize);
            let fill = if rng.below(2) == 0 { 0 } else { 0xA5 };
            let end = (at + len).min(image.len());
            image[at..end].fill(fill);
        }
        let memory = Memory::from_image(&image);
        match TestPool::open(memory.clone(), TestHost::new(3), &options()) {
            Ok(pool) => {
                for info in pool.snapshots().unwrap_or_default() {
                    // Whatever it finds: no panic, and an end.
                    let root = pool.snapshot_root(&info.name).unwrap();
                    let _ = snapshot_from(&pool, root, Times::ALL, None);
                }
            }
            Err(Error::Corrupt(_)) => {
                damaged += 1;
                if Pool::salvage(memory.clone(), TestHost::new(3), &mut |_| ()).is_err() {
                    continue;
                }
                salvaged += 1;
                let pool = TestPool::open(memory, TestHost::new(4), &options()).unwrap();
                let report = pool.check(&mut |_, _| ()).unwrap();
                // (What snapshots have lost stays lost, and is told as long as they are there.)
                let of_now = |one: &&Corruption| !TestPool::is_in_snapshot(one.ino);
                assert_eq!(report.damage.iter().find(of_now), None, "seed {seed}");
                for info in pool.snapshots().unwrap() {
                    let root = pool.snapshot_root(&info.name).unwrap();
                    let _ = snapshot_from(&pool, root, Times::ALL, None);
                    pool.delete_snapshot(&info.name).unwrap();
                }
                pool.maintain().unwrap();
                assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, vec![], "seed {seed}");
            }
            Err(_) => {}
        }
    }
    println!("{damaged} of 300 pools damaged, {salvaged} of them salvaged");
    assert!(damaged > 30 && salvaged * 10 > damaged * 8);
}
