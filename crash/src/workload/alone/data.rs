//! Writes: every phase and length at the edges of lines and pages, by every way that data
//! takes (a fresh page, the rest of a page, the journal, in place, a copy).

use crate::case::{Case, Geometry};
use crate::workload::build::{case, huge, lanes, relaxed, small};

/// Odd lengths: within a word, a word, over it.
const ODD_LENGTHS: std::ops::RangeInclusive<u64> = 1..=17;
const LINE: u64 = 64;
const PAGE: u64 = 4096;
const HUGE_PAGE: u64 = 2 << 20;
/// Bytes that a journal page of 4 KiB holds, and about that.
const JOURNALLED: [u64; 10] = [1, 8, 63, 64, 511, 512, 2000, 2048, 2049, 4095];

const TERABYTE: u64 = 1 << 40;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = odd_lengths();
    cases.extend(whole_pieces());
    cases.extend(overwrites_again());
    cases.extend(descriptors());
    cases.extend(huge_pages());
    cases.extend(fails());
    cases
}

/// 1 to 17 bytes that end before, at or behind an edge.
fn odd_lengths() -> Vec<Case> {
    let file = "create /a; write /a 0 5000 3";
    let ways: [(&str, Geometry, &str); 4] = [
        ("over data", small(), file),
        ("over data, relaxed", relaxed(), file),
        ("into a hole", small(), "create /a; truncate /a 5000"),
        ("again", small(), "create /a; write /a 0 5000 3; write /a 4000 90 4"),
    ];
    let mut cases = Vec::new();
    for len in ODD_LENGTHS {
        for (edge_name, edge) in [("line", 2 * LINE), ("page", PAGE)] {
            let at = edge - len / 2 - len % 3;
            for (way, geometry, before) in &ways {
                let name = format!("write: {len} bytes {way}, at a {edge_name}'s edge");
                cases.push(case(name, geometry.clone(), before, &format!("write /a {at} {len} 9")));
            }
            let name = format!("append: {len} bytes at a {edge_name}'s edge");
            let before = format!("create /a; write /a 0 {at} 3");
            cases.push(case(name, small(), &before, &format!("append /a {len} 9")));
            let name = format!("append: {len} bytes at a {edge_name}'s edge, relaxed");
            cases.push(case(name, relaxed(), &before, &format!("append /a {len} 9")));
            let name = format!("write: {len} bytes behind the end, at a {edge_name}'s edge");
            let short = "create /a; write /a 0 77 3";
            cases.push(case(name, small(), short, &format!("write /a {at} {len} 9")));
        }
    }
    cases
}

/// Pages, and what is not quite a page.
fn whole_pieces() -> Vec<Case> {
    let ranges = [
        (0, 1),
        (0, 4095),
        (0, 4096),
        (0, 4097),
        (0, 8192),
        (1, 4095),
        (1, 4096),
        (100, 4000),
        (4095, 1),
        (4095, 2),
        (4096, 4096),
        (4000, 8500),
        (8191, 4098),
        (12_000, 288),
        (0, 12_288),
        (12_288, 1),
        (12_000, 1000),
        (20_000, 100),
        (TERABYTE, 10),
        ((TERABYTE) - 5, 10),
    ];
    let before = [
        ("an empty file", small(), "create /a"),
        ("three pages", small(), "create /a; write /a 0 12288 1"),
        ("two pages and a piece", small(), "create /a; write /a 0 8300 1"),
        ("a hole between", small(), "create /a; write /a 0 4096 1; write /a 8192 4096 2"),
        ("mapped, not written", small(), "create /a; fallocate /a allocate-keep 0 12288"),
        ("relaxed", relaxed(), "create /a; write /a 0 12288 1"),
        ("cut back inside a page", small(), "create /a; write /a 0 4096 1; truncate /a 100"),
    ];
    let mut cases = Vec::new();
    for (offset, len) in ranges {
        for (what, geometry, before) in &before {
            let name = format!("write: {offset} +{len}, {what}");
            cases.push(case(name, geometry.clone(), before, &format!("write /a {offset} {len} 7")));
        }
    }
    for len in [1, 64, 100, 4095, 4096, 4097, 10_000] {
        for (what, geometry, before) in &before {
            let name = format!("append: {len}, {what}");
            cases.push(case(name, geometry.clone(), before, &format!("append /a {len} 7")));
        }
    }
    cases
}

