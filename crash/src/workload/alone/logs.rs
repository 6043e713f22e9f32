//! Logs that are about to roll over, and collection of both kinds due at the operation.

use crate::case::{Case, Geometry};
use crate::workload::build::{ALL_LINES, case, repeated, small};

/// Records in a log before the operation: from none to a second page and more.
const ROLL: std::ops::RangeInclusive<u64> = 0..=14;
/// Records before the operations that collect.
const LONG: [u64; 10] = [8, 12, 16, 20, 24, 28, 32, 40, 48, 60];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = rolls();
    cases.extend(collections());
    cases.extend(whole_pages());
    cases
}

/// Operations of one to several lines at each place in a log page.
fn rolls() -> Vec<Case> {
    let ops = [
        ("create", "create /n"),
        ("create, two lines", "create /%=0.20"),
        ("create, three lines", "create /%=0.60"),
        ("create, four lines", "create /%=0.100"),
        ("unlink", "unlink /a"),
        ("rename", "rename /a /z"),
        ("rename, two lines", "rename /a /%=0.50"),
        ("rename into a directory", "rename /a /d/n"),
        ("rmdir", "rmdir /d"),
        ("chmod of the root", "chmod / 0o700"),
    ];
    let mut cases = Vec::new();
    for count in ROLL {
        let before = format!("create /a; mkdir /d; {}", repeated(count, "link /a /l#"));
        for (what, op) in ops {
            let name = format!("roll-over: directory of {} records, {what}", count + 2);
            cases.push(case(name, small(), &before, op));
        }
        let before = format!("create /a; {}", repeated(count, "write /a #000 10 #"));
        for (what, op) in [
            ("chmod", "chmod /a 0o600"),
            ("write", "write /a 0 5000 7"),
            ("link", "link /a /b"),
            ("truncate", "truncate /a 50"),
            ("write of two pieces", "write /a 100 9000 7"),
        ] {
            let name = format!("roll-over: file of {count} writes, {what}");
            cases.push(case(name, small(), &before, op));
        }
    }
    cases
}

/// Five records each, after so many that at some of them a collection is due.
fn collections() -> Vec<Case> {
    let patterns = [
        // All of the old records are dead: whole pages go.
        ("fast, file", "create /k", "write /k 0 4096 #", "write /k 0 4096 9#"),
        ("fast, modes", "create /k", "chmod /k #", "chmod /k 9#"),
        ("fast, directory", "create /k", "link /k /l; unlink /l", "link /k /m#; unlink /m#"),
        // Something lives in each page: it is rewritten.
        (
            "thorough, file",
            "create /k; write /k 0 4096 1; write /k 8192 4096 2; write /k 16384 4096 3",
            "write /k 0 100 #; chmod /k 1#",
            "write /k 8192 50 9#; write /k 0 4096 8#",
        ),
        (
            "thorough, directory",
            "create /k; mkdir /d; link /k /d/a; link /k /d/b; link /k /d/%=0.90",
            "chmod /k #; link /k /d/l; unlink /d/l; rename /d/a /d/c; rename /d/c /d/a",
            "link /k /d/n#; unlink /d/n#",
        ),
        ("journal", "create /k; write /k 0 8192 1", "write /k 100 100 #", "write /k 200 300 9#"),
    ];
    let mut cases = Vec::new();
    for (what, before, each, op) in patterns {
        for count in LONG {
            let before = format!("{before}; {}", repeated(count, each));
            let name = format!("collection: {what}, after {count}");
            cases.push(case(name, small(), &before, &repeated(5, op)));
            if count % 16 == 8 {
                let name = format!("collection: {what}, at a round after {count}");
                cases.push(case(name, small(), &before, "maintain"));
                let name = format!("collection: {what}, at a crash after {count}");
                cases.push(case(name, small(), &before, "crash"));
            }
        }
    }
    cases
}

/// The same edges in log pages of their whole length.
fn whole_pages() -> Vec<Case> {
    let whole = Geometry { bytes: 128 << 10, log_lines: ALL_LINES, ..small() };
    let mut cases = Vec::new();
    for count in [4, 5, 6, 63, 65, 66, 67, 68] {
        let before = format!("create /a; {}", repeated(count, "link /a /l#"));
        for (what, op) in [
            ("link", "link /a /n"),
            ("unlink", "unlink /l1"),
            ("rename", "rename /l1 /%=0.255"),
            ("create", "create /%=0.255"),
        ] {
            let name = format!("roll-over: whole page, {} records, {what}", count + 1);
            cases.push(case(name, whole.clone(), &before, op));
        }
    }
    cases
}
