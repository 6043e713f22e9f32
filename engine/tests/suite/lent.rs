//! Memory that is lent: never twice, never what a file has, and free space is exact through all of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use lode_engine::{
    AccessTimes, Error, Fallocate, FormatOptions, Host, LENT_BYTES, NewInode, OpenOptions,
    PAGE_BYTES, Pool, Protection, mode,
};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::Op;
use lode_testkit::rng::Rng;
use lode_testkit::run::{Rules, run_and_shrink};
use lode_testkit::system::PoolSystem;
use lode_testkit::{HostHooks, Memory, TestHost};

const MIB: u64 = 1 << 20;
const PAGES: u64 = LENT_BYTES / PAGE_BYTES;
const NEW: NewInode = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };

type TestPool<H = TestHost> = Pool<Memory, H>;

fn made(memory: &Memory, protection: Protection) {
    let format = FormatOptions { protection, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
}

fn opened(memory: &Memory) -> TestPool {
    Pool::open(memory.clone(), TestHost::new(2), &OpenOptions::default()).unwrap()
}

fn sound<H: Host>(pool: &TestPool<H>) {
    let report = pool.check(&mut |_, _| ()).unwrap();
    assert_eq!(report.damage, []);
}

fn lent_all<H: Host>(pool: &TestPool<H>) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        match pool.lend(0) {
            Ok(chunk) => {
                all.push(chunk);
                assert!(all.len() < 1000, "more than there is: {chunk}");
            }
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                return all;
            }
        }
    }
}

#[test]
fn a_chunk_is_lent_once_and_given_back_once() {
    let memory = Memory::new(32 * MIB);
    made(&memory, Protection::None);
    let pool = opened(&memory);
    let free = pool.space().pages_free;
    let all = lent_all(&pool);
    let distinct: BTreeSet<u64> = all.iter().copied().collect();
    assert!(all.len() >= 12 && distinct.len() == all.len(), "{all:?}");
    assert_eq!(pool.lent().unwrap(), distinct.iter().copied().collect::<Vec<_>>());
    assert_eq!(pool.space().pages_free, free - PAGES * all.len() as u64);
    assert!(
        pool.space().pages_available < 2 * PAGES,
        "files have what is no chunk, and the reserve"
    );
    assert!(pool.space().pages_free > pool.space().pages_available);
    sound(&pool);
    pool.give_back(all[3]).unwrap();
    assert_eq!(pool.give_back(all[3]), Err(Error::NotLent));
    assert_eq!(pool.give_back(u64::MAX), Err(Error::NotLent));
    assert!(!pool.is_lent(all[3]) && pool.is_lent(all[4]) && !pool.is_lent(u64::MAX));
    assert_eq!(pool.lend(0), Ok(all[3]));
    // What is spared for files is not lent.
    pool.give_back(all[3]).unwrap();
    assert_eq!(pool.lend(pool.space().pages_available - PAGES + 1), Err(Error::NoSpace));
    assert_eq!(pool.lend(pool.space().pages_available - PAGES), Ok(all[3]));
    for chunk in all {
        pool.give_back(chunk).unwrap();
    }
    assert_eq!(pool.space().pages_free, free);
    sound(&pool);
    pool.close().unwrap();
    assert!(opened(&memory).opening().clean);
}

#[test]
fn a_clean_close_leaves_free_what_is_lent() {
    for protection in [Protection::None, Protection::Metadata, Protection::Full] {
        let memory = Memory::new(32 * MIB);
        made(&memory, protection);
        let pool = opened(&memory);
        let free = pool.space().pages_free;
        assert!(!lent_all(&pool).is_empty());
        pool.close().unwrap();
        let pool = opened(&memory);
        assert!(pool.opening().clean, "{protection:?}");
        assert_eq!((pool.lent().unwrap(), pool.space().pages_free), (vec![], free));
        sound(&pool);
    }
}

