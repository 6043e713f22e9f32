//! Writes by sectors: none is torn, none is lost, by threads, by crashes and by what else is done to their file; and what the
//! journal of them says may be anything.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use lode_engine::{
    Error, Fallocate, FormatOptions, Ino, NewInode, OpenOptions, Pool, Protection, Salvage,
    SetAttr, mode,
};
use lode_testkit::format::{Superblock, half, set_half, set_word, word};
use lode_testkit::fs::TestPool;
use lode_testkit::rng::Rng;
use lode_testkit::{Healing, Memory, Poisoned, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const SECTOR: usize = 512;

fn pool_of(bytes: u64, lanes: u32, protection: Protection) -> TestPool {
    let (memory, host) = (Memory::new(bytes), TestHost::with_cpus(1, lanes as usize));
    let format = FormatOptions { lanes, protection, ..FormatOptions::default() };
    Pool::format(memory.clone(), host.clone(), &format).unwrap();
    Pool::open(memory, host, &OpenOptions::default()).unwrap()
}

fn pool(lanes: u32) -> TestPool {
    pool_of(8 << 20, lanes, Protection::None)
}

/// What a crash at this moment leaves, opened again.
fn after_crash(pool: &TestPool, read_only: bool) -> TestPool {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    let opened = Pool::open(pool.medium().copy(), TestHost::with_cpus(9, 2), &options).unwrap();
    assert_eq!(opened.opening().damage, []);
    assert_eq!(opened.check(&mut |_, _| ()).unwrap().damage, []);
    opened
}

fn read(pool: &TestPool, ino: Ino, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let read = pool.read_quietly(ino, 0, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

fn file(pool: &TestPool, name: &[u8], len: usize) -> Ino {
    let ino = pool.create(pool.root(), name, &NEW).unwrap().ino;
    pool.write(ino, 0, &vec![1; len]).unwrap();
    ino
}

/// Where the journal is, by the superblock: page, lanes, pages of a place for data.
fn journal(image: &[u8]) -> Option<(usize, u32, u32)> {
    let at = if word(image, 192) >= word(image, image.len() - 4096 + 192) {
        0
    } else {
        image.len() - 4096
    };
    (word(image, at + 32) & 2 != 0).then(|| {
        (
            word(image, at + 264) as usize,
            word(image, at + 272) as u32,
            (word(image, at + 272) >> 32) as u32,
        )
    })
}

#[test]
fn what_is_written_by_sectors_is_there_and_the_journal_goes_with_the_session() {
    let pool = pool(2);
    let ino = file(&pool, b"v", 64 << 10);
    let free = pool.statfs().pages_free;
    pool.write_sectors(ino, 512, &[2; 1024]).unwrap();
    pool.write_sectors(ino, 8192, &[3; 50 << 10]).unwrap();
    // Behind the end, and in a hole: as other writes.
    pool.write_sectors(ino, 100 << 10, &[4; 512]).unwrap();
    assert_eq!(pool.write_sectors(ino, 100, &[4; 512]), Err(Error::Invalid));
    assert_eq!(pool.write_sectors(ino, 0, &[4; 100]), Err(Error::Invalid));
    let mut expected = vec![1; 64 << 10];
    expected[512..1536].fill(2);
    expected[8192..8192 + (50 << 10)].fill(3);
    expected.resize(100 << 10, 0);
    expected.extend([4; 512]);
    assert!(read(&pool, ino, 200 << 10) == expected);
    assert!(journal(&pool.medium().image()).is_some() && pool.statfs().pages_free < free - 2);
    for read_only in [true, false] {
        let opened = after_crash(&pool, read_only);
        assert!(read(&opened, ino, 200 << 10) == expected, "read only {read_only}");
        assert_eq!(journal(&opened.medium().image()).is_some(), read_only);
    }
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
    pool.close().unwrap();
    assert_eq!(journal(&pool.medium().image()), None);
    assert!(after_crash(&pool, true).opening().clean);
}

#[test]
fn where_there_is_no_journal_sectors_go_the_way_of_other_writes() {
    // At levels where metadata has copies; in a pool with no room; and where overwrites may be torn anyway.
    for (bytes, protection) in [
        (8 << 20, Protection::Metadata),
        (8 << 20, Protection::Full),
        (128 << 10, Protection::None),
    ] {
        let pool = pool_of(bytes, 2, protection);
        let ino = file(&pool, b"v", 16 << 10);
        pool.write_sectors(ino, 512, &[2; 4096]).unwrap();
        assert_eq!(journal(&pool.medium().image()), None, "{protection:?}");
        let mut expected = vec![1; 16 << 10];
        expected[512..4608].fill(2);
        assert!(read(&after_crash(&pool, false), ino, 16 << 10) == expected, "{protection:?}");
    }
}

/// Sectors of a file, each with any of the values that it may have.
struct May {
    sectors: Vec<Vec<u8>>,
}

impl May {
    fn sure(bytes: &[u8]) -> Self {
        let sectors = bytes.chunks(SECTOR).map(|sector| {
            assert!(sector.iter().all(|byte| *byte == sector[0]));
            vec![sector[0]]
        });
        Self { sectors: sectors.collect() }
    }

    fn judge(&self, bytes: &[u8], what: &str) {
        assert_eq!(bytes.len(), self.sectors.len() * SECTOR, "{what}");
        for (number, (sector, may)) in bytes.chunks(SECTOR).zip(&self.sectors).enumerate() {
            assert!(
                sector.iter().all(|byte| *byte == sector[0]),
                "{what}: sector {number} is torn"
            );
            assert!(
                may.contains(&sector[0]),
                "{what}: sector {number} is {} of {may:?}",
                sector[0]
            );
        }
    }
}

/// The medium stops at each fence of each write in turn: what is stored by then is all there, with what was cut off half stored.
#[test]
fn sectors_are_whole_wherever_a_write_ends_in_either_of_two_lanes() {
    const LEN: usize = 16 << 10;
    for seed in 0..60 {
        let mut random = Rng::new(seed);
        let pool = pool(2);
        let ino = file(&pool, b"v", LEN);
        let mut now = vec![1u8; LEN];
        for step in 0..30u64 {
            let cpu = random.below(2) as usize;
            pool.host().set_cpu(cpu);
            let value = 2 + (step as u8);
            let from = random.below(31) as usize;
            let sectors = 1 + random.below(((32 - from) as u64).min(10)) as usize;
            let (from, to) = (from * SECTOR, (from + sectors) * SECTOR);
            let what = format!("seed {seed}, step {step}");
            match random.below(12) {
                0 => pool.write(ino, from as u64, &vec![value; to - from]).unwrap(),
                1 => {
                    let punch = (from as u64, (to - from) as u64);
                    pool.fallocate(ino, Fallocate::Zero { keep_size: true }, punch.0, punch.1)
                        .unwrap();
                    now[from..to].fill(0);
                    continue;
                }
                2 => {
                    for size in [from as u64, LEN as u64] {
                        let size = SetAttr { size: Some(size), ..SetAttr::default() };
                        pool.setattr(ino, &size).unwrap();
                    }
                    pool.write(ino, from as u64, &vec![value; LEN - from]).unwrap();
                    now[from..].fill(value);
                    continue;
                }
                3 => {
                    pool.create_snapshot(format!("{step}").as_bytes()).unwrap();
                    continue;
                }
                _ => pool.write_sectors(ino, from as u64, &vec![value; to - from]).unwrap(),
            }
            now[from..to].fill(value);
            let opened = after_crash(&pool, random.below(2) == 0);
            May::sure(&now).judge(&read(&opened, ino, LEN), &what);
        }
        // The last write ends anywhere.
        let (from, to) = (3 * SECTOR, 7 * SECTOR);
        pool.medium().fail_fences_after(random.below(4));
        let cut = pool.write_sectors(ino, from as u64, &vec![99; to - from]);
        let mut may = May::sure(&now);
        may.sectors[3..7].iter_mut().for_each(|may| match cut {
            Ok(()) => *may = vec![99],
            Err(_) => may.push(99),
        });
        pool.medium().fail_fences_after(u64::MAX);
        for read_only in [true, false] {
            let opened = after_crash(&pool, read_only);
            may.judge(&read(&opened, ino, LEN), &format!("seed {seed}, cut off, {cut:?}"));
        }
    }
}

#[test]
fn threads_that_write_and_read_one_file_meet_no_torn_sector_and_lose_none() {
    let (pool, ino) = large_file(32 << 20, THREADS as u32);
    write_and_read(&pool, ino);
}

/// In a large pool there are more lanes than processors: whoever finds its own taken takes another one.
#[test]
fn threads_that_have_more_lanes_than_processors_meet_no_torn_sector_and_lose_none() {
    let (pool, ino) = large_file(128 << 20, 2);
    pool.write_sectors(ino, 0, &[0; SECTOR]).unwrap();
    let (_, lanes, _) = journal(&pool.medium().image()).unwrap();
    assert!(lanes >= 16, "{lanes} lanes");
    write_and_read(&pool, ino);
}

const THREADS: usize = 4;

/// Threads write and read stamped sectors of one file, anywhere.
fn write_and_read(pool: &TestPool, ino: Ino) {
    const SECTORS: usize = 64;
    let file = pool.hold(ino).unwrap();
    pool.write_sectors(ino, 0, &vec![0; SECTORS * SECTOR]).unwrap();
    let stamp = |sector: usize, version: u64| -> Vec<u8> {
        let word = (sector as u64) << 48 | version;
        word.to_le_bytes().repeat(SECTOR / 8)
    };
    let newest: Vec<AtomicU64> = (0..SECTORS).map(|_| AtomicU64::new(0)).collect();
    let (start, stop) = (Barrier::new(THREADS + 2), AtomicBool::new(false));
    // A thread owns each fourth sector: it writes only these, one by one; and nobody's, several at once.
    std::thread::scope(|scope| {
        let (file, newest, start, stop) = (&file, &newest, &start, &stop);
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = Rng::new(thread as u64);
                    start.wait();
                    for version in 1..400u64 {
                        let sector =
                            random.below((SECTORS / THREADS) as u64) as usize * THREADS + thread;
                        pool.write_sectors(ino, (sector * SECTOR) as u64, &stamp(sector, version))
                            .unwrap();
                        newest[sector].store(version, SeqCst);
                        if version % 64 == 0 {
                            // What takes the file for itself between.
                            pool.setattr(ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() })
                                .unwrap();
                        }
                    }
                })
            })
            .collect();
        for reader in 0..2u64 {
            scope.spawn(move || {
                let mut random = Rng::new(100 + reader);
                start.wait();
                while !stop.load(SeqCst) {
                    let from = random.below(SECTORS as u64) as usize;
                    let count = 1 + random.below((SECTORS - from) as u64) as usize;
                    let least: Vec<_> =
                        newest[from..from + count].iter().map(|it| it.load(SeqCst)).collect();
                    let mut bytes = vec![0; count * SECTOR];
                    let at = (from * SECTOR) as u64;
                    let read = match reader {
                        0 => pool.read_quietly(ino, at, &mut bytes),
                        _ => pool.read_held_quietly(file, at, &mut bytes),
                    };
                    assert_eq!(read, Ok(bytes.len()));
                    for (step, sector) in bytes.chunks(SECTOR).enumerate() {
                        let version = word(sector, 0) & ((1 << 48) - 1);
                        assert!(version >= least[step], "sector {} went back", from + step);
                        let whole = version == 0 && sector.iter().all(|byte| *byte == 0)
                            || sector == stamp(from + step, version);
                        assert!(whole, "sector {} is torn", from + step);
                    }
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, SeqCst);
        assert!(ended.iter().all(Result::is_ok));
    });
    pool.let_go(file);
    for opened in [after_crash(pool, true), after_crash(pool, false)] {
        let bytes = read(&opened, ino, SECTORS * SECTOR);
        for (number, sector) in bytes.chunks(SECTOR).enumerate() {
            let version = newest[number].load(SeqCst);
            assert!(version == 0 || sector == stamp(number, version), "sector {number}");
        }
    }
}

/// A pool, with a file of 4 MiB in pages of 2 MiB, all of it written.
fn large_file(bytes: u64, lanes: u32) -> (TestPool, Ino) {
    let pool = pool_of(bytes, lanes, Protection::None);
    let ino = pool.create(pool.root(), b"v", &NEW).unwrap().ino;
    pool.fallocate(ino, Fallocate::Allocate { keep_size: false }, 0, 4 << 20).unwrap();
    pool.write(ino, 0, &vec![1; 4 << 20]).unwrap();
    (pool, ino)
}

#[test]
fn who_reads_by_sectors_reads_what_there_is_now_whatever_became_of_the_file() {
    let (pool, ino) = large_file(32 << 20, 2);
    let file = pool.hold(ino).unwrap();
    let mut expected = vec![1; 4 << 20];
    let same = |expected: &[u8], what: &str| {
        // (The second time places are known.)
        for (from, len) in [(4096, 4096), (1 << 20, 2 << 20), (4096, 4096), (0, 5 << 20)] {
            let mut bytes = vec![9; len];
            let read = pool.read_held_quietly(&file, from as u64, &mut bytes).unwrap();
            let end = (from + len).min(expected.len());
            let expected = expected.get(from..end).unwrap_or_default();
            assert!(bytes[..read] == *expected, "{what}: {len} bytes at {from}");
        }
    };
    same(&expected, "written");
    pool.write_sectors(ino, 4096, &[2; 4096]).unwrap();
    expected[4096..8192].fill(2);
    same(&expected, "by sectors");
    pool.write(ino, 5000, &[3; 100]).unwrap();
    expected[5000..5100].fill(3);
    same(&expected, "otherwise");
    pool.create_snapshot(b"s").unwrap();
    pool.write_sectors(ino, 4096, &[4; 8192]).unwrap();
    expected[4096..12288].fill(4);
    same(&expected, "beside what a snapshot sees");
    pool.fallocate(ino, Fallocate::Punch, 0, 2 << 20).unwrap();
    expected[..2 << 20].fill(0);
    same(&expected, "a hole");
    // Its pages are another's now.
    pool.delete_snapshot(b"s").unwrap();
    let other = pool.create(pool.root(), b"w", &NEW).unwrap().ino;
    pool.write(other, 0, &vec![7; 8 << 20]).unwrap();
    same(&expected, "another file");
    pool.setattr(ino, &SetAttr { size: Some(3 << 20), ..SetAttr::default() }).unwrap();
    expected.truncate(3 << 20);
    same(&expected, "shorter");
    pool.let_go(file);
}

/// One thread gives pages of the file to another file and takes others, again and again, while others read it.
#[test]
fn who_reads_by_sectors_never_reads_pages_of_another_file() {
    const CHUNK: u64 = 2 << 20;
    let (pool, ino) = large_file(32 << 20, 2);
    let other = pool.create(pool.root(), b"w", &NEW).unwrap().ino;
    let (file, stop) = (pool.hold(ino).unwrap(), AtomicBool::new(false));
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (pool, file, stop, seen) = (&pool, &file, &stop, &seen);
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                scope.spawn(move || {
                    let mut random = Rng::new(seed);
                    let mut bytes = vec![0; 64 << 10];
                    while !stop.load(SeqCst) {
                        let at = random.below(32) * (64 << 10);
                        pool.read_held_quietly(file, at, &mut bytes).unwrap();
                        if let Some(wrong) = bytes.iter().find(|byte| **byte > 1) {
                            stop.store(true, SeqCst);
                            panic!("read {wrong}, of another file, at {at}");
                        }
                        seen.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        // (Until all have read for a while; each round is some hundred microseconds.)
        for round in 0..4000 {
            if stop.load(SeqCst) || round > 300 && seen.load(SeqCst) > 2000 {
                break;
            }
            pool.fallocate(ino, Fallocate::Punch, 0, CHUNK).unwrap();
            pool.fallocate(other, Fallocate::Allocate { keep_size: false }, 0, CHUNK).unwrap();
            pool.write(other, 0, &[9; 128 << 10]).unwrap();
            pool.setattr(other, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
            pool.fallocate(ino, Fallocate::Allocate { keep_size: true }, 0, CHUNK).unwrap();
        }
        stop.store(true, SeqCst);
        assert!(readers.into_iter().all(|reader| reader.join().is_ok()));
    });
    pool.let_go(file);
}

/// Writes that overlap, each of several sectors: every sector is of one of them, and what is read last is what a crash leaves.
#[test]
fn writes_that_overlap_leave_whole_sectors_and_a_crash_the_same() {
    const THREADS: usize = 4;
    const SECTORS: u64 = 24;
    let pool = pool(THREADS as u32);
    let ino = file(&pool, b"v", SECTORS as usize * SECTOR);
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let pool = &pool;
            scope.spawn(move || {
                let mut random = Rng::new(7 + thread);
                for step in 0..200 {
                    let from = random.below(SECTORS);
                    let count = 1 + random.below(SECTORS - from);
                    let value = (2 + thread * 60 + step % 60) as u8;
                    let bytes = vec![value; count as usize * SECTOR];
                    pool.write_sectors(ino, from * SECTOR as u64, &bytes).unwrap();
                }
            });
        }
    });
    let last = read(&pool, ino, SECTORS as usize * SECTOR);
    May::sure(&last).judge(&read(&after_crash(&pool, false), ino, last.len()), "written over");
    May::sure(&last).judge(&read(&after_crash(&pool, true), ino, last.len()), "read from it");
}

