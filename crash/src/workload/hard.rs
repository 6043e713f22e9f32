//! The scenarios, as cases.

use lode_engine::PageClass;

use crate::case::{Case, Geometry, Trouble};
use crate::scenarios::{SCENARIOS, Scenario};
use crate::workload::build::{FEW_LINES, case, huge, lanes, operations, repeated, roomy, small};
use crate::workload::raised::raised;
use crate::workload::scrubbed::scrubbed;
use crate::workload::seen::{seen_logs, unseen_pages};
use crate::workload::{sectors, side_by_side};

/// A scenario as a case.
pub fn case_of(scenario: &Scenario) -> Case {
    let geometry = Geometry {
        bytes: scenario.kib << 10,
        lanes: scenario.lanes,
        class: if scenario.huge { PageClass::Huge } else { PageClass::Small },
        relaxed: scenario.relaxed,
        ..Geometry::default()
    };
    Case {
        name: scenario.name.to_owned(),
        trouble: Trouble::Power,
        geometry,
        before: operations(&(scenario.before)()),
        ops: operations(scenario.ops),
        beside: Vec::new(),
    }
}

/// All scenarios, each with log pages of four records, too, where its names fit in.
pub fn scenarios() -> Vec<Case> {
    let whole = SCENARIOS.iter().map(case_of);
    let mut cases: Vec<Case> = whole.collect();
    let short = SCENARIOS.iter().filter(|scenario| !scenario.huge).map(case_of);
    cases.extend(short.filter(fits_short_pages).map(|case| {
        let geometry = Geometry { log_lines: FEW_LINES, ..case.geometry };
        Case { name: format!("{}, short log pages", case.name), geometry, ..case }
    }));
    cases.extend((3..8).map(nearly_full));
    cases.extend((13..18).map(round_in_time));
    cases.push(round_for_slots());
    cases.push(page_comes_back());
    cases.push(sessions_end());
    cases.extend(growths());
    cases.push(attributes_come_along());
    cases.extend(nameless());
    cases.push(page_used_again());
    cases.push(page_used_again_behind_padding());
    cases.extend(inline());
    cases.push(pages_swapped_in());
    cases.push(pages_seen_in_maps());
    cases.push(mapped_at_full());
    cases.extend(twins());
    cases.extend(levels());
    cases.extend(raised());
    cases.extend(strips());
    cases.extend(snapshots());
    cases.extend(seen_logs());
    cases.extend(unseen_pages());
    cases.extend(losses());
    cases.extend(volumes());
    cases.push(pages_seen_in_maps_at_full());
    cases.extend(sectors::alone());
    cases.extend(side_by_side::alone());
    cases.extend(scrubbed());
    cases
}

