//! Calls with two paths do what std does on a tmpfs, for every pair of what there can be.

use crate::common::script::Twin;

const TREE: &str = "
    mkdir w
    mkdir w/d
    mkdir w/d/sub
    mkdir w/empty
    mkdir w/full
    mkdir w/full/in
    write w/f file
    write w/d/f deep
    write w/full/g other
    link w/f w/same
    symlink f w/to_f
    symlink d w/to_d
    symlink nowhere w/dangling
    symlink loop w/loop
";

const PATHS: [&str; 24] = [
    "w/f",
    "w/f/",
    "w/same",
    "w/d",
    "w/d/",
    "w/d/.",
    "w/d/..",
    "w/d/f",
    "w/d/sub",
    "w/d/sub/new",
    "w/d/sub/new/",
    "w/empty",
    "w/empty/",
    "w/full",
    "w/to_f",
    "w/to_f/",
    "w/to_d",
    "w/to_d/",
    "w/to_d/f",
    "w/dangling",
    "w/loop/x",
    "w/new",
    "w/new/",
    "w/f/below",
];

fn with_all_pairs(call: &str) {
    let new_tree = || {
        let twin = Twin::new();
        twin.run(TREE);
        twin
    };
    let mut twin = new_tree();
    for from in PATHS.iter().chain(&["", "w/missing/x"]) {
        for to in PATHS.iter().chain(&["", "w/missing/x"]) {
            let line = format!("{call} {from} {to}");
            if twin.call(&line).is_ok() {
                twin.compare(&line);
                twin = new_tree();
            }
        }
    }
    twin.compare("all that failed");
}

#[test]
fn every_pair_is_renamed_as_the_system_does() {
    with_all_pairs("rename");
}

#[test]
fn every_pair_is_renamed_without_replacing_as_the_system_does() {
    with_all_pairs("noreplace");
}

#[test]
fn every_pair_is_exchanged_as_the_system_does() {
    with_all_pairs("exchange");
}

#[test]
fn every_pair_is_linked_as_the_system_does() {
    with_all_pairs("link");
}

#[test]
fn names_that_are_too_long_are_refused() {
    let twin = Twin::new();
    let (most, more) = ("n".repeat(255), "n".repeat(256));
    twin.run("mkdir w\nwrite w/f x");
    for call in ["rename", "noreplace", "exchange", "link"] {
        twin.run(&format!("{call} w/f w/{more}\n{call} w/{more} w/f\n{call} w/f w/{most}"));
        twin.run(&format!("rename w/{most} w/f"));
    }
    twin.run(&format!("symlink {} w/a\nsymlink {} w/b", "t".repeat(4095), "t".repeat(4096)));
    twin.run("symlink \"\" w/c\nreadlink w/a");
    twin.compare("long names");
}
