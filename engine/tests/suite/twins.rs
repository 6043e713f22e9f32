//! At level `metadata` no scribble that is shorter than the dead zone loses anything but file data, wherever it
//! lies, and whenever it happens: in a pool that is closed, that crashed, or that is in use.

use std::collections::BTreeMap;

use lode_engine::{
    AccessTimes, FormatOptions, NewInode, OpenOptions, Outcome, Pool, Protection, mode,
};
use lode_testkit::format::{Survey, page_of, set_word, word};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::Op;
use lode_testkit::rng::Rng;
use lode_testkit::run::{Rules, run};
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot};
use lode_testkit::system::PoolSystem;
use lode_testkit::{Memory, TestHost};

type TestPool = Pool<Memory, TestHost>;

const BYTES: u64 = 8 << 20;
const PAGE: u64 = 4096;
const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };

fn format(dead_zone: u64, log_lines: u8) -> FormatOptions {
    let protection = Protection::Metadata;
    FormatOptions { lanes: 2, log_lines, protection, dead_zone, ..FormatOptions::default() }
}

/// Nothing stays in memory that is not in use, so that all is loaded again.
fn options(read_only: bool) -> OpenOptions {
    let (atime, index_memory) = (AccessTimes::Never, Some(0));
    OpenOptions { read_only, atime, index_memory, ..OpenOptions::default() }
}

/// Whether an operation keeps metadata where only file data is kept: values and targets of several pages.
fn is_long(op: &Op) -> bool {
    match op {
        Op::Symlink { target, .. } => target.len() > 100,
        Op::CreateWith { .. } | Op::Tmpfile { xattr: Some(_), .. } => true,
        Op::SetAttrWith { .. } | Op::SetXattr { value: Some(_), .. } => true,
        _ => false,
    }
}

fn operations(seed: u64) -> Vec<Op> {
    let shape = Shape { remount_every: 90, maintain_every: 60, ..Shape::default() };
    Generator::new(seed, shape).take(260).into_iter().filter(|op| !is_long(op)).collect()
}

/// What is seen, but for the contents of files.
fn metadata(pool: &TestPool) -> Result<Snapshot, String> {
    let mut seen = snapshot(pool, Times::ALL, None)?;
    seen.0.values_mut().for_each(|one| one.pages = BTreeMap::new());
    Ok(seen)
}

/// Bytes that a stray store may leave.
fn rubbish(rng: &mut Rng, memory: &Memory, len: usize) -> Vec<u8> {
    match rng.below(4) {
        0 => vec![0; len],
        1 => vec![0xff; len],
        // What was somewhere else in the pool.
        2 => memory.get(rng.below(BYTES - len as u64) & !63, len),
        _ => (0..len).map(|_| rng.below(256) as u8).collect(),
    }
}

/// A scribble of up to `most` bytes; half of them are short.
fn scribble(rng: &mut Rng, memory: &Memory, most: u64) -> String {
    let longest = if rng.below(2) == 0 { most } else { most.min(300) };
    let len = 1 + rng.below(longest);
    let at = rng.below(BYTES - len + 1);
    memory.put(at, &rubbish(rng, memory, len as usize));
    format!("{len} bytes at {at:#x}")
}

fn open(memory: &Memory, read_only: bool) -> TestPool {
    match Pool::open(memory.clone(), TestHost::new(9), &options(read_only)) {
        Ok(pool) => pool,
        Err(error) => panic!("open: {error:?}"),
    }
}

/// All that is seen is as it was, now and when the pool is opened again and nothing is scribbled any more.
fn same(wanted: &Snapshot, memory: &Memory, case: &str) {
    let reader = open(&memory.copy(), true);
    let found = metadata(&reader).unwrap_or_else(|what| panic!("{case}, read-only: {what}"));
    assert_eq!(difference(wanted, &found), None, "{case}, read-only");
    let pool = open(memory, false);
    let found = metadata(&pool).unwrap_or_else(|what| panic!("{case}: {what}"));
    assert_eq!(difference(wanted, &found), None, "{case}");
    let report = pool.check(&mut |_, _| ()).unwrap();
    assert_eq!((report.damage, report.differing), (vec![], vec![]), "{case}");
    pool.close().unwrap();
}

#[test]
fn a_short_scribble_loses_no_metadata_of_a_pool_at_rest() {
    for (seed, dead_zone, log_lines) in
        (0..60).flat_map(|seed| [(seed, 60_000, 9), (seed, 1 << 20, 63)])
    {
        let mut rng = Rng::new(seed + 7000);
        let format = format(dead_zone, log_lines);
        let mut system =
            PoolSystem::new(BYTES, TestHost::new(seed), &format, options(false)).unwrap();
        run(&mut system, &operations(seed), &Rules::default()).unwrap();
        let wanted = metadata(system.pool()).unwrap();
        let is_closed = rng.below(2) == 0;
        if is_closed {
            system.pool().close().unwrap();
        }
        let made = system.memory().copy();
        for _ in 0..4 {
            let memory = made.copy();
            let what = scribble(&mut rng, &memory, dead_zone);
            same(&wanted, &memory, &format!("seed {seed}, closed {is_closed}, {what}"));
        }
    }
}

