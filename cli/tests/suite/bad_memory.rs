//! Lines that can't be loaded, under a mounted pool: reads fail for them alone, the log, the statistics and a scrub name them.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::server::Server;
use crate::common::{Scratch, lode, text};
use lode_fuse::control::Client;
use rustix::fs::OFlags;
use serde_json::{Value, json};

const PAGE: u64 = 4096;
const LINE: u64 = 64;
const EIO: Option<i32> = Some(5);

fn byte(at: u64) -> u8 {
    (at / LINE) as u8 ^ (at / PAGE) as u8
}

/// A pool with the file `sub/file` of so many pages, and where each of these lies.
fn filled(scratch: &Scratch, level: &str, pages: u64) -> (PathBuf, Vec<u64>) {
    let (pool, dir) = (scratch.path("pool"), scratch.dir("mnt"));
    lode(&["mkfs", text(&pool), "--size", "64M", "--protect", level]).expect(0);
    Server::mount(&pool, &dir, &scratch.path("filling")).run_with(|| {
        fs::create_dir(dir.join("sub")).unwrap();
        let bytes: Vec<u8> = (0..pages * PAGE).map(byte).collect();
        fs::write(dir.join("sub/file"), bytes).unwrap();
        lode(&["snapshot", "create", text(&dir), "then"]).expect(0);
    });
    let dump = lode(&["dump", text(&pool), "/sub/file", "--json"]).expect(0).json();
    let mut places = vec![0; pages as usize];
    for extent in dump["inodes"][0]["extents"].as_array().unwrap() {
        let number = |key: &str| extent[key].as_u64().unwrap();
        for skip in (0..number("bytes")).step_by(PAGE as usize) {
            places[((number("file_offset") + skip) / PAGE) as usize] = number("pool_offset") + skip;
        }
    }
    (pool, places)
}

fn make_bad(dir: &Path, at: u64, bytes: u64) {
    let request = json!({ "op": "poison", "at": at, "bytes": bytes });
    Client::for_mount(dir).unwrap().request(&request).unwrap();
}

#[track_caller]
fn good(file: &File, at: u64, bytes: u64) {
    let mut read = vec![0; bytes as usize];
    file.read_exact_at(&mut read, at).unwrap_or_else(|error| panic!("{bytes} at {at}: {error}"));
    assert!((at..).zip(&read).all(|(at, read)| *read == byte(at)), "wrong bytes at {at}");
}

#[track_caller]
fn lost(file: &File, at: u64, bytes: u64) {
    let read = file.read_at(&mut vec![0; bytes as usize], at);
    assert_eq!(read.expect_err("it can't be").raw_os_error(), EIO, "{bytes} at {at}");
}

fn direct(path: &Path) -> File {
    let flags = OFlags::DIRECT.bits().cast_signed();
    File::options().read(true).custom_flags(flags).open(path).unwrap()
}

