//! Direct maps: the file's own pages, in place, durable by the line, staged and committed at once.
// A list of ranges may be of one.
#![allow(clippy::single_range_in_vec_init)]

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::common::{PoolFile, errno, forbid};
use lode::{
    Bandwidth, File, Map, MapOptions, OpenOptions, PageSize, Pool, PoolOptions, Profile, Staging,
};

const PAGE: u64 = 4096;

fn made(pool: &Pool, name: &str, bytes: &[u8]) -> File {
    pool.write(name, bytes).unwrap();
    pool.open_with(name, OpenOptions::new().read(true).write(true)).unwrap()
}

fn writable() -> MapOptions {
    let mut options = MapOptions::new();
    options.write(true);
    options
}

/// The pool as a power failure now would leave it, if the caches' contents survived.
fn crashed(pool: &PoolFile) -> (tempfile::TempDir, Pool) {
    let dir = crate::common::scratch();
    let copy = dir.path().join("copy");
    std::fs::copy(&pool.path, &copy).unwrap();
    let opened = Pool::open(&copy).unwrap();
    (dir, opened)
}

#[test]
fn what_is_persisted_is_what_was_asked_for_to_the_line() {
    // On a medium that takes a byte in a microsecond.
    let medium =
        Profile { write: Some(Bandwidth::Megabytes(NonZeroU32::MIN)), ..Profile::default() };
    let at = PoolFile::new(16);
    drop(at.open());
    let pool = PoolOptions::new().emulate(medium).open(&at.path).unwrap();
    let file = made(&pool, "f", &[1; 2 * PAGE as usize]);
    let map = file.map(0, 2 * PAGE, &writable()).unwrap();
    let once = |from: u64, to: u64| {
        map.store(from, &vec![2; (to - from) as usize]).unwrap();
        let began = Instant::now();
        map.persist(from..to).unwrap();
        began.elapsed()
    };
    for (from, to, lines) in [(10, 11, 1), (60, 70, 2), (PAGE - 64, PAGE, 1), (0, PAGE, 64)] {
        let line = Duration::from_micros(64);
        let expected = line * (lines - 1) + line / 2..line * lines + line / 2;
        // (What else the machine does only makes it longer.)
        let found = (0..100).map(|_| once(from, to)).find(|found| *found < expected.end);
        let is_right = found.is_some_and(|found| expected.contains(&found));
        assert!(is_right, "{from}..{to}: {found:?} for {lines} lines");
    }
}

#[test]
fn a_map_is_the_file() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let file = made(&pool, "f", &[1; 10_000]);
    for populate in [false, true] {
        let map = file.map(0, 10_000, writable().populate(populate)).unwrap();
        assert_eq!((map.len(), map.is_empty()), (10_000, false));
        map.store(4094, b"across").unwrap();
        map.stream(9_990, b"to the end").unwrap();
        map.persist(4094..4100).unwrap();
        map.fence(9_990..10_000).unwrap();
        let mut found = [0; 6];
        file.read_exact_at(&mut found, 4094).unwrap();
        assert_eq!(&found, b"across");
        file.write_all_at(b"written", 5).unwrap();
        let mut found = [0; 7];
        map.load(5, &mut found).unwrap();
        assert_eq!(&found, b"written");
        let (_dir, after) = crashed(&at);
        assert_eq!(after.read("f").unwrap(), pool.read("f").unwrap());
    }
    let part = file.map(PAGE, 100, &MapOptions::new()).unwrap();
    let mut found = [0; 4];
    part.load(0, &mut found).unwrap();
    assert_eq!(&found, b"ross");
}

#[test]
fn what_is_outside_or_not_allowed_is_refused() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let file = made(&pool, "f", &[1; 5000]);
    for (offset, len) in [(0, 0), (1, 10), (0, 8193), (8192, 1), (u64::MAX, 1)] {
        assert_eq!(errno(file.map(offset, len, &writable())), libc::EINVAL, "{offset} +{len}");
    }
    let map = file.map(0, 5000, &writable()).unwrap();
    let outside = |done: lode::Result<()>| assert_eq!(errno(done), libc::EFAULT);
    for at in [4999, 5000, u64::MAX] {
        outside(map.load(at, &mut [0; 2]));
        outside(map.store(at, &[0; 2]));
        outside(map.stream(at, &[0; 2]));
    }
    #[allow(clippy::reversed_empty_ranges)]
    for range in [0..5001, 10..9, 5001..5002] {
        outside(map.persist(range.clone()));
        outside(map.write_back(range.clone()));
        outside(map.fence(range));
    }
    let reader = pool.open_file("f").unwrap();
    assert_eq!(errno(reader.map(0, 10, &writable())), libc::EBADF);
    let map = reader.map(0, 10, &MapOptions::new()).unwrap();
    outside(map.store(0, &[1]));
    let writer = pool.open_with("f", OpenOptions::new().write(true)).unwrap();
    assert_eq!(errno(writer.map(0, 10, &writable())), libc::EBADF);
    pool.create_dir("d").unwrap();
    assert_eq!(errno(pool.open_file("d").unwrap().map(0, 1, &MapOptions::new())), libc::EISDIR);
    let memory = crate::common::pool(16);
    assert_eq!(errno(made(&memory, "f", &[1; 10]).map(0, 10, &writable())), libc::EOPNOTSUPP);
}

