//! Volumes as a user makes them: in pools that are mounted and not, seen in mounts and in snapshots, as loop devices.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use crate::common::nbd::Serving;
use crate::common::server::Server;
use crate::common::{LODE, Ran, Scratch, fsck, lode, run, text};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::Signal;

const MIB: u64 = 1 << 20;

fn block(word: &str, target: &Path, more: &[&str]) -> Ran {
    lode(&[&["block", word, text(target)], more].concat())
}

/// The names of a pool's volumes.
#[track_caller]
fn names(target: &Path) -> Vec<String> {
    let list = block("list", target, &["--json"]).expect(0).json();
    let all = list["volumes"].as_array().unwrap();
    all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

/// What is made, listed, resized and deleted, and what is refused, whoever has the pool open.
fn life_of(target: &Path) {
    assert_eq!(names(target), Vec::<String>::new());
    let made = block("create", target, &["b", "--size", "3M", "--sector", "512", "--json"]);
    let made = made.expect(0).json();
    let volume = &made["volume"];
    assert_eq!((volume["bytes"].as_u64(), volume["sector"].as_u64()), (Some(3 * MIB), Some(512)));
    assert!(volume["allocated_bytes"].as_u64().unwrap() >= 3 * MIB);
    let thin = block("create", target, &["a", "--size", "1T", "--thin", "--json"]).expect(0).json();
    assert_eq!(thin["volume"]["thin"], true);
    assert!(thin["volume"]["allocated_bytes"].as_u64().unwrap() <= 2 * MIB);
    assert_eq!(names(target), ["a", "b"]);
    let refusals: [(&str, &[&str], i32, &str); 12] = [
        ("create", &["b", "--size", "1M"], 10, "already"),
        ("create", &["c", "--size", "0"], 2, "4096 is the next one"),
        ("create", &["c", "--size", "-1"], 2, "`-1` is not a size"),
        ("create", &["c", "--size", "1.5G"], 2, "as 512M"),
        ("create", &["c", "--size", "9999999T"], 2, "8388607T is the most"),
        ("resize", &["b", "--size", "4000"], 2, "`lode block list` shows"),
        ("create", &["x/y", "--size", "1M"], 2, "can't be the name"),
        ("create", &["c", "--size", "5000"], 2, "multiple of --sector"),
        ("create", &["c", "--size", "1G"], 7, "--thin"),
        ("resize", &["b", "--size", "1M"], 2, "--shrink"),
        ("resize", &["c", "--size", "1M"], 8, "lode block list"),
        ("delete", &["c"], 8, "lode block list"),
    ];
    for (word, more, code, says) in refusals {
        let ran = block(word, target, more);
        assert_ne!(ran.code, 0, "{word} {more:?}");
        assert!(ran.err.contains(says), "{word} {more:?}: {}", ran.err);
        assert_eq!(ran.code, code, "{word} {more:?}: {}", ran.err);
    }
    assert_eq!(names(target), ["a", "b"]);
    let grown = block("resize", target, &["b", "--size", "5M", "--json"]).expect(0).json();
    assert_eq!(grown["volume"]["bytes"].as_u64(), Some(5 * MIB));
    let smaller = block("resize", target, &["b", "--size", "1M", "--shrink", "--json"]);
    assert_eq!(smaller.expect(0).json()["volume"]["bytes"].as_u64(), Some(MIB));
    assert!(block("list", target, &[]).expect(0).out.contains(" 1 TiB "));
    block("delete", target, &["a"]).expect(0);
    assert_eq!(names(target), ["b"]);
}

#[test]
fn of_a_pool_that_is_not_mounted() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "64M");
    life_of(&pool);
    assert_eq!(block("attach", &pool, &["b"]).code, 11);
    assert_eq!(block("detach", &pool, &["b"]).code, 11);
    fsck(&pool).expect(0);
}

#[test]
fn of_a_pool_that_is_mounted_by_its_directory_and_by_its_name() {
    let scratch = Scratch::new();
    for by_name in [false, true] {
        let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mnt"));
        let server = Server::mount(&pool, &dir, &scratch.path("log"));
        life_of(if by_name { &pool } else { &dir });
        server.umount();
        fsck(&pool).expect(0);
        assert_eq!(names(&pool), ["b"]);
        fs::remove_file(&pool).unwrap();
    }
}

