//! The log in a mapped file: what was appended is there, after a kill and after torn stores, and
//! nothing else ever.

use std::time::{Duration, Instant};

use crate::common::{PoolFile, errno, forbid};
use lode::{FlushStrategy, Log, OpenOptions, Pool, PoolOptions, Profile};

fn all(log: &Log) -> Vec<Vec<u8>> {
    log.entries(0).unwrap().map(|entry| entry.unwrap().1).collect()
}

/// Changes bytes of a file, as a crash could have left them.
fn change(pool: &Pool, at: u64, bytes: &[u8]) {
    let file = pool.open_with("log", OpenOptions::new().write(true)).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

#[test]
fn entries_come_back_in_their_order() {
    let at = PoolFile::new(64);
    let mut expected: Vec<Vec<u8>> = Vec::new();
    for round in 0..4u64 {
        let pool = at.open();
        let log = Log::open(&pool, "log", 10_000).unwrap();
        assert_eq!(all(&log), expected, "round {round}");
        for len in [0, 1, 47, 48, 49, 63, 64, 65, 5000, 100_000] {
            let entry: Vec<u8> = (0..len).map(|i| (i * 7 + round) as u8).collect();
            let position = log.append(&entry).unwrap();
            let mut from = log.entries(position).unwrap();
            assert_eq!(from.next().unwrap().unwrap(), (position, entry.clone()));
            assert!(from.next().is_none());
            expected.push(entry);
        }
        log.append_all(&[b"together", &[], b"with others"]).unwrap();
        expected.extend([b"together".to_vec(), Vec::new(), b"with others".to_vec()]);
        assert_eq!(errno(log.entries(log.end() + 64)), libc::EINVAL);
        assert_eq!(errno(log.entries(65)), libc::EINVAL);
        drop(log);
        pool.close().unwrap();
    }
}

#[test]
fn a_log_that_was_emptied_stays_so() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let log = Log::open(&pool, "log", 10_000).unwrap();
    for _ in 0..20 {
        log.append(b"the same length").unwrap();
    }
    let mut reading = log.entries(0).unwrap();
    reading.next().unwrap().unwrap();
    log.clear().unwrap();
    assert!(reading.next().is_none(), "what is read ends with the log's life");
    assert_eq!((all(&log).len(), log.end()), (0, 64));
    log.append(b"the new one....").unwrap();
    assert_eq!(all(&log), [b"the new one...."]);
    drop(log);
    let log = Log::open(&pool, "log", 10_000).unwrap();
    assert_eq!(all(&log), [b"the new one...."]);
}

#[test]
fn an_append_that_was_torn_is_not_there_and_the_ones_before_it_are() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let log = Log::open(&pool, "log", 10_000).unwrap();
    log.append(b"first").unwrap();
    let start = log.append(&[5; 100]).unwrap();
    let end = log.end();
    drop(log);
    let whole = pool.read("log").unwrap();
    // Each word of it may be missing.
    for word in (start..start + 16 + 100).step_by(8) {
        change(&pool, word, &[0; 8]);
        let log = Log::open(&pool, "log", 0).unwrap();
        assert_eq!((all(&log).len(), log.end()), (1, start), "word at {word}");
        drop(log);
        change(&pool, start, &whole[start as usize..end as usize]);
    }
    assert_eq!(all(&Log::open(&pool, "log", 0).unwrap()).len(), 2);
}

#[test]
fn what_was_cut_off_behind_a_torn_entry_never_follows_another_one() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let log = Log::open(&pool, "log", 10_000).unwrap();
    log.append(b"first").unwrap();
    let torn = log.end();
    // Not acknowledged, as far as anyone can tell after the crash that follows.
    log.append_all(&[b"torn", b"whole"]).unwrap();
    drop(log);
    change(&pool, torn, &[0; 8]);
    let log = Log::open(&pool, "log", 0).unwrap();
    assert_eq!(all(&log), [b"first"]);
    // In the very place, of the very length and contents.
    log.append(b"torn").unwrap();
    assert_eq!(all(&log).len(), 2);
    drop(log);
    assert_eq!(all(&Log::open(&pool, "log", 0).unwrap()), [&b"first"[..], b"torn"]);
}