#[test]
fn a_short_scribble_loses_no_metadata_of_a_pool_that_got_its_copies_later() {
    for (seed, dead_zone) in (0..40).flat_map(|seed| [(seed, 60_000), (seed, 1 << 20)]) {
        let mut rng = Rng::new(seed + 9000);
        let none = FormatOptions { protection: Protection::None, ..format(0, 9) };
        let mut system =
            PoolSystem::new(BYTES, TestHost::new(seed), &none, options(false)).unwrap();
        run(&mut system, &operations(seed), &Rules::default()).unwrap();
        let wanted = metadata(system.pool()).unwrap();
        let made = system.memory().copy();
        let host = TestHost::new(seed);
        let level = Protection::Metadata;
        assert_eq!(Pool::protect(made.clone(), host, level, dead_zone, &mut |_, _| ()), Ok(true));
        for _ in 0..4 {
            let memory = made.copy();
            let what = scribble(&mut rng, &memory, dead_zone);
            same(&wanted, &memory, &format!("seed {seed}, {what}"));
        }
    }
}

#[test]
fn a_short_scribble_loses_no_metadata_of_a_pool_in_use() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed + 8000);
        let dead_zone = 60_000;
        let mut system =
            PoolSystem::new(BYTES, TestHost::new(seed), &format(dead_zone, 9), options(false))
                .unwrap();
        run(&mut system, &operations(seed), &Rules::default()).unwrap();
        let wanted = metadata(system.pool()).unwrap();
        let (pool, memory) = (system.pool(), system.memory());
        for round in 0..6 {
            let what = scribble(&mut rng, memory, dead_zone);
            let case = format!("seed {seed}, round {round}, {what}");
            let found = metadata(pool).unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!(difference(&wanted, &found), None, "{case}");
            // What was looked at is whole again: both copies are. The rest is when it is looked at.
            assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, [], "{case}");
        }
    }
}

#[test]
fn metadata_is_whole_again_where_it_was_mended() {
    let memory = Memory::new(BYTES);
    Pool::format(memory.clone(), TestHost::new(1), &format(60_000, 63)).unwrap();
    let pool = open(&memory, false);
    let root = pool.root();
    for number in 0..200 {
        pool.create(root, format!("file {number}").as_bytes(), &FILE).unwrap();
    }
    pool.close().unwrap();
    drop(pool);
    let before = memory.image();
    // The first copy of all there is in the first half of a group.
    let rubbish = vec![0xA5; 60_000];
    memory.put(PAGE, &rubbish);
    let pool = open(&memory, false);
    metadata(&pool).unwrap();
    assert!(pool.mended() > 50, "{} lines were mended", pool.mended());
    drop(pool);
    // Without its twins, too, all is there.
    memory.put(PAGE + 16 * PAGE, &rubbish);
    assert_eq!(metadata(&open(&memory, false)).unwrap().0.len(), 201);
    assert_ne!(memory.image(), before);
}

#[test]
fn without_twins_the_same_scribbles_do_harm() {
    let format = FormatOptions { protection: Protection::None, ..format(0, 63) };
    let memory = Memory::new(BYTES);
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let pool = open(&memory, false);
    pool.create(pool.root(), b"file", &FILE).unwrap();
    pool.close().unwrap();
    drop(pool);
    memory.put(2 * PAGE, &[0xA5; 60_000]);
    let found = Pool::open(memory, TestHost::new(9), &options(false));
    assert!(found.is_err() || metadata(&found.unwrap()).is_err());
}

/// No seal is over the word: what a scribble left there was taken for the time once the line around it was mended.
#[test]
fn a_lost_access_time_comes_from_the_other_copy() {
    let memory = Memory::new(BYTES);
    Pool::format(memory.clone(), TestHost::new(1), &format(60_000, 63)).unwrap();
    let open = |now_ns| {
        let host = TestHost::new(9);
        host.set_now(now_ns);
        let options = OpenOptions { atime: AccessTimes::Always, ..OpenOptions::default() };
        Pool::open(memory.clone(), host, &options).unwrap()
    };
    let pool = open(1000);
    let ino = pool.create(pool.root(), b"file", &FILE).unwrap().ino;
    pool.write(ino, 0, b"text").unwrap();
    pool.close().unwrap();
    drop(pool);
    let pool = open(2000);
    pool.read(ino, 0, &mut [0; 4]).unwrap();
    pool.close().unwrap();
    drop(pool);
    // Rubbish that is an earlier time than the right one, and later than the record's.
    let mut rubbish = [0u8; 64];
    rubbish[48..56].copy_from_slice(&1500u64.to_le_bytes());
    memory.put(ino * 512, &rubbish);
    for _ in 0..2 {
        let pool = open(3000);
        assert_eq!(pool.getattr(ino).unwrap().atime_ns, 2000);
        pool.close().unwrap();
    }
}

