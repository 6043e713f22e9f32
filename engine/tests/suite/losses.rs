//! Memory that has lost what it had been given, and memory that the system knows to be bad before it is loaded.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::num::NonZeroU32;

use lode_engine::{
    Error, FormatOptions, Ino, NewInode, OpenOptions, Pool, Protection, Result, mode,
};
use lode_pmem::Losses;
use lode_testkit::format::PAGE;
use lode_testkit::{Healing, Memory, Poisoned, TestHost};

const BYTES: u64 = 8 << 20;
const PAGE_U64: u64 = PAGE as u64;
const LEVELS: [Protection; 3] = [Protection::None, Protection::Metadata, Protection::Full];

fn losses(of: u32, count: u64) -> Option<Losses> {
    Some(Losses { of: NonZeroU32::new(of).unwrap(), count })
}

fn format(memory: &Memory, protection: Protection) {
    let format = FormatOptions { lanes: 2, protection, dead_zone: 0, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
}

fn open(memory: &Memory, read_only: bool) -> Result<Pool<Memory, TestHost>> {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Pool::open(memory.clone(), TestHost::new(2), &options)
}

fn file<M: lode_pmem::Medium>(pool: &Pool<M, TestHost>, name: &str) -> Ino {
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    let ino = pool.create(pool.root(), name.as_bytes(), &new).unwrap().ino;
    pool.write(ino, 0, &[7; 3 * PAGE]).unwrap();
    ino
}

/// A closed pool with two files, whose memory has lost what was stored five times before; and where the log of the second
/// one begins.
fn made(protection: Protection) -> (Memory, u64) {
    let memory = Memory::new(BYTES);
    memory.tell_losses(losses(1, 5));
    format(&memory, protection);
    let pool = open(&memory, false).unwrap();
    file(&pool, "one");
    let ino = file(&pool, "two");
    let log = pool.dump_inode(ino).unwrap().records.first().unwrap().at;
    pool.close().unwrap();
    (memory, log)
}

/// Damages a line of metadata so that an opening by the checkpoint does not see it.
fn damage(memory: &Memory, at: u64) {
    memory.put(at + 9, &[0x5a; 7]);
}

#[test]
fn what_the_memory_lost_before_is_known_and_costs_nothing() {
    for protection in LEVELS {
        let (memory, log) = made(protection);
        let pool = open(&memory, false).unwrap();
        assert_eq!(pool.opening().losses, 0);
        assert_eq!(pool.info().unwrap().losses, losses(1, 5));
        pool.close().unwrap();
        // A closed pool whose memory has kept its promise is believed: what is damaged is met by who loads it.
        damage(&memory, log);
        open(&memory, false).unwrap();
    }
}

#[test]
fn a_pool_whose_memory_has_lost_something_is_opened_once_all_of_it_was_checked() {
    for protection in LEVELS {
        for is_closed in [true, false] {
            let (memory, _) = made(protection);
            if !is_closed {
                file(&open(&memory, false).unwrap(), "three");
            }
            memory.tell_losses(losses(1, 7));
            // To look at it is not to have it checked.
            let pool = open(&memory, true).unwrap();
            assert_eq!((pool.opening().losses, pool.info().unwrap().losses), (2, losses(1, 5)));
            let pool = open(&memory, false).unwrap();
            assert_eq!((pool.opening().losses, pool.info().unwrap().losses), (2, losses(1, 7)));
            assert_eq!(pool.opening().clean, is_closed);
            assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
            drop(pool);
            assert_eq!(open(&memory, false).unwrap().opening().losses, 0);
        }
    }
}

#[test]
fn a_pool_whose_memory_has_lost_some_of_it_is_not_opened_and_stays_as_it_is() {
    let (memory, log) = made(Protection::None);
    damage(&memory, log);
    memory.tell_losses(losses(1, 6));
    let before = memory.image();
    for _ in 0..2 {
        let failed = open(&memory, false).err();
        assert!(matches!(failed, Some(Error::Lost(_))), "{failed:?}");
        assert!(memory.image() == before);
    }
    assert_eq!(open(&memory, true).unwrap().opening().losses, 1);
    Pool::salvage(memory.clone(), TestHost::new(3), &mut |_| ()).unwrap();
    let pool = open(&memory, false).unwrap();
    assert_eq!((pool.opening().losses, pool.info().unwrap().losses), (0, losses(1, 6)));
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}

#[test]
fn what_was_lost_of_one_copy_is_mended_from_the_other() {
    for protection in [Protection::Metadata, Protection::Full] {
        let (memory, log) = made(protection);
        let whole = memory.get(log, 64);
        damage(&memory, log);
        memory.tell_losses(losses(1, 4));
        let pool = open(&memory, false).unwrap();
        assert_eq!((pool.opening().losses, memory.get(log, 64)), (1, whole));
    }
}

#[test]
fn other_memory_has_another_number() {
    let (memory, log) = made(Protection::None);
    damage(&memory, log);
    memory.tell_losses(losses(2, 9));
    let pool = open(&memory, false).unwrap();
    assert_eq!((pool.opening().losses, pool.info().unwrap().losses), (0, losses(2, 9)));
    pool.close().unwrap();
    // What does not tell for once has not forgotten.
    memory.tell_losses(None);
    assert_eq!(open(&memory, false).unwrap().info().unwrap().losses, losses(2, 9));
}

#[test]
fn memory_that_is_listed_as_bad_is_given_to_nobody_and_known_before_it_is_loaded() {
    for protection in LEVELS {
        let inner = Memory::new(BYTES);
        format(&inner, protection);
        let memory = Poisoned::new(inner.clone(), Healing::Never);
        let open = || Pool::open(memory.clone(), TestHost::new(2), &OpenOptions::default());
        let pool = open().unwrap();
        let ino = file(&pool, "file");
        let data = pool.dump_inode(ino).unwrap().extents[0].pool_offset;
        pool.close().unwrap();
        let free = BYTES / 2 + 37 * PAGE_U64;
        for at in [data + PAGE_U64 + 512, free] {
            inner.list_bad(at, 512);
            memory.poison(at, 512);
        }
        // Beyond the pool, or more than there is: nobody's.
        inner.list_bad(BYTES - 512, u64::MAX);
        inner.list_bad(u64::MAX - 5, 5);
        let pool = open().unwrap();
        let bad = pool.bad_memory().unwrap();
        let lines = |page: u64| bad.iter().find(|bad| bad.page == page).map(|bad| bad.lines);
        assert_eq!(lines(data / PAGE_U64 + 1), Some(0xff00), "{bad:?}");
        assert_eq!(lines(free / PAGE_U64), Some(0xff));
        assert!(!bad.iter().find(|bad| bad.page == free / PAGE_U64).unwrap().in_use);
        let new = file(&pool, "all the rest");
        let mut at = 0;
        while pool.write(new, at, &[1; 16 * PAGE]).is_ok() {
            at += 16 * PAGE_U64;
        }
        let extents = pool.dump_inode(new).unwrap().extents;
        let has = |one: &lode_engine::ExtentDump| {
            (one.pool_offset..one.pool_offset + one.bytes).contains(&free)
        };
        assert!(!extents.iter().any(has) && at > BYTES / 2, "{at}");
        drop(pool);
        // It is on the medium, too: the system need not say it again.
        let pool = Pool::open(inner.copy(), TestHost::new(2), &OpenOptions::default()).unwrap();
        assert!(pool.bad_memory().unwrap().len() >= 2);
    }
}
