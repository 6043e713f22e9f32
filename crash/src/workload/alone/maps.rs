//! Mapped files: what programs and the engine store in place, and pages that are swapped in.

use crate::case::{Case, Geometry};
use crate::workload::build::{FEW_LINES, case, huge, small};

const FILE: &str = "create /a; write /a 0 10000 3";
/// Its last overwrite waits in the journal.
const JOURNALLED: &str = "create /a; write /a 0 10000 3; write /a 4000 90 4";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = in_place();
    cases.extend(swapped());
    cases.extend(around());
    cases.extend(seen());
    cases.extend(at_full());
    cases
}

fn mapped() -> Geometry {
    Geometry { mapped: true, ..small() }
}

/// Stores through the map and writes of the engine, each in place.
fn in_place() -> Vec<Case> {
    let ranges = [(0, 8), (60, 8), (4000, 90), (4090, 17), (4096, 4096), (1, 9000), (9990, 10)];
    let mut cases = Vec::new();
    for (before, waits) in [(FILE, ""), (JOURNALLED, ", over what waits in the journal")] {
        for (offset, len) in ranges {
            for op in ["poke", "write"] {
                let ops = format!("map /a; {op} /a {offset} {len} 9; {op} /a 4 4040 8");
                let name = format!("mapped: {op} {offset} +{len}{waits}");
                cases.push(case(name, mapped(), before, &ops));
            }
        }
    }
    let grows =
        ["append /a 5000 9", "write /a 9000 9000 9", "truncate /a 12288", "truncate /a 20000"];
    let cuts = ["truncate /a 100", "fallocate /a punch 4096 4096", "fallocate /a zero 10 6000"];
    for op in grows.into_iter().chain(cuts) {
        let name = format!("mapped: {op}");
        cases.push(case(
            name,
            mapped(),
            FILE,
            &format!("map /a; poke /a 90 9 5; {op}; poke /a 9 70 6"),
        ));
    }
    let large = Geometry { mapped: true, ..huge() };
    let file = "create /a; fallocate /a allocate 0 2097152; write /a 0 9000 3";
    cases.push(case(
        "mapped: huge page",
        large,
        file,
        "map /a; poke /a 100 90 9; write /a 50 9000 8",
    ));
    cases
}

/// What is staged becomes the file's wholly or not at all.
fn swapped() -> Vec<Case> {
    let mut cases = Vec::new();
    for (offset, len) in [(0, 4096), (4096, 4096), (8192, 4096), (0, 12_288), (4096, 8192)] {
        for (before, waits) in [(FILE, ""), (JOURNALLED, ", over what waits in the journal")] {
            let ops =
                format!("map /a; swap /a {offset} {len} 9; swap /a {offset} 4096 8; unmap /a");
            cases.push(case(format!("swap: {offset} +{len}{waits}"), small(), before, &ops));
        }
    }
    let short = Geometry { log_lines: 4, ..small() };
    let many: String = (0..12).map(|fill| format!("; swap /a 4096 4096 {}", fill + 10)).collect();
    cases.push(case("swap: until logs grow", short, FILE, &format!("map /a{many}")));
    cases
}

