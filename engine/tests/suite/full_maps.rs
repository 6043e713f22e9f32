//! Mapped files at level `full`: pages that a program stores into are exempt from checksums, and whole again afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use lode_engine::layout::{Body, Header, Parsed, Txid};
use lode_engine::{
    AccessTimes, Error, Fallocate, FormatOptions, Handle, MapExtent, NewInode, OpenOptions,
    PageClass, Pool, Protection, Rule, SetAttr, Staging, mode,
};
use lode_testkit::fs::TestPool;
use lode_testkit::op::{Attrs, Fill, Op, Path, Target};
use lode_testkit::rng::Rng;
use lode_testkit::run::{Rules, run_and_shrink};
use lode_testkit::system::PoolSystem;
use lode_testkit::{Healing, Memory, Poisoned, TestHost};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

fn format(protection: Protection, log_lines: u8) -> FormatOptions {
    let (lanes, dead_zone) = (2, 0);
    FormatOptions { lanes, protection, dead_zone, log_lines, ..FormatOptions::default() }
}

fn pool_of(log_lines: u8) -> TestPool {
    let (memory, host) = (Memory::new(8 * MIB), TestHost::new(5));
    Pool::format(memory.clone(), host.clone(), &format(Protection::Full, log_lines)).unwrap();
    Pool::open(memory, host, &OpenOptions::default()).unwrap()
}

fn pool() -> TestPool {
    pool_of(63)
}

fn open(memory: Memory, read_only: bool) -> TestPool {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Pool::open(memory, TestHost::new(9), &options).unwrap()
}

/// The pool as it is after a crash now.
fn crashed(pool: &TestPool) -> TestPool {
    open(pool.medium().copy(), false)
}

fn bytes_of(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * at / 7 + at) as u8).collect()
}

/// A file `f` that holds these bytes, open.
fn file(pool: &TestPool, bytes: &[u8]) -> Handle<TestHost> {
    let new = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
    let ino = pool.create(pool.root(), b"f", &new).unwrap().ino;
    pool.write(ino, 0, bytes).unwrap();
    pool.hold(ino).unwrap()
}

fn hold(pool: &TestPool) -> Handle<TestHost> {
    pool.hold(pool.lookup(pool.root(), b"f").unwrap().ino).unwrap()
}

fn read(pool: &TestPool, file: &Handle<TestHost>) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; pool.getattr_held(file).unwrap().size as usize];
    assert_eq!(pool.read_held(file, 0, &mut bytes)?, bytes.len());
    Ok(bytes)
}

/// Where byte `offset` of what was mapped is in the pool.
fn place(extents: &[MapExtent], offset: u64) -> u64 {
    let holds = |e: &&MapExtent| (e.file_offset..e.file_offset + e.bytes).contains(&offset);
    let extent = extents.iter().find(holds).unwrap();
    extent.pool_offset + (offset - extent.file_offset)
}

/// What a scrub finds, and how many pages it passes over.
fn scrubbed(pool: &TestPool) -> (usize, u64) {
    let mut scrub = pool.begin_scrub().unwrap();
    while !scrub.is_over() {
        pool.scrub(&mut scrub, MIB).unwrap();
    }
    (scrub.take_findings().len(), scrub.exempt_pages())
}

/// Checksums and parity are those of what the file holds: nothing is found, and any strip that goes bad is made right.
fn is_whole(memory: &Memory, wanted: &[u8], what: &str) {
    let pool = open(memory.copy(), false);
    assert_eq!(scrubbed(&pool), (0, 0), "{what}");
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, [], "{what}");
    let f = hold(&pool);
    assert!(read(&pool, &f).unwrap() == wanted, "{what}");
    let extents = pool.extents(&f, 0, wanted.len() as u64).unwrap();
    pool.let_go(f);
    pool.close().unwrap();
    for offset in (0..wanted.len() as u64).step_by(512) {
        let copy = pool.medium().copy();
        let is_hole = |e: &MapExtent| !(e.file_offset..e.file_offset + e.bytes).contains(&offset);
        if extents.iter().all(is_hole) {
            continue;
        }
        let at = place(&extents, offset);
        copy.put(at + 3, &[!copy.get(at + 3, 1)[0]]);
        let pool = open(copy, false);
        assert!(read(&pool, &hold(&pool)).unwrap() == wanted, "{what}: {offset}");
        assert_eq!(pool.data_repairs().repaired, 1, "{what}: {offset}");
    }
}

