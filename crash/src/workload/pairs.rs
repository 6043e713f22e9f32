//! Two threads on the same things, or on neighbours.

use crate::case::{Case, Geometry, Trouble};
use crate::workload::aged::outcome;
use crate::workload::build::{ALL_LINES, case, lanes, operations, relaxed, repeated, roomy, small};
use crate::workload::seen::{seen_beside, seen_pool};
use crate::workload::{scrubbed, sectors, side_by_side, writers};

/// What there is before, what one thread does, what the other does.
type Both = (&'static str, &'static str, &'static str, &'static str);

/// On names.
const NAMES: [Both; 22] = [
    ("create in one directory", "", "create /a", "create /b"),
    ("create of one name", "", "create /a", "create /a"),
    ("create in two directories", "mkdir /d; mkdir /e", "create /d/a", "create /e/a"),
    ("mkdir in one directory", "", "mkdir /d; create /d/a", "mkdir /e; create /e/a"),
    ("create and unlink of one name", "create /a", "unlink /a", "create /a"),
    ("create and unlink in turn", "", "create /a; unlink /a", "create /a; unlink /a"),
    ("unlink of two names", "create /a; create /b", "unlink /a", "unlink /b"),
    ("unlink of one name", "create /a; append /a 5000", "unlink /a", "unlink /a"),
    ("unlink of two links", "create /a; link /a /b", "unlink /a", "unlink /b"),
    ("link and unlink", "create /a", "link /a /b", "unlink /a"),
    ("link and link", "create /a; mkdir /d", "link /a /b", "link /a /d/b"),
    ("create in a directory that goes", "mkdir /d", "create /d/a", "rmdir /d"),
    (
        "renames that cross",
        "mkdir /d; mkdir /e; create /d/a; create /e/b",
        "rename /d/a /e/a",
        "rename /e/b /d/b",
    ),
    ("renames to one name", "create /a; create /b", "rename /a /c", "rename /b /c"),
    ("renames there and back", "create /a; create /b", "rename /a /b", "rename /b /a"),
    (
        "renames of directories into each other",
        "mkdir /d; mkdir /e",
        "rename /d /e/d",
        "rename /e /d/e",
    ),
    (
        "exchange and exchange",
        "create /a; create /b; create /c",
        "rename /a /b exchange",
        "rename /b /c exchange",
    ),
    (
        "exchange across and unlink",
        "mkdir /d; create /a; mkdir /d/s",
        "rename /a /d/s exchange",
        "unlink /a",
    ),
    ("rename over and unlink", "create /a; create /b; append /b 100", "rename /a /b", "unlink /b"),
    (
        "rename over and write of the target",
        "create /a; create /b; append /b 100",
        "rename /a /b",
        "append /b 5000",
    ),
    ("rename over and link of the target", "create /a; create /b", "rename /a /b", "link /b /c"),
    (
        "rename of a directory and create in it",
        "mkdir /d; mkdir /e",
        "rename /d /e/d",
        "create /d/a",
    ),
];

