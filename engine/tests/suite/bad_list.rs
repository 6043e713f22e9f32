//! The list of bad memory: it outlives sessions, nobody gets such pages, and what is stored over bad bytes of a file is good.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use lode_engine::layout::{BAD_AT, BAD_PAGES_MOST, Superblock};
use lode_engine::{
    AccessTimes, BadPage, Error, Fallocate, FormatOptions, Ino, NewInode, OpenOptions, Pool,
    Protection, SetAttr, mode,
};
use lode_testkit::format::PAGE;
use lode_testkit::rng::Rng;
use lode_testkit::{Healing, Memory, Poisoned, TestHost};

type Bad = Poisoned<Memory>;
type BadPool = Pool<Bad, TestHost>;

const BYTES: u64 = 8 << 20;
const PAGE_U64: u64 = PAGE as u64;
const LEVELS: [Protection; 3] = [Protection::None, Protection::Metadata, Protection::Full];

fn made(protection: Protection) -> Bad {
    let memory = Poisoned::new(Memory::new(BYTES), Healing::Never);
    let format = FormatOptions { lanes: 2, protection, dead_zone: 0, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    memory
}

fn open(memory: &Bad) -> BadPool {
    let options = OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() };
    Pool::open(memory.clone(), TestHost::new(2), &options).unwrap()
}

fn create(pool: &BadPool, name: &str) -> Ino {
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    pool.create(pool.root(), name.as_bytes(), &new).unwrap().ino
}

/// Where in the pool a byte of a file is.
fn place(pool: &BadPool, ino: Ino, offset: u64) -> u64 {
    let extents = pool.dump_inode(ino).unwrap().extents;
    let has = |from: u64, bytes: u64| (from..from + bytes).contains(&offset);
    let one = extents.iter().find(|one| has(one.file_offset, one.bytes)).unwrap();
    one.pool_offset + offset - one.file_offset
}

/// Pages that a file's data is in.
fn pages(pool: &BadPool, ino: Ino) -> Vec<u64> {
    let extents = pool.dump_inode(ino).unwrap().extents;
    let runs = extents.iter().map(|one| (one.pool_offset / PAGE_U64, one.bytes.div_ceil(PAGE_U64)));
    runs.flat_map(|(page, pages)| page..page + pages).collect()
}

fn sound(pool: &BadPool) {
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}

/// A pool with a file of 40 pages, of which two lines of the fourth are bad, and that is known.
fn with_bad_page(protection: Protection) -> (Bad, BadPool, Ino, BadPage) {
    let memory = made(protection);
    let pool = open(&memory);
    let ino = create(&pool, "file");
    pool.write(ino, 0, &vec![7; 40 * PAGE]).unwrap();
    let at = place(&pool, ino, 3 * PAGE_U64);
    // Of one strip: parity has it.
    memory.poison(at + 64, 128);
    let read = pool.read(ino, 3 * PAGE_U64, &mut [0; PAGE]);
    match protection {
        Protection::Full => assert_eq!(read, Ok(PAGE)),
        _ => assert!(matches!(read, Err(Error::Media { .. })), "{read:?}"),
    }
    let bad = BadPage { page: at / PAGE_U64, lines: 0b110, in_use: true };
    assert_eq!(pool.bad_memory().unwrap(), [bad]);
    (memory, pool, ino, bad)
}

#[test]
fn the_list_outlives_sessions_that_end_and_those_that_do_not() {
    for protection in LEVELS {
        for is_closed in [false, true] {
            let (memory, pool, _, bad) = with_bad_page(protection);
            if is_closed {
                pool.close().unwrap()
            } else {
                pool.maintain().unwrap()
            };
            drop(pool);
            for _ in 0..2 {
                let pool = open(&memory);
                assert_eq!(pool.opening().clean, is_closed, "{protection:?}");
                assert_eq!(pool.bad_memory().unwrap(), [bad], "{protection:?}");
                sound(&pool);
                if is_closed {
                    pool.close().unwrap();
                }
            }
        }
    }
}