fn kinds(pool: &TestPool) -> Vec<&'static str> {
    let ino = pool.lookup(pool.root(), b"f").unwrap().ino;
    pool.dump_inode(ino).unwrap().records.iter().map(|record| record.kind).collect()
}

#[test]
fn what_is_stored_through_a_map_is_read_and_protected_when_it_ends() {
    let pool = pool();
    let mut bytes = bytes_of(18_000);
    let f = file(&pool, &bytes);
    let extents = pool.map(&f, PAGE, 2 * PAGE).unwrap();
    assert_eq!(pool.gauges().unwrap().exempt_pages, 2);
    assert!(pool.info().unwrap().features[2] & 1 == 1);
    for (at, new) in [(5000, &b"one"[..]), (8190, b"two"), (12_285, b"end")] {
        for (offset, byte) in (at..).zip(new) {
            pool.medium().put(place(&extents, offset), &[*byte]);
            bytes[offset as usize] = *byte;
        }
    }
    assert!(read(&pool, &f).unwrap() == bytes);
    // In place where it is mapped; what is not keeps its checksums.
    for (offset, len) in [(4096, 4096), (4000, 300), (100, 50), (8000, 6000), (17_000, 3000)] {
        let new = vec![offset as u8 ^ 0x5a; len];
        pool.write_held(&f, offset as u64, &new).unwrap();
        bytes.resize(bytes.len().max(offset + len), 0);
        bytes[offset..offset + len].copy_from_slice(&new);
        assert!(read(&pool, &f).unwrap() == bytes, "{offset} +{len}");
        let shown = pool.extents(&f, PAGE, 2 * PAGE).unwrap();
        assert_eq!(shown, extents, "{offset} +{len}");
        is_whole(pool.medium(), &bytes, "crashed");
    }
    assert_eq!(scrubbed(&pool), (0, 2));
    pool.unmap(&f);
    assert_eq!(pool.gauges().unwrap().exempt_pages, 0);
    assert_eq!(scrubbed(&pool), (0, 0));
    is_whole(pool.medium(), &bytes, "unmapped");
    pool.write_held(&f, 4200, &[1; 5000]).unwrap();
    bytes[4200..9200].fill(1);
    pool.let_go(f);
    pool.close().unwrap();
    is_whole(pool.medium(), &bytes, "closed");
}

#[test]
fn a_crash_leaves_what_was_mapped_to_be_made_whole() {
    let pool = pool();
    let mut bytes = bytes_of(10_000);
    let f = file(&pool, &bytes);
    let extents = pool.map(&f, 0, 10_000).unwrap();
    for at in (0..10_000).step_by(333) {
        pool.medium().put(place(&extents, at as u64), &[0xab; 5][..(10_000 - at).min(5)]);
        bytes[at..(at + 5).min(10_000)].fill(0xab);
    }
    let memory = pool.medium().copy();
    // Read-only: nothing is stored, and what is there is shown.
    let (image, seen) = (memory.image(), open(memory.clone(), true));
    assert_eq!((seen.opening().exempt_pages, scrubbed(&seen)), (3, (0, 3)));
    assert!(read(&seen, &hold(&seen)).unwrap() == bytes);
    assert!(memory.image() == image);
    let after = open(memory.clone(), false);
    assert_eq!(after.opening().exempt_pages, 3);
    assert_eq!(after.gauges().unwrap().exempt_pages, 0);
    assert!(read(&after, &hold(&after)).unwrap() == bytes);
    assert_eq!(kinds(&after).last(), Some(&"WHOLE"));
    // (And left again as after a crash.)
    is_whole(&memory, &bytes, "recovered");
    assert_eq!(open(memory.copy(), false).opening().exempt_pages, 0);
    after.close().unwrap();
    is_whole(&memory, &bytes, "closed");
}

