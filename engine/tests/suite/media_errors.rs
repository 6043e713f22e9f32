//! Memory that can't be loaded: at level `metadata` no metadata is lost with it, wherever and whenever it goes bad.

use std::cell::RefCell;
use std::collections::BTreeMap;

use lode_engine::{
    AccessTimes, Error, ExtentDump, Finding, FormatOptions, Ino, NewInode, OpenOptions, Outcome,
    Pool, Protection, SetAttr, What, mode,
};
use lode_testkit::format::{PAGE, Run, SLOT, Survey};
use lode_testkit::fs::Fs;
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::Op;
use lode_testkit::rng::Rng;
use lode_testkit::run::{Rules, run};
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot};
use lode_testkit::system::{PoolSystem, System};
use lode_testkit::{Healing, Memory, Poisoned, TestHost};

type Bad = Poisoned<Memory>;
type BadPool = Pool<Bad, TestHost>;

const BYTES: u64 = 8 << 20;
const DEAD_ZONE: u64 = 60_000;

fn format(log_lines: u8) -> FormatOptions {
    let (protection, dead_zone) = (Protection::Metadata, DEAD_ZONE);
    FormatOptions { lanes: 2, log_lines, protection, dead_zone, ..FormatOptions::default() }
}

/// Nothing stays in memory that is not in use, so that all is loaded again.
fn options(read_only: bool) -> OpenOptions {
    let (atime, index_memory) = (AccessTimes::Never, Some(0));
    OpenOptions { read_only, atime, index_memory, ..OpenOptions::default() }
}

/// Operations without values and targets that lie in pages of their own, which are data.
fn operations(seed: u64) -> Vec<Op> {
    let is_long = |op: &Op| match op {
        Op::Symlink { target, .. } => target.len() > 100,
        Op::CreateWith { .. } | Op::Tmpfile { xattr: Some(_), .. } => true,
        Op::SetAttrWith { .. } | Op::SetXattr { value: Some(_), .. } => true,
        _ => false,
    };
    let shape = Shape { remount_every: 90, maintain_every: 60, ..Shape::default() };
    Generator::new(seed, shape).take(260).into_iter().filter(|op| !is_long(op)).collect()
}

/// A pool after random operations, closed or not, and what is seen of it but for the contents of files.
fn made(seed: u64, log_lines: u8, is_closed: bool) -> (Memory, Snapshot) {
    let (host, format) = (TestHost::new(seed), format(log_lines));
    let mut system = PoolSystem::new(BYTES, host, &format, options(false)).unwrap();
    run(&mut system, &operations(seed), &Rules::default()).unwrap();
    let wanted = names(&snapshot(system.pool(), Times::ALL, None).unwrap());
    if is_closed {
        system.pool().close().unwrap();
    }
    (system.memory().copy(), wanted)
}

fn names(seen: &Snapshot) -> Snapshot {
    let mut seen = seen.clone();
    seen.0.values_mut().for_each(|one| one.pages = BTreeMap::new());
    seen
}

fn open(memory: &Bad, read_only: bool) -> BadPool {
    match Pool::open(memory.clone(), TestHost::new(9), &options(read_only)) {
        Ok(pool) => pool,
        Err(error) => panic!("open: {error:?}"),
    }
}

/// All metadata is seen as it was.
fn same(wanted: &Snapshot, pool: &BadPool, case: &str) {
    let found = snapshot(pool, Times::ALL, None).unwrap_or_else(|what| panic!("{case}: {what}"));
    assert_eq!(difference(wanted, &names(&found)), None, "{case}");
}

