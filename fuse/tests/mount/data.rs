//! Data: holes, space, appends, many at once, synchronous writes.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use crate::support::{Mount, errno, shell};

fn open(mount: &Mount, name: &str) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).open(mount.path(name)).unwrap()
}

#[test]
fn holes_are_found_and_read_as_zeros() {
    let Some(mount) = Mount::new() else { return };
    let file = open(&mount, "sparse");
    file.write_all_at(b"one", 0).unwrap();
    file.write_all_at(b"two", 1 << 20).unwrap();
    file.set_len(3 << 20).unwrap();
    let data = |at| seek(&file, SeekFrom::Data(at));
    let hole = |at| seek(&file, SeekFrom::Hole(at));
    assert_eq!((data(0), hole(0)), (Ok(0), Ok(4096)));
    assert_eq!((data(4096), hole(1 << 20)), (Ok(1 << 20), Ok((1 << 20) + 4096)));
    assert_eq!(data(2 << 20), Err(rustix::io::Errno::NXIO));
    assert_eq!(hole(2 << 20), Ok(2 << 20));
    assert_eq!(hole(3 << 20), Err(rustix::io::Errno::NXIO));
    let mut bytes = vec![1; 1 << 16];
    file.read_exact_at(&mut bytes, 1 << 19).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    assert_eq!(file.metadata().unwrap().blocks(), 16);
    file.set_len(1 << 40).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 40);
}

#[test]
fn fallocate_in_its_five_ways() {
    let Some(mount) = Mount::new() else { return };
    let file = open(&mount, "file");
    let size = || file.metadata().unwrap().len();
    let blocks = || file.metadata().unwrap().blocks();
    fallocate(&file, FallocateFlags::empty(), 0, 100_000).unwrap();
    assert_eq!(size(), 100_000);
    assert_eq!(blocks(), 25 * 8);
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 200_000).unwrap();
    assert_eq!((size(), blocks()), (100_000, 49 * 8));
    file.write_all_at(&[7; 50_000], 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let before = blocks();
    fallocate(&file, punch, 4000, 10_000).unwrap();
    assert!(blocks() < before);
    let keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, FallocateFlags::ZERO_RANGE, 20_000, 100).unwrap();
    fallocate(&file, keep, 30_000, 100).unwrap();
    let mut bytes = vec![0; 50_000];
    file.read_exact_at(&mut bytes, 0).unwrap();
    for (at, byte) in bytes.iter().enumerate() {
        let zero = [4000..14_000, 20_000..20_100, 30_000..30_100].iter().any(|of| of.contains(&at));
        assert_eq!(*byte, if zero { 0 } else { 7 }, "at {at}");
    }
    fallocate(&file, FallocateFlags::ZERO_RANGE, 99_000, 11_000).unwrap();
    assert_eq!(size(), 110_000);
    fallocate(&file, keep, 100_000, 50_000).unwrap();
    assert_eq!(size(), 110_000);
    // The kernel does not pass these to FUSE.
    for other in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(fallocate(&file, other, 0, 4096), Err(rustix::io::Errno::OPNOTSUPP));
    }
}

#[test]
fn appends_of_two_processes_are_all_there() {
    let Some(mount) = Mount::new() else { return };
    let script = "i=0; while [ $i -lt 2000 ]; do echo $0-$i >> log; i=$((i+1)); done";
    std::thread::scope(|scope| {
        for name in ["first", "second"] {
            let mount = &mount;
            scope.spawn(move || shell(&mount.root, 0, &script.replace("$0", name)));
        }
    });
    let text = fs::read_to_string(mount.path("log")).unwrap();
    for name in ["first", "second"] {
        let mine: Vec<&str> = text.lines().filter(|line| line.starts_with(name)).collect();
        let all: Vec<String> = (0..2000).map(|i| format!("{name}-{i}")).collect();
        assert_eq!(mine, all);
    }
}

#[test]
fn readers_and_writers_of_one_file_at_once() {
    let Some(mount) = Mount::new() else { return };
    const PIECE: usize = 64 << 10;
    const PIECES: u64 = 32;
    let file = open(&mount, "file");
    file.write_all_at(&vec![0; PIECE * PIECES as usize], 0).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..4_u64 {
            let (file, done) = (&file, &done);
            scope.spawn(move || {
                let (mut bytes, mut at) = (vec![0; PIECE], reader);
                while !done.load(Relaxed) {
                    at = (at * 5 + 3) % PIECES;
                    file.read_exact_at(&mut bytes, at * PIECE as u64).unwrap();
                }
            });
        }
        let writers: Vec<_> = (0..4_u64)
            .map(|writer| {
                let file = &file;
                scope.spawn(move || {
                    for round in 1..=50_u8 {
                        for piece in (writer..PIECES).step_by(4) {
                            file.write_all_at(&vec![round; PIECE], piece * PIECE as u64).unwrap();
                        }
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Relaxed);
    });
    assert!(fs::read(mount.path("file")).unwrap().iter().all(|byte| *byte == 50));
    drop(file);
    let mount = mount.unmount().mount();
    assert!(fs::read(mount.path("file")).unwrap().iter().all(|byte| *byte == 50));
}

#[test]
fn direct_io_and_cached_io_see_the_same() {
    let Some(mount) = Mount::new() else { return };
    let file = open(&mount, "file");
    file.write_all_at(&[1; 16384], 0).unwrap();
    let direct = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(mount.path("file"));
    let direct = direct.unwrap();
    let mut space = vec![2_u8; 8192];
    let skip = space.as_ptr().align_offset(4096);
    direct.write_all_at(&space[skip..skip + 4096], 4096).unwrap();
    let mut bytes = [0; 16384];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..4096].iter().all(|b| *b == 1) && bytes[4096..8192].iter().all(|b| *b == 2));
    file.write_all_at(&[3; 4096], 4096).unwrap();
    direct.read_exact_at(&mut space[skip..skip + 4096], 4096).unwrap();
    assert!(space[skip..skip + 4096].iter().all(|b| *b == 3));
}

