//! A scrub at level `full`: what is kept of file data is made right while something can tell, and bad memory is left.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use lode_engine::layout::{CrcTable, Strips, Superblock};
use lode_engine::{
    AccessTimes, BadPage, Error, Finding, FormatOptions, Ino, NewInode, OpenOptions, Outcome, Pool,
    Protection, What, XattrChange, XattrWhen, ino_beside, mode,
};
use lode_testkit::{Healing, Memory, Poisoned, TestHost};

type Bad = Poisoned<Memory>;
type BadPool = Pool<Bad, TestHost>;

const BYTES: u64 = 8 << 20;
const PAGE: u64 = 4096;
const PAGES: u64 = 6;

fn made(protection: Protection) -> (Bad, BadPool, Ino, Vec<u8>) {
    let memory = Poisoned::new(Memory::new(BYTES), Healing::Never);
    let format = FormatOptions {
        lanes: 2,
        log_lines: 9,
        protection,
        dead_zone: 0,
        ..FormatOptions::default()
    };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let pool = open(&memory, false);
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    let ino = pool.create(pool.root(), b"file", &new).unwrap().ino;
    let bytes: Vec<u8> = (0..PAGES * PAGE - 300).map(|at| (at / 7) as u8).collect();
    pool.write(ino, 0, &bytes).unwrap();
    (memory, pool, ino, bytes)
}

fn open(memory: &Bad, read_only: bool) -> BadPool {
    let atime = AccessTimes::Never;
    let options = OpenOptions { read_only, atime, ..OpenOptions::default() };
    Pool::open(memory.clone(), TestHost::new(2), &options).unwrap()
}

fn scrubbed(pool: &BadPool) -> Vec<Finding> {
    let mut scrub = pool.begin_scrub().unwrap();
    let mut found = Vec::new();
    while !scrub.is_over() {
        pool.scrub(&mut scrub, 10_000).unwrap();
        found.extend(scrub.take_findings());
    }
    found
}

fn strips(memory: &Bad) -> Strips {
    let raw = memory.inner().get(0, 512);
    Superblock::parse(raw[..].try_into().unwrap()).unwrap().geometry().strips
}

/// The page of the pool that a page of a file is in.
fn page_of(pool: &BadPool, ino: Ino, page: u64) -> u64 {
    let extents = pool.dump_inode(ino).unwrap().extents;
    let has = |from: u64, bytes: u64| (from..from + bytes).contains(&(page * PAGE));
    let one = extents.iter().find(|one| has(one.file_offset, one.bytes)).unwrap();
    (one.pool_offset + page * PAGE - one.file_offset) / PAGE
}

fn same(pool: &BadPool, ino: Ino, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    assert_eq!(pool.read(ino, 0, &mut read), Ok(bytes.len()));
    assert!(read == bytes);
}

fn outcomes(found: &[Finding]) -> Vec<(u64, Outcome)> {
    assert!(found.iter().all(|one| one.what == What::Data), "{found:?}");
    found.iter().map(|one| (one.offset, one.outcome)).collect()
}

/// Where the data of a page is, its checksums in both tables, and its parity.
fn places(memory: &Bad, page: u64) -> [u64; 4] {
    let strips = strips(memory);
    let crcs = [CrcTable::First, CrcTable::Second].map(|table| strips.crcs_at(page, table));
    [page * PAGE + 700, crcs[0] + 5, crcs[1] + 5, strips.parity_at(page) + 200]
}

fn scribble(memory: &Bad, at: u64) {
    let byte = memory.inner().get(at, 1)[0];
    memory.inner().put(at, &[byte ^ 0x40]);
}

#[test]
fn each_of_data_checksums_and_parity_is_made_right_from_the_others() {
    for which in 0..4 {
        let (memory, pool, ino, bytes) = made(Protection::Full);
        let page = page_of(&pool, ino, 2);
        let was = memory.inner().image();
        scribble(&memory, places(&memory, page)[which]);
        let read_only = {
            pool.maintain().unwrap();
            let copy = Poisoned::new(memory.inner().copy(), Healing::Never);
            outcomes(&scrubbed(&open(&copy, true)))
        };
        assert_eq!(read_only, [(2 * PAGE, Outcome::Left)], "{which}");
        assert_eq!(outcomes(&scrubbed(&pool)), [(2 * PAGE, Outcome::Repaired)], "{which}");
        let at = places(&memory, page)[which];
        assert_eq!(memory.inner().get(at, 1), was[at as usize..][..1], "{which}");
        assert_eq!(scrubbed(&pool), []);
        same(&pool, ino, &bytes);
    }
}

