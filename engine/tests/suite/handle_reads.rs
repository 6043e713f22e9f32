//! Reads by a handle take no lock where the place of what they read is known: they read what there is now, whole, whatever became of
//! the file since; and the access time moves as if they did.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use lode_engine::{
    AccessTimes, Error, Fallocate, FormatOptions, Handle, Ino, NewInode, OpenOptions, Pool,
    Protection, SetAttr, mode,
};
use lode_testkit::fs::TestPool;
use lode_testkit::rng::Rng;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const CHUNK: usize = 2 << 20;
const ALLOCATE: Fallocate = Fallocate::Allocate { keep_size: false };

fn pool_with(
    bytes: u64,
    protection: Protection,
    options: &OpenOptions,
    host: &TestHost,
) -> TestPool {
    let memory = Memory::new(bytes);
    let format = FormatOptions { lanes: 2, protection, ..FormatOptions::default() };
    Pool::format(memory.clone(), host.clone(), &format).unwrap();
    Pool::open(memory, host.clone(), options).unwrap()
}

fn pool_at(bytes: u64, protection: Protection) -> TestPool {
    pool_with(bytes, protection, &OpenOptions::default(), &TestHost::with_cpus(1, 2))
}

fn pool(bytes: u64) -> TestPool {
    pool_at(bytes, Protection::None)
}

/// A file of so many chunks, in pages of 2 MiB.
fn large(pool: &TestPool, name: &[u8], chunks: usize) -> Ino {
    let ino = pool.create(pool.root(), name, &NEW).unwrap().ino;
    pool.fallocate(ino, ALLOCATE, 0, (chunks * CHUNK) as u64).unwrap();
    ino
}

