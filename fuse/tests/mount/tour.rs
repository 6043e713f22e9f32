//! Once around everything a file system does.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, FileType, Mode, Timespec, Timestamps};

use crate::support::{Mount, errno, eventually, shell};

#[test]
fn files_are_made_read_changed_and_removed() {
    let Some(mount) = Mount::new() else { return };
    let file = mount.path("file");
    fs::write(&file, "hello").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"hello");
    File::options().append(true).open(&file).unwrap().write_all(b", world").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"hello, world");
    fs::write(&file, "short").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"short");
    assert_eq!(fs::metadata(&file).unwrap().len(), 5);
    File::options().write(true).open(&file).unwrap().set_len(2).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"sh");
    fs::remove_file(&file).unwrap();
    assert_eq!(errno(fs::read(&file)), libc::ENOENT);
    assert_eq!(errno(fs::remove_file(&file)), libc::ENOENT);
}

#[test]
fn large_files_come_back_as_they_were() {
    let Some(mount) = Mount::new() else { return };
    let bytes: Vec<u8> =
        (0..5_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(mount.path("large"), &bytes).unwrap();
    assert!(fs::read(mount.path("large")).unwrap() == bytes);
    let mount = mount.unmount().mount();
    assert!(fs::read(mount.path("large")).unwrap() == bytes, "read from the pool again");
}

#[test]
fn directories_links_and_symbolic_links() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir_all(mount.path("a/b/c")).unwrap();
    fs::write(mount.path("a/b/c/file"), "x").unwrap();
    fs::hard_link(mount.path("a/b/c/file"), mount.path("a/link")).unwrap();
    assert_eq!(fs::metadata(mount.path("a/link")).unwrap().nlink(), 2);
    symlink("b/c/file", mount.path("a/symlink")).unwrap();
    assert_eq!(fs::read(mount.path("a/symlink")).unwrap(), b"x");
    assert_eq!(fs::read_link(mount.path("a/symlink")).unwrap().to_str(), Some("b/c/file"));
    let long = "s/".repeat(2000);
    symlink(&long, mount.path("long")).unwrap();
    assert_eq!(fs::read_link(mount.path("long")).unwrap().to_str(), Some(&*long));
    assert_eq!(errno(fs::remove_dir(mount.path("a/b"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::create_dir(mount.path("a/b"))), libc::EEXIST);
    assert_eq!(errno(fs::hard_link(mount.path("a/b"), mount.path("dirlink"))), libc::EPERM);
    fs::remove_dir_all(mount.path("a")).unwrap();
    assert_eq!(errno(fs::metadata(mount.path("a"))), libc::ENOENT);
}

#[test]
fn special_files_keep_type_and_number() {
    let Some(mount) = Mount::new() else { return };
    let mode = Mode::from_raw_mode(0o640);
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, (0, 0)),
        ("socket", FileType::Socket, (0, 0)),
        ("char", FileType::CharacterDevice, (1, 3)),
        ("block", FileType::BlockDevice, (259, 70_000)),
    ] {
        let number = rustix::fs::makedev(device.0, device.1);
        rustix::fs::mknodat(CWD, mount.path(name), kind, mode, number).unwrap();
        let found = fs::symlink_metadata(mount.path(name)).unwrap();
        assert_eq!(found.rdev(), number, "{name}");
        assert_eq!(FileType::from_raw_mode(found.mode()), kind);
    }
    assert!(fs::symlink_metadata(mount.path("fifo")).unwrap().file_type().is_fifo());
}

