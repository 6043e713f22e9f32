//! Damage inside a pool: fsck that can't repair it writes nothing, and a mount tells of it
//! when it is met.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::server::Server;
use common::{Scratch, fsck, lode, text};

/// Fills a mounted pool with some files.
fn fill(dir: &Path) {
    for name in ["one", "two", "three"] {
        fs::write(dir.join(name), name.repeat(1000)).unwrap();
    }
}

/// The inode of the file at `path` in a pool, and where its first record lies.
fn first_record(pool: &Path, path: &str) -> (u64, u64) {
    let dumped = lode(&["dump", text(pool), path, "--json"]).expect(0).json();
    let inode = &dumped["inodes"][0];
    (inode["inode"].as_u64().unwrap(), inode["records"][0]["at"].as_u64().unwrap())
}

/// Spoils what lies at `at`.
fn damage(pool: &Path, at: u64) {
    let file = OpenOptions::new().write(true).open(pool).unwrap();
    file.write_all_at(b"damage", at + 20).unwrap();
}

#[test]
fn only_fsck_with_y_gives_up_what_can_not_be_read() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    fill(&dir);
    // One that was cleanly unmounted, and one that has to be recovered.
    let crashed = scratch.path("crashed");
    server.freeze();
    fs::copy(&pool, &crashed).unwrap();
    server.thaw();
    server.umount();
    let (inode, at) = first_record(&pool, "/two");
    for pool in [&pool, &crashed] {
        damage(pool, at);
        let before = fs::read(pool).unwrap();
        let found = fsck(pool).expect(4);
        assert!(found.out.contains("fsck -y"), "{}", found.out);
        let ran = lode(&["fsck", "-p", text(pool)]).expect(4);
        let places = |out: &str| out.lines().filter(|line| line.contains("at offset")).count();
        assert!(places(&ran.out) >= 1);
        assert_eq!(places(&ran.out), places(&found.out), "{}", ran.out);
        assert!(!ran.out.contains("was recovered"), "{}", ran.out);
        assert!(fs::read(pool).unwrap() == before, "fsck -p wrote");
        // Together with what it could repair, too.
        OpenOptions::new().write(true).open(pool).unwrap().write_all_at(b"damage", 60).unwrap();
        let repaired = lode(&["fsck", "-y", text(pool), "--json"]).expect(1).json();
        assert_eq!((&repaired["status"], &repaired["repaired"]), (&1.into(), &true.into()));
        let lost = &repaired["repairs"][0];
        assert_eq!((&lost["done"], &lost["inode"]), (&"lost".into(), &inode.into()));
        assert_eq!(lost["path"], "/two");
        fsck(pool).expect(0);
        let server = Server::mount(pool, &dir, &scratch.path("log"));
        assert_eq!(fs::read(dir.join("one")).unwrap().len(), 3000);
        assert!(!dir.join("two").exists() && !dir.join("lost+found").exists());
        server.umount();
    }
}

#[test]
fn a_damaged_checkpoint_is_told_and_made_anew() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    Server::mount(&pool, &dir, &scratch.path("filling")).run_with(|| fill(&dir));
    let dumped = lode(&["dump", text(&pool), "/two", "--json"]).expect(0).json();
    let last = dumped["inodes"][0]["records"].as_array().unwrap().last().unwrap()["at"].clone();
    let page = dumped["superblocks"][0]["checkpoint_page"].as_u64().unwrap();
    // What it says, and its header.
    for at in [page * 4096 + 64, page * 4096] {
        let spoiled = scratch.path("spoiled");
        fs::copy(&pool, &spoiled).unwrap();
        damage(&spoiled, at);
        let before = fs::read(&spoiled).unwrap();
        let found = fsck(&spoiled).expect(4);
        assert!(found.out.contains("its checkpoint is damaged, would be recovered"), "{found:?}");
        assert!(!found.out.contains("fsck -y"), "nothing is to be given up: {}", found.out);
        let info = lode(&["info", text(&spoiled), "--json"]).expect(0).json();
        assert_eq!(info["opening"]["checkpoint_damaged"], true);
        lode(&["resize", text(&spoiled), "--size", "32M"]).expect(4);
        assert!(fs::read(&spoiled).unwrap() == before, "who only looks wrote");
        // With it, the last line of a log: nobody can tell that it was there.
        damage(&spoiled, last.as_u64().unwrap());
        fsck(&spoiled).expect(4);
        let repaired = lode(&["fsck", "-p", text(&spoiled), "--json"]).expect(1).json();
        assert_eq!(repaired["repaired"], true);
        assert_eq!(repaired["damage"].as_array().unwrap().len(), 0);
        fsck(&spoiled).expect(0);
    }
    damage(&pool, page * 4096);
    let log = scratch.path("log");
    let server = Server::mount(&pool, &dir, &log);
    for name in ["one", "two", "three"] {
        assert_eq!(fs::read(dir.join(name)).unwrap(), name.repeat(1000).as_bytes());
    }
    server.umount();
    let told = fs::read_to_string(&log).unwrap();
    assert!(told.contains("checkpoint"), "{told}");
    fsck(&pool).expect(0);
}

