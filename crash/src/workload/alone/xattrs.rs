//! Extended attributes: in the log, in pages of their own, and from the one to the other.

use crate::case::{Case, Geometry};
use crate::workload::build::{case, lanes, repeated, roomy, small};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = on_each_kind();
    cases.extend(values());
    cases.extend(names());
    cases.extend(lives());
    cases.extend(logs());
    cases.extend(together());
    cases
}

/// Of every kind of inode.
fn on_each_kind() -> Vec<Case> {
    let before = "create /f; write /f 0 100 1; mkdir /d; symlink /s x; symlink /t %=1.200; mknod /p fifo; \
                  setxattr /f user.a 9 2; setxattr /d user.a 9 2; setxattr / user.a 300 3";
    let mut cases = Vec::new();
    for path in ["/f", "/d", "/s", "/t", "/p", "/"] {
        for op in [
            format!("setxattr {path} user.a 20 5"),
            format!("setxattr {path} user.b 600 6"),
            format!("removexattr {path} user.a"),
            format!("getxattr {path} user.a"),
            format!("setxattr {path} user.a 1 7 create"),
            format!("setxattr {path} user.a 1 7 replace"),
            format!("setxattr {path} user.a 0; removexattr {path} user.a"),
        ] {
            cases.push(case(format!("xattr: {op}"), roomy(), before, &op));
        }
    }
    cases
}

/// Every length at which a value goes elsewhere, in place of none and of values elsewhere.
fn values() -> Vec<Case> {
    let mut cases = Vec::new();
    // A short log page has room for 120 bytes of name and value, a whole one for 640.
    let short = [0, 1, 33, 34, 74, 114, 115, 4095, 4096, 4097, 12_000];
    let whole = [0, 633, 634, 635, 4096, 16_384];
    let pools = [("short log pages", small(), &short[..]), ("whole log pages", roomy(), &whole)];
    for (pages, pool, lengths) in pools {
        for there in ["", "setxattr /a user.x 10 1", "setxattr /a user.x 5000 1"] {
            for len in lengths {
                let name = format!("xattr: {len} bytes after {there:?}, {pages}");
                let before = format!("create /a; {there}");
                let ops = format!("setxattr /a user.x {len} 9");
                cases.push(case(name, pool.clone(), &before, &ops));
            }
        }
    }
    let most = Geometry { bytes: 256 << 10, ..roomy() };
    let before = "create /a; setxattr /a user.x 65536 1";
    cases.push(case("xattr: the largest value", most.clone(), before, "setxattr /a user.x 64K 2"));
    cases.push(case("xattr: too large a value", most, before, "setxattr /a user.x 65537 2"));
    cases
}

fn names() -> Vec<Case> {
    let mut cases = Vec::new();
    for len in [1, 39, 40, 41, 80, 81, 119, 120] {
        let name = format!("xattr: a name of {len} bytes");
        let ops = format!("setxattr /a %=0.{len} 0; removexattr /a %=0.{len}");
        cases.push(case(name, small(), "create /a", &ops));
    }
    for len in [240, 255, 256] {
        let name = format!("xattr: a name of {len} bytes, whole log pages");
        let ops = format!("setxattr /a %=0.{len} 300 1; setxattr /a %=0.{len} 9000 2");
        cases.push(case(name, roomy(), "create /a; setxattr /a %=0.239 1", &ops));
    }
    cases
}