#[test]
fn random_lending_beside_files_equals_the_model() {
    let rules = Rules { tree_every: 40, ..Rules::default() };
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let mut ops = Vec::new();
        for op in Generator::new(seed, Shape::default()).take(400) {
            ops.push(op);
            ops.extend(match rng.below(6) {
                0 => vec![Op::Lend, Op::Scribble(seed + 1)],
                1 => vec![Op::GiveBack(rng.below(16) as usize)],
                2 => vec![Op::Scribble(rng.below(1000) + 1)],
                3 if rng.below(8) == 0 => vec![Op::Remount],
                3 if rng.below(8) == 0 => vec![Op::Crash],
                _ => vec![],
            });
        }
        let protection =
            [Protection::None, Protection::Metadata, Protection::Full][seed as usize % 3];
        let format = FormatOptions { protection, ..FormatOptions::default() };
        let options = OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() };
        let make = || PoolSystem::new(48 * MIB, TestHost::new(seed), &format, options);
        if let Err(failure) = run_and_shrink(&make, &ops, &rules, 200) {
            panic!("seed {seed}, {protection:?}: {failure}");
        }
    }
}

/// A pool of which a program holds a chunk, which is told, too, whose lender is gone; whether it was closed.
fn beside_a_program(protection: Protection, closed: bool) -> (Memory, TestPool, u64) {
    let memory = Memory::new(32 * MIB);
    made(&memory, protection);
    let pool = opened(&memory);
    let ino = pool.create(pool.root(), b"before", &NEW).unwrap().ino;
    pool.write(ino, 0, &[7; 300_000]).unwrap();
    let held = lent_all(&pool)[2];
    if closed {
        pool.close().unwrap();
    }
    drop(pool);
    memory.hold(held * LENT_BYTES, LENT_BYTES);
    let pool = opened(&memory);
    (memory, pool, held)
}

#[test]
fn nobody_gets_memory_that_a_program_holds_whose_lender_is_gone() {
    for protection in [Protection::None, Protection::Metadata, Protection::Full] {
        for closed in [false, true] {
            let (memory, pool, held) = beside_a_program(protection, closed);
            assert_eq!(pool.lent().unwrap(), [held]);
            let before = memory.image();
            let ino = pool.create(pool.root(), b"all", &NEW).unwrap().ino;
            let full = loop {
                if let Err(error) = pool.append(ino, &[9; 100_000]) {
                    break error;
                }
            };
            assert_eq!(full, Error::NoSpace);
            sound(&pool);
            pool.close().unwrap();
            let chunk = (held * LENT_BYTES) as usize..((held + 1) * LENT_BYTES) as usize;
            assert!(before[chunk.clone()] == memory.image()[chunk], "{protection:?} {closed}");
            // It ends; then its pages are free.
            let pool = opened(&memory);
            let free = pool.space().pages_free;
            pool.give_back(held).unwrap();
            assert_eq!(pool.space().pages_free, free + PAGES);
            assert_eq!(pool.give_back(held), Err(Error::NotLent));
            pool.append(ino, &[9; 100_000]).unwrap();
            sound(&pool);
        }
    }
}

#[test]
fn what_a_file_has_of_a_held_chunk_stays_its_until_it_gives_it_up() {
    let memory = Memory::new(32 * MIB);
    made(&memory, Protection::None);
    let pool = opened(&memory);
    let ino = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
    while pool.append(ino, &[5; 100_000]).is_ok() {}
    pool.close().unwrap();
    memory.hold(4 * LENT_BYTES, LENT_BYTES);
    let pool = opened(&memory);
    assert_eq!(pool.lent().unwrap(), [4]);
    let mut bytes = vec![0; 100_000];
    pool.read(ino, 9 * MIB, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 5));
    pool.unlink(pool.root(), b"file").unwrap();
    pool.maintain().unwrap();
    sound(&pool);
    assert!(!lent_all(&pool).contains(&4));
    let free = pool.space().pages_free;
    pool.give_back(4).unwrap();
    assert_eq!(pool.space().pages_free, free + PAGES);
    sound(&pool);
}

