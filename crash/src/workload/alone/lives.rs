//! Inodes that come and go: kinds, links, open files, slots and pages used again, sessions,
//! lanes, and pools that are full.

use crate::case::{Case, Geometry};
use crate::workload::build::{case, lanes, relaxed, repeated, small};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = kinds();
    cases.extend(links());
    cases.extend(open_files());
    cases.extend(nameless());
    cases.extend(used_again());
    cases.extend(sessions());
    cases.extend(tables());
    cases.extend(full());
    cases
}

fn kinds() -> Vec<Case> {
    let makers = [
        ("file", "create /N"),
        ("file with all bits", "create /N 0o107777"),
        ("directory", "mkdir /N"),
        ("fifo", "mknod /N fifo"),
        ("socket", "mknod /N socket"),
        ("character device", "mknod /N char 1 3"),
        ("block device", "mknod /N block 4294967295 4294967295"),
        ("symlink", "symlink /N x"),
        ("long symlink", "symlink /N %=0.200"),
    ];
    let mut cases = Vec::new();
    for (kind, maker) in makers {
        let make = maker.replace('N', "n");
        let remove = if kind == "directory" { "rmdir /n" } else { "unlink /n" };
        for (count, pool) in [(1, small()), (2, lanes(2)), (4, lanes(4))] {
            let name = format!("make: {kind}, lanes {count}");
            cases.push(case(name, pool.clone(), "create /k", &make));
            cases.push(case(format!("remove: {kind}, lanes {count}"), pool, &make, remove));
        }
        cases.push(case(format!("open: {kind}"), small(), &make, "open /n 0"));
        let name = format!("remove: open {kind}");
        cases.push(case(name, small(), &format!("{make}; open /n 0"), remove));
        let name = format!("close: removed {kind}");
        cases.push(case(name, small(), &format!("{make}; open /n 0; {remove}"), "close 0"));
        if kind != "directory" {
            cases.push(case(format!("link: {kind}"), lanes(2), &make, "link /n /l"));
        }
        let below = maker.replace('N', "d/n");
        let name = format!("make: {kind} in a directory");
        cases.push(case(name, lanes(2), "mkdir /d; cpus 2", &below));
    }
    cases
}

fn links() -> Vec<Case> {
    let two = "create /a; append /a 100; mkdir /d; link /a /l";
    let all = [
        ("link: a second", "create /a", "link /a /l"),
        ("link: a third", two, "link /a /m"),
        ("link: in a directory", two, "link /a /d/l"),
        ("link: of a link", two, "link /l /m"),
        ("link: over a name", two, "link /a /d"),
        ("unlink: the first name", two, "unlink /a"),
        ("unlink: the second name", two, "unlink /l"),
        ("unlink: the last name", "create /a; append /a 100; link /a /l; unlink /a", "unlink /l"),
        ("unlink: in another directory", "create /a; mkdir /d; link /a /d/l", "unlink /d/l"),
        ("unlink: a linked open file", "create /a; link /a /l; open /a 0", "unlink /a"),
        (
            "unlink: the last of an open file",
            "create /a; link /a /l; open /a 0; unlink /l",
            "unlink /a",
        ),
        ("write: through a link", two, "write /l 10 20 3"),
        ("rmdir: one that was full", "mkdir /d; create /d/a; unlink /d/a", "rmdir /d"),
        ("rmdir: one whose child moved out", "mkdir /d; create /d/a; rename /d/a /a", "rmdir /d"),
        ("rmdir: a deep one", "mkdir /d; mkdir /d/e; mkdir /d/e/f", "rmdir /d/e/f"),
        ("mkdir: a deep one", "mkdir /d; mkdir /d/e", "mkdir /d/e/f"),
    ];
    let mut cases = Vec::new();
    for (name, before, ops) in all {
        cases.push(case(name, small(), before, ops));
        cases.push(case(format!("{name}, lanes 2"), lanes(2), before, ops));
    }
    cases
}

fn open_files() -> Vec<Case> {
    let gone = "create /a; write /a 0 5000 1; open /a 0; unlink /a";
    let more =
        "create /a; write /a 0 5000 1; open /a 0; unlink /a; create /b; open /b 1; unlink /b";
    let all = [
        ("close", gone, "close 0"),
        ("close of one of two", more, "close 0"),
        ("background work", gone, "maintain"),
        ("a crash", gone, "crash"),
        ("a close of the pool", gone, "remount"),
        ("a crash with two", more, "crash"),
        ("create", gone, "create /a"),
        ("close, slot used", "create /a; open /a 0; unlink /a; close 0; maintain", "create /b"),
        ("after a crash", "create /a; write /a 0 5000 1; open /a 0; unlink /a; crash", "create /b"),
        ("written after", "create /a; open /a 0; unlink /a; append @0 5000", "close 0"),
        ("a directory, closed", "mkdir /d; open /d 0; rmdir /d", "close 0"),
        ("a directory, crash", "mkdir /d; open /d 0; rmdir /d", "crash"),
        (
            "renamed over, closed",
            "create /a; create /b; append /b 5000; open /b 0; rename /a /b",
            "close 0",
        ),
        (
            "renamed over, crash",
            "create /a; create /b; append /b 5000; open /b 0; rename /a /b",
            "crash",
        ),
        ("create beneath a removed directory", "mkdir /d; open /d 0; rmdir /d", "create /d/a"),
    ];
    let cases = all.into_iter();
    cases.map(|(name, before, ops)| case(format!("orphan: {name}"), small(), before, ops)).collect()
}

