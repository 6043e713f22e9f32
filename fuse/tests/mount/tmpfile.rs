//! Files without a name (`O_TMPFILE`).

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, linkat};

use crate::support::{Mount, shell};
use crate::xattrs::{ACCESS, DEFAULT, NOBODY, acl, get, set, shared_with};

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

/// What a file without a name, made in `dir` for which `mode` is asked under `umask`, is: its mode
/// and group, and its list of access rights. It gets the name `dir`/named.
fn made_in(dir: &Path, umask: u32, mode: u32) -> (u32, u32, Option<Vec<u8>>) {
    let script = format!(
        r#"
import os
os.umask({umask})
fd = os.open(".", os.O_TMPFILE | os.O_RDWR, {mode})
one = f"/proc/self/fd/{{fd}}"
print(os.fstat(fd).st_mode & 0o7777, os.fstat(fd).st_gid)
try: print(os.getxattr(one, "{ACCESS}").hex())
except OSError: print()
os.link(one, "named", src_dir_fd=fd, follow_symlinks=True)
"#
    );
    let said = shell(dir, 0, &format!("exec python3 -c '{script}'"));
    let named = dir.join("named");
    let meta = fs::metadata(&named).unwrap();
    let (bits, list) = (meta.mode() & 0o7777, get(&named, ACCESS).ok());
    let hex: String = list.iter().flatten().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(said, format!("{bits} {}\n{hex}\n", meta.gid()), "with the name as without");
    (bits, meta.gid(), list)
}

#[test]
fn the_umask_counts_where_there_is_no_name() {
    let Some(mount) = Mount::new() else { return };
    assert_eq!(made_in(&mount.root, 0o027, 0o666), (0o640, 0, None));
}

#[test]
fn what_has_no_name_inherits_the_list_of_its_directory_in_place_of_the_umask() {
    let Some(mount) = Mount::new() else { return };
    let dir = mount.path("dir");
    fs::create_dir(&dir).unwrap();
    set(&dir, DEFAULT, &shared_with(7, 7)).unwrap();
    let cut = [(1, 6, NOBODY), (2, 7, 1000), (4, 5, NOBODY), (16, 6, NOBODY), (32, 0, NOBODY)];
    assert_eq!(made_in(&dir, 0o077, 0o666), (0o660, 0, Some(acl(&cut))));
    let mount = mount.unmount().mount();
    let dir = mount.path("dir");
    assert_eq!(get(&dir.join("named"), ACCESS), Ok(acl(&cut)));
    assert_eq!(get(&dir.join("named"), DEFAULT), Err(rustix::io::Errno::NODATA));
}

#[test]
fn what_has_no_name_gets_the_group_of_a_directory_that_hands_it_on() {
    let Some(mount) = Mount::new() else { return };
    let dir = mount.path("dir");
    fs::create_dir(&dir).unwrap();
    chown(&dir, None, Some(77)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o2755)).unwrap();
    assert_eq!(made_in(&dir, 0o022, 0o666), (0o644, 77, None));
}
