//! Volumes: made, listed, resized and deleted; and what they hold, against a plain list of bytes.

use std::sync::Arc;

use lode_block::{
    Error, Extent, NewVolume, Sector, Settings, Volume, XATTR, create, delete, fallocate, info,
    list, resize,
};
use lode_engine::{
    Error as EngineError, FILE_MAX, Fallocate, FormatOptions, OpenOptions, Pool, Protection,
    XattrChange, XattrWhen,
};
use lode_testkit::fs::TestPool;
use lode_testkit::rng::Rng;
use lode_testkit::{Memory, TestHost};

const MIB: u64 = 1 << 20;

fn new(bytes: u64, sector: Sector, is_thin: bool) -> NewVolume {
    NewVolume { bytes, settings: Settings { sector, is_thin }, owner: (3, 4) }
}

fn format(bytes: u64, protection: Protection) -> Memory {
    let memory = Memory::new(bytes);
    let options =
        FormatOptions { lanes: 2, protection, dead_zone: 64 << 10, ..FormatOptions::default() };
    TestPool::format(memory.clone(), TestHost::new(1), &options).unwrap();
    memory
}

fn open(memory: &Memory) -> Arc<TestPool> {
    Arc::new(Pool::open(memory.clone(), TestHost::new(1), &OpenOptions::default()).unwrap())
}

fn small_pool() -> Arc<TestPool> {
    open(&format(32 * MIB, Protection::None))
}

#[test]
fn volumes_are_made_listed_resized_and_deleted() {
    let pool = small_pool();
    assert_eq!(list(&pool), Ok(Vec::new()));
    for name in [&b"a"[..], b".", b"..", b""] {
        assert_eq!(info(&pool, name).unwrap_err(), Error::NotFound);
    }
    let a = create(&pool, b"a", &new(5 * MIB, Sector::Small, false)).unwrap();
    assert_eq!(
        (a.bytes, a.allocated_bytes >= 5 * MIB, a.settings.sector),
        (5 * MIB, true, Sector::Small)
    );
    let b = create(&pool, b"b", &new(1 << 40, Sector::Large, true)).unwrap();
    assert_eq!((b.bytes, b.allocated_bytes), (1 << 40, 2 * MIB));
    assert_eq!(pool.getattr(b.ino).unwrap().uid, 3);
    assert_eq!(list(&pool).unwrap(), [a.clone(), b.clone()]);
    assert_eq!(create(&pool, b"a", &new(MIB, Sector::Large, false)), Err(Error::Exists));
    assert_eq!(
        resize(&pool, b"a", 4 * MIB, false, |_| false),
        Err(Error::Shrinks { bytes: 5 * MIB })
    );
    assert_eq!(resize(&pool, b"a", 4 * MIB, true, |_| false).unwrap().bytes, 4 * MIB);
    let grown = resize(&pool, b"a", 9 * MIB, false, |_| false).unwrap();
    assert!(grown.bytes == 9 * MIB && grown.allocated_bytes >= 9 * MIB);
    assert_eq!(resize(&pool, b"b", 2 << 40, false, |_| false).unwrap().allocated_bytes, 2 * MIB);
    delete(&pool, b"a", |_| false).unwrap();
    assert_eq!(delete(&pool, b"a", |_| false), Err(Error::NotFound));
    assert_eq!(list(&pool).unwrap().len(), 1);
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}