/// Lines of metadata, each of which has a twin: the lane table, inode tables, log pages of the living.
fn metadata(image: &[u8]) -> Vec<u64> {
    let survey = Survey::of(image);
    let superblock = &survey.superblock;
    let table = superblock.lane_table..superblock.lane_table + superblock.lanes * 256;
    let mut lines: Vec<u64> = table.step_by(64).map(|at| at as u64).collect();
    lines.extend(survey.pieces.iter().map(|at| *at as u64));
    for log in survey.logs.iter().filter(|log| !log.dead) {
        lines.extend((0..8).map(|line| log.ino * SLOT as u64 + line * 64));
        let pages = log.runs.iter().filter(|run| run.anchor % PAGE == 0);
        let lines_of =
            |anchor: usize| (0..=u64::from(image[91])).map(move |line| anchor as u64 + line * 64);
        lines.extend(pages.flat_map(|run| lines_of(run.anchor)));
    }
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// The twin of metadata at an offset.
fn twin(image: &[u8], at: u64) -> u64 {
    at ^ ((PAGE as u64) << image[92])
}

/// Bad memory of 64 and 512 bytes and of whole pages, in one copy of metadata.
fn poison(memory: &Bad, image: &[u8], rng: &mut Rng) -> String {
    let lines = metadata(image);
    let mut told = String::new();
    for _ in 0..1 + rng.below(3) {
        let unit = rng.pick(&[64, 512, PAGE as u64]);
        let line = rng.pick(&lines);
        let copy = if rng.below(2) == 0 { line } else { twin(image, line) };
        let at = copy / unit * unit;
        // (Never both copies of something.)
        let other = twin(image, at)..twin(image, at) + unit;
        if memory.bad().iter().any(|bad| other.contains(bad)) {
            continue;
        }
        memory.poison(at, unit);
        told += &format!(" {unit} bytes at {at:#x}");
    }
    told
}

fn each(healing: Healing, cases: u64, mut try_one: impl FnMut(&Bad, &Snapshot, &mut Rng, &str)) {
    for seed in 0..cases {
        let mut rng = Rng::new(seed + 9000);
        let is_closed = rng.below(2) == 0;
        let (memory, wanted) = made(seed, rng.pick(&[9, 63]), is_closed);
        for round in 0..4 {
            let memory = Poisoned::new(memory.copy(), healing);
            let case = format!("seed {seed}, round {round}, closed {is_closed}, {healing:?}");
            try_one(&memory, &wanted, &mut rng, &case);
            assert_eq!(memory.machine_checks(), 0, "{case}");
        }
    }
}

#[test]
fn a_bad_copy_of_metadata_is_made_good_by_who_opens_the_pool_and_looks_at_it() {
    each(Healing::ByLines, 40, |memory, wanted, rng, case| {
        let what = poison(memory, &memory.inner().image(), rng);
        let case = format!("{case},{what}");
        same(wanted, &open(memory, true), &case);
        let pool = open(memory, false);
        same(wanted, &pool, &case);
        let report = pool.check(&mut |_, _| ()).unwrap();
        assert_eq!((report.damage, report.differing), (vec![], vec![]), "{case}");
        pool.close().unwrap();
        // The copies that were stored again are right.
        let (apart, image) = (PAGE << memory.inner().get(92, 1)[0], memory.inner().image());
        let logs = Survey::of(&image).logs.into_iter().filter(|log| !log.dead);
        let lines =
            |run: &Run| (0..run.valid).map(|line| run.at(line)).chain([run.anchor]).collect();
        let bad = memory.bad();
        for at in logs.flat_map(|log| log.runs).flat_map(|run| -> Vec<usize> { lines(&run) }) {
            let other = at ^ apart;
            assert_eq!(image[at..at + 64], image[other..other + 64], "{case}: {at:#x}");
            let is_bad = bad.iter().any(|bad| [at, other].contains(&(*bad as usize)));
            assert!(!is_bad, "{case}: {at:#x}");
        }
    });
}

#[test]
fn memory_that_stays_bad_costs_no_metadata_while_its_twin_is_good() {
    each(Healing::Never, 40, |memory, wanted, rng, case| {
        let what = poison(memory, &memory.inner().image(), rng);
        let case = format!("{case},{what}");
        same(wanted, &open(memory, true), &case);
        let pool = open(memory, false);
        same(wanted, &pool, &case);
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, [], "{case}");
        pool.close().unwrap();
        same(wanted, &open(memory, false), &case);
    });
}

/// A pool whose metadata goes bad while it is used.
struct Failing {
    memory: Bad,
    host: TestHost,
    pool: BadPool,
    rng: RefCell<Rng>,
    told: RefCell<String>,
}

impl Failing {
    fn new(seed: u64, healing: Healing) -> Self {
        let (memory, host) = (Poisoned::new(Memory::new(BYTES), healing), TestHost::new(seed));
        host.set_now(0);
        Pool::format(memory.clone(), host.clone(), &format(9)).unwrap();
        let pool = Pool::open(memory.clone(), host.clone(), &options(false)).unwrap();
        let rng = RefCell::new(Rng::new(seed));
        Self { memory, host, pool, rng, told: RefCell::default() }
    }
}

impl System for Failing {
    fn fs(&self) -> &dyn Fs {
        &self.pool
    }

    /// Between any two operations.
    fn set_now(&self, now_ns: i64) {
        self.host.set_now(now_ns);
        let mut rng = self.rng.borrow_mut();
        if rng.below(12) == 0 {
            let image = self.memory.inner().image();
            *self.told.borrow_mut() += &poison(&self.memory, &image, &mut rng);
        }
    }

    fn remount(&mut self, clean: bool) -> Result<(), String> {
        if clean {
            self.pool.close().map_err(|error| format!("close: {error:?}"))?;
        }
        self.pool = Pool::open(self.memory.clone(), self.host.clone(), &options(false))
            .map_err(|error| format!("open: {error:?}"))?;
        let opening = self.pool.opening();
        if opening.is_damaged() { Err(format!("opened as {opening:?}")) } else { Ok(()) }
    }