/// Offsets of all link words, each with the words of a right check that say something else.
fn wrong_links(image: &[u8]) -> Vec<(usize, Vec<u64>)> {
    let survey = Survey::of(image);
    let pool = &survey.superblock;
    let lanes = (0..pool.lanes).map(|lane| pool.lane_table + lane * 256 + 128);
    let heads = survey.logs.iter().filter(|log| !log.dead).map(|log| log.ino as usize * 512 + 40);
    let alive = survey.logs.iter().filter(|log| !log.dead);
    let anchors = alive.flat_map(|log| &log.runs).map(|run| run.anchor + 40);
    let mut all: Vec<usize> = survey.pieces.iter().map(|piece| piece + 40).collect();
    all.extend(lanes.chain(heads).chain(anchors));
    all.sort_unstable();
    all.dedup();
    let words = |at: usize| {
        let (is, table) = (word(image, at), survey.pieces[0] as u64 / PAGE);
        let (page, tag, flag) = (page_of(is) as u64, (is >> 34) as u32, is >> 50 & 1 == 1);
        let none = pool.link(at, 0, 0, false);
        let others = [pool.link(at, page, tag ^ 9, flag), pool.link(at, table, tag ^ 5, !flag)];
        [none, others[0], others[1]]
            .into_iter()
            .filter(|other| *other != is && *other != 0)
            .collect()
    };
    all.into_iter().map(|at| (at, words(at))).collect()
}

fn scrubbed(pool: &TestPool) {
    let mut scrub = pool.begin_scrub().unwrap();
    while !scrub.is_over() {
        pool.scrub(&mut scrub, 1 << 20).unwrap();
    }
}

/// The check of a link word is short: of 4096 scribbles one leaves a word that looks right. It must not overrule its other copy.
#[test]
fn a_link_that_only_looks_right_loses_to_its_other_copy() {
    let mut tried = [0; 3];
    for seed in 0..6 {
        let mut rng = Rng::new(seed + 9500);
        let mut system =
            PoolSystem::new(BYTES, TestHost::new(seed), &format(60_000, 9), options(false))
                .unwrap();
        run(&mut system, &operations(seed), &Rules::default()).unwrap();
        let wanted = metadata(system.pool()).unwrap();
        if seed % 2 == 0 {
            system.pool().close().unwrap();
        }
        let image = system.memory().image();
        let apart = (PAGE as usize) << image[92];
        for (at, words) in wrong_links(&image) {
            let damaged = words.into_iter().flat_map(|wrong| [(at, wrong), (at ^ apart, wrong)]);
            for (place, wrong) in damaged.filter(|_| rng.below(4) == 0) {
                let is = word(&image, at);
                let case = format!("seed {seed}, {wrong:#x} at {place:#x}, not {is:#x}");
                let mut image = image.clone();
                set_word(&mut image, place, wrong);
                same(&wanted, &Memory::from_image(&image), &case);
                tried[usize::from(page_of(is) != 0)] += 1;
            }
        }
        // In use, too, where a scrub meets it, and a crash comes behind that.
        let pool = open(system.memory(), false);
        let image = system.memory().image();
        for (at, words) in wrong_links(&image) {
            let damaged = words.into_iter().flat_map(|wrong| [(at, wrong), (at ^ apart, wrong)]);
            for (place, wrong) in damaged.filter(|_| rng.below(8) == 0) {
                let is = word(&image, at);
                let case = format!("seed {seed}, in use, {wrong:#x} at {place:#x}, not {is:#x}");
                system.memory().put(place as u64, &wrong.to_le_bytes());
                scrubbed(&pool);
                let now = system.memory().image();
                assert_eq!([word(&now, at), word(&now, at ^ apart)], [is; 2], "{case}");
                same(&wanted, &system.memory().copy(), &case);
                tried[2] += 1;
            }
        }
    }
    assert!(tried.iter().all(|many| *many > 50), "{tried:?}");
}

/// Nothing depends on it as long as the other copies are there: a scrub finds it, before they are lost, too.
#[test]
fn a_watermark_that_is_damaged_in_one_copy_is_mended_by_a_scrub() {
    let memory = Memory::new(BYTES);
    Pool::format(memory.clone(), TestHost::new(5), &format(60_000, 9)).unwrap();
    // (What opening mends, a scrub does not see.)
    let pool = open(&memory, false);
    let image = memory.image();
    let (lane_table, apart) =
        (Survey::of(&image).superblock.lane_table, (PAGE as usize) << image[92]);
    assert_eq!(scrubbed_and_found(&pool), []);
    for line in [lane_table, lane_table ^ apart, lane_table + 256, (lane_table + 256) ^ apart] {
        let (first, whole) = (line.min(line ^ apart), memory.image());
        memory.put(line as u64 + 20, &[0x5a; 3]);
        assert_ne!(memory.image(), whole);
        assert_eq!(scrubbed_and_found(&pool), [(first as u64, Outcome::Repaired)]);
        assert!(memory.image()[line..line + 64] == whole[line..line + 64], "{line:#x}");
        assert_eq!(scrubbed_and_found(&pool), []);
    }
}

fn scrubbed_and_found(pool: &TestPool) -> Vec<(u64, Outcome)> {
    let found = lode_testkit::harm::scrubbed(pool).unwrap();
    found.iter().map(|one| (one.at, one.outcome)).collect()
}
