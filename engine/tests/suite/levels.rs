//! The level of a pool can be changed, and nothing that is seen of it changes with that: neither contents nor times.
//! At its new level it is as good as a pool that was made at that level.

use lode_engine::{
    AccessTimes, Error, FormatOptions, NewInode, OpenOptions, Pool, Protection, Unusable, mode,
};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::rng::Rng;
use lode_testkit::run::{Rules, run};
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot};
use lode_testkit::system::PoolSystem;
use lode_testkit::{Memory, TestHost};

type TestPool = Pool<Memory, TestHost>;

const PAGE: u64 = 4096;

fn options() -> OpenOptions {
    OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() }
}

/// A pool that was in use, and what is seen of it.
fn used(seed: u64, bytes: u64, log_lines: u8) -> (Memory, Snapshot) {
    let format = FormatOptions { lanes: 2, log_lines, ..FormatOptions::default() };
    let mut system = PoolSystem::new(bytes, TestHost::new(seed), &format, options()).unwrap();
    let shape = Shape { remount_every: 90, maintain_every: 60, ..Shape::default() };
    let operations = Generator::new(seed, shape).take(260);
    run(&mut system, &operations, &Rules::default()).unwrap();
    let seen = snapshot(system.pool(), Times::ALL, None).unwrap();
    if seed.is_multiple_of(2) {
        system.pool().close().unwrap();
    }
    (system.memory().copy(), seen)
}

fn protect(memory: &Memory, to: Protection, dead_zone: u64) -> Result<bool, Error> {
    Pool::protect(memory.clone(), TestHost::new(3), to, dead_zone, &mut |_, _| ())
}

/// The pool holds what it held, and all of its pages are somebody's or free.
fn same(wanted: &Snapshot, memory: &Memory, level: Protection, case: &str) {
    let pool = TestPool::open(memory.clone(), TestHost::new(9), &options()).unwrap();
    assert_eq!(pool.info().unwrap().protection, level, "{case}");
    let found = snapshot(&pool, Times::ALL, Some(wanted)).unwrap();
    assert_eq!(difference(wanted, &found), None, "{case}");
    let report = pool.check(&mut |_, _| ()).unwrap();
    assert_eq!((report.damage, report.differing, report.mended), (vec![], vec![], 0), "{case}");
    pool.close().unwrap();
}

#[test]
fn a_pool_gets_second_copies_and_loses_them_and_nothing_else_changes() {
    for seed in 0..120 {
        let (mib, log_lines) = ([2, 3, 8][seed as usize % 3], [9, 63][seed as usize / 3 % 2]);
        let (memory, wanted) = used(seed, mib << 20, log_lines);
        let dead_zone = [0, 60_000, 300_000][seed as usize / 6 % 3];
        let case = format!("seed {seed}: {mib} MiB, dead zone {dead_zone}");
        assert_eq!(protect(&memory, Protection::Metadata, dead_zone), Ok(true), "{case}");
        same(&wanted, &memory, Protection::Metadata, &case);
        assert!(!protect(&memory, Protection::Metadata, dead_zone).unwrap(), "{case}");
        one_copy_is_enough(&wanted, &memory, &mut Rng::new(seed), &case);
        assert!(protect(&memory, Protection::None, 0).unwrap(), "{case}");
        same(&wanted, &memory, Protection::None, &case);
    }
}

#[test]
fn a_pool_with_second_copies_keeps_its_dead_zone_when_it_gets_checksums() {
    use Protection::{Full, Metadata, None as Nothing};
    let zone = |memory: &Memory| {
        TestPool::open(memory.clone(), TestHost::new(9), &options())
            .unwrap()
            .info()
            .unwrap()
            .dead_zone
    };
    let to_full = |memory: &Memory, dead_zone: Option<u64>| {
        Pool::protect(memory.clone(), TestHost::new(3), Full, dead_zone, &mut |_, _| ())
    };
    for (seed, asked) in [(0, 3 << 20), (1, 5 << 20), (2, 100_000)] {
        let (memory, wanted) = used(seed, 40 << 20, 63);
        assert_eq!(protect(&memory, Metadata, asked), Ok(true));
        let had = zone(&memory);
        assert!(had >= asked);
        // What the copies that are there can't have is refused, and nothing has changed.
        assert_eq!(to_full(&memory, Some(had + 1)), Err(Error::Invalid));
        same(&wanted, &memory, Metadata, &format!("{asked}, refused"));
        let smaller = memory.copy();
        assert_eq!(to_full(&smaller, Some(50_000)), Ok(true));
        same(&wanted, &smaller, Full, &format!("{asked}, smaller"));
        assert!((50_000..had).contains(&zone(&smaller)), "{} of {had}", zone(&smaller));
        assert_eq!(to_full(&memory, None), Ok(true));
        same(&wanted, &memory, Full, &format!("{asked}, kept"));
        assert!(zone(&memory) >= had, "{} of {had}", zone(&memory));
    }
    // Who had none gets the usual one.
    let (memory, _) = used(3, 40 << 20, 63);
    assert_eq!(
        TestPool::open(memory.clone(), TestHost::new(9), &options())
            .unwrap()
            .info()
            .unwrap()
            .protection,
        Nothing
    );
    assert_eq!(to_full(&memory, None), Ok(true));
    assert!((1 << 20..4 << 20).contains(&zone(&memory)), "{}", zone(&memory));
}