#[test]
fn a_bad_page_that_nobody_needs_any_more_is_given_to_nobody() {
    for (protection, is_closed) in LEVELS.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let (memory, mut pool, _, bad) = with_bad_page(protection);
        pool.unlink(pool.root(), b"file").unwrap();
        let reopened = |pool: BadPool| {
            if is_closed {
                pool.close().unwrap()
            } else {
                pool.maintain().unwrap()
            }
            drop(pool);
            let pool = open(&memory);
            assert_eq!(pool.opening().clean, is_closed);
            pool
        };
        // Now, and in the sessions that follow.
        for round in 0..3 {
            let name = format!("all {round}");
            let ino = create(&pool, &name);
            let mut size = 0;
            while pool.write(ino, size, &[3; PAGE]).is_ok() {
                size += PAGE_U64;
            }
            assert!(size > BYTES / 2, "{protection:?}: {size}");
            assert!(!pages(&pool, ino).contains(&bad.page), "{protection:?}, round {round}");
            sound(&pool);
            pool.unlink(pool.root(), name.as_bytes()).unwrap();
            pool = reopened(pool);
        }
        let kept = BadPage { in_use: false, ..bad };
        assert_eq!((pool.bad_memory().unwrap(), memory.machine_checks()), (vec![kept], 0));
    }
}

#[test]
fn a_page_that_goes_bad_while_it_is_free_is_given_to_nobody_once_that_is_known() {
    let memory = made(Protection::None);
    let pool = open(&memory);
    let (first, second) = (create(&pool, "first"), create(&pool, "second"));
    pool.write(first, 0, &[1; PAGE]).unwrap();
    pool.write(second, 0, &vec![1; 8 * PAGE]).unwrap();
    let page = place(&pool, second, 4 * PAGE_U64) / PAGE_U64;
    memory.poison(page * PAGE_U64, 64);
    assert!(pool.read(second, 0, &mut vec![0; 8 * PAGE]).is_err());
    let size = Some(0);
    pool.setattr(second, &SetAttr { size, ..SetAttr::default() }).unwrap();
    pool.maintain().unwrap();
    for at in 0..2000 {
        if pool.write(first, at * PAGE_U64, &[2; PAGE]).is_err() {
            break;
        }
    }
    assert!(!pages(&pool, first).contains(&page));
}

fn scrubbed(pool: &BadPool) {
    let mut scrub = pool.begin_scrub().unwrap();
    while !scrub.is_over() {
        pool.scrub(&mut scrub, 1 << 20).unwrap();
    }
}

#[test]
fn a_page_that_nobody_uses_and_that_is_good_again_is_free() {
    for (protection, reopened) in LEVELS.into_iter().flat_map(|it| (0..3).map(move |how| (it, how)))
    {
        let (memory, mut pool, _, bad) = with_bad_page(protection);
        let free = |pool: &BadPool| pool.statfs().pages_free;
        pool.unlink(pool.root(), b"file").unwrap();
        pool.maintain().unwrap();
        if reopened > 0 {
            if reopened > 1 {
                pool.close().unwrap();
            }
            pool = open(&memory);
        }
        let before = free(&pool);
        let kept = BadPage { in_use: false, ..bad };
        scrubbed(&pool);
        assert_eq!((pool.bad_memory().unwrap(), free(&pool)), (vec![kept], before));
        sound(&pool);
        memory.mend(bad.page * PAGE_U64, PAGE_U64);
        scrubbed(&pool);
        assert_eq!((pool.bad_memory().unwrap(), free(&pool)), (vec![], before + 1));
        sound(&pool);
        pool.close().unwrap();
        let pool = open(&memory);
        assert_eq!((pool.bad_memory().unwrap(), free(&pool)), (vec![], before + 1));
    }
}

#[test]
fn bytes_that_were_lost_are_not_what_the_memory_gives_later() {
    for protection in [Protection::None, Protection::Metadata] {
        let (memory, mut pool, ino, bad) = with_bad_page(protection);
        // As the kernel does that is told to forget an error.
        memory.inner().put(bad.page * PAGE_U64 + 64, &[0; 128]);
        memory.mend(bad.page * PAGE_U64, PAGE_U64);
        for _ in 0..2 {
            let mut part = [0; 100];
            let lost = pool.read(ino, 3 * PAGE_U64 + 50, &mut part);
            assert!(matches!(lost, Err(Error::Media { .. })), "{lost:?}");
            assert_eq!(pool.read(ino, 3 * PAGE_U64 + 192, &mut part), Ok(100));
            assert_eq!(part, [7; 100]);
            scrubbed(&pool);
            pool.maintain().unwrap();
            pool = open(&memory);
        }
        pool.write(ino, 3 * PAGE_U64 + 60, &[8; 140]).unwrap();
        let mut page = [0; PAGE];
        assert_eq!(pool.read(ino, 3 * PAGE_U64, &mut page), Ok(PAGE));
        assert!(
            page[..60] == [7; 60] && page[60..200] == [8; 140] && page[200..] == [7; PAGE - 200]
        );
        scrubbed(&pool);
        assert_eq!(pool.bad_memory().unwrap(), []);
        sound(&pool);
    }
}

