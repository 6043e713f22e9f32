//! Names and targets of every length that matters, for what makes and removes them.

use crate::case::{Case, Geometry};
use crate::workload::build::{case, roomy, small};

/// Lengths at which a name needs one more line, and the longest ones.
const LENGTHS: [usize; 18] =
    [1, 2, 15, 16, 17, 55, 56, 57, 95, 96, 97, 135, 136, 137, 176, 177, 254, 255];
/// The longest name that short log pages have room for.
const SHORT_PAGES_MAX: usize = 136;
/// Lengths of targets: in one line, in several, in a page of the file's own.
const TARGETS: [usize; 14] = [1, 15, 16, 17, 55, 56, 57, 96, 97, 135, 136, 137, 255, 4095];

/// What is done to a name `N`, by what must be there before; `M` is another as long.
const SHAPES: [(&str, &str, &str); 12] = [
    ("create", "", "create /N"),
    ("create in a directory", "mkdir /d", "create /d/N"),
    ("mkdir", "", "mkdir /N"),
    ("symlink", "", "symlink /N x"),
    ("link", "create /a", "link /a /N"),
    ("unlink", "create /N", "unlink /N"),
    ("rmdir", "mkdir /N", "rmdir /N"),
    ("rename to it", "create /a", "rename /a /N"),
    ("rename from it", "create /N", "rename /N /a"),
    ("rename from and to", "create /N", "rename /N /M"),
    ("rename over it", "create /N; create /M", "rename /N /M"),
    ("exchange", "create /N; mkdir /M", "rename /N /M exchange"),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for len in LENGTHS {
        let replaced = |text: &str| {
            text.replace('N', &format!("%=0.{len}")).replace('M', &format!("%=1.{len}"))
        };
        for (shape, before, ops) in SHAPES {
            let name = format!("{shape}: a name of {len}");
            cases.push(case(name, geometry(len), &replaced(before), &replaced(ops)));
        }
    }
    for len in TARGETS {
        let target = format!("symlink /s %=1.{len}");
        let geometry = if len == 136 { roomy() } else { geometry(len) };
        cases.push(case(format!("symlink: a target of {len}"), geometry.clone(), "", &target));
        cases.push(case(format!("unlink: a target of {len}"), geometry, &target, "unlink /s"));
    }
    cases.extend(too_long());
    cases
}

fn geometry(len: usize) -> Geometry {
    if len > SHORT_PAGES_MAX { roomy() } else { small() }
}

/// Operations that must fail, and leave nothing.
fn too_long() -> Vec<Case> {
    let fails = [
        ("create", "create /%=0.256"),
        ("mkdir", "mkdir /%=0.256"),
        ("link", "link /a /%=0.256"),
        ("rename", "rename /a /%=0.256"),
        ("symlink", "symlink /s %=0.4096"),
        ("create over a name", "create /a"),
        ("mkdir over a name", "mkdir /a"),
        ("create under a file", "create /a/b"),
        ("create under nothing", "create /x/b"),
        ("unlink of a directory", "unlink /d"),
        ("rmdir of a file", "rmdir /a"),
        ("rmdir of a full directory", "rmdir /d"),
        ("link of a directory", "link /d /x"),
        ("unlink of nothing", "unlink /x"),
    ];
    let before = "create /a; mkdir /d; create /d/f";
    let all = fails.into_iter();
    all.map(|(name, ops)| case(format!("fails: {name}, {ops}"), small(), before, ops)).collect()
}
