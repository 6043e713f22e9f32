//! `lode scrub`: what has gone bad is repaired or told, of a pool that is mounted and of one that is not.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::server::Server;
use common::{Scratch, lode, text};

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

#[test]
fn no_faster_than_it_may() {
    let scratch = Scratch::new();
    let pool = made(&scratch);
    let began = std::time::Instant::now();
    let report = lode(&["scrub", text(&pool), "--rate", "64K", "--json"]).expect(0).json();
    let seconds = report["bytes"].as_u64().unwrap() as f64 / 65_536.0;
    assert!(began.elapsed().as_secs_f64() >= seconds - 1.1, "{seconds} s");
}

#[test]
fn what_is_no_pool_can_not_be_scrubbed() {
    lode(&["scrub", "/dev/null"]).expect(8);
    lode(&["scrub"]).expect(16);
    lode(&["scrub", "/no/such/pool"]).expect(8);
}
