//! Level `full`: what is read is what was written, or an error.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::ops::Range;

use lode_engine::layout::{CrcTable, Strips, Superblock};
use lode_engine::{
    AccessTimes, Error, FormatOptions, Ino, NewInode, OpenOptions, Outcome, PAGE_BYTES, PageClass,
    Pool, Protection, check_format, mode,
};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::run::{Rules, run_and_shrink};
use lode_testkit::system::PoolSystem;
use lode_testkit::{Memory, TestHost};

const MIB: u64 = 1 << 20;

fn format(strip_bytes: u32, class: PageClass) -> FormatOptions {
    FormatOptions {
        lanes: 4,
        page_class: class,
        protection: Protection::Full,
        dead_zone: 0,
        strip_bytes,
        ..FormatOptions::default()
    }
}

fn random(bytes: u64, format: &FormatOptions, relaxed: bool, shape: &Shape, seeds: Range<u64>) {
    let options = OpenOptions { relaxed, atime: AccessTimes::Never, ..OpenOptions::default() };
    for seed in seeds {
        let ops = Generator::new(seed, shape.clone()).take(300);
        let new = || PoolSystem::new(bytes, TestHost::new(seed), format, options);
        if let Err(failure) = run_and_shrink(&new, &ops, &Rules::default(), 200) {
            panic!("{format:?}, seed {seed}: {failure}");
        }
    }
}

#[test]
fn random_operations_with_remounts_and_crashes_equal_the_model() {
    let shape = Shape { remount_every: 25, maintain_every: 40, ..Shape::default() };
    for strip_bytes in [512, 1024, 2048] {
        random(16 * MIB, &format(strip_bytes, PageClass::Small), false, &shape, 0..20);
    }
}

#[test]
fn relaxed_writes_and_large_pages_equal_the_model() {
    let shape = Shape { remount_every: 50, ..Shape::default() };
    random(16 * MIB, &format(512, PageClass::Small), true, &shape, 100..110);
    random(48 * MIB, &format(512, PageClass::Huge), false, &shape, 110..120);
}

#[test]
fn strips_are_of_one_of_three_sizes() {
    for (strip_bytes, possible) in [
        (512, true),
        (1024, true),
        (2048, true),
        (0, false),
        (256, false),
        (768, false),
        (4096, false),
    ] {
        let made = check_format(16 * MIB, &format(strip_bytes, PageClass::Small));
        assert_eq!(made.is_ok(), possible, "{strip_bytes}");
    }
}

/// A pool with a file, and where its bytes are.
struct Filled {
    memory: Memory,
    ino: Ino,
    bytes: Vec<u8>,
    /// Offset in the pool of each page of the file.
    pages: Vec<u64>,
    strips: Strips,
}

/// A pool with an empty file.
fn empty(strip_bytes: u32) -> (Memory, Pool<Memory, TestHost>, Ino) {
    let memory = Memory::new(4 * MIB);
    let host = || TestHost::new(1);
    Pool::format(memory.clone(), host(), &format(strip_bytes, PageClass::Small)).unwrap();
    let pool = Pool::open(memory.clone(), host(), &OpenOptions::default()).unwrap();
    let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
    let ino = pool.create(pool.root(), b"f", &new).unwrap().ino;
    (memory, pool, ino)
}

fn filled(strip_bytes: u32) -> Filled {
    let (memory, pool, ino) = empty(strip_bytes);
    let bytes: Vec<u8> = (0..18_000u32).map(|at| (at * at / 7 + at) as u8).collect();
    pool.write(ino, 0, &bytes[..10_000]).unwrap();
    pool.append(ino, &bytes[10_000..]).unwrap();
    let pages = pool.dump_inode(ino).unwrap().extents;
    let pages = pages.iter().flat_map(|extent| {
        (0..extent.bytes / PAGE_BYTES).map(move |page| extent.pool_offset + page * PAGE_BYTES)
    });
    let pages = pages.collect();
    pool.close().unwrap();
    let superblock = Superblock::parse(memory.image()[..512].try_into().unwrap()).unwrap();
    Filled { memory, ino, bytes, pages, strips: superblock.geometry().strips }
}

impl Filled {
    /// Offsets of the checksums of the first strip of a page.
    fn crcs_of(&self, page: u64) -> (u64, u64) {
        let at = |table| self.strips.crcs_at(page / PAGE_BYTES, table);
        (at(CrcTable::First), at(CrcTable::Second))
    }