/// On data and attributes.
const DATA: [Both; 21] = [
    ("append and append", "create /a", "append /a 100 1", "append /a 50 2"),
    ("appends of pages", "create /a", "append /a 4096 1; append /a 10 3", "append /a 5000 2"),
    (
        "write and truncate",
        "create /a; write /a 0 9000 1",
        "write /a 4000 3000 2",
        "truncate /a 4100",
    ),
    ("append and truncate", "create /a; write /a 0 5000 1", "append /a 4000 2", "truncate /a 0"),
    ("write and extend", "create /a; write /a 0 100 1", "write /a 90 20 2", "truncate /a 6000"),
    (
        "overwrites of one page",
        "create /a; write /a 0 4096 1",
        "write /a 100 200 2",
        "write /a 150 300 3",
    ),
    (
        "overwrites of two pages",
        "create /a; write /a 0 8192 1",
        "write /a 100 200 2",
        "write /a 5000 300 3",
    ),
    (
        "overwrites again",
        "create /a; write /a 0 4096 1; write /a 0 64 4",
        "write /a 100 200 2",
        "write /a 3 9 3; write /a 1 2 5",
    ),
    (
        "overwrites of two files",
        "create /a; create /b; write /a 0 4096 1; write /b 0 4096 2",
        "write /a 7 70 3",
        "write /b 8 80 4",
    ),
    (
        "overwrite and punch",
        "create /a; write /a 0 8192 1",
        "write /a 100 5000 2",
        "punch /a 0 6000",
    ),
    (
        "overwrite and zero",
        "create /a; write /a 0 8192 1; write /a 64 64 3",
        "write /a 100 100 2",
        "zero /a 50 100",
    ),
    (
        "unlink and write of an open file",
        "create /a; write /a 0 5000 1; open /a 0",
        "unlink /a",
        "write @0 4000 2000 2",
    ),
    (
        "close and create",
        "create /a; write /a 0 5000 1; open /a 0; unlink /a",
        "close 0",
        "create /b; append /b 5000 2",
    ),
    ("chmod and write", "create /a; write /a 0 5000 1", "chmod /a 0o600", "write /a 10 20 2"),
    ("chmod and unlink", "create /a", "chmod /a 0o600", "unlink /a"),
    ("chown of a directory and create in it", "mkdir /d", "chown /d 4 5", "create /d/a"),
    (
        "attributes of one name",
        "create /a; setxattr /a user.x 9 1",
        "setxattr /a user.x 5000 2",
        "setxattr /a user.x 30 3",
    ),
    (
        "attributes of two names",
        "create /a; setxattr /a user.x 9 1",
        "removexattr /a user.x",
        "setxattr /a user.y 5000 3",
    ),
    (
        "value freed and taken",
        "create /a; setxattr /a user.x 5000 1; create /b",
        "setxattr /a user.x 9 2",
        "append /b 8192 3",
    ),
    (
        "attribute of a directory and create in it",
        "mkdir /d",
        "setxattr /d user.x 300 1",
        "create /d/a",
    ),
    ("fsync and append", "create /a; append /a 100", "fsync /a", "append /a 100 2"),
];

/// Beside background work, and where what one frees the other takes.
const WORK: [Both; 11] = [
    // (The threads begin with a pool just opened: what a round is to free goes in front of it.)
    ("round and create", "create /a; create /b", "unlink /a; maintain", "create /c"),
    (
        "round and unlink",
        "create /a; append /a 5000; create /b",
        "unlink /b; maintain",
        "unlink /a",
    ),
    (
        "round and overwrite",
        "create /a; write /a 0 8192 1; create /b",
        "unlink /b; maintain",
        "write /a 0 8192 3",
    ),
    ("round and round", "create /b; create /z", "unlink /z; maintain", "unlink /b; maintain"),
    ("round and a slot", "create /b; create /z", "unlink /z; maintain", "unlink /b; create /c"),
    (
        "two rounds and a slot",
        "create /b; create /z",
        "unlink /z; maintain",
        "unlink /b; maintain; create /c",
    ),
    (
        "round and rename over",
        "create /a; create /b; append /b 5000; create /c",
        "unlink /c; maintain",
        "rename /a /b",
    ),
    (
        "freed and taken",
        "create /a; write /a 0 8192 1; create /b",
        "truncate /a 0",
        "append /b 4096 2",
    ),
    (
        "unlinked and taken",
        "create /a; write /a 0 8192 1; create /b",
        "unlink /a",
        "create /c; append /b 4096 2",
    ),
    (
        "overwritten and taken",
        "create /a; write /a 0 8192 1; create /b",
        "write /a 0 4096 3",
        "append /b 4096 2",
    ),
    (
        "slots freed and taken",
        "create /a; create /b; mkdir /d",
        "unlink /a; unlink /b",
        "create /d/x; create /d/y",
    ),
];