#[test]
fn a_volume_that_is_open_is_neither_deleted_nor_made_smaller() {
    let limit = |bytes| OpenOptions { index_memory: bytes, ..OpenOptions::default() };
    // (With so little memory for indexes an open file is dropped from memory, too.)
    for options in [OpenOptions::default(), limit(Some(1))] {
        let memory = format(32 * MIB, Protection::None);
        let pool = Arc::new(Pool::open(memory, TestHost::new(1), &options).unwrap());
        create(&pool, b"a", &new(5 * MIB, Sector::Small, false)).unwrap();
        create(&pool, b"b", &new(MIB, Sector::Small, false)).unwrap();
        let volume = Volume::open(Arc::clone(&pool), b"a").unwrap();
        volume.write(4 * MIB, &[7; 512]).unwrap();
        for _ in 0..4 {
            list(&pool).unwrap();
            pool.maintain().unwrap();
        }
        let held = |ino| pool.is_held(ino);
        assert_eq!(delete(&pool, b"a", held), Err(Error::InUse));
        assert_eq!(resize(&pool, b"a", 4 * MIB, true, held), Err(Error::InUse));
        assert_eq!(
            resize(&pool, b"a", 4 * MIB, false, held),
            Err(Error::Shrinks { bytes: 5 * MIB })
        );
        assert_eq!(Error::InUse.errno(), EngineError::Busy.errno());
        assert_eq!(resize(&pool, b"a", 6 * MIB, false, held).unwrap().bytes, 6 * MIB);
        let mut found = [0; 512];
        volume.read(4 * MIB, &mut found).unwrap();
        assert_eq!(found, [7; 512]);
        delete(&pool, b"b", held).unwrap();
        drop(volume);
        assert_eq!(resize(&pool, b"a", MIB, true, held).unwrap().bytes, MIB);
        delete(&pool, b"a", held).unwrap();
        assert_eq!(list(&pool), Ok(Vec::new()));
    }
}

#[test]
fn what_can_be_no_volume_is_refused_and_leaves_nothing() {
    let pool = small_pool();
    let free = pool.statfs().pages_free;
    for name in [&b""[..], b".", b"..", b"a/b", b"a\nb", b"\0", b"\xff", &[b'x'; 129]] {
        assert_eq!(create(&pool, name, &new(MIB, Sector::Large, false)), Err(Error::BadName));
    }
    for bytes in [0, 1, 511, 513, 4095, MIB + 512, u64::MAX, u64::MAX - 4095] {
        let made = create(&pool, b"v", &new(bytes, Sector::Large, true));
        assert!(matches!(made, Err(Error::BadSize { .. })), "{bytes}");
    }
    let full = create(&pool, b"v", &new(64 * MIB, Sector::Large, false));
    assert_eq!(full, Err(Error::Pool(EngineError::NoSpace)));
    assert_eq!(list(&pool), Ok(Vec::new()));
    pool.maintain().unwrap();
    // (But for the directories.)
    assert!(pool.statfs().pages_free + 8 >= free);
}

#[test]
fn files_that_say_nothing_of_sectors_are_no_volumes() {
    let pool = small_pool();
    let made = create(&pool, b"v", &new(MIB, Sector::Small, false)).unwrap();
    for text in [Some(&b"sector=1"[..]), Some(b"sector=512 thick"), None] {
        let change = XattrChange { name: XATTR, value: text, when: XattrWhen::Always };
        pool.setxattr(made.ino, &change).unwrap();
        assert_eq!(info(&pool, b"v"), Err(Error::NotAVolume));
        assert_eq!(delete(&pool, b"v", |_| false), Err(Error::NotAVolume));
        assert_eq!(list(&pool), Ok(Vec::new()));
        assert!(matches!(Volume::open(Arc::clone(&pool), b"v"), Err(Error::NotAVolume)));
    }
}

#[test]
fn a_volume_that_was_cut_off_in_its_making_is_not_there() {
    let mut there = 0;
    for fences in 0..60 {
        let memory = format(16 * MIB, Protection::None);
        let pool = open(&memory);
        create(&pool, b"old", &new(MIB, Sector::Large, false)).unwrap();
        drop(pool);
        let memory = Memory::from_image(&memory.image());
        let pool = open(&memory);
        memory.fail_fences_after(fences);
        let made = create(&pool, b"new", &new(3 * MIB, Sector::Small, fences % 2 == 1));
        drop(pool);
        let pool = open(&Memory::from_image(&memory.image()));
        let all = list(&pool).unwrap();
        assert_eq!(all.iter().filter(|one| one.name == b"old").count(), 1);
        if let Some(found) = all.iter().find(|one| one.name == b"new") {
            assert_eq!(found.bytes, 3 * MIB);
            assert!(found.settings.is_thin || found.allocated_bytes >= 3 * MIB);
            there += 1;
        } else {
            assert!(made.is_err());
        }
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
    }
    assert!((1..60).contains(&there), "{there}");
}