/// So it is atomic: the page cache would cut it where a page ends that it has not got.
#[test]
fn a_write_that_begins_inside_a_page_arrives_in_one_piece() {
    let Some(mount) = Mount::new() else { return };
    open(&mount, "file").write_all_at(&[1; 400_000], 0).unwrap();
    // Nothing is cached.
    let mount = mount.unmount().mount();
    let writes = || mount.client().ask("stats").unwrap()["ops"]["write"].as_u64().unwrap();
    let before = writes();
    open(&mount, "file").write_all_at(&[2; 300_000], 4000).unwrap();
    assert_eq!(writes() - before, 1);
}

#[test]
fn synchronous_writes_are_in_the_pool_when_they_return() {
    let Some(mount) = Mount::new() else { return };
    let ways = [("sync", libc::O_SYNC), ("dsync", libc::O_DSYNC), ("direct", libc::O_DIRECT)];
    for (name, flags) in ways {
        let mut options = File::options();
        let options = options.write(true).create(true).custom_flags(flags);
        let file = options.open(mount.path(name)).unwrap();
        file.write_all_at(name.as_bytes(), 5000).unwrap();
        file.sync_all().unwrap();
        file.write_all_at(name.as_bytes(), 0).unwrap();
    }
    let mount = mount.kill().mount();
    for (name, _) in ways {
        let bytes = fs::read(mount.path(name)).unwrap();
        assert!(bytes.starts_with(name.as_bytes()) && bytes[5000..] == *name.as_bytes(), "{name}");
    }
}

#[test]
fn ranges_are_copied_inside_the_pool() {
    let Some(mount) = Mount::new() else { return };
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i / 7) as u8).collect();
    fs::write(mount.path("from"), &bytes).unwrap();
    let (from, to) = (File::open(mount.path("from")).unwrap(), open(&mount, "to"));
    let (mut at, mut out) = (1000, 5);
    let writes = || mount.client().ask("stats").unwrap()["ops"]["write"].as_u64().unwrap();
    let before = writes();
    loop {
        let copied =
            rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut out), 1 << 30)
                .unwrap();
        if copied == 0 {
            break;
        }
    }
    // Where the server does not do it the kernel does, in many small pieces.
    assert_eq!(writes() - before, 3, "pieces of a mebibyte, and the rest");
    let copy = fs::read(mount.path("to")).unwrap();
    assert!(copy[..5] == [0; 5] && copy[5..] == bytes[1000..]);
}

#[test]
fn writing_takes_off_set_user_id_bits() {
    let Some(mount) = Mount::new() else { return };
    let mode = |name: &str| fs::metadata(mount.path(name)).unwrap().mode() & 0o7777;
    for (name, script) in [
        ("write", "echo x >> write"),
        ("truncate", "truncate -s 1 truncate"),
        ("open", ": > open"),
        ("group", "chgrp 1234 group"),
    ] {
        fs::write(mount.path(name), "some text").unwrap();
        std::os::unix::fs::chown(mount.path(name), Some(1234), Some(1234)).unwrap();
        fs::set_permissions(mount.path(name), Permissions::from_mode(0o6777)).unwrap();
        assert_eq!(mode(name), 0o6777);
        shell(&mount.root, 1234, script);
        assert_eq!(mode(name), 0o777, "{name}");
    }
    // A set-group-id bit without the group's execute bit is a lock mark: it stays.
    fs::write(mount.path("mark"), "").unwrap();
    std::os::unix::fs::chown(mount.path("mark"), Some(1234), Some(1234)).unwrap();
    fs::set_permissions(mount.path("mark"), Permissions::from_mode(0o2666)).unwrap();
    shell(&mount.root, 1234, "echo x >> mark");
    assert_eq!(mode("mark"), 0o2666);
}

#[test]
fn impossible_sizes_are_refused() {
    let Some(mount) = Mount::new() else { return };
    let file = open(&mount, "file");
    assert_eq!(errno(file.set_len(i64::MAX as u64)), libc::EFBIG);
    assert_eq!(errno(file.write_at(b"x", i64::MAX as u64 - 1)), libc::EFBIG);
    assert_eq!(file.metadata().unwrap().len(), 0);
}