/// A snapshot that comes between writes of what is mapped. (What a program has stored and not yet written back may be in one or not,
/// as in the file: that is no order of whole operations.)
const MAPPED: [Both; 1] = [(
    "snapshot and writes of what is mapped",
    "create /a; write /a 0 8192 1; snapshot z",
    "snapshot a; drop z",
    "map /a; write /a 100 8 4; truncate /a 4096; unmap /a",
)];

/// A snapshot that comes between.
const SNAPSHOTS: [Both; 9] = [
    ("snapshot and create", "snapshot z; mkdir /d", "snapshot a", "create /d/a; append /d/a 100"),
    (
        "snapshot and overwrite in place",
        "create /a; write /a 0 4096 1; snapshot z; write /a 0 4096 2; write /a 9 9 3",
        "snapshot a",
        "write /a 100 200 4; write /a 300 20 5",
    ),
    (
        "snapshot and append",
        "snapshot z; create /a; append /a 5000",
        "snapshot a",
        "append /a 100 1; append /a 100 2",
    ),
    (
        "snapshot and rename across",
        "snapshot z; mkdir /d; mkdir /e; create /d/a",
        "snapshot a",
        "rename /d/a /e/b",
    ),
    (
        "snapshot and unlink",
        "snapshot z; create /a; append /a 5000",
        "snapshot a",
        "unlink /a; create /b",
    ),
    (
        "snapshot and truncations",
        "snapshot z; create /a; write /a 0 9000 1",
        "snapshot a",
        "truncate /a 4100; truncate /a 9000",
    ),
    (
        "end of a snapshot and overwrite",
        "create /a; write /a 0 8192 1; snapshot a; write /a 0 4096 2",
        "drop a; maintain",
        "write /a 4096 4096 3; write /a 9 9 4",
    ),
    (
        "two snapshots",
        "snapshot z; create /a; append /a 100",
        "snapshot a; drop z",
        "snapshot b; append /a 100 2",
    ),
    (
        "end of a snapshot and unlink",
        "create /a; write /a 0 8192 1; snapshot a; snapshot b",
        "drop b; maintain",
        "unlink /a",
    ),
];

/// Cases of two threads. One lane for both is mostly the same but for a wait: every third has it.
/// What one frees comes to the other only there.
pub fn two_threads() -> Vec<Case> {
    let texts = NAMES.iter().chain(&DATA).enumerate();
    let of_tables = texts.map(|(index, text)| match index % 3 {
        0 => both(text, "one lane", lanes(1)),
        _ => both(text, "two lanes", lanes(2)),
    });
    let mut cases: Vec<Case> = of_tables.collect();
    for (count, way) in WAYS {
        cases.extend(WORK.iter().map(|text| both(text, way, lanes(count))));
        cases.extend(SNAPSHOTS.iter().map(|text| both(text, way, lanes(count))));
    }
    cases.extend(DATA[3..8].iter().map(|text| {
        both(text, "relaxed", Geometry { lanes: 2, bytes: lanes(2).bytes, ..relaxed() })
    }));
    cases.extend(
        MAPPED.iter().map(|text| both(text, "mapped", Geometry { mapped: true, ..lanes(2) })),
    );
    cases.extend(growth());
    cases.extend(nameless());
    cases.extend(rounds());
    cases.extend(looks());
    cases.extend(full());
    cases.extend(collections());
    cases.extend(sessions());
    for (count, way) in WAYS {
        cases.extend(writers::BESIDE.iter().map(|text| both(text, way, lanes(count))));
        cases.extend(sectors::BESIDE.iter().map(|text| both(text, way, sectors::pool(count))));
    }
    cases.extend(
        side_by_side::BESIDE.iter().map(|text| both(text, "two lanes", side_by_side::pool(2))),
    );
    // (A file of 2 MiB: each state takes long to look at.)
    cases.extend(sectors::HELD.iter().map(|text| both(text, "two lanes", sectors::held(2))));
    let strips = writers::BESIDE[..3].iter();
    cases.extend(strips.map(|text| both(text, "with checksums", writers::with_strips())));
    cases.extend(
        sectors::MAPPED
            .iter()
            .map(|text| both(text, "mapped", Geometry { mapped: true, ..sectors::pool(2) })),
    );
    for (geometry, level, texts) in scrubbed::beside() {
        let texts =
            texts.iter().map(|(name, before, ops, beside)| (*name, &**before, *ops, *beside));
        cases.extend(texts.map(|text| both(&text, level, geometry.clone())));
    }
    let snapshots = SNAPSHOTS.iter();
    cases.extend(snapshots.map(|text| both(text, "with checksums", writers::with_strips())));
    let mapped = Geometry { mapped: true, ..writers::with_strips() };
    cases.extend(MAPPED.iter().map(|text| both(text, "mapped, with checksums", mapped.clone())));
    cases
}