#[test]
fn attributes_are_set_and_kept() {
    let Some(mount) = Mount::new() else { return };
    let file = mount.path("file");
    fs::write(&file, "x").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o4751)).unwrap();
    std::os::unix::fs::chown(&file, Some(12), Some(34)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o751)).unwrap();
    // Seconds and nanoseconds, before and after 1970.
    let times = Timestamps {
        last_access: Timespec { tv_sec: -3, tv_nsec: 250_000_000 },
        last_modification: Timespec { tv_sec: 2_000_000_000, tv_nsec: 123_456_789 },
    };
    rustix::fs::utimensat(CWD, &file, &times, rustix::fs::AtFlags::empty()).unwrap();
    let check = |mount: &Mount| {
        let found = fs::metadata(mount.path("file")).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (12, 34, 0o751));
        assert_eq!((found.atime(), found.atime_nsec()), (-3, 250_000_000));
        assert_eq!((found.mtime(), found.mtime_nsec()), (2_000_000_000, 123_456_789));
    };
    check(&mount);
    let mount = mount.unmount().mount();
    check(&mount);
    // "Now" is the wall clock's.
    File::options().write(true).open(&file).unwrap().set_modified(SystemTime::now()).unwrap();
    let age = fs::metadata(&file).unwrap().modified().unwrap().elapsed().unwrap();
    assert!(age < Duration::from_secs(60));
    // The furthest times there are do no harm.
    for tv_sec in [i64::MAX, i64::MIN + 1, -(1 << 40)] {
        let far = Timespec { tv_sec, tv_nsec: 999_999_999 };
        let times = Timestamps { last_access: far, last_modification: far };
        rustix::fs::utimensat(CWD, &file, &times, rustix::fs::AtFlags::empty()).unwrap();
    }
    assert!(fs::metadata(&file).unwrap().modified().unwrap() < UNIX_EPOCH);
}

#[test]
fn space_is_told_and_given_back() {
    let Some(mount) = Mount::new() else { return };
    let free = || rustix::fs::statvfs(&mount.root).unwrap();
    let before = free();
    assert_eq!((before.f_frsize, before.f_namemax), (4096, 255));
    assert_eq!(before.f_blocks * 4096, 256 << 20);
    assert!(before.f_bfree <= before.f_blocks && before.f_bfree > before.f_blocks / 2);
    assert!(before.f_ffree > 1000 && before.f_files >= before.f_ffree);
    fs::write(mount.path("file"), vec![1; 8 << 20]).unwrap();
    assert!(free().f_bfree <= before.f_bfree - 2048);
    assert_eq!(fs::metadata(mount.path("file")).unwrap().blocks(), 16384);
    fs::remove_file(mount.path("file")).unwrap();
    eventually(|| free().f_bfree + 16 >= before.f_bfree);
}

#[test]
fn df_shows_what_files_take() {
    let Some(mount) = Mount::new() else { return };
    // Total, used and free: bytes, then inodes.
    let df = || -> [u64; 6] {
        let columns = "--output=size,used,avail,itotal,iused,iavail";
        let said = shell(&mount.root, 1234, &format!("df -B1 {columns} . | tail -1"));
        let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    };
    let before = df();
    assert_eq!(before[0], 256 << 20);
    assert!(before[1] + before[2] <= before[0] && before[4] + before[5] == before[3]);
    for i in 0..500 {
        fs::write(mount.path(&format!("file{i}")), vec![1; 65_536]).unwrap();
    }
    let (after, bytes) = (df(), 500 * 65_536);
    assert_eq!(after[4], before[4] + 500, "inodes in use");
    // Beside the data there may be a table of inodes more, of 2 MiB, for each of the 16 lanes.
    let taken = bytes..bytes + (34 << 20);
    for (more, less) in [(after[1], before[1]), (before[2], after[2])] {
        assert!(taken.contains(&(more - less)), "{before:?}, {after:?}");
    }
    (0..500).for_each(|i| fs::remove_file(mount.path(&format!("file{i}"))).unwrap());
    eventually(|| df()[4] == before[4]);
}

#[test]
fn names_are_any_bytes_up_to_255() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let Some(mount) = Mount::new() else { return };
    for len in [1, 54, 55, 56, 64, 65, 100, 200, 254, 255] {
        let bytes: Vec<u8> =
            (0..len).map(|i| if i == 0 { 0xff } else { 1 + (i % 46) as u8 }).collect();
        let path = mount.root.join(OsStr::from_bytes(&bytes));
        fs::write(&path, len.to_string()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), len.to_string());
    }
    assert_eq!(fs::read_dir(&mount.root).unwrap().count(), 10);
    assert_eq!(errno(fs::write(mount.path(&"x".repeat(256)), "")), libc::ENAMETOOLONG);
}

#[test]
fn what_is_not_there_is_refused_properly() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    fs::write(&path, "x").unwrap();
    let mut file = File::open(&path).unwrap();
    assert_eq!(rustix::fs::ioctl_getflags(&file).err(), Some(rustix::io::Errno::NOTTY));
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "x");
}