#[test]
fn writes_of_any_pages_leave_nothing_to_be_made_right_in_either_table_or_in_parity() {
    for strip_bytes in [512, 1024, 2048] {
        let memory = Poisoned::new(Memory::new(BYTES), Healing::Never);
        let protection = Protection::Full;
        let format =
            FormatOptions { lanes: 2, protection, strip_bytes, ..FormatOptions::default() };
        Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
        let pool = open(&memory, false);
        let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
        let ino = pool.create(pool.root(), b"file", &new).unwrap().ino;
        let mut bytes = Vec::new();
        // From and to the middle of lines of the tables, and of pages.
        for (number, pages) in (1..20).chain([33, 40]).enumerate() {
            for part in [0, 300] {
                let more = (0..pages * PAGE + part).map(|at| (at / 7 + number as u64) as u8);
                let more: Vec<u8> = more.collect();
                pool.append(ino, &more).unwrap();
                bytes.extend(more);
            }
        }
        let (at, len) = (PAGE as usize + 5000, 9 * PAGE as usize);
        bytes[at..at + len].fill(3);
        pool.write(ino, at as u64, &bytes[at..at + len]).unwrap();
        assert_eq!(scrubbed(&pool), [], "{strip_bytes}");
        same(&pool, ino, &bytes);
    }
}

#[test]
fn strips_that_nothing_can_tell_are_lost_and_no_others() {
    let (memory, pool, ino, bytes) = made(Protection::Full);
    let page = page_of(&pool, ino, 1);
    // (At other columns: or else two of them would cancel out in the parity.)
    for strip in [1, 4, 5] {
        scribble(&memory, page * PAGE + strip * 520);
    }
    let found = scrubbed(&pool);
    let lost = found.iter().map(|one| (one.offset, one.bytes)).collect::<Vec<_>>();
    assert_eq!(lost, [(PAGE + 512, 512), (PAGE + 2048, 1024)]);
    assert!(found.iter().all(|one| one.outcome == Outcome::Lost));
    for strip in 0..8 {
        let at = PAGE + strip * 512;
        let mut read = [0; 512];
        let outcome = pool.read(ino, at, &mut read);
        if [1, 4, 5].contains(&strip) {
            assert!(matches!(outcome, Err(Error::Corrupt(_))), "{strip}");
        } else {
            assert_eq!(outcome, Ok(512));
            assert!(read == bytes[at as usize..at as usize + 512]);
        }
    }
}

#[test]
fn what_parity_knows_of_a_bad_page_goes_to_another_one() {
    let (memory, pool, ino, bytes) = made(Protection::Full);
    let pages = [0, 3, 5].map(|page| page_of(&pool, ino, page));
    for (page, (at, len)) in pages.iter().zip([(512, 512), (64, 64), (3600, 64)]) {
        memory.poison(page * PAGE + at, len);
    }
    let moved = [0, 3, 5].map(|page| (page * PAGE, Outcome::Repaired));
    assert_eq!(outcomes(&scrubbed(&pool)), moved);
    assert_eq!(scrubbed(&pool), []);
    for (page, bad) in [0, 3, 5].into_iter().zip(pages) {
        assert_ne!(page_of(&pool, ino, page), bad);
    }
    let kept = pool.bad_memory().unwrap();
    assert!(kept.len() == 3 && kept.iter().all(|bad| !bad.in_use), "{kept:?}");
    same(&pool, ino, &bytes);
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
    let pool = open(&memory, false);
    same(&pool, ino, &bytes);
    assert_eq!(memory.machine_checks(), 0);
}

#[test]
fn a_log_leaves_memory_that_stays_bad() {
    for protection in [Protection::Metadata, Protection::Full] {
        let (memory, pool, ino, bytes) = made(protection);
        for name in 0..40 {
            let (name, when) = (format!("user.{name}"), XattrWhen::Always);
            let change = XattrChange { name: name.as_bytes(), value: Some(b"value"), when };
            pool.setxattr(ino, &change).unwrap();
        }
        let log = |pool: &BadPool| -> Vec<u64> {
            let pages = pool.dump_inode(ino).unwrap().log_pages;
            pages.into_iter().map(|at| at / PAGE).collect()
        };
        let before = log(&pool);
        assert!(before.len() > 1);
        memory.poison(before[1] * PAGE + 64, 64);
        let found = scrubbed(&pool);
        let moved = |one: &Finding| (one.what, one.outcome) == (What::Metadata, Outcome::Repaired);
        assert!(found.len() == 1 && moved(&found[0]), "{found:?}");
        assert!(log(&pool).iter().all(|page| *page != before[1]));
        assert_eq!(scrubbed(&pool), []);
        let kept = |bad: &BadPage| bad.page == before[1] && !bad.in_use;
        pool.maintain().unwrap();
        assert!(pool.bad_memory().unwrap().iter().all(kept));
        same(&pool, ino, &bytes);
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
    }
}

