//! Damage inside a pool: fsck that can't repair it writes nothing, and a mount tells of it
//! when it is met.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::common::server::Server;
use crate::common::{Scratch, fsck, lode, text};
use rustix::fs::XattrFlags;
use serde_json::Value;

/// Fills a mounted pool with some files.
fn fill(dir: &Path) {
    for name in ["one", "two", "three"] {
        fs::write(dir.join(name), name.repeat(1000)).unwrap();
    }
}

/// What the pool has of the file at `path`.
fn dumped(pool: &Path, path: &str) -> Value {
    lode(&["dump", text(pool), path, "--json"]).expect(0).json()["inodes"][0].take()
}

/// The inode of the file at `path` in a pool, and where its first record lies.
fn first_record(pool: &Path, path: &str) -> (u64, u64) {
    let inode = dumped(pool, path);
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

/// No checkpoint knows what the link was, so that all pages are searched.
#[test]
fn inode_tables_that_a_crash_and_damage_cut_off_are_found_again() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("filling"));
    fill(&dir);
    server.kill();
    let dumped = lode(&["dump", text(&pool), "--json"]).expect(0).json();
    let lanes = dumped["superblocks"][0]["lane_table_page"].as_u64().unwrap() * 4096;
    let file = OpenOptions::new().write(true).open(&pool).unwrap();
    file.write_all_at(&[0; 64], lanes + 128).unwrap();
    let found = fsck(&pool).expect(4);
    assert!(found.out.contains("`lode fsck -y` gives up"), "{}", found.out);
    lode(&["fsck", "-p", text(&pool)]).expect(4);
    fs::copy(&pool, scratch.path("copy")).unwrap();
    let said = lode(&["fsck", "-y", text(&scratch.path("copy"))]).expect(1).out;
    assert!(said.contains("inode tables searched for: link word"), "{said}");
    let repaired = lode(&["fsck", "-y", text(&pool), "--json"]).expect(1).json();
    let repairs = repaired["repairs"].as_array().unwrap();
    assert_eq!(repairs.len(), 1, "nothing is lost: {repaired:#}");
    assert_eq!(repairs[0]["done"], "tables_found");
    fsck(&pool).expect(0);
    Server::mount(&pool, &dir, &scratch.path("log")).run_with(|| {
        for name in ["one", "two", "three"] {
            assert_eq!(fs::read(dir.join(name)).unwrap(), name.repeat(1000).as_bytes());
        }
    });
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

/// Gives up what is damaged; what was done of each inode, and its path.
fn repaired(pool: &Path) -> Vec<(String, u64, String)> {
    let repairs = lode(&["fsck", "-y", text(pool), "--json"]).expect(1).json()["repairs"].take();
    println!("{repairs:#}");
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let repairs = repairs.as_array().unwrap().iter();
    repairs
        .map(|fact| (word(&fact["done"]), fact["inode"].as_u64().unwrap_or(0), word(&fact["path"])))
        .collect()
}

/// Whatever is lost with the directories above it.
#[test]
fn what_is_lost_in_lost_directories_is_told_by_its_whole_path() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    Server::mount(&pool, &dir, &scratch.path("filling")).run_with(|| {
        fs::create_dir_all(dir.join("top/below/deep")).unwrap();
        fill(&dir.join("top"));
        fill(&dir.join("top/below"));
        fill(&dir.join("top/below/deep"));
        fs::hard_link(dir.join("top/below/one"), dir.join("top/below/other")).unwrap();
    });
    let lost = ["/top", "/top/two", "/top/below/one", "/top/below/deep", "/top/below/deep/three"];
    let found = lost.map(|path| first_record(&pool, path));
    let identity = dumped(&pool, lost[3])["at"].as_u64().unwrap();
    for (index, (_, record)) in found.into_iter().enumerate() {
        damage(&pool, if index == 3 { identity } else { record });
    }
    let repairs = repaired(&pool);
    for (path, (inode, _)) in lost.into_iter().zip(found) {
        let told: Vec<_> = repairs.iter().filter(|(_, of, _)| *of == inode).collect();
        let (done, wanted): (_, &[&str]) = match path {
            "/top" => ("made_again", &[path]),
            // It has two names.
            "/top/below/one" => ("lost", &[path, "/top/below/other"]),
            // The directory of that name can't be read at all.
            "/top/below/deep/three" => ("lost", &[""]),
            _ => ("lost", &[path]),
        };
        assert_eq!(told[0].0, done, "{path}: {repairs:?}");
        let mut paths: Vec<&str> = told.iter().map(|(.., path)| path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, wanted, "{path}: {repairs:?}");
    }
}