/// Lanes, and how a case is called for them.
const WAYS: [(u32, &str); 2] = [(1, "one lane"), (2, "two lanes")];

fn both(text: &(&str, &str, &str, &str), way: &str, geometry: Geometry) -> Case {
    let (name, before, ops, beside) = text;
    Case {
        name: format!("two threads: {name}, {way}"),
        trouble: Trouble::Power,
        geometry,
        before: operations(before),
        ops: operations(ops),
        beside: operations(beside),
    }
}

/// A case's name, pool, set-up, and the two lists.
type OnPool<'a> = (&'a str, &'a Geometry, &'a str, &'a str, &'a str);

fn on_pool((name, pool, before, ops, beside): &OnPool<'_>, way: &str) -> Case {
    both(&(name, before, ops, beside), way, (*pool).clone())
}

/// Tables, logs and collections that both bring about.
fn growth() -> Vec<Case> {
    let two = lanes(2);
    let long = Geometry { log_lines: ALL_LINES, lanes: 2, bytes: two.bytes, ..roomy() };
    let tables = format!("mkdir /d; {}", repeated(12, "create /f#"));
    let log = format!("create /k; mkdir /d; {}", repeated(9, "link /k /d/l#"));
    let churn = format!("create /k; {}", repeated(24, "write /k 0 4096 #"));
    let names = format!("create /k; mkdir /d; {}", repeated(12, "link /k /d/l; unlink /d/l"));
    let three = "create /x1; create /x2; create /x3";
    let three_below = "create /d/y1; create /d/y2; create /d/y3";
    let links = "link /k /d/x1; link /k /d/x2";
    let link_goes = "link /k /d/x; unlink /d/x";
    let writes = "write /k 0 4096 91; write /k 0 4096 92";
    let all: [OnPool<'_>; 8] = [
        ("tables grow", &two, &tables, three, three_below),
        ("one piece fills, one empties", &two, &tables, three, "unlink /f1; unlink /f3; maintain"),
        ("a log rolls over", &two, &log, links, "unlink /d/l1; link /k /d/y1"),
        ("long names in one log", &long, &log, "create /d/%=0.255", "create /d/%=1.200"),
        ("collection and append", &two, &churn, writes, "append /k 100"),
        ("collection and unlink", &two, &churn, "write /k 0 4096 91; chmod /k 1", "unlink /k"),
        ("collection and create", &two, &names, link_goes, "create /d/y"),
        ("collection and rename out", &two, &names, link_goes, "link /k /d/y; rename /d/y /y"),
    ];
    let mut cases: Vec<Case> = all.iter().map(|text| on_pool(text, "two lanes")).collect();
    cases.extend(freed_by_collection());
    cases.extend(seen_beside().iter().map(|[name, before, ops, beside]| {
        on_pool(&(name, &seen_pool(), before, ops, beside), "one lane")
    }));
    // Some number of files fills the table just so that either of the two must let it grow.
    for files in 2..10 {
        let before = format!("mkdir /d; mkdir /e; {}", repeated(files, "create /f#"));
        let name = format!("the table grows after {files} files");
        let text: OnPool<'_> = (&name, &lanes(1), &before, "create /d/x", "create /e/y");
        cases.push(on_pool(&text, "one lane"));
    }
    cases
}