/// The log, once it has so many such lines.
fn log_with(log: &Path, what: &str, count: usize) -> Vec<String> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let said = fs::read_to_string(log).unwrap();
        let lines: Vec<String> =
            said.lines().filter(|line| line.contains(what)).map(str::to_owned).collect();
        if lines.len() >= count {
            return lines;
        }
        assert!(Instant::now() < end, "{said}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn reads_fail_for_lost_lines_alone_and_the_log_names_each_once() {
    const PAGES: u64 = 256;
    let scratch = Scratch::new();
    let (pool, places) = filled(&scratch, "metadata", PAGES);
    let log = scratch.path("log");
    let server = Server::mount(&pool, &scratch.dir("mnt"), &log);
    let path = server.dir.join("sub/file");
    // A line of page 20, two of page 21 that are apart, and all of page 100.
    let bad = [(20, 3 * LINE, LINE), (21, 0, LINE), (21, 63 * LINE, LINE), (100, 0, PAGE)];
    for (page, skip, bytes) in bad {
        make_bad(&server.dir, places[page as usize] + skip, bytes);
    }
    let is_bad = |page: u64| bad.iter().any(|(bad, ..)| *bad == page);
    // Through the kernel's cache: all before the first bad page, then page by page, whatever is read ahead.
    let mut some = vec![0; 32 * PAGE as usize];
    let got = File::open(&path).unwrap().read_at(&mut some, 0).unwrap() as u64;
    assert_eq!(got, 20 * PAGE);
    for round in 0..2 {
        let file = File::open(&path).unwrap();
        for page in 0..PAGES {
            match is_bad(page) {
                true => lost(&file, page * PAGE, PAGE),
                false => good(&file, page * PAGE, PAGE),
            }
        }
        assert!(round > 0 || File::open(&path).unwrap().read_to_end(&mut Vec::new()).is_err());
    }
    // Around it: each line for itself, and what ends just before one.
    let file = direct(&path);
    for line in 0..PAGE / LINE {
        let at = 20 * PAGE + line * LINE;
        if line == 3 { lost(&file, at, LINE) } else { good(&file, at, LINE) }
    }
    good(&file, 19 * PAGE, PAGE + 3 * LINE);
    good(&file, 21 * PAGE + LINE, PAGE - 2 * LINE);
    lost(&file, 21 * PAGE + 1, PAGE);
    good(&file, 22 * PAGE, 78 * PAGE);
    drop(file);
    // As it was then it has the same pages; what is told is told.
    let then = server.dir.join(".lode/snapshots/then/sub/file");
    lost(&File::open(then).unwrap(), 20 * PAGE, PAGE);
    let lines = log_with(&log, "answering EIO", bad.len());
    assert_eq!(lines.len(), bad.len(), "{lines:#?}");
    let listed = bad.map(|(page, skip, bytes)| {
        (page * PAGE + skip, bytes, places[page as usize] + skip, Some("sub/file".to_owned()))
    });
    assert_eq!(lost_places(&server.dir, bad.len()), listed);
    for (page, skip, bytes) in bad {
        let (at, offset) = (page * PAGE + skip, places[page as usize] + skip);
        let said = "path=\"/sub/file\" inode=";
        let place = format!(" file_offset={at} bytes={bytes} offset={offset} ");
        let named = lines.iter().any(|line| line.contains(said) && line.contains(&place));
        assert!(named, "{place} in {lines:#?}");
    }
    server.umount();
}

#[test]
fn what_a_snapshot_alone_has_is_named_by_its_path() {
    let scratch = Scratch::new();
    let (pool, places) = filled(&scratch, "none", 8);
    let log = scratch.path("log");
    let server = Server::mount(&pool, &scratch.dir("mnt"), &log);
    make_bad(&server.dir, places[5], LINE);
    fs::remove_file(server.dir.join("sub/file")).unwrap();
    let then = server.dir.join(".lode/snapshots/then/sub/file");
    lost(&File::open(then).unwrap(), 5 * PAGE, PAGE);
    let line = log_with(&log, "answering EIO", 1).remove(0);
    assert!(line.contains("path=\"/.lode/snapshots/then/sub/file\""), "{line}");
    assert!(line.contains("file_offset=20480 bytes=64"), "{line}");
    server.umount();
}

/// What the statistics list as lost, once there are so many places: offset and bytes in the file, offset in the pool, path.
fn lost_places(dir: &Path, count: usize) -> Vec<(u64, u64, u64, Option<String>)> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let stats = lode(&["stats", text(dir), "--json"]).expect(0).json();
        let places = stats["health"]["lost"].as_array().unwrap();
        if places.len() == count {
            assert_eq!(stats["health"]["lost_forgotten"], 0);
            assert!(places.iter().all(|place| place["outcome"] == "lost"), "{places:?}");
            let all = places.iter().map(|place| {
                let at = |key: &str| place[key].as_u64().unwrap();
                let path = place["path"].as_str().map(str::to_owned);
                (at("offset"), at("bytes"), at("at"), path)
            });
            let mut all: Vec<_> = all.collect();
            all.sort_unstable();
            return all;
        }
        assert!(Instant::now() < end, "{count} are lost: {stats}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_page_that_is_damaged_beyond_repair_is_in_the_statistics_until_a_scrub_finds_it_written() {
    let scratch = Scratch::new();
    let (pool, places) = filled(&scratch, "full", 16);
    // Two strips of a page: more than its parity gives back.
    let at = places[9] + 1536;
    File::options().write(true).open(&pool).unwrap().write_all_at(&[0x5a; 1024], at).unwrap();
    let server = Server::mount(&pool, &scratch.dir("mnt"), &scratch.path("log"));
    let dir = &server.dir;
    let path = dir.join("sub/file");
    assert_eq!(lost_places(dir, 0), []);
    lost(&File::open(&path).unwrap(), 9 * PAGE, PAGE);
    let listed = [(9 * PAGE + 1536, 1024, at, Some("sub/file".to_owned()))];
    assert_eq!(lost_places(dir, 1), listed);
    let said = lode(&["stats", text(dir)]).expect(0).out;
    let place = format!("1024 bytes at offset 38400 of /sub/file, at {at:#x} of the pool");
    assert!(said.contains(&place), "{said}");
    // A file of the mount says so as well, but paths only to who may ask the server.
    let shown = || {
        let file = fs::read_to_string(dir.join(".lode/stats.json")).unwrap();
        serde_json::from_str::<Value>(&file).unwrap()["health"]["lost"][0]["path"].clone()
    };
    assert_eq!(shown(), "sub/file");
    // The snapshot has it still; when that is gone, and the page is written anew, a scrub sees it.
    lode(&["scrub", text(dir)]).expect(4);
    assert_eq!(lost_places(dir, 1), listed);
    lode(&["snapshot", "delete", text(dir), "then"]).expect(0);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[1; PAGE as usize], 9 * PAGE).unwrap();
    drop(file);
    assert_eq!(lost_places(dir, 1), listed);
    lode(&["scrub", text(dir)]).expect(0);
    assert_eq!(lost_places(dir, 0), []);
    server.umount();
}