#[test]
fn what_no_file_had_of_a_held_chunk_comes_back_with_it_and_the_rest_with_the_file() {
    let memory = Memory::new(32 * MIB);
    made(&memory, Protection::None);
    let pool = opened(&memory);
    // Chunks of which files have a part, each its own.
    let inos: Vec<_> = (0..60_u32)
        .map(|number| {
            let name = format!("{number}");
            let ino = pool.create(pool.root(), name.as_bytes(), &NEW).unwrap().ino;
            pool.append(ino, &vec![number as u8; 150_000]).unwrap();
            ino
        })
        .collect();
    pool.close().unwrap();
    for chunk in 1..6 {
        memory.hold(chunk * LENT_BYTES, LENT_BYTES);
    }
    let pool = opened(&memory);
    let (free, held) = (pool.space().pages_free, pool.lent().unwrap());
    assert_eq!(held, [1, 2, 3, 4, 5]);
    // Files give up some of it before, some after it comes back.
    (0..60).step_by(2).for_each(|number| {
        pool.unlink(pool.root(), format!("{number}").as_bytes()).unwrap();
    });
    pool.maintain().unwrap();
    sound(&pool);
    for chunk in held {
        pool.give_back(chunk).unwrap();
    }
    sound(&pool);
    for number in (1..60).step_by(2) {
        let mut bytes = vec![0; 150_000];
        pool.read(inos[number], 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == number as u8));
        pool.unlink(pool.root(), format!("{number}").as_bytes()).unwrap();
    }
    pool.maintain().unwrap();
    sound(&pool);
    let files = 60 * 150_000 / PAGE_BYTES;
    assert!(pool.space().pages_free >= free + files);
    // All of it is where it should be: there are as many whole chunks as in a new pool, but for tables.
    assert!(lent_all(&pool).len() >= 12);
    pool.close().unwrap();
}

#[test]
fn a_part_of_a_file_is_lent_where_it_is_one_whole_chunk_and_nowhere_else() {
    let memory = Memory::new(64 * MIB);
    made(&memory, Protection::None);
    let pool = opened(&memory);
    let mut rng = Rng::new(5);
    let (mut lent, mut refused, mut apart) = (0, [0; 2], Vec::new());
    for _ in 0..150 {
        let ino = pool.create_nameless(pool.root(), &NEW, &[]).unwrap().ino;
        let file = pool.take_over(ino).unwrap();
        let how = Fallocate::Allocate { keep_size: false };
        // In pieces, one behind the other, with others between some.
        let mut at = 0;
        while at < LENT_BYTES {
            let len = (rng.below(512) + 1) * 4096;
            let len = if rng.below(2) == 0 { LENT_BYTES - at } else { len.min(LENT_BYTES - at) };
            pool.fallocate(ino, how, at, len).unwrap();
            at += len;
            if rng.below(6) == 0 {
                let other = pool.create_nameless(pool.root(), &NEW, &[]).unwrap().ino;
                apart.push(pool.take_over(other).unwrap());
                pool.fallocate(other, how, 0, 4096 * (rng.below(40) + 1)).unwrap();
            }
        }
        let extents = pool.map(&file, 0, LENT_BYTES).unwrap();
        pool.unmap(&file);
        let is_aligned = extents[0].pool_offset.is_multiple_of(LENT_BYTES);
        let is_one = extents[0].bytes == LENT_BYTES;
        match pool.lend_part(&file, 0) {
            Ok(chunk) => {
                assert!(is_aligned && is_one, "{extents:?}");
                assert_eq!(chunk * LENT_BYTES, extents[0].pool_offset);
                pool.let_go(file);
                pool.give_back(chunk).unwrap();
                lent += 1;
            }
            Err(error) => {
                assert_eq!(error, Error::Invalid);
                assert!(!is_aligned || !is_one, "{extents:?}");
                refused[0] += u32::from(is_aligned);
                refused[1] += u32::from(is_one);
                pool.let_go(file);
            }
        }
        if apart.len() > 8 {
            apart.drain(..4).for_each(|other| pool.let_go(other));
        }
    }
    sound(&pool);
    assert!(lent > 0 && refused.iter().all(|count| *count > 0), "{lent} {refused:?}");
}