/// What a volume is to hold, and of which sectors somebody has said that nobody wants them.
struct Expected {
    bytes: Vec<u8>,
}

fn step(volume: &Volume<Memory, TestHost>, expected: &mut Expected, rng: &mut Rng) {
    let settings = volume.settings();
    let sector = settings.sector.bytes();
    let sectors = expected.bytes.len() as u64 / sector;
    let first = rng.below(sectors);
    let count = 1 + rng.below((sectors - first).min(40));
    let (at, len) = (first * sector, count * sector);
    let there = at as usize..(at + len) as usize;
    match rng.below(8) {
        0 => {
            volume.discard(at, len).unwrap();
            if settings.is_thin {
                expected.bytes[there].fill(0);
            }
        }
        1 => {
            volume.zero(at, len, rng.once_in(2)).unwrap();
            expected.bytes[there].fill(0);
        }
        2 => volume.flush().unwrap(),
        3 | 4 => {
            let mut found = vec![1; len as usize];
            volume.read(at, &mut found).unwrap();
            assert_eq!(found, expected.bytes[there]);
        }
        _ => {
            let fill = rng.bits() as u8 | 1;
            let new: Vec<u8> = (0..len).map(|at| fill.wrapping_add(at as u8)).collect();
            volume.write(at, &new).unwrap();
            expected.bytes[there].copy_from_slice(&new);
        }
    }
}

#[test]
fn a_volume_holds_what_a_list_of_bytes_holds() {
    for (seed, protection) in [Protection::None, Protection::Metadata, Protection::Full]
        .into_iter()
        .cycle()
        .take(12)
        .enumerate()
    {
        let seed = seed as u64;
        let memory = format(48 * MIB, protection);
        let mut pool = open(&memory);
        let sector = Sector::ALL[(seed / 2 % 2) as usize];
        let bytes = 5 * MIB + 8 * sector.bytes();
        create(&pool, b"v", &new(bytes, sector, seed % 2 == 1)).unwrap();
        let mut expected = Expected { bytes: vec![0; bytes as usize] };
        let mut rng = Rng::new(seed);
        for round in 0..4 {
            let volume = Volume::open(Arc::clone(&pool), b"v").unwrap();
            assert_eq!(volume.bytes(), Ok(bytes));
            for _ in 0..60 {
                step(&volume, &mut expected, &mut rng);
            }
            let mut all = vec![1; bytes as usize];
            volume.read(0, &mut all).unwrap();
            assert!(all == expected.bytes, "seed {seed}, round {round}");
            extents_are_right(&volume, &expected);
            drop(volume);
            if round % 2 == 0 {
                pool.close().unwrap();
            }
            drop(pool);
            pool = open(&memory);
        }
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
    }
}

/// What is told of kinds covers all, and what has no pages reads as zeros.
fn extents_are_right(volume: &Volume<Memory, TestHost>, expected: &Expected) {
    let mut at = 0;
    let mut last = None;
    volume
        .extents(0, expected.bytes.len() as u64, &mut |Extent { len, has_pages }| {
            assert!(len > 0 && last != Some(has_pages));
            let bytes = &expected.bytes[at..at + len as usize];
            assert!(has_pages || bytes.iter().all(|byte| *byte == 0));
            (at, last) = (at + len as usize, Some(has_pages));
            true
        })
        .unwrap();
    assert_eq!(at, expected.bytes.len());
}

