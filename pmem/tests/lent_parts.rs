//! Parts of a region that are lent: locks, zeros, and a borrower's address space.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::fd::{AsFd, AsRawFd};

use lode_pmem::loan::{Populate, Span, lock, locked_by_others, unlock};
use lode_pmem::{Counters, Door, Mapped, Medium, Profile, RegionOptions};

const CHUNK: u64 = 2 << 20;

fn region(dir: &tempfile::TempDir, chunks: u64) -> Mapped {
    let options = RegionOptions::default();
    Mapped::create(dir.path().join("region"), chunks * CHUNK, &options, false).unwrap()
}

fn chunk(number: u64) -> std::ops::Range<u64> {
    number * CHUNK..(number + 1) * CHUNK
}

fn held(region: &Mapped) -> Vec<(u64, u64)> {
    let mut held = Vec::new();
    region.for_each_held(&mut |at, len| held.push((at / CHUNK, len / CHUNK)));
    held.sort_unstable();
    held
}

#[test]
fn every_locked_part_is_told_whoever_has_it() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let region = region(&dir, 16);
    assert_eq!(held(&region), []);
    let (first, second) = (region.descriptor().unwrap(), region.descriptor().unwrap());
    for number in [9, 3, 4] {
        assert!(lock(first.as_fd(), chunk(number)).unwrap());
    }
    for number in [1, 5, 15] {
        assert!(lock(second.as_fd(), chunk(number)).unwrap());
    }
    // What one has locked the other can't.
    assert!(!lock(second.as_fd(), chunk(3)).unwrap());
    assert!(!lock(first.as_fd(), chunk(15)).unwrap());
    assert_eq!(held(&region), [(1, 1), (3, 2), (5, 1), (9, 1), (15, 1)]);
    let mut others = Vec::new();
    let all = 0..16 * CHUNK;
    locked_by_others(first.as_fd(), all, &mut |part| others.push(part.start / CHUNK)).unwrap();
    others.sort_unstable();
    assert_eq!(others, [1, 5, 15]);
    unlock(first.as_fd(), chunk(4)).unwrap();
    drop(second);
    assert_eq!(held(&region), [(3, 1), (9, 1)]);
    let mut part = Vec::new();
    region.for_each_locked((9 * CHUNK, CHUNK), &mut |at, len| part.push((at, len))).unwrap();
    assert_eq!(part, [(9 * CHUNK, CHUNK)]);
    // A region that was opened anew tells of them, too.
    drop(region);
    let options = RegionOptions::default();
    let again = Mapped::open(dir.path().join("region"), &options).unwrap();
    assert_eq!(held(&again), [(3, 1), (9, 1)]);
    drop(first);
    assert_eq!(held(&again), []);
}

#[test]
fn descriptors_are_closed_by_exec() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let descriptor = region(&dir, 1).descriptor().unwrap();
    // SAFETY: takes a descriptor.
    let flags = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    assert!(Mapped::anonymous(CHUNK, &RegionOptions::default()).unwrap().descriptor().is_err());
}

#[test]
fn a_chunk_is_zeroed_and_nothing_else() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let door = Door::new(region(&dir, 3));
    let counters = Counters::new();
    let ones = vec![0xff; (3 * CHUNK) as usize];
    door.window(ones.len() as u64, &counters).copy_nt(0, &ones);
    door.medium().zero_lent(CHUNK, CHUNK).unwrap();
    let mut bytes = vec![0; ones.len()];
    door.load(0, &mut bytes).unwrap();
    let (first, rest) = bytes.split_at(CHUNK as usize);
    let (zeroed, last) = rest.split_at(CHUNK as usize);
    assert!(first.iter().chain(last).all(|byte| *byte == 0xff));
    assert!(zeroed.iter().all(|byte| *byte == 0));
    for (at, len) in [(2 * CHUNK, CHUNK + 64), (1, 64), (0, 63), (u64::MAX - 63, 64)] {
        assert!(door.medium().zero_lent(at, len).is_err(), "{at} {len}");
    }
}

#[test]
fn a_slower_medium_takes_its_time_for_zeros() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let write = Some("0.1".parse().unwrap());
    let options = RegionOptions::new().emulate(Profile { write, ..Profile::default() });
    let region = Mapped::create(dir.path().join("region"), CHUNK, &options, true).unwrap();
    for _ in 0..2 {
        let begin = std::time::Instant::now();
        region.zero_lent(0, CHUNK).unwrap();
        assert!(begin.elapsed().as_millis() >= 20, "{:?}", begin.elapsed());
    }
}

#[test]
fn what_is_put_into_a_span_is_the_regions() {
    const LEN: usize = CHUNK as usize;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let region = region(&dir, 4);
    let descriptor = region.descriptor().unwrap();
    let span = Span::reserve(8 * LEN, LEN).unwrap();
    assert_eq!(span.base() as usize % LEN, 0);
    span.map(LEN, descriptor.as_fd(), 2 * CHUNK, LEN).unwrap();
    span.populate(LEN, LEN, Populate::Read).unwrap();
    // SAFETY: mapped just now.
    unsafe { span.base().add(LEN + 5).write_volatile(7) };
    let mut byte = [0];
    region.load(2 * CHUNK + 5, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    // Moved, the same pages are there.
    span.relocate(LEN, &span, 6 * LEN, LEN).unwrap();
    // SAFETY: moved there.
    assert_eq!(unsafe { span.base().add(6 * LEN + 5).read_volatile() }, 7);
    // Where they were, others can be.
    span.anonymous(LEN, LEN).unwrap();
    span.populate(LEN, LEN, Populate::Write).unwrap();
    // SAFETY: mapped just now.
    assert_eq!(unsafe { span.base().add(LEN + 5).read_volatile() }, 0);
    span.clear(6 * LEN, LEN).unwrap();
    for (at, len) in [(8 * LEN, LEN), (7 * LEN, 2 * LEN), (usize::MAX, 2), (0, 0)] {
        assert!(span.anonymous(at, len).is_err());
    }
    assert!(span.relocate(LEN, &span, LEN, LEN).is_err(), "onto itself");
}