#[test]
fn what_a_snapshot_sees_of_a_bad_page_is_kept_when_the_file_has_left_it() {
    let (memory, pool, ino, bytes) = made(Protection::Full);
    pool.create_snapshot(b"before").unwrap();
    let page = page_of(&pool, ino, 2);
    memory.poison(page * PAGE + 512, 64);
    let root = pool.snapshot_root(b"before").unwrap();
    let [moved, stays] = scrubbed(&pool)[..] else { panic!("something else") };
    assert_eq!((moved.ino, moved.outcome), (ino, Outcome::Repaired));
    assert_eq!((stays.ino, stays.outcome), (ino_beside(ino, root), Outcome::Left));
    assert_eq!([moved.offset, stays.offset], [2 * PAGE; 2]);
    assert_ne!(page_of(&pool, ino, 2), page);
    // It is somebody's, and stays so when it can be loaded again.
    memory.mend(page * PAGE, PAGE);
    scrubbed(&pool);
    pool.maintain().unwrap();
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    let other = pool.create(pool.root(), b"other", &new).unwrap().ino;
    let mut size = 0;
    while pool.write(other, size, &[3; PAGE as usize]).is_ok() {
        size += PAGE;
    }
    let seen = pool.lookup(pool.snapshot_root(b"before").unwrap(), b"file").unwrap().ino;
    same(&pool, seen, &bytes);
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}

#[test]
fn a_pool_with_file_data_that_is_lost_stays_at_level_full() {
    let (memory, pool, ino, bytes) = made(Protection::Full);
    let page = page_of(&pool, ino, 3);
    pool.close().unwrap();
    drop(pool);
    let protect = |to| Pool::protect(memory.clone(), TestHost::new(3), to, 0, &mut |_, _| ());
    // What parity knows is moved before it is forgotten.
    memory.poison(page * PAGE + 512, 64);
    let image = memory.inner().image();
    assert_eq!(protect(Protection::Metadata), Ok(true));
    same(&open(&memory, true), ino, &bytes);
    // What nothing knows any more is not taken for good.
    let memory = Poisoned::new(Memory::from_image(&image), Healing::Never);
    for strip in [1, 3] {
        scribble(&memory, page * PAGE + strip * 520);
    }
    for to in [Protection::Metadata, Protection::None] {
        let refused = Pool::protect(memory.clone(), TestHost::new(3), to, 0, &mut |_, _| ());
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
    }
    let pool = open(&memory, true);
    assert_eq!(pool.info().unwrap().protection, Protection::Full);
}

#[test]
fn a_pool_with_data_that_only_a_snapshot_has_and_that_is_lost_stays_at_level_full() {
    let (memory, pool, ino, bytes) = made(Protection::Full);
    let page = page_of(&pool, ino, 3);
    pool.create_snapshot(b"before").unwrap();
    pool.write(ino, 0, &vec![9; bytes.len()]).unwrap();
    pool.close().unwrap();
    drop(pool);
    // What parity knows is mended before it is forgotten.
    scribble(&memory, page * PAGE + 520);
    let image = memory.inner().image();
    let protect = |memory: &Poisoned<Memory>, to| {
        Pool::protect(memory.clone(), TestHost::new(3), to, 0, &mut |_, _| ())
    };
    assert_eq!(protect(&memory, Protection::None), Ok(true));
    let pool = open(&memory, true);
    let seen = pool.lookup(pool.snapshot_root(b"before").unwrap(), b"file").unwrap().ino;
    same(&pool, seen, &bytes);
    let memory = Poisoned::new(Memory::from_image(&image), Healing::Never);
    scribble(&memory, page * PAGE + 3 * 520);
    for to in [Protection::Metadata, Protection::None] {
        let refused = protect(&memory, to);
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
    }
    assert_eq!(open(&memory, true).info().unwrap().protection, Protection::Full);
}

/// (What a crash may have torn is told of when the pool has been opened for writing. Where it can't have been torn, it is told of at once.)
#[test]
fn a_damaged_link_behind_the_end_of_a_log_is_told_of_read_only_too() {
    for is_closed in [true, false] {
        let (memory, pool, ino, _) = made(Protection::None);
        if is_closed {
            pool.close().unwrap();
        }
        drop(pool);
        scribble(&memory, ino * 512 + 40);
        let found = scrubbed(&open(&memory, true));
        let found: Vec<_> = found.iter().map(|it| (it.what, it.outcome)).collect();
        assert_eq!(found, [(What::Metadata, Outcome::Lost)], "{is_closed}");
    }
}