/// What becomes of values with their inode.
fn lives() -> Vec<Case> {
    let before = "create /a; create /b; mkdir /d; setxattr /a user.x 5000 1; setxattr /a user.y 50 2; \
                  setxattr /b user.x 9000 3; setxattr /d user.x 5000 4; append /a 5000 5";
    let all = [
        ("unlink", "unlink /a"),
        ("unlink and make another", "unlink /a; maintain; create /c; setxattr /c user.x 5000 7"),
        ("rmdir", "rmdir /d"),
        ("rename over", "rename /b /a"),
        ("exchange", "rename /a /b exchange"),
        ("link", "link /a /c; unlink /a; removexattr /c user.x"),
        ("open and unlinked", "open /a 0; unlink /a; setxattr @0 user.z 5000 8; close 0"),
        ("open and lost", "open /a 0; unlink /a; setxattr @0 user.z 5000 8"),
        ("close and open", "remount; setxattr /a user.x 70 8; crash; removexattr /a user.y"),
        ("with other changes", "chmod /a 0o600; setxattr /a user.x 9 8; truncate /a 0"),
        ("full:", "append /b 4096; append /b 4096; append /b 4096; setxattr /a user.z 20000 8"),
    ];
    let mut cases = Vec::new();
    for (name, ops) in all {
        cases.push(case(format!("xattr: {name}"), small(), before, ops));
        let two = Geometry { bytes: 160 << 10, ..lanes(2) };
        cases.push(case(format!("xattr: {name}, two lanes"), two, before, ops));
    }
    cases
}

/// With the change of a mode, and with a new inode: both, or neither.
fn together() -> Vec<Case> {
    let before = "create /a; setxattr /a user.x 44 1; mkdir /d; setxattr /d user.x 300 1";
    let mut cases = Vec::new();
    for len in [0, 20, 44, 110, 260, 500, 630, 5000] {
        for op in [
            format!("create-with /d/n 0o100640 user.x {len} 7"),
            format!("create-with /n 0o040750 user.x {len} 7"),
            format!("create-with /d/%=0.60 0o010640 user.x {len} 7"),
            format!("setattr-with /a user.x {len} 7 mode=0o604"),
            format!("setattr-with /d user.y {len} 7 mode=0o1770 uid=7"),
            format!("setattr-with /a user.y {len} 7 size=5000 mtime=4"),
        ] {
            let short = case(format!("xattr: {op}, short log pages"), small(), before, &op);
            cases.push(short);
            cases.push(case(format!("xattr: {op}"), roomy(), before, &op));
        }
    }
    let full = "append /a 4096; append /a 4096; append /a 4096; append /a 4096; append /a 4096";
    let more = "create-with /d/n 0o100640 user.x 9000 7; create-with /d/m 0o100640 user.x 5000 8; \
                create-with /d/n 0o100640 user.x 500 9; setattr-with /a user.y 9000 8 mode=0";
    cases.push(case(
        "xattr, full: with a mode, and new",
        Geometry { bytes: 72 << 10, ..small() },
        &format!("{before}; {full}"),
        more,
    ));
    cases
}

/// Logs that grow, and are collected.
fn logs() -> Vec<Case> {
    let churn = |times| repeated(times, "setxattr /a user.x 60 #; removexattr /a user.x");
    let sets = |times| repeated(times, "setxattr /a user.x 60 #");
    let pages = |times| repeated(times, "setxattr /a user.x 130 #");
    let kept = "create /a; setxattr /a user.k 300 1; setxattr /a user.l 30 2; append /a 5000";
    let pool = Geometry { bytes: 160 << 10, ..small() };
    let mut cases = Vec::new();
    for times in [1, 2, 3, 5, 8] {
        let name = format!("xattr: set and removed {times} times");
        let ops = "setxattr /a user.x 60 91; removexattr /a user.x; setxattr /a user.x 60 92";
        cases.push(case(name, pool.clone(), &format!("{kept}; {}", churn(times)), ops));
        let name = format!("xattr: set {times} times");
        let ops = "setxattr /a user.x 60 91; setxattr /a user.x 61 92";
        cases.push(case(name, pool.clone(), &format!("{kept}; {}", sets(times)), ops));
        let name = format!("xattr: replaced pages {times} times");
        let ops = "setxattr /a user.x 200 91; chmod /a 0o600; setxattr /a user.x 201 92";
        cases.push(case(name, pool.clone(), &format!("{kept}; {}", pages(times)), ops));
    }
    let directory = "mkdir /d; setxattr /d user.x 100 1; create /d/a; setxattr /d user.y 5000 2";
    let names = repeated(9, "create /d/b; unlink /d/b");
    let ops = "create /d/c; removexattr /d user.x; create /d/e; setxattr /d user.y 7";
    cases.push(case(
        "xattr: of a directory whose log is collected",
        pool,
        &format!("{directory}; {names}"),
        ops,
    ));
    cases
}
