//! Opening, creating and locking regions, and what they say of themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use common::{End, PAGE, disk, enter_other_process, noise, shm, start_other_process};
use lode_pmem::{
    Counters, Door, Draft, Durability, FlushStrategy, Mapped, RegionError, RegionKind,
    RegionOptions, WindowMode,
};

const OPTIONS: RegionOptions = RegionOptions::new();
const READ_ONLY: RegionOptions = RegionOptions::new().read_only(true);

fn create(path: &Path, pages: u64) -> Mapped {
    Mapped::create(path, pages * PAGE, &OPTIONS, false).unwrap()
}

#[test]
fn kinds_and_durability_classes() {
    let (shm, disk) = (shm(), disk());
    let tmpfs = create(&shm.path().join("pool"), 4);
    assert_eq!(tmpfs.kind(), RegionKind::Tmpfs);
    assert_eq!(tmpfs.durability(), Durability::ProcessCrash);
    assert!(matches!(tmpfs.strategy(), FlushStrategy::Instructions { .. }));
    assert!(tmpfs.to_string().ends_with("durability: process crash"), "{tmpfs}");

    let file = create(&disk.path().join("pool"), 4);
    if file.kind() == RegionKind::File {
        assert_eq!(file.strategy(), FlushStrategy::Msync);
    }
    match file.kind() {
        RegionKind::Tmpfs => eprintln!("skipped: the test directory is on no disk"),
        _ => assert_eq!(file.durability(), Durability::Power, "{file}"),
    }
    drop(file);
    let unsynced = OPTIONS.flush("sse2+clflush".parse().unwrap());
    let file = Mapped::open(disk.path().join("pool"), &unsynced).unwrap();
    if file.kind() == RegionKind::File {
        assert_eq!(file.durability(), Durability::ProcessCrash);
    }

    let memory = Mapped::anonymous(5, &OPTIONS).unwrap();
    assert_eq!(memory.kind(), RegionKind::Anonymous);
    assert_eq!(memory.durability(), Durability::None);
    assert_eq!(memory.path(), None);
    assert_eq!(Door::new(memory).bytes(), PAGE);
}

#[test]
fn windows_are_keys_where_there_are_any() {
    let memory = Mapped::anonymous(PAGE, &OPTIONS).unwrap();
    let by_key = Mapped::anonymous(PAGE, &OPTIONS.windows(WindowMode::Key));
    let expected = match by_key {
        Ok(region) => region.window_mode(),
        Err(RegionError::NoWindows { mode, why }) => {
            assert_eq!(mode, WindowMode::Key);
            eprintln!("skipped: {why}");
            WindowMode::None
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(memory.window_mode(), expected);
    for mode in WindowMode::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    assert!("keys".parse::<WindowMode>().is_err());
}

#[test]
fn what_was_stored_is_there_when_opened_again() {
    for directory in [shm(), disk()] {
        let path = directory.path().join("pool");
        let content = noise(10_000, 4);
        let door = Door::new(create(&path, 16));
        let counters = Counters::new();
        door.window(10_000, &counters).copy_nt(77, &content);
        door.fence(&counters).unwrap();
        drop(door);
        let mut found = vec![0; 10_000];
        let door = Door::new(Mapped::open(&path, &READ_ONLY).unwrap());
        assert!(door.medium().is_read_only());
        door.load(77, &mut found).unwrap();
        assert!(found == content);
        let mut file = File::open(&path).unwrap();
        file.seek(SeekFrom::Start(77)).unwrap();
        file.read_exact(&mut found).unwrap();
        assert!(found == content);
    }
}

#[test]
fn a_read_only_region_takes_no_store() {
    let directory = shm();
    let path = directory.path().join("pool");
    drop(create(&path, 1));
    let door = Door::new(Mapped::open(&path, &READ_ONLY).unwrap());
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        door.window(8, &Counters::new()).store_word(0, 1);
    }));
    assert!(outcome.is_err());
    assert_eq!(door.load_word(0), Ok(0));
    let error = Mapped::create(directory.path().join("new"), PAGE, &READ_ONLY, false).unwrap_err();
    assert!(matches!(error, RegionError::CreateReadOnly));
}

