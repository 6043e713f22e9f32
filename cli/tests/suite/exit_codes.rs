//! Exit codes and forms of output: each kind of failure has its code, only JSON is on standard
//! output with `--json`, and the program works by its other names.

use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::common::{LODE, Scratch, lode, run, text};

#[test]
fn wrong_command_lines_are_usage_errors() {
    let scratch = Scratch::new();
    let pool = scratch.path("pool");
    let pool = text(&pool);
    for args in [
        &["mkfs"][..],
        &["mkfs", pool],
        &["mkfs", pool, "--size", "1.5G"],
        &["mkfs", pool, "--size", "1G", "--lanes", "0"],
        &["mkfs", pool, "--size", "1G", "--lanes", "257"],
        &["mkfs", pool, "--size", "1G", "--page-size", "8K"],
        &["mkfs", pool, "--size", "1G", "--uuid", "abc"],
        &["mkfs", pool, "--size", "1G", "--windows", "glass"],
        &["mkfs", pool, "--size", "1G", "--flush", "often"],
        &[
            "mkfs",
            pool,
            "--size",
            "1G",
            "--label",
            "0123456789012345678901234567890123456789012345678901234567890123456789",
        ],
        &["mkfs", pool, "--size", "4K"],
        &["mount", pool],
        &["mount", pool, "/", "-o", "relaxd"],
        &["umount"],
        &["frobnicate"],
        &["info", pool, "more"],
    ] {
        let ran = lode(args).expect(2);
        assert_eq!(ran.out, "");
        assert!(!ran.err.is_empty());
        let json: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let error = lode(&json).expect(2).error_json();
        assert_eq!(error["error"]["kind"], "usage", "{args:?}");
        assert_eq!(error["schema"], 1);
    }
    assert!(!fs::exists(pool).unwrap(), "a usage error made a file");
    lode(&["fsck"]).expect(16);
    lode(&["fsck", "-n", "-y", pool]).expect(16);
    assert_eq!(lode(&["fsck", "--json"]).expect(16).error_json()["error"]["code"], 16);
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [&["--help"][..], &["--version"], &["help"], &["mount", "--help"], &["fsck", "-h"]]
    {
        let ran = lode(args).expect(0);
        assert!(ran.out.contains("lode") || ran.out.contains("Usage"), "{}", ran.out);
    }
}

#[test]
fn no_space_below_the_pool_is_told_at_once() {
    let scratch = Scratch::new();
    let small = scratch.dir("small");
    let mounted =
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=4M", "tmpfs", text(&small)]));
    if mounted.code != 0 {
        println!("skipped: mounting a small tmpfs needs root");
        return;
    }
    let pool = small.join("pool");
    let ran = lode(&["mkfs", text(&pool), "--size", "64M"]).expect(7);
    assert!(ran.err.contains("space") && ran.err.contains("--size"), "{}", ran.err);
    assert!(!pool.exists(), "a failed mkfs left its file");
    let error = lode(&["mkfs", text(&pool), "--size", "64M", "--json"]).expect(7).error_json();
    assert_eq!(error["error"]["kind"], "no_space");
}

#[test]
fn only_json_is_on_standard_output() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.path("pool"), scratch.dir("mnt"));
    let (pool, dir) = (text(&pool), text(&dir));
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let made = lode(&[
        "mkfs", pool, "--size", "32M", "--label", "home", "--uuid", uuid, "--lanes", "4", "--json",
    ]);
    let made = made.expect(0).json();
    assert_eq!(made["command"], "mkfs");
    assert_eq!((&made["pool"]["label"], &made["pool"]["uuid"]), (&"home".into(), &uuid.into()));
    assert_eq!((&made["pool"]["bytes"], &made["pool"]["lanes"]), (&(32 << 20).into(), &4.into()));
    assert!(made["region"]["durability"].is_string());
    let mounted = lode(&["mount", pool, dir, "--json"]).expect(0).json();
    fs::write(format!("{dir}/file"), vec![7; 10_000]).unwrap();
    let info = lode(&["info", dir, "--json"]).expect(0).json();
    assert_eq!(info["mount"]["pid"], mounted["pid"]);
    assert_eq!(info["pool"]["uuid"], uuid);
    assert_eq!(info["region"], mounted["region"]);
    assert_eq!(info, lode(&["info", pool, "--json"]).expect(0).json(), "by pool and by directory");
    let stats = lode(&["stats", dir, "--json"]).expect(0).json();
    assert!(stats["operations"]["create"].as_u64() >= Some(1), "{stats}");
    assert!(
        stats["fences"].as_u64() >= Some(3) && stats["streamed_bytes"].as_u64() >= Some(10_000)
    );
    let gone = lode(&["umount", dir, "--json"]).expect(0).json();
    assert_eq!((&gone["clean"], &gone["pid"]), (&true.into(), &mounted["pid"]));
    let checked = lode(&["fsck", pool, "--json"]).expect(0).json();
    assert_eq!((&checked["status"], &checked["files"]), (&0.into(), &1.into()));
    assert_eq!(checked["opening"]["clean"], true);
    let dumped = lode(&["dump", pool, "/file", "--json"]).expect(0).json();
    let inode = &dumped["inodes"][0];
    assert_eq!((&inode["size"], &inode["type"]), (&10_000.into(), &"file".into()));
    let number = inode["inode"].to_string();
    assert_eq!(lode(&["dump", pool, &number, "--json"]).expect(0).json()["inodes"][0], *inode);
    let all = lode(&["dump", pool, "--json"]).expect(0).json();
    assert!(all["inodes"].as_array().unwrap().contains(inode), "the dump of all has each");
    assert_eq!(all["superblocks"].as_array().unwrap().len(), 2);
}