/// Snapshots that see what is overwritten, in place and by other pages, cut off, removed and renamed; their ends, in
/// either order, and returns to them.
fn snapshots() -> Vec<Case> {
    let twins = || Geometry { dead_zone: Some(0), bytes: 512 << 10, ..small() };
    let full = Geometry { strip: Some(512), ..twins() };
    let file = "create /f; append /f 9000 1; mkdir /d; create /d/x; snapshot a";
    let all = "write /f 100 50 2; write /f 200 50 3; write /f 0 4096 4; append /f 700 5; truncate /f 5000; \
               truncate /f 9000; setxattr /f user.x 5000; unlink /f; rename /d/x /y; rmdir /d";
    let ends = "create /f; append /f 5000; snapshot a; write /f 100 10; snapshot b; write /f 0 4096 7; \
                snapshot c; unlink /f; maintain";
    let back = "create /f; append /f 5000; write /f 9 9; snapshot a; write /f 100 10; append /f 5000; \
                create /g; append /g 100; mkdir /d; rename /f /d/f; unlink /g";
    let later =
        format!("{back}; snapshot b; write /d/f 0 4096 7; chmod /d 0o700; snapshot c; unlink /d/f");
    let grown = format!("create /k; snapshot a; {}", repeated(14, "chmod /k 0o61#"));
    let grown = grown.replace("0o618", "0o620").replace("0o619", "0o621");
    vec![
        case("a snapshot", small(), "create /f; append /f 5000", "snapshot a; snapshot b; drop a"),
        case("what a snapshot sees", small(), file, all),
        case("what a snapshot sees where metadata has copies", twins(), file, all),
        case("what a snapshot sees where data has checksums", full.clone(), file, all),
        case("snapshots end in order", small(), ends, "drop a; maintain; drop b; maintain; drop c"),
        case(
            "snapshots end out of order",
            small(),
            ends,
            "drop b; maintain; drop c; maintain; create /n",
        ),
        case(
            "a last page that a snapshot sees, and an overwrite on its way",
            small(),
            "create /f; append /f 5000; truncate /f 4900",
            "write /f 100 50 9; snapshot a; truncate /f 9000",
        ),
        case("a rollback", small(), back, "rollback a; create /n"),
        case("a rollback behind later snapshots", roomy(), &later, "rollback a; create /n; drop a"),
        case("a snapshot is received", small(), back, "receive b; create /n"),
        case("a snapshot is received where metadata has copies", twins(), back, "receive b"),
        case("a snapshot is received where data has checksums", full.clone(), back, "receive b"),
        case(
            "a snapshot is received where data has checksums, and more is written",
            full.clone(),
            back,
            "receive b; write /f 100 600 9; append /f 3000 8; create /n",
        ),
        case(
            "a snapshot is received where data has checksums, and the older one ends",
            full.clone(),
            back,
            "receive b; drop a; maintain; write /f 0 4096 7",
        ),
        case(
            "a snapshot is received where data has checksums and logs are short",
            Geometry { log_lines: FEW_LINES, ..full.clone() },
            back,
            "receive b; chmod /f 0o601; chmod /f 0o602",
        ),
        case("what was received is given up", small(), back, "abandon b; create /n"),
        case(
            "what was received is given up where data has checksums",
            full.clone(),
            back,
            "abandon b; receive b",
        ),
        case(
            "what was received is given up where metadata has copies",
            twins(),
            back,
            "abandon b; create /n",
        ),
        case("a rollback where metadata has copies", twins(), back, "rollback a; create /n"),
        case("a rollback where data has checksums", full.clone(), back, "rollback a; create /n"),
        case(
            "a log that a snapshot sees grows",
            Geometry { log_lines: FEW_LINES, ..small() },
            &grown,
            "chmod /k 0o600; drop a; chmod /k 0o601; maintain",
        ),
    ]
}

/// Metadata is there twice: births, logs that grow and are collected, tables that grow.
fn twins() -> Vec<Case> {
    let geometry = Geometry { dead_zone: Some(0), bytes: 512 << 10, ..small() };
    let births =
        "create /a; mkdir /d; symlink /d/s target; append /a 5000 1; rename /a /d/b; unlink /d/s";
    let grows = format!(
        "{}; maintain; {}",
        repeated(9, "chmod /k 0o61#").replace("0o618", "0o620"),
        repeated(3, "create /n#")
    );
    vec![
        case("two copies of metadata", geometry.clone(), "", births),
        case("two copies of logs", geometry, "create /k; append /k 9000", &grows),
    ]
}

