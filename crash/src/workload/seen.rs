//! Logs that are written anew behind what a snapshot sees of them.

use crate::case::{Case, Geometry};
use crate::workload::aged::outcome;
use crate::workload::build::{case, lanes, repeated, small};

/// Records that are tried, at most, to bring the rewriting about.
const RECORDS_MOST: u64 = 18;

/// What the snapshot `a` sees, what has become of it since, and whose log is then written anew.
struct Past {
    name: &'static str,
    before: &'static str,
    since: &'static str,
    /// What gives that log more records: one that stays true among some that others stand in the place of.
    again: &'static str,
}

const PASTS: &[Past] = &[
    Past {
        name: "a file that is overwritten",
        before: "create /f; append /f 9000 1",
        since: "write /f 0 4096 2; write /f 4096 4096 3",
        again: "write /f #0000 9 1; write /f 0 4096 #; write /f 0 4096 7#; write /f 0 4096 8#",
    },
    Past {
        name: "a file with a log of pages",
        before: "create /f; append /f 9000 1; chown /f 1 2; chown /f 2 2; chown /f 3 2; chown /f 4 2; chown /f 5 2; \
                 chown /f 6 2",
        since: "write /f 0 4096 2; append /f 3000 4",
        again: "write /f #0000 9 1; write /f 0 4096 #; write /f 0 4096 7#; write /f 0 4096 8#",
    },
    Past {
        name: "holes and ends",
        before: "create /f; append /f 20000 1",
        since: "punch /f 4096 4096; truncate /f 9000; append /f 3000 2",
        again: "write /f #0000 9 1; write /f 0 4096 #; write /f 0 4096 7#; write /f 0 4096 8#",
    },
    Past {
        name: "an overwrite on its way",
        before: "create /f; append /f 8192 1; write /f 9 9 2",
        since: "write /f 100 10 3; write /f 200 10 4",
        again: "write /f #0000 9 1; write /f 4096 4096 #; write /f 4096 4096 7#; write /f 100 10 #",
    },
    Past {
        name: "entries",
        before: "mkdir /d; create /d/x; create /d/y; create /d/z",
        since: "unlink /d/x; rename /d/y /d/z",
        again: "link /d/z /d/l; unlink /d/l",
    },
    Past {
        name: "attributes",
        before: "create /f; setxattr /f user.x 30; setxattr /f user.y 5000; setxattr /f user.z 9",
        since: "removexattr /f user.z; setxattr /f user.y 20; setxattr /f user.n 20",
        again: "write /f #0000 9 1; setxattr /f user.x 9 #; setxattr /f user.x 9 7#",
    },
];

/// Each past, and what may follow.
pub(super) fn seen_logs() -> Vec<Case> {
    let twins = Geometry { dead_zone: Some(0), bytes: 512 << 10, ..small() };
    let full = Geometry { strip: Some(512), ..twins.clone() };
    let roomy = || Geometry { bytes: 160 << 10, ..small() };
    let mut cases = Vec::new();
    for past in PASTS {
        let seen = format!("{}; snapshot a; {}", past.before, past.since);
        let mut add = |what: &str, geometry: Geometry, then: &str| {
            let name = format!("behind what a snapshot sees: {}{what}", past.name);
            let with = |times, then: &str| {
                let before = format!("{seen}; {}", repeated(times, past.again));
                case(
                    name.clone(),
                    geometry.clone(),
                    &before,
                    &format!("{}{then}", repeated(3, past.again)),
                )
            };
            let is_good = |times: &u64| outcome(&with(*times, "")).is_ok_and(|ran| ran.thorough);
            if let Some(times) = (1..RECORDS_MOST).find(is_good) {
                cases.push(with(times, then));
            }
        };
        add("", roomy(), "drop a; maintain; create /n");
        add(", and a rollback", roomy(), "rollback a; create /n");
        add(", where metadata has copies", twins.clone(), "create /n");
        add(", where data has checksums", full.clone(), "create /n");
        let later =
            format!("snapshot b; {}; drop a; maintain; rollback b", repeated(6, past.again));
        add(", and a later snapshot", roomy(), &later);
    }
    cases
}

