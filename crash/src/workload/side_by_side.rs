//! Writers of one file who go side by side, through the sector journal, each in the lane of its CPU: from the third overwrite on. The first one
//! has the journal made, the second goes by the log and lets the others go.

use crate::case::{Case, Geometry};
use crate::workload::build::{case, lanes};

/// A pool with so many lanes, and room for a sector journal.
pub(super) fn pool(count: u32) -> Geometry {
    Geometry { bytes: 384 << 10, side_by_side: true, ..lanes(count) }
}

const FILE: &str = "create /v; write /v 0 16K 1";

/// What has the others go.
const BEGIN: &str = "write /v 0 512 8; write /v 0 512 9";

/// What one thread does then, with one lane and with two.
const ALONE: [(&str, &str); 9] = [
    (
        "overwrites that overlap",
        "write /v 512 512 2; write /v 512 1024 3; write /v 1024 512 9; write /v 8192 4096 4; write /v 512 512 5; \
         write /v 1024 512 6; write /v 0 2048 7; write /v 8192 512 8",
    ),
    (
        "overwrites and others",
        "write /v 512 512 2; write /v 600 100 3; write /v 512 512 4; write /v 0 8192 5; write /v 0 512 6; \
         write /v 4096 512 7; append /v 100 9; write /v 0 512 8; write /v 8192 4096 2",
    ),
    (
        "overwrites and truncations",
        "write /v 4096 512 2; truncate /v 4200; write /v 4096 512 9; truncate /v 16K; write /v 4096 512 3; \
         write /v 0 512 3; truncate /v 4096; append /v 4096 4; write /v 4096 512 5; write /v 0 512 6",
    ),
    (
        "overwrites and holes",
        "write /v 4096 512 2; punch /v 4096 4096; write /v 0 512 3; write /v 4096 512 4; write /v 4096 512 5; \
         zero /v 0 4096; write /v 0 512 6; write /v 0 512 7",
    ),
    (
        "overwrites of a file that ends",
        "create /w; write /w 0 8192 2; write /v 0 512 3; write /w 0 512 4; write /w 0 512 5; unlink /v; create /x; \
         append /x 16K 5; write /x 0 512 6; write /w 512 512 7; rename /w /x; truncate /x 0",
    ),
    (
        "overwrites and sessions",
        "write /v 0 512 2; write /v 512 512 3; remount; write /v 0 512 4; write /v 0 512 5; write /v 2048 512 5; crash; \
         write /v 0 512 6; write /v 0 512 7; write /v 0 512 8; remount; write /v 0 4096 8",
    ),
    (
        "overwrites and snapshots",
        "write /v 0 512 2; write /v 4096 512 9; snapshot s; write /v 0 512 3; write /v 512 512 4; write /v 512 512 5; drop s; \
         write /v 0 512 5; snapshot t; write /v 0 512 6; write /v 0 512 7; rollback t; write /v 0 512 8",
    ),
    (
        "overwrites of a file whose log is written anew",
        "chmod /v 0o600; write /v 0 512 2; write /v 0 512 3; chmod /v 0o604; chmod /v 0o605; write /v 0 512 4; write /v 0 512 5; \
         chmod /v 0o606; write /v 4096 4096 6; write /v 4096 512 7",
    ),
    (
        "overwrites of pages that have moved",
        "write /v 4096 512 2; write /v 4096 4096 3; append /v 4096 4; write /v 4096 4096 5; write /v 4096 512 6; \
         write /v 16K 512 7; truncate /v 4096; append /v 8192 1; write /v 4096 512 2; write /v 4096 512 3",
    ),
];

/// Cases of one thread.
pub(super) fn alone() -> Vec<Case> {
    let mut cases = Vec::new();
    for (count, way) in [(1, "one lane"), (2, "two lanes")] {
        for (name, ops) in ALONE {
            let name = format!("side by side: {name}, {way}");
            cases.push(case(name, pool(count), FILE, &format!("{BEGIN}; {ops}")));
        }
    }
    let maps = "map /v; poke /v 0 512 3; unmap /v; write /v 0 512 4; write /v 0 512 5; map /v; write /v 512 512 5; \
                poke /v 100 8 7; unmap /v; write /v 0 512 8";
    let mapped = Geometry { mapped: true, ..pool(2) };
    let maps = format!("{BEGIN}; write /v 512 512 6; {maps}");
    cases.push(case("side by side: overwrites of a file that is mapped", mapped, FILE, &maps));
    cases
}

/// What there is before, what one thread does, what the other does.
pub(super) const BESIDE: [(&str, &str, &str, &str); 11] = [
    (
        "side by side: overwrites that overlap",
        FILE,
        "write /v 0 512 8; write /v 0 512 9; write /v 0 1024 2; write /v 512 512 3",
        "write /v 512 1024 4; write /v 0 512 5",
    ),
    (
        "side by side: overwrites of other pages",
        FILE,
        "write /v 0 512 8; write /v 0 512 9; write /v 0 1024 2",
        "write /v 4096 4096 4; write /v 4096 512 5",
    ),
    (
        "side by side: an overwrite and a truncation",
        FILE,
        "write /v 4096 512 8; write /v 4096 512 9; write /v 4096 512 2",
        "truncate /v 4096; append /v 8192 4",
    ),
    (
        "side by side: an overwrite and pages of another file",
        FILE,
        "write /v 4096 512 8; write /v 4096 512 9; write /v 4096 512 2",
        "truncate /v 4096; create /w; append /w 12K 4",
    ),
    // (The page that was given back last is the next one that is taken.)
    (
        "side by side: an overwrite, and its page in another file",
        "create /v; write /v 0 8192 1; create /w; append /w 4096 7",
        "write /v 4096 512 8; write /v 4096 512 9; write /v 4096 512 2",
        "truncate /v 4096; append /w 4096 4",
    ),
    (
        "side by side: an overwrite and a snapshot",
        "snapshot z; create /v; write /v 0 8192 1",
        "write /v 0 512 8; write /v 0 512 9; write /v 0 512 2; write /v 0 512 3",
        "snapshot a",
    ),
    (
        "side by side: overwrites, and a snapshot with an overwrite behind it",
        "snapshot z; create /v; write /v 0 8192 1",
        "write /v 0 512 8; write /v 0 512 9; write /v 4096 512 2",
        "snapshot a; write /v 0 512 4",
    ),
    (
        "side by side: overwrites and reads",
        FILE,
        "write /v 0 512 8; write /v 0 512 9; write /v 0 1024 2; write /v 4096 512 3",
        "read /v 0 8192; read /v 0 4096",
    ),
    // (So long a read has the file alone, and then its writers go on.)
    (
        "side by side: overwrites and a long read",
        "create /v; write /v 0 72K 1",
        "write /v 0 512 8; write /v 0 512 9; write /v 0 1024 2; write /v 68K 512 3",
        "read /v 0 72K; read /v 512 71K",
    ),
    (
        "side by side: an overwrite and an unlinking",
        FILE,
        "write /v 0 512 8; write /v 0 512 9; write /v 0 512 3",
        "unlink /v; create /w; append /w 8192 4",
    ),
    (
        "side by side: an overwrite of a file that loses its name",
        "create /v; write /v 0 16K 1; open /v 0",
        "write @0 0 512 8; write @0 0 512 9; write @0 0 512 3",
        "unlink /v; create /w; append /w 8192 4",
    ),
];