#[test]
fn a_dump_tells_where_each_byte_of_a_file_lies() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "32M"), scratch.dir("mnt"));
    let content: Vec<u8> = (0..20_000u32).map(|n| (n % 251) as u8).collect();
    lode(&["mount", text(&pool), text(&dir)]).expect(0);
    fs::write(dir.join("file"), &content).unwrap();
    lode(&["umount", text(&dir)]).expect(0);
    let dumped = lode(&["dump", text(&pool), "/file", "--json"]).expect(0).json();
    let raw = fs::read(&pool).unwrap();
    let mut seen = 0;
    for extent in dumped["inodes"][0]["extents"].as_array().unwrap() {
        let number = |key: &str| extent[key].as_u64().unwrap() as usize;
        let (at, from) = (number("file_offset"), number("pool_offset"));
        let len = number("bytes").min(content.len() - at);
        assert_eq!(&raw[from..from + len], &content[at..at + len]);
        seen += len;
    }
    assert_eq!(seen, content.len());
    let text_dump = lode(&["dump", text(&pool)]).expect(0).out;
    assert!(text_dump.contains("superblock at") && text_dump.contains("record at"), "{text_dump}");
}

/// A check whose report nobody reads can't end: here it can be interrupted at leisure.
#[test]
fn a_check_that_is_interrupted_says_so() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        let (mut full, _nobody_reads) = UnixStream::pair().unwrap();
        full.set_nonblocking(true).unwrap();
        while full.write(&[0; 4096]).is_ok() {}
        full.set_nonblocking(false).unwrap();
        let mut check = Command::new(LODE);
        check.args(["fsck", "-n", text(&pool)]).stdout(OwnedFd::from(full));
        let check = check.stderr(Stdio::piped()).spawn().unwrap();
        let status = format!("/proc/{}/status", check.id());
        let catches = || {
            let status = fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (number - 1) != 0
        };
        while !catches() {
            std::thread::yield_now();
        }
        run(Command::new("kill").args([signal, &check.id().to_string()])).expect(0);
        let done = check.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(32), "{signal}");
        assert!(String::from_utf8_lossy(&done.stderr).contains("interrupted"), "{signal}");
    }
}

#[test]
fn the_program_works_by_its_other_names() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.path("pool"), scratch.dir("mnt"));
    let (pool, dir) = (text(&pool), text(&dir));
    let by = |name: &str| {
        let link = scratch.path(name);
        if !link.exists() {
            symlink(LODE, &link).unwrap();
        }
        Command::new(link)
    };
    run(by("mkfs.lode").args(["-L", "fstab", "--size", "16M", pool])).expect(0);
    run(by("fsck.lode").args(["-a", pool])).expect(0);
    run(by("fsck.lode").args(["-f", "-y", pool])).expect(0);
    run(by("fsck.fuse.lode").args(["-av", "-C0", pool])).expect(0);
    for name in ["mkfs.lode", "fsck.lode", "mount.fuse.lode"] {
        let version = run(by(name).arg("-V")).expect(0).out;
        assert_eq!(version, format!("lode {}\n", env!("CARGO_PKG_VERSION")), "{name}");
    }
    run(by("mkfs.lode").args(["-v", "--size", "16M", "-f", pool])).expect(0);
    run(by("fsck.lode").args(["-n", "/dev/null"])).expect(8);
    run(by("mount.fuse.lode").args([
        pool,
        dir,
        "-s",
        "-o",
        "rw,noatime,nofail,x-systemd.automount",
    ]))
    .expect(0);
    fs::write(format!("{dir}/file"), "x").unwrap();
    run(by("mount.fuse.lode").args([pool, dir, "-o", "rw"])).expect(32);
    lode(&["umount", dir]).expect(0);
    run(by("mount.fuse.lode").args([pool, dir, "-o", "nonsense"])).expect(1);
    run(by("mount.fuse.lode").args(["/dev/null", dir])).expect(32);
}
