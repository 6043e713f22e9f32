//! What a pool says of itself to those who watch it is so, and saying it changes nothing.

use std::collections::BTreeMap;

use lode_engine::{
    EXTENT_SIZES, FormatOptions, Ino, NewInode, Op, OpenOptions, PAGE_BYTES, Pool, mode,
};
use lode_pmem::WEAR_REGION_BYTES;
use lode_testkit::fs::TestPool;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };

fn formatted() -> Memory {
    let memory = Memory::new(64 << 20);
    let options = FormatOptions { lanes: 2, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &options).unwrap();
    memory
}

fn pool() -> TestPool {
    Pool::open(formatted(), TestHost::with_cpus(1, 2), &OpenOptions::default()).unwrap()
}

fn file(pool: &TestPool, name: &str) -> Ino {
    pool.create(pool.root(), name.as_bytes(), &NEW).unwrap().ino
}

fn collections(pool: &TestPool) -> (u64, u64) {
    let ops = pool.stats().ops;
    (ops[Op::CollectFast as usize], ops[Op::CollectThorough as usize])
}

#[test]
fn thorough_collection_counts_every_page_of_the_old_log() {
    let pool = pool();
    let root = pool.root();
    let pages = || pool.dump_inode(root).unwrap().log_pages;
    let mut most = 0;
    // Many entries, of which few are left: the log of the directory is long, then rewritten.
    for round in 0..1000 {
        let (before, counted) = (pages(), pool.stats().collected.thorough_pages);
        let done = collections(&pool).1;
        if round < 500 {
            file(&pool, &round.to_string());
        } else {
            pool.unlink(root, (round - 500).to_string().as_bytes()).unwrap();
        }
        let given = pool.stats().collected.thorough_pages - counted;
        if collections(&pool).1 == done {
            assert_eq!(given, 0);
            continue;
        }
        // All that it had, and the page that this change took, if it did.
        let (after, had) = (pages(), before.len() as u64);
        assert!(before.iter().all(|page| !after.contains(page)), "{before:?} {after:?}");
        assert!([had, had + 1].contains(&given), "{given} of {before:?}");
        most = most.max(given);
    }
    assert!(most > 5, "{most}");
    let (fast, _) = collections(&pool);
    assert_eq!(pool.stats().collected.fast_pages, fast);
}

#[test]
fn fast_collection_counts_one_page_each() {
    let pool = pool();
    for number in 0..900 {
        file(&pool, &format!("f{number}"));
        // The entries of whole pages of the log end, those around them stay.
        if (400..463).contains(&number) {
            pool.unlink(pool.root(), format!("f{}", number - 338).as_bytes()).unwrap();
        }
    }
    let (fast, _) = collections(&pool);
    assert!(fast > 0);
    assert_eq!(pool.stats().collected.fast_pages, fast);
}

#[test]
fn free_extents_are_all_the_free_pages_there_are() {
    let pool = pool();
    let whole = pool.gauges().unwrap();
    assert!(whole.free_extents.huge > 20 && whole.free_extents.giant == 0, "{whole:?}");
    let files: Vec<Ino> = (0..600).map(|number| file(&pool, &number.to_string())).collect();
    for ino in &files {
        pool.write(*ino, 0, &[1; 5 * PAGE_BYTES as usize]).unwrap();
    }
    for number in (0..600).step_by(2) {
        pool.unlink(pool.root(), number.to_string().as_bytes()).unwrap();
    }
    pool.maintain().unwrap();
    let torn = pool.gauges().unwrap();
    assert_eq!(torn.waiting_pages, 0);
    let extents = &torn.free_extents;
    assert!(extents.by_size[2] >= 250, "the holes that files left: {extents:?}");
    let least: u64 = (0..EXTENT_SIZES).map(|size| extents.by_size[size] << size).sum();
    assert!((least..2 * least).contains(&torn.space.pages_free), "{torn:?}");
    assert!(extents.huge < whole.free_extents.huge, "{torn:?}");
    assert!(extents.huge * 512 <= torn.space.pages_free);
}

#[test]
fn looking_changes_nothing_and_counts_nothing() {
    let memory = formatted();
    let pool = Pool::open(memory.clone(), TestHost::new(1), &OpenOptions::default()).unwrap();
    let ino = file(&pool, "file");
    pool.write(ino, 0, &[1; 10_000]).unwrap();
    let (counted, stores) = (pool.stats(), memory.stores());
    let first = pool.gauges().unwrap();
    assert_eq!(pool.gauges().unwrap(), first);
    assert_eq!((pool.stats(), memory.stores()), (counted, stores));
    assert_eq!(first.space, pool.statfs());
    assert_eq!((first.inodes_in_memory, first.inodes_busy), (2, 0));
}

#[test]
fn what_waits_for_a_round_is_told() {
    let pool = pool();
    let slots = pool.gauges().unwrap().free_slots;
    for number in 0..20 {
        file(&pool, &number.to_string());
    }
    let made = pool.gauges().unwrap();
    assert!(made.free_slots != slots && made.waiting_slots == 0, "{made:?}");
    for number in 0..20 {
        pool.unlink(pool.root(), number.to_string().as_bytes()).unwrap();
    }
    assert_eq!(pool.gauges().unwrap().waiting_slots, 20);
    pool.maintain().unwrap();
    let after = pool.gauges().unwrap();
    assert_eq!((after.waiting_slots, after.waiting_pages), (0, 0));
}

#[test]
fn wear_is_where_the_stores_were() {
    let memory = formatted();
    let pool = Pool::open(memory.clone(), TestHost::new(1), &OpenOptions::default()).unwrap();
    let ino = file(&pool, "file");
    for step in 0..3 {
        pool.write(ino, step << 20, &[1; 1 << 20]).unwrap();
    }
    let wear = pool.wear();
    assert_eq!(wear.regions(), 32);
    let sum: u64 = (0..32).map(|region| wear.stored_bytes(region)).sum();
    let door = pool.stats().door;
    assert!(sum >= 3 << 20, "{sum}");
    assert_eq!(sum, door.streamed_bytes + 64 * door.lines, "all was stored in whole lines");
    let mut expected = BTreeMap::new();
    for extent in pool.dump_inode(ino).unwrap().extents {
        for at in (extent.pool_offset..extent.pool_offset + extent.bytes).step_by(4096) {
            *expected.entry(at / WEAR_REGION_BYTES).or_insert(0) += PAGE_BYTES;
        }
    }
    for (region, bytes) in expected {
        assert!(wear.stored_bytes(region) >= bytes, "region {region}");
    }
    pool.close().unwrap();
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let pool = Pool::open(memory, TestHost::new(1), &options).unwrap();
    assert_eq!(pool.wear().regions(), 0);
}
