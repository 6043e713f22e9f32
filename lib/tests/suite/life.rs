//! The life of a pool: made, opened once, closed by the last who has it; what is refused.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::common::{PoolFile, errno, pool, scratch};
use lode::{FormatOptions, OpenOptions, PageSize, Pool, PoolOptions, RegionError, WindowMode};

/// Whether the last session ended with a close.
fn is_clean(file: &PoolFile) -> bool {
    let pool = PoolOptions::new().read_only(true).open(&file.path).unwrap();
    pool.opening().unwrap().clean
}

#[test]
fn a_pool_is_closed_by_the_last_who_has_it() {
    let file = PoolFile::new(16);
    assert!(is_clean(&file));
    let pool = file.open();
    pool.write("f", "kept").unwrap();
    pool.clone().close().map(drop).unwrap_err();
    assert!(is_open(&file), "not closed by a clone");
    pool.close().unwrap();
    assert!(is_clean(&file));
    let (pool, clone) = (file.open(), file_of_a_pool_that_was_dropped(&file));
    assert!(clone.is_none(), "opened twice");
    let open = pool.open_file("f").unwrap();
    drop(pool);
    assert!(is_open(&file), "a file of it is open");
    let mut text = [0; 4];
    open.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"kept");
    drop(open);
    assert!(!is_open(&file) && is_clean(&file));
}

fn file_of_a_pool_that_was_dropped(file: &PoolFile) -> Option<Pool> {
    Pool::open(&file.path).ok()
}

fn is_open(file: &PoolFile) -> bool {
    match PoolOptions::new().read_only(true).open(&file.path) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.errno(), libc::EBUSY, "{error}");
            true
        }
    }
}

#[test]
fn closing_what_others_have_says_so() {
    let pool = pool(16);
    let file = pool.create_new("f").unwrap();
    let error = pool.close().unwrap_err();
    assert_eq!(error.errno(), libc::EBUSY);
    assert!(error.to_string().contains("open files"), "{error}");
    file.write_all_at(b"still", 0).unwrap();
}

#[test]
fn one_opener_or_many_that_only_read() {
    let file = PoolFile::new(16);
    file.open().write("f", "x").unwrap();
    let reader = || PoolOptions::new().read_only(true).open(&file.path);
    let readers = [reader().unwrap(), reader().unwrap()];
    for reader in &readers {
        assert_eq!(reader.read_to_string("f").unwrap(), "x");
    }
    let error = Pool::open(&file.path).unwrap_err();
    assert!(matches!(error.region(), Some(RegionError::Busy { .. })), "{error}");
    drop(readers);
    let writer = file.open();
    assert_eq!(errno(reader()), libc::EBUSY);
    drop(writer);
    reader().unwrap();
}

#[test]
fn making_a_pool_destroys_nothing_it_was_not_told_to() {
    let dir = scratch();
    let path = dir.path().join("pool");
    let format = FormatOptions { page_size: PageSize::Huge, ..FormatOptions::default() };
    let make = |options: &PoolOptions| options.create(&path, 32 << 20, &format);
    let pool = make(&PoolOptions::new()).unwrap();
    assert_eq!(pool.info().unwrap().page_class, PageSize::Huge);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "its owner's alone");
    pool.write("f", "x").unwrap();
    assert_eq!(errno(make(PoolOptions::new().overwrite(true))), libc::EBUSY, "in use");
    drop(pool);
    assert_eq!(errno(make(&PoolOptions::new())), libc::EEXIST);
    assert_eq!(Pool::open(&path).unwrap().read_to_string("f").unwrap(), "x");
    let pool = make(PoolOptions::new().overwrite(true)).unwrap();
    assert!(!pool.exists("f"));
    drop(pool);
    let other = dir.path().join("small");
    let small = PoolOptions::new().create(&other, 8192, &FormatOptions::default());
    assert_eq!(errno(small), libc::EINVAL);
    assert!(!other.exists());
    assert_eq!(
        errno(PoolOptions::new().create(dir.path().join("no/pool"), 16 << 20, &format)),
        libc::ENOENT
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left over");
}

#[test]
fn what_is_no_pool_is_refused() {
    let dir = scratch();
    let path = dir.path().join("file");
    assert_eq!(errno(Pool::open(&path)), libc::ENOENT);
    fs::write(&path, "").unwrap();
    assert_eq!(errno(Pool::open(&path)), libc::EINVAL);
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let error = Pool::open(&path).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL);
    assert!(error.to_string().contains("not a Lode pool"), "{error}");
    assert_eq!(std::io::Error::from(error).raw_os_error(), None, "the number does not say it all");
    assert_eq!(errno(Pool::open(dir.path())), libc::EINVAL);
    assert_eq!(errno(PoolOptions::new().in_memory(4096)), libc::EINVAL);
    assert_eq!(errno(PoolOptions::new().read_only(true).in_memory(16 << 20)), libc::EINVAL);
}