    fn check(&self) -> Result<(), String> {
        let report = self.pool.check(&mut |_, _| ()).map_err(|error| format!("{error:?}"))?;
        report.damage.first().map_or(Ok(()), |damage| Err(format!("check: {damage}")))
    }
}

#[test]
fn metadata_that_goes_bad_while_a_pool_is_used_is_not_missed() {
    for seed in 0..60 {
        let mut system = Failing::new(seed, Healing::ByLines);
        let ran = run(&mut system, &operations(seed), &Rules::default());
        let told = system.told.borrow();
        assert!(ran.is_ok(), "seed {seed},{told}: {}", ran.err().unwrap());
        assert_eq!(system.memory.machine_checks(), 0, "seed {seed},{told}");
    }
}

/// All that a scrub finds, in small steps.
fn scrubbed(pool: &BadPool) -> Vec<Finding> {
    let mut scrub = pool.begin_scrub().unwrap();
    let mut found = Vec::new();
    while !scrub.is_over() {
        let before = scrub.done();
        pool.scrub(&mut scrub, 10_000).unwrap();
        assert!(scrub.is_over() || scrub.done() > before && scrub.done() <= scrub.all());
        found.extend(scrub.take_findings());
    }
    found
}

#[test]
fn a_scrub_makes_every_bad_copy_of_metadata_good() {
    each(Healing::ByLines, 30, |memory, wanted, rng, case| {
        let pool = open(memory, false);
        let what = poison(memory, &memory.inner().image(), rng);
        let case = format!("{case},{what}");
        let found = scrubbed(&pool);
        let repaired =
            |one: &Finding| (one.what, one.outcome) == (What::Metadata, Outcome::Repaired);
        assert!(found.iter().all(repaired), "{case}: {found:?}");
        // What is not in use any more is nobody's.
        let image = memory.inner().image();
        let in_use: Vec<u64> = in_use(&image);
        let bad = memory.bad();
        let left: Vec<u64> = bad.into_iter().filter(|at| in_use.contains(at)).collect();
        assert_eq!(left, [0; 0], "{case}");
        assert_eq!(scrubbed(&pool), [], "{case}");
        same(wanted, &pool, &case);
    });
}

/// Lines of anchors and records of the living, and of what is not used yet in their logs, both copies.
fn in_use(image: &[u8]) -> Vec<u64> {
    let logs = Survey::of(image).logs.into_iter().filter(|log| !log.dead);
    let lines = |run: &Run| (0..run.valid).map(|line| run.at(line)).chain([run.anchor]).collect();
    let lines = logs.flat_map(|log| log.runs).flat_map(|run| -> Vec<usize> { lines(&run) });
    lines.flat_map(|at| [at as u64, twin(image, at as u64)]).collect()
}

#[test]
fn a_scrub_that_may_not_write_or_can_not_repair_says_so() {
    let (memory, _) = made(3, 9, true);
    let image = memory.image();
    let survey = Survey::of(&image);
    let root = u64::from_le_bytes(image[96..104].try_into().unwrap());
    let living = survey.logs.iter().find(|log| !log.dead && log.ino != root).unwrap();
    let at = living.ino * SLOT as u64;
    for (healing, read_only) in [(Healing::Never, false), (Healing::ByLines, true)] {
        let memory = Poisoned::new(memory.copy(), healing);
        memory.poison(at, 64);
        let pool = open(&memory, read_only);
        let found = scrubbed(&pool);
        let left =
            |one: &Finding| (one.what, one.outcome, one.at) == (What::Metadata, Outcome::Left, at);
        assert!(found.len() == 1 && found.iter().all(left), "{found:?}");
        // Without the other copy it is lost.
        memory.poison(twin(&image, at), 64);
        drop(pool);
        let pool = open(&memory, true);
        let found = scrubbed(&pool);
        assert!(found.iter().any(|one| one.outcome == Outcome::Lost), "{found:?}");
        assert_eq!(memory.machine_checks(), 0);
    }
}