/// Names in a directory.
fn listed(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    let mut all: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

#[test]
fn a_mount_shows_them_beside_what_else_there_is_to_see_of_it_and_in_no_listing_of_its_root() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    let (views, volumes) = (dir.join(".lode"), dir.join(".lode/volumes"));
    fs::write(dir.join("file"), "x").unwrap();
    let before = listed(&views);
    assert!(!before.contains(&"volumes".to_owned()) && !volumes.exists());
    block("create", &dir, &["v", "--size", "2M"]).expect(0);
    // What the kernel keeps of before is not believed.
    assert_eq!(listed(&views), {
        let mut all = before.clone();
        all.push("volumes".into());
        all.sort();
        all
    });
    assert_eq!((listed(&dir), listed(&volumes)), (vec!["file".to_owned()], vec!["v".to_owned()]));
    assert!(fs::metadata(volumes.join("w")).is_err());
    block("create", &dir, &["w", "--size", "2M"]).expect(0);
    let file = volumes.join("w");
    assert_eq!(fs::metadata(&file).unwrap().size(), 2 * MIB);
    block("resize", &dir, &["w", "--size", "3M"]).expect(0);
    assert_eq!(fs::metadata(&file).unwrap().size(), 3 * MIB);
    let open = File::options().read(true).write(true).open(&file).unwrap();
    open.write_all_at(&[7; 8192], 4096).unwrap();
    for name in before.iter().filter(|name| *name != "snapshots") {
        assert!(fs::read_to_string(views.join(name)).unwrap().len() > 10, "{name}");
    }
    assert!(fs::remove_dir(&views).is_err() && fs::create_dir(&views).is_err());
    assert!(fs::rename(dir.join("file"), &views).is_err());
    lode(&["snapshot", "create", text(&dir), "s"]).expect(0);
    open.write_all_at(&[8; 4096], 4096).unwrap();
    let then = fs::read(views.join("snapshots/s/.lode/volumes/w")).unwrap();
    assert_eq!(then[4096..12288], [7; 8192]);
    drop(open);
    block("delete", &dir, &["w"]).expect(0);
    assert!(fs::metadata(&file).is_err());
    server.umount();
    // Where it shows nothing of itself, they are in a directory as any other.
    let server = Server::mount_with(&pool, &dir, &scratch.path("log"), "noviews");
    assert_eq!(listed(&dir), [".lode", "file"]);
    assert_eq!((listed(&views), listed(&volumes)), (vec!["volumes".to_owned()], vec!["v".into()]));
    server.umount();
    let server = Server::mount_with(&pool, &dir, &scratch.path("log"), "ro");
    assert_eq!(names(&dir), ["v"]);
    let refused = block("create", &dir, &["x", "--size", "2M"]);
    assert!(
        refused.code == 9 && refused.err.contains("read-only"),
        "{}: {}",
        refused.code,
        refused.err
    );
    server.umount();
    fsck(&pool).expect(0);
}

/// Who names something inside a mount is told what to name instead, and where the volumes of a snapshot are.
#[test]
fn what_is_inside_a_mount_is_no_pool_and_it_is_said_what_is() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mnt"));
    let (log, socket) = (scratch.path("log"), scratch.path("socket"));
    let mount = Server::mount(&pool, &dir, &log);
    block("create", &dir, &["v", "--size", "1M"]).expect(0);
    lode(&["snapshot", "create", text(&dir), "then"]).expect(0);
    fs::create_dir(dir.join("sub")).unwrap();
    let volumes = dir.join(".lode/snapshots/then/.lode/volumes");
    let (whole, file) = (format!("name {}", text(&dir)), format!("{} v", text(&dir)));
    let ways: [(&str, &[&str]); 6] = [
        ("list", &[]),
        ("serve", &["v", "--socket", text(&socket)]),
        ("attach", &["v"]),
        ("detach", &["v"]),
        ("create", &["w", "--size", "1M"]),
        ("delete", &["v"]),
    ];
    for (word, more) in ways {
        let says = |below: &str, code: i32, says: &[&str]| {
            let ran = block(word, &dir.join(below), more);
            let is_so = ran.code == code && says.iter().all(|says| ran.err.contains(says));
            assert!(is_so, "{word} {below}: {}: {}", ran.code, ran.err);
        };
        for below in ["sub", ".lode", ".lode/volumes", ".lode/snapshots"] {
            says(below, 11, &[&whole]);
        }
        let way = ["--raw --read-only", text(&volumes), "ro,snapshot=then", &whole];
        says(".lode/snapshots/then", 11, &way);
        says(".lode/snapshots/then/.lode/volumes", 11, &way);
        says(".lode/snapshots/then/.lode/volumes/v", 11, &way);
        says(".lode/volumes/v", 2, &["volume v", &file]);
    }
    // What is said there can be done.
    let serving = Serving::start(&[
        "--raw",
        "--read-only",
        text(&volumes.join("v")),
        "--socket",
        text(&socket),
    ]);
    let mut client = lode_testkit::nbd::Client::connect(&socket, "").unwrap();
    assert_eq!(client.read(0, 4096).unwrap(), [0; 4096]);
    drop((client, serving));
    fs::remove_file(&socket).unwrap();
    lode(&["umount", text(&dir)]).expect(0);
    drop(mount);
    let _mount = Server::mount_with(&pool, &dir, &log, "ro,snapshot=then");
    assert_eq!(names(&dir), ["v"]);
    let refused = block("serve", &dir, &["v", "--socket", text(&socket)]);
    assert!(refused.code == 9 && refused.err.contains("--read-only"), "{}", refused.err);
}

