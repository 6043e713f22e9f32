//! A pool that has its metadata twice loses nothing but contents of files to a scribble.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::server::Server;
use crate::common::{Scratch, lode, text};

static SCRIBBLE: [u8; 1 << 20] = [0xA5; 1 << 20];

fn names(dir: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<(String, u64)> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .collect();
    names.sort();
    names
}

#[test]
fn a_scribble_over_one_copy_of_metadata_loses_no_name_and_is_repaired() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.path("pool"), scratch.dir("mnt"));
    lode(&["mkfs", "--protect", "metadata", "--size", "16M", text(&pool)]).expect(0);
    let info = lode(&["info", "--json", text(&pool)]).expect(0).json();
    assert_eq!(info["pool"]["protection"], "metadata");
    assert!(info["pool"]["dead_zone"].as_u64().unwrap() >= 1 << 20);
    let server = Server::mount(&pool, &dir, &scratch.path("filling"));
    for number in 0..300 {
        fs::write(dir.join(format!("file {number}")), vec![1; number * 50]).unwrap();
    }
    let wanted = names(&dir);
    server.umount();
    lode(&["fsck", "-n", text(&pool)]).expect(0);
    // The first superblock and all there is in front of the copies; the copies.
    for at in [0, 2 << 20] {
        let spoiled = scratch.path("spoiled");
        fs::copy(&pool, &spoiled).unwrap();
        let file = OpenOptions::new().write(true).open(&spoiled).unwrap();
        file.write_all_at(&SCRIBBLE, at).unwrap();
        let found = lode(&["fsck", "-n", text(&spoiled)]).expect(4);
        // (Without its checkpoint, which may lie there, too, it is as after a crash: copies may differ then.)
        let told = ["the two copies of metadata differ (fsck -p", "checkpoint segment is damaged"];
        assert!(told.iter().any(|told| found.out.contains(told)), "{}", found.out);
        assert!(!found.out.contains("fsck -y"), "nothing is to be given up: {}", found.out);
        // Who mounts it at once sees all of it.
        let mounted = scratch.path("mounted");
        fs::copy(&spoiled, &mounted).unwrap();
        let server = Server::mount(&mounted, &dir, &scratch.path("log"));
        assert_eq!(names(&dir), wanted);
        server.umount();
        let repaired = lode(&["fsck", "-p", text(&spoiled), "--json"]).expect(1).json();
        assert_eq!(repaired["repaired"], true);
        assert_eq!(repaired["damage"].as_array().unwrap().len(), 0);
        lode(&["fsck", "-n", text(&spoiled)]).expect(0);
        // Now the other copies may go.
        file.write_all_at(&SCRIBBLE, at ^ (2 << 20)).unwrap();
        let server = Server::mount(&spoiled, &dir, &scratch.path("again"));
        assert_eq!(names(&dir), wanted);
        server.umount();
    }
}

#[test]
fn a_pool_too_small_for_two_copies_is_refused_with_what_it_needs() {
    let scratch = Scratch::new();
    let pool = scratch.path("pool");
    let refused = lode(&["mkfs", "--protect", "metadata", "--size", "2M", text(&pool)]).expect(2);
    assert!(refused.err.contains("needs at least 6291456 bytes"), "{}", refused.err);
    assert!(refused.err.contains("a smaller --dead-zone"), "{}", refused.err);
    lode(&["mkfs", "--protect", "metadata", "--size", "6M", text(&pool)]).expect(0);
    let small = scratch.path("small");
    let command = ["mkfs", "--protect", "metadata", "--dead-zone", "64K", "--size", "2M"];
    lode(&[&command[..], &[text(&small)]].concat()).expect(0);
    lode(&["mkfs", "--protect", "most", "--size", "16M", text(&pool)]).expect(2);
}

#[test]
fn what_would_silently_be_off_is_refused() {
    let scratch = Scratch::new();
    let pool = scratch.path("pool");
    for (level, option, value) in
        [("none", "--dead-zone", "2M"), ("none", "--strip", "512"), ("metadata", "--strip", "512")]
    {
        let made = ["mkfs", "--size", "16M", "--protect", level, option, value, text(&pool)];
        let refused = lode(&made).expect(2);
        assert!(refused.err.contains("means nothing at level"), "{}", refused.err);
        assert!(!pool.exists(), "{level} {option}");
    }
    let none = ["mkfs", "--size", "16M", "--protect", "metadata", "--dead-zone", "0", text(&pool)];
    assert!(lode(&none).expect(2).err.contains("1 is the least"));
    lode(&["mkfs", "--size", "16M", "--protect", "metadata", text(&pool)]).expect(0);
    lode(&["protect", text(&pool), "none", "--dead-zone", "1M"]).expect(2);
    // A dead zone that the pool does not have is not one that it has.
    lode(&["protect", text(&pool), "metadata", "--dead-zone", "64K"]).expect(0);
    let refused = lode(&["protect", text(&pool), "metadata", "--dead-zone", "4M"]).expect(2);
    assert!(refused.err.contains("has level metadata already"), "{}", refused.err);
}