#[test]
fn maps_end_with_the_session() {
    let pool = pool();
    let mut bytes = bytes_of(9000);
    let f = file(&pool, &bytes);
    let extents = pool.map(&f, 0, 9000).unwrap();
    pool.map(&f, 0, PAGE).unwrap();
    pool.unmap(&f);
    assert_eq!(pool.gauges().unwrap().exempt_pages, 3);
    pool.medium().put(place(&extents, 8000), b"stored");
    bytes[8000..8006].copy_from_slice(b"stored");
    pool.close().unwrap();
    let again = open(pool.medium().copy(), false);
    assert!(again.opening().clean);
    is_whole(pool.medium(), &bytes, "closed");
}

#[test]
fn a_map_to_read_keeps_its_pages_protected_until_they_are_changed() {
    let pool = pool();
    let mut bytes = bytes_of(9000);
    let f = file(&pool, &bytes);
    let extents = pool.map_to_read(&f, PAGE, 4904).unwrap();
    assert_eq!(pool.gauges().unwrap().exempt_pages, 0);
    let strip = place(&extents, 5000);
    pool.medium().put(strip, &[!bytes[5000]]);
    assert!(read(&pool, &f).unwrap() == bytes);
    assert_eq!(pool.data_repairs().repaired, 1);
    // Page 2 is the last one, and has been cut nowhere: it is as it was.
    pool.write_held(&f, 5000, &[7; 10]).unwrap();
    bytes[5000..5010].fill(7);
    assert_eq!(pool.medium().get(place(&extents, 5000), 10), [7; 10]);
    assert_eq!(pool.gauges().unwrap().exempt_pages, 2);
    assert!(read(&pool, &f).unwrap() == bytes);
    is_whole(pool.medium(), &bytes, "crashed");
    pool.append_held(&f, &[8; 5000]).unwrap();
    bytes.extend([8; 5000]);
    assert_eq!(pool.medium().get(place(&extents, 9000), 100), [8; 100]);
    assert!(read(&crashed(&pool), &hold(&crashed(&pool))).unwrap() == bytes);
    pool.unmap(&f);
    is_whole(pool.medium(), &bytes, "unmapped");
}

#[test]
fn read_only_pools_map_what_is_there() {
    let pool = pool();
    let bytes = bytes_of(9000);
    let f = file(&pool, &bytes);
    pool.let_go(f);
    pool.close().unwrap();
    let (memory, image) = (pool.medium().clone(), pool.medium().image());
    let seen = open(memory.clone(), true);
    let f = hold(&seen);
    let extents = seen.map(&f, 0, 9000).unwrap();
    assert_eq!(memory.get(place(&extents, 5000), 1), [bytes[5000]]);
    seen.unmap(&f);
    seen.close().unwrap();
    assert!(memory.image() == image);
}

#[test]
fn what_is_staged_is_exempt_when_it_is_the_files() {
    let pool = pool();
    let mut bytes = bytes_of(5 * PAGE as usize);
    let f = file(&pool, &bytes);
    pool.map(&f, 0, 5 * PAGE).unwrap();
    pool.fallocate(f.ino(), Fallocate::Punch, 4 * PAGE, PAGE).unwrap();
    pool.fallocate(f.ino(), Fallocate::Allocate { keep_size: true }, 4 * PAGE, PAGE).unwrap();
    bytes[4 * PAGE as usize..].fill(0);
    assert_eq!(pool.gauges().unwrap().exempt_pages, 4);
    let staged = pool.stage(&f, PAGE, 4 * PAGE, Staging::Copied).unwrap();
    for offset in [PAGE + 7, 3 * PAGE, 4 * PAGE + 100] {
        pool.medium().put(place(&staged, offset), b"staged");
    }
    is_whole(pool.medium(), &bytes, "staged");
    pool.commit_staged(&f, &[(PAGE, PAGE), (3 * PAGE, 2 * PAGE)]).unwrap();
    for offset in [PAGE as usize + 7, 3 * PAGE as usize, 4 * PAGE as usize + 100] {
        bytes[offset..offset + 6].copy_from_slice(b"staged");
    }
    assert_eq!(pool.gauges().unwrap().exempt_pages, 5);
    assert!(read(&pool, &f).unwrap() == bytes);
    is_whole(pool.medium(), &bytes, "committed");
    // It is mapped: what is stored there later is the file's, too.
    pool.medium().put(place(&staged, 3 * PAGE + 50), b"later");
    bytes[3 * PAGE as usize + 50..][..5].copy_from_slice(b"later");
    assert!(read(&pool, &f).unwrap() == bytes);
    is_whole(pool.medium(), &bytes, "stored into");
    pool.unmap(&f);
    is_whole(pool.medium(), &bytes, "unmapped");
}