#[test]
fn a_log_whose_making_was_cut_off_is_made_and_what_is_none_is_refused() {
    let at = PoolFile::new(16);
    let pool = at.open();
    pool.write("log", [0; 4096]).unwrap();
    for torn in [&b""[..], b"LodeLog\0"] {
        change(&pool, 0, torn);
        let log = Log::open(&pool, "log", 0).unwrap();
        assert!(all(&log).is_empty());
        log.append(b"entry").unwrap();
        drop(log);
        assert_eq!(all(&Log::open(&pool, "log", 0).unwrap()), [b"entry"]);
        pool.write("log", [0; 4096]).unwrap();
    }
    // (As file systems have it, whose own begins after 1024 bytes.)
    let mut image = vec![0; 200_000];
    image[150_000] = 1;
    let begun = [&b"LodeLog\0\x01\0\0\0\0\0\0\0"[..], &[0; 100], b"something"].concat();
    let others =
        [&b"something"[..], b"LodeLog\0\x02", &[0, 0, 0, 0, 0, 0, 0, 0, 9], &image, &begun];
    for other in others {
        pool.write("log", other).unwrap();
        let before = pool.read("log").unwrap();
        let refused = Log::open(&pool, "log", 0).err().unwrap();
        assert_eq!(refused.errno(), libc::EINVAL);
        assert!(refused.to_string().starts_with("log: "), "{refused}");
        assert_eq!(pool.read("log").unwrap(), before);
    }
}

#[test]
fn threads_append_without_losing_anything() {
    let at = PoolFile::new(64);
    let pool = at.open();
    let log = Log::open(&pool, "log", 1000).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..2000u64 {
                    log.append(&(thread << 32 | number).to_le_bytes()).unwrap();
                }
            });
        }
    });
    drop(log);
    let log = Log::open(&pool, "log", 0).unwrap();
    let mut next = [0; 4];
    for entry in all(&log) {
        let value = u64::from_le_bytes(entry.try_into().unwrap());
        let thread = (value >> 32) as usize;
        assert_eq!(value & 0xffff_ffff, next[thread]);
        next[thread] += 1;
    }
    assert_eq!(next, [2000; 4]);
}

#[test]
fn a_full_pool_says_so_and_the_log_goes_on() {
    let at = PoolFile::new(4);
    let pool = at.open();
    let log = Log::open(&pool, "log", 4096).unwrap();
    let mut count = 0;
    let full = loop {
        match log.append(&[3; 10_000]) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full.errno(), libc::ENOSPC);
    assert_eq!(all(&log).len(), count);
    log.clear().unwrap();
    for _ in 0..count {
        log.append(&[4; 10_000]).unwrap();
    }
}

#[test]
fn an_append_is_one_fence_and_no_record() {
    let at = PoolFile::new(64);
    let pool = at.open();
    let log = Log::open(&pool, "log", 8 << 20).unwrap();
    let before = pool.stats().unwrap().door;
    for _ in 0..1000 {
        log.append(&[1; 200]).unwrap();
    }
    assert_eq!(pool.stats().unwrap().door, before, "the file's log was written");
}

#[test]
fn an_append_waits_for_the_medium_once() {
    const FENCE: Duration = Duration::from_millis(2);
    let medium = Profile { fence_ns: FENCE.as_nanos() as u32, ..Profile::default() };
    let at = PoolFile::new(16);
    drop(at.open());
    let pool = PoolOptions::new().emulate(medium).open(&at.path).unwrap();
    let log = Log::open(&pool, "log", 1 << 20).unwrap();
    for entries in [&[&b"one"[..]][..], &[&[1; 500][..], b"two", &[3; 3000]]] {
        let times = (0..7).map(|_| {
            let began = Instant::now();
            log.append_all(entries).unwrap();
            began.elapsed()
        });
        let least = times.min().unwrap();
        assert!((FENCE..2 * FENCE).contains(&least), "{} entries: {least:?}", entries.len());
    }
}

/// Calls `work` in a thread that can't write to the disk.
fn without_msync<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let work = || {
            forbid::system_call(libc::SYS_msync, libc::EIO);
            work()
        };
        scope.spawn(work).join().unwrap()
    })
}

#[test]
fn once_an_append_could_not_be_written_none_is_durable() {
    let at = PoolFile::new(16);
    let open = || PoolOptions::new().flush(FlushStrategy::Msync).open(&at.path).unwrap();
    for clears in [false, true] {
        let pool = open();
        let log = Log::open(&pool, "log", 10_000).unwrap();
        log.clear().unwrap();
        log.append(b"first").unwrap();
        if clears {
            assert_eq!(errno(without_msync(|| log.clear())), libc::EIO);
        } else {
            assert_eq!(errno(without_msync(|| log.append_all(&[b"one", b"two"]))), libc::EIO);
        }
        assert_eq!(errno(log.append(b"ONE")), libc::EIO);
        assert_eq!(errno(log.clear()), libc::EIO);
        drop(log);
        assert_eq!(errno(Log::open(&pool, "log", 0)), libc::EIO);
        let _ = pool.close();
        let pool = open();
        let log = Log::open(&pool, "log", 0).unwrap();
        let found = all(&log);
        assert!(found.first().is_none_or(|first| first == b"first"), "{found:?}");
    }
}