#[test]
fn the_pages_stay_the_maps_after_the_file_gave_them_up() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let file = made(&pool, "f", &[1; 8 * PAGE as usize]);
    let map = file.map(0, 8 * PAGE, &writable()).unwrap();
    file.set_len(0).unwrap();
    pool.remove_file("f").unwrap();
    drop(file);
    let other = made(&pool, "other", &[]);
    while other.append(&[2; 4096]).is_ok() {}
    map.store(0, &[7; 8 * PAGE as usize]).unwrap();
    assert!(pool.read("other").unwrap().iter().all(|byte| *byte == 2));
    let full = pool.statfs().unwrap().pages_free;
    drop(map);
    assert!(pool.statfs().unwrap().pages_free >= full + 8);
    drop(other);
    pool.close().unwrap();
}

#[test]
fn staged_stores_become_the_files_at_once_or_never() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let file = made(&pool, "f", &[1; 5 * PAGE as usize - 7]);
    let map = file.map(0, 5 * PAGE - 7, &writable()).unwrap();
    map.stage(PAGE..2 * PAGE, Staging::Copied).unwrap();
    map.stage(3 * PAGE..5 * PAGE - 7, Staging::Zeroed).unwrap();
    let before = pool.read("f").unwrap();
    map.store(PAGE + 1, b"one").unwrap();
    map.stream(4 * PAGE, b"two").unwrap();
    assert_eq!(pool.read("f").unwrap(), before);
    let mut seen = [0; 5];
    map.load(PAGE, &mut seen).unwrap();
    assert_eq!(&seen, b"\x01one\x01");
    let (_dir, after) = crashed(&at);
    assert_eq!(after.read("f").unwrap(), before);
    assert_eq!(errno(map.commit(&[0..PAGE])), libc::EINVAL);
    assert_eq!(errno(map.commit(&[PAGE..2 * PAGE, 10..20])), libc::EINVAL);
    map.commit(&[3 * PAGE..5 * PAGE - 7, PAGE..2 * PAGE]).unwrap();
    let mut expected = before;
    expected[PAGE as usize + 1..][..3].copy_from_slice(b"one");
    expected[3 * PAGE as usize..].fill(0);
    expected[4 * PAGE as usize..][..3].copy_from_slice(b"two");
    assert_eq!(pool.read("f").unwrap(), expected);
    let (_dir, after) = crashed(&at);
    assert_eq!(after.read("f").unwrap(), expected);
    // In place again.
    map.store(4 * PAGE + 10, b"later").unwrap();
    assert_eq!(&pool.read("f").unwrap()[4 * PAGE as usize + 10..][..5], b"later");
    // What is discarded was never there.
    let now = pool.read("f").unwrap();
    let free = pool.statfs().unwrap().pages_free;
    map.stage(0..4 * PAGE, Staging::Zeroed).unwrap();
    map.store(0, &[9; 4 * PAGE as usize]).unwrap();
    map.discard().unwrap();
    assert_eq!(pool.statfs().unwrap().pages_free, free);
    let mut seen = vec![0; now.len()];
    map.load(0, &mut seen).unwrap();
    assert!(seen == now && pool.read("f").unwrap() == now);
    // A second map would not see what is staged.
    let second = file.map(0, 10, &MapOptions::new()).unwrap();
    assert_eq!(errno(map.stage(0..PAGE, Staging::Copied)), libc::EINVAL);
    drop(second);
    map.stage(0..PAGE, Staging::Copied).unwrap();
    drop(map);
    assert_eq!(pool.statfs().unwrap().pages_free, free);
    drop(file);
    pool.close().unwrap();
}

/// How a file gives up pages.
type Cut = fn(&File);

/// The byte that a map shows at `at`.
fn shown(map: &Map, at: u64) -> u8 {
    let mut byte = [0];
    map.load(at, &mut byte).unwrap();
    byte[0]
}

