//! A pool that is opened read-only changes not by a byte, and says so as a file system does that
//! is mounted so.

use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

use crate::common::{PoolFile, errno};
use lode::{FileTimes, OpenOptions, PoolOptions, RenameMode};

#[test]
fn every_change_is_refused_and_nothing_changes() {
    let file = PoolFile::new(16);
    let pool = file.open();
    pool.create_dir_all("d/sub").unwrap();
    pool.write("f", "contents").unwrap();
    pool.symlink("f", "l").unwrap();
    pool.symlink("nowhere", "dangling").unwrap();
    drop(pool);
    let before = std::fs::read(&file.path).unwrap();
    let pool = PoolOptions::new().read_only(true).open(&file.path).unwrap();
    assert!(pool.is_read_only().unwrap());

    let open = |path, how: &mut OpenOptions| errno(pool.open_with(path, how));
    let write = || OpenOptions::new().write(true).clone();
    assert_eq!(open("f", &mut write()), libc::EROFS);
    assert_eq!(open("f", write().truncate(true)), libc::EROFS);
    assert_eq!(open("l", OpenOptions::new().append(true)), libc::EROFS);
    assert_eq!(open("new", write().create(true)), libc::EROFS);
    assert_eq!(open("dangling", write().create(true)), libc::EROFS);
    assert_eq!(open("new", write().create_new(true)), libc::EROFS);
    assert_eq!(open("f", write().create_new(true)), libc::EEXIST);
    assert_eq!(open("missing", &mut write()), libc::ENOENT);
    assert_eq!(open("d", &mut write()), libc::EISDIR);

    let refused = [
        pool.create_dir("new"),
        pool.write("f", "other"),
        pool.symlink("x", "new"),
        pool.hard_link("f", "new"),
        pool.mknod("new", libc::S_IFIFO | 0o600, 0),
        pool.remove_file("f"),
        pool.remove_dir("d/sub"),
        pool.remove_dir_all("d"),
        pool.rename("f", "g"),
        pool.rename_with("f", "l", RenameMode::Exchange),
        pool.set_permissions("f", Permissions::from_mode(0o600)),
        pool.chown("f", Some(1), None),
        pool.lchown("l", Some(1), None),
        pool.set_times("f", FileTimes::new().set_modified(std::time::UNIX_EPOCH)),
        pool.set_xattr("f", "user.a", b"x"),
        pool.copy("f", "new").map(drop),
        pool.temporary("d").map(drop),
        pool.create_dir_all("new/deep"),
    ];
    for (at, done) in refused.into_iter().enumerate() {
        assert_eq!(errno(done), libc::EROFS, "call {at}");
    }
    // What is there is there all the same, and what can't be can't.
    assert_eq!(errno(pool.create_dir("d")), libc::EEXIST);
    assert_eq!(errno(pool.symlink("x", "l")), libc::EEXIST);
    assert_eq!(errno(pool.hard_link("f", "l")), libc::EEXIST);
    assert_eq!(errno(pool.create_dir("missing/x")), libc::ENOENT);
    assert_eq!(errno(pool.create_dir("f/x")), libc::ENOTDIR);
    pool.create_dir_all("d/sub").unwrap();

    let mut text = String::new();
    pool.open_file("l").unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "contents");
    assert_eq!(pool.read_dir("/").unwrap().count(), 4);
    pool.sync().unwrap();
    pool.close().unwrap();
    assert!(std::fs::read(&file.path).unwrap() == before, "the pool has changed");
}
