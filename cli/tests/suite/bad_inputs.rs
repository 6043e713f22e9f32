//! Bad input through the command: what is no pool, or a damaged, foreign, newer or busy one,
//! gives a clear error with its own exit code, for people and as JSON, and harms nothing.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::common::server::Server;
use crate::common::{Ran, Scratch, fsck, lode, run, text};

const SUPERBLOCK_BYTES: u64 = 512;

/// What each command that opens a pool says of `pool`: text with an advice, and JSON of the
/// same kind. Nothing of it may change the file.
#[track_caller]
fn refused(scratch: &Scratch, pool: &Path, kind: &str, code: i32, fsck_code: i32, says: &str) {
    let before = fs::read(pool).unwrap();
    let dir = scratch.dir("refused");
    let commands: [(&[&str], i32); 5] = [
        (&["info", text(pool)], code),
        (&["fsck", "-n", text(pool)], fsck_code),
        (&["dump", text(pool), "/"], code),
        (&["mount", text(pool), text(&dir)], code),
        (&["mount", text(pool), text(&dir), "--foreground"], code),
    ];
    for (args, code) in commands {
        let ran = lode(args).expect(code);
        assert!(ran.err.contains(says), "{} says\n{}", ran.line, ran.err);
        assert!(ran.err.contains(text(pool)), "{} does not say where\n{}", ran.line, ran.err);
        assert!(
            ran.err.contains("what to do: "),
            "{} does not say what to do\n{}",
            ran.line,
            ran.err
        );
        if args.contains(&"--foreground") {
            continue; // Its log goes to standard error too.
        }
        let json: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let error = lode(&json).expect(code).error_json();
        assert_eq!(error["error"]["kind"], kind, "{error}");
        assert_eq!(error["error"]["code"], code, "{error}");
    }
    assert!(fs::read(pool).unwrap() == before, "{} was changed", pool.display());
}

/// Changes both superblocks by `change` and makes their checksums right again.
fn change_superblocks(pool: &Path, change: impl Fn(&mut [u8])) {
    let file = OpenOptions::new().read(true).write(true).open(pool).unwrap();
    let last = file.metadata().unwrap().len() / 4096 * 4096 - 4096;
    for at in [0, last] {
        let mut bytes = [0u8; SUPERBLOCK_BYTES as usize];
        file.read_exact_at(&mut bytes, at).unwrap();
        assert_eq!(&bytes[..8], b"LODEPOOL");
        change(&mut bytes);
        let crc = lode_pmem::crc32c(0, &bytes[..508]);
        bytes[508..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&bytes, at).unwrap();
    }
}

fn overwrite(pool: &Path, at: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(pool).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn what_is_no_pool_is_called_so() {
    let scratch = Scratch::new();
    let zeros = scratch.path("zeros");
    fs::write(&zeros, vec![0; 1 << 20]).unwrap();
    refused(&scratch, &zeros, "not_a_pool", 3, 8, "not a Lode pool");
    let noise = scratch.path("noise");
    fs::write(&noise, "some text\n".repeat(100_000)).unwrap();
    refused(&scratch, &noise, "not_a_pool", 3, 8, "not a Lode pool");
    let empty = scratch.path("empty");
    fs::write(&empty, "").unwrap();
    refused(&scratch, &empty, "not_a_pool", 3, 8, "not a Lode pool");
}

#[test]
fn what_is_not_there_is_called_so() {
    let scratch = Scratch::new();
    let (missing, pool) = (scratch.path("missing"), scratch.pool("pool", "16M"));
    for command in ["info", "dump"] {
        let ran = lode(&[command, text(&missing)]).expect(8);
        assert!(ran.err.contains(text(&missing)), "{}", ran.err);
    }
    fsck(&missing).expect(8);
    lode(&["mount", text(&missing), text(&scratch.dir("mnt"))]).expect(8);
    let ran = lode(&["mount", text(&pool), text(&missing)]).expect(8);
    assert!(ran.err.contains("mkdir"), "{}", ran.err);
    lode(&["dump", text(&pool), "/no/such/file"]).expect(8);
    lode(&["umount", text(&missing)]).expect(8);
    lode(&["umount", text(&scratch.dir("mnt"))]).expect(11);
    lode(&["stats", text(&scratch.dir("mnt"))]).expect(11);
    lode(&["info", text(&scratch.dir("mnt"))]).expect(11);
    lode(&["umount", "/proc"]).expect(11);
}

/// (Who opened such a pipe would wait for somebody at its other end.)
#[test]
fn a_pipe_is_called_so_by_each_command_at_once() {
    let scratch = Scratch::new();
    let pipe = scratch.path("pipe");
    run(Command::new("mkfifo").arg(&pipe)).expect(0);
    let dir = scratch.dir("mnt");
    let commands: [&[&str]; 5] = [
        &["info", text(&pipe)],
        &["dump", text(&pipe)],
        &["fsck", "-n", text(&pipe)],
        &["mkfs", text(&pipe), "--force"],
        &["mount", text(&pipe), text(&dir)],
    ];
    for args in commands {
        let args = [&["10", crate::common::LODE], args].concat();
        let ran = run(Command::new("timeout").args(args));
        assert!(![0, 124].contains(&ran.code), "{}: {}", ran.line, ran.code);
        assert!(ran.err.contains("what to do: "), "{}: {}", ran.line, ran.err);
    }
}

#[test]
fn a_truncated_pool_is_called_so() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    OpenOptions::new().write(true).open(&pool).unwrap().set_len(9 << 20).unwrap();
    refused(&scratch, &pool, "corrupt", 4, 4, "truncated");
}

