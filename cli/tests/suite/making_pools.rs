//! Making pools: what is there stays until the new pool is made, nothing half-made is left,
//! and only the owner may look into a new pool.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{LODE, Scratch, fsck, lode, text};
use rustix::process::{Pid, Signal, kill_process};

fn names_in(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A small file system of its own, or a line that says why there is none.
fn small(scratch: &Scratch, size: &str) -> Option<std::path::PathBuf> {
    let dir = scratch.dir("small");
    let options = format!("size={size}");
    let mut mount = Command::new("mount");
    let mounted = mount.args(["-t", "tmpfs", "-o", &options, "tmpfs", text(&dir)]).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("skipped: mounting a small tmpfs needs root");
        return None;
    }
    Some(dir)
}

#[test]
fn a_pool_that_can_not_be_replaced_stays() {
    let scratch = Scratch::new();
    let place = scratch.dir("place");
    let pool = place.join("pool");
    lode(&["mkfs", text(&pool), "--size", "16M", "--label", "old"]).expect(0);
    let before = fs::read(&pool).unwrap();
    for wrong in [
        &["--size", "0"][..],
        &["--size", "10"],
        &["--size", "40000"],
        &["--size", "64K", "--lanes", "256"],
        &["--lanes", "0"],
        &["--size", "16M", "--windows", "glass"],
    ] {
        let args: Vec<&str> =
            ["mkfs", text(&pool), "--force"].iter().chain(wrong).copied().collect();
        let ran = lode(&args).expect(2);
        assert!(!ran.err.contains("damaged") && !ran.err.contains("dump"), "{}", ran.err);
        assert!(fs::read(&pool).unwrap() == before, "{} touched the pool", ran.line);
    }
    assert_eq!(names_in(&place), ["pool"]);
}

#[test]
fn a_pool_stays_when_there_is_no_space_for_the_new_one() {
    let scratch = Scratch::new();
    let Some(small) = small(&scratch, "24M") else { return };
    let pool = small.join("pool");
    lode(&["mkfs", text(&pool), "--size", "16M", "--label", "old"]).expect(0);
    let before = fs::read(&pool).unwrap();
    for size in ["64M", "1T"] {
        let ran = lode(&["mkfs", text(&pool), "--force", "--size", size]).expect(7);
        assert!(ran.err.contains("stays until"), "{}", ran.err);
        assert!(fs::read(&pool).unwrap() == before, "the old pool was touched");
        assert_eq!(names_in(&small), ["pool"]);
    }
    lode(&["mkfs", text(&pool), "--force", "--size", "4M", "--label", "new"]).expect(0);
    let info = lode(&["info", text(&pool), "--json"]).expect(0).json();
    assert_eq!(info["pool"]["label"], "new");
    assert_eq!(names_in(&small), ["pool"]);
}

