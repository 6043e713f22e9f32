//! Mapped files: what programs and the engine store in place, and pages that are swapped in.

use crate::case::{Case, Geometry};
use crate::workload::build::{case, huge, small};

const FILE: &str = "create /a; write /a 0 10000 3";
/// Its last overwrite waits in the journal.
const JOURNALLED: &str = "create /a; write /a 0 10000 3; write /a 4000 90 4";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = in_place();
    cases.extend(swapped());
    cases.extend(around());
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