/// Files without a name.
fn nameless() -> Vec<Case> {
    let one = "mkdir /d; tmpfile / 0; append @0 5000 1; write @0 100 50 2";
    let linked = format!("{one}; link @0 /d/n");
    let all = [
        ("made", "mkdir /d", "tmpfile /d 0"),
        ("made with an attribute", "mkdir /d", "tmpfile /d 0 0o600 user.x 60 3"),
        ("made with a long attribute", "", "tmpfile / 0 0o640 user.x 5000 3"),
        ("made where one is", one, "tmpfile / 0"),
        ("made in a directory that is gone", "mkdir /d; open /d 0; rmdir /d", "tmpfile /d 1"),
        ("made in what is no directory", "create /a", "tmpfile /a 0"),
        ("written", one, "write @0 4000 3000 4"),
        ("appended to", one, "append @0 100 4"),
        ("truncated", one, "truncate @0 10"),
        ("changed", one, "chmod @0 0o600; chown @0 7 8; setxattr @0 user.x 20"),
        ("linked", one, "link @0 /n"),
        ("linked in a directory", one, "link @0 /d/%=1.130"),
        ("linked over a name", one, "link @0 /d"),
        ("linked twice", &linked, "link @0 /m"),
        ("linked, the name goes", &linked, "unlink /d/n"),
        ("linked, the name goes, linked again", &linked, "unlink /d/n; link @0 /m"),
        ("linked, written", &linked, "append @0 4096 5"),
        ("linked, closed", &linked, "close 0"),
        ("closed", one, "close 0"),
        ("a crash", one, "crash"),
        ("a close of the pool", one, "remount"),
        ("background work", one, "maintain"),
    ];
    let mut cases = Vec::new();
    for (name, before, ops) in all {
        for (count, pool) in [(1, small()), (2, lanes(2))] {
            cases.push(case(format!("nameless: {name}, lanes {count}"), pool, before, ops));
        }
    }
    for (user, ops) in [
        ("create", "create /a"),
        ("another", "tmpfile / 1"),
        ("a write", "write /k 0 9000 2"),
        ("background work", "maintain"),
    ] {
        for (when, between) in
            [("at once", ""), ("after a round", "maintain"), ("after a crash", "crash")]
        {
            let before = format!("create /k; {one}; close 0; {between}");
            let before =
                if when == "after a crash" { before.replace("close 0; ", "") } else { before };
            cases.push(case(format!("nameless: used again {when}, {user}"), small(), &before, ops));
        }
    }
    cases
}

/// Slots and pages of what is gone, taken at once.
fn used_again() -> Vec<Case> {
    let gone = "create /a; write /a 0 9000 1; unlink /a";
    let gone_directory =
        format!("mkdir /d; {}{}rmdir /d", repeated(6, "create /d/f#"), repeated(6, "unlink /d/f#"));
    let users = [
        ("create", "create /b"),
        ("mkdir", "mkdir /b"),
        ("symlink", "symlink /b %=0.100"),
        ("the same name", "create /a"),
        ("a write", "write /k 0 9000 2"),
        ("background work", "maintain"),
    ];
    let mut cases = Vec::new();
    for (what, before) in [("a file", gone), ("a directory", &gone_directory)] {
        for (user, ops) in users {
            for (when, between) in [
                ("at once", ""),
                ("after a round", "maintain"),
                ("after a remount", "remount"),
                ("after a crash", "crash"),
            ] {
                let name = format!("used again: {what}, {when}, {user}");
                let before = format!("create /k; {before}; {between}");
                cases.push(case(name, small(), &before, ops));
            }
        }
    }
    for (way, geometry) in [("", small()), (", relaxed", relaxed())] {
        for (what, before) in [
            ("truncated", "truncate /a 0"),
            ("overwritten", "write /a 0 9000 2"),
            ("punched", "punch /a 0 9000"),
        ] {
            let name = format!("used again: pages {what}{way}");
            let before = format!("create /a; write /a 0 9000 1; create /b; {before}");
            cases.push(case(name, geometry.clone(), &before, "write /b 0 5003 4"));
        }
    }
    cases
}

