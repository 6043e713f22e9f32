//! What the kernel keeps is never stale.

use std::fs::{self, File, Metadata, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::support::{Mount, errno};

fn stat(path: impl AsRef<Path>) -> Metadata {
    fs::symlink_metadata(path).unwrap()
}

fn changed(metadata: &Metadata) -> (i64, i64) {
    (metadata.ctime(), metadata.ctime_nsec())
}

fn modified(metadata: &Metadata) -> (i64, i64) {
    (metadata.mtime(), metadata.mtime_nsec())
}

fn tick() {
    sleep(Duration::from_millis(5));
}

#[test]
fn link_counts_and_change_times_follow_links() {
    let Some(mount) = Mount::new() else { return };
    let (one, two) = (mount.path("one"), mount.path("two"));
    fs::write(&one, "x").unwrap();
    let first = stat(&one);
    tick();
    fs::hard_link(&one, &two).unwrap();
    let linked = stat(&one);
    assert_eq!((linked.nlink(), stat(&two).nlink()), (2, 2));
    assert!(changed(&linked) > changed(&first));
    tick();
    fs::remove_file(&two).unwrap();
    let unlinked = stat(&one);
    assert_eq!(unlinked.nlink(), 1);
    assert!(changed(&unlinked) > changed(&linked));
}

#[test]
fn a_replaced_file_with_other_links_is_not_stale() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("target"), "t").unwrap();
    fs::hard_link(mount.path("target"), mount.path("other")).unwrap();
    fs::write(mount.path("new"), "n").unwrap();
    let (other, new) = (stat(mount.path("other")), stat(mount.path("new")));
    assert_eq!(other.nlink(), 2);
    tick();
    fs::rename(mount.path("new"), mount.path("target")).unwrap();
    let after = stat(mount.path("other"));
    assert_eq!(after.nlink(), 1);
    assert!(changed(&after) > changed(&other), "the replaced file's change time");
    let moved = stat(mount.path("target"));
    assert_eq!(moved.ino(), new.ino());
    assert!(changed(&moved) > changed(&new), "the moved file's change time");
    assert_eq!(errno(fs::metadata(mount.path("new"))), libc::ENOENT);
}

#[test]
fn exchanged_files_have_new_change_times() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("a"), "a").unwrap();
    fs::write(mount.path("b"), "bb").unwrap();
    let (a, b) = (stat(mount.path("a")), stat(mount.path("b")));
    tick();
    let flags = RenameFlags::EXCHANGE;
    renameat_with(CWD, mount.path("a"), CWD, mount.path("b"), flags).unwrap();
    let (new_a, new_b) = (stat(mount.path("a")), stat(mount.path("b")));
    assert_eq!((new_a.ino(), new_b.ino()), (b.ino(), a.ino()));
    assert_eq!((new_a.len(), new_b.len()), (2, 1));
    assert!(changed(&new_a) > changed(&b) && changed(&new_b) > changed(&a));
}

#[test]
fn directories_show_every_change_of_their_names() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("d")).unwrap();
    fs::create_dir(mount.path("e")).unwrap();
    let d = mount.path("d");
    let mut last = stat(&d);
    let mut moved = |what: &str, links: u64| {
        let now = stat(&d);
        assert!(modified(&now) > modified(&last), "{what}: modification time");
        assert!(changed(&now) > changed(&last), "{what}: change time");
        assert_eq!(now.nlink(), links, "{what}: links");
        last = now;
        tick();
    };
    tick();
    fs::write(d.join("file"), "").unwrap();
    moved("create", 2);
    fs::create_dir(d.join("sub")).unwrap();
    moved("mkdir", 3);
    std::os::unix::fs::symlink("x", d.join("symlink")).unwrap();
    moved("symlink", 3);
    fs::hard_link(d.join("file"), d.join("link")).unwrap();
    moved("link", 3);
    fs::remove_file(d.join("link")).unwrap();
    moved("unlink", 3);
    fs::rename(d.join("file"), d.join("renamed")).unwrap();
    moved("rename inside", 3);
    fs::rename(d.join("sub"), mount.path("e/sub")).unwrap();
    moved("a directory moved out", 2);
    fs::rename(mount.path("e/sub"), d.join("sub")).unwrap();
    moved("a directory moved in", 3);
    fs::remove_dir(d.join("sub")).unwrap();
    moved("rmdir", 2);
}