#[test]
fn one_user_or_many_readers() {
    let directory = shm();
    let path = directory.path().join("pool");
    let first = create(&path, 1);
    for options in [OPTIONS, READ_ONLY] {
        let error = Mapped::open(&path, &options).unwrap_err();
        let RegionError::Busy { holder, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*holder, Some(std::process::id()));
        assert!(error.to_string().contains("in use by process"), "{error}");
    }
    let error = Mapped::create(&path, PAGE, &OPTIONS, true).unwrap_err();
    assert!(matches!(error, RegionError::Busy { .. }));
    drop(first);
    let reader = Mapped::open(&path, &READ_ONLY).unwrap();
    let other_reader = Mapped::open(&path, &READ_ONLY).unwrap();
    let error = Mapped::open(&path, &OPTIONS).unwrap_err();
    assert!(matches!(error, RegionError::Busy { .. }));
    drop((reader, other_reader));
    Mapped::open(&path, &OPTIONS).unwrap();
}

#[test]
fn a_new_region_has_all_of_its_space() {
    for directory in [shm(), disk()] {
        let path = directory.path().join("pool");
        // Rounded up to whole pages.
        let region = Mapped::create(&path, 300 * PAGE - 1, &OPTIONS, false).unwrap();
        assert_eq!(Door::new(region).bytes(), 300 * PAGE);
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), 300 * PAGE);
        assert!(metadata.blocks() * 512 >= 300 * PAGE);
    }
}

#[test]
fn holes_are_filled_when_a_region_is_opened_for_stores() {
    for directory in [shm(), disk()] {
        let path = directory.path().join("pool");
        let mut file = File::create(&path).unwrap();
        file.set_len(300 * PAGE + 5).unwrap();
        file.seek(SeekFrom::Start(100 * PAGE)).unwrap();
        file.write_all(&[7; 8]).unwrap();
        drop(file);
        drop(Mapped::open(&path, &READ_ONLY).unwrap());
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 < 10 * PAGE);
        let door = Door::new(Mapped::open(&path, &OPTIONS).unwrap());
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 >= 300 * PAGE);
        // What is beyond the last whole page is left alone.
        assert_eq!(door.bytes(), 300 * PAGE);
        assert_eq!(door.load_word(100 * PAGE), Ok(0x0707_0707_0707_0707));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 300 * PAGE + 5);
    }
}

#[test]
fn no_space_is_an_error_and_leaves_no_file() {
    let directory = shm();
    let small = directory.path().join("small");
    std::fs::create_dir(&small).unwrap();
    if !mount_tmpfs(&small, "size=1m") {
        eprintln!("skipped: no right to mount a small file system");
        return;
    }
    let path = small.join("pool");
    let outcome = Mapped::create(&path, 4 << 20, &OPTIONS, false);
    let left = path.exists();
    // A sparse file that is too large to fill.
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let of_sparse = Mapped::open(&path, &OPTIONS);
    unmount(&small);
    let error = outcome.unwrap_err();
    assert!(matches!(error, RegionError::NoSpace { .. }), "{error}");
    assert!(!left);
    assert!(matches!(of_sparse.unwrap_err(), RegionError::NoSpace { .. }));
}

fn c_string(path: &Path) -> std::ffi::CString {
    std::ffi::CString::new(path.to_str().unwrap()).unwrap()
}

fn mount_tmpfs(at: &Path, how: &str) -> bool {
    let (at, how) = (c_string(at), std::ffi::CString::new(how).unwrap());
    // SAFETY: takes strings that end in zero.
    unsafe {
        let data = how.as_ptr().cast();
        libc::mount(c"tmpfs".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), 0, data) == 0
    }
}

fn unmount(at: &Path) {
    // SAFETY: takes a string that ends in zero.
    unsafe { libc::umount2(c_string(at).as_ptr(), libc::MNT_DETACH) };
}