fn sessions() -> Vec<Case> {
    let trees = [
        ("an empty pool", ""),
        ("a file", "create /a; write /a 0 5000 1"),
        ("a journal", "create /a; write /a 0 5000 1; write /a 100 200 2"),
        ("a removed file", "create /a; write /a 0 5000 1; unlink /a"),
        ("a tree", "mkdir /d; create /d/a; link /d/a /l; symlink /s %=0.100; mkdir /d/e"),
        (
            "a long log",
            "create /a; link /a /1; link /a /2; link /a /3; link /a /4; link /a /5; \
             link /a /6; link /a /7; link /a /8",
        ),
        ("a second session", "create /a; remount; append /a 100"),
        ("a session after a crash", "create /a; crash; append /a 100"),
    ];
    let mut cases = Vec::new();
    for (what, before) in trees {
        for ops in ["remount", "crash", "maintain"] {
            for count in [1, 2] {
                let name = format!("{ops}: {what}, lanes {count}");
                cases.push(case(name, lanes(count), before, ops));
            }
            let name = format!("{ops}: {what}, relaxed");
            cases.push(case(name, relaxed(), before, ops));
        }
        for ops in ["create /n", "unlink /a", "append /a 4100", "write /a 3 50 4"] {
            for between in ["remount", "crash"] {
                let name = format!("after a {between}: {ops}, {what}");
                cases.push(case(name, small(), &format!("{before}; {between}"), ops));
            }
        }
    }
    for lane_count in [1, 2, 4] {
        for (from, to) in [(1, 2), (2, 1), (4, 1), (1, 4), (3, 5)] {
            for (what, ops) in [
                ("create", "create /n"),
                ("unlink", "unlink /a"),
                ("write", "write /a 10 5000 3"),
                ("again", "remount"),
            ] {
                let before = format!(
                    "cpus {from}; remount; create /a; mkdir /d; write /a 0 100 1; create /d/b; \
                     unlink /d/b; cpus {to}; remount"
                );
                let name = format!("cpus: {from} to {to}, lanes {lane_count}, {what}");
                cases.push(case(name, lanes(lane_count), &before, ops));
            }
            let before = format!("cpus {from}; remount; create /a; mkdir /d; cpus {to}");
            let name = format!("cpus: {from} to {to}, lanes {lane_count}, at a crash");
            cases.push(case(name, lanes(lane_count), &before, "crash"));
        }
    }
    cases.push(case("cpus: said, no remount yet", lanes(2), "create /a", "cpus 1"));
    cases
}

/// Tables of inodes that fill up, grow, and give pieces back. A page has room for seven.
fn tables() -> Vec<Case> {
    let mut cases = Vec::new();
    for count in 4..=8 {
        let made = repeated(count, "create /f#");
        let removed = repeated(count, "unlink /f#");
        for (way, pool) in [("lanes 1", small()), ("lanes 2", lanes(2))] {
            for (what, ops) in [("create", "create /n"), ("mkdir", "mkdir /n")] {
                let name = format!("table: {count} inodes, {way}, {what}");
                cases.push(case(name, pool.clone(), &made, ops));
            }
            let name = format!("table: {count} inodes gone, {way}, round");
            cases.push(case(name, pool.clone(), &format!("{made}{removed}"), "maintain"));
            let name = format!("table: {count} inodes gone, {way}, remount");
            cases.push(case(name, pool, &format!("{made}{removed}"), "remount"));
        }
    }
    cases
}

/// Pools without a free page, or nearly so.
fn full() -> Vec<Case> {
    let tiny = Geometry { bytes: 64 << 10, ..small() };
    let file = "create /a; write /a 0 4096 1; mkdir /d; create /b;";
    let small_writes = repeated(9, "write /a 100 100 #");
    let mut cases = Vec::new();
    // Pieces of a page until nothing fits, and then less.
    for left in [0, 1, 2, 3] {
        let filled = format!(
            "{file} create /f; {}{}",
            repeated(14, "append /f 4096"),
            match left {
                0 => String::new(),
                left => format!("truncate /f {}; maintain", 4096 * (8 - left)),
            }
        );
        let ops = [
            "create /n",
            "mkdir /n",
            "symlink /n %=0.137",
            "link /a /l",
            "unlink /a",
            "rmdir /d",
            "rename /a /b",
            "rename /a /d/n",
            "append /a 1",
            "append /a 4097",
            "write /a 0 4096 2",
            "write /a 100 100 2",
            "truncate /f 100",
            "truncate /f 0",
            "chmod /a 0o600",
            "allocate /a 0 8192",
            "punch /a 0 100",
            "zero /a 100 5000",
            // Pages that the one before has just freed; then log pages that nothing lives in.
            "write /a 0 4096 2; write /a 0 4096 3; write /a 0 4096 4",
            &small_writes,
            "maintain",
            "remount",
            "crash",
        ];
        for op in ops {
            cases.push(case(format!("full: {left} given back, {op}"), tiny.clone(), &filled, op));
        }
    }
    let many = format!("{}{}", repeated(40, "create /f#"), "unlink /f0");
    for op in ["create /n", "unlink /f1", "rename /f1 /f2", "link /f1 /l"] {
        cases.push(case(format!("full: of inodes, {op}"), tiny.clone(), &many, op));
    }
    cases
}