#[test]
fn sizes_times_and_blocks_follow_writes() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let mut last = stat(&path);
    let mut check = |what: &str, size: u64, blocks: u64| {
        let now = stat(&path);
        assert_eq!((now.len(), now.blocks()), (size, blocks), "{what}");
        assert!(modified(&now) > modified(&last) && changed(&now) > changed(&last), "{what}");
        last = now;
        tick();
    };
    tick();
    file.write_all_at(b"x", 9999).unwrap();
    check("write", 10_000, 8);
    file.write_all_at(&[1; 10_000], 0).unwrap();
    check("overwrite", 10_000, 24);
    file.set_len(100).unwrap();
    check("ftruncate", 100, 8);
    file.set_len(100).unwrap();
    check("ftruncate to the same size", 100, 8);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 20_000).unwrap();
    check("fallocate", 20_000, 40);
    File::create(&path).unwrap();
    check("open with O_TRUNC", 0, 0);
}

#[test]
fn modes_and_owners_follow_their_changes() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    fs::write(&path, "x").unwrap();
    let first = stat(&path);
    tick();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let second = stat(&path);
    assert!(changed(&second) > changed(&first));
    assert_eq!(modified(&second), modified(&first));
    assert_eq!(second.mode() & 0o7777, 0o600);
}

#[test]
fn absent_names_appear_when_they_are_made() {
    let Some(mount) = Mount::new() else { return };
    for round in 0..3 {
        for name in ["a", "b", "c", "d"] {
            assert_eq!(errno(fs::metadata(mount.path(name))), libc::ENOENT, "round {round}");
        }
        fs::write(mount.path("a"), "").unwrap();
        fs::hard_link(mount.path("a"), mount.path("b")).unwrap();
        fs::rename(mount.path("a"), mount.path("c")).unwrap();
        fs::create_dir(mount.path("d")).unwrap();
        assert_eq!(errno(fs::metadata(mount.path("a"))), libc::ENOENT);
        stat(mount.path("b"));
        stat(mount.path("c"));
        assert!(stat(mount.path("d")).is_dir());
        fs::remove_file(mount.path("b")).unwrap();
        fs::remove_file(mount.path("c")).unwrap();
        fs::remove_dir(mount.path("d")).unwrap();
    }
}

#[test]
fn a_read_of_the_pool_moves_the_access_time_once() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "text").unwrap();
    // Afterwards nothing of the file is in the kernel's cache.
    let mount = mount.unmount().mount();
    tick();
    let path = mount.path("file");
    let before = stat(&path);
    tick();
    let mut text = String::new();
    File::open(&path).unwrap().read_to_string(&mut text).unwrap();
    let read = stat(&path);
    let time = |of: &Metadata| (of.atime(), of.atime_nsec());
    assert!(time(&read) > time(&before), "read for the first time since it was modified");
    assert_eq!(changed(&read), changed(&before));
    tick();
    assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    assert_eq!(time(&stat(&path)), time(&read), "later than the modification already");
}

#[test]
fn cached_reads_ask_the_server_nothing() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    fs::write(&path, vec![7; 100_000]).unwrap();
    fs::create_dir(mount.path("dir")).unwrap();
    fs::read_dir(mount.path("dir")).unwrap().for_each(drop);
    assert_eq!(fs::read(&path).unwrap().len(), 100_000);
    let count =
        |mount: &Mount, op: &str| mount.client().ask("stats").unwrap()["ops"][op].as_u64().unwrap();
    let before = ["lookup", "read", "readdir", "fsync"].map(|op| count(&mount, op));
    for _ in 0..100 {
        assert_eq!(fs::read(&path).unwrap().len(), 100_000);
        assert_eq!(fs::read_dir(mount.path("dir")).unwrap().count(), 0);
        assert_eq!(errno(fs::metadata(mount.path("absent"))), libc::ENOENT);
    }
    let after = ["lookup", "read", "readdir", "fsync"].map(|op| count(&mount, op));
    assert_eq!(after[1..], before[1..]);
    assert!(after[0] <= before[0] + 1, "an absent name is asked for once");
}

/// The kernel takes a request that nobody knows for done, and asks no more: only the server's counts
/// tell whether it was asked.
#[test]
fn a_first_sync_of_a_file_and_of_a_directory_reaches_the_pool() {
    let Some(mount) = Mount::new() else { return };
    let file = fs::File::create(mount.path("file")).unwrap();
    let dir = fs::File::open(&mount.root).unwrap();
    let count = || mount.client().ask("stats").unwrap()["ops"]["fsync"].as_u64().unwrap();
    let before = count();
    for (number, synced) in [&file, &dir].into_iter().enumerate() {
        synced.sync_all().unwrap();
        assert_eq!(count(), before + 1 + number as u64);
    }
    // What was answered is durable: later ones have nothing to ask.
    for synced in [&file, &dir] {
        synced.sync_all().unwrap();
    }
    assert_eq!(count(), before + 2);
}