#[test]
fn the_progress_of_a_change_never_goes_back_nor_says_that_all_is_done_before_it_is() {
    use Protection::{Full, Metadata, None as Nothing};
    // Many files, one that is most of what there is, and a snapshot that sees all of that.
    let (memory, _) = used(7, 40 << 20, 9);
    let pool = TestPool::open(memory.clone(), TestHost::new(9), &options()).unwrap();
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    let large = pool.create(pool.root(), b"large", &new).unwrap().ino;
    for offset in (0..12 << 20).step_by(1 << 20) {
        pool.write(large, offset, &vec![7; 1 << 20]).unwrap();
    }
    pool.create_snapshot(b"all").unwrap();
    pool.unlink(pool.root(), b"large").unwrap();
    pool.close().unwrap();
    drop(pool);
    for (from, to) in [
        (Nothing, Full),
        (Full, Metadata),
        (Metadata, Full),
        (Full, Nothing),
        (Nothing, Metadata),
        (Metadata, Nothing),
    ] {
        let mut told: Vec<(u64, u64)> = Vec::new();
        let changed = Pool::protect(memory.clone(), TestHost::new(3), to, 0, &mut |done, all| {
            told.push((done, all))
        });
        assert_eq!(changed, Ok(true), "{from:?} {to:?}");
        let all = told[0].1;
        assert!(told.iter().all(|one| one.1 == all), "{told:?}");
        assert!(told.is_sorted_by(|one, next| one.0 < next.0), "{from:?} {to:?}: {told:?}");
        let early = told.iter().rev().skip(1).all(|one| one.0 < all);
        assert!(early && told.last() == Some(&(all, all)), "{from:?} {to:?}: {told:?}");
        // The one large file does not make it stand.
        if to == Full {
            let widest = told.windows(2).map(|two| two[1].0 - two[0].0).max();
            assert!(widest < Some(all / 4), "{from:?} {to:?}: {told:?}");
        }
    }
}

/// A lane table that is lost in its first copy is there in its second one; and what is lost of it is made good
/// before there are no second copies any more.
fn one_copy_is_enough(wanted: &Snapshot, memory: &Memory, rng: &mut Rng, case: &str) {
    let scribbled = memory.copy();
    let len = 1 + rng.below(PAGE) as usize;
    scribbled.put(PAGE, &vec![0xaa; len]);
    assert!(protect(&scribbled, Protection::None, 0).unwrap(), "{case}");
    same(wanted, &scribbled, Protection::None, case);
}

#[test]
fn a_pool_gets_checksums_and_parity_and_loses_them_and_nothing_else_changes() {
    use Protection::{Full, Metadata, None};
    for seed in 0..80 {
        let (mib, log_lines) = ([3, 8, 20][seed as usize % 3], [9, 63][seed as usize / 3 % 2]);
        let (memory, wanted) = used(seed, mib << 20, log_lines);
        let dead_zone = [0, 60_000][seed as usize / 6 % 2];
        let case = format!("seed {seed}: {mib} MiB, dead zone {dead_zone}");
        if seed % 4 == 1 {
            assert_eq!(protect(&memory, Metadata, dead_zone), Ok(true), "{case}");
        }
        assert_eq!(protect(&memory, Full, dead_zone), Ok(true), "{case}");
        same(&wanted, &memory, Full, &case);
        assert_eq!(protect(&memory, Full, dead_zone), Ok(false), "{case}");
        all_is_summed(&wanted, &memory, &mut Rng::new(seed), &case);
        let to = if seed % 2 == 0 { Metadata } else { None };
        assert!(protect(&memory, to, 0).unwrap(), "{case}");
        same(&wanted, &memory, to, &case);
        assert_eq!(protect(&memory, Full, dead_zone), Ok(true), "{case}");
        same(&wanted, &memory, Full, &case);
    }
}

