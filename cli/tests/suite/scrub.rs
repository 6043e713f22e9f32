//! `lode scrub`: what has gone bad is repaired or told, of a pool that is mounted and of one that is not.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::server::Server;
use crate::common::{LODE, Scratch, lode, text};

/// Changes bytes of the pool that have a copy elsewhere, behind its back.
fn scribbled(pool: &Path, at: u64) {
    let file = fs::OpenOptions::new().write(true).open(pool).unwrap();
    file.write_all_at(&[0x5a; 32], at).unwrap();
}

/// Offset of the identity of the root directory.
fn root_at(pool: &Path) -> u64 {
    let image = fs::read(pool).unwrap();
    u64::from_le_bytes(image[96..104].try_into().unwrap()) * 512
}

fn made(scratch: &Scratch) -> PathBuf {
    let pool = scratch.path("pool");
    lode(&["mkfs", text(&pool), "--size", "16M", "--protect", "metadata"]).expect(0);
    pool
}

#[test]
fn of_a_pool_that_is_not_mounted() {
    let scratch = Scratch::new();
    let pool = made(&scratch);
    let path = text(&pool);
    let clean = lode(&["scrub", path, "--json"]).expect(0).json();
    assert_eq!(
        (clean["status"].as_u64(), clean["findings"].as_array().map(Vec::len)),
        (Some(0), Some(0))
    );
    assert!(clean["bytes"].as_u64().unwrap() > 4096);
    scribbled(&pool, root_at(&pool));
    let told = lode(&["scrub", path, "-n", "--json"]).expect(4).json();
    assert_eq!((told["left"].as_u64(), told["repaired"].as_u64()), (Some(1), Some(0)));
    let repaired = lode(&["scrub", path, "--json"]).expect(1).json();
    let finding = &repaired["findings"][0];
    assert_eq!(
        (finding["what"].as_str(), finding["outcome"].as_str()),
        (Some("metadata"), Some("repaired"))
    );
    assert_eq!(finding["at"].as_u64(), Some(root_at(&pool)));
    lode(&["scrub", path, "-n"]).expect(0);
    lode(&["fsck", path]).expect(0);
}

#[test]
fn what_opening_has_repaired_is_told() {
    let scratch = Scratch::new();
    let pool = made(&scratch);
    let path = text(&pool);
    let last = fs::metadata(&pool).unwrap().len() - 4096;
    for superblock in [0, last] {
        scribbled(&pool, superblock);
        let told = lode(&["scrub", path, "-n", "--json"]).expect(4).json();
        assert_eq!((told["left"].as_u64(), told["repaired"].as_u64()), (Some(1), Some(0)));
        let repaired = lode(&["scrub", path, "--json"]).expect(1).json();
        assert_eq!(repaired["repaired"].as_u64(), Some(1), "{repaired}");
        let found = &repaired["findings"][0];
        assert_eq!(
            (found["what"].as_str(), found["at"].as_u64()),
            (Some("superblock"), Some(superblock))
        );
        lode(&["scrub", path, "-n"]).expect(0);
    }
    // Neither the checkpoint of a clean end, nor tables that it knows, are what they were: all of that is told.
    let file = fs::OpenOptions::new().write(true).open(&pool).unwrap();
    file.write_all_at(&[0x5a; 4096], 4096).unwrap();
    let told = lode(&["scrub", path, "-n", "--json"]).expect(4).json();
    let found = told["left"].as_u64().unwrap();
    assert!(found > 0, "{told}");
    let repaired = lode(&["scrub", path, "--json"]).expect(1).json();
    assert!(repaired["repaired"].as_u64().unwrap() > 0, "{repaired}");
    lode(&["scrub", path, "-n"]).expect(0);
    lode(&["scrub", path, "--rate", "0"]).expect(16);
}