#[test]
fn what_exists_is_replaced_by_force_alone() {
    let directory = shm();
    let path = directory.path().join("pool");
    std::fs::write(&path, noise(3 * PAGE as usize, 1)).unwrap();
    let error = Mapped::create(&path, PAGE, &OPTIONS, false).unwrap_err();
    assert!(matches!(error, RegionError::Exists { .. }));
    let wishes = FlushStrategy::available();
    let lacking = ["movdir64b+clwb", "avx512+clwb"].map(|name| name.parse().unwrap());
    for strategy in lacking.into_iter().filter(|one| !wishes.contains(one)) {
        Mapped::create(&path, PAGE, &OPTIONS.flush(strategy), true).unwrap_err();
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 3 * PAGE);
    let door = Door::new(Mapped::create(&path, 2 * PAGE, &OPTIONS, true).unwrap());
    let mut found = vec![1; 2 * PAGE as usize];
    door.load(0, &mut found).unwrap();
    assert!(found.iter().all(|&byte| byte == 0));
}

#[test]
fn what_is_no_region_is_refused() {
    let directory = shm();
    let file = directory.path().join("file");
    std::fs::write(&file, [0; 4095]).unwrap();
    let error = Mapped::open(&file, &OPTIONS).unwrap_err();
    assert!(matches!(error, RegionError::TooSmall { bytes: 4095, .. }), "{error}");
    for path in [directory.path(), Path::new("/dev/null"), Path::new("/dev/zero")] {
        for options in [OPTIONS, READ_ONLY] {
            let error = Mapped::open(path, &options).unwrap_err();
            assert!(matches!(error, RegionError::NotARegion { .. }), "{error}");
        }
    }
    // Where sysfs has nothing of a device, nobody knows what it is.
    let nowhere = OPTIONS.sysfs(Some(Path::new("/nowhere")));
    let error = Mapped::open("/dev/zero", &nowhere).unwrap_err();
    assert!(matches!(error, RegionError::NotInSysfs { .. }), "{error}");
    let pipe = directory.path().join("pipe");
    // SAFETY: takes a string that ends in zero.
    unsafe { libc::mkfifo(c_string(&pipe).as_ptr(), 0o600) };
    for options in [OPTIONS, READ_ONLY] {
        let error = Mapped::open(&pipe, &options).unwrap_err();
        assert!(matches!(error, RegionError::NotARegion { .. }), "{error}");
    }
    let error = Mapped::open(directory.path().join("none"), &OPTIONS).unwrap_err();
    assert!(matches!(error, RegionError::Io { .. }), "{error}");
    let error = Mapped::anonymous(0, &OPTIONS).unwrap_err();
    assert!(matches!(error, RegionError::TooSmall { .. }), "{error}");
    let error = Mapped::anonymous(u64::MAX - 5, &OPTIONS).unwrap_err();
    assert!(matches!(error, RegionError::TooLarge { .. }), "{error}");
    let new = directory.path().join("new");
    let error = Mapped::create(&new, 0, &OPTIONS, false).unwrap_err();
    assert!(matches!(error, RegionError::TooSmall { .. }), "{error}");
    assert!(!new.exists());
}

#[test]
fn huge_pages_are_rounded_to() {
    const HUGE: u64 = 2 << 20;
    // SAFETY: takes a string that ends in zero and gives a new descriptor.
    let file = unsafe {
        let flags = libc::MFD_HUGETLB | libc::MFD_HUGE_2MB;
        let fd = libc::memfd_create(c"lode".as_ptr(), flags);
        if fd < 0 {
            eprintln!("skipped: no huge pages");
            return;
        }
        File::from_raw_fd(fd)
    };
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    match Mapped::create(&path, HUGE + 1, &OPTIONS, true) {
        Ok(region) => {
            assert_eq!(region.kind(), RegionKind::Hugetlb);
            assert_eq!(region.page_bytes(), HUGE);
            assert_eq!(region.durability(), Durability::ProcessCrash);
            drop(region);
            let by_mprotect = OPTIONS.windows(WindowMode::Mprotect);
            let door = Door::new(Mapped::open(&path, &by_mprotect).unwrap());
            assert_eq!(door.bytes(), 2 * HUGE);
            let counters = Counters::new();
            door.window(100, &counters).copy_nt(HUGE - 50, &[1; 100]);
            assert_eq!(door.load_word(HUGE), Ok(0x0101_0101_0101_0101));
        }
        Err(RegionError::NoSpace { .. }) => eprintln!("skipped: no free huge pages"),
        Err(error) => panic!("{error}"),
    }
}

