//! What mount options change: access times, device nodes, set-user-id bits, programs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs::{self, File, FileTimes, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use common::{Scratch, lode, run, text};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;

/// A pool, mounted with options: done something to, and unmounted.
struct Mounts {
    _scratch: Scratch,
    pool: PathBuf,
    dir: PathBuf,
}

impl Mounts {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
        // Who is not root has to reach the mount point.
        let open = Permissions::from_mode(0o755);
        fs::set_permissions(scratch.path("."), open).unwrap();
        Self { _scratch: scratch, pool, dir }
    }

    #[track_caller]
    fn with<T>(&self, options: &str, work: impl FnOnce(&Path) -> T) -> T {
        lode(&["mount", text(&self.pool), text(&self.dir), "-o", options]).expect(0);
        let result = work(&self.dir);
        lode(&["umount", text(&self.dir)]).expect(0);
        result
    }
}

/// Whether reading, on a mount that has not seen the file yet, makes it accessed just now.
fn read_counts(mounts: &Mounts, options: &str) -> bool {
    mounts.with(options, |dir| {
        let file = dir.join("file");
        let before = fs::metadata(&file).unwrap().accessed().unwrap();
        fs::read(&file).unwrap();
        let after = fs::metadata(&file).unwrap().accessed().unwrap();
        assert!(after == before || after.elapsed().unwrap() < Duration::from_secs(60));
        after != before
    })
}

#[test]
fn access_times_are_kept_as_relatime_has_it_and_not_with_noatime() {
    let mounts = Mounts::new();
    mounts.with("rw", |dir| fs::write(dir.join("file"), "text").unwrap());
    assert!(!read_counts(&mounts, "noatime"), "noatime");
    assert!(read_counts(&mounts, "relatime"), "changed since it was read");
    assert!(!read_counts(&mounts, "relatime"), "read since it was changed");
    // Setting a time is a change of its own, later than the time that is set.
    mounts.with("rw", |dir| {
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        let times = FileTimes::new().set_accessed(long_ago);
        File::options().write(true).open(dir.join("file")).unwrap().set_times(times).unwrap();
    });
    assert!(!read_counts(&mounts, "noatime"), "noatime");
    assert!(read_counts(&mounts, "rw"), "relatime where nothing is said");
    for _ in 0..3 {
        assert!(read_counts(&mounts, "strictatime"), "strictatime");
    }
    // In one mount, too, where the kernel would have the file in its cache.
    mounts.with("strictatime", |dir| {
        let file = dir.join("file");
        let mut last = fs::metadata(&file).unwrap().accessed().unwrap();
        for _ in 0..3 {
            fs::read(&file).unwrap();
            let now = fs::metadata(&file).unwrap().accessed().unwrap();
            assert!(now > last, "read, and the access time stays");
            last = now;
        }
    });
}

#[test]
fn device_nodes_and_programs_work_where_the_options_say_so() {
    let mounts = Mounts::new();
    mounts.with("rw", |dir| {
        let mode = Mode::from_raw_mode(0o666);
        let null = makedev(1, 5);
        mknodat(CWD, dir.join("zero"), FileType::CharacterDevice, mode, null).unwrap();
        fs::copy("/usr/bin/id", dir.join("id")).unwrap();
        fs::set_permissions(dir.join("id"), Permissions::from_mode(0o4755)).unwrap();
        let refused = File::open(dir.join("zero")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ACCESS.raw_os_error()), "{refused}");
    });
    // The program says as whom it runs, started by somebody who is not root.
    let who = |dir: &Path| {
        use std::os::unix::process::CommandExt;
        run(Command::new(dir.join("id")).arg("-u").uid(1234).gid(1234)).expect(0).out
    };
    assert_eq!(mounts.with("rw", who), "1234\n", "set-user-id bits do nothing");
    assert_eq!(mounts.with("suid", who), "0\n");
    mounts.with("dev,noexec", |dir| {
        let mut byte = [1];
        File::open(dir.join("zero")).unwrap().read_exact(&mut byte).unwrap();
        assert_eq!(byte, [0]);
        let refused = Command::new(dir.join("id")).output().unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    });
}