#[test]
fn what_is_set_right_is_told_by_its_path() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    Server::mount(&pool, &dir, &scratch.path("filling")).run_with(|| {
        fs::create_dir_all(dir.join("top/below")).unwrap();
        fs::create_dir(dir.join("lost")).unwrap();
        fs::write(dir.join("top/below/linked"), "linked").unwrap();
        fs::hard_link(dir.join("top/below/linked"), dir.join("lost/linked")).unwrap();
        fs::write(dir.join("lost/more"), "more").unwrap();
        let colours = dir.join("top/colours");
        fs::write(&colours, "").unwrap();
        fs::set_permissions(&colours, Permissions::from_mode(0o674)).unwrap();
        let set = |name, value: &[u8]| {
            rustix::fs::setxattr(&colours, name, value, XattrFlags::CREATE).unwrap();
        };
        set("user.colours", &[0xC3; 4096]);
        set("system.posix_acl_access", &access_list());
    });
    let linked = first_record(&pool, "/top/below/linked").0;
    // The second name of it: behind the directory's own record.
    let entry = dumped(&pool, "/lost")["records"][1]["at"].as_u64().unwrap();
    damage(&pool, entry);
    let colours = first_record(&pool, "/top/colours").0;
    // The values have pages of their own.
    let image = fs::read(&pool).unwrap();
    for value in [&[0xC3; 2000][..], &access_list()] {
        let page = image.chunks(4096).position(|page| page.starts_with(value)).unwrap();
        damage(&pool, page as u64 * 4096);
    }
    let repairs = repaired(&pool);
    let removed = || ("attribute_removed".to_owned(), colours, "/top/colours".to_owned());
    let linked = ("links_set".to_owned(), linked, "/top/below/linked".to_owned());
    for wanted in [linked, removed(), removed()] {
        assert!(repairs.contains(&wanted), "{repairs:?}");
    }
    assert_eq!(repairs.iter().filter(|told| **told == removed()).count(), 2);
    let after = dumped(&pool, "/top/colours");
    // As the list's mask they were the group's upper bound alone.
    assert_eq!(after["mode"], "0604");
    // In one transaction: the rights went with the list.
    let of = |record: &Value| ["session", "lane", "sequence"].map(|key| record[key].clone());
    let all = after["records"].as_array().unwrap();
    let mode = all.iter().rfind(|record| record["kind"] == "ATTR").unwrap();
    let is_end = |record: &&Value| record["kind"] == "XDEL" && of(record) == of(mode);
    assert_eq!(all.iter().filter(is_end).count(), 1, "{all:#?}");
}

/// An access list of so many users that it has pages of its own: the group has nothing in it.
fn access_list() -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let users = (0..300).map(|user| (2, 4, 1000 + user));
    let entries = [(1, 6, NOBODY)].into_iter().chain(users);
    let entries = entries.chain([(4, 0, NOBODY), (16, 7, NOBODY), (32, 4, NOBODY)]);
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend([tag, 0, rights, 0]);
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn what_fsck_takes_away_with_a_lost_directory_is_said() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let server = Server::mount(&pool, &dir, &scratch.path("filling"));
    let private = dir.join("private");
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, Permissions::from_mode(0o755)).unwrap();
    fs::write(private.join("secret"), "secret").unwrap();
    let value = XattrFlags::CREATE;
    rustix::fs::setxattr(&private, "user.colour", b"red", value).unwrap();
    fs::set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
    server.umount();
    // The last change of its mode.
    let records = dumped(&pool, "/private")["records"].take();
    let change = records.as_array().unwrap().iter().rfind(|record| record["kind"] == "ATTR");
    damage(&pool, change.unwrap()["at"].as_u64().unwrap());
    let said = lode(&["fsck", "-y", text(&pool)]).expect(1).out;
    let line = said.lines().find(|line| line.contains("directory made again /private")).unwrap();
    assert!(line.contains("user.colour"), "{said}");
    assert!(line.ends_with("its rights are its owner's alone now"), "{said}");
    Server::mount(&pool, &dir, &scratch.path("log")).run_with(|| {
        assert_eq!(mode(&private), 0o700);
        assert_eq!(fs::read(private.join("secret")).unwrap(), b"secret");
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
    assert!(lines[0].contains("path=\"/two\"") && lines[0].contains(" offset="), "{said}");
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