#[test]
fn an_interrupted_mkfs_leaves_no_file() {
    let scratch = Scratch::new();
    let place = scratch.dir("place");
    let pool = place.join("pool");
    lode(&["mkfs", text(&pool), "--size", "16M"]).expect(0);
    let before = fs::read(&pool).unwrap();
    let mut interrupted = 0;
    for pause in [0, 1, 5, 20, 50, 100] {
        let mut mkfs = Command::new(LODE)
            .args(["mkfs", text(&pool), "--force", "--size", "1G"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while names_in(&place).len() < 2 && Instant::now() < deadline {
            if mkfs.try_wait().unwrap().is_some() {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(pause));
        let _ = kill_process(Pid::from_child(&mkfs), Signal::TERM);
        let status = mkfs.wait().unwrap();
        assert_eq!(names_in(&place), ["pool"], "after {status}");
        if status.success() {
            break;
        }
        interrupted += 1;
        assert!(fs::read(&pool).unwrap() == before, "the old pool was touched");
    }
    assert!(interrupted > 0);
    fsck(&pool).expect(0);
}

#[test]
fn an_mkfs_that_is_interrupted_at_any_time_says_what_is_there() {
    const TIMES: u32 = 60;
    let scratch = Scratch::new();
    let pool = scratch.dir("place").join("pool");
    let mkfs = |label: &str| {
        let mut command = Command::new(LODE);
        command.args(["mkfs", text(&pool), "--force", "--size", "16M", "--label", label]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let began = Instant::now();
    assert!(mkfs("0").status().unwrap().success());
    // From its first moment to beyond its last.
    let step = began.elapsed() * 3 / 2 / TIMES;
    let (mut there, mut replaced) = (0, 0);
    for time in 1..=TIMES {
        let child = mkfs(&time.to_string()).spawn().unwrap();
        std::thread::sleep(step * time);
        let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        let ran = child.wait_with_output().unwrap();
        if ran.status.success() {
            (there, replaced) = (time, replaced + 1);
        }
        let said = String::from_utf8(ran.stderr).unwrap();
        let info = lode(&["info", text(&pool), "--json"]).expect(0).json();
        assert_eq!(info["pool"]["label"], there.to_string(), "{time}: {}: {said}", ran.status);
        assert_eq!(names_in(pool.parent().unwrap()), ["pool"], "{time}: {}: {said}", ran.status);
    }
    println!("{replaced} of {TIMES} came to their end");
    fsck(&pool).expect(0);
}

#[test]
fn a_new_pool_is_its_owners_alone_and_a_replaced_one_keeps_its_permissions() {
    let scratch = Scratch::new();
    let pool = scratch.pool("pool", "16M");
    assert_eq!(mode(&pool), 0o600);
    fs::set_permissions(&pool, fs::Permissions::from_mode(0o640)).unwrap();
    lode(&["mkfs", text(&pool), "--force"]).expect(0);
    assert_eq!(mode(&pool), 0o640);
}

#[test]
fn a_pool_is_replaced_where_a_link_leads() {
    let scratch = Scratch::new();
    let (pool, link) = (scratch.pool("pool", "16M"), scratch.path("link"));
    symlink(&pool, &link).unwrap();
    lode(&["mkfs", text(&link), "--force", "--label", "new"]).expect(0);
    assert!(link.is_symlink());
    let info = lode(&["info", text(&pool), "--json"]).expect(0).json();
    assert_eq!(info["pool"]["label"], "new");
    let dangling = scratch.path("dangling");
    symlink(scratch.path("nothing"), &dangling).unwrap();
    let ran = lode(&["mkfs", text(&dangling), "--size", "16M"]).expect(8);
    assert!(ran.err.contains("symbolic link to") && ran.err.contains("nothing"), "{}", ran.err);
    assert!(!scratch.path("nothing").exists());
}

#[test]
fn what_can_be_no_pool_gets_the_right_advice() {
    let scratch = Scratch::new();
    let new = scratch.path("new");
    for (args, says) in [
        (&["mkfs", "/dev/null", "--size", "16M"][..], "DAX device"),
        (&["mkfs", "/dev/null"], "DAX device"),
        (&["mkfs", text(&new), "--size", "0"], "larger --size"),
        (&["mkfs", text(&new), "--size", "10"], "larger --size"),
        (&["mkfs", text(&new), "--size", "64K", "--lanes", "256"], "fewer --lanes"),
    ] {
        let ran = lode(args).expect(2);
        assert!(ran.err.contains(says), "{} says\n{}", ran.line, ran.err);
        assert!(!ran.err.contains("not a Lode pool"), "{} says\n{}", ran.line, ran.err);
        assert!(!new.exists());
    }
    // The size it names is enough.
    let ran = lode(&["mkfs", text(&new), "--size", "64K", "--lanes", "256"]).expect(2);
    let words: Vec<&str> = ran.err.split(' ').collect();
    let at = words.iter().position(|word| *word == "least").unwrap();
    lode(&["mkfs", text(&new), "--size", words[at + 1], "--lanes", "256"]).expect(0);
    fsck(&new).expect(0);
}
