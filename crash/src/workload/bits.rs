//! Pools in which a bit flips.

use crate::case::{Case, Geometry, Trouble};
use crate::workload::build::{ALL_LINES, case, lanes, repeated};

/// Pools of every kind of record, in logs of one page, of many pages, and rewritten ones; on two
/// lanes, so that transactions end in the middle of a log as well as at its end. No round comes (nor does a file
/// whose log could go back inline): nothing is settled but by its own lines.
pub fn flips() -> Vec<Case> {
    let two = Geometry { bytes: 224 << 10, ..lanes(2) };
    let long = Geometry { log_lines: ALL_LINES, ..two.clone() };
    let tree = "mkdir /d; mkdir /e; create /d/%=0.60; create /f; symlink /s %=1.70; link /f /d/g; \
                mknod /n fifo; write /f 0 9000 1; write /f 100 50 2; append /f 10 3; \
                punch /f 0 4096; chmod /f 0o600; chown /d 3 4";
    let moves = "create /x; create /e/y; rename /x /e/x; rename /e/y /d/y; rename /d/y /f exchange; \
                 rename /e/x /s; mkdir /d/m; rename /d/m /e/m; unlink /d/g; mknod /z fifo; create /d/w";
    let links = repeated(9, "link /z /d/l#");
    // Records of one line each, all of them needed, over several pages.
    let holes: Vec<String> = (0..14).map(|hole| format!("write /w {} 100", hole * 8192)).collect();
    let all = format!("create /w; {}; {tree}; {moves}; {links}", holes.join("; "));
    let attributes = "create /f; setxattr /f user.a 20 1; setxattr /f user.b 9000 2; \
                      setxattr / user.a 60 3; removexattr /f user.a; setxattr /f user.c 100 4; \
                      setxattr / user.d 5000 5; mkdir /d; setxattr /d user.e 1 6; create /g";
    let pools = [("short log pages", two), ("whole log pages", long)];
    let cases = pools.iter().flat_map(|(pages, pool)| {
        [("a bit flips", all.as_str()), ("a bit of an attribute flips", attributes)].map(
            |(what, ops)| Case {
                trouble: Trouble::Bit,
                ..case(format!("{what}, {pages}"), pool.clone(), "", ops)
            },
        )
    });
    cases.chain([data()]).chain((4..=7).map(begun_page)).collect()
}

/// A log page that begins with a transaction which ends another log, and the next one of its lane, whole, behind
/// it: without the page's header, both look unfinished. (With one of the numbers of lines in front, it begins there.)
fn begun_page(lines: u64) -> Case {
    let before = repeated(lines, "link /z /d/l#");
    let ops = format!("mkdir /d; mknod /z fifo; {before} link /z /d/m; setxattr /d user.a 60 1");
    let name = format!("a bit of a page that begins flips, {lines} in front");
    let pool = Geometry { bytes: 224 << 10, ..lanes(1) };
    Case { trouble: Trouble::Bit, ..case(name, pool, "", &ops) }
}

/// A pool with checksums of file data: whole pages, holes, pages that were written in part, ends of files.
fn data() -> Case {
    let pool = Geometry { dead_zone: Some(0), strip: Some(512), bytes: 512 << 10, ..lanes(2) };
    let ops = "create /f; write /f 0 9000 1; write /f 100 50 2; append /f 10 3; write /f 30000 4096 4; \
               truncate /f 33000; symlink /s %=1.900; create /g; append /g 1 5";
    Case { trouble: Trouble::Bit, ..case("a bit of file data flips", pool, "", ops) }
}