#[test]
fn parts_of_files_are_lent_until_they_are_given_back_whatever_the_file_does() {
    for protection in [Protection::None, Protection::Full] {
        let memory = Memory::new(32 * MIB);
        made(&memory, protection);
        let pool = opened(&memory);
        let free = pool.space().pages_free;
        let ino = pool.create_nameless(pool.root(), &NEW, &[]).unwrap().ino;
        let file = pool.take_over(ino).unwrap();
        assert_eq!(pool.lend_part(&file, 0), Err(Error::Invalid), "a hole");
        let how = Fallocate::Allocate { keep_size: false };
        pool.fallocate(ino, how, 0, 2 * LENT_BYTES).unwrap();
        // (Where it begins, too, though the page there is a chunk's first.)
        for crooked in [1, PAGE_BYTES - 1] {
            assert_eq!(pool.lend_part(&file, crooked), Err(Error::Invalid));
        }
        let chunks = [0, LENT_BYTES].map(|offset| pool.lend_part(&file, offset).unwrap());
        assert_eq!(pool.lend_part(&file, 0), Err(Error::Busy));
        assert_eq!(pool.lend_part(&file, 4096), Err(Error::Invalid));
        // The program stores there: nothing compares it with what was there, nor moves it.
        for chunk in chunks {
            memory.put(chunk * LENT_BYTES + 4096, &[0xee; 500]);
        }
        pool.create_snapshot(b"s").unwrap();
        let mut scrub = pool.begin_scrub().unwrap();
        while !scrub.is_over() {
            pool.scrub(&mut scrub, 1 << 20).unwrap();
        }
        assert_eq!(scrub.take_findings(), []);
        assert_eq!(memory.get(chunks[0] * LENT_BYTES + 4096, 500), [0xee; 500]);
        // The snapshot has nothing of it: it is free when it comes back.
        pool.fallocate(ino, Fallocate::Punch, 0, LENT_BYTES).unwrap();
        assert!(!lent_all(&pool).iter().any(|chunk| chunks.contains(chunk)));
        sound(&pool);
        let before = pool.space().pages_free;
        pool.give_back(chunks[0]).unwrap();
        assert_eq!(pool.space().pages_free, before + PAGES);
        sound(&pool);
        pool.let_go(file);
        pool.delete_snapshot(b"s").unwrap();
        pool.maintain().unwrap();
        sound(&pool);
        for chunk in pool.lent().unwrap() {
            pool.give_back(chunk).unwrap();
        }
        sound(&pool);
        let used = free - pool.space().pages_free;
        assert!(used < 16, "{used} pages are with what snapshots need");
        pool.close().unwrap();
        assert!(opened(&memory).opening().clean);
    }
}

#[test]
fn a_named_file_is_not_lent() {
    let memory = Memory::new(32 * MIB);
    made(&memory, Protection::None);
    let pool = opened(&memory);
    let ino = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
    pool.fallocate(ino, Fallocate::Allocate { keep_size: false }, 0, LENT_BYTES).unwrap();
    let file = pool.hold(ino).unwrap();
    assert_eq!(pool.lend_part(&file, 0), Err(Error::Invalid));
    pool.let_go(file);
}

#[test]
fn a_pool_that_is_rolled_back_has_lent_what_it_had_lent() {
    let memory = Memory::new(32 * MIB);
    made(&memory, Protection::None);
    let pool = opened(&memory);
    pool.create_snapshot(b"s").unwrap();
    let ino = pool.create_nameless(pool.root(), &NEW, &[]).unwrap().ino;
    let file = pool.take_over(ino).unwrap();
    pool.fallocate(ino, Fallocate::Allocate { keep_size: false }, 0, LENT_BYTES).unwrap();
    let part = pool.lend_part(&file, 0).unwrap();
    let lent = pool.lend(0).unwrap();
    let (life, mut both) = (pool.life(), vec![part, lent]);
    both.sort_unstable();
    let back = pool.begin_rollback(b"s").unwrap();
    let pool = pool.finish_rollback(back).unwrap();
    assert!(pool.life() != life);
    assert_eq!(pool.lent().unwrap(), both);
    let free = pool.space().pages_free;
    sound(&pool);
    for chunk in both {
        pool.give_back(chunk).unwrap();
    }
    assert_eq!(pool.space().pages_free, free + 2 * PAGES);
    sound(&pool);
}

#[test]
fn what_would_move_lent_memory_is_refused() {
    let (memory, pool, held) = beside_a_program(Protection::None, true);
    pool.close().unwrap();
    drop(pool);
    let before = memory.image();
    let protect = |memory: &Memory| {
        let host = TestHost::new(3);
        Pool::protect(memory.clone(), host, Protection::Metadata, 0, &mut |_, _| ())
    };
    assert_eq!(protect(&memory), Err(Error::Lent));
    let formatted = Pool::format(memory.clone(), TestHost::new(3), &FormatOptions::default());
    assert_eq!(formatted, Err(Error::Lent));
    let chunk = (held * LENT_BYTES) as usize..((held + 1) * LENT_BYTES) as usize;
    assert!(before[chunk.clone()] == memory.image()[chunk]);
    memory.hold_nothing();
    assert_eq!(protect(&memory), Ok(true));
    sound(&opened(&memory));
}