#[test]
fn a_list_that_is_damaged_in_one_copy_is_the_other_one_and_in_both_is_begun_anew() {
    for places in [vec![0], vec![1], vec![0, 1]] {
        for protection in LEVELS {
            let (memory, pool, _, bad) = with_bad_page(protection);
            pool.close().unwrap();
            drop(pool);
            for place in &places {
                let at = Superblock::places(BYTES / PAGE_U64)[*place] + BAD_AT;
                let byte = memory.inner().get(at + 8, 1)[0];
                memory.inner().put(at + 8, &[byte ^ 16]);
            }
            let pool = open(&memory);
            let wanted = if places.len() == 2 { vec![] } else { vec![bad] };
            assert_eq!(pool.bad_memory().unwrap(), wanted, "{protection:?}, {places:?}");
            assert!(!pool.opening().superblock_damage.is_empty());
            sound(&pool);
            pool.close().unwrap();
            let pool = open(&memory);
            assert!(pool.opening().superblock_damage.is_empty());
        }
    }
}

#[test]
fn more_pages_than_the_list_has_room_for_are_known_to_the_session_at_least() {
    let memory = made(Protection::None);
    let pool = open(&memory);
    let ino = create(&pool, "file");
    let count = BAD_PAGES_MOST + 30;
    pool.write(ino, 0, &vec![7; count * PAGE]).unwrap();
    memory.poison(place(&pool, ino, 0), (count * PAGE) as u64);
    for page in 0..count {
        assert!(pool.read(ino, (page * PAGE) as u64, &mut [0; 1]).is_err());
    }
    assert_eq!(pool.bad_memory().unwrap().len(), count);
    pool.close().unwrap();
    let pool = open(&memory);
    assert_eq!(pool.bad_memory().unwrap().len(), BAD_PAGES_MOST);
    sound(&pool);
}

#[test]
fn a_session_that_ends_with_a_full_list_ends_cleanly() {
    for (protection, is_whole) in LEVELS.into_iter().flat_map(|it| [(it, true), (it, false)]) {
        let memory = made(protection);
        let mut pool = open(&memory);
        let ino = create(&pool, "file");
        let count = if is_whole { BAD_PAGES_MOST } else { BAD_PAGES_MOST - 1 };
        pool.write(ino, 0, &vec![7; count * PAGE]).unwrap();
        for page in pages(&pool, ino) {
            memory.poison(page * PAGE_U64, 64);
        }
        for page in 0..count {
            let _ = pool.read(ino, (page * PAGE) as u64, &mut [0; 1]);
        }
        pool.unlink(pool.root(), b"file").unwrap();
        pool.maintain().unwrap();
        for round in 0..3 {
            drop(pool);
            pool = open(&memory);
            create(&pool, &format!("of round {round}"));
            pool.close().unwrap();
            pool = open(&memory);
            assert_eq!(pool.bad_memory().unwrap().len(), count);
            assert!(pool.opening().clean, "{protection:?}, {count} pages, round {round}");
            sound(&pool);
        }
    }
}

/// A file, and what it has to be: each byte, and whether it may be lost.
struct Shadow {
    bytes: Vec<u8>,
    lost: Vec<bool>,
}

impl Shadow {
    fn read(&self, pool: &BadPool, ino: Ino, offset: usize, len: usize, case: &str) {
        let mut into = vec![0; len];
        match pool.read(ino, offset as u64, &mut into) {
            Ok(read) => {
                let end = self.bytes.len().min(offset + len).max(offset);
                let wanted = self.bytes.get(offset..end).unwrap_or_default();
                assert!(into[..read] == *wanted, "{case}: read of {len} at {offset}");
            }
            Err(Error::Media { .. } | Error::Corrupt(_)) => {
                let end = self.lost.len().min(offset + len);
                assert!(self.lost[offset..end].contains(&true), "{case}: {len} at {offset}");
            }
            Err(error) => panic!("{case}: {error:?}"),
        }
    }

    /// Bytes that were written, or that a page of what was written holds beside them.
    fn write(&mut self, pool: &BadPool, ino: Ino, offset: usize, data: &[u8], case: &str) {
        match pool.write(ino, offset as u64, data) {
            Ok(()) => {
                let end = self.bytes.len().max(offset + data.len());
                self.bytes.resize(end, 0);
                self.lost.resize(end, false);
                self.bytes[offset..offset + data.len()].copy_from_slice(data);
                self.lost[offset..offset + data.len()].fill(false);
            }
            Err(Error::Media { .. } | Error::Corrupt(_)) => {
                let end = (offset + data.len()).next_multiple_of(PAGE).min(self.lost.len());
                let start =
                    (offset / PAGE * PAGE).min(self.lost.len().saturating_sub(1) / PAGE * PAGE);
                assert!(self.lost[start..end].contains(&true), "{case}: write at {offset}");
            }
            Err(error) => panic!("{case}: {error:?}"),
        }
    }
}

