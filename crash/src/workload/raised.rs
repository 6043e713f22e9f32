//! Pools with snapshots get a higher level: what these see lies where copies or tables go, and moves.

use crate::case::{Case, Geometry};
use crate::workload::build::{case, repeated, small};

/// Snapshots of what is there, of what has been overwritten, cut off, renamed and removed since, of logs of pages and inline ones.
const PAST: &str = "create /f; append /f 20000 1; write /f 8192 4096 2; setxattr /f user.x 5000; mkdir /d; create /d/x; \
                    append /d/x 5000 3; symlink /l %=0.60; snapshot a; write /f 4096 4096 4; rename /d /e; \
                    removexattr /f user.x; append /f 3000 5; link /e/x /e/y; write /f 100 40 9; write /f 120 40 3; snapshot b; unlink /e/x; unlink /e/y; \
                    unlink /l; truncate /f 15000; create /g; append /g 9000 7";

/// Each raise, and what may follow.
pub(super) fn raised() -> Vec<Case> {
    let plain = Geometry { bytes: 192 << 10, ..small() };
    let large = Geometry { bytes: 480 << 10, ..small() };
    let copies = Geometry { dead_zone: Some(0), bytes: 512 << 10, ..small() };
    let named = |what: &str| format!("a pool with snapshots gets {what}");
    // (Of a file that lives on, and of one that is there for the snapshot alone.)
    let waits = "create /h; append /h 9000 1; create /j; append /j 9000 2; snapshot a";
    let overwritten = "write /h 100 40 8; write /h 110 40 5; write /j 4200 50 9; write /j 4220 50 6; snapshot b; write /h 100 40 7; unlink /j; \
                       protect full 0; drop a";
    let churn = repeated(3, "write /f 0 4096 #; snapshot s#; write /f 4096 4096 1#; drop s#");
    vec![
        case(
            named("second copies"),
            plain.clone(),
            PAST,
            "protect metadata 0; drop a; append /g 9",
        ),
        case(
            named("second copies, and goes back"),
            plain,
            PAST,
            "protect metadata 60000; rollback a",
        ),
        case(named("checksums"), copies.clone(), PAST, "protect full 0; drop b; append /g 9"),
        case(named("copies and checksums"), large, PAST, "protect full 60000; rollback b"),
        case(
            named("checksums, and has overwrites on their way"),
            copies.clone(),
            waits,
            overwritten,
        ),
        case(
            named("checksums, and snapshots come and go"),
            copies,
            PAST,
            &format!("protect full 0; {churn}drop a"),
        ),
    ]
}
