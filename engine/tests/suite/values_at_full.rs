//! Values of extended attributes that have pages of their own, at level `full`: they are protected as file data is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use lode_engine::layout::{CrcTable, Strips, Superblock};
use lode_engine::{
    AccessTimes, Finding, FormatOptions, Ino, NewInode, OpenOptions, Outcome, Pool, Protection,
    What, XattrChange, XattrWhen, mode,
};
use lode_testkit::{Healing, Memory, Poisoned, TestHost};

type Bad = Poisoned<Memory>;

const PAGE: u64 = 4096;
const NAME: &[u8] = b"user.long";

/// A pool with a file that has one value, in pages that lie side by side.
struct Made {
    memory: Bad,
    pool: Pool<Bad, TestHost>,
    ino: Ino,
    value: Vec<u8>,
    strips: Strips,
    /// The first of them.
    page: u64,
}

fn open(memory: &Bad, read_only: bool) -> Pool<Bad, TestHost> {
    let atime = AccessTimes::Never;
    let options = OpenOptions { read_only, atime, ..OpenOptions::default() };
    Pool::open(memory.clone(), TestHost::new(2), &options).unwrap()
}

fn made_at(protection: Protection, healing: Healing) -> Made {
    let memory = Poisoned::new(Memory::new(8 << 20), healing);
    let format = FormatOptions { protection, dead_zone: 0, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let pool = open(&memory, false);
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    let ino = pool.create(pool.root(), b"file", &new).unwrap().ino;
    let value: Vec<u8> = (0..9000u32).map(|at| (at * at / 11) as u8).collect();
    let change = XattrChange { name: NAME, value: Some(&value), when: XattrWhen::Always };
    pool.setxattr(ino, &change).unwrap();
    let image = memory.inner().image();
    let strips = Superblock::parse(image[..512].try_into().unwrap()).unwrap().geometry().strips;
    let at = image.windows(4096).position(|window| *window == value[..4096]).unwrap() as u64;
    assert!(image[at as usize..][..9000] == value, "in one run");
    Made { memory, pool, ino, value, strips, page: at / PAGE }
}

fn made(healing: Healing) -> Made {
    made_at(Protection::Full, healing)
}

impl Made {
    /// Of a page of the value: a byte of its second strip, of its two checksums, and of its parity.
    fn places(&self, page: u64) -> [u64; 4] {
        let (page, strip) = (self.page + page, self.strips.bytes());
        let crc = |table| self.strips.crcs_at(page, table) + 4;
        let parity = self.strips.parity_at(page) + 100;
        [page * PAGE + strip + 100, crc(CrcTable::First), crc(CrcTable::Second), parity]
    }

    fn flip(&self, at: u64) {
        let byte = self.memory.inner().get(at, 1)[0];
        self.memory.inner().put(at, &[byte ^ 0x40]);
    }

    fn reads(&self) -> bool {
        let read = self.pool.getxattr(self.ino, NAME);
        assert!(read.as_ref().is_ok_and(|it| *it == self.value) || read.is_err());
        read.is_ok()
    }

    fn scrub(&self) -> Vec<(What, Outcome)> {
        let mut scrub = self.pool.begin_scrub().unwrap();
        let mut found: Vec<Finding> = Vec::new();
        while !scrub.is_over() {
            self.pool.scrub(&mut scrub, 10_000).unwrap();
            found.extend(scrub.take_findings());
        }
        found.iter().map(|one| (one.what, one.outcome)).collect()
    }

    fn is_sound(&self) {
        let report = self.pool.check(&mut |_, _| ()).unwrap();
        assert_eq!(report.damage, []);
    }
}

#[test]
fn a_scrub_makes_each_of_value_checksums_and_parity_right_from_the_others() {
    for page in 0..3 {
        for which in 0..4 {
            let made = made(Healing::Never);
            let at = made.places(page)[which];
            let was = made.memory.inner().get(at, 4);
            // (There is not so much of the value in its last page.)
            made.flip(at);
            assert_eq!(made.scrub(), [(What::Attribute, Outcome::Repaired)], "{page} {which}");
            assert_eq!(made.memory.inner().get(at, 4), was, "{page} {which}");
            assert_eq!(made.scrub(), []);
            assert!(made.reads());
            made.is_sound();
        }
    }
}

#[test]
fn who_reads_a_damaged_value_gets_what_was_stored_and_read_only_too() {
    for poison in [false, true] {
        let mut made = made(Healing::Never);
        let at = made.places(1)[0];
        made.pool.close().unwrap();
        match poison {
            true => made.memory.poison(at, 1),
            false => made.flip(at),
        }
        for read_only in [true, false, false] {
            made.pool = open(&made.memory, read_only);
            assert!(made.reads(), "{poison} {read_only}");
            made.is_sound();
        }
    }
}

#[test]
fn its_own_checksum_tells_that_a_value_is_right_where_those_of_its_strips_are_lost() {
    let made = made(Healing::Never);
    let [_, kept @ ..] = made.places(0);
    kept.into_iter().for_each(|at| made.flip(at));
    assert!(made.reads());
    assert_eq!(made.scrub(), [(What::Attribute, Outcome::Repaired)]);
    assert_eq!(made.scrub(), []);
    // They are made anew, and good for something.
    made.flip(made.places(0)[0]);
    assert!(made.reads());
}

#[test]
fn a_value_that_nothing_tells_is_lost_and_told() {
    let made = made(Healing::Never);
    let [strip, .., parity] = made.places(0);
    made.flip(strip);
    made.flip(parity);
    assert!(!made.reads());
    assert_eq!(made.scrub(), [(What::Attribute, Outcome::Lost)]);
}

#[test]
fn a_value_leaves_memory_that_stays_bad() {
    let made = made(Healing::Never);
    let at = made.places(1)[0];
    made.memory.poison(at, 1);
    assert_eq!(made.scrub(), [(What::Attribute, Outcome::Repaired)]);
    assert!(made.reads());
    assert_eq!(made.scrub(), []);
    let bad = made.pool.bad_memory().unwrap();
    assert_eq!(bad.iter().map(|it| (it.page, it.in_use)).collect::<Vec<_>>(), [(at / PAGE, false)]);
    made.is_sound();
}

#[test]
fn values_are_protected_from_the_change_of_level_on() {
    let Made { memory, pool, ino, value, page, .. } = made_at(Protection::Metadata, Healing::Never);
    pool.close().unwrap();
    drop(pool);
    let host = TestHost::new(1);
    let raised = Pool::protect(memory.clone(), host, Protection::Full, 0, &mut |_, _| ());
    assert_eq!(raised, Ok(true));
    let image = memory.inner().image();
    let at = image.windows(4096).position(|window| *window == value[..4096]).unwrap() as u64;
    assert!(at / PAGE == page || at > 0);
    memory.poison(at + 700, 1);
    let pool = open(&memory, false);
    assert_eq!(pool.getxattr(ino, NAME).unwrap(), value);
}

/// Of the last strip less than the rest counts: so it is made right first, and then the other one.
#[test]
fn two_damaged_strips_are_made_right_where_the_value_ends_in_one_and_nothing_is_hit_twice() {
    let made = made(Healing::Never);
    let last = (made.page + 2) * PAGE;
    made.memory.inner().put(last + 300, &[0; 256]);
    assert!(made.reads());
    assert_eq!(made.scrub(), []);
    // Here the same bytes of both.
    made.memory.inner().put(last + 20, &[0; 500]);
    assert!(!made.reads());
    assert_eq!(made.scrub(), [(What::Attribute, Outcome::Lost)]);
}