/// What a line says may be anything, sealed or not: nothing is stored outside the file's own pages.
#[test]
fn a_line_of_the_journal_that_says_anything_changes_nothing_but_its_own_file() {
    let pool = pool(2);
    let (ino, other) = (file(&pool, b"v", 16 << 10), file(&pool, b"w", 16 << 10));
    pool.host().set_cpu(0);
    pool.write_sectors(ino, 512, &[2; 512]).unwrap();
    let image = pool.medium().image();
    let superblock = Superblock::read(&image);
    let line_at = journal(&image).unwrap().0 * 4096;
    let tag = half(&image, line_at + 60);
    let fields = [8usize, 16, 24, 32, 40];
    let values = [0, 1, 511, 4096, 16 << 10, other, 1 << 40, u64::MAX - 511, u64::MAX];
    let mut tried = 0;
    for field in fields {
        for value in values {
            let mut image = image.clone();
            set_word(&mut image, line_at + field, value);
            superblock.seal_placed_as(&mut image, line_at, tag);
            judge_forged(&image, (ino, other));
            tried += 1;
        }
    }
    for len in [0, 1, 511, 4096, 65536, u32::MAX] {
        let mut image = image.clone();
        set_half(&mut image, line_at + 4, len);
        superblock.seal_placed_as(&mut image, line_at, tag);
        judge_forged(&image, (ino, other));
        tried += 1;
    }
    assert_eq!(tried, 51);
}