#[test]
fn damage_is_an_error_that_says_where() {
    let file = PoolFile::new(16);
    let pool = file.open();
    pool.create_dir("d").unwrap();
    for number in 0..200 {
        pool.write(format!("d/name{number}"), "x").unwrap();
    }
    pool.write("other", "x").unwrap();
    drop(pool);
    let is_damage = |told: &lode::Error| {
        assert_eq!(told.errno(), libc::EIO, "{told}");
        assert!(told.corruption().is_some() && told.to_string().contains("offset"), "{told}");
    };
    damage(&file, |line| line.windows(7).any(|text| text == b"name100"));
    let pool = file.open();
    is_damage(&pool.metadata("d/name100").unwrap_err());
    assert_eq!(pool.read_to_string("other").unwrap(), "x");
    drop(pool);
    // All there is: the root, too.
    damage(&file, |line| *line != [0; 64]);
    is_damage(&PoolOptions::new().read_only(true).open(&file.path).unwrap_err());
}

/// Changes a byte of some lines, not of the superblocks.
fn damage(file: &PoolFile, which: impl Fn(&[u8; 64]) -> bool) {
    let raw = fs::OpenOptions::new().read(true).write(true).open(&file.path).unwrap();
    let (mut line, mut count) = ([0; 64], 0);
    for at in (64 << 10..8 << 20).step_by(64) {
        raw.read_exact_at(&mut line, at).unwrap();
        if which(&line) {
            line[20] ^= 1;
            raw.write_all_at(&line, at).unwrap();
            count += 1;
        }
    }
    assert!(count > 0, "nothing to damage");
}

#[test]
fn options_reach_the_pool() {
    let file = PoolFile::new(32);
    let mut options = PoolOptions::new();
    options.windows(WindowMode::None).cpus(2).relaxed(true).page_size(PageSize::Huge);
    let pool = options.open(&file.path).unwrap();
    assert!(pool.region().unwrap().contains("windows: none"), "{:?}", pool.region());
    let class = format!("durability: {}", pool.durability().unwrap());
    assert!(pool.region().unwrap().contains(&class), "{class}, {:?}", pool.region());
    pool.write("f", vec![1; 4 << 20]).unwrap();
    let again = pool.open_with("f", OpenOptions::new().write(true)).unwrap();
    let fences = || pool.stats().unwrap().door.fences;
    let before = fences();
    again.write_all_at(&[2; 100_000], 50).unwrap();
    assert_eq!(fences() - before, 1, "relaxed overwrites take one fence");
    assert!(pool.is_relaxed().unwrap());
    assert!(pool.statfs().unwrap().pages > 0 && !pool.is_read_only().unwrap());
    pool.sync().unwrap();
    again.sync_all().unwrap();
    again.sync_data().unwrap();
}

#[test]
fn clones_are_the_same_pool_and_copies_are_not() {
    let file = PoolFile::new(16);
    let copy = file.dir.path().join("copy");
    std::fs::copy(&file.path, &copy).unwrap();
    let (pool, copy) = (file.open(), Pool::open(&copy).unwrap());
    assert!(pool.is_same(&pool.clone()) && !pool.is_same(&copy));
    assert!(!pool.is_relaxed().unwrap());
    assert_eq!(pool.info().unwrap().uuid, copy.info().unwrap().uuid);
}

#[test]
fn dropping_in_any_order_is_all_right() {
    let pool = pool(16);
    let file = pool.create_new("f").unwrap();
    let clone = file.try_clone().unwrap();
    let listing = pool.read_dir("/").unwrap();
    let temporary = pool.temporary("/").unwrap();
    drop(file);
    drop(pool);
    drop(listing);
    drop(temporary);
    clone.write_all_at(b"x", 0).unwrap();
}

#[test]
fn background_work_is_done() {
    let pool = pool(16);
    for number in 0..100 {
        pool.write(number.to_string(), "x").unwrap();
    }
    for number in 0..100 {
        pool.remove_file(number.to_string()).unwrap();
    }
    let rounds = || pool.stats().unwrap().ops[lode_engine::Op::Round as usize];
    let before = rounds();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while rounds() == before {
        assert!(std::time::Instant::now() < end, "no round was made");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