#[test]
fn a_newer_version_is_called_so() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    change_superblocks(&pool, |bytes| bytes[8] = 2);
    refused(&scratch, &pool, "unsupported", 5, 8, "version 2");
}

#[test]
fn an_unknown_incompatible_feature_is_called_so() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    change_superblocks(&pool, |bytes| bytes[39] = 0x80);
    refused(&scratch, &pool, "unsupported", 5, 8, "features");
}

#[test]
fn an_unknown_read_only_feature_allows_reading() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    change_superblocks(&pool, |bytes| bytes[31] = 0x80);
    let ran = lode(&["mount", text(&pool), text(&dir)]).expect(5);
    assert!(ran.err.contains("-o ro"), "{}", ran.err);
    fsck(&pool).expect(0);
    lode(&["mount", text(&pool), text(&dir), "-o", "ro"]).expect(0);
    lode(&["umount", text(&dir)]).expect(0);
}

#[test]
fn an_unknown_compatible_feature_is_let_be() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    change_superblocks(&pool, |bytes| bytes[23] = 0x80);
    fsck(&pool).expect(0);
    let info = lode(&["info", text(&pool), "--json"]).expect(0).json();
    assert_eq!(info["pool"]["features"]["compatible"], "0x8000000000000000");
}

#[test]
fn one_damaged_superblock_is_found_and_repaired() {
    for copy in [0, 16 * 1024 * 1024 - 4096] {
        let scratch = Scratch::new();
        let pool = scratch.pool("pool", "16M");
        overwrite(&pool, copy + 60, b"damage");
        let found = fsck(&pool).expect(4);
        assert!(found.out.contains("superblock"), "{}", found.out);
        assert!(!found.out.contains("fsck -y"), "nothing is to be given up: {}", found.out);
        let repaired = lode(&["fsck", "-p", text(&pool), "--json"]).expect(1).json();
        assert_eq!((&repaired["status"], &repaired["repaired"]), (&1.into(), &true.into()));
        fsck(&pool).expect(0);
    }
}

