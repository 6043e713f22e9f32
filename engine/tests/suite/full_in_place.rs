//! Level full: parts of pages that are overwritten in place, through a file's journal.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use lode_engine::layout::{CrcTable, Superblock};
use lode_engine::{FormatOptions, Ino, NewInode, OpenOptions, PAGE_BYTES, Pool, Protection, mode};
use lode_testkit::{Healing, Hooks, Memory, Poisoned, TestHost, Told};

const STRIP: usize = 512;

struct Filled {
    memory: Memory,
    ino: Ino,
    bytes: Vec<u8>,
}

fn open(memory: Memory, read_only: bool) -> Pool<Memory, TestHost> {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Pool::open(memory, TestHost::new(1), &options).unwrap()
}

fn filled() -> Filled {
    let memory = Memory::new(8 << 20);
    let format = FormatOptions { protection: Protection::Full, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let pool = open(memory.clone(), false);
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    let ino = pool.create(pool.root(), b"f", &new).unwrap().ino;
    let bytes: Vec<u8> = (0..18_000u32).map(|at| (at * at / 7 + at) as u8).collect();
    pool.write(ino, 0, &bytes).unwrap();
    pool.close().unwrap();
    Filled { memory, ino, bytes }
}

/// Where in the pool the file's byte at `offset` is.
fn place(pool: &Pool<Memory, TestHost>, ino: Ino, offset: u64) -> usize {
    let pages = pool.dump_inode(ino).unwrap().extents;
    let mut of = pages.iter();
    let extent = of.find(|e| (e.file_offset..e.file_offset + e.bytes).contains(&offset)).unwrap();
    (extent.pool_offset + offset - extent.file_offset) as usize
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) % below
}

#[test]
fn checksums_and_parity_follow_what_is_overwritten_in_place() {
    let Filled { memory, ino, mut bytes } = filled();
    let pool = open(memory.clone(), false);
    let first = place(&pool, ino, 0);
    let mut seed = 5;
    for _ in 0..400 {
        let len = 1 + random(&mut seed, 1500) as usize;
        let offset = random(&mut seed, (bytes.len() - len) as u64) as usize;
        let fill = random(&mut seed, 256) as u8;
        bytes[offset..offset + len].fill(fill);
        pool.write(ino, offset as u64, &vec![fill; len]).unwrap();
    }
    // None of these needed another page, but for those that lie in two, or behind the last whole strip.
    bytes[100..400].fill(9);
    let before = place(&pool, ino, 0);
    pool.write(ino, 100, &[9; 300]).unwrap();
    assert_eq!(place(&pool, ino, 0), before);
    assert!(first > 0);
    let places: Vec<usize> =
        (0..bytes.len()).step_by(STRIP).map(|at| place(&pool, ino, at as u64)).collect();
    pool.close().unwrap();
    for at in places {
        let mut image = memory.image();
        image[at + 77] ^= 0x20;
        let pool = open(Memory::from_image(&image), false);
        let mut into = vec![0; bytes.len()];
        assert_eq!(pool.read(ino, 0, &mut into), Ok(bytes.len()), "{at:#x}");
        assert!(into == bytes, "{at:#x}");
    }
}

/// A pool that was left while an overwrite of `at ..` was coming home, of which, of its checksums and of its parity
/// something else is there; and where that overwrite waits.
fn torn(filled: &mut Filled, at: usize, new: &[u8]) -> (Vec<u8>, usize) {
    let pool = open(filled.memory.clone(), false);
    pool.write(filled.ino, at as u64, new).unwrap();
    filled.bytes[at..at + new.len()].copy_from_slice(new);
    let home = place(&pool, filled.ino, at as u64);
    let mut image = filled.memory.image();
    let superblock = Superblock::parse(image[..512].try_into().unwrap()).unwrap();
    let strips = superblock.geometry().strips;
    let waits = (0..image.len() - new.len())
        .find(|place| *place != home && image[*place..*place + new.len()] == *new)
        .unwrap();
    let page = home as u64 / PAGE_BYTES;
    let in_page = home % PAGE_BYTES as usize;
    for (from, every) in [(home, 3), (strips.parity_at(page) as usize + in_page % STRIP, 5)] {
        for byte in (from..from + new.len()).step_by(every) {
            image[byte] ^= 0xa5;
        }
    }
    for table in [CrcTable::First, CrcTable::Second] {
        image[strips.crcs_at(page, table) as usize + in_page / STRIP * 4] ^= 1;
    }
    (image, waits)
}

