//! Files without a name (`O_TMPFILE`).

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, linkat};

use crate::support::Mount;

fn tmpfile(dir: &Path, more: i32) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o640).custom_flags(libc::O_TMPFILE | more).open(dir)
}

fn named(file: &File, at: &Path) -> rustix::io::Result<()> {
    let fd = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, fd, CWD, at, AtFlags::SYMLINK_FOLLOW)
}

#[test]
fn a_file_without_a_name_is_written_and_then_named() {
    let Some(mount) = Mount::new() else { return };
    let dir = mount.root.as_path();
    fs::create_dir(dir.join("d")).unwrap();
    let inodes = || rustix::fs::statvfs(dir).map(|found| found.f_files - found.f_ffree).unwrap();
    let before = inodes();
    let mut file = tmpfile(&dir.join("d"), 0).unwrap();
    file.write_all(&[7; 10_000]).unwrap();
    file.set_len(9000).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.nlink(), meta.len(), meta.mode() & 0o777), (0, 9000, 0o640));
    assert_eq!(inodes(), before + 1);
    assert_eq!(fs::read_dir(dir.join("d")).unwrap().count(), 0);
    let at = dir.join("named");
    named(&file, &at).unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), fs::read(&at).unwrap()), (1, vec![7; 9000]));
    assert_eq!(fs::metadata(&at).unwrap().ino(), file.metadata().unwrap().ino());
    drop(file);
    assert_eq!(fs::read(&at).unwrap(), vec![7; 9000]);
}

#[test]
fn what_never_gets_a_name_leaves_nothing() {
    let Some(mount) = Mount::new() else { return };
    let dir = mount.root.as_path();
    drop(tmpfile(dir, 0).unwrap());
    let space = || rustix::fs::statvfs(dir).map(|found| found.f_bfree).unwrap();
    let before = space();
    let mut file = tmpfile(dir, 0).unwrap();
    file.write_all(&[1; 300_000]).unwrap();
    assert!(space() < before);
    let mut read = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut read).unwrap();
    assert_eq!(read, [1; 300_000]);
    drop(file);
    // The kernel forgets when it likes: soon.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while space() < before && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(space() >= before, "{:?} of {before:?}", space());
}

#[test]
fn a_file_that_is_to_stay_without_a_name_gets_none() {
    let Some(mount) = Mount::new() else { return };
    let file = tmpfile(&mount.root, libc::O_EXCL).unwrap();
    assert_eq!(named(&file, &mount.root.join("n")), Err(rustix::io::Errno::NOENT));
    let gone = tmpfile(&mount.root.join("none"), 0).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
}