    /// Opens the pool with `change` done to its bytes, and reads the file from `from` on.
    fn read(
        &self,
        from: usize,
        len: usize,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<Vec<u8>, Error> {
        let mut image = self.memory.image();
        change(&mut image);
        let memory = Memory::from_image(&image);
        let pool = Pool::open(memory, TestHost::new(2), &OpenOptions::default()).unwrap();
        let mut into = vec![0; len];
        let read = pool.read(self.ino, from as u64, &mut into)?;
        into.truncate(read);
        Ok(into)
    }
}

fn flip(image: &mut [u8], at: u64) {
    image[at as usize] ^= 0x10;
}

#[test]
fn one_damaged_strip_of_a_page_is_read_right_and_made_right() {
    for strip_bytes in [512, 1024, 2048] {
        let filled = filled(strip_bytes);
        let page = filled.pages[1];
        let (first, second) = filled.crcs_of(page);
        let parity = filled.strips.parity_at(page / PAGE_BYTES);
        let places = (page..page + PAGE_BYTES).step_by(97).chain([first, second, parity]);
        for at in places {
            for (from, len) in [(0, 18_000), (4096, 4096), (5000, 100), (4090, 4200), (7999, 1)] {
                let read = filled.read(from, len, |image| flip(image, at));
                assert_eq!(read.unwrap(), filled.bytes[from..from + len], "{at} {from}");
            }
        }
        // Data and one of its checksums, all of a strip: it is as it was on the medium, too.
        let good = filled.memory.image();
        for crc in [first, second] {
            let mut image = good.clone();
            image[page as usize..][..strip_bytes as usize].fill(0);
            flip(&mut image, crc);
            let memory = Memory::from_image(&image);
            let pool =
                Pool::open(memory.clone(), TestHost::new(2), &OpenOptions::default()).unwrap();
            let mut into = vec![0; 5000];
            pool.read(filled.ino, 4000, &mut into).unwrap();
            assert_eq!(into, filled.bytes[4000..9000]);
            let repairs = pool.data_repairs();
            assert_eq!((repairs.repaired, repairs.lost), (1, 0));
            let mended = memory.image();
            for (at, len) in [(page, PAGE_BYTES), (first, 8), (second, 8)] {
                let range = at as usize..(at + len) as usize;
                assert_eq!(mended[range.clone()], good[range], "{at}");
            }
        }
    }
}

#[test]
fn what_is_read_is_right_or_an_error() {
    let filled = filled(512);
    let page = filled.pages[1];
    let (first, second) = filled.crcs_of(page);
    let (parity, other) = (filled.strips.parity_at(page / PAGE_BYTES), page + 512);
    let losses: [&[u64]; 4] =
        [&[first, second], &[page, parity], &[page, other], &[page, first, second]];
    for loss in losses {
        let lose = |image: &mut [u8]| loss.iter().for_each(|at| flip(image, *at));
        assert_eq!(filled.read(4000, 200, lose).unwrap_err().errno(), 5, "{loss:?}");
        // Of the rest of the page nothing is lost.
        assert_eq!(filled.read(5120, 2000, lose).unwrap(), filled.bytes[5120..7120], "{loss:?}");
    }
    assert_eq!(filled.read(0, 18_000, |_| ()).unwrap(), filled.bytes);
}

#[test]
fn a_write_of_a_part_of_a_page_does_not_make_damage_right() {
    let filled = filled(512);
    let mut image = filled.memory.image();
    for strip in 0..2 {
        flip(&mut image, filled.pages[0] + strip * 512);
    }
    let pool =
        Pool::open(Memory::from_image(&image), TestHost::new(2), &OpenOptions::default()).unwrap();
    assert_eq!(pool.write(filled.ino, 300, b"new").unwrap_err().errno(), 5);
    let mut into = [0; 10];
    // A write next to it does not care, and leaves it as it is.
    assert_eq!(pool.write(filled.ino, 3000, b"new"), Ok(()));
    assert_eq!(pool.read(filled.ino, 3000, &mut into[..3]), Ok(3));
    assert_eq!(&into[..3], b"new");
    assert_eq!(pool.read(filled.ino, 0, &mut into).unwrap_err().errno(), 5);
    // What is written whole is as new.
    pool.write(filled.ino, 0, &[7; 4096]).unwrap();
    assert_eq!(pool.read(filled.ino, 0, &mut into), Ok(10));
    assert_eq!(into, [7; 10]);
}

#[test]
fn a_pool_that_has_grown_has_checksums_for_all_of_it() {
    let options = format(512, PageClass::Small);
    for (made, bytes) in [(4 * MIB, 5 * MIB), (300 << 10, 700 << 10), (2 * MIB, 32 * MIB)] {
        let memory = Memory::new(made);
        Pool::format(memory.clone(), TestHost::new(1), &options).unwrap();
        let mut image = memory.image();
        image.resize(bytes as usize, 0xa5);
        let memory = Memory::from_image(&image);
        Pool::grow(memory.clone(), TestHost::new(1)).unwrap();
        let pool = Pool::open(memory, TestHost::new(2), &OpenOptions::default()).unwrap();
        let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
        let ino = pool.create(pool.root(), b"f", &new).unwrap().ino;
        let mut written = 0;
        while pool.append(ino, &[written as u8; 5000]).is_ok() {
            written += 1;
        }
        assert!(written * 5000 > bytes * 6 / 10, "{written}");
        let mut into = vec![0; 5000];
        for part in 0..written {
            assert_eq!(pool.read(ino, part * 5000, &mut into), Ok(5000));
            assert!(into.iter().all(|byte| *byte == part as u8));
        }
        assert!(pool.check(&mut |_, _| ()).unwrap().damage.is_empty());
    }
}

#[test]
fn checksums_can_be_given_up() {
    for level in [Protection::None, Protection::Metadata] {
        let filled = filled(512);
        let memory = Memory::from_image(&filled.memory.image());
        let none = &mut |_, _| ();
        assert_eq!(Pool::protect(memory.clone(), TestHost::new(2), level, 0, none), Ok(true));
        let pool = Pool::open(memory, TestHost::new(2), &OpenOptions::default()).unwrap();
        let mut into = vec![0; 18_000];
        assert_eq!(pool.read(filled.ino, 0, &mut into), Ok(18_000));
        assert_eq!(into, filled.bytes);
        assert!(pool.check(none).unwrap().damage.is_empty());
        assert_eq!(pool.info().unwrap().protection, level);
    }
}

/// Bytes behind the end share a strip, or at least the parity, with those in front of it.
#[test]
fn damage_behind_the_end_of_a_file_costs_nothing_in_front_of_it() {
    for strip_bytes in [512, 1024, 2048] {
        let filled = filled(strip_bytes);
        let page = filled.pages[4];
        let (end, page_end) = (page + 18_000 - 4 * PAGE_BYTES, page + PAGE_BYTES);
        let parity = filled.strips.parity_at(page / PAGE_BYTES);
        let behind = [end..page_end, end..end + 1, page_end - 600..page_end];
        // Nothing more; a strip in front of it; all parity.
        let more = [None, Some(page + 5), Some(end - 1), Some(parity + (end - page) % 512)];
        for (range, more) in behind.iter().flat_map(|range| more.map(|more| (range, more))) {
            // (What is in front of the end in the strip that both are in is lost without its parity.)
            let lose = |image: &mut [u8]| {
                for at in range.clone() {
                    image[at as usize] ^= 0x5a;
                }
                more.iter().for_each(|at| flip(image, *at));
            };
            for (from, len) in [(16_000, 2000), (16_384, 1616), (17_999, 1), (16_390, 3)] {
                let read = filled.read(from, len, lose);
                let wanted = &filled.bytes[from..from + len];
                assert_eq!(read.as_deref(), Ok(wanted), "{strip_bytes} {range:?} {more:?} {from}");
            }
            let mut image = filled.memory.image();
            lose(&mut image);
            let memory = Memory::from_image(&image);
            let pool = Pool::open(memory, TestHost::new(2), &OpenOptions::default()).unwrap();
            for wanted in [true, false] {
                let mut scrub = pool.begin_scrub().unwrap();
                while !scrub.is_over() {
                    pool.scrub(&mut scrub, 1 << 20).unwrap();
                }
                let found = scrub.take_findings();
                assert_eq!(found.is_empty(), !wanted, "{range:?} {more:?}: {found:?}");
                assert!(found.iter().all(|one| one.outcome == Outcome::Repaired), "{found:?}");
            }
        }
    }
}

/// Of a page that is lost as a whole what was zeros is known, and so is what was alone among these: by parity.
#[test]
fn zeros_are_right_whatever_else_of_their_page_is_lost() {
    // (Two strips of one page are more than its parity gives.)
    for strip_bytes in [512u32, 1024] {
        let (strip, strips) = (strip_bytes as usize, PAGE_BYTES as usize / strip_bytes as usize);
        let (memory, pool, ino) = empty(strip_bytes);
        // One strip of the first page is not zeros, and all but one of the second.
        let mut bytes = vec![0; 2 * PAGE_BYTES as usize];
        bytes[strip..2 * strip].fill(0x5a);
        bytes[PAGE_BYTES as usize + strip..].fill(0xa5);
        pool.write(ino, 0, &bytes).unwrap();
        let at = pool.dump_inode(ino).unwrap().extents[0].pool_offset;
        pool.close().unwrap();
        let mut image = memory.image();
        for (number, byte) in image[at as usize..].iter_mut().take(bytes.len()).enumerate() {
            *byte ^= (number * number / 7 + number) as u8 | 1;
        }
        let geometry = Superblock::parse(image[..512].try_into().unwrap()).unwrap().geometry();
        let read = |pool: &Pool<Memory, TestHost>, number: usize| {
            let mut into = vec![1; strip];
            pool.read(ino, (number * strip) as u64, &mut into).map(|_| into)
        };
        let is_lost = |number: usize| number > strips;
        let open = |image: &[u8]| {
            Pool::open(Memory::from_image(image), TestHost::new(2), &OpenOptions::default())
                .unwrap()
        };
        let pool = open(&image);
        // (What is alone among zeros comes back when these have.)
        for number in (0..2 * strips).filter(|number| *number != 1).chain([1]) {
            let wanted = &bytes[number * strip..(number + 1) * strip];
            match read(&pool, number) {
                Ok(found) => assert!(!is_lost(number) && found == wanted, "{strip} {number}"),
                Err(error) => assert!(
                    is_lost(number) && matches!(error, Error::Corrupt(_)),
                    "{strip} {number}"
                ),
            }
        }
        // One checksum of zeros is no proof: it may be another page's.
        for table in [CrcTable::First, CrcTable::Second] {
            let mut image = image.clone();
            let crcs = geometry.strips.crcs_at(at / PAGE_BYTES + 1, table) as usize;
            image.copy_within(crcs..crcs + 4, crcs + 4);
            let read = read(&open(&image), strips + 1);
            assert!(matches!(read, Err(Error::Corrupt(_))), "{strip} {table:?}: {read:?}");
        }
    }
}

/// Zeros or ones over strips, their checksums and their parity: these are the right checksums and parity of nothing, wherever a
/// file ends. (The CRC32C of four bytes of ones with zeros behind them is ones.)
#[test]
fn ones_everywhere_are_not_taken_for_data() {
    for strip_bytes in [512u32, 1024, 2048] {
        let memory = Memory::new(16 * MIB);
        let host = || TestHost::new(1);
        Pool::format(memory.clone(), host(), &format(strip_bytes, PageClass::Small)).unwrap();
        let pool = Pool::open(memory.clone(), host(), &OpenOptions::default()).unwrap();
        let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
        let few = (1..=u64::from(strip_bytes)).filter(|size| *size < 600 || size % 64 == 4);
        let files: Vec<(Ino, u64)> = few
            .chain([PAGE_BYTES - 1, PAGE_BYTES])
            .map(|size| {
                let ino = pool.create(pool.root(), size.to_string().as_bytes(), &new).unwrap().ino;
                pool.write(ino, 0, &vec![0x5a; size as usize]).unwrap();
                (ino, size)
            })
            .collect();
        let pages: Vec<u64> = files
            .iter()
            .map(|(ino, _)| pool.dump_inode(*ino).unwrap().extents[0].pool_offset)
            .collect();
        pool.close().unwrap();
        let image = memory.image();
        let superblock = Superblock::parse(image[..512].try_into().unwrap()).unwrap();
        let strips = superblock.geometry().strips;
        for fill in [0, 0xff] {
            let mut image = image.clone();
            for at in &pages {
                let page = at / PAGE_BYTES;
                let crcs = [CrcTable::First, CrcTable::Second].map(|it| strips.crcs_at(page, it));
                let crcs = crcs.map(|at| (at, strips.crc_bytes()));
                let parity = (strips.parity_at(page), strips.bytes());
                for (at, len) in [(*at, PAGE_BYTES), parity].into_iter().chain(crcs) {
                    image[at as usize..(at + len) as usize].fill(fill);
                }
            }
            let memory = Memory::from_image(&image);
            let pool = Pool::open(memory, TestHost::new(2), &OpenOptions::default()).unwrap();
            for (ino, size) in &files {
                let read = pool.read(*ino, 0, &mut vec![0; *size as usize]);
                assert!(matches!(read, Err(Error::Corrupt(_))), "{size} of {fill:#x}: {read:?}");
            }
        }
    }
}
