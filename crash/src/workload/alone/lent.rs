//! Memory that programs are lent: they store into it while files are written, and all crash together; or the program
//! outlives whoever lent it.

use crate::case::{Case, Geometry};
use crate::workload::build::{case, small};

/// One chunk of such a pool is whole, and can be lent; the first and the last have metadata in them.
const ONE_CHUNK: u64 = 6 << 20;

/// What is lent, by each method, before the power may fail; and how it is given back.
const METHODS: [(&str, &str, &str); 3] = [
    ("direct", "lend", "give-back 0"),
    (
        "indirect",
        "tmpfile / 7; fallocate @7 allocate 0 2097152; lend-part @7 0",
        "close 7; give-back 0",
    ),
    (
        "mmap",
        "tmpfile / 7; fallocate @7 allocate 0 2097152; lend-part @7 0",
        "fallocate @7 punch 0 2097152; give-back 0",
    ),
];

/// What a file does that would have the chunk if it were free.
const LARGE: &str = "create /large; fallocate /large allocate 0 2097152; write /large 5000 9000 2";

fn pool() -> Geometry {
    Geometry { bytes: ONE_CHUNK, ..small() }
}

fn full() -> Geometry {
    Geometry { dead_zone: Some(0), strip: Some(512), ..pool() }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (method, lend, give) in METHODS {
        let mut push = |what: &str, geometry, before: String, ops: String| {
            cases.push(case(format!("lent, {method}: {what}"), geometry, &before, &ops));
        };
        let written = "scribble 1; create /a; append /a 5000 3; scribble 2; write /a 90 400 4; \
                       scribble 3; truncate /a 100";
        push("files are written beside it", pool(), format!("{lend}; {LARGE}"), written.into());
        push("the same, where data has checksums", full(), lend.into(), written.into());
        let given = format!("scribble 1; {give}; create /a; append /a 9000 3");
        push("it is given back", pool(), format!("create /b; {lend}"), given);
        let gone = "scribble 1; create /a; remount; append /a 9000 3; scribble 2; crash; unlink /a";
        push("a session ends meanwhile", pool(), lend.into(), gone.into());
    }
    // Before its program has given it back, nobody has what its file gives up.
    let ended = format!("{}; close 7; {LARGE}", METHODS[1].1);
    let ops = "scribble 1; write /large 0 100 5; give-back 0; append /large 5000 3";
    cases.push(case("lent, indirect: its file ends first", pool(), &ended, ops));
    let punched = format!("{}; fallocate @7 punch 0 2097152; {LARGE}", METHODS[2].1);
    cases.push(case("lent, mmap: its part of the file goes first", pool(), &punched, ops));
    let held = Geometry { held: true, ..pool() };
    let ops = "write /large 0 9000 3; create /a; append /a 9000 4; crash; unlink /large; \
               create /b; append /b 5000 5; remount; unlink /a";
    cases.push(case("held: an owner is gone, and its program is not", held, LARGE, ops));
    cases
}