/// Snapshots that come and go: pages in the middle of a log that none sees any more, several in a row and apart from each
/// other, are unlinked.
pub(super) fn unseen_pages() -> Vec<Case> {
    let twins = Geometry { dead_zone: Some(0), bytes: 512 << 10, ..small() };
    let roomy = Geometry { bytes: 160 << 10, ..small() };
    let all = [
        ("a file", "create /f; append /f 12288 1", "write /f 0 4096 #; write /f 4096 4096 #"),
        (
            "attributes",
            "create /f; append /f 9000 1; setxattr /f user.x 9",
            "setxattr /f user.x 9 #",
        ),
        (
            "names",
            "mkdir /d; create /d/x; create /d/y",
            "link /d/x /d/l; link /d/x /d/m; link /d/x /d/n; link /d/x /d/o; link /d/x /d/p#; \
             unlink /d/l; unlink /d/m; unlink /d/n; unlink /d/o; unlink /d/p#",
        ),
    ];
    let rounds = |change: &str| {
        let round = |times, then: &str| format!("{}; {then}", repeated(times, change));
        let names = round(6, "snapshot b; drop a; maintain");
        format!("{names}; {}", round(6, "snapshot c; drop b; maintain"))
    };
    let mut cases = Vec::new();
    for (name, before, change) in all {
        for geometry in [&roomy, &twins] {
            let name =
                format!("pages that no snapshot sees any more: {name}, {} bytes", geometry.bytes);
            let with = |times| {
                let more = if times > 0 {
                    format!("; {}", repeated(times, change))
                } else {
                    String::new()
                };
                let before = format!("{before}; snapshot a; {}{more}", rounds(change));
                let ops =
                    format!("{}; snapshot d; drop c; maintain; rollback d", repeated(4, change));
                case(name.clone(), geometry.clone(), &before, &ops)
            };
            let is_good = |times: &u64| outcome(&with(*times)).is_ok_and(|ran| ran.fast);
            cases.extend((0..9).find(is_good).map(with));
        }
    }
    cases
}

/// A log that one thread writes anew, and what the other does: name, set-up, and the two lists.
pub(super) fn seen_beside() -> Vec<[String; 4]> {
    let writes = repeated(2, "write /k 0 4096 9#");
    let before = |times| {
        let churn = repeated(times, "write /k #0000 9 1; write /k 0 4096 #; write /k 0 4096 7#");
        format!("create /k; create /g; append /k 4096 1; snapshot a; {churn}")
    };
    let is_good = |times: &u64| {
        outcome(&case("", seen_pool(), &before(*times), &writes)).is_ok_and(|ran| ran.thorough)
    };
    let Some(times) = (1..2 * RECORDS_MOST).find(is_good) else { return Vec::new() };
    let all = [
        ("a log is written anew behind a snapshot, one is made", "snapshot b"),
        ("a log is written anew behind a snapshot, which ends", "drop a"),
        ("pages behind a snapshot are taken", "append /g 4096 7; append /g 4096 8"),
    ];
    let text = |(name, beside): &(&str, &str)| {
        [(*name).to_owned(), before(times), writes.clone(), (*beside).to_owned()]
    };
    all.iter().map(text).collect()
}

/// The pool of [`seen_beside`].
pub(super) fn seen_pool() -> Geometry {
    Geometry { bytes: 160 << 10, ..lanes(1) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    /// All that is written anew there is older than the snapshot.
    #[test]
    fn logs_are_written_anew_in_all_cases() {
        let names: Vec<String> = seen_logs().into_iter().map(|case| case.name).collect();
        assert_eq!(names.len(), 5 * PASTS.len(), "{names:#?}");
        assert_eq!(seen_beside().len(), 3);
        let names: Vec<String> = unseen_pages().into_iter().map(|case| case.name).collect();
        assert_eq!(names.len(), 6, "{names:#?}");
    }
}
