//! The time of birth.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::support::{Mount, shell};

/// Whether the kernel asks for times of birth, as it does since 6.6; says so when not.
fn asked_for() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut parts = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let asks = (parts.next(), parts.next()) >= (Some(6), Some(6));
    if !asks {
        eprintln!("skipped: Linux {release} does not ask for times of birth");
    }
    asks
}

/// When it was born; it has to be told.
fn birth(path: &Path) -> SystemTime {
    let asked = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, asked).unwrap();
    assert!(found.stx_mask & StatxFlags::BTIME.bits() != 0, "{path:?} has no time of birth");
    let nanoseconds = u64::from(found.stx_btime.tv_nsec);
    let seconds = Duration::from_secs(found.stx_btime.tv_sec.try_into().unwrap());
    UNIX_EPOCH + seconds + Duration::from_nanos(nanoseconds)
}

#[test]
fn it_is_when_the_file_was_made_and_stays_whatever_happens_to_it() {
    let Some(mount) = Mount::new() else { return };
    if !asked_for() {
        return;
    }
    let before = SystemTime::now();
    let (file, dir, link) = (mount.path("file"), mount.path("dir"), mount.path("link"));
    fs::write(&file, "first").unwrap();
    fs::create_dir(&dir).unwrap();
    symlink("file", &link).unwrap();
    let after = SystemTime::now();
    let born = [birth(&file), birth(&dir), birth(&link)];
    for time in born {
        assert!(before <= time && time <= after, "{before:?} {time:?} {after:?}");
    }
    std::thread::sleep(Duration::from_millis(5));
    File::options().write(true).open(&file).unwrap().write_all_at(b"more", 3).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let old = UNIX_EPOCH + Duration::from_secs(5);
    File::open(&file).unwrap().set_modified(old).unwrap();
    assert_eq!(birth(&file), born[0], "not changed by write, chmod and utimes");
    fs::rename(&file, dir.join("renamed")).unwrap();
    assert_eq!(birth(&dir.join("renamed")), born[0], "not changed by rename");
    assert_eq!(birth(&dir), born[1], "not changed by a new entry");
    let mount = mount.unmount().mount();
    let now = [mount.path("dir/renamed"), mount.path("dir"), mount.path("link")];
    assert_eq!(now.map(|path| birth(&path)), born, "not changed by mounting again");
}

#[test]
fn who_asks_for_it_gets_all_other_attributes_as_well() {
    let Some(mount) = Mount::new() else { return };
    if !asked_for() {
        return;
    }
    fs::write(mount.path("file"), vec![1; 5000]).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    shell(&mount.root, 0, "chown 12:34 file; chmod 4751 file; ln file other; mknod null c 1 300");
    // Asked without the time of birth: another request, by a kernel that then forgets it all.
    let plain = rustix::fs::stat(&*mount.path("file")).unwrap();
    let mount = mount.unmount().mount();
    let asked = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let told = |name| statx(CWD, mount.path(name), AtFlags::empty(), asked).unwrap();
    let (file, null) = (told("file"), told("null"));
    assert_eq!(file.stx_mask & asked.bits(), asked.bits());
    assert_eq!(u32::from(file.stx_mode), libc::S_IFREG | 0o4751);
    assert_eq!((file.stx_uid, file.stx_gid, file.stx_nlink), (12, 34, 2));
    assert_eq!((file.stx_size, file.stx_blocks, file.stx_blksize), (5000, 16, 4096));
    assert_eq!(u32::from(null.stx_mode), libc::S_IFCHR | 0o644);
    assert_eq!((null.stx_rdev_major, null.stx_rdev_minor), (1, 300));
    assert_eq!(file.stx_ino, plain.st_ino);
    let times = [file.stx_atime, file.stx_mtime, file.stx_ctime];
    let times = times.map(|time| (time.tv_sec, u64::from(time.tv_nsec)));
    let access = (plain.st_atime, plain.st_atime_nsec);
    let modified = (plain.st_mtime, plain.st_mtime_nsec);
    assert_eq!(times, [access, modified, (plain.st_ctime, plain.st_ctime_nsec)]);
    assert!(times[1] < times[2], "the one was changed after it was written");
}