fn judge_forged(image: &[u8], (ino, other): (Ino, Ino)) {
    for read_only in [true, false] {
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        let opened = Pool::open(Memory::from_image(image), TestHost::new(4), &options).unwrap();
        assert_eq!(opened.check(&mut |_, _| ()).unwrap().damage, []);
        assert!(read(&opened, other, 16 << 10) == vec![1; 16 << 10]);
        assert_eq!(read(&opened, ino, 16 << 10).len(), 16 << 10);
    }
}

/// A superblock that says of the journal what can't be is refused.
#[test]
fn a_journal_that_can_not_be_where_it_is_said_to_be_is_refused() {
    let pool = pool(2);
    let ino = file(&pool, b"v", 16 << 10);
    pool.write_sectors(ino, 0, &[2; 512]).unwrap();
    let image = pool.medium().image();
    let pages = (image.len() / 4096) as u64;
    for (page, shape) in [
        (0, 1 << 32 | 2),
        (pages - 2, 1 << 32 | 2),
        (u64::MAX, 1 << 32 | 2),
        (9, 2),
        (9, 1 << 32),
        (9, 17 << 32 | 2),
        (9, 1 << 32 | 257),
    ] {
        let mut image = image.clone();
        for at in [0, image.len() - 4096] {
            set_word(&mut image, at + 264, page);
            set_word(&mut image, at + 272, shape);
            lode_testkit::format::seal_superblock(&mut image, at);
        }
        let opened =
            Pool::open(Memory::from_image(&image), TestHost::new(4), &OpenOptions::default());
        assert!(matches!(opened, Err(Error::NotAPool(_))), "{page} {shape:#x}");
    }
}