#[test]
fn no_byte_is_wrong_and_none_is_lost_but_those_of_bad_lines_until_they_are_written() {
    for (seed, protection) in (0..150).map(|seed| (seed, LEVELS[seed as usize % 3])) {
        let (memory, mut rng) = (made(protection), Rng::new(seed));
        let mut pool = open(&memory);
        let ino = create(&pool, "file");
        let mut shadow = Shadow { bytes: vec![], lost: vec![] };
        for step in 0..120 {
            let case = format!("seed {seed}, step {step}, {protection:?}");
            let len = [10, 64, 700, PAGE, 3 * PAGE][rng.below(5) as usize];
            let offset = rng.below(shadow.bytes.len() as u64 + 1) as usize;
            match rng.below(8) {
                0..4 => shadow.write(&pool, ino, offset, &vec![rng.below(256) as u8; len], &case),
                4 if !shadow.bytes.is_empty() => {
                    let offset = offset.min(shadow.bytes.len() - 1);
                    let len = [64, 512][rng.below(2) as usize];
                    let at = place(&pool, ino, offset as u64) / 64 * 64;
                    // (Not in a free page, nor behind the size: nobody would meet that before it is in use.)
                    let last = place(&pool, ino, shadow.bytes.len() as u64 - 1);
                    let is_last = last / PAGE_U64 == at / PAGE_U64;
                    let end =
                        if is_last { last / 64 * 64 + 64 } else { (at / PAGE_U64 + 1) * PAGE_U64 };
                    memory.poison(at, len.min(end - at));
                    // (A strip that is not whole can't be compared with its checksum.)
                    let unit = if protection == Protection::Full { 512 } else { 64 };
                    mark(&memory, &pool, ino, unit, &mut shadow);
                    // Somebody meets it: until then nobody can know.
                    for page in (0..shadow.bytes.len()).step_by(PAGE) {
                        shadow.read(&pool, ino, page, PAGE, &case);
                    }
                }
                5 => {
                    let to =
                        [shadow.bytes.len() * 2 / 3, shadow.bytes.len()][rng.below(2) as usize];
                    let change = SetAttr { size: Some(to as u64), ..SetAttr::default() };
                    if pool.setattr(ino, &change).is_ok() {
                        shadow.bytes.truncate(to);
                        shadow.lost.truncate(to);
                    }
                }
                6 if rng.below(4) == 0 => {
                    if rng.below(2) == 0 {
                        pool.close().unwrap()
                    } else {
                        pool.maintain().unwrap()
                    }
                    pool = open(&memory);
                }
                _ => shadow.read(&pool, ino, offset, len, &case),
            }
        }
        for at in (0..shadow.bytes.len()).step_by(64) {
            shadow.read(&pool, ino, at, 64, &format!("seed {seed}, {protection:?}"));
        }
        sound(&pool);
        assert_eq!(memory.machine_checks(), 0, "seed {seed}, {protection:?}");
    }
}

/// Marks all bytes in units with a bad line.
fn mark(memory: &Bad, pool: &BadPool, ino: Ino, unit: usize, shadow: &mut Shadow) {
    let bad = memory.bad();
    for one in pool.dump_inode(ino).unwrap().extents {
        for line in
            bad.iter().filter(|at| (one.pool_offset..one.pool_offset + one.bytes).contains(at))
        {
            let from = (line - one.pool_offset + one.file_offset) as usize / unit * unit;
            let end = (from + unit).min(shadow.lost.len());
            if from < end {
                shadow.lost[from..end].fill(true);
            }
        }
    }
}

#[test]
fn a_pool_with_lost_bytes_gets_no_checksums_of_what_the_memory_gives_for_them() {
    let (memory, pool, _, bad) = with_bad_page(Protection::Metadata);
    pool.close().unwrap();
    drop(pool);
    memory.mend(bad.page * PAGE_U64, PAGE_U64);
    let refused =
        Pool::protect(memory.clone(), TestHost::new(3), Protection::Full, 0, &mut |_, _| ());
    assert_eq!(refused, Err(Error::Media { at: bad.page * PAGE_U64 + 64 }));
    assert_eq!(open(&memory).info().unwrap().protection, Protection::Metadata);
}