/// The device's contents are lost, so it has to be named.
#[test]
fn a_dax_device_is_a_region() {
    let Some(path) = std::env::var_os("LODE_TEST_DAX_DEVICE") else {
        eprintln!("skipped: LODE_TEST_DAX_DEVICE names no device");
        return;
    };
    let error = Mapped::create(&path, 0, &OPTIONS, false).unwrap_err();
    assert!(matches!(error, RegionError::Exists { .. }), "{error}");
    for mode in WindowMode::ALL {
        let door = match Mapped::create(&path, 0, &OPTIONS.windows(mode), true) {
            Ok(region) => Door::new(region),
            Err(RegionError::NoWindows { why, .. }) => {
                eprintln!("skipped: {why}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let region = door.medium();
        eprintln!("{region}");
        assert_eq!(region.kind(), RegionKind::DeviceDax);
        assert_eq!(region.durability(), Durability::Power);
        let (size, page) = (door.bytes(), region.page_bytes());
        assert!(size % page == 0 && size > page);
        let error = Mapped::open(&path, &OPTIONS).unwrap_err();
        assert!(matches!(error, RegionError::Busy { .. }), "{error}");
        let counters = Counters::new();
        let content = noise(1000, mode as u64);
        door.window(1000, &counters).copy_nt(page - 500, &content);
        door.window(8, &counters).store_word(size - 8, 5);
        door.fence(&counters).unwrap();
        drop(door);
        let door = Door::new(Mapped::create(&path, 2 * page, &OPTIONS, true).unwrap());
        assert_eq!(door.bytes(), 2 * page);
        let mut found = vec![0; 1000];
        door.load(page - 500, &mut found).unwrap();
        assert!(found == content);
    }
    let error = Mapped::create(&path, u64::MAX / 2, &OPTIONS, true).unwrap_err();
    assert!(matches!(error, RegionError::TooSmall { .. }), "{error}");
    let by_msync = OPTIONS.flush(FlushStrategy::Msync);
    let error = Mapped::open(&path, &by_msync).unwrap_err();
    assert!(matches!(error, RegionError::NoMsync { .. }), "{error}");
    let reader = Mapped::open(&path, &READ_ONLY).unwrap();
    assert!(reader.is_read_only());
}

#[test]
fn the_lock_ends_with_the_process() {
    let name = "the_lock_ends_with_the_process";
    enter_other_process(name, |path| {
        std::mem::forget(create(path, 1));
        true
    });
    let directory = shm();
    let path = directory.path().join("pool");
    let end = start_other_process(name, &path);
    assert_eq!(end, End::Code(0));
    Mapped::open(&path, &OPTIONS).unwrap();
}

#[test]
fn a_draft_that_is_not_published_leaves_what_was_there() {
    let directory = shm();
    let path = directory.path().join("pool");
    let (region, draft) = Draft::create(&path, PAGE, &OPTIONS, false).unwrap();
    assert!(!path.exists() && draft.path().exists());
    drop((region, draft));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    std::fs::write(&path, "old").unwrap();
    let (region, draft) = Draft::create(&path, PAGE, &OPTIONS, true).unwrap();
    let error = Mapped::open(&path, &READ_ONLY).unwrap_err();
    assert!(matches!(error, RegionError::Busy { .. }), "the old file is locked: {error}");
    drop((region, draft));
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    // Nor does it take a place that has been taken meanwhile.
    std::fs::remove_file(&path).unwrap();
    let (_region, draft) = Draft::create(&path, PAGE, &OPTIONS, false).unwrap();
    std::fs::write(&path, "other").unwrap();
    assert!(matches!(draft.publish(), Err(RegionError::Exists { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"other");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}
