//! `lode label` and `lode resize`: what they change, what they refuse, that the files stay, and that a
//! pool with damage is not made worse.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::{Scratch, fsck, lode, text};

#[test]
fn a_label_is_shown_changed_and_removed() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    let uuid = lode(&["info", text(&pool), "--json"]).expect(0).json()["pool"]["uuid"].clone();
    for label in ["home", "ein längerer Name, mit Leerzeichen", &"x".repeat(64), ""] {
        let said = lode(&["label", text(&pool), label, "--json"]).expect(0).json();
        assert_eq!((&said["changed"], &said["pool"]["label"]), (&true.into(), &label.into()));
        let shown = lode(&["label", text(&pool), "--json"]).expect(0).json();
        assert_eq!((&shown["changed"], &shown["pool"]["label"]), (&false.into(), &label.into()));
        assert_eq!((&shown["pool"]["uuid"], &shown["pool"]["clean"]), (&uuid, &true.into()));
    }
    let long = lode(&["label", text(&pool), &"x".repeat(65)]).expect(2);
    assert!(long.err.contains("65 bytes"), "{}", long.err);
    lode(&["label", text(&scratch.path("absent"))]).expect(8);
    fsck(&pool).expect(0);
}

#[test]
fn a_pool_grows_with_its_file_and_keeps_what_is_in_it() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let mount = || lode(&["mount", text(&pool), text(&dir)]).expect(0);
    let umount = || lode(&["umount", text(&dir)]).expect(0);
    mount();
    let content = vec![7; 10 << 20];
    fs::write(dir.join("file"), &content).unwrap();
    let busy = lode(&["resize", text(&pool), "--size", "64M"]).expect(6);
    assert!(busy.err.contains("mounted at"), "{}", busy.err);
    assert!(fs::write(dir.join("other"), &content).is_err(), "the pool is full");
    fs::remove_file(dir.join("other")).unwrap();
    umount();
    let said = lode(&["resize", text(&pool), "--size", "64M", "--json"]).expect(0).json();
    assert_eq!(
        (&said["bytes_before"], &said["pool"]["bytes"]),
        (&(16 << 20).into(), &(64 << 20).into())
    );
    assert_eq!(fs::metadata(&pool).unwrap().len(), 64 << 20);
    fsck(&pool).expect(0);
    mount();
    fs::write(dir.join("other"), &content).unwrap();
    assert!(fs::read(dir.join("file")).unwrap() == content);
    umount();
    // A file that somebody made longer: the pool gets it all.
    fs::File::options().write(true).open(&pool).unwrap().set_len((80 << 20) + 5).unwrap();
    lode(&["resize", text(&pool)]).expect(0);
    let bytes = lode(&["info", text(&pool), "--json"]).expect(0).json()["pool"]["bytes"].clone();
    assert_eq!(bytes, 80 << 20);
    fsck(&pool).expect(0);
}

#[test]
fn a_pool_only_grows() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    for (size, words) in [("8M", "only grow"), ("16M", "already")] {
        let refused = lode(&["resize", text(&pool), "--size", size]).expect(2);
        assert!(refused.err.contains(words), "{}", refused.err);
    }
    assert!(lode(&["resize", text(&pool)]).expect(2).err.contains("--size"));
    let refused = lode(&["resize", text(&pool), "--size", "9000000T"]);
    assert_ne!(refused.code, 0);
    assert_eq!(fs::metadata(&pool).unwrap().len(), 16 << 20, "what failed left nothing");
    fsck(&pool).expect(0);
}

/// The first superblock is written at each mount: with it lost, the second is found although the
/// file goes on behind the pool.
#[test]
fn a_pool_in_a_longer_file_survives_the_loss_of_its_first_superblock() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    let file = fs::File::options().write(true).open(&pool).unwrap();
    file.set_len(40 << 20).unwrap();
    file.write_all_at(&[0xA5; 512], 0).unwrap();
    lode(&["info", text(&pool)]).expect(0);
    lode(&["fsck", "-p", text(&pool)]);
    fsck(&pool).expect(0);
}

