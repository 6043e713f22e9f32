//! Whoever keeps a log is told which bytes of which file have no checksums, from when to when: once for each map, and not
//! for each store.

use std::sync::{Arc, Mutex};

use lode_engine::{
    Error, ExemptRange, Exemption, FormatOptions, Handle, Ino, MapExtent, NewInode, OpenOptions,
    Pool, Protection, Shown, mode,
};
use lode_testkit::fs::TestPool;
use lode_testkit::{HostHooks, Memory, TestHost};

const PAGE: u64 = 4096;

#[derive(Default)]
struct Log(Mutex<Vec<(Exemption, ExemptRange)>>);

impl HostHooks for Log {
    fn exemption(&self, what: Exemption, of: ExemptRange) {
        self.0.lock().unwrap().push((what, of));
    }
}

impl Log {
    /// What was told since this was asked last, of one file.
    fn of(&self, ino: Ino) -> Vec<(Exemption, u64, u64)> {
        let told = std::mem::take(&mut *self.0.lock().unwrap());
        assert!(told.iter().all(|(_, of)| of.ino == ino), "{told:?}");
        told.into_iter().map(|(what, of)| (what, of.offset, of.bytes)).collect()
    }
}

fn made(pages: u64) -> (TestPool, Arc<Log>, Handle<TestHost>) {
    let memory = Memory::new(8 << 20);
    let (protection, dead_zone, lanes) = (Protection::Full, 0, 2);
    let format = FormatOptions { lanes, protection, dead_zone, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let (pool, log) = open(memory, false);
    let new = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
    let ino = pool.create(pool.root(), b"f", &new).unwrap().ino;
    pool.write(ino, 0, &vec![7; (pages * PAGE) as usize]).unwrap();
    let file = pool.hold(ino).unwrap();
    (pool, log, file)
}

fn open(memory: Memory, read_only: bool) -> (TestPool, Arc<Log>) {
    let log = Arc::new(Log::default());
    let host = TestHost::new(2).telling(Arc::clone(&log) as Arc<dyn HostHooks>);
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    (Pool::open(memory, host, &options).unwrap(), log)
}

#[test]
fn each_map_is_told_of_when_it_begins_and_its_file_when_the_last_one_ends() {
    let (pool, log, f) = made(10);
    let ino = f.ino();
    let extents = pool.map(&f, PAGE, 2 * PAGE).unwrap();
    assert_eq!(log.of(ino), [(Exemption::Begins, PAGE, 2 * PAGE)]);
    // What is stored there, and maps of the same, are nothing new.
    pool.medium().put(extents[0].pool_offset + 5, b"stored");
    pool.write_held(&f, PAGE + 100, &[1; 300]).unwrap();
    pool.map(&f, PAGE, PAGE).unwrap();
    pool.map(&f, 2 * PAGE, 3 * PAGE).unwrap();
    assert_eq!(log.of(ino), [(Exemption::Begins, 3 * PAGE, 2 * PAGE)]);
    // A crash now, and what is left to a read-only opening.
    let (_seen, left) = open(pool.medium().copy(), true);
    assert_eq!(left.of(ino), [(Exemption::StaysAfterCrash, PAGE, 4 * PAGE)]);
    let (_after, again) = open(pool.medium().copy(), false);
    assert_eq!(again.of(ino), [(Exemption::EndsAfterCrash, PAGE, 4 * PAGE)]);
    (0..2).for_each(|_| pool.unmap(&f));
    assert_eq!(log.of(ino), []);
    pool.unmap(&f);
    assert_eq!(log.of(ino), [(Exemption::Ends, PAGE, 4 * PAGE)]);
    pool.let_go(f);
    pool.close().unwrap();
    assert_eq!(log.of(ino), []);
}

#[test]
fn what_a_call_changes_is_told_of_with_all_that_maps_to_read_show() {
    let (pool, log, f) = made(10);
    let ino = f.ino();
    pool.map_to_read(&f, PAGE, 4 * PAGE).unwrap();
    assert_eq!(log.of(ino), []);
    pool.write_held(&f, 2 * PAGE + 5, &[1; 10]).unwrap();
    assert_eq!(log.of(ino), [(Exemption::Begins, PAGE, 4 * PAGE)]);
    pool.write_held(&f, PAGE, &[1; 10]).unwrap();
    assert_eq!(log.of(ino), []);
    pool.unmap(&f);
    assert_eq!(log.of(ino), [(Exemption::Ends, PAGE, 4 * PAGE)]);
    pool.let_go(f);
}

#[test]
fn a_file_in_many_pieces_is_told_of_in_few() {
    let (pool, log, f) = made(120);
    let ino = f.ino();
    for page in (0..120).step_by(3) {
        pool.map(&f, page * PAGE, PAGE).unwrap();
    }
    assert_eq!(log.of(ino).len(), 40);
    let (_after, again) = open(pool.medium().copy(), false);
    let told = again.of(ino);
    assert_eq!(told.len(), 17);
    assert_eq!(told[0], (Exemption::EndsAfterCrash, 0, PAGE));
    assert_eq!(told[16], (Exemption::EndsAfterCrash, 48 * PAGE, 70 * PAGE));
    let (seen, _) = open(pool.medium().copy(), true);
    let mut scrub = seen.begin_scrub().unwrap();
    let mut named = Vec::new();
    while !scrub.is_over() {
        seen.scrub(&mut scrub, 1).unwrap();
        named.extend(scrub.take_exempt());
    }
    let wanted =
        (0..120).step_by(3).map(|page| ExemptRange { ino, offset: page * PAGE, bytes: PAGE });
    assert_eq!((scrub.exempt_pages(), named), (40, wanted.collect()));
    (0..40).for_each(|_| pool.unmap(&f));
    pool.let_go(f);
}

#[test]
fn a_scrub_names_so_many_ranges_and_counts_the_others() {
    let (pool, _log, f) = made(500);
    for page in (0..500).step_by(2) {
        pool.map(&f, page * PAGE, PAGE).unwrap();
    }
    let mut scrub = pool.begin_scrub().unwrap();
    let mut named = 0;
    while !scrub.is_over() {
        pool.scrub(&mut scrub, 40 * PAGE).unwrap();
        named += scrub.take_exempt().len();
    }
    assert_eq!((scrub.exempt_pages(), named), (250, 100));
    (0..250).for_each(|_| pool.unmap(&f));
    pool.let_go(f);
}

struct Map;

impl Shown for Map {
    fn protect(&self) -> Result<(), Error> {
        Ok(())
    }

    fn moved(&self, _from: &MapExtent, _to: u64) -> Result<(), Error> {
        Ok(())
    }

    fn allow(&self, _offset: u64, _len: u64) -> Result<(), Error> {
        Ok(())
    }
}

#[test]
fn a_snapshot_is_told_of_and_no_store_after_it() {
    let (pool, log, f) = made(10);
    let ino = f.ino();
    let mut make = |_: &[MapExtent]| Ok(Arc::new(Map) as Arc<dyn Shown>);
    let number = pool.map_shown(&f, (0, 10 * PAGE), true, &mut make).unwrap();
    pool.allow_stores(ino, 0, 10 * PAGE).unwrap();
    assert_eq!(log.of(ino), [(Exemption::Begins, 0, 10 * PAGE)]);
    pool.create_snapshot(b"a").unwrap();
    assert_eq!(log.of(ino), [(Exemption::EndsForSnapshot, 0, 10 * PAGE)]);
    for page in 0..8 {
        pool.allow_stores(ino, page * PAGE, 1).unwrap();
    }
    assert_eq!(log.of(ino), []);
    pool.unmap_shown(&f, number);
    assert_eq!(log.of(ino), [(Exemption::Ends, 0, 8 * PAGE)]);
    pool.let_go(f);
}