fn runs(program: &str, args: &[&str]) {
    let ran = Command::new(program).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{program} {args:?}: {said}");
}

#[test]
fn a_loop_device_of_a_volume_has_its_sectors_and_holds_a_file_system() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "128M"), scratch.dir("mnt"));
    let at = scratch.dir("at");
    for sector in ["512", "4096"] {
        let server = Server::mount(&pool, &dir, &scratch.path("log"));
        block("create", &dir, &["v", "--size", "32M", "--sector", sector]).expect(0);
        assert_eq!(block("detach", &dir, &["v"]).code, 8);
        assert_eq!(block("attach", &dir, &["w"]).code, 8);
        let device = block("attach", &pool, &["v"]).expect(0).out.trim().to_owned();
        for more in [&["v"][..], &["v", "--read-only"]] {
            let second = block("attach", &dir, more);
            assert!(second.code == 6 && second.err.contains(&device), "{}", second.err);
        }
        let name = device.strip_prefix("/dev/").unwrap();
        let queue = Path::new("/sys/block").join(name).join("queue/logical_block_size");
        assert_eq!(fs::read_to_string(queue).unwrap().trim(), sector);
        runs("mkfs.ext4", &["-q", &device]);
        runs("mount", &[&device, text(&at)]);
        fs::write(at.join("file"), vec![9; 5 << 20]).unwrap();
        let busy = block("detach", &dir, &["v"]);
        assert!(busy.code == 6 && busy.err.contains("in use"), "{}: {}", busy.code, busy.err);
        // (From then on it ends by itself.)
        runs("umount", &[text(&at)]);
        assert_eq!(block("detach", &dir, &["v"]).code, 8);
        let device = block("attach", &dir, &["v"]).expect(0).out.trim().to_owned();
        let detached = block("detach", &dir, &["v", "--json"]).expect(0).json();
        assert_eq!(detached["devices"][0], device.as_str());
        server.umount();
        fsck(&pool).expect(0);
        let server = Server::mount(&pool, &dir, &scratch.path("log"));
        let device = block("attach", &dir, &["v", "--read-only"]).expect(0).out.trim().to_owned();
        runs("fsck.ext4", &["-fn", &device]);
        runs("mount", &["-o", "ro", &device, text(&at)]);
        assert_eq!(fs::read(at.join("file")).unwrap(), vec![9; 5 << 20]);
        runs("umount", &[text(&at)]);
        // Of those that are only read there may be two.
        let other = block("attach", &dir, &["v", "--read-only"]).expect(0).out.trim().to_owned();
        assert_ne!(other, device);
        assert_eq!(block("attach", &dir, &["v"]).code, 6);
        block("detach", &dir, &["v"]).expect(0);
        block("delete", &dir, &["v"]).expect(0);
        server.umount();
    }
}