#[test]
fn what_has_not_come_home_is_read_from_the_journal_and_made_whole() {
    let mut filled = filled();
    let (image, _) = torn(&mut filled, 1030, &[0xee; 400]);
    for read_only in [true, false] {
        let memory = Memory::from_image(&image);
        let pool = open(memory.clone(), read_only);
        let mut into = vec![0; filled.bytes.len()];
        assert_eq!(pool.read(filled.ino, 0, &mut into), Ok(into.len()), "{read_only}");
        assert!(into == filled.bytes, "{read_only}");
        if !read_only {
            // The parity was made again with it.
            let at = place(&pool, filled.ino, 1024);
            pool.close().unwrap();
            for strip in [at, at + STRIP] {
                let mut image = memory.image();
                image[strip] ^= 1;
                let pool = open(Memory::from_image(&image), false);
                assert_eq!(pool.read(filled.ino, 0, &mut into), Ok(into.len()));
                assert!(into == filled.bytes);
            }
        }
    }
}

/// A line that can't be loaded any more, so many loads after something of its page was loaded for the first time.
struct Loses {
    line: u64,
    has_begun: AtomicBool,
    loads_left: AtomicU64,
}

impl Hooks<Poisoned<Memory>> for Loses {
    fn loads(&self, memory: &Poisoned<Memory>, at: u64, _: u64) {
        let begins = at / PAGE_BYTES == self.line / PAGE_BYTES;
        let has_begun = self.has_begun.fetch_or(begins, Relaxed) || begins;
        if has_begun && self.loads_left.fetch_sub(1, Relaxed) == 0 {
            memory.poison(self.line, 1);
        }
    }
}

/// What the file is where a line goes bad after `loads` loads, and how many more there were.
fn read_losing(image: &[u8], filled: &Filled, line: u64, loads: u64, heals: Healing) -> u64 {
    let memory = Poisoned::new(Memory::from_image(image), heals);
    let (has_begun, loads_left) = (AtomicBool::new(false), AtomicU64::new(loads));
    let hooks = Arc::new(Loses { line, has_begun, loads_left });
    let medium = Told { memory, hooks: hooks.clone() };
    let pool = Pool::open(medium, TestHost::new(1), &OpenOptions::default()).unwrap();
    let mut into = vec![0; filled.bytes.len()];
    let read = pool.read(filled.ino, 0, &mut into);
    let case = format!("{line:#x} after {loads} loads, {heals:?}");
    assert_eq!(read, Ok(into.len()), "{case}");
    assert!(into == filled.bytes, "{case}");
    let left = hooks.loads_left.load(Relaxed);
    hooks.loads_left.store(u64::MAX, Relaxed);
    // And what was seen once is seen again.
    assert_eq!(pool.read(filled.ino, 0, &mut into), Ok(into.len()), "{case}, again");
    assert!(into == filled.bytes, "{case}, again");
    left
}

#[test]
fn what_waits_whole_is_there_whenever_its_home_goes_bad() {
    let mut filled = filled();
    // (Bytes of two strips, which wait whole.)
    let (image, _) = torn(&mut filled, 1030, &[0xee; 800]);
    let pool = open(Memory::from_image(&image), true);
    let home = place(&pool, filled.ino, 1024) as u64;
    drop(pool);
    const MANY: u64 = 1 << 40;
    let loads = MANY - read_losing(&image, &filled, home, MANY, Healing::Never);
    for healing in [Healing::Never, Healing::ByLines] {
        for line in (home..home + 2 * STRIP as u64).step_by(320) {
            for after in 0..loads {
                read_losing(&image, &filled, line, after, healing);
            }
        }
    }
}