#[test]
fn what_is_cut_off_is_exempt_no_more() {
    let pool = pool();
    let mut bytes = bytes_of(6 * PAGE as usize);
    let f = file(&pool, &bytes);
    let extents = pool.map(&f, 0, 6 * PAGE).unwrap();
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    pool.fallocate(f.ino(), Fallocate::Punch, PAGE, PAGE).unwrap();
    bytes[PAGE as usize..2 * PAGE as usize].fill(0);
    pool.setattr(f.ino(), &size(3 * PAGE + 100)).unwrap();
    assert_eq!(pool.gauges().unwrap().exempt_pages, 3);
    // What is stored behind the end is no part of the file when that grows again.
    pool.medium().put(place(&extents, 3 * PAGE + 200), b"behind");
    bytes.truncate(3 * PAGE as usize + 100);
    for grown in [3 * PAGE + 300, 5 * PAGE + 10] {
        pool.setattr(f.ino(), &size(grown)).unwrap();
        bytes.resize(grown as usize, 0);
        assert!(read(&pool, &f).unwrap() == bytes, "{grown}");
    }
    pool.write_held(&f, PAGE + 10, b"other page").unwrap();
    bytes[PAGE as usize + 10..][..10].copy_from_slice(b"other page");
    // The given-up pages are still the program's.
    for offset in [PAGE, 4 * PAGE, 5 * PAGE] {
        pool.medium().put(place(&extents, offset), &[9; PAGE as usize]);
    }
    assert!(read(&pool, &f).unwrap() == bytes);
    is_whole(pool.medium(), &bytes, "crashed");
    pool.unmap(&f);
    is_whole(pool.medium(), &bytes, "unmapped");
}

#[test]
fn damage_is_not_mapped() {
    let pool = pool();
    let bytes = bytes_of(9000);
    let f = file(&pool, &bytes);
    let extents = pool.extents(&f, 0, 9000).unwrap();
    // One strip of a page is made good before it is mapped, two are lost.
    let flip = |offset: u64| {
        let at = place(&extents, offset);
        pool.medium().put(at, &[!pool.medium().get(at, 1)[0]]);
    };
    flip(100);
    pool.map(&f, 0, 9000).unwrap();
    assert!(read(&pool, &f).unwrap() == bytes);
    pool.unmap(&f);
    is_whole(pool.medium(), &bytes, "unmapped");
    flip(100);
    flip(1000);
    assert!(matches!(pool.map(&f, 0, 9000), Err(Error::Corrupt(_))));
    assert_eq!((pool.maps(&f).unwrap(), pool.gauges().unwrap().exempt_pages), (0, 0));
    pool.map(&f, PAGE, PAGE).unwrap();
    pool.unmap(&f);
    let mut into = [0; 10];
    assert!(matches!(pool.read_held(&f, 100, &mut into), Err(Error::Corrupt(_))));
    assert_eq!(pool.read_held(&f, 2000, &mut into), Ok(10));
}

