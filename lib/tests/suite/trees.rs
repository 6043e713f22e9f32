//! Whole trees: made with what is above them, removed with what is below, copied, listed.

use std::collections::BTreeSet;

use crate::common::script::Twin;
use crate::common::{errno, pool};

#[test]
fn directories_are_made_with_those_above_them() {
    let twin = Twin::new();
    twin.run(
        "mkdir_all w/a/b/c
        mkdir_all w/a/b/c
        mkdir_all w/a/./x/../y/z/
        mkdir_all \"\"
        write w/f x
        mkdir_all w/f
        mkdir_all w/f/below
        symlink a w/to_a
        mkdir_all w/to_a/new/deep
        mkdir_all w/to_a
        symlink nowhere w/dangling
        mkdir_all w/dangling
        mkdir_all w/dangling/below",
    );
    twin.compare("making");
}

#[test]
fn trees_are_removed_and_links_in_them_are_not_followed() {
    let twin = Twin::new();
    twin.run(
        "mkdir_all w/tree/a/b
        mkdir_all w/tree/c
        mkdir w/keep
        write w/keep/f x
        write w/tree/f x
        write w/tree/a/b/f x
        symlink ../keep w/tree/link
        symlink ../../keep/f w/tree/a/link
        symlink nowhere w/tree/a/dangling
        symlink tree w/to_tree
        rm_all w/to_tree",
    );
    twin.compare("removing a link");
    twin.run(
        "rm_all w/keep/f
        rm_all w/missing
        rm_all w/tree
        rm_all w/tree",
    );
    twin.compare("removing the tree");
    assert_eq!(twin.pool.read_to_string("w/keep/f").unwrap(), "x");
}

#[test]
fn large_trees_are_removed() {
    let pool = pool(64);
    for dir in 0..70 {
        pool.create_dir_all(format!("t/{dir}/x")).unwrap();
        for file in 0..70 {
            pool.write(format!("t/{dir}/{file}"), "x").unwrap();
        }
    }
    let deep = "d/".repeat(1000);
    pool.create_dir_all(format!("t/{deep}")).unwrap();
    let inodes = pool.statfs().unwrap().inodes;
    assert!(inodes > 6000, "{inodes}");
    pool.remove_dir_all("t").unwrap();
    assert_eq!(errno(pool.metadata("t")), libc::ENOENT);
    assert_eq!(pool.statfs().unwrap().inodes, 1);
}

#[test]
fn copies_have_contents_permissions_and_holes() {
    let twin = Twin::new();
    twin.run(
        "mkdir w
        write w/f contents
        chmod w/f 640
        copy w/f w/g
        write w/long it-was-longer-than-that
        copy w/f w/long
        symlink f w/link
        copy w/link w/h
        symlink new w/dangling
        copy w/f w/dangling
        copy w/missing w/x
        copy w w/x
        copy w/f w
        copy w/f w/missing/x",
    );
    twin.compare("copying");
    let pool = &twin.pool;
    let sparse = pool.create_new("sparse").unwrap();
    sparse.write_all_at(b"start", 0).unwrap();
    sparse.write_all_at(b"end", 10 << 20).unwrap();
    sparse.set_len(12 << 20).unwrap();
    assert_eq!(pool.copy("sparse", "copy").unwrap(), 12 << 20);
    let (one, other) = (pool.metadata("sparse").unwrap(), pool.metadata("copy").unwrap());
    assert_eq!((one.len(), one.blocks()), (other.len(), other.blocks()));
    assert!(pool.read("sparse").unwrap() == pool.read("copy").unwrap());
    // Here std would empty it.
    assert_eq!(pool.copy("w/f", "w/f").unwrap(), 8);
    assert_eq!(pool.read_to_string("w/f").unwrap(), "contents");
}

#[test]
fn listings_meet_every_name_once_while_others_come_and_go() {
    let pool = pool(16);
    pool.create_dir("d").unwrap();
    for number in 0..500 {
        pool.write(format!("d/{number}"), "").unwrap();
    }
    let mut met = BTreeSet::new();
    for (round, entry) in pool.read_dir("d").unwrap().enumerate() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        pool.remove_file(format!("d/{name}")).unwrap();
        pool.write(format!("d/more{round}"), "").unwrap();
        assert!(met.insert(name.clone()), "{name} twice");
        assert!(met.len() < 5000, "it does not end");
    }
    for number in 0..500 {
        assert!(met.contains(&number.to_string()), "{number} was not met");
    }
}

#[test]
fn a_listed_directory_may_go_away() {
    let pool = pool(16);
    pool.create_dir("d").unwrap();
    pool.write("d/f", "x").unwrap();
    let mut listing = pool.read_dir("d").unwrap();
    let entry = listing.next().unwrap().unwrap();
    pool.remove_dir_all("d").unwrap();
    assert_eq!(errno(entry.metadata()), libc::ENOENT);
    assert!(listing.next().is_none());
    pool.create_dir("d").unwrap();
    pool.write("d/f", "other").unwrap();
    assert_eq!(errno(entry.metadata()), libc::ENOENT, "another directory of the same name");
}