#[test]
fn only_whole_sectors_that_it_has_are_read_and_written() {
    let pool = small_pool();
    create(&pool, b"v", &new(MIB, Sector::Large, false)).unwrap();
    let volume = Volume::open(Arc::clone(&pool), b"v").unwrap();
    let whole = vec![7; MIB as usize];
    volume.write(0, &whole).unwrap();
    for (at, len) in [
        (0, 512),
        (512, 4096),
        (MIB, 4096),
        (MIB - 4096, 8192),
        (u64::MAX - 4095, 8192),
        (u64::MAX, 1),
    ] {
        let outside = Err(Error::Outside { at, len });
        let mut bytes = vec![0; len as usize];
        assert_eq!(volume.read(at, &mut bytes), outside);
        assert_eq!(volume.write(at, &bytes), outside);
        assert_eq!(volume.discard(at, len), outside);
        assert_eq!(volume.zero(at, len, false), outside);
        assert_eq!(volume.extents(at, len, &mut |_| true), outside);
    }
    let mut found = vec![0; MIB as usize];
    volume.read(0, &mut found).unwrap();
    assert_eq!(found, whole);
    // It may have become smaller.
    resize(&pool, b"v", 4096, true, |_| false).unwrap();
    assert_eq!(volume.bytes(), Ok(4096));
    assert!(volume.read(4096, &mut [0; 4096]).is_err() && volume.write(4096, &[0; 4096]).is_err());
    assert_eq!(pool.getattr(info(&pool, b"v").unwrap().ino).unwrap().size, 4096);
}

#[test]
fn snapshots_have_volumes_and_keep_what_they_held() {
    let pool = small_pool();
    create(&pool, b"v", &new(3 * MIB, Sector::Small, false)).unwrap();
    let volume = Volume::open(Arc::clone(&pool), b"v").unwrap();
    volume.write(512, &[1; 1024]).unwrap();
    pool.create_snapshot(b"s").unwrap();
    volume.write(1024, &[2; 512]).unwrap();
    let root = pool.snapshot_root(b"s").unwrap();
    let home = lode_block::home(&pool, root).unwrap().unwrap();
    let then = pool.lookup(home, b"v").unwrap().ino;
    let mut bytes = [0; 1024];
    pool.read(then, 512, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 1024]);
    volume.read(512, &mut bytes).unwrap();
    assert_eq!((bytes[0], bytes[512]), (1, 2));
}

/// What is discarded as a mount is asked to by a loop device.
#[test]
fn a_hole_is_punched_into_a_thin_volume_and_zeroed_in_another_though_the_pool_be_full() {
    for protection in [Protection::None, Protection::Full] {
        let pool = open(&format(32 * MIB, protection));
        let thin = create(&pool, b"thin", &new(4 * MIB, Sector::Large, true)).unwrap();
        // As large a one as there is room for.
        let volume = |bytes| create(&pool, b"v", &new(bytes, Sector::Small, false)).ok();
        let found = (1..32).rev().find_map(|mib| volume(mib * MIB)).unwrap();
        let filled = Volume::open(Arc::clone(&pool), b"v").unwrap();
        let whole = vec![7; found.bytes as usize];
        filled.write(0, &whole).unwrap();
        let punch = |ino, at, len| fallocate(&pool, ino, Fallocate::Punch, at, len);
        punch(found.ino, 512, 3 * MIB).unwrap();
        let mut bytes = vec![1; found.bytes as usize];
        filled.read(0, &mut bytes).unwrap();
        let (before, rest) = bytes.split_at(512);
        let (zeros, after) = rest.split_at(3 * MIB as usize);
        assert!(before.iter().chain(after).all(|byte| *byte == 7));
        assert!(zeros.iter().all(|byte| *byte == 0));
        for all in [Fallocate::Punch, Fallocate::Zero { keep_size: true }] {
            filled.write(0, &whole).unwrap();
            fallocate(&pool, found.ino, all, 0, FILE_MAX).unwrap();
            filled.read(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
        filled.write(0, &whole).unwrap();
        filled.zero(0, found.bytes, false).unwrap();
        let after = info(&pool, b"v").unwrap();
        assert_eq!(after, found, "it keeps its size and pages");
        for (at, len) in [(0, 0), (1, FILE_MAX)] {
            assert!(punch(found.ino, at, len).is_err());
        }
        punch(thin.ino, 0, 4 * MIB).unwrap();
        assert_eq!(info(&pool, b"thin").unwrap().allocated_bytes, 0);
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
    }
}