#[test]
fn logs_that_are_written_anew_say_what_is_exempt() {
    let pool = pool_of(4);
    let mut bytes = bytes_of(8 * PAGE as usize);
    let f = file(&pool, &bytes);
    let extents = pool.map(&f, 0, 2 * PAGE).unwrap();
    pool.map(&f, 4 * PAGE, 3 * PAGE).unwrap();
    let mut lengths = Vec::new();
    for turn in 0..60 {
        let mode = Some(0o600 + turn % 8);
        pool.setattr(f.ino(), &SetAttr { mode, ..SetAttr::default() }).unwrap();
        lengths.push(kinds(&pool).len());
        assert_eq!(pool.gauges().unwrap().exempt_pages, 5);
        if turn % 7 == 0 {
            let text = format!("turn {turn}");
            pool.medium().put(place(&extents, 1000), text.as_bytes());
            bytes[1000..1000 + text.len()].copy_from_slice(text.as_bytes());
            let after = crashed(&pool);
            assert_eq!(after.opening().exempt_pages, 5, "{turn}");
            assert!(read(&after, &hold(&after)).unwrap() == bytes, "{turn}");
            assert_eq!(scrubbed(&after), (0, 0), "{turn}");
        }
    }
    assert!(lengths.windows(2).any(|two| two[0] > two[1] + 1), "no log was written anew");
    pool.unmap(&f);
    pool.unmap(&f);
    for turn in 0..60 {
        let mode = Some(0o600 + turn % 8);
        pool.setattr(f.ino(), &SetAttr { mode, ..SetAttr::default() }).unwrap();
        assert_eq!(crashed(&pool).opening().exempt_pages, 0, "{turn}");
    }
    assert!(!kinds(&pool).contains(&"EXEMPT"));
    is_whole(pool.medium(), &bytes, "unmapped");
}

#[test]
fn snapshots_wait_for_maps() {
    let pool = pool();
    let mut bytes = bytes_of(9000);
    let f = file(&pool, &bytes);
    pool.create_snapshot(b"before").unwrap();
    let extents = pool.map(&f, 0, 9000).unwrap();
    pool.medium().put(place(&extents, 5000), b"now");
    assert_eq!(pool.create_snapshot(b"mapped"), Err(Error::Busy));
    let root = pool.snapshot_root(b"before").unwrap();
    let old = pool.lookup(root, b"f").unwrap().ino;
    let mut then = vec![0; 9000];
    assert_eq!(pool.read(old, 0, &mut then), Ok(9000));
    assert!(then == bytes);
    pool.unmap(&f);
    bytes[5000..5003].copy_from_slice(b"now");
    pool.create_snapshot(b"after").unwrap();
    is_whole(pool.medium(), &bytes, "unmapped");
}

#[test]
fn what_memory_has_lost_is_lost_and_nothing_else() {
    for is_crash in [false, true] {
        let memory = Memory::new(8 * MIB);
        let host = || TestHost::new(5);
        let format = format(Protection::Full, 63);
        Pool::format(memory.clone(), host(), &format).unwrap();
        let bad = Poisoned::new(memory, Healing::Never);
        let pool = Pool::open(bad.clone(), host(), &OpenOptions::default()).unwrap();
        let new = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
        let ino = pool.create(pool.root(), b"f", &new).unwrap().ino;
        let bytes = bytes_of(9000);
        pool.write(ino, 0, &bytes).unwrap();
        let f = pool.hold(ino).unwrap();
        let extents = pool.map(&f, 0, 9000).unwrap();
        bad.poison(place(&extents, 5000) / 64 * 64, 64);
        let read = |pool: &Pool<_, TestHost>, offset, len| {
            let mut into = vec![0; len];
            pool.read(ino, offset, &mut into).map(|_| into)
        };
        // (Until then line by line.)
        assert!(matches!(read(&pool, 4990, 20), Err(Error::Media { .. })));
        assert_eq!(read(&pool, 5100, 100), Ok(bytes[5100..5200].to_vec()));
        let after = if is_crash {
            Pool::open(bad.clone(), host(), &OpenOptions::default()).unwrap()
        } else {
            pool.unmap(&f);
            pool
        };
        assert_eq!(after.gauges().unwrap().exempt_pages, 0);
        for (offset, len) in [(0, 4608), (5120, 3880)] {
            let at = offset as usize;
            assert_eq!(read(&after, offset, len), Ok(bytes[at..at + len].to_vec()), "{is_crash}");
        }
        assert!(read(&after, 4990, 20).is_err(), "{is_crash}");
        // What the memory gives for it later is not what it was.
        bad.mend(place(&extents, 5000) / 64 * 64, 64);
        let again = Pool::open(bad.clone(), host(), &OpenOptions::default()).unwrap();
        assert!(read(&again, 4990, 20).is_err(), "{is_crash}");
        assert_eq!(bad.machine_checks(), 0);
    }
}