/// Each by its name, and by its place.
#[test]
fn the_line_that_says_where_the_second_superblock_is_is_no_copy_of_one() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    let second = 16 * 1024 * 1024 - 4096;
    let spoil = || {
        overwrite(&pool, 1024 + 8, b"damage");
        overwrite(&pool, second + 60, b"damage");
    };
    spoil();
    let found = lode(&["fsck", "-n", text(&pool), "--json"]).expect(4).json();
    let damage = found["damage"].as_array().unwrap().iter();
    let told: Vec<_> = damage
        .map(|one| (one["at"].as_u64().unwrap(), one["what"].as_str().unwrap().to_owned()))
        .collect();
    let wanted = [
        (second, "one copy of the superblock is damaged (fsck -p repairs it)"),
        (1024, "the locator of the second superblock is damaged (fsck -p repairs it)"),
    ];
    assert_eq!(told, wanted.map(|(at, what)| (at, what.to_owned())));
    let scrubbed = lode(&["scrub", text(&pool), "--json"]).expect(1).json();
    let found = scrubbed["findings"].as_array().unwrap().iter();
    let found: Vec<_> = found.map(|one| (one["what"].clone(), one["at"].clone())).collect();
    let wanted = [("superblock", second), ("locator", 1024)];
    assert_eq!(found, wanted.map(|(what, at)| (what.into(), at.into())));
    spoil();
    let said = lode(&["scrub", text(&pool)]).expect(1).out;
    let line =
        "the locator of the second superblock, at 0x400 of the pool, was bad, and is repaired";
    assert!(said.contains(line), "{said}");
    fsck(&pool).expect(0);
}

#[test]
fn two_damaged_superblocks_leave_nothing_to_open() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    overwrite(&pool, 60, b"damage");
    overwrite(&pool, 16 * 1024 * 1024 - 4096 + 60, b"damage");
    refused(&scratch, &pool, "corrupt", 4, 4, "superblock");
    let shown = lode(&["dump", text(&pool)]).expect(4);
    assert!(shown.out.contains("checksum"), "dump shows what is left:\n{}", shown.out);
}

#[test]
fn a_mounted_pool_is_busy_for_everybody_else() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let (other, other_dir) = (scratch.pool("other", "16M"), scratch.dir("other-mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    let says = |ran: Ran| {
        let names_mount = ran.err.contains(text(&dir));
        assert!(names_mount, "{} does not say where it is mounted:\n{}", ran.line, ran.err);
    };
    says(lode(&["mount", text(&pool), text(&other_dir)]).expect(6));
    says(lode(&["mount", text(&other), text(&dir)]).expect(6));
    says(lode(&["mkfs", text(&pool), "--force"]).expect(6));
    says(lode(&["dump", text(&pool)]).expect(6));
    says(fsck(&pool).expect(8));
    says(lode(&["fsck", "-p", text(&pool)]).expect(8));
    let error = lode(&["mount", text(&pool), text(&other_dir), "--json"]).expect(6).error_json();
    assert_eq!(error["error"]["kind"], "busy");
    // Nothing of that has disturbed the mount.
    fs::write(dir.join("file"), "still works").unwrap();
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "still works");
    server.umount();
    fsck(&pool).expect(0);
}

#[test]
fn several_may_look_at_a_pool_at_once_and_nobody_changes_it_meanwhile() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    let looking = fs::File::open(&pool).unwrap();
    looking.lock_shared().unwrap();
    fsck(&pool).expect(0);
    lode(&["dump", text(&pool)]).expect(0);
    lode(&["info", text(&pool)]).expect(0);
    lode(&["label", text(&pool), "new"]).expect(6);
    looking.unlock().unwrap();
    looking.lock().unwrap();
    fsck(&pool).expect(8);
}

#[test]
fn mkfs_destroys_nothing_unasked() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    let before = fs::read(&pool).unwrap();
    let ran = lode(&["mkfs", text(&pool), "--size", "16M"]).expect(10);
    assert!(ran.err.contains("Lode pool already") && ran.err.contains("--force"), "{}", ran.err);
    assert!(fs::read(&pool).unwrap() == before, "a refused mkfs wrote");
    lode(&["mkfs", text(&pool), "--force", "--label", "new"]).expect(0);
    let info = lode(&["info", text(&pool), "--json"]).expect(0).json();
    assert_eq!(
        (&info["pool"]["label"], &info["pool"]["bytes"]),
        (&"new".into(), &(16 << 20).into())
    );
    let letter = scratch.path("letter");
    fs::write(&letter, "dear reader").unwrap();
    lode(&["mkfs", text(&letter), "--size", "16M"]).expect(10);
    assert_eq!(fs::read_to_string(&letter).unwrap(), "dear reader");
    // A file of a size but without data holds nothing that could be lost.
    let hole = scratch.path("hole");
    fs::File::create(&hole).unwrap().set_len(16 << 20).unwrap();
    lode(&["mkfs", text(&hole)]).expect(0);
    fsck(&hole).expect(0);
}