/// A pool that has been in use gets second copies of its metadata and loses them: what lies where they go
/// moves away. When it gets them again, what the places hold is what they were.
fn levels() -> Vec<Case> {
    let pool = Geometry { bytes: 96 << 10, ..small() };
    let file = "create /f; append /f 20000; write /f 100 40; setxattr /f user.x 5000";
    let before = format!("{file}; {}", repeated(3, "chown /f # 5"));
    let first = "protect metadata 0; create /n";
    let once = "create /f; append /f 20000; protect metadata 0; protect none; unlink /f; create /g";
    let large = Geometry { bytes: 512 << 10, dead_zone: Some(0), ..small() };
    let again = "create /f; append /f 20000; protect full 0; protect metadata 0; write /f 100 40 7";
    let plain = Geometry { bytes: 512 << 10, ..small() };
    let seen = "protect full 0; create /f; append /f 5000; write /f 100 40 7; snapshot a; \
                write /f 512 1024 3; snapshot b; unlink /f; create /g; append /g 600 5";
    let lower = "protect metadata 0; write /g 10 10; protect none; drop a";
    vec![
        case("a pool with snapshots loses checksums and copies", plain, seen, lower),
        case("a pool gets second copies", pool.clone(), &before, first),
        case("a pool gets second copies twice", pool, once, "protect metadata 0"),
        case("a pool gets checksums", large.clone(), &before, "protect full 0; append /f 100"),
        case("a pool gets checksums twice", large, again, "protect full 0"),
    ]
}

/// File data has checksums: pages that are filled, replaced in part, cut off and grown over; a long target.
fn strips() -> Vec<Case> {
    let geometry =
        |strip| Geometry { dead_zone: Some(0), strip: Some(strip), bytes: 512 << 10, ..small() };
    let whole = "create /a; write /a 0 8192 3; write /a 4096 8192 4; append /a 4096 5";
    let parts = "write /a 100 50 6; append /a 700 7; truncate /a 5000; truncate /a 9000; \
                 append /a 10 8; write /a 20000 10 9; unlink /a";
    let in_place = "write /a 512 512 4; write /a 700 600 5; write /a 5200 50 6; truncate /a 5300; \
                    write /a 30 1000 7; append /a 10 8; write /a 4100 50 9; unlink /a; \
                    create /b; write /b 0 8192 3; write /b 4000 200 4";
    let cut = "write /a 4608 1024 2; truncate /a 4700; write /a 0 50 3; write /a 1024 512 4; \
               truncate /a 1100; write /a 0 50 5; truncate /a 100; append /a 10 6";
    let seen = "write /a 100 50 4; snapshot s; write /a 100 60 5; write /a 150 60 6; \
                drop s; write /a 100 70 7";
    vec![
        case("strips are overwritten", geometry(512), "create /a; write /a 0 6000 3", in_place),
        case(
            "long strips are overwritten",
            geometry(2048),
            "create /a; write /a 0 6000 3",
            in_place,
        ),
        case("strips that are cut off", geometry(512), "create /a; append /a 8192", cut),
        case("strips that a snapshot sees", geometry(512), "create /a; write /a 0 6000 3", seen),
        case("checksums of whole pages", geometry(512), "", whole),
        case("checksums of parts of pages", geometry(512), "create /a; write /a 0 6000 3", parts),
        case("checksums of long strips", geometry(2048), "create /a; write /a 0 6000 3", parts),
        case("checksums of a long target", geometry(1024), "", "symlink /s %=0.900; unlink /s"),
    ]
}

/// Staged pages of a mapped file become its own, twice at one place.
fn pages_swapped_in() -> Case {
    let ops = "map /a; swap /a 4096 8192 9; swap /a 4096 4096 8; unmap /a";
    case("staged pages become a file's", small(), "create /a; write /a 0 10000 3", ops)
}

/// Pages that snapshots see are moved while a program has them mapped, one by one and for changes of the file.
fn pages_seen_in_maps() -> Case {
    let ops = "map /a; poke /a 100 9 5; snapshot s; poke /a 100 9 6; write /a 4090 17 7; poke /a 4096 9 8; snapshot t; \
               poke /a 8190 9 9; append /a 3000 2; truncate /a 5000; drop s; poke /a 90 9 3";
    let pool = Geometry { mapped: true, ..small() };
    case("what a snapshot sees of a mapped file", pool, "create /a; write /a 0 10000 3", ops)
}

/// A pool at level `full` whose files are mapped.
fn mapped_with_strips() -> Geometry {
    let strip = Some(512);
    Geometry { dead_zone: Some(0), strip, bytes: 512 << 10, mapped: true, ..small() }
}