#[test]
fn a_level_that_is_left_and_entered_again_knows_of_no_maps() {
    let memory = Memory::new(8 * MIB);
    let host = || TestHost::new(5);
    Pool::format(memory.clone(), host(), &format(Protection::Full, 63)).unwrap();
    let pool = open(memory.clone(), false);
    let mut bytes = bytes_of(9000);
    let f = file(&pool, &bytes);
    let extents = pool.map(&f, 0, 9000).unwrap();
    pool.medium().put(place(&extents, 5000), b"mapped");
    bytes[5000..5006].copy_from_slice(b"mapped");
    // Left as by a crash.
    let memory = memory.copy();
    for level in [Protection::Metadata, Protection::Full] {
        Pool::protect(memory.clone(), host(), level, 0, &mut |_, _| ()).unwrap();
        let pool = open(memory.copy(), false);
        assert!(read(&pool, &hold(&pool)).unwrap() == bytes);
        assert_eq!(pool.opening().exempt_pages, 0);
    }
    is_whole(&memory, &bytes, "full again");
}

#[test]
fn random_operations_on_mapped_files_equal_the_model() {
    for level in [Protection::Full, Protection::None] {
        for seed in 0..60 {
            let ops = random(seed, level, 120);
            let options = OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() };
            let format = format(level, if seed % 2 == 0 { 63 } else { 4 });
            let new = || PoolSystem::new(8 * MIB, TestHost::new(seed), &format, options);
            if let Err(failure) = run_and_shrink(&new, &ops, &Rules::default(), 300) {
                panic!("{level:?}, seed {seed}: {failure}");
            }
        }
    }
}

/// Changes of two files, mapped and not.
fn random(seed: u64, level: Protection, count: usize) -> Vec<Op> {
    let mut rng = Rng::new(seed);
    // (Not with holes and ends that move: what is given up stays in maps, which the test's program does not expect of
    // files that snapshots see.)
    let snapshots = seed.is_multiple_of(3);
    let mut ops = Vec::new();
    for name in ["a", "b"] {
        ops.push(Op::Create { path: Path::of(name), mode: mode::FILE | 0o600, rdev: 0 });
    }
    while ops.len() < count {
        let of = Target::Path(Path::of(if rng.once_in(3) { "b" } else { "a" }));
        let offset = rng.below(30_000);
        let data = Fill { len: 1 + rng.below(9000), fill: 1 + rng.below(99) };
        let small = Fill { len: 1 + rng.below(600), ..data };
        let (page, pages) = (rng.below(6) * PAGE, PAGE * (1 + rng.below(2)));
        let whole = Fill { len: pages, ..data };
        let size = Attrs { size: Some(rng.below(30_000)), ..Attrs::default() };
        let hows = [
            Fallocate::Punch,
            Fallocate::Allocate { keep_size: true },
            Fallocate::Zero { keep_size: false },
        ];
        let how = hows[rng.below(3) as usize];
        let next = match rng.below(20) {
            0..=2 => Op::Map { of },
            3..=4 => Op::Unmap { of },
            5 if level == Protection::Full => Op::Leave { to: of, offset, data: small },
            5..=8 => Op::Poke { to: of, offset, data: small },
            9..=10 => {
                // (What is not backed can't be staged.)
                let how = Fallocate::Allocate { keep_size: true };
                ops.push(Op::Fallocate { of: of.clone(), how, offset: page, len: pages });
                Op::Swap { to: of, offset: page, data: whole }
            }
            11 => Op::Write { to: of, offset: page, data: whole },
            12..=13 => Op::Write { to: of, offset, data },
            14 => Op::Write { to: of, offset, data: small },
            15 => Op::Append { to: of, data },
            16..=17 if snapshots => {
                let name = format!("s{}", rng.below(4)).into_bytes();
                if rng.once_in(3) { Op::Drop(name) } else { Op::Snapshot(name) }
            }
            16 => Op::SetAttr { of, attrs: size },
            17 => Op::Fallocate { of, how, offset, len: data.len },
            18 => Op::Read { from: of, offset: 0, len: 40_000 },
            _ if rng.once_in(3) => Op::Crash,
            _ if rng.once_in(3) => Op::Remount,
            _ => Op::Maintain,
        };
        ops.push(next);
    }
    ops
}