/// A file of pages 1, 2, 3 ... that lie apart.
fn scattered(pool: &Pool, pages: u8) -> File {
    let (file, other) = (made(pool, "f", &[]), made(pool, "between", &[]));
    for page in 1..=pages {
        file.append(&[page; PAGE as usize]).unwrap();
        other.append(&[99; PAGE as usize]).unwrap();
    }
    file
}

#[test]
fn discard_shows_each_page_of_the_file_in_its_place_and_frees_none_that_it_leaves() {
    let cuts: [(&str, Cut, &[u64]); 4] = [
        ("first", |file| file.punch_hole(0, PAGE).unwrap(), &[1, 2, 3]),
        ("middle", |file| file.punch_hole(PAGE, 2 * PAGE).unwrap(), &[0, 3]),
        ("cut off", |file| file.set_len(2 * PAGE).unwrap(), &[0, 1]),
        ("all", |file| file.punch_hole(0, 4 * PAGE).unwrap(), &[]),
    ];
    for (what, cut, left) in cuts {
        let at = PoolFile::new(16);
        let pool = at.open();
        let file = made(&pool, "f", &[]);
        for page in 0..4 {
            file.append(&[1 + page; PAGE as usize]).unwrap();
        }
        let map = file.map(0, 4 * PAGE, &writable()).unwrap();
        map.stage(0..4 * PAGE, Staging::Copied).unwrap();
        map.store(0, &[50; 4 * PAGE as usize]).unwrap();
        cut(&file);
        map.discard().unwrap();
        // Whoever takes all there is does not get what the map shows.
        let other = made(&pool, "other", &[]);
        while other.append(&[2; 4096]).is_ok() {}
        for page in 0..4 {
            let byte = if left.contains(&page) { 1 + page as u8 } else { 50 };
            assert_eq!(shown(&map, page * PAGE), byte, "{what}: page {page} of the map");
            map.store(page * PAGE, &[100 + page as u8]).unwrap();
        }
        assert!(pool.read("other").unwrap().iter().all(|byte| *byte == 2), "{what}");
        let now = pool.read("f").unwrap();
        for (page, bytes) in (0..).zip(now.chunks(PAGE as usize)) {
            let byte = if left.contains(&page) { 100 + page as u8 } else { 0 };
            assert_eq!(bytes[0], byte, "{what}: page {page} of the file");
        }
        let full = pool.statfs().unwrap().pages_free;
        drop(map);
        assert!(pool.statfs().unwrap().pages_free > full, "{what}: pages are kept for ever");
    }
}

#[test]
fn what_a_discard_could_not_show_again_is_never_committed() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let file = scattered(&pool, 4);
    let map = file.map(0, 4 * PAGE, &writable()).unwrap();
    map.stage(0..4 * PAGE, Staging::Copied).unwrap();
    map.store(0, &[50; 4 * PAGE as usize]).unwrap();
    let third = map.as_ptr() as u64 + 2 * PAGE;
    let half = std::thread::scope(|scope| {
        let half = scope.spawn(|| {
            forbid::mappings(third, PAGE);
            map.discard()
        });
        half.join().unwrap()
    });
    assert_eq!(errno(half), libc::ENOMEM);
    // What was shown again is not staged, and what may be shown is not the file's to free.
    for page in 0..3 {
        let range = page * PAGE..(page + 1) * PAGE;
        assert_eq!(errno(map.commit(&[range])), libc::EINVAL, "page {page}");
    }
    map.discard().unwrap();
    for page in 0..4 {
        assert_eq!(shown(&map, page * PAGE), 1 + page as u8);
    }
    map.stage(0..4 * PAGE, Staging::Zeroed).unwrap();
    map.commit(&[0..4 * PAGE]).unwrap();
    assert_eq!(pool.read("f").unwrap(), [0; 4 * PAGE as usize]);
}

#[test]
fn a_stage_that_fails_leaves_what_was_staged_before() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let file = scattered(&pool, 4);
    let map = file.map(0, 4 * PAGE, &writable()).unwrap();
    map.stage(0..PAGE, Staging::Copied).unwrap();
    map.store(0, &[50]).unwrap();
    let free = pool.statfs().unwrap().pages_free;
    let third = map.as_ptr() as u64 + 2 * PAGE;
    for forbidden in [2 * PAGE, PAGE] {
        let failed = std::thread::scope(|scope| {
            let failed = scope.spawn(|| {
                // Two pages at once: as they are staged, not as the file has them. Then one at a time, too.
                forbid::mappings(third, 2 * PAGE);
                forbid::mappings(third, forbidden);
                map.stage(2 * PAGE..4 * PAGE, Staging::Zeroed)
            });
            failed.join().unwrap()
        });
        assert_eq!(errno(failed), libc::ENOMEM);
        assert_eq!(pool.statfs().unwrap().pages_free == free, forbidden == 2 * PAGE);
        assert_eq!(errno(map.commit(&[2 * PAGE..3 * PAGE])), libc::EINVAL);
        assert_eq!([shown(&map, 0), pool.read("f").unwrap()[0]], [50, 1]);
    }
    map.commit(&[0..PAGE]).unwrap();
    assert_eq!(pool.read("f").unwrap()[0], 50);
    map.discard().unwrap();
    assert_eq!([shown(&map, 0), shown(&map, 2 * PAGE), shown(&map, 3 * PAGE)], [50, 3, 4]);
}