/// Has a program give back a chunk whenever the host is asked, as long as there are some.
struct Spare(Mutex<Box<dyn FnMut(u64) -> bool + Send>>);

impl HostHooks for Spare {
    fn asks_pages(&self, pages: u64) -> bool {
        (self.0.lock().unwrap())(pages)
    }
}

/// Runs `work` on a full pool, all of whose chunks are lent; they come back one by one where files are short.
/// Returns how many did, and how many were lent.
fn short_of_pages(protection: Protection, work: impl Fn(&TestPool<TestHost>)) -> (usize, usize) {
    type Wish = (u64, std::sync::mpsc::Sender<bool>);
    let memory = Memory::new(32 * MIB);
    made(&memory, protection);
    let (ask, asked) = std::sync::mpsc::channel::<Wish>();
    let spare = Mutex::new(Box::new(move |pages| {
        let (answer, answered) = std::sync::mpsc::channel();
        assert!(pages > 0);
        ask.send((pages, answer)).unwrap();
        answered.recv_timeout(std::time::Duration::from_secs(60)).expect("an answer")
    }) as Box<dyn FnMut(u64) -> bool + Send>);
    let spare = Arc::new(Spare(spare));
    let host = TestHost::new(5).telling(spare.clone());
    let pool = Pool::open(memory, host, &OpenOptions::default()).unwrap();
    let mut lent = lent_all(&pool);
    let all = lent.len();
    let left = std::thread::scope(|scope| {
        let pool = &pool;
        let program = scope.spawn(move || {
            // By another thread, while the operation waits.
            while let Ok((_, answer)) = asked.recv_timeout(std::time::Duration::from_secs(60)) {
                let chunk = lent.pop();
                if let Some(chunk) = chunk {
                    pool.give_back(chunk).unwrap();
                }
                answer.send(chunk.is_some()).unwrap();
                if chunk.is_none() {
                    break;
                }
            }
            lent.len()
        });
        work(pool);
        // Nobody asks any more.
        *spare.0.lock().unwrap() = Box::new(|_| false);
        program.join().unwrap()
    });
    sound(&pool);
    pool.close().unwrap();
    (all - left, all)
}

#[test]
fn files_get_what_is_lent_before_there_is_no_space() {
    let grows = |pool: &TestPool<TestHost>| {
        let ino = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
        let error = (0..1000).find_map(|_| pool.append(ino, &[1; 100_000]).err());
        assert_eq!(error, Some(Error::NoSpace));
        assert!(pool.getattr(ino).unwrap().size > 24 * MIB);
        assert!(pool.space().pages_available < 32, "less than what was refused");
    };
    for protection in [Protection::None, Protection::Metadata] {
        let (given, all) = short_of_pages(protection, grows);
        assert_eq!(given, all, "{protection:?}: no space, and programs have some");
    }
}

#[test]
fn files_get_what_is_lent_by_fallocate() {
    let (given, all) = short_of_pages(Protection::None, |pool| {
        let ino = pool.create(pool.root(), b"file", &NEW).unwrap().ino;
        let how = Fallocate::Allocate { keep_size: false };
        pool.fallocate(ino, how, 0, 9 * LENT_BYTES).unwrap();
        let too_much = pool.fallocate(ino, how, 0, 40 * MIB);
        assert_eq!(too_much, Err(Error::NoSpace));
    });
    assert!(all >= 12 && given == all, "{given} of {all}");
}

#[test]
fn new_inodes_and_logs_get_what_is_lent() {
    let (given, _) = short_of_pages(Protection::None, |pool| {
        // All that is left goes to files of one page; then each makes its log and the tables grow.
        let fill = pool.create(pool.root(), b"fill", &NEW).unwrap().ino;
        while pool.space().pages_available > 0 {
            pool.append(fill, &[1; 4096]).unwrap();
        }
        for number in 0..3000_u32 {
            pool.create(pool.root(), format!("{number}").as_bytes(), &NEW).unwrap();
        }
    });
    assert!(given >= 1);
}