#[test]
fn what_a_program_had_mapped_is_named_and_the_log_says_when_it_has_checksums_again() {
    let scratch = Scratch::new();
    let (pool, image) = (scratch.path("pool"), scratch.path("image"));
    lode(&["mkfs", text(&pool), "--size", "32M", "--protect", "full"]).expect(0);
    let program = lode::Pool::open(&pool).unwrap();
    program.create_dir("dir").unwrap();
    program.write("dir/mapped", [7; 20_000]).unwrap();
    let mut how = lode::OpenOptions::new();
    let file = program.open_with("dir/mapped", how.read(true).write(true)).unwrap();
    let map = file.map(4096, 8192, lode::MapOptions::new().write(true)).unwrap();
    // As a kill of the program would leave it.
    fs::copy(&pool, &image).unwrap();
    drop((map, file));
    program.close().unwrap();
    let told = lode(&["scrub", text(&image), "-n", "--json"]).expect(0).json();
    let named = &told["exempt"][0];
    assert_eq!(
        (told["exempt_pages"].as_u64(), told["exempt"].as_array().map(Vec::len)),
        (Some(2), Some(1))
    );
    assert_eq!((named["offset"].as_u64(), named["bytes"].as_u64()), (Some(4096), Some(8192)));
    assert_eq!(named["path"], "dir/mapped");
    let line = "8192 bytes at offset 4096 of /dir/mapped are mapped, and have no checksums";
    let said = lode(&["scrub", text(&image), "-n"]).expect(0).out;
    assert!(said.contains(line), "{said}");
    let (dir, log) = (scratch.dir("mnt"), scratch.path("log"));
    Server::mount(&image, &dir, &log).umount();
    let log = fs::read_to_string(&log).unwrap();
    let of = format!("inode={}", named["inode"]);
    let line = log.lines().find(|line| line.contains(&of)).unwrap_or_else(|| panic!("{log}"));
    for part in ["file_offset=4096", "bytes=8192", "its checksums are now of what is there"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    let after = lode(&["scrub", text(&image), "--json"]).expect(0).json();
    assert_eq!(
        (after["exempt_pages"].as_u64(), after["exempt"].as_array().map(Vec::len)),
        (Some(0), Some(0))
    );
}

/// Of a pool that was not unmounted, at the level where there is one copy: what is lost is named at its place, and nothing else.
#[test]
fn what_a_crash_and_damage_have_cost_is_named_at_its_place() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new();
    let (pool, image) = (scratch.path("pool"), scratch.path("image"));
    lode(&["mkfs", text(&pool), "--size", "16M", "--protect", "none"]).expect(0);
    let dir = scratch.dir("mnt");
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    for name in ["first", "second", "third"] {
        fs::write(dir.join(name), name).unwrap();
    }
    let ino = fs::metadata(dir.join("second")).unwrap().ino();
    // As a kill of the server would leave it.
    fs::copy(&pool, &image).unwrap();
    server.umount();
    let mut byte = [0];
    let file = fs::OpenOptions::new().read(true).write(true).open(&image).unwrap();
    file.read_exact_at(&mut byte, ino * 512 + 20).unwrap();
    file.write_all_at(&[byte[0] ^ 4], ino * 512 + 20).unwrap();
    let told = lode(&["scrub", text(&image), "-n", "--json"]).expect(4).json();
    let count = |name: &str| told[name].as_u64();
    assert_eq!((count("lost"), count("left"), count("repaired")), (Some(1), Some(0), Some(0)));
    let finding = &told["findings"][0];
    assert_eq!((finding["inode"].as_u64(), finding["at"].as_u64()), (Some(ino), Some(ino * 512)));
    let said = lode(&["scrub", text(&image), "-n"]).expect(4).out;
    let line = format!("metadata of /second, at {:#x} of the pool, can't be read: lost", ino * 512);
    assert!(said.contains(&line) && !said.contains("one copy"), "{said}");
}