/// The same where what is mapped is exempt from checksums: what a snapshot has of it is whole, and exempt again when it moves.
fn pages_seen_in_maps_at_full() -> Case {
    let ops = "map /a; poke /a 100 9 5; snapshot s; poke /a 100 9 6; write /a 4090 17 7; snapshot t; poke /a 8190 9 9; \
               truncate /a 5000; drop s; unmap /a; append /a 100 5";
    let pool = mapped_with_strips();
    let name = "what a snapshot sees of a mapped file where data has checksums";
    case(name, pool, "create /a; write /a 0 10000 3", ops)
}

/// What is mapped is exempt from checksums, and whole again behind that.
fn mapped_at_full() -> Case {
    let ops = "map /a; poke /a 4000 200 9; write /a 4090 17 8; unmap /a; write /a 4000 90 7; map /a; leave /a 1 9000 6; append /a 100 5";
    let pool = mapped_with_strips();
    case("a file is mapped where data has checksums", pool, "create /a; write /a 0 10000 3", ops)
}

/// Who opens what a crash has left is told that the memory has lost something since, and of a page that is bad.
fn losses() -> Vec<Case> {
    let ops = "append /f 100 3; write /f 100 50 4; rename /f /d/g; snapshot a; write /d/g 0 4096 5; \
               unlink /d/x; create /n; append /n 5000 6; remount; chmod /n 0o600";
    let before = "create /f; append /f 9000 1; mkdir /d; create /d/x; setxattr /d/x user.x 5000";
    let lossy = Geometry { bytes: 256 << 10, lossy: true, ..small() };
    let twins = Geometry { bytes: 512 << 10, dead_zone: Some(0), ..lossy.clone() };
    let full = Geometry { strip: Some(512), ..twins.clone() };
    let named = |what: &str| format!("the memory has lost something{what}");
    vec![
        case(named(""), lossy, before, ops),
        case(named(", and metadata has copies"), twins, before, ops),
        case(named(", and data has checksums"), full, before, ops),
    ]
}

/// Volumes are made, as `lode-block` does, written, given back in parts, grown and deleted; one is thin, of pages of 2 MiB.
fn volumes() -> [Case; 2] {
    let pool = Geometry { bytes: 256 << 10, ..small() };
    let ops = "tmpfile /d/e 0 0o600 user.lode.volume 11; allocate @0 0 16K; link @0 /d/e/v; close 0; \
               write /d/e/v 512 1024 1; allocate /d/e/v 16K 8K; unlink /d/e/v";
    let thin = "tmpfile /d/e 0 0o600 user.lode.volume 16; allocate @0 0 2M; setattr @0 size=4M; link @0 /d/e/v; \
                close 0; write /d/e/v 512 512 1; write /d/e/v 2M 4K 2; zero /d/e/v 4K 4K; punch /d/e/v 2M 2M; \
                truncate /d/e/v 6M";
    [
        case("a volume", pool, "mkdir /d; mkdir /d/e; create /d/e/w", ops),
        case("a thin volume", huge(), "mkdir /d; mkdir /d/e", thin),
    ]
}

/// What two logs say goes back to where their inodes are, of one of them twice; others take their pages.
fn inline() -> Vec<Case> {
    let modes = |path: &str, count| repeated(count, &format!("chmod {path} 0o60#"));
    let file = |path: &str| format!("create {path}; append {path} 4096 1; append {path} 4096 2");
    let before = format!("{}; {}; {}{}", file("/a"), file("/b"), modes("/a", 5), modes("/b", 3));
    let ops = "chmod /b 0o611; append /a 100 5; create /c; append /c 9000 6; chmod /a 0o612; truncate /b 50; \
               chown /a 1 2; chmod /a 0o613; chmod /a 0o614; link /a /l; append /b 5000 7; unlink /a; unlink /b";
    // (This one is written anew first: its inode's places mean nothing, and what was done with another log just then is
    // not behind the watermark.)
    let full = format!("create /a; {}create /b; {}", modes("/a", 5), modes("/b", 5));
    let again = modes("/a", 6);
    let again = format!("{again}link /a /l; chmod /b 0o611; append /a 100 7; unlink /a");
    let longer = Geometry { log_lines: FEW_LINES + 1, ..small() };
    let twins = Geometry { dead_zone: Some(0), bytes: 512 << 10, ..small() };
    vec![
        case("logs go back inline", small(), &before, ops),
        case("logs go back inline where metadata has copies", twins, &before, ops),
        case("a log that was written anew goes back inline", longer, &full, &again),
    ]
}