#[test]
fn a_log_is_open_once_by_whatever_name() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let log = Log::open(&pool, "log", 10_000).unwrap();
    pool.hard_link("log", "other name").unwrap();
    for name in ["log", "other name"] {
        let refused = Log::open(&pool.clone(), name, 0).err().unwrap();
        assert_eq!(refused.errno(), libc::EBUSY);
        assert!(refused.to_string().starts_with(name), "{refused}");
    }
    let another = Log::open(&pool, "another", 0).unwrap();
    log.append(b"first").unwrap();
    another.append(b"its own").unwrap();
    let reading = log.entries(0).unwrap();
    drop(log);
    // What is read of it does not keep it open; what could not be opened is not open.
    let log = Log::open(&pool, "other name", 0).unwrap();
    assert_eq!(all(&log), [b"first"]);
    drop((log, reading, another));
    pool.write("log", "no log").unwrap();
    for _ in 0..2 {
        assert_eq!(errno(Log::open(&pool, "log", 0)), libc::EINVAL);
    }
    pool.remove_file("log").unwrap();
    Log::open(&pool, "log", 0).unwrap();
}

/// The state of a log: its life and its session.
fn state(pool: &Pool) -> (u32, u32) {
    let word = pool.read("log").unwrap()[16..24].try_into().map(u64::from_le_bytes).unwrap();
    ((word >> 32) as u32, word as u32)
}

/// The bytes of an entry as the log would put it at `at`.
fn forged(life: u32, session: u32, at: u64, entry: &[u8]) -> Vec<u8> {
    let len = (entry.len() as u32).to_le_bytes();
    let seed = [life.to_le_bytes(), session.to_le_bytes(), len].concat();
    let crc = lode_pmem::crc32c;
    let sum = crc(crc(crc(0, &at.to_le_bytes()), &seed), entry);
    [&len, &sum.to_le_bytes(), &life.to_le_bytes(), &session.to_le_bytes(), entry].concat()
}

#[test]
fn who_chooses_the_bytes_of_entries_makes_no_other_entry() {
    let at = PoolFile::new(16);
    let pool = at.open();
    for session in 1..=3 {
        for counts in [true, false] {
            let log = Log::open(&pool, "log", 10_000).unwrap();
            // The life after this one, for who counts, and for who has even read the file.
            let next = if counts { 2 } else { state(&pool).0.wrapping_add(1) };
            let mut bytes = vec![0; 48];
            bytes.extend(forged(next, session, 128, b"forged"));
            log.append(&bytes).unwrap();
            log.clear().unwrap();
            log.append(b"entry").unwrap();
            drop(log);
            let log = Log::open(&pool, "log", 0).unwrap();
            assert_eq!(all(&log), [b"entry"], "session {session}");
            drop(log);
            pool.remove_file("log").unwrap();
        }
    }
}

#[test]
fn no_life_of_a_log_tells_of_another() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let mut lives = Vec::new();
    for _ in 0..10 {
        let log = Log::open(&pool, "log", 0).unwrap();
        lives.push(state(&pool).0);
        log.clear().unwrap();
        lives.push(state(&pool).0);
        drop(log);
        pool.remove_file("log").unwrap();
    }
    // By chance one of them may be small, not two.
    assert!(lives.iter().filter(|life| **life < 1000).count() < 2, "{lives:?}");
    lives.sort_unstable();
    lives.dedup();
    assert!(lives.len() > 18, "{lives:?}");
    assert!(lives.iter().all(|life| *life != 0), "{lives:?}");
}

#[test]
fn a_damaged_entry_is_an_error_and_not_the_end() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let log = Log::open(&pool, "log", 10_000).unwrap();
    log.append(b"first").unwrap();
    let second = log.append(&[2; 200]).unwrap();
    let third = log.append(b"third").unwrap();
    let byte = pool.read("log").unwrap()[second as usize + 100];
    for (place, bytes) in [(second + 100, vec![byte ^ 1]), (second, vec![0; 64])] {
        change(&pool, place, &bytes);
        let mut entries = log.entries(0).unwrap();
        assert_eq!(entries.next().unwrap().unwrap().1, b"first");
        assert_eq!(errno(entries.next().unwrap()), libc::EIO);
        assert!(entries.next().is_none());
        assert_eq!(log.entries(third).unwrap().next().unwrap().unwrap().1, b"third");
    }
    // Where an entry could begin, and none does.
    assert_eq!(errno(log.entries(second + 64).unwrap().next().unwrap()), libc::EIO);
    assert!(log.entries(log.end()).unwrap().next().is_none());
}

#[test]
fn a_capacity_that_no_file_can_have_is_refused() {
    let at = PoolFile::new(16);
    let pool = at.open();
    for capacity in [u64::MAX, u64::MAX - 64, u64::MAX - 4096] {
        assert_eq!(errno(Log::open(&pool, "log", capacity)), libc::EFBIG, "{capacity}");
    }
}
