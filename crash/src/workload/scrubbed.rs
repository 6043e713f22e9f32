//! Memory loses something that the pool's level can restore, and a scrub finds it: whatever the power does meanwhile, nothing
//! is lost, and what the scrub has told to be repaired is.

use lode_engine::layout::BAD_PAGES_MOST;

use crate::case::{Case, Geometry};
use crate::workload::build::{case, repeated, small};

/// What snapshots see that is there, and that is not: overwritten, cut off, renamed and removed.
const PAST: &str = "create /f; append /f 9000 1; setxattr /f user.x 300; mkdir /d; create /d/x; append /d/x 5000 3; \
                    snapshot a; write /f 4096 4096 4; rename /d /e; snapshot b; unlink /e/x; truncate /f 7000; create /g; \
                    append /g 5000 7; chmod /g 0o600";
/// Files, directories, logs inline and of several pages, without snapshots.
const FILES: &str = "create /f; append /f 9000 1; mkdir /d; create /d/x; append /d/x 5000 3; chmod /f 0o601; chmod /f 0o602; \
                     chmod /f 0o603; chmod /f 0o604; chmod /f 0o605; chmod /f 0o606; create /d/y";

/// A value that has pages of its own, and one that has not.
const VALUES: &str =
    "create /f; setxattr /f user.x 9000 1; append /f 100 2; create /g; setxattr /g user.y 20";

fn twins() -> Geometry {
    Geometry { dead_zone: Some(0), bytes: 512 << 10, ..small() }
}

fn full() -> Geometry {
    Geometry { strip: Some(512), ..twins() }
}

/// Each of these, and a scrub behind it.
fn each(harms: &str) -> String {
    harms.split("; ").map(|harm| format!("damage {harm}; scrub; ")).collect()
}

/// Scrubs where nothing was damaged, and where something was, at each level.
pub(super) fn scrubbed() -> Vec<Case> {
    let named = |what: &str| format!("a scrub, {what}");
    let plain = Geometry { bytes: 192 << 10, ..small() };
    let nothing = "scrub; append /g 9; scrub";
    let superblocks =
        each("superblock 0; superblock 7 zero; superblock 2 poison; locator 0 poison");
    let metadata = each(
        "chain 0; chain 1 zero; table 0 zero; table 1 poison; identity 2; identity 5 zero; identity 4 poison; record 4; record 9 zero; record 8 poison; record 21 poison; log-page 0 zero; log-page 1",
    );
    let bad = "damage log-page 0 broken; scrub; damage bad-list 0 zero; scrub; damage log-page 1 broken; scrub; heal; scrub; \
               append /f 9000 5; scrub";
    let seen = each("dead 0; dead 3 zero; dead 2 poison; dead 5; record 6 zero; record 3 poison");
    let data = each(
        "data 3; data 70 zero; checksum 0; checksum 3 zero; parity 0; parity 1 zero; data 1 poison; data 100 poison",
    );
    let moved = "damage data 66 broken; scrub; damage bad-list 1; scrub; append /f 9; heal; scrub; append /d/x 9000 5; scrub";
    let broken = |page: usize| format!("damage data {} broken; ", 64 * page);
    let many: String = (0..BAD_PAGES_MOST).map(broken).collect();
    let many = format!("create /f; append /f {} 1; {many}scrub", BAD_PAGES_MOST * 4096);
    // (Neither of the last two tells: the value's own checksum does.)
    let values = each(
        "value 3; value 70 zero; value-checksum 0; value-checksum 3 zero; value 1 poison; value 100 poison",
    ) + "damage value-checksum 0; damage value-checksum 1; scrub; remount; scrub";
    let values_moved = "damage value 66 broken; scrub; damage bad-list 1; scrub; setxattr /f user.x 9000 5; heal; scrub; \
                        damage value 3 broken; crash; scrub; removexattr /f user.x; scrub";
    let kept = each("kept 0; kept 70 zero; data 5 zero");
    let later = "damage record 4 zero; chmod /f 0o611; crash; damage identity 3; append /d/x 100 4; remount; scrub; \
                 damage superblock 1 zero; remount; damage table 0; crash; scrub";
    vec![
        case(named("and nothing is damaged"), plain.clone(), PAST, nothing),
        case(named("of superblocks"), plain, PAST, &superblocks),
        case(named("and nothing is damaged where data has checksums"), full(), PAST, nothing),
        case(named("of metadata"), twins(), FILES, &metadata),
        case(named("of bad memory with metadata"), twins(), FILES, bad),
        case(named("of what snapshots see"), twins(), PAST, &seen),
        case(named("of damage that others meet"), twins(), FILES, later),
        case(named("of data"), full(), FILES, &data),
        case(named("of bad memory with data"), full(), FILES, moved),
        case(named("of values"), full(), VALUES, &values),
        case(named("of bad memory with values"), full(), VALUES, values_moved),
        case(
            named("and the list of bad memory is full"),
            Geometry { bytes: 2 << 20, ..full() },
            &many,
            "append /f 9 5; truncate /f 4096; scrub",
        ),
        case(named("of data that snapshots see"), full(), PAST, &kept),
    ]
}

/// What there is before, what is done beside what.
type Beside = (&'static str, String, &'static str, &'static str);

/// A scrub beside who changes what it looks at: the pool, its level, and the cases.
pub(super) fn beside() -> Vec<(Geometry, &'static str, Vec<Beside>)> {
    let of_data = [
        (
            "a scrub and an append",
            "create /a; append /a 9000 1; create /b; append /b 5000 2; damage data 3",
            "append /b 100 3",
        ),
        (
            "a scrub and a write of other pages",
            "create /a; append /a 12288 1; damage data 3 zero",
            "write /a 8192 4096 2",
        ),
        (
            "a scrub that moves a page, and a truncation",
            "create /a; append /a 9000 1; damage data 3 broken",
            "truncate /a 5000; append /a 9 2",
        ),
        (
            "a scrub that moves a page, and who changes its file",
            "create /a; append /a 9000 1; damage data 3 broken",
            "chmod /a 0o600; append /a 9 3",
        ),
        (
            "a scrub that repairs parity, and an unlink",
            "create /a; append /a 5000 1; create /b; append /b 5000 2; damage parity 0 zero",
            "unlink /b; create /c",
        ),
    ];
    let log = format!("create /c; {}", repeated(7, "chmod /c 0o60#"));
    let moved = format!("{log}damage log-page 0 broken");
    // (The page that is good again is the only one.)
    let full_of = repeated(110, "append /b 4096 #");
    let good = format!("{log}create /a; create /b; damage log-page 0 broken; scrub; {full_of}heal");
    let of_metadata = [
        (
            "a scrub of metadata and a rename",
            "create /a; mkdir /d; create /c; chmod /c 0o600; damage record 4 zero",
            "rename /a /d/a",
        ),
        ("a scrub that moves a log, and who goes on with it", &moved, "chmod /c 0o607"),
        ("full: a scrub gives back what is good again, and an append", &good, "append /a 4096 3"),
    ];
    let with_scrub = |texts: &[(&'static str, &str, &'static str)]| -> Vec<Beside> {
        let text = texts.iter();
        text.map(|(name, before, beside)| (*name, (*before).to_owned(), "scrub", *beside)).collect()
    };
    let lanes = 2;
    vec![
        (Geometry { lanes, ..full() }, "data has checksums", with_scrub(&of_data)),
        (Geometry { lanes, ..twins() }, "metadata has copies", with_scrub(&of_metadata)),
    ]
}