/// A log gets a page that was its own before: an older link word, and records of its own behind that.
fn page_used_again() -> Case {
    let each = "chmod /k #; link /k /d/l; unlink /d/l; rename /d/a /d/c; rename /d/c /d/a";
    let before = "create /k; mkdir /d; link /k /d/a; link /k /d/b; link /k /d/%=0.90";
    let before = format!("{before}; {}", repeated(12, each));
    case("a log gets a page again", small(), &before, &repeated(3, "link /k /d/n#; unlink /d/n#"))
}

/// The same where the record does not fit into what is left of the page in front of it, whose last lines a crash may
/// tear, too: then nothing that is known of that page says what the new one's link word is.
fn page_used_again_behind_padding() -> Case {
    let before = "create /k; mkdir /d; mkdir /e; create /m; link /k /d/%=0.100; unlink /d/%=0.100; link /k /e/%=2.130; \
                  link /k /d/%=3.60; chmod /m 0o640; unlink /d/%=3.60; link /k /d/%=6.60; unlink /d/%=6.60; \
                  link /k /d/%=8.130; unlink /e/%=2.130; unlink /d/%=8.130; link /k /e/%=11.100";
    let pool = Geometry { bytes: 160 << 10, ..small() };
    case("a log gets a page again behind padding", pool, before, "link /k /d/%=99.130")
}

/// A pool of 24 pages, in which a round is due after as many transactions: it comes in the middle
/// of these operations, and frees a slot that the next one takes. (Whole log pages: collections have
/// rounds of their own.)
fn round_in_time(changes: u64) -> Case {
    let changed = repeated(changes, "chown /a # 5");
    let before = format!("create /a; create /q; create /r; create /s; {changed}");
    let ops = "unlink /q; create /x; unlink /r; create /y; unlink /s; create /z";
    case(format!("a round is due after {changes} changes"), roomy(), &before, ops)
}

/// More slots wait than a table page has: a round is better than a new page.
fn round_for_slots() -> Case {
    let before = repeated(13, "create /f#");
    let ops = format!("{}{}", repeated(10, "unlink /f#"), repeated(4, "create /x#"));
    let pool = Geometry { bytes: 160 << 10, ..roomy() };
    case("slots wait for a round", pool, &before, &ops)
}

/// Attributes that come with a mode, or with a new inode; values whose last word is not whole.
fn attributes_come_along() -> Case {
    let before = "create /a; mkdir /d; setxattr /a user.x 30 1";
    let ops = "create-with /d/n 0o100640 user.x 60 2; setattr-with /a user.x 5001 3 mode=0o604; \
               create-with /d/m 0o040750 user.y 4003 4; setattr-with /d user.z 9 5 uid=7";
    let pool = Geometry { bytes: 160 << 10, ..roomy() };
    case("attributes come along", pool, before, ops)
}