/// Files without a name, beside a thread that makes the same name, or takes their pages.
fn nameless() -> Vec<Case> {
    // The next record of `/b` takes a log page; the file has one that is not full.
    let full = format!("create /b; {}", repeated(5, "chown /b # 7"));
    let goes = format!("tmpfile / 0; {}close 0", repeated(7, "chown @0 # 7"));
    let linked = "tmpfile / 0; append @0 5000 1; link @0 /d/m";
    let one = lanes(1);
    let all: [OnPool<'_>; 3] = [
        (
            "a file without a name goes, its page is taken",
            &one,
            &full,
            &goes,
            "maintain; chown /b 9 9",
        ),
        (
            "a file without a name is linked where one is made",
            &one,
            "mkdir /d",
            linked,
            "create /d/m",
        ),
        (
            "files without a name",
            &one,
            "mkdir /d",
            "tmpfile /d 0; link @0 /a",
            "tmpfile /d 1; close 1",
        ),
    ];
    all.iter().map(|text| on_pool(text, "one lane")).collect()
}

/// Log pages that a collection frees, beside a thread that takes pages in the same lane.
fn freed_by_collection() -> Vec<Case> {
    let links = repeated(6, "link /k /d/a#");
    let churn = |times| {
        let churn = repeated(times, "link /k /d/l; unlink /d/l");
        format!("create /a; create /k; mkdir /d; {links}; {churn}")
    };
    let modes = "chmod /k 0o610; chmod /k 0o620; chmod /k 0o630; chmod /k 0o640; chmod /k 0o650; \
                 chmod /k 0o660; chmod /k 0o670; chmod /k 0o601";
    let filled = repeated(4, "append /a 4096 #");
    let thorough = format!("create /a; create /k; {modes}; {filled}");
    let roomy = Geometry { bytes: 160 << 10, ..small() };
    let tight = Geometry { bytes: 72 << 10, ..small() };
    let again = "link /k /d/l; unlink /d/l; link /k /d/l";
    let is_good = |times: &u64| {
        outcome(&case("", roomy.clone(), &churn(*times), again)).is_ok_and(|ran| ran.fast)
    };
    let Some(fast) = (1..18).find(is_good).map(churn) else { return Vec::new() };
    let takes = "append /a 4096 7; append /a 4096 8; append /a 4096 9";
    let all: [OnPool<'_>; 2] = [
        ("a page of a fast collection is taken", &roomy, &fast, again, "append /a 4096 2"),
        (
            "pages of a thorough collection are taken",
            &tight,
            &thorough,
            "chmod /k 0o700; chmod /k 0o701",
            takes,
        ),
    ];
    all.iter().map(|text| on_pool(text, "one lane")).collect()
}

/// One thread looks at what the other changes: what it has seen must outlive a crash.
fn looks() -> Vec<Case> {
    let before = "create /a; write /a 0 5000 1; mkdir /d; create /d/c";
    let pairs = [
        ("chmod /a 0o600", "stat /a"),
        ("append /a 100 2", "stat /a"),
        ("write /a 100 200 2", "read /a 0 5000"),
        ("write /a 0 4096 2", "read /a 0 5000"),
        ("truncate /a 100", "read /a 0 5000"),
        ("create /d/x", "list /d"),
        ("unlink /d/c", "list /d"),
        ("rename /d/c /d/y", "list /d"),
        ("link /a /d/l", "stat /a"),
    ];
    let case = |(other, look): &(&str, &str)| {
        on_pool(&(&format!("{other} and {look}"), &lanes(2), before, other, look), "two lanes")
    };
    pairs.iter().map(case).collect()
}