#[test]
fn who_mounts_a_pool_hears_of_its_level() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "32M"), scratch.dir("mnt"));
    lode(&["protect", text(&pool), "full", "--dead-zone", "64K"]).expect(0);
    let said = lode(&["mount", text(&pool), text(&dir)]).expect(0).out;
    lode(&["umount", text(&dir)]).expect(0);
    assert!(said.contains("protection  full, dead zone "), "{said}");
    assert!(said.contains(" KiB, strips of 512 bytes\n"), "{said}");
}

#[test]
fn a_pool_gets_two_copies_of_its_metadata_later_and_can_lose_them() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "32M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("filling"));
    for number in 0..200 {
        fs::write(dir.join(format!("file {number}")), vec![1; number * 400]).unwrap();
    }
    let wanted = names(&dir);
    let busy = lode(&["protect", text(&pool), "metadata"]).expect(6);
    assert!(busy.err.contains("mounted at"), "{}", busy.err);
    server.umount();
    let said = lode(&["protect", text(&pool), "metadata", "--json"]).expect(0).json();
    assert_eq!((&said["changed"], &said["pool"]["protection"]), (&true.into(), &"metadata".into()));
    let again = lode(&["protect", text(&pool), "metadata"]).expect(0);
    assert!(again.out.contains("already at protection level metadata"), "{}", again.out);
    lode(&["fsck", "-n", text(&pool)]).expect(0);
    let file = OpenOptions::new().write(true).open(&pool).unwrap();
    file.write_all_at(&SCRIBBLE[..4096], 4096).unwrap();
    // What is lost in one copy is made good before there is only one.
    lode(&["protect", text(&pool), "none"]).expect(0);
    lode(&["fsck", "-n", text(&pool)]).expect(0);
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    assert_eq!(names(&dir), wanted);
    server.umount();
}

#[test]
fn a_level_that_a_pool_can_not_have_is_refused_and_nothing_changes() {
    let scratch = Scratch::new();
    let (small, full) = (scratch.pool("small", "2M"), scratch.pool("full", "16M"));
    let refused = lode(&["protect", text(&small), "metadata"]).expect(2);
    assert!(refused.err.contains("needs at least 6291456 bytes"), "{}", refused.err);
    assert!(refused.err.contains("a smaller --dead-zone"), "{}", refused.err);
    lode(&["protect", text(&small), "most"]).expect(2);
    lode(&["protect", text(&scratch.path("absent")), "none"]).expect(8);
    let file = OpenOptions::new().write(true).open(&full).unwrap();
    file.write_all_at(&SCRIBBLE[..8192], 4096).unwrap();
    let damaged = lode(&["protect", text(&full), "metadata"]).expect(4);
    assert!(damaged.err.contains("`lode scrub -n POOL` that of files, too; "), "{}", damaged.err);
    let info = lode(&["info", "--json", text(&small)]).expect(0).json();
    assert_eq!(info["pool"]["protection"], "none");
}

#[test]
fn who_gets_second_copies_but_no_checksums_hears_which_level_the_pool_has() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mount"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    fs::write(dir.join("large"), vec![1; 59 << 20]).unwrap();
    server.umount();
    let refused = lode(&["protect", text(&pool), "full"]).expect(7);
    let info = lode(&["info", "--json", text(&pool)]).expect(0).json();
    assert_eq!(info["pool"]["protection"], "metadata");
    assert!(refused.err.contains("the pool is at level metadata now"), "{}", refused.err);
}

#[test]
fn a_pool_with_checksums_of_file_data_says_so() {
    let scratch = Scratch::new();
    let pool = scratch.path("pool");
    let full = ["mkfs", "--protect", "full", "--size", "32M"];
    lode(&[&full[..], &[text(&pool)]].concat()).expect(0);
    let info = lode(&["info", "--json", text(&pool)]).expect(0).json();
    assert_eq!(info["pool"]["protection"], "full");
    assert_eq!(info["pool"]["strip_bytes"], 512);
    let shown = lode(&["info", text(&pool)]).expect(0);
    assert!(shown.out.contains("full, dead zone") && shown.out.contains("strips of 512 bytes"));
    lode(&["fsck", "-n", text(&pool)]).expect(0);
    lode(&[&full[..], &["-f", "--strip", "2K", text(&pool)]].concat()).expect(0);
    let info = lode(&["info", "--json", text(&pool)]).expect(0).json();
    assert_eq!(info["pool"]["strip_bytes"], 2048);
    // It can be lost, and be had later, from any level.
    for level in ["metadata", "full", "none", "full"] {
        lode(&["protect", text(&pool), level]).expect(0);
        lode(&["fsck", "-n", text(&pool)]).expect(0);
        let info = lode(&["info", "--json", text(&pool)]).expect(0).json();
        assert_eq!(info["pool"]["protection"], level);
    }
    lode(&[&full[..], &["-f", "--strip", "256", text(&pool)]].concat()).expect(2);
    lode(&["mkfs", "--protect", "full", "-f", "--size", "2M", text(&pool)]).expect(2);
}