#[test]
fn files_of_huge_pages_are_mapped_too() {
    let memory = Memory::new(48 * MIB);
    let format = FormatOptions { page_class: PageClass::Huge, ..format(Protection::Full, 63) };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let pool = open(memory.clone(), false);
    let mut bytes = bytes_of(3 * MIB as usize);
    let f = file(&pool, &bytes);
    let extents = pool.map(&f, 0, 3 * MIB).unwrap();
    pool.medium().put(place(&extents, 2_100_000), b"huge");
    bytes[2_100_000..2_100_004].copy_from_slice(b"huge");
    pool.write_held(&f, 1_000_000, &[5; 9000]).unwrap();
    bytes[1_000_000..1_009_000].fill(5);
    assert_eq!(pool.extents(&f, 0, 3 * MIB).unwrap(), extents);
    let after = crashed(&pool);
    assert!(read(&after, &hold(&after)).unwrap() == bytes);
    assert_eq!(scrubbed(&after), (0, 0));
    pool.unmap(&f);
    assert_eq!(scrubbed(&pool), (0, 0));
    assert!(read(&pool, &f).unwrap() == bytes);
}

#[test]
fn what_is_left_out_is_noticed() {
    for (rule, wanted) in
        [(None, true), (Some(Rule::ExemptSaid), false), (Some(Rule::ExemptWhole), false)]
    {
        let memory = Memory::new(8 * MIB);
        let host = || TestHost::new(5).leaving_out(rule);
        Pool::format(memory.clone(), host(), &format(Protection::Full, 63)).unwrap();
        let pool = Pool::open(memory, host(), &OpenOptions::default()).unwrap();
        let mut bytes = bytes_of(9000);
        let f = file(&pool, &bytes);
        let extents = pool.map(&f, 0, 9000).unwrap();
        for (offset, byte) in [(100, 7), (1000, 8), (5000, 9)] {
            pool.medium().put(place(&extents, offset), &[byte]);
            bytes[offset as usize] = byte;
        }
        let after = Pool::open(pool.medium().copy(), host(), &OpenOptions::default()).unwrap();
        assert_eq!(read(&after, &hold(&after)) == Ok(bytes), wanted, "{rule:?}");
    }
}

#[test]
fn records_of_exemptions_are_as_the_format_says() {
    let txid = Txid { session: 3, lane: 2, sequence: 5 };
    let header = Header { txid, part: 0, parts: 1 };
    let (file_page, pages) = (0x0102_0304, 0x0506);
    for (kind, body) in
        [(16, Body::Exempt { file_page, pages }), (17, Body::Whole { file_page, pages })]
    {
        let line = body.encode(&header, 9);
        assert_eq!((line.0[0], line.0[1]), (kind, 0));
        assert_eq!(line.0[16..24], [9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(line.0[24..32], file_page.to_le_bytes());
        assert_eq!(line.0[32..40], pages.to_le_bytes());
        assert_eq!(line.0[40..56], [0; 16]);
        assert_eq!(Parsed::parse(&line).unwrap().body, body);
        let none = Body::Exempt { file_page, pages: 0 }.encode(&header, 9);
        assert!(Parsed::parse(&none).is_err());
    }
}