#[test]
fn what_is_damaged_in_the_journal_is_lost_and_nothing_else() {
    let mut filled = filled();
    let (mut image, waits) = torn(&mut filled, 1030, &[0xee; 400]);
    image[waits + 200] ^= 4;
    for read_only in [true, false] {
        let memory = Memory::from_image(&image);
        for again in 0..2 {
            let pool = open(memory.clone(), read_only);
            let mut into = [0; STRIP];
            for at in (0..filled.bytes.len() - STRIP).step_by(STRIP) {
                let read = pool.read(filled.ino, at as u64, &mut into);
                if at == 1024 {
                    assert_eq!(read.unwrap_err().errno(), 5, "{read_only} {again}");
                } else {
                    assert_eq!(read, Ok(STRIP), "{read_only} {again} {at}");
                    assert!(into == filled.bytes[at..at + STRIP]);
                }
            }
            if !read_only {
                // What retires the record does not make it right.
                pool.write(filled.ino, 0, &filled.bytes[..100]).unwrap();
                pool.close().unwrap();
            }
        }
    }
}

#[test]
fn what_has_come_home_is_not_taken_back_where_the_journal_is_damaged() {
    let mut filled = filled();
    let before = filled.memory.image();
    let (_, waits) = torn(&mut filled, 1030, &[0xee; 400]);
    let pool = open(filled.memory.clone(), true);
    let home = place(&pool, filled.ino, 1024);
    let mut image = filled.memory.image();
    let strips = Superblock::parse(image[..512].try_into().unwrap()).unwrap().geometry().strips;
    // The bytes came home; what is kept of them did not.
    let page = home as u64 / PAGE_BYTES;
    let kept = |table| (strips.crcs_at(page, table) as usize, strips.crc_bytes() as usize);
    let parity = (strips.parity_at(page) as usize, STRIP);
    for (at, bytes) in [kept(CrcTable::First), kept(CrcTable::Second), parity] {
        image[at..at + bytes].copy_from_slice(&before[at..at + bytes]);
    }
    image[waits + 200] ^= 4;
    for read_only in [true, false] {
        let pool = open(Memory::from_image(&image), read_only);
        let mut into = vec![0; filled.bytes.len()];
        assert_eq!(pool.read(filled.ino, 0, &mut into), Ok(into.len()), "{read_only}");
        assert!(into == filled.bytes, "{read_only}");
    }
}

#[test]
fn what_has_come_home_is_rebuilt_there_where_it_is_damaged_with_the_journal() {
    let mut filled = filled();
    let (_, waits) = torn(&mut filled, 1030, &[0xee; 400]);
    let home = place(&open(filled.memory.clone(), true), filled.ino, 1030);
    let mut image = filled.memory.image();
    for at in [waits + 200, home + 300] {
        image[at] ^= 4;
    }
    let pool = open(Memory::from_image(&image), false);
    let mut into = vec![0; filled.bytes.len()];
    assert_eq!(pool.read(filled.ino, 0, &mut into), Ok(into.len()));
    assert!(into == filled.bytes);
}

#[test]
fn who_leaves_the_level_believes_no_damaged_journal() {
    let mut filled = filled();
    let (_, waits) = torn(&mut filled, 1030, &[0xee; 400]);
    open(filled.memory.clone(), false).close().unwrap();
    let mut image = filled.memory.image();
    image[waits + 200] ^= 4;
    let memory = Memory::from_image(&image);
    let host = TestHost::new(1);
    let left = Pool::protect(memory.clone(), host, Protection::Metadata, 0, &mut |_, _| ());
    assert_eq!(left, Ok(true));
    let mut into = vec![0; filled.bytes.len()];
    assert_eq!(open(memory, false).read(filled.ino, 0, &mut into), Ok(into.len()));
    assert!(into == filled.bytes);
}