/// Loop devices have caches of their own: two that are written, or one beside a server that writes, destroy what they hold.
#[test]
fn of_all_who_want_to_write_a_volume_at_the_same_time_one_has_it() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mnt"));
    let (socket, other) = (scratch.path("socket"), scratch.path("other"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    block("create", &dir, &["v", "--size", "8M"]).expect(0);
    for round in 0..6 {
        let attach = || block("attach", &dir, &["v"]).code;
        let mut codes = std::thread::scope(|scope| {
            let all = [(); 3].map(|()| scope.spawn(attach));
            all.map(|one| one.join().unwrap())
        });
        codes.sort_unstable();
        assert_eq!(codes, [0, 6, 6], "round {round}");
        let serve = ["block", "serve", text(&dir), "v", "--socket", text(&socket)];
        let served = lode(&serve);
        assert!(served.code == 6 && served.err.contains("/dev/loop"), "{}", served.err);
        block("detach", &dir, &["v"]).expect(0);
    }
    let mut serving = Serving::start(&[text(&dir), "v", "--socket", text(&socket)]);
    // (All of these write to one file.)
    let mut second = Serving::start(&[text(&dir), "v", "--socket", text(&other)]);
    for more in [&["v"][..], &["v", "--read-only"]] {
        let ran = block("attach", &dir, more);
        assert!(ran.code == 6 && ran.err.contains("served, by lode ("), "{}", ran.err);
    }
    assert_eq!((serving.signal(Signal::TERM), second.signal(Signal::TERM)), (0, 0));
    let mut serving = Serving::start(&[text(&dir), "v", "--socket", text(&socket), "--read-only"]);
    // Who only reads is in nobody's way.
    for more in [&["v"][..], &["v", "--read-only"]] {
        block("attach", &dir, more).expect(0);
        block("detach", &dir, &["v"]).expect(0);
    }
    assert_eq!(serving.signal(Signal::TERM), 0);
    server.umount();
}

/// The kernel tells of a loop device's file by its name and a line's end, and both may end in spaces.
#[test]
fn a_volume_whose_name_ends_in_a_space_is_held_as_any_other() {
    let scratch = Scratch::new();
    let (pool, dir, socket) =
        (scratch.pool("pool", "64M"), scratch.dir("mnt"), scratch.path("socket"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    block("create", &dir, &["v ", "--size", "8M"]).expect(0);
    let device = block("attach", &dir, &["v "]).expect(0).out.trim().to_owned();
    let serve = ["block", "serve", text(&dir), "v ", "--socket", text(&socket)];
    // (It would serve until it is told to end.)
    let served = run(Command::new("timeout").args(["10", LODE]).args(serve));
    assert!(served.code == 6 && served.err.contains(&device), "{}", served.err);
    let deleted = block("delete", &dir, &["v "]);
    assert!(deleted.code == 6 && deleted.err.contains(&device), "{}", deleted.err);
    server.kill();
    block("detach", &dir, &["v "]).expect(0);
}

#[test]
fn a_loop_device_of_a_mount_whose_server_is_gone_is_detached() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    block("create", &dir, &["v", "--size", "8M"]).expect(0);
    block("attach", &dir, &["v"]).expect(0);
    server.kill();
    block("detach", &dir, &["v"]).expect(0);
    assert_eq!(block("detach", &dir, &["v"]).code, 8);
    // The mount is not in the way of the next one.
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    let file = dir.join(".lode/volumes/v");
    let socket = scratch.path("socket");
    let raw = lode(&["block", "serve", "--raw", text(&file), "--socket", text(&socket)]);
    assert!(raw.code == 2 && raw.err.contains("NAME` serves a volume"), "{}", raw.err);
    server.umount();
    fsck(&pool).expect(0);
}

/// That a volume of 8 MiB is neither deleted nor made smaller, but made larger, and who is said to use it.
#[track_caller]
fn refused_as_in_use(target: &Path, name: &str, by: &str) {
    let changes: [(&str, &[&str]); 2] =
        [("delete", &[name]), ("resize", &[name, "--size", "4M", "--shrink"])];
    for (word, more) in changes {
        let ran = block(word, target, more);
        assert_eq!(ran.code, 6, "{word}: {}", ran.err);
        assert!(ran.err.contains("in use") && ran.err.contains(by), "{word}, {by}: {}", ran.err);
        assert!(ran.err.contains("what to do: "), "{word}: {}", ran.err);
    }
    assert!(names(target).contains(&name.to_owned()));
}

#[test]
fn a_volume_that_somebody_uses_is_neither_deleted_nor_made_smaller() {
    let scratch = Scratch::new();
    let (pool, dir, socket) =
        (scratch.pool("pool", "64M"), scratch.dir("mnt"), scratch.path("socket"));
    block("create", &pool, &["v", "--size", "8M"]).expect(0);
    let mut serving = Serving::start(&[text(&pool), "v", "--socket", text(&socket)]);
    for (word, more) in [("delete", &["v"][..]), ("resize", &["v", "--size", "4M", "--shrink"])] {
        let ran = block(word, &pool, more);
        assert!(
            ran.code == 6 && ran.err.contains("in use by process"),
            "{}: {}",
            ran.code,
            ran.err
        );
    }
    assert_eq!(serving.signal(Signal::TERM), 0);
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    let file = dir.join(".lode/volumes/v");
    let process = format!("process {}", std::process::id());
    // (That the kernel knows its name, too, is no use of it.)
    let open = File::open(&file).unwrap();
    refused_as_in_use(&dir, "v", &process);
    refused_as_in_use(&pool, "v", &process);
    drop(open);
    block("resize", &dir, &["v", "--size", "7M", "--shrink"]).expect(0);
    block("resize", &dir, &["v", "--size", "8M"]).expect(0);
    let mut serving = Serving::start(&[text(&dir), "v", "--socket", text(&socket)]);
    refused_as_in_use(&dir, "v", "(lode)");
    assert_eq!(serving.signal(Signal::TERM), 0);
    let device = block("attach", &dir, &["v"]).expect(0).out.trim().to_owned();
    refused_as_in_use(&dir, "v", &device);
    let busy = lode(&["umount", text(&dir)]);
    assert!(busy.code == 6 && busy.err.contains(&device), "{}: {}", busy.code, busy.err);
    block("resize", &dir, &["v", "--size", "9M"]).expect(0);
    block("detach", &dir, &["v"]).expect(0);
    block("delete", &dir, &["v"]).expect(0);
    server.umount();
    fsck(&pool).expect(0);
}

/// What the kernel makes of a discard of a loop device.
#[test]
fn what_is_discarded_through_a_mount_is_zeroed_and_its_space_is_a_thin_volumes_to_give() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "32M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    // More than half of the pool: there is no room to write it a second time at once.
    for (name, more, keeps) in [("v", None, 20 * MIB), ("t", Some("--thin"), 0)] {
        let create = [name, "--size", "20M", "--sector", "512"];
        block("create", &dir, &create.into_iter().chain(more).collect::<Vec<_>>()).expect(0);
        let path = dir.join(".lode/volumes").join(name);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.write_all_at(&vec![7; 20 << 20], 0).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 512, 20 * MIB - 1024).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert!(bytes[512..(20 << 20) - 512].iter().all(|byte| *byte == 0), "{name}");
        assert_eq!((bytes[511], bytes[(20 << 20) - 512], bytes.len()), (7, 7, 20 << 20));
        let list = block("list", &dir, &["--json"]).expect(0).json();
        let allocated = list["volumes"][0]["allocated_bytes"].as_u64().unwrap();
        assert!(allocated >= keeps && (keeps > 0 || allocated <= 4 * MIB), "{name}: {allocated}");
        drop(file);
        block("delete", &dir, &[name]).expect(0);
    }
    server.umount();
    fsck(&pool).expect(0);
}