/// A scrub finds that all data has its checksums and its parity, and a byte of any page that changes is made good.
fn all_is_summed(wanted: &Snapshot, memory: &Memory, rng: &mut Rng, case: &str) {
    let memory = memory.copy();
    let open = || TestPool::open(memory.clone(), TestHost::new(9), &options()).unwrap();
    let scrubbed = |pool: &TestPool| {
        let mut scrub = pool.begin_scrub().unwrap();
        while !scrub.is_over() {
            pool.scrub(&mut scrub, 1 << 20).unwrap();
        }
        scrub.take_findings()
    };
    let pool = open();
    assert_eq!(scrubbed(&pool), [], "{case}");
    let mut pages = Vec::new();
    pool.for_each_inode(&mut |ino| {
        let extents = pool.dump_inode(ino).map(|dump| dump.extents).unwrap_or_default();
        pages.extend(extents.iter().flat_map(|one| {
            (0..one.bytes.div_ceil(PAGE)).map(move |page| one.pool_offset + page * PAGE)
        }));
        true
    })
    .unwrap();
    drop(pool);
    for page in &pages {
        let at = page + rng.below(PAGE);
        let byte = memory.get(at, 1)[0];
        memory.put(at, &[byte ^ 0x10]);
    }
    let pool = open();
    let found = snapshot(&pool, Times::ALL, Some(wanted)).unwrap();
    assert_eq!(difference(wanted, &found), None, "{case}");
    assert_eq!(pool.data_repairs().lost, 0, "{case}");
}

#[test]
fn a_pool_without_room_for_checksums_stays_as_it_was_and_one_with_room_gets_them() {
    let (mut raised, mut refused) = (0, 0);
    for seed in 0..24 {
        let left = 40 + 20 * seed;
        let (memory, _) = used(seed, 3 << 20, [9, 63][seed as usize % 2]);
        assert_eq!(protect(&memory, Protection::Metadata, 60_000), Ok(true));
        let wanted = fill(&memory, left);
        let case = format!("seed {seed}: {left} pages left");
        match protect(&memory, Protection::Full, 60_000) {
            Ok(_) => {
                same(&wanted, &memory, Protection::Full, &case);
                raised += 1;
            }
            Err(Error::NoSpace) => {
                same(&wanted, &memory, Protection::Metadata, &case);
                refused += 1;
            }
            Err(error) => panic!("{case}: {error:?}"),
        }
    }
    assert!(raised > 3 && refused > 3, "{raised} raised, {refused} refused");
}

/// Takes all space but `left` pages, in a file that takes it page by page.
fn fill(memory: &Memory, left: u64) -> Snapshot {
    let pool = TestPool::open(memory.clone(), TestHost::new(9), &options()).unwrap();
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    let file = pool.create(pool.root(), b"filler", &new).unwrap().ino;
    while pool.statfs().pages_free > left
        && pool.append(file, &[7; PAGE as usize]) == Ok(pool.getattr(file).unwrap().size - PAGE)
    {
    }
    let seen = snapshot(&pool, Times::ALL, None).unwrap();
    pool.close().unwrap();
    seen
}

#[test]
fn a_pool_without_room_for_copies_stays_as_it_was_and_one_with_room_gets_them() {
    let (mut raised, mut refused) = (0, 0);
    for seed in 0..24 {
        let left = 20 + 10 * seed;
        let (memory, _) = used(seed, 3 << 20, [9, 63][seed as usize % 2]);
        let wanted = fill(&memory, left);
        let case = format!("seed {seed}: {left} pages left");
        match protect(&memory, Protection::Metadata, 60_000) {
            Ok(_) => {
                same(&wanted, &memory, Protection::Metadata, &case);
                raised += 1;
            }
            Err(Error::NoSpace) => {
                same(&wanted, &memory, Protection::None, &case);
                refused += 1;
            }
            Err(error) => panic!("{case}: {error:?}"),
        }
    }
    assert!(raised > 3 && refused > 0, "{raised} raised, {refused} refused");
}

#[test]
fn a_pool_that_is_too_small_for_copies_so_far_apart_says_so() {
    let (memory, wanted) = used(2, 2 << 20, 63);
    let refused = protect(&memory, Protection::Metadata, 1 << 20);
    let least = 3 * (2 << 20);
    assert_eq!(refused, Err(Error::NotAPool(Unusable::TooSmall { least })));
    same(&wanted, &memory, Protection::None, "too small");
}

#[test]
fn a_damaged_pool_keeps_its_level() {
    let (memory, _) = used(4, 8 << 20, 63);
    memory.put(PAGE, &[0x55; 4096]);
    let refused = protect(&memory, Protection::Metadata, 0);
    assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
}