/// Where data has checksums: what is mapped is exempt, and made whole.
fn at_full() -> Vec<Case> {
    let full = || Geometry { dead_zone: Some(0), strip: Some(512), bytes: 512 << 10, ..small() };
    let mapped = || Geometry { mapped: true, ..full() };
    let in_place = [
        (FILE, "map /a; poke /a 4000 200 9; poke /a 9990 10 8; unmap /a; write /a 4000 90 7"),
        (JOURNALLED, "map /a; leave /a 1 9000 9; write /a 10 50 6; append /a 100 7"),
        (FILE, "map /a; write /a 4090 17 9; write /a 0 4096 8; unmap /a"),
        (FILE, "map /a; append /a 5000 9; poke /a 11000 90 8; leave /a 14000 100 7"),
        (FILE, "map /a; poke /a 90 9 5; truncate /a 100; truncate /a 12288; leave /a 90 20 6"),
        (FILE, "map /a; fallocate /a punch 4096 4096; poke /a 9 70 6; write /a 4100 9 7; unmap /a"),
        (FILE, "map /a; poke /a 4000 90 9; crash; write /a 10 100 4; map /a; leave /a 0 9 5"),
        (FILE, "map /a; poke /a 4000 90 9; remount; write /a 10 100 4"),
    ];
    let whole = [
        (JOURNALLED, "map /a; unmap /a; write /a 4010 40 5"),
        (FILE, "map /a; swap /a 0 8192 9; swap /a 4096 4096 8; unmap /a; write /a 0 4096 5"),
        (FILE, "map /a; swap /a 0 4096 9; unlink /a; create /b; write /b 0 9000 7"),
    ];
    let logs = "map /a; chmod /a 0o611; chmod /a 0o612; chmod /a 0o613; chmod /a 0o614; chmod /a 0o615; \
                chmod /a 0o616; chmod /a 0o617; unmap /a; chmod /a 0o621; chmod /a 0o622; chmod /a 0o623";
    // (What is mapped can't be had from its parity: it leaves memory that is known to be bad first.)
    let leaves = [
        "damage data 5 broken; read /a 0 4096; map /a; poke /a 4000 200 9; unmap /a; scrub; write /a 4000 90 7",
        "damage data 70 broken; read /a 0 9000; map /a; poke /a 4100 90 9; write /a 4000 200 8; unmap /a; scrub",
        "damage data 5 broken; damage data 130 broken; read /a 0 10000; map /a; poke /a 1 9000 9; leave /a 4090 17 8; scrub",
    ];
    let named = |ops: &str| format!("at full: {ops}");
    let mut cases: Vec<Case> = Vec::new();
    cases.extend(in_place.map(|(before, ops)| case(named(ops), mapped(), before, ops)));
    cases.extend(whole.map(|(before, ops)| case(named(ops), full(), before, ops)));
    cases.extend(leaves.map(|ops| case(named(ops), mapped(), FILE, ops)));
    let short = Geometry { log_lines: FEW_LINES, ..full() };
    cases.push(case("at full: logs that say what is exempt are written anew", short, FILE, logs));
    cases
}

/// Before the first map and after the last one files are as any other.
fn around() -> Vec<Case> {
    let all = [
        (JOURNALLED, "map /a"),
        (JOURNALLED, "map /a; unmap /a; write /a 4010 40 5; write /a 9 100 6"),
        (FILE, "map /a; map /a; truncate /a 5000; unmap /a; unmap /a; write /a 0 4096 5"),
        (FILE, "map /a; swap /a 0 4096 9; unlink /a; create /b; write /b 0 9000 7"),
        (FILE, "map /a; truncate /a 0; create /b; write /b 0 9000 7; unmap /a; append /a 5000 2"),
        (FILE, "map /a; swap /a 0 8192 9; remount; write /a 10 100 4"),
        (FILE, "map /a; swap /a 0 8192 9; crash; write /a 10 100 4"),
    ];
    let cases = all.map(|(before, ops)| case(format!("map: {ops}"), small(), before, ops));
    cases.into()
}

/// What a snapshot sees is moved before it is stored to, and the map shows that.
fn seen() -> Vec<Case> {
    let again = "poke /a 100 9 5; snapshot s; poke /a 100 9 6";
    let changes = [
        "poke /a 4090 17 7; snapshot t; poke /a 4090 17 8; drop s; drop t",
        "write /a 90 40 7; poke /a 120 30 8",
        "write /a 1 9000 7; poke /a 4096 30 8",
        "append /a 5000 7; poke /a 9990 10 8",
        "truncate /a 100; truncate /a 9000; poke /a 9 30 8",
        "truncate /a 12000; poke /a 11000 30 8",
        "fallocate /a punch 4096 4096; poke /a 90 30 8",
        "fallocate /a zero 10 6000; poke /a 90 30 8; poke /a 8192 100 3",
        "swap /a 0 4096 7; poke /a 90 30 8; poke /a 4096 30 8",
        "map /a; poke /a 4096 30 8; unmap /a; unmap /a; write /a 10 10 3",
        "unlink /a; create /b; write /b 0 9000 7",
        "drop s; poke /a 4096 10 7; poke /a 100 9 8",
    ];
    let mut cases: Vec<Case> = (changes.iter())
        .map(|ops| {
            case(
                format!("seen in a map: {ops}"),
                mapped(),
                FILE,
                &format!("map /a; {again}; {ops}"),
            )
        })
        .collect();
    let large = Geometry { mapped: true, ..huge() };
    let file = "create /a; fallocate /a allocate 0 2097152; write /a 0 9000 3";
    let ops = "map /a; snapshot s; poke /a 100 90 9; write /a 50 9000 8; poke /a 4096 3 7";
    cases.push(case("seen in a map: huge page", large, file, ops));
    cases
}