#[test]
fn no_page_is_given_back_of_which_the_medium_still_says_that_it_is_bad() {
    for protection in LEVELS {
        let (memory, pool, _, bad) = with_bad_page(protection);
        pool.unlink(pool.root(), b"file").unwrap();
        pool.maintain().unwrap();
        memory.mend(bad.page * PAGE_U64, PAGE_U64);
        let mut scrub = pool.begin_scrub().unwrap();
        pool.scrub(&mut scrub, 1).unwrap();
        // All that is free is taken, and a crash follows.
        let ino = create(&pool, "all");
        let mut size = 0;
        while pool.write(ino, size, &[3; PAGE]).is_ok() {
            size += PAGE_U64;
        }
        assert!(pages(&pool, ino).contains(&bad.page), "{protection:?}");
        drop(pool);
        let pool = open(&memory);
        let mut read = vec![0; size as usize];
        assert_eq!(pool.read(ino, 0, &mut read), Ok(size as usize), "{protection:?}");
        assert!(read.iter().all(|byte| *byte == 3));
        sound(&pool);
    }
}

#[test]
fn a_log_page_that_is_bad_when_the_session_ends_is_kept_from_use() {
    let memory = made(Protection::Metadata);
    let pool = open(&memory);
    let ino = create(&pool, "file");
    for at in 0..400 {
        pool.write(ino, at * 8192, &[1; 10]).unwrap();
    }
    let page = pool.dump_inode(ino).unwrap().log_pages[1] / PAGE_U64;
    memory.poison(page * PAGE_U64 + 64, 64);
    scrubbed(&pool);
    pool.close().unwrap();
    for _ in 0..2 {
        let pool = open(&memory);
        let kept = BadPage { page, lines: 2, in_use: false };
        assert_eq!(pool.bad_memory().unwrap(), [kept]);
        sound(&pool);
        pool.close().unwrap();
    }
}

/// Where the list has bad memory, nothing that is there is taken for what was written.
#[test]
fn a_handle_that_knew_the_place_of_what_is_bad_now_gives_an_error() {
    let memory = Poisoned::new(Memory::new(32 << 20), Healing::Never);
    Pool::format(memory.clone(), TestHost::new(1), &FormatOptions::default()).unwrap();
    let pool = open(&memory);
    let ino = create(&pool, "file");
    let all = Fallocate::Allocate { keep_size: false };
    pool.fallocate(ino, all, 0, 4 << 20).unwrap();
    pool.write(ino, 0, &vec![7; 4 << 20]).unwrap();
    let (file, mut page) = (pool.hold(ino).unwrap(), [0; PAGE]);
    for _ in 0..2 {
        assert_eq!(pool.read_held_quietly(&file, 8 * PAGE_U64, &mut page), Ok(PAGE));
    }
    let at = place(&pool, ino, 8 * PAGE_U64);
    memory.poison(at, 64);
    let read = pool.read(ino, 8 * PAGE_U64, &mut page);
    assert!(matches!(read, Err(Error::Media { .. })), "{read:?}");
    // It can be loaded again, and has something.
    memory.mend(at, 64);
    let read = pool.read_held_quietly(&file, 8 * PAGE_U64, &mut page);
    assert!(matches!(read, Err(Error::Media { .. })), "{read:?}");
    pool.let_go(file);
}

/// What a scrub moves out of bad memory leaves pages that only the list keeps from use: where that is full, it stays.
#[test]
fn what_the_list_has_no_room_for_is_not_moved_out_of_bad_memory() {
    let memory = made(Protection::Full);
    let pool = open(&memory);
    let (ino, count) = (create(&pool, "file"), BAD_PAGES_MOST as u64 + 30);
    let bytes = vec![7; (count * PAGE_U64) as usize];
    pool.write(ino, 0, &bytes).unwrap();
    let bad = pages(&pool, ino);
    bad.iter().for_each(|page| memory.poison(page * PAGE_U64 + 64, 64));
    scrubbed(&pool);
    let left = pages(&pool, ino).iter().filter(|page| bad.contains(page)).count();
    assert_eq!(left, 30);
    // The power fails, and all that is free is taken.
    drop(pool);
    let pool = open(&memory);
    let all = create(&pool, "all");
    let mut size = 0;
    while pool.write(all, size, &[3; PAGE]).is_ok() {
        size += PAGE_U64;
    }
    let taken = pages(&pool, all);
    assert!(size > BYTES / 4 && !taken.iter().any(|page| bad.contains(page)), "{size}");
    let mut read = vec![0; bytes.len()];
    assert_eq!(pool.read(ino, 0, &mut read), Ok(read.len()));
    assert!(read == bytes);
    sound(&pool);
}