/// What a crash has left of two writes of a file: of sector 1 in the first lane, which is torn at home, and of sector 9 in the second, of which
/// nothing is. Both are in the journal.
fn cut_off() -> (Memory, [u64; 2]) {
    let pool = pool(2);
    let ino = file(&pool, b"v", 16 << 10);
    for (cpu, sector, value) in [(0, 1, 2), (1, 9, 3)] {
        pool.host().set_cpu(cpu);
        pool.write_sectors(ino, sector * 512, &[value; SECTOR]).unwrap();
    }
    let left = pool.medium().copy();
    let lines = journal(&left.image()).unwrap().0 as u64 * 4096;
    let home = |line: u64| word(&left.get(line, 64), 32);
    left.put(home(lines), &[1; SECTOR / 2]);
    left.put(home(lines + 64), &[1; SECTOR]);
    (left, [lines, lines + 64])
}

/// A line that can't be loaded is all that a salvage gives up: it tells of it, and all other sectors are as they were written, also those
/// that only another line has.
#[test]
fn a_line_of_the_journal_that_can_not_be_loaded_is_given_up_alone_and_told_of() {
    for (healing, lost) in
        [(Healing::ByLines, 0), (Healing::ByLines, 1), (Healing::Never, 0), (Healing::Never, 1)]
    {
        let what = format!("{healing:?}, line {lost}");
        let (left, lines) = cut_off();
        let memory = Poisoned::new(left, healing);
        memory.poison(lines[lost], 64);
        let open = |read_only| {
            let options = OpenOptions { read_only, ..OpenOptions::default() };
            Pool::open(memory.clone(), TestHost::with_cpus(4, 2), &options)
        };
        let refused = open(false).map(drop).unwrap_err();
        assert!(matches!(refused, Error::Corrupt(damage) if damage.at == lines[lost]), "{what}");
        assert_eq!(open(true).unwrap().opening().damage.len(), 1, "{what}");
        let mut told = Vec::new();
        let salvaged = Pool::salvage(memory.clone(), TestHost::new(5), &mut |event| match event {
            Salvage::SectorsLost { damage } => told.push((damage.at, damage.ino)),
            other => panic!("{what}: {other:?}"),
        });
        assert_eq!((salvaged, &told[..]), (Ok(()), &[(lines[lost], 0)][..]), "{what}");
        let again = Pool::salvage(memory.clone(), TestHost::new(6), &mut |event| {
            panic!("{what}, again: {event:?}")
        });
        assert_eq!(again, Ok(()), "{what}");
        let pool = open(false).unwrap();
        assert!(pool.opening().clean && pool.opening().damage.is_empty(), "{what}");
        assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, [], "{what}");
        let (ino, mut want) = (pool.lookup(pool.root(), b"v").unwrap().ino, vec![1; 16 << 10]);
        // (What the lost line told of is as the crash has left it.)
        want[SECTOR + if lost == 0 { SECTOR / 2 } else { 0 }..2 * SECTOR].fill(2);
        want[9 * SECTOR..10 * SECTOR].fill(if lost == 0 { 3 } else { 1 });
        let mut found = vec![0; 16 << 10];
        assert_eq!(pool.read_quietly(ino, 0, &mut found), Ok(16 << 10), "{what}");
        assert!(found == want, "{what}");
        assert_eq!(memory.machine_checks(), 0, "{what}");
    }
}