/// Opening by the checkpoint does not need it; the next recovery would find nothing.
#[test]
fn a_damaged_link_to_inode_tables_is_made_anew_while_the_checkpoint_knows_it() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    Server::mount(&pool, &dir, &scratch.path("filling")).run_with(|| fill(&dir));
    let dumped = lode(&["dump", text(&pool), "--json"]).expect(0).json();
    let lanes = dumped["superblocks"][0]["lane_table_page"].as_u64().unwrap() * 4096;
    let file = OpenOptions::new().write(true).open(&pool).unwrap();
    let spoil = |lane: u64| file.write_all_at(&[0; 64], lanes + lane * 256 + 128).unwrap();
    spoil(0);
    let before = fs::read(&pool).unwrap();
    let found = fsck(&pool).expect(4);
    assert!(found.out.contains("fsck -p repairs it by the checkpoint"), "{}", found.out);
    assert!(!found.out.contains("fsck -y"), "nothing is to be given up: {}", found.out);
    let info = lode(&["info", text(&pool), "--json"]).expect(0).json();
    assert_eq!(info["opening"]["tables_repaired"], true);
    assert!(fs::read(&pool).unwrap() == before, "who only looks wrote");
    let repaired = lode(&["fsck", "-p", text(&pool), "--json"]).expect(1).json();
    assert_eq!(repaired["repaired"], true);
    fsck(&pool).expect(0);
    // A mount repairs it, too, and a crash right after is none the worse for it.
    spoil(0);
    let log = scratch.path("log");
    let server = Server::mount(&pool, &dir, &log);
    fs::write(dir.join("new"), "new").unwrap();
    server.kill();
    assert!(fs::read_to_string(&log).unwrap().contains("link to an inode table"));
    let server = Server::mount(&pool, &dir, &scratch.path("again"));
    for name in ["one", "two", "three"] {
        assert_eq!(fs::read(dir.join(name)).unwrap(), name.repeat(1000).as_bytes());
    }
    assert_eq!(fs::read(dir.join("new")).unwrap(), b"new");
    server.umount();
    // Together with what must be given up.
    spoil(0);
    damage(&pool, first_record(&pool, "/two").1);
    let repaired = lode(&["fsck", "-y", text(&pool), "--json"]).expect(1).json();
    assert_eq!(repaired["repairs"][0]["done"], "chain_mended");
    fsck(&pool).expect(0);
}

#[test]
fn what_a_lost_directory_had_is_found_again() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    Server::mount(&pool, &dir, &scratch.path("filling")).run_with(|| {
        fs::create_dir(dir.join("sub")).unwrap();
        fill(&dir.join("sub"));
    });
    let dumped = lode(&["dump", text(&pool), "/sub", "--json"]).expect(0).json();
    // The entry of `two`: behind the directory's own record and the entry of `one`.
    let at = dumped["inodes"][0]["records"][2]["at"].as_u64().unwrap();
    damage(&pool, at);
    fs::copy(&pool, scratch.path("copy")).unwrap();
    let said = lode(&["fsck", "-y", text(&scratch.path("copy"))]).expect(1).out;
    for words in
        ["directory made again /sub", "found again /sub/one", "put into lost+found /lost+found/#"]
    {
        assert!(said.contains(words), "{words} in:\n{said}");
    }
    let repairs = lode(&["fsck", "-y", text(&pool), "--json"]).expect(1).json()["repairs"].clone();
    let paths = repairs.as_array().unwrap().iter().map(|done| done["path"].as_str().unwrap());
    let paths: Vec<PathBuf> = paths.map(|path| dir.join(&path[1..])).collect();
    Server::mount(&pool, &dir, &scratch.path("log")).run_with(|| {
        for name in ["one", "three"] {
            assert_eq!(fs::read(dir.join("sub").join(name)).unwrap(), name.repeat(1000).as_bytes());
        }
        let found: Vec<_> = fs::read_dir(dir.join("lost+found")).unwrap().flatten().collect();
        assert_eq!(found.len(), 1);
        assert!(paths.len() == 4 && paths.iter().all(|path| path.exists()), "{paths:?}");
        assert_eq!(fs::read(found[0].path()).unwrap(), "two".repeat(1000).as_bytes());
    });
}

#[test]
fn fsck_recovers_what_a_crash_left_and_leaves_a_clean_pool_alone() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    fill(&dir);
    server.kill();
    lode(&["umount", text(&dir)]).expect(0);
    let info = lode(&["info", text(&pool), "--json"]).expect(0).json();
    assert_eq!(info["opening"]["clean"], false);
    lode(&["fsck", "-p", text(&pool)]).expect(0);
    let info = lode(&["info", text(&pool), "--json"]).expect(0).json();
    assert_eq!(info["opening"]["clean"], true, "fsck -p closes the pool cleanly");
    let before = fs::read(&pool).unwrap();
    lode(&["fsck", "-y", text(&pool)]).expect(0);
    assert!(fs::read(&pool).unwrap() == before, "fsck -y wrote to a clean pool");
}

#[test]
fn damage_that_a_mount_meets_is_logged_once() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    Server::mount(&pool, &dir, &scratch.path("filling")).run_with(|| fill(&dir));
    let (inode, at) = first_record(&pool, "/two");
    damage(&pool, at);
    let log = scratch.path("log");
    let server = Server::mount(&pool, &dir, &log);
    for _ in 0..3 {
        let error = fs::read(dir.join("two")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5), "{error}");
    }
    assert_eq!(fs::read(dir.join("one")).unwrap().len(), 3000);
    server.umount();
    let said = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("damaged")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains(&format!("inode={inode}")), "{said}");
    assert!(lines[0].contains("offset="), "{said}");
}

#[test]
fn an_inode_that_is_not_there_is_not_found() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    for number in ["999999999", "300", "18446744073709551615"] {
        let ran = lode(&["dump", text(&pool), number]).expect(8);
        assert!(ran.err.contains(number) && ran.err.contains("what to do: "), "{}", ran.err);
    }
}
