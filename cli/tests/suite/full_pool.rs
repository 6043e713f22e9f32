//! A full pool through the mount: ENOSPC loses nothing, and deleting gives all space back.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::model::content;
use crate::common::{Scratch, fsck, lode, text};

fn pages_free(dir: &Path) -> u64 {
    space(dir, "pages_free")
}

fn space(dir: &Path, key: &str) -> u64 {
    let info = lode(&["info", text(dir), "--json"]).expect(0).json();
    info["space"][key].as_u64().unwrap()
}

/// Writes files until the pool is full; returns how many are whole.
fn fill(dir: &Path, bytes: u64) -> u64 {
    for number in 0.. {
        let path = dir.join(format!("file{number}"));
        match fs::write(&path, content(1, number, bytes)) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::StorageFull, "file {number}: {error}");
                if path.exists() {
                    fs::remove_file(path).unwrap();
                }
                return number;
            }
        }
    }
    unreachable!("a pool without end")
}

#[track_caller]
fn all_there(dir: &Path, files: u64, bytes: u64) {
    for number in 0..files {
        let found = fs::read(dir.join(format!("file{number}"))).unwrap();
        assert!(found == content(1, number, bytes), "file {number} of {files} is wrong");
    }
}

fn delete(dir: &Path, files: u64) {
    for number in 0..files {
        fs::remove_file(dir.join(format!("file{number}"))).unwrap();
    }
}

#[test]
fn a_full_pool_loses_nothing_and_gives_everything_back() {
    for bytes in [100_000, 3_000, 300] {
        let scratch = Scratch::new();
        let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
        lode(&["mount", text(&pool), text(&dir)]).expect(0);
        let free = pages_free(&dir);
        let files = fill(&dir, bytes);
        assert!(files * bytes > free * 4096 / 20, "full after {files} files of {bytes} bytes");
        all_there(&dir, files, bytes);
        // What exists can still be deleted, and read after a crash-free remount.
        lode(&["umount", text(&dir)]).expect(0);
        fsck(&pool).expect(0);
        lode(&["mount", text(&pool), text(&dir)]).expect(0);
        all_there(&dir, files, bytes);
        delete(&dir, files);
        let deadline = Instant::now() + Duration::from_secs(10);
        while pages_free(&dir) != free {
            let left = pages_free(&dir);
            assert!(
                Instant::now() < deadline,
                "{free} pages were free, {left} are after deleting all"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        // Not to the file: how many log pages and tables it takes depends on how threads met.
        let again = fill(&dir, bytes);
        assert!(again * 50 >= files * 49, "{files} files fitted in, and then {again}");
        let left = space(&dir, "pages_available");
        assert!(left <= bytes / 4096 + 16, "no space for a file, and {left} pages free");
        delete(&dir, again);
        lode(&["umount", text(&dir)]).expect(0);
        fsck(&pool).expect(0);
        println!("full pool: {files} files of {bytes} bytes, {free} pages free before and after");
    }
}
