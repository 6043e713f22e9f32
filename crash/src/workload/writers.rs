//! Whole pages of one file from two threads: who finds it locked stores its pages first.

use crate::case::Geometry;
use crate::workload::build::small;

/// What there is before, what one thread does, what the other does.
pub(super) const BESIDE: [(&str, &str, &str, &str); 7] = [
    ("whole pages", "create /a; write /a 0 8192 1", "write /a 0 4096 2", "write /a 4096 4096 3"),
    (
        "whole pages that overlap",
        "create /a; write /a 0 8192 1",
        "write /a 0 8192 2",
        "write /a 4096 8192 3; write /a 0 4096 4",
    ),
    (
        "whole pages at the end",
        "create /a; append /a 4096 1",
        "append /a 4096 2",
        "append /a 8192 3; append /a 4096 4",
    ),
    (
        "whole pages and a truncation",
        "create /a; write /a 0 8192 1",
        "truncate /a 100; append /a 50 4",
        "write /a 4096 4096 3",
    ),
    (
        "whole pages in a file without a name",
        "create /a; write /a 0 8192 1; open /a 0",
        "unlink /a",
        "write @0 4096 4096 2",
    ),
    (
        "whole pages and parts of them",
        "create /a; write /a 0 8192 1",
        "write /a 100 200 2; write /a 0 4096 5",
        "write /a 0 4096 3",
    ),
    (
        "whole pages and a snapshot",
        "create /a; write /a 0 8192 1",
        "write /a 0 4096 2; snapshot s",
        "write /a 0 4096 3",
    ),
];

/// A pool in which file data has checksums.
pub(super) fn with_strips() -> Geometry {
    Geometry { dead_zone: Some(0), strip: Some(512), bytes: 512 << 10, lanes: 2, ..small() }
}