#[test]
fn threads_that_stage_commit_and_discard_leave_the_map_showing_the_file() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let file = made(&pool, "f", &[1; 2 * PAGE as usize]);
    let map = file.map(0, 2 * PAGE, &writable()).unwrap();
    let (done, whole) = (AtomicBool::new(false), [0..2 * PAGE]);
    let mut strays = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let _ = map.discard();
            }
        });
        for round in 0..20_000u64 {
            // What the other thread forgets in between can't be committed.
            if map.stage(whole[0].clone(), Staging::Copied).is_ok() && round % 2 == 0 {
                let _ = map.commit(&whole);
            }
            let discarded = map.discard();
            map.store(PAGE, &round.to_le_bytes()).unwrap();
            let mut found = [0; 8];
            file.read_exact_at(&mut found, PAGE).unwrap();
            if discarded.is_err() || u64::from_le_bytes(found) != round {
                strays.push(round);
            }
        }
        done.store(true, Relaxed);
    });
    let rounds = strays.len();
    assert_eq!(rounds, 0, "rounds after which the map showed what is not the file's");
}

#[test]
fn a_map_for_reading_changes_nothing() {
    let at = PoolFile::new(16);
    let pool = at.open();
    let file = made(&pool, "f", &[1; PAGE as usize]);
    let map = file.map(0, PAGE, &MapOptions::new()).unwrap();
    assert_eq!(errno(map.stage(0..PAGE, Staging::Zeroed)), libc::EBADF);
    assert_eq!(errno(map.commit(&[0..PAGE])), libc::EBADF);
    map.discard().unwrap();
    assert_eq!(pool.read("f").unwrap(), [1; PAGE as usize]);
}

/// Bytes of the mapping at an address that the system maps by huge pages.
fn huge_kib(address: u64) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in smaps.lines() {
        if let Some((range, _)) = line.split_once(' ')
            && let Some((from, to)) = range.split_once('-')
            && let (Ok(from), Ok(to)) = (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16))
        {
            inside = (from..to).contains(&address);
        }
        if inside && let Some(rest) = line.strip_prefix("ShmemPmdMapped:") {
            return rest.trim().trim_end_matches(" kB").parse().unwrap();
        }
    }
    0
}

#[test]
fn large_files_lie_where_the_system_can_map_them_by_large_pages() {
    const HUGE: u64 = 2 << 20;
    let dir = crate::common::scratch();
    let mut options = PoolOptions::new();
    options.page_size(PageSize::Huge);
    let pool = options.create(dir.path().join("pool"), 64 << 20, &Default::default()).unwrap();
    let file = pool.create_new("f").unwrap();
    file.allocate(0, 8 * HUGE, false).unwrap();
    for (offset, len) in [(0, 8 * HUGE), (HUGE, 3 * HUGE), (HUGE + PAGE, 2 * HUGE), (PAGE, PAGE)] {
        let map = file.map(offset, len, &writable()).unwrap();
        let align = if len >= HUGE { HUGE } else { PAGE };
        assert_eq!(map.as_ptr() as u64 % align, offset % align, "{offset} +{len}");
    }
    drop(file);
    pool.close().unwrap();
    huge_mappings(dir.path());
}

struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// On a tmpfs of huge pages, which only root can mount.
fn huge_mappings(scratch: &Path) {
    let place = scratch.join("huge");
    std::fs::create_dir(&place).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "huge=always,size=100m", "lode-test"])
        .arg(&place)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no tmpfs of huge pages can be mounted here");
        return;
    }
    let _mounted = Mounted(place.clone());
    let mut options = PoolOptions::new();
    options.page_size(PageSize::Huge);
    let pool = options.create(place.join("pool"), 64 << 20, &Default::default()).unwrap();
    let file = pool.create_new("f").unwrap();
    file.allocate(0, 16 << 20, false).unwrap();
    let map = file.map(0, 16 << 20, writable().populate(true)).unwrap();
    let huge = huge_kib(map.as_ptr() as u64);
    drop((map, file));
    pool.close().unwrap();
    assert_eq!(huge, 16 << 10, "KiB of the map by huge pages");
}