/// Files without a name, with logs of many pages, come, get names, go; others take their pages.
fn nameless() -> Vec<Case> {
    let before = "create /k; mkdir /d; create /d/x";
    let long = repeated(9, "chown @0 # 7");
    let ops = format!(
        "tmpfile /d 0 0o600 user.x 60 1; append @0 5000 2; {long} write @0 100 50 3; link @0 /d/n; \
         append @0 9 4; tmpfile / 1; append @1 4096 5; unlink /d/n; close 0; create /b; maintain; \
         append /b 9000 6; close 1; tmpfile / 0; {long} crash; create /c; append /c 5000 7"
    );
    let long_before = format!("{before}; tmpfile / 0; {long} append @0 9000 1");
    let taken = repeated(9, "chmod /k 0o60#").replace("0o608", "0o610");
    let pool = Geometry { bytes: 160 << 10, ..small() };
    vec![
        case("files without a name", pool.clone(), before, &ops),
        case(
            "a file without a name goes, its pages are taken",
            pool.clone(),
            &long_before,
            &format!("close 0; maintain; {taken} create /b; append /b 9000 3"),
        ),
        case(
            "a crash ends a file without a name, its pages are taken",
            pool,
            &long_before,
            &format!("crash; {taken} create /b; append /b 9000 3"),
        ),
    ]
}

/// The pool gets more room, little and much, clean and after a crash, with what is in use at its end.
fn growths() -> Vec<Case> {
    let before =
        "create /a; append /a 9000; mkdir /d; create /d/x; setxattr /d user.x 5000; unlink /a";
    let filled = format!("{before}; create /b; {}", repeated(9, "append /b 4096"));
    let after = "create /n; append /n 30000; rename /d/x /d/y";
    let mut cases = Vec::new();
    for (kib, more) in [(72, "a page"), (160, "much")] {
        for (before, ops, how) in [
            (before, format!("grow; {after}"), "a closed pool"),
            (before, format!("crash; grow; {after}"), "a cut off pool"),
            (&filled, format!("grow; {after}; grow; remount"), "a full pool"),
        ] {
            let pool = Geometry { made: Some(68 << 10), bytes: kib << 10, ..small() };
            cases.push(case(format!("{how} grows by {more}"), pool, before, &ops));
        }
    }
    cases
}

/// The session is raised again and again, with lanes and slots in use.
fn sessions_end() -> Case {
    let pool = Geometry { nonces: Some(3), ..lanes(2) };
    let before = "create /a; append /a 5000; mkdir /d; create /d/x";
    let ops = "unlink /a; create /b; rename /d/x /y; mkdir /e; create /e/z; unlink /y; create /d/u; \
               create /d/v; unlink /b";
    case("sessions end after three nonces", pool, before, ops)
}

/// A page that collection took out of a log comes back at the log's end, where it lay before the page
/// that now leads to it: of its header, the link of its last life may be all that stays.
fn page_comes_back() -> Case {
    let churn = repeated(14, "link /k /d/l; unlink /d/l");
    let links = repeated(6, "link /k /d/a#");
    let before = format!("create /a; create /k; mkdir /d; {links}; {churn}");
    let pool = Geometry { bytes: 160 << 10, ..small() };
    case("a page comes back into its log", pool, &before, "link /k /d/l; unlink /d/l")
}

/// Operations on two logs that both roll over, where only so many pages are left: the first page may be
/// had, and the second not.
fn nearly_full(appends: u64) -> Case {
    let filled = repeated(appends, "append /f 4096 #");
    let before = format!("mkdir /d; create /a; create /f; {filled}; chmod / 0o701; chmod / 0o702");
    let there = "rename /a /d/%=0.136; rename /d/%=0.136 /a";
    let back = "rename /a /d/%=1.136; link /d/%=1.136 /%=2.136; rename /d/%=1.136 /a";
    let pool = Geometry { bytes: 64 << 10, ..small() };
    case(
        format!("a full pool, nearly: {appends} pages"),
        pool,
        &before,
        &format!("{there}; {back}"),
    )
}

/// Whether no name of a case is too long for log pages of four records.
fn fits_short_pages(case: &Case) -> bool {
    let ops = case.before.iter().chain(&case.ops);
    !ops.map(ToString::to_string).any(|op| {
        op.split([' ', '/']).any(|word| {
            let generated = word.strip_prefix("%=").and_then(|word| word.split_once('.'));
            generated.is_some_and(|(_, len)| len.parse().is_ok_and(|len: u32| len > 136))
        })
    })
}