/// A loop device takes a part of a write for all of it: so it is all, or an error.
#[test]
fn of_a_volume_in_a_full_pool_all_is_written_or_an_error_comes() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "32M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    block("create", &dir, &["thin", "--size", "20M", "--thin"]).expect(0);
    // As large a one as there is room for.
    let made = (2..32).rev().find(|mib| {
        let size = format!("{mib}M");
        block("create", &dir, &["v", "--size", &size, "--sector", "512"]).code == 0
    });
    let volumes = dir.join(".lode/volumes");
    let file =
        |name: &str| File::options().read(true).write(true).open(volumes.join(name)).unwrap();
    let (whole, thin) = (file("v"), file("thin"));
    let mut written = 0;
    for mib in 0..20 {
        match thin.write_at(&vec![3; 1 << 20], mib * MIB) {
            Ok(bytes) => {
                assert_eq!(bytes, 1 << 20);
                written += 1;
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(28), "{error}"),
        }
    }
    assert!(written < 20, "it is full");
    for round in 1..4 {
        for mib in 0..made.unwrap() {
            let wrote = whole.write_at(&vec![round; 1 << 20], mib * MIB);
            assert_eq!(wrote.unwrap(), 1 << 20, "round {round}, MiB {mib}");
        }
    }
    drop((whole, thin));
    server.umount();
    fsck(&pool).expect(0);
}
