//! A pool of 100,000 files opens in 5 ms when it was closed, in 150 ms when it was not.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use lode_engine::{FormatOptions, NewInode, OpenOptions, Pool, mode};
use lode_pmem::{Mapped, RegionOptions};
use lode_testkit::TestHost;

const FILES: u32 = 100_000;
const DIRECTORIES: u32 = 100;
const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };

/// Opens the region first: its mapping is not the engine's time.
fn open(path: &Path) -> (Pool<Mapped, TestHost>, Duration) {
    let region = Mapped::open(path, &RegionOptions::new()).unwrap();
    let host = TestHost::with_cpus(2, 2);
    let begin = Instant::now();
    let pool = Pool::open(region, host, &OpenOptions::default()).unwrap();
    (pool, begin.elapsed())
}

fn make_files(pool: &Pool<Mapped, TestHost>) {
    for directory in 0..DIRECTORIES {
        let name = format!("directory-{directory}").into_bytes();
        let dir = pool.create(pool.root(), &name, &NEW_DIR).unwrap().ino;
        for number in 0..FILES / DIRECTORIES {
            let file = pool.create(dir, format!("file-{number}").as_bytes(), &NEW).unwrap();
            pool.write(file.ino, 0, &[number as u8; 3000]).unwrap();
        }
    }
}

#[test]
fn a_hundred_thousand_files_open_in_milliseconds() {
    let _quiet = crate::alone();
    let memory = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let dir = tempfile::tempdir_in(memory).unwrap();
    let (live, crashed_image) = (dir.path().join("live"), dir.path().join("crashed"));
    let copy = dir.path().join("copy");
    let region = Mapped::create(&live, 640 << 20, &RegionOptions::new(), false).unwrap();
    Pool::format(region, TestHost::with_cpus(1, 2), &FormatOptions::default()).unwrap();
    let (pool, _) = open(&live);
    make_files(&pool);
    fs::copy(&live, &crashed_image).unwrap();
    pool.close().unwrap();
    drop(pool);
    let (mut clean, mut crashed) = (Duration::MAX, Duration::MAX);
    // The best of three: what the machine does beside it is not the engine's time.
    for _ in 0..3 {
        fs::copy(&crashed_image, &copy).unwrap();
        let (pool, time) = open(&copy);
        assert!(!pool.opening().clean);
        assert_eq!(pool.opening().damage, []);
        assert_eq!(pool.statfs().inodes, u64::from(FILES + DIRECTORIES + 1));
        crashed = crashed.min(time);
        drop(pool);

        fs::copy(&live, &copy).unwrap();
        let (pool, time) = open(&copy);
        assert!(pool.opening().clean);
        assert_eq!(pool.statfs().inodes, u64::from(FILES + DIRECTORIES + 1));
        let dir = pool.lookup(pool.root(), b"directory-7").unwrap().ino;
        assert_eq!(pool.lookup(dir, b"file-9").unwrap().size, 3000);
        clean = clean.min(time);
    }
    println!("{FILES} files: clean open {clean:?}, open after a crash {crashed:?}");
    assert!(clean <= Duration::from_millis(5), "clean open took {clean:?}");
    assert!(crashed <= Duration::from_millis(150), "open after a crash took {crashed:?}");
}
