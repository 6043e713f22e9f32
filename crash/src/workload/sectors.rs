//! Writes by sectors, through the sector journal: each in the lane of its CPU, which is another one for each operation.

use lode_engine::PageClass;

use crate::case::{Case, Geometry};
use crate::workload::build::{case, huge, lanes};

/// A pool with so many lanes, and room for a sector journal.
pub(super) fn pool(count: u32) -> Geometry {
    Geometry { bytes: 384 << 10, ..lanes(count) }
}

const FILE: &str = "create /v; write /v 0 16K 1";

/// What one thread does, with one lane and with two.
const ALONE: [(&str, &str, &str); 9] = [
    (
        "sectors that overlap",
        FILE,
        "sectors /v 512 512 2; sectors /v 512 1024 3; sectors /v 1024 512 9; sectors /v 8192 4096 4; sectors /v 512 512 5; \
         sectors /v 1024 512 6; sectors /v 0 2048 7; sectors /v 8192 512 8",
    ),
    (
        "sectors and other writes",
        FILE,
        "sectors /v 512 512 2; write /v 600 100 3; sectors /v 512 512 4; write /v 0 4096 5; sectors /v 0 512 6; \
         sectors /v 0 512 7; write /v 0 8192 8; append /v 100 9",
    ),
    (
        "sectors and truncations",
        FILE,
        "sectors /v 4096 512 2; truncate /v 4200; sectors /v 4096 512 9; truncate /v 16K; sectors /v 4096 512 3; \
         truncate /v 4096; append /v 4096 4; sectors /v 4096 512 5",
    ),
    (
        "sectors and holes",
        FILE,
        "sectors /v 4096 512 2; punch /v 4096 4096; sectors /v 0 512 3; sectors /v 4096 512 4; zero /v 0 4096; \
         sectors /v 0 512 5; create /w; append /w 8192 6",
    ),
    (
        "sectors of a file that ends",
        "create /v; write /v 0 16K 1; create /w; write /w 0 8192 2",
        "sectors /v 0 512 3; sectors /w 0 512 4; unlink /v; create /x; append /x 16K 5; sectors /x 0 512 6; \
         sectors /w 512 512 7; rename /w /x; truncate /x 0",
    ),
    (
        "sectors and sessions",
        FILE,
        "sectors /v 0 512 2; sectors /v 512 512 3; remount; write /v 0 1024 4; sectors /v 2048 512 5; crash; \
         sectors /v 0 512 6; write /v 0 512 7; remount; write /v 0 4096 8",
    ),
    (
        "sectors and snapshots",
        FILE,
        "sectors /v 0 512 2; sectors /v 4096 512 9; snapshot s; sectors /v 0 512 3; sectors /v 512 512 4; drop s; \
         sectors /v 0 512 5; snapshot t; write /v 0 512 6; sectors /v 0 512 7; rollback t; sectors /v 0 512 8",
    ),
    (
        "sectors where an earlier journal was",
        "create /v; write /v 0 4096 1",
        "sectors /v 0 512 2; sectors /v 512 512 3; crash; truncate /v 600; truncate /v 4096; sectors /v 2048 512 5; \
         truncate /v 100",
    ),
    (
        "sectors of files whose logs are written anew",
        "create /v; write /v 0 16K 1; chmod /v 0o600; chmod /v 0o601; chmod /v 0o602; chmod /v 0o603",
        "sectors /v 0 512 2; chmod /v 0o604; sectors /v 0 512 3; chmod /v 0o605; chmod /v 0o606; sectors /v 0 512 4; \
         chmod /v 0o607; chmod /v 0o610",
    ),
];

