//! The rename matrix: where, what, over what, in which way.

use crate::case::Case;
use crate::workload::build::{case, lanes, roomy, small};

/// A name that takes several lines.
const LONG: &str = "%=0.200";

/// What is renamed: its name, and what there must be; `S` is the path.
const SOURCES: [(&str, &str); 9] = [
    ("a file", "create /S; append /S 100"),
    ("an empty file", "create /S"),
    ("a linked file", "create /S; link /S /l"),
    ("an open file", "create /S; append /S 100; open /S 0"),
    ("a symlink", "symlink /S x"),
    ("a directory", "mkdir /S"),
    ("a full directory", "mkdir /S; create /S/f"),
    ("an open directory", "mkdir /S; open /S 0"),
    ("a device", "mknod /S char 1 3"),
];

/// What is at the target: its name, what there must be, and the way; `T` is the path.
const TARGETS: [(&str, &str, &str); 14] = [
    ("to nothing", "", ""),
    ("over a file", "create /T; append /T 5000", ""),
    ("over an empty file", "create /T", ""),
    ("over a linked file", "create /T; link /T /k", ""),
    ("over an open file", "create /T; append /T 5000; open /T 1", ""),
    ("over a symlink", "symlink /T %=0.137", ""),
    ("over an empty directory", "mkdir /T", ""),
    ("over an open directory", "mkdir /T; open /T 1", ""),
    ("over a full directory", "mkdir /T; create /T/g", ""),
    ("exchange with a file", "create /T; append /T 10", "exchange"),
    ("exchange with a directory", "mkdir /T; create /T/g", "exchange"),
    ("exchange with nothing", "", "exchange"),
    ("noreplace to nothing", "", "noreplace"),
    ("noreplace over a file", "create /T", "noreplace"),
];

/// Where from and where to: its name, the directories, source and target.
const PLACES: [(&str, &str, &str, &str); 6] = [
    ("in the root", "", "s", "t"),
    ("in a directory", "mkdir /d", "d/s", "d/t"),
    ("downwards", "mkdir /d", "s", "d/t"),
    ("upwards", "mkdir /d", "d/s", "t"),
    ("across", "mkdir /d; mkdir /e", "d/s", "e/t"),
    ("across, same name", "mkdir /d; mkdir /d/e", "d/s", "d/e/s"),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (place_at, place) in PLACES.iter().enumerate() {
        for (source_at, source) in SOURCES.iter().enumerate() {
            for (target_at, target) in TARGETS.iter().enumerate() {
                // The first and the last place have all; of the others, plain sources alone.
                if matches!(place_at, 0 | 4) || matches!(source_at, 0 | 5) && target_at % 2 == 0 {
                    cases.push(of_matrix(place, source, target, false));
                }
            }
        }
    }
    for source in [&SOURCES[0], &SOURCES[5]] {
        for target in &TARGETS {
            cases.push(of_matrix(&PLACES[0], source, target, true));
        }
    }
    cases.extend(odd_ones());
    cases
}

fn of_matrix(
    (place, directories, from, to): &(&str, &str, &str, &str),
    (source, make_source): &(&str, &str),
    (target, make_target, how): &(&str, &str, &str),
    long: bool,
) -> Case {
    let (from, to) = match long {
        true => (from.replace('s', LONG), to.replace('t', "%=1.200")),
        false => ((*from).to_owned(), (*to).to_owned()),
    };
    let geometry = match (long, directories.is_empty()) {
        (true, _) => roomy(),
        (false, true) => small(),
        (false, false) => lanes(2),
    };
    let before = format!(
        "{directories}; {}; {}",
        make_source.replace('S', &from),
        make_target.replace('T', &to)
    );
    let names = if long { ", long names" } else { "" };
    let name = format!("rename: {source} {target} {place}{names}");
    case(name, geometry, &before, &format!("rename /{from} /{to} {how}"))
}

/// What does not fit the matrix.
fn odd_ones() -> Vec<Case> {
    let tree = "mkdir /d; mkdir /d/s; mkdir /e; create /a; create /d/s/f; link /a /l; create /b";
    let all = [
        ("a file to itself", "rename /a /a"),
        ("a file over a link of itself", "rename /a /l"),
        ("exchange with a link of itself", "rename /a /l exchange"),
        ("noreplace over a link of itself", "rename /a /l noreplace"),
        ("a directory below itself", "rename /d /d/s/x"),
        ("over its own parent", "rename /d/s /d"),
        ("exchange with its own parent", "rename /d/s /d exchange"),
        ("exchange with its own child", "rename /d /d/s exchange"),
        ("a directory up and out", "rename /d/s /s"),
        ("a full directory over an empty one", "rename /d/s /e"),
        ("exchange of directories at two depths", "rename /d/s /e exchange"),
        ("exchange of a directory and a deep file", "rename /e /d/s/f exchange"),
        ("of nothing", "rename /x /y"),
        ("of the root", "rename / /y"),
        ("under a file", "rename /b /a/x"),
        ("to a name that takes two lines more", "rename /b /%=0.100"),
    ];
    let cases = all.into_iter();
    cases.map(|(name, ops)| case(format!("rename: {name}"), lanes(2), tree, ops)).collect()
}