#[test]
fn of_a_pool_that_is_mounted_and_in_use() {
    let scratch = Scratch::new();
    let (pool, dir) = (made(&scratch), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    fs::write(dir.join("file"), vec![7; 1 << 20]).unwrap();
    lode(&["scrub", text(&dir)]).expect(0);
    scribbled(&pool, root_at(&pool));
    // By the name of the pool, too.
    let report = lode(&["scrub", text(&pool), "--json"]).expect(1).json();
    assert_eq!((report["repaired"].as_u64(), report["lost"].as_u64()), (Some(1), Some(0)));
    assert!(report["bytes"].as_u64().unwrap() > 1 << 20);
    lode(&["scrub", text(&dir), "-n"]).expect(16);
    lode(&["scrub", text(&dir)]).expect(0);
    assert_eq!(fs::read(dir.join("file")).unwrap(), vec![7; 1 << 20]);
    server.umount();
    lode(&["fsck", text(&pool)]).expect(0);
}

/// What only a snapshot has is named as one gets at it.
#[test]
fn of_what_only_a_snapshot_sees() {
    const PATH: &str = ".lode/snapshots/kept/dir/file";
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.path("pool"), scratch.dir("mnt"));
    lode(&["mkfs", text(&pool), "--size", "16M", "--protect", "full"]).expect(0);
    let bytes: Vec<u8> = (0..20_000u32).map(|at| (at / 97) as u8 ^ 0x5c).collect();
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    fs::create_dir(dir.join("dir")).unwrap();
    fs::write(dir.join("dir/file"), &bytes).unwrap();
    lode(&["snapshot", "create", text(&dir), "kept"]).expect(0);
    fs::remove_file(dir.join("dir/file")).unwrap();
    let image = fs::read(&pool).unwrap();
    let at = image.windows(4096).position(|window| *window == bytes[4096..8192]).unwrap() as u64;
    scribbled(&pool, at + 700);
    let report = lode(&["scrub", text(&dir), "--json"]).expect(1).json();
    let finding = &report["findings"][0];
    assert_eq!((report["repaired"].as_u64(), finding["path"].as_str()), (Some(1), Some(PATH)));
    assert_eq!(finding["offset"].as_u64(), Some(4096));
    assert_eq!(fs::read(dir.join(PATH)).unwrap(), bytes);
    lode(&["scrub", text(&dir)]).expect(0);
    server.umount();
    // Of two strips parity knows nothing.
    for strip in [1, 3] {
        scribbled(&pool, at + strip * 520);
    }
    let lost = lode(&["scrub", text(&pool), "-n"]).expect(4);
    let told = lost.out;
    for offset in [4096 + 512, 4096 + 3 * 512] {
        let line = format!("512 bytes at offset {offset} of /{PATH}, at ");
        assert!(told.lines().any(|it| it.contains(&line) && it.ends_with("lost")), "{told}");
    }
    assert!(told.contains("0 repaired, 0 left, 2 lost"), "{told}");
}

/// A server does not wait for who says nothing for ten seconds.
#[test]
fn a_mounted_pool_is_scrubbed_however_slowly() {
    let scratch = Scratch::new();
    let (pool, dir) = (made(&scratch), scratch.dir("mount"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    for number in 0..600 {
        fs::write(dir.join(format!("a name of some length, {number:>40}")), "").unwrap();
    }
    // (The first step, inode tables, is a quarter of a MiB: the second one is asked for after 15 seconds.)
    let mut slow = Command::new(LODE)
        .args(["scrub", text(&dir), "--rate", "16K"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(19));
    let ended = slow.try_wait().unwrap();
    let _ = slow.kill();
    slow.wait().unwrap();
    assert_eq!(ended, None);
    server.umount();
}

/// How far it was, in lines such as `scrubbing: 12 of 64`, in bytes or in hundredths of the whole.
fn parts(told: &str) -> Vec<&str> {
    let lines = told.lines().filter_map(|line| line.split_once(": ").map(|(_, part)| part));
    lines.filter(|part| part.contains(" of ") || part.ends_with('%')).collect()
}

#[test]
fn who_waits_for_a_scrub_or_another_level_sees_how_far_it_is() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mount"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    fs::write(dir.join("file"), vec![7; 40 << 20]).unwrap();
    server.umount();
    for level in ["metadata", "full", "none"] {
        let changed = lode(&["protect", text(&pool), level, "--progress"]).expect(0);
        assert!(!parts(&changed.err).is_empty(), "{level}: {}", changed.err);
        let quiet = lode(&["scrub", text(&pool)]).expect(0);
        let told = lode(&["scrub", text(&pool), "--progress"]).expect(0);
        assert!(!parts(&told.err).is_empty() && quiet.err.is_empty(), "{level}: {}", told.err);
        assert_eq!(told.out.lines().count(), quiet.out.lines().count(), "{level}");
    }
    // Two seconds and more, with a line each.
    let slow = ["scrub", text(&pool), "--progress", "--rate", "16M"];
    let told = lode(&slow).expect(0).err;
    let mut parts = parts(&told);
    parts.dedup();
    assert!(parts.len() >= 2, "it does not move: {told}");
}

#[test]
fn what_is_no_pool_can_not_be_scrubbed() {
    lode(&["scrub", "/dev/null"]).expect(8);
    lode(&["scrub"]).expect(16);
    lode(&["scrub", "/no/such/pool"]).expect(8);
}

#[test]
fn no_faster_than_it_may_from_the_first_bytes_on() {
    const RATE: u64 = 4096;
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    let began = Instant::now();
    let report = lode(&["scrub", text(&pool), "--rate", "4K", "--json"]).expect(0).json();
    let (took, bytes) = (began.elapsed(), report["bytes"].as_u64().unwrap());
    // (Who waits does so behind each step but the last one.)
    let least = Duration::from_millis((bytes - 2 * RATE) * 1000 / RATE);
    assert!(bytes > 2 * RATE && took >= least, "{bytes} bytes in {took:?}");
}