/// Cases of one thread.
pub(super) fn alone() -> Vec<Case> {
    let mut cases = Vec::new();
    for (count, way) in [(1, "one lane"), (2, "two lanes")] {
        for (name, before, ops) in ALONE {
            cases.push(case(format!("{name}, {way}"), pool(count), before, ops));
        }
    }
    let maps = "sectors /v 0 512 2; sectors /v 512 512 6; map /v; poke /v 0 512 3; unmap /v; sectors /v 0 512 4; map /v; \
                sectors /v 512 512 5; poke /v 100 8 7; unmap /v; sectors /v 0 512 8";
    let mapped = Geometry { mapped: true, ..pool(2) };
    cases.push(case("sectors of a file that is mapped", mapped, FILE, maps));
    let large = "sectors /v 512 512 2; sectors /v 0 8192 3; sectors /v 2M 512 4; write /v 512 512 5; sectors /v 512 512 6; \
                 punch /v 0 2M";
    let before = "create /v; allocate /v 0 4M";
    cases.push(case("sectors of large pages", held(2), before, large));
    let by_handle = "open /v 0; sectors @0 512 512 2; sectors @0 512 1024 3; sectors @0 0 8192 4; sectors @0 512 512 5; \
                     write /v 512 512 6; sectors @0 512 512 7; sectors @0 1024 512 8; truncate /v 0; sectors @0 0 512 9";
    cases.push(case("sectors by a handle", held(2), HELD_FILE, by_handle));
    cases
}

/// A pool with so many lanes, and room for a file whose places are noted by who has it open.
pub(super) fn held(count: u32) -> Geometry {
    Geometry { lanes: count, class: PageClass::Huge, ..huge() }
}

const HELD_FILE: &str = "create /v; allocate /v 0 2M";
const HELD_OPEN: &str = "create /v; allocate /v 0 2M; open /v 0";

/// The same by a handle: the second write takes no lock of the inode, if the other thread has changed nothing.
pub(super) const HELD: [(&str, &str, &str, &str); 4] = [
    (
        "sectors by handles that overlap",
        HELD_OPEN,
        "sectors @0 0 1024 2; sectors @0 512 512 3",
        "sectors @0 512 1024 4; sectors @0 0 512 5",
    ),
    (
        "sectors by a handle and a write",
        HELD_OPEN,
        "sectors @0 0 512 2; sectors @0 0 512 3",
        "write /v 100 200 4; read /v 0 512",
    ),
    (
        "sectors by a handle and pages of another file",
        HELD_OPEN,
        "sectors @0 0 512 2; sectors @0 0 512 3",
        "truncate /v 0; create /w; append /w 12K 4; read /w 0 512",
    ),
    (
        "sectors by a handle and snapshot",
        "snapshot z; create /v; allocate /v 0 2M; open /v 0",
        "sectors @0 0 512 2; sectors @0 0 512 3",
        "snapshot a; read /v 0 512",
    ),
];

/// What there is before, what one thread does, what the other does.
pub(super) const BESIDE: [(&str, &str, &str, &str); 8] = [
    (
        "sectors that overlap",
        FILE,
        "sectors /v 0 1024 2; sectors /v 512 512 3",
        "sectors /v 512 1024 4; sectors /v 0 512 5",
    ),
    (
        "sectors of two files",
        "create /v; write /v 0 8192 1; create /w; write /w 0 8192 1",
        "sectors /v 0 1024 2; sectors /v 512 512 3",
        "sectors /w 0 1024 4; sectors /v 0 512 5",
    ),
    ("sectors and a write", FILE, "sectors /v 0 512 2; sectors /v 0 512 3", "write /v 100 200 4"),
    (
        "sectors and truncations",
        FILE,
        "sectors /v 4096 512 2; sectors /v 8192 512 3",
        "truncate /v 4096; append /v 8192 4",
    ),
    (
        "sectors and pages of another file",
        FILE,
        "sectors /v 4096 512 2; sectors /v 0 512 3",
        "truncate /v 4096; create /w; append /w 12K 4",
    ),
    (
        "sectors and snapshot",
        "snapshot z; create /v; write /v 0 8192 1",
        "sectors /v 0 512 2; sectors /v 0 512 3",
        "snapshot a",
    ),
    (
        "sectors and reads",
        FILE,
        "sectors /v 0 1024 2; sectors /v 0 512 3",
        "read /v 0 4096; read /v 0 4096",
    ),
    (
        "sectors and unlink",
        FILE,
        "sectors /v 0 512 2; sectors /v 0 512 3",
        "unlink /v; create /w; append /w 8192 4",
    ),
];

/// The same where stores through maps may be there in part.
pub(super) const MAPPED: [(&str, &str, &str, &str); 1] =
    [("sectors and a map", FILE, "sectors /v 0 512 2; map /v", "poke /v 0 512 3; unmap /v")];
