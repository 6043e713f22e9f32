//! Directories and nameless files are made with the permissions that are asked for, less the umask, as the
//! system makes them.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};

use crate::common::{errno, pool, scratch};

#[test]
fn permissions_are_those_that_the_system_gives() {
    let (pool, dir) = (pool(16), scratch());
    for mode in [0, 0o777, 0o700, 0o750, 0o1777, 0o4755, 0o2775, 0o7777, 0o100_644] {
        let path = format!("{mode:o}");
        DirBuilder::new().mode(mode).create(dir.path().join(&path)).unwrap();
        pool.create_dir_with_mode(&path, mode).unwrap();
        let (ours, theirs) = (pool.metadata(&path), dir.path().join(&path).metadata());
        assert_eq!(ours.unwrap().mode(), theirs.unwrap().mode(), "mkdir {mode:o}");

        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(mode).custom_flags(libc::O_TMPFILE);
        let theirs = options.open(dir.path()).unwrap().metadata().unwrap();
        let ours = pool.temporary_with_mode("/", mode).unwrap().metadata().unwrap();
        assert_eq!((ours.mode(), ours.nlink()), (theirs.mode(), theirs.nlink()), "{mode:o}");
    }
    assert_eq!(errno(pool.create_dir_with_mode("777", 0o777)), libc::EEXIST);
    assert_eq!(errno(pool.create_dir_with_mode("none/below", 0o777)), libc::ENOENT);
    pool.write("file", "").unwrap();
    assert_eq!(errno(pool.temporary_with_mode("file", 0o600)), libc::ENOTDIR);
}