/// What a round settles while others are in the middle of what they do.
fn rounds() -> Vec<Case> {
    let before = "mkdir /d; create /b; create /c; create /d/e";
    let round = "unlink /b; maintain";
    let others = ["create /x", "rename /c /d/c", "unlink /d/e", "link /c /d/l", "mkdir /d/y"];
    let mut cases = Vec::new();
    for (count, way) in WAYS {
        for other in others {
            let name = format!("a round and {other}");
            cases.push(on_pool(&(&name, &lanes(count), before, other, round), way));
        }
    }
    cases
}

/// What a collection's round frees, others take at once.
fn collections() -> Vec<Case> {
    let churn = format!("mkdir /e; create /k; {}", repeated(24, "write /k 0 4096 #"));
    let rewrite = repeated(4, "write /k 0 4096 9#");
    let mut cases = Vec::new();
    for (count, way) in WAYS {
        let mut add = |name: &str, more: &str, first: &str, beside: &str| {
            let before = format!("{churn}; {more}");
            let ops = format!("{first}; {rewrite}");
            cases.push(on_pool(&(name, &lanes(count), &before, &ops, beside), way));
        };
        add("collection and a slot", "create /q", "unlink /q", "create /e/y");
        add(
            "collection and slots",
            "create /q; create /p",
            "unlink /q; unlink /p",
            "create /e/y; create /e/z",
        );
    }
    // (Another file's log, which was just written anew, goes back inline.)
    let (most, full) = (repeated(7, "chmod /a 0o64#"), repeated(5, "chmod /k 0o64#"));
    let before = format!("mkdir /e; create /a; {most}create /k; {full}create /q");
    let inline = format!("{}unlink /q; chmod /k 0o611", repeated(3, "chmod /a 0o60#"));
    for (count, way) in WAYS {
        let text = ("inline and a slot", &lanes(count), &*before, &*inline, "create /e/y");
        cases.push(on_pool(&text, way));
    }
    cases
}

/// The session is raised while the other is in the middle of what it does.
fn sessions() -> Vec<Case> {
    let before = "mkdir /d; create /a; create /b";
    let others = ["rename /a /d/a", "unlink /b", "create /d/y; create /d/z"];
    let creates = "create /x1; create /x2; create /x3";
    let mut cases = Vec::new();
    for (count, way) in WAYS {
        let pool = Geometry { nonces: Some(3), ..lanes(count) };
        for other in others {
            let name = format!("the session ends beside {other}");
            cases.push(on_pool(&(&name, &pool, before, creates, other), way));
        }
    }
    cases
}

/// What the last pages go to.
fn full() -> Vec<Case> {
    let filled =
        format!("create /a; write /a 0 8192 1; create /b; {}", repeated(16, "append /b 4096"));
    let kept = format!(
        "create /a; write /a 0 8192 1; create /b; append /b 8192 1; snapshot a; truncate /b 0; {}",
        repeated(16, "append /b 4096")
    );
    let all = [
        ("full: freed and taken", &filled, "truncate /b 4096", "append /a 8192 2"),
        ("full: unlinked and taken", &filled, "unlink /b", "create /c; append /c 8192 2"),
        ("full: both take the last", &filled, "append /a 4096 3", "create /c; append /c 4096 2"),
        ("full: round and taken", &filled, "unlink /b; maintain", "write /a 0 8192 2"),
        (
            "full: a snapshot ends, its pages are taken",
            &kept,
            "drop a",
            "append /a 4096 2; append /a 4096 3",
        ),
    ];
    let mut cases = Vec::new();
    for (way, pool) in [("one lane", small()), ("two lanes", lanes(2))] {
        let pool = Geometry { bytes: 72 << 10, ..pool };
        let texts =
            all.map(|(name, before, ops, beside)| (name, &pool, before.as_str(), ops, beside));
        cases.extend(texts.iter().map(|text| on_pool(text, way)));
    }
    cases
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_collected_beside_who_takes_pages() {
        assert_eq!(freed_by_collection().len(), 2);
    }
}