#[test]
fn what_a_scrub_finds_lost_is_in_the_statistics_by_its_path() {
    let scratch = Scratch::new();
    let (pool, places) = filled(&scratch, "none", 16);
    let server = Server::mount(&pool, &scratch.dir("mnt"), &scratch.path("log"));
    make_bad(&server.dir, places[3] + LINE, 2 * LINE);
    lode(&["scrub", text(&server.dir)]).expect(4);
    let listed = (3 * PAGE + LINE, 2 * LINE, places[3] + LINE, Some("sub/file".to_owned()));
    assert_eq!(lost_places(&server.dir, 1), [listed]);
    server.umount();
}

fn number(report: &Value, path: &str) -> u64 {
    report.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {report}"))
}

#[test]
fn statistics_info_and_scrub_know_it_until_it_is_kept_from_use() {
    let scratch = Scratch::new();
    let (pool, places) = filled(&scratch, "metadata", 16);
    let log = scratch.path("log");
    let server = Server::mount(&pool, &scratch.dir("mnt"), &log);
    let dir = &server.dir;
    lode(&["snapshot", "delete", text(dir), "then"]).expect(0);
    make_bad(dir, places[9] + 2 * LINE, 3 * LINE);
    let scrubbed = lode(&["scrub", text(dir), "--json"]).expect(4).json();
    let finding = &scrubbed["findings"][0];
    assert_eq!((number(finding, "/offset"), number(finding, "/bytes")), (9 * PAGE + 128, 192));
    assert_eq!(finding["path"], "sub/file");
    let known = json!({ "pages": 1, "bytes": 192, "kept_pages": 0 });
    let stats = |path: &str| {
        let stats = lode(&["stats", text(dir), "--json"]).expect(0).json();
        stats.pointer(path).unwrap().clone()
    };
    assert_eq!((&scrubbed["bad_memory"], &scrubbed["kept"]), (&known, &json!([])));
    assert_eq!(stats("/health/bad_memory"), known);
    assert_eq!((stats("/scrub/ended"), stats("/scrub/lost")), (json!(1), json!(1)));
    assert_eq!(lode(&["info", text(dir), "--json"]).expect(0).json()["bad_memory"], known);
    // Whose page it was gives it up: nobody gets it.
    fs::remove_file(dir.join("sub/file")).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while stats("/health/bad_memory/kept_pages") != 1 {
        assert!(Instant::now() < end, "it is not kept from use");
        std::thread::sleep(Duration::from_millis(50));
    }
    let kept = json!([{ "at": places[9], "bytes": 192 }]);
    let scrubbed = lode(&["scrub", text(dir), "--json"]).expect(0).json();
    assert_eq!(scrubbed["kept"], kept, "{scrubbed}");
    let said = lode(&["scrub", text(dir)]).expect(0).out;
    let page = format!("the page at {:#x} has 192 bad bytes, and is kept from use", places[9]);
    assert!(said.contains(&page), "{said}");
    let metrics = lode(&["stats", text(dir), "--prometheus"]).expect(0).out;
    let metrics = crate::common::prometheus::parse(&metrics).unwrap();
    let values = ["lode_bad_memory_bytes", "lode_bad_pages", "lode_bad_pages_kept"];
    assert_eq!(values.map(|name| metrics[name].value()), [192.0, 1.0, 1.0]);
    server.umount();
    // It is in the pool.
    let info = lode(&["info", text(&pool)]).expect(0).out;
    assert!(info.contains("192 bytes in 1 pages, 1 of them kept from use"), "{info}");
    let closed = lode(&["scrub", text(&pool), "-n", "--json"]).expect(0).json();
    assert_eq!(closed["kept"], kept, "{closed}");
}
