//! Attributes, sizes, and what is mapped.

use crate::case::Case;
use crate::workload::build::{case, relaxed, small};

const TERABYTE: u64 = 1 << 40;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = attributes();
    cases.extend(truncates());
    cases.extend(fallocates());
    cases.extend(sparse());
    cases
}

fn attributes() -> Vec<Case> {
    let before = "create /f; write /f 0 100 1; mkdir /d; symlink /s x; mknod /p fifo";
    let fields = [
        ("mode", "mode=0o600"),
        ("uid", "uid=70000"),
        ("gid", "gid=9"),
        ("atime", "atime=77"),
        ("mtime", "mtime=-77"),
        ("owner", "uid=1 gid=2"),
        ("both times", "atime=5000000000000000000 mtime=6"),
        ("all", "mode=0o4755 uid=1 gid=2 atime=3 mtime=4"),
        ("nothing", ""),
    ];
    let mut cases = Vec::new();
    for path in ["/f", "/d", "/s", "/p", "/"] {
        for (field, words) in fields {
            let name = format!("setattr: {field} of {path}");
            cases.push(case(name, small(), before, &format!("setattr {path} {words}")));
        }
    }
    for (name, words) in [
        ("size up and mode", "size=9000 mode=0o600"),
        ("all with size down", "size=3 mode=1 uid=1 gid=2 atime=3 mtime=4"),
    ] {
        cases.push(case(
            format!("setattr: {name}"),
            small(),
            before,
            &format!("setattr /f {words}"),
        ));
    }
    let read = crate::case::Geometry { atime: true, ..small() };
    cases.push(case("read: the access time moves", read.clone(), before, "read /f 0 10"));
    cases.push(case("read: no access time", small(), before, "read /f 0 10"));
    let later = format!("{before}; read /f 0 10; write /f 0 1 2");
    cases.push(case("read: the access time moves again", read.clone(), &later, "read /f 0 10"));
    for op in ["list /", "list /d", "readlink /s"] {
        let ops = format!("{op}; chmod /f 1");
        cases.push(case(format!("looks: {op}, the access time moves"), read.clone(), before, &ops));
    }
    for op in ["stat /f", "list /", "readlink /s", "fsync /f", "fsync /d"] {
        cases.push(case(format!("looks: {op}"), small(), before, op));
    }
    cases
}

fn truncates() -> Vec<Case> {
    let sizes = [
        0, 1, 63, 64, 100, 4000, 4095, 4096, 4097, 8191, 8192, 8300, 8301, 12_288, 20_000, TERABYTE,
    ];
    let files = [
        ("empty", "create /a"),
        ("a piece", "create /a; write /a 0 100 1"),
        ("a page", "create /a; write /a 0 4096 1"),
        ("two pages and a piece", "create /a; write /a 0 8300 1"),
        ("cut before", "create /a; write /a 0 8300 1; truncate /a 4050"),
        (
            "mapped behind the end",
            "create /a; write /a 0 100 1; fallocate /a allocate-keep 0 16384",
        ),
        ("with a journal", "create /a; write /a 0 8300 1; write /a 4000 200 2"),
        ("a hole at the end", "create /a; write /a 0 100 1; truncate /a 12000"),
    ];
    let mut cases = Vec::new();
    for size in sizes {
        for (what, before) in files {
            let name = format!("truncate: to {size}, {what}");
            cases.push(case(name, small(), before, &format!("truncate /a {size}")));
        }
        let name = format!("truncate: to {size}, relaxed");
        let before = "create /a; write /a 0 8300 1; write /a 4000 200 2";
        cases.push(case(name, relaxed(), before, &format!("truncate /a {size}")));
    }
    cases
}

fn fallocates() -> Vec<Case> {
    let ranges = [
        (0, 4096),
        (0, 1),
        (1, 17),
        (100, 4000),
        (4090, 12),
        (4096, 4096),
        (1000, 6000),
        (0, 12_288),
        (8000, 8000),
        (12_000, 500),
        (20_000, 5000),
        (0, TERABYTE),
    ];
    let files = [
        ("empty", "create /a"),
        ("data", "create /a; write /a 0 12288 1"),
        ("a hole", "create /a; write /a 0 10 1; write /a 9000 10 1"),
        (
            "mapped behind the end",
            "create /a; write /a 0 5000 1; fallocate /a allocate-keep 0 12288",
        ),
        ("with a journal", "create /a; write /a 0 8192 1; write /a 4050 100 2"),
    ];
    let ways = ["allocate", "allocate-keep", "punch", "zero", "zero-keep"];
    let mut cases = Vec::new();
    for how in ways {
        for (offset, len) in ranges {
            // A terabyte can be punched, but not allocated.
            if len == TERABYTE && how != "punch" {
                continue;
            }
            for (what, before) in files {
                let name = format!("fallocate: {how} {offset} +{len}, {what}");
                let ops = format!("fallocate /a {how} {offset} {len}");
                cases.push(case(name, small(), before, &ops));
            }
            let name = format!("fallocate: {how} {offset} +{len}, relaxed");
            let ops = format!("fallocate /a {how} {offset} {len}");
            cases.push(case(name, relaxed(), "create /a; write /a 0 12288 1", &ops));
        }
    }
    cases
}

/// Far behind everything.
fn sparse() -> Vec<Case> {
    let deep = "create /a; write /a 1T 100 1; write /a 0 100 2";
    let all = [
        ("write the first", "create /a", "write /a 1T 17"),
        ("write in between", deep, "write /a 1G 5000"),
        ("overwrite", deep, "write /a 1T 50 3"),
        ("append", deep, "append /a 5000"),
        ("truncate to between", deep, "truncate /a 1G"),
        ("truncate inside", deep, "truncate /a 0x10000000005"),
        ("extend", deep, "truncate /a 2T"),
        ("punch", deep, "punch /a 1T 100"),
        ("punch across", deep, "punch /a 50 1T"),
        ("zero", deep, "zero /a 1T 10"),
        ("allocate", deep, "allocate /a 1G 5000"),
        ("unlink", deep, "unlink /a"),
        ("close and open", deep, "remount"),
    ];
    let cases = all.into_iter();
    cases.map(|(name, before, ops)| case(format!("sparse: {name}"), small(), before, ops)).collect()
}