/// The journal's first half, its second, and the first again.
fn overwrites_again() -> Vec<Case> {
    let mut cases = Vec::new();
    for len in JOURNALLED {
        let write = |fill: u64| format!("write /a 0 {len} {fill};");
        for times in 1..=3_u64 {
            let earlier: String = (1..=times).map(write).collect();
            let before = format!("create /a; write /a 0 8192 90; {earlier}");
            let name = format!("overwrite: {len} bytes, after {times} such");
            cases.push(case(name, small(), &before, &write(50)));
            let name = format!("overwrite: {len} bytes elsewhere, after {times} such");
            let elsewhere = format!("write /a {} {len} 51", 8192 - len);
            cases.push(case(name, small(), &before, &elsewhere));
        }
        let before = format!("create /a; write /a 0 8192 90; {}", write(1));
        let followers = [
            ("truncate inside it", format!("truncate /a {}", len / 2)),
            ("truncate to 0", "truncate /a 0".to_owned()),
            ("punch inside it", format!("punch /a 0 {}", len.div_ceil(2))),
            ("zero over it", format!("zero /a 0 {}", len + 1)),
            ("append", "append /a 10 5".to_owned()),
            ("unlink", "unlink /a".to_owned()),
            ("close and open", "remount".to_owned()),
            ("write of the whole page", "write /a 0 4096 6".to_owned()),
        ];
        for (what, ops) in followers {
            cases.push(case(format!("journal of {len}: {what}"), small(), &before, &ops));
        }
        let name = format!("journal of {len}: opened relaxed, in place");
        cases.push(case(name, relaxed(), &before, &write(50)));
    }
    cases
}

/// Two slots open on one file, and a name.
fn descriptors() -> Vec<Case> {
    let open = "create /a; write /a 0 5000 1; open /a 0; open /a 1";
    let gone = format!("{open}; unlink /a");
    let all = [
        ("write by the first", open, "write @0 100 50 2"),
        (
            "write by both",
            "create /a; write /a 0 5000 1; open /a 0; open /a 1; write @0 0 9 3",
            "write @1 4 9 2",
        ),
        (
            "append by one, written by the other",
            "create /a; open /a 0; open /a 1; append @0 70 3",
            "append @1 70 2",
        ),
        (
            "truncate by one, longer by the other",
            "create /a; open /a 0; open /a 1; append @0 4200 3; truncate @1 10",
            "append @0 70 2",
        ),
        ("unlink", open, "unlink /a"),
        ("close of the first", open, "close 0"),
        ("write without a name", &gone, "write @0 100 50 2"),
        ("append without a name", &gone, "append @1 5000 2"),
        ("truncate without a name", &gone, "truncate @0 100"),
        ("punch without a name", &gone, "punch @0 0 4096"),
        ("chmod without a name", &gone, "chmod @0 0o600"),
        ("link without a name", &gone, "link @0 /b"),
        ("fsync without a name", &gone, "fsync @0"),
        ("first close without a name", &gone, "close 0"),
        (
            "last close without a name",
            "create /a; write /a 0 5000 1; open /a 0; unlink /a",
            "close 0",
        ),
        ("the name again", &gone, "create /a"),
    ];
    let cases = all.into_iter();
    cases
        .map(|(name, before, ops)| case(format!("open twice: {name}"), lanes(2), before, ops))
        .collect()
}

fn huge_pages() -> Vec<Case> {
    let file = "create /a; allocate /a 0 2M; write /a 0 5000 1";
    let ranges = [
        (0, 1),
        (4090, 17),
        (60, 9),
        (512, 512),
        (4096, 4096),
        (5000, 3000),
        (0, 70_000),
        (HUGE_PAGE - 3, 3),
        (HUGE_PAGE - 3, 9),
        (HUGE_PAGE, 1),
        (TERABYTE, 10),
    ];
    let mut cases = Vec::new();
    for (offset, len) in ranges {
        let write = format!("write /a {offset} {len} 7");
        let journalled =
            format!("{file}; write /a {} 300 2", if offset < 4096 { 100 } else { offset - 100 });
        let in_place = Geometry { relaxed: true, ..huge() };
        cases.push(case(format!("huge write: {offset} +{len}"), huge(), file, &write));
        cases.push(case(format!("huge write: {offset} +{len}, new"), huge(), "create /a", &write));
        if offset < HUGE_PAGE - 3 {
            let name = format!("huge write: {offset} +{len}, journalled before");
            cases.push(case(name, huge(), &journalled, &write));
        }
        cases.push(case(format!("huge write: {offset} +{len}, relaxed"), in_place, file, &write));
    }
    let others = [
        ("append", "append /a 17 3"),
        ("truncate inside a page", "truncate /a 4000"),
        ("truncate to 0", "truncate /a 0"),
        ("extend", "truncate /a 3M"),
        ("punch a piece", "punch /a 100 3000"),
        ("punch all", "punch /a 0 2M"),
        ("zero a piece", "zero /a 1 4999"),
        ("unlink", "unlink /a"),
        ("close and open", "remount"),
        ("symlink beside", "symlink /s %=0.200"),
        ("mkdir beside", "mkdir /d"),
    ];
    for (name, ops) in others {
        // Targets are pages of the small class; short log pages have no room for more lines.
        cases.push(case(format!("huge: {name}"), huge(), file, ops));
    }
    cases
}

/// Operations that must fail, and leave nothing.
fn fails() -> Vec<Case> {
    let before = "create /a; write /a 0 100 1; mkdir /d; symlink /s x";
    let all = [
        "write /d 0 10",
        "append /s 10",
        "truncate /d 0",
        "write /x 0 10",
        "append @0 10",
        "write /a 0x7FFFFFFFFFFFFFF0 100",
        "punch /a 0 0",
        "write /a 50 0",
        "append /a 0",
    ];
    let cases = all.into_iter();
    cases.map(|ops| case(format!("fails or does nothing: {ops}"), small(), before, ops)).collect()
}
