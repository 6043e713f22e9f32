//! A pool without space: what is refused, and what is not.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use crate::mapping::Map;
use crate::support::{Mount, errno, eventually};

const LEN: usize = 6 << 20;

fn open(mount: &Mount, name: &str) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).open(mount.path(name)).unwrap()
}

/// A pool of 16 MiB with a file that is allocated and written, in small pages, and no space left.
fn full() -> Option<(Mount, File, Vec<u8>)> {
    let mount = Mount::of_bytes(16 << 20)?;
    let file = open(&mount, "file");
    for piece in 0..LEN as u64 >> 20 {
        fallocate(&file, FallocateFlags::empty(), piece << 20, 1 << 20).unwrap();
    }
    file.write_all_at(&[1; LEN], 0).unwrap();
    fill(&open(&mount, "filler"));
    assert_eq!(statvfs(&mount.root).unwrap().f_bavail, 0);
    Some((mount, file, vec![1; LEN]))
}

/// Writes to the end of `file` until nothing is left.
fn fill(file: &File) {
    let mut short = 0;
    loop {
        let at = file.metadata().unwrap().len();
        match file.write_at(&[9; 1 << 20], at) {
            Ok(written) => {
                assert_eq!(file.metadata().unwrap().len(), at + written as u64);
                short += usize::from(written < 1 << 20);
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
                break;
            }
        }
    }
    assert!(short > 0, "the last bytes were refused");
}

#[test]
fn what_was_allocated_is_written_in_a_full_pool() {
    let Some((mount, file, mut wanted)) = full() else { return };
    let mut short = 0;
    for (step, len) in
        [1 << 20, 300_000, 100_000, 5000, 100].into_iter().cycle().take(200).enumerate()
    {
        let (at, byte) = (step * 1_234_567 % (LEN - len), 2 + step as u8);
        let mut done = 0;
        while done < len {
            let bytes = vec![byte; len - done];
            let written = file.write_at(&bytes, (at + done) as u64).unwrap();
            short += usize::from(written < bytes.len());
            done += written;
        }
        wanted[at..at + len].fill(byte);
    }
    assert!(short > 0, "the reserve holds all of the largest write");
    assert_eq!(errno(file.write_at(&[1], LEN as u64)), libc::ENOSPC);
    assert_eq!(file.metadata().unwrap().len(), LEN as u64);
    drop(file);
    let mount = mount.kill().mount();
    assert!(fs::read(mount.path("file")).unwrap() == wanted);
    // And it can be emptied, and filled again.
    let free = || statvfs(&mount.root).unwrap().f_bavail;
    fs::remove_file(mount.path("filler")).unwrap();
    eventually(|| free() > 1000);
    fill(&open(&mount, "again"));
    fs::remove_file(mount.path("file")).unwrap();
    eventually(|| free() >= LEN as u64 / 4096);
}

#[test]
fn what_is_stored_through_a_mapping_is_kept_in_a_full_pool() {
    let Some((mount, file, mut wanted)) = full() else { return };
    let map = Map::shared(&file, LEN);
    for round in 2..5 {
        // All of it, which is written back in the largest requests; then pages far from each other.
        for at in (0..LEN).step_by(if round == 2 { 500 } else { 7 * 4096 }) {
            map.set(at, round);
            wanted[at] = round;
        }
        map.sync();
    }
    drop((map, file));
    let mount = mount.kill().mount();
    assert!(fs::read(mount.path("file")).unwrap() == wanted);
}

#[test]
fn a_copy_into_what_is_allocated_succeeds_in_a_full_pool() {
    let Some((mount, file, mut wanted)) = full() else { return };
    let source = File::open(mount.path("filler")).unwrap();
    assert!(source.metadata().unwrap().size() >= 3 << 20);
    let (mut from, mut to) = (0, 1000);
    while from < 3 << 20 {
        let left = (3 << 20) - from as usize;
        let copied =
            rustix::fs::copy_file_range(&source, Some(&mut from), &file, Some(&mut to), left);
        assert!(copied.unwrap() > 0);
    }
    wanted[1000..1000 + (3 << 20)].fill(9);
    let mut found = vec![0; LEN];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == wanted);
}