/// A closed pool of 16 MiB with the files `a` and `b`.
fn pool_with_files(scratch: &Scratch) -> PathBuf {
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    lode(&["mount", text(&pool), text(&dir)]).expect(0);
    for name in ["a", "b"] {
        fs::write(dir.join(name), name.repeat(9000)).unwrap();
    }
    lode(&["umount", text(&dir)]).expect(0);
    pool
}

/// Mounts the pool and reads `names`.
fn read_back(scratch: &Scratch, pool: &Path, names: &[&str]) {
    let dir = scratch.dir("mnt");
    lode(&["mount", text(pool), text(&dir)]).expect(0);
    for name in names {
        assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), name.repeat(9000));
    }
    lode(&["umount", text(&dir)]).expect(0);
}

fn spoil(pool: &Path, at: u64, bytes: usize) {
    let file = fs::File::options().write(true).open(pool).unwrap();
    file.write_all_at(&vec![0xA5; bytes], at).unwrap();
}

/// With its first page a pool lost the first superblock, and what says where the second is: that is
/// the file's end, as long as the file is not longer.
#[test]
fn a_pool_that_lost_its_first_page_is_repaired_before_its_file_grows() {
    let scratch = Scratch::new();
    let pool = pool_with_files(&scratch);
    spoil(&pool, 0, 4096);
    lode(&["resize", text(&pool), "--size", "32T"]).expect(7);
    assert_eq!(fs::metadata(&pool).unwrap().len(), 16 << 20);
    fsck(&pool).expect(0);
    spoil(&pool, 0, 4096);
    lode(&["resize", text(&pool), "--size", "24M"]).expect(0);
    fsck(&pool).expect(0);
    read_back(&scratch, &pool, &["a", "b"]);
}

/// A larger pool can be opened by its logs only: damage there would keep all of it from being mounted,
/// where before it kept one file from being read.
#[test]
fn a_damaged_pool_does_not_grow_and_stays_as_it_was() {
    let scratch = Scratch::new();
    let pool = pool_with_files(&scratch);
    let sound = fs::read(&pool).unwrap();
    let dumped = lode(&["dump", text(&pool), "/a", "--json"]).expect(0).json();
    let inode = &dumped["inodes"][0];
    let records = inode["records"].as_array().unwrap();
    let at = |record: &serde_json::Value| record["at"].as_u64().unwrap() + 20;
    let identity = inode["inode"].as_u64().unwrap() * 512;
    let places = [
        ("its first record", at(&records[0])),
        ("its last record", at(records.last().unwrap())),
        ("its identity", identity + 20),
        ("the piece of its inode table", identity / 4096 * 4096 + 20),
    ];
    for (what, at) in places {
        for (first_page, longer) in [(true, false), (false, false), (true, true)] {
            fs::write(&pool, &sound).unwrap();
            spoil(&pool, at, 6);
            if !first_page {
                spoil(&pool, 0, 4096);
            }
            let mut args = vec!["resize", text(&pool)];
            if longer {
                fs::File::options().write(true).open(&pool).unwrap().set_len(24 << 20).unwrap();
            } else {
                args.extend(["--size", "24M"]);
            }
            let before = fs::read(&pool).unwrap();
            let refused = lode(&args).expect(4);
            assert!(fs::read(&pool).unwrap() == before, "{what} damaged: resize wrote");
            assert!(refused.err.contains("fsck -y"), "{what}: {}", refused.err);
        }
    }
    fs::write(&pool, &sound).unwrap();
    spoil(&pool, at(&records[0]), 6);
    lode(&["resize", text(&pool), "--size", "24M"]).expect(4);
    read_back(&scratch, &pool, &["b"]);
    lode(&["fsck", "-y", text(&pool)]).expect(1);
    lode(&["resize", text(&pool), "--size", "24M"]).expect(0);
    fsck(&pool).expect(0);
    read_back(&scratch, &pool, &["b"]);
}