/// What a read by this handle gives.
fn read(pool: &TestPool, file: &Handle<TestHost>, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len];
    let read = pool.read_held_quietly(file, at as u64, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

/// Changes the file in some way, and what it should hold.
fn change(pool: &TestPool, ino: Ino, expected: &mut Vec<u8>, random: &mut Rng) -> String {
    let below = |random: &mut Rng, most: usize| random.below(most.max(1) as u64) as usize;
    let fill = 1 + random.below(250) as u8;
    let at = below(random, expected.len() + 4096);
    let most = [600, 9000, 200_000, CHUNK][random.below(4) as usize];
    let len = 1 + below(random, most);
    let fit = |expected: &mut Vec<u8>, end: usize| {
        if expected.len() < end {
            expected.resize(end, 0);
        }
    };
    match random.below(9) {
        8 => {
            let keeps = Fallocate::Allocate { keep_size: true };
            pool.fallocate(ino, keeps, 0, 4 * CHUNK as u64).unwrap();
            "allocate behind the end".to_owned()
        }
        0 => {
            let size = if random.once_in(2) { at } else { 4 * CHUNK };
            let to = SetAttr { size: Some(size as u64), ..SetAttr::default() };
            pool.setattr(ino, &to).unwrap();
            expected.resize(size, 0);
            format!("size {size}")
        }
        1 => {
            pool.fallocate(ino, Fallocate::Punch, at as u64, len as u64).unwrap();
            let end = (at + len).min(expected.len());
            if at < end {
                expected[at..end].fill(0);
            }
            format!("punch {at} {len}")
        }
        2 => {
            pool.fallocate(ino, ALLOCATE, 0, 4 * CHUNK as u64).unwrap();
            fit(expected, 4 * CHUNK);
            "allocate".to_owned()
        }
        3 | 4 => {
            let (at, len) = (at / 512 * 512, len.next_multiple_of(512));
            pool.write_sectors(ino, at as u64, &vec![fill; len]).unwrap();
            fit(expected, at + len);
            expected[at..at + len].fill(fill);
            format!("sectors {at} {len} {fill}")
        }
        _ => {
            pool.write(ino, at as u64, &vec![fill; len]).unwrap();
            fit(expected, at + len);
            expected[at..at + len].fill(fill);
            format!("write {at} {len} {fill}")
        }
    }
}

/// Its pages may be another file's by then, and those of others its own.
#[test]
fn a_handle_reads_what_there_is_now_whatever_became_of_the_file() {
    for seed in 0..12 {
        let level = [Protection::None, Protection::Full][seed as usize % 2];
        let (pool, mut random) = (pool_at(64 << 20, level), Rng::new(seed));
        let ino = large(&pool, b"f", 4);
        let (file, mut expected) = (pool.hold(ino).unwrap(), vec![0; 4 * CHUNK]);
        for step in 0..60 {
            let what = change(&pool, ino, &mut expected, &mut random);
            if step % 20 == 7 {
                pool.create_snapshot(b"s").unwrap();
            } else if step % 20 == 17 {
                pool.delete_snapshot(b"s").unwrap();
            } else if step % 5 == 0 {
                let other = pool.create(pool.root(), b"w", &NEW).unwrap().ino;
                pool.write(other, 0, &vec![0xDD; CHUNK]).unwrap();
                pool.unlink(pool.root(), b"w").unwrap();
            }
            // (The second time places are known.)
            for _ in 0..2 {
                let mut random = Rng::new(step);
                for number in 0..7 {
                    let near_end = expected.len().saturating_sub(100);
                    let anywhere = random.below(expected.len() as u64 + 100) as usize;
                    let at = if number == 6 { near_end } else { anywhere };
                    let len = [4096, 100, 70_000, CHUNK][random.below(4) as usize];
                    let end = (at + len).min(expected.len());
                    let right = expected.get(at..end).unwrap_or_default();
                    let found = read(&pool, &file, at, len);
                    assert!(found == right, "seed {seed}, step {step}, {what}: {len} at {at}");
                }
            }
        }
        pool.let_go(file);
    }
}

/// Tables of checksums lie between pages of a large file: chunks around them are in two places.
#[test]
fn a_handle_reads_chunks_that_are_in_two_places() {
    let pool = pool_at(96 << 20, Protection::Full);
    let ino = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    let mut random = Rng::new(5);
    let content: Vec<u8> =
        (0..24 * CHUNK / 8).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect();
    for (number, piece) in content.chunks(CHUNK / 2).enumerate() {
        pool.write(ino, (number * CHUNK / 2) as u64, piece).unwrap();
    }
    let extents = pool.dump_inode(ino).unwrap().extents;
    let ends = extents.iter().filter(|extent| extent.file_offset % CHUNK as u64 != 0).count();
    assert!(ends > 1, "{extents:?}");
    let file = pool.hold(ino).unwrap();
    for _ in 0..2 {
        for extent in &extents {
            for skip in [0, 1, 4096, 9000, CHUNK] {
                for len in [512, 4096, 70_000, CHUNK] {
                    let at = (extent.file_offset as usize + 8192).saturating_sub(skip);
                    let end = (at + len).min(content.len());
                    assert!(read(&pool, &file, at, len) == content[at..end], "{len} at {at}");
                }
            }
        }
    }
    pool.let_go(file);
}

/// Chunks take turns in what is noted of a file that has become much larger.
#[test]
fn chunks_that_take_turns_are_not_taken_for_each_other() {
    let pool = pool(160 << 20);
    let ino = large(&pool, b"f", 2);
    let file = pool.hold(ino).unwrap();
    assert_eq!(read(&pool, &file, 0, 8), [0; 8]);
    let chunks = 70;
    pool.fallocate(ino, ALLOCATE, 0, (chunks * CHUNK) as u64).unwrap();
    for chunk in 0..chunks {
        pool.write(ino, (chunk * CHUNK) as u64, &[chunk as u8; 16]).unwrap();
    }
    for _ in 0..3 {
        for chunk in [0, 64, 0, 64, 5, 69, 5] {
            assert_eq!(read(&pool, &file, chunk * CHUNK, 16), [chunk as u8; 16]);
        }
    }
    pool.let_go(file);
}

/// Each write is of one byte value, of what one reader looks at.
#[test]
fn a_write_is_seen_by_a_handle_wholly_or_not_at_all() {
    for level in [Protection::None, Protection::Full] {
        writes_are_seen_wholly(&pool_at(64 << 20, level));
    }
}

fn writes_are_seen_wholly(pool: &TestPool) {
    const PART: usize = 256 << 10;
    let ino = large(pool, b"f", 2);
    let (file, stop, start) = (pool.hold(ino).unwrap(), AtomicBool::new(false), Barrier::new(3));
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (file, stop, start, seen) = (&file, &stop, &start, &seen);
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                scope.spawn(move || {
                    let (mut random, mut bytes) = (Rng::new(seed), vec![0; PART]);
                    start.wait();
                    while !stop.load(SeqCst) {
                        let at = random.below((2 * CHUNK / PART) as u64) * PART as u64;
                        pool.read_held_quietly(file, at, &mut bytes).unwrap();
                        if bytes.iter().any(|byte| *byte != bytes[0]) {
                            stop.store(true, SeqCst);
                            panic!("half of a write at {at}");
                        }
                        seen.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        let (mut random, mut parts) = (Rng::new(9), 0);
        start.wait();
        // (Until all have read for a while.)
        while !stop.load(SeqCst) && parts < 20_000 && (parts < 300 || seen.load(SeqCst) < 3000) {
            let at = random.below((2 * CHUNK / PART) as u64) * PART as u64;
            pool.write(ino, at, &vec![parts as u8; PART]).unwrap();
            parts += 1;
            // (So that readers find some of it twice as it was.)
            std::thread::yield_now();
        }
        stop.store(true, SeqCst);
        assert!(readers.into_iter().all(|reader| reader.join().is_ok()));
    });
    pool.let_go(file);
}

#[test]
fn the_access_time_moves_by_handles_as_by_numbers() {
    const SECOND_NS: i64 = 1_000_000_000;
    const DAY_NS: i64 = 24 * 60 * 60 * SECOND_NS;
    for atime in [AccessTimes::Relative, AccessTimes::Always, AccessTimes::Never] {
        let host = TestHost::with_cpus(1, 1);
        let options = OpenOptions { atime, ..OpenOptions::default() };
        let pool = pool_with(16 << 20, Protection::None, &options, &host);
        let (held, named) = (large(&pool, b"f", 2), large(&pool, b"g", 2));
        let (file, mut bytes) = (pool.hold(held).unwrap(), [0; 4096]);
        let mut at = |now_ns: i64, reads: u32| {
            host.set_now(now_ns);
            for _ in 0..reads {
                assert_eq!(pool.read_held(&file, 4096, &mut bytes), Ok(4096));
                assert_eq!(pool.read(named, 4096, &mut bytes), Ok(4096));
            }
            let times = [held, named].map(|ino| pool.getattr(ino).unwrap().atime_ns);
            assert_eq!(times[0], times[1], "{atime:?}");
            times[0]
        };
        let first = at(10 * SECOND_NS, 3);
        let second = at(20 * SECOND_NS, 3);
        assert_eq!(second > first, atime == AccessTimes::Always);
        let late = at(DAY_NS + 30 * SECOND_NS, 3);
        assert_eq!(late > second, atime != AccessTimes::Never);
        // What changes the file makes it old.
        host.set_now(DAY_NS + 40 * SECOND_NS);
        for ino in [held, named] {
            pool.write(ino, 0, b"new").unwrap();
        }
        let changed = at(DAY_NS + 50 * SECOND_NS, 3);
        assert_eq!(changed > late, atime != AccessTimes::Never);
        pool.let_go(file);
    }
}

#[test]
fn reads_by_handles_are_counted() {
    let pool = pool(16 << 20);
    let ino = large(&pool, b"f", 2);
    let file = pool.hold(ino).unwrap();
    let reads = || pool.stats().ops[lode_engine::Op::Read as usize];
    let before = reads();
    for _ in 0..100 {
        assert_eq!(read(&pool, &file, 8192, 4096).len(), 4096);
    }
    assert_eq!(reads() - before, 100);
    pool.let_go(file);
}

/// Each write of a page by sectors is of one byte value.
#[test]
fn a_page_that_is_written_by_sectors_is_not_torn_for_a_handle() {
    let pool = pool(48 << 20);
    let ino = large(&pool, b"f", 2);
    pool.write_sectors(ino, 0, &[0; 4096]).unwrap();
    let (file, stop, start) = (pool.hold(ino).unwrap(), AtomicBool::new(false), Barrier::new(3));
    std::thread::scope(|scope| {
        let (pool, file, stop, start) = (&pool, &file, &stop, &start);
        // (One stripe is looked at in another way than several are.)
        let readers = [4096, 8192].map(|len| {
            scope.spawn(move || {
                let mut bytes = vec![0; len];
                start.wait();
                while !stop.load(SeqCst) {
                    pool.read_held_quietly(file, 4096, &mut bytes).unwrap();
                    if bytes[..4096].iter().any(|byte| *byte != bytes[0]) {
                        stop.store(true, SeqCst);
                        panic!("half of a page, in a read of {len} bytes");
                    }
                }
            })
        });
        start.wait();
        for value in 0..40_000 {
            if stop.load(SeqCst) {
                break;
            }
            pool.write_sectors(ino, 4096, &[value as u8; 4096]).unwrap();
        }
        stop.store(true, SeqCst);
        assert!(readers.into_iter().all(|reader| reader.join().is_ok()));
    });
    pool.let_go(file);
}

#[test]
fn a_handle_of_what_a_snapshot_has_ends_with_it() {
    let pool = pool(48 << 20);
    let ino = large(&pool, b"f", 2);
    pool.write(ino, 0, &[1; 8192]).unwrap();
    pool.create_snapshot(b"s").unwrap();
    let then = pool.lookup(pool.snapshot_root(b"s").unwrap(), b"f").unwrap().ino;
    let file = pool.hold(then).unwrap();
    pool.write(ino, 0, &[2; 8192]).unwrap();
    for _ in 0..3 {
        assert_eq!(read(&pool, &file, 0, 4096), [1; 4096]);
    }
    pool.delete_snapshot(b"s").unwrap();
    assert_eq!(pool.read_held_quietly(&file, 0, &mut [0; 4096]), Err(Error::Stale));
    pool.let_go(file);
}

/// Where a byte of a file is.
fn place(pool: &TestPool, ino: Ino, offset: u64) -> u64 {
    let extents = pool.dump_inode(ino).unwrap().extents;
    let has = |from: u64, bytes: u64| (from..from + bytes).contains(&offset);
    let one = extents.iter().find(|one| has(one.file_offset, one.bytes)).unwrap();
    one.pool_offset + offset - one.file_offset
}

/// What waits in the journal after a crash is what a handle reads, also where nothing may be stored.
#[test]
fn a_handle_reads_what_waits_in_the_journal() {
    let pool = pool(48 << 20);
    let ino = large(&pool, b"f", 2);
    pool.write(ino, 0, &[1; 8192]).unwrap();
    pool.write(ino, 4096, &[2; 1024]).unwrap();
    let crashed = pool.medium().copy();
    // As if it had not come home.
    crashed.put(place(&pool, ino, 4096), &[1; 1024]);
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let opened = Pool::open(crashed, TestHost::with_cpus(9, 2), &options).unwrap();
    let file = opened.hold(ino).unwrap();
    for _ in 0..3 {
        assert_eq!(read(&opened, &file, 4096, 1024), [2; 1024]);
    }
    opened.let_go(file);
}

#[test]
fn a_handle_reads_no_damage_at_level_full() {
    let pool = pool_at(128 << 20, Protection::Full);
    let ino = large(&pool, b"f", 2);
    pool.write(ino, 0, &vec![1; 2 * CHUNK]).unwrap();
    let file = pool.hold(ino).unwrap();
    let extents = pool.dump_inode(ino).unwrap().extents;
    assert!(extents[0].bytes >= CHUNK as u64, "{extents:?}");
    assert_eq!(read(&pool, &file, 0, 8192), [1; 8192]);
    pool.medium().put(place(&pool, ino, 100), &[9; 8]);
    assert_eq!(read(&pool, &file, 0, 8192), [1; 8192]);
    pool.let_go(file);
}