#[test]
fn bytes_that_can_not_be_read_are_found_by_file_and_offset_and_nothing_else_is_lost() {
    let memory = Poisoned::new(Memory::new(BYTES), Healing::Never);
    Pool::format(memory.clone(), TestHost::new(1), &format(63)).unwrap();
    let pool = open(&memory, false);
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    let ino = pool.create(pool.root(), b"file", &new).unwrap().ino;
    let bytes: Vec<u8> = (0..50_000u32).map(|at| (at / 7) as u8).collect();
    pool.write(ino, 0, &bytes).unwrap();
    let extents = pool.dump_inode(ino).unwrap().extents;
    let place = |offset: u64| {
        let is_there =
            |one: &&ExtentDump| (one.file_offset..one.file_offset + one.bytes).contains(&offset);
        let one = extents.iter().find(is_there).unwrap();
        one.pool_offset + offset - one.file_offset
    };
    memory.poison(place(8192), 512);
    memory.poison(place(20_480 + 64), 64);
    // In the line of the last byte: what is behind it is nothing.
    memory.poison(place(49_999), 1);
    let found = scrubbed(&pool);
    let lost: Vec<(Ino, u64, u64)> =
        found.iter().map(|one| (one.ino, one.offset, one.bytes)).collect();
    let end = 49_999 / 64 * 64;
    assert_eq!(lost, [(ino, 8192, 512), (ino, 20_544, 64), (ino, end, 50_000 - end)]);
    assert!(found.iter().all(|one| (one.what, one.outcome) == (What::Data, Outcome::Lost)));
    for (offset, len) in [(0, 8192), (8704, 11_840), (20_608, 1000)] {
        let mut read = vec![0; len];
        assert_eq!(pool.read(ino, offset, &mut read), Ok(len));
        assert_eq!(read, bytes[offset as usize..offset as usize + len]);
    }
    assert!(matches!(pool.read(ino, 8000, &mut [0; 200]), Err(Error::Media { .. })));
    // What is replaced as a whole is good again.
    pool.write(ino, 8192, &bytes[8192..12_288]).unwrap();
    pool.setattr(ino, &SetAttr { size: Some(20_480), ..SetAttr::default() }).unwrap();
    assert_eq!(scrubbed(&pool), []);
    assert_eq!(pool.unlink(pool.root(), b"file"), Ok(()));
    assert_eq!(memory.machine_checks(), 0);
}

/// What a file's pool says of the overwrite that waits: where the new bytes are.
fn waits_at(pool: &BadPool, ino: Ino) -> u64 {
    let records = pool.dump_inode(ino).unwrap().records;
    let record = records.iter().rfind(|record| record.kind == "JOURNAL").unwrap();
    record.fields.iter().find(|(name, _)| *name == "journal_at").unwrap().1
}

/// Such a file could not be opened at all.
#[test]
fn an_overwrite_that_can_t_be_loaded_costs_its_own_bytes_alone() {
    for (healing, level) in
        [(Healing::ByLines, Protection::None), (Healing::Never, Protection::Metadata)]
    {
        let made = Memory::new(BYTES);
        let format = FormatOptions { protection: level, ..format(63) };
        let format = FormatOptions {
            dead_zone: if level == Protection::None { 0 } else { DEAD_ZONE },
            ..format
        };
        Pool::format(made.clone(), TestHost::new(1), &format).unwrap();
        let memory = Poisoned::new(made, healing);
        let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
        let pool = open(&memory, false);
        let ino = pool.create(pool.root(), b"f", &new).unwrap().ino;
        let mut bytes: Vec<u8> = (0..9000u32).map(|at| (at % 251) as u8).collect();
        pool.write(ino, 0, &bytes).unwrap();
        pool.write(ino, 1000, &[0xee; 300]).unwrap();
        bytes[1000..1300].fill(0xee);
        let at = waits_at(&pool, ino);
        drop(pool);
        // Bytes 64 to 127 of the 300: in two lines of their home.
        memory.poison(at + 64, 1);
        let lost = |offset: usize| offset < 1128 && offset + 64 > 1064;
        let look = |pool: &BadPool, is_lost: &dyn Fn(usize) -> bool, case: &str| {
            let mut into = [0; 64];
            for (offset, wanted) in (0..).step_by(64).zip(bytes.chunks(64)) {
                match pool.read(ino, offset as u64, &mut into) {
                    Ok(read) => {
                        assert!(!is_lost(offset), "{case}: {offset}");
                        assert_eq!(into[..read], *wanted, "{case}: {offset}");
                    }
                    Err(error) => assert!(is_lost(offset), "{case}: {offset}: {error:?}"),
                }
            }
        };
        look(&open(&memory, true), &lost, "read-only");
        let pool = open(&memory, false);
        look(&pool, &lost, "open");
        // Another overwrite retires the record of the first, and what was lost stays so.
        pool.write(ino, 8000, &bytes[8000..8100]).unwrap();
        drop(pool);
        memory.mend(at + 64, 1);
        let pool = open(&memory, false);
        look(&pool, &lost, "after a crash");
        pool.close().unwrap();
        drop(pool);
        let pool = open(&memory, false);
        look(&pool, &lost, "closed");
        // What is written over it is good.
        pool.write(ino, 960, &bytes[960..1216]).unwrap();
        look(&pool, &|_| false, "written");
        pool.close().unwrap();
        look(&open(&memory, true), &|_| false, "written and closed");
    }
}
