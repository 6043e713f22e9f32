//! What the command says when something is not as it should be: what, where, and what to do.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::common::server::Server;
use crate::common::{LODE, Ran, Scratch, fsck, lode, run, text};

const NOBODY: u32 = 65534;

/// Runs the command as a user without rights, or says why that can't be.
fn as_nobody(args: &[&str]) -> Option<Ran> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: to become another user needs root");
        return None;
    }
    let mut command = Command::new(LODE);
    command.args(args).uid(NOBODY).gid(NOBODY).env_remove("XDG_RUNTIME_DIR");
    // Where the program lies other users may have no business.
    match command.output() {
        Ok(_) => Some(run(&mut command)),
        Err(error) => {
            println!("skipped: another user can't run the program here ({error})");
            None
        }
    }
}

#[track_caller]
fn says(ran: &Ran, words: &[&str]) {
    for word in words {
        assert!(ran.err.contains(word), "{} does not say {word}:\n{}", ran.line, ran.err);
    }
}

fn give_to_nobody(path: &Path) {
    fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let _ = chown(path, Some(NOBODY), Some(NOBODY));
}

#[test]
fn who_may_not_mount_is_told_what_to_do() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    give_to_nobody(&pool);
    let Some(ran) = as_nobody(&["mount", text(&pool), text(&dir)]) else { return };
    let ran = ran.expect(9);
    says(&ran, &["what to do: "]);
    assert_eq!(ran.err.matches(text(&dir)).count(), 1, "{}", ran.err);
    for option in ["suid", "dev", "awake"] {
        let ran = as_nobody(&["mount", text(&pool), text(&dir), "-o", option]).unwrap().expect(9);
        says(&ran, &["only root", "leave"]);
    }
    let own = scratch.dir("own");
    give_to_nobody(&own);
    let conf = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if conf.lines().any(|line| line.trim() == "user_allow_other") {
        println!("skipped: /etc/fuse.conf allows allow_other to everybody");
        return;
    }
    let ran = as_nobody(&["mount", text(&pool), text(&own), "-o", "allow_other"]).unwrap();
    says(&ran.expect(9), &["what to do: "]);
}

#[test]
fn a_stopped_server_is_called_so() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    let pid = format!("process {}", server.pid());
    server.freeze();
    let place = text(&dir);
    for args in [&["info", place][..], &["stats", place], &["umount", place]] {
        let ran = lode(args).expect(6);
        says(&ran, &[&pid, "does not answer", "stopped"]);
        assert!(!ran.err.contains("lode mount"), "{}", ran.err);
    }
    server.thaw();
    lode(&["info", place]).expect(0);
    server.umount();
}

#[test]
fn a_detached_pool_is_called_so() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    fs::write(dir.join("file"), "held").unwrap();
    let held = fs::File::open(dir.join("file")).unwrap();
    lode(&["umount", "--lazy", text(&dir)]).expect(0);
    let pid = format!("process {}", server.pid());
    says(&lode(&["info", text(&pool)]).expect(6), &["detached", &pid]);
    says(&fsck(&pool).expect(8), &["detached", &pid]);
    drop(held);
    server.wait();
    fsck(&pool).expect(0);
}

#[test]
fn what_is_no_pool_is_not_advised_a_size() {
    let scratch = Scratch::new();
    for path in ["/etc/passwd", "/dev/null"] {
        let ran = lode(&["mount", path, text(&scratch.dir("mnt"))]).expect(3);
        assert!(!ran.err.contains("larger --size"), "{}", ran.err);
    }
}

#[test]
fn who_asks_for_a_check_is_not_told_to_make_a_new_pool() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    fs::write(&pool, vec![0; 16 << 20]).unwrap();
    let ran = fsck(&pool).expect(8);
    says(&ran, &["restore it from a copy"]);
    assert!(!ran.err.contains("mkfs"), "{}", ran.err);
    says(&lode(&["mount", text(&pool), text(&dir)]).expect(3), &["if nothing there is needed"]);
    assert!(!fsck(&scratch.path("none")).expect(8).err.contains("mkfs"));
    let ran = lode(&["fsck", "-r", text(&pool)]).expect(16);
    says(&ran, &["no questions", "-p"]);
}

#[test]
fn on_a_read_only_medium_reading_is_advised_and_works() {
    let scratch = Scratch::new();
    let (medium, dir) = (scratch.dir("medium"), scratch.dir("mnt"));
    let mount = |args: &[&str]| run(Command::new("mount").args(args).arg(text(&medium)));
    if mount(&["-t", "tmpfs", "tmpfs"]).code != 0 {
        println!("skipped: mounting a medium needs root");
        return;
    }
    let pool = scratch.pool("medium/pool", "16M");
    mount(&["-o", "remount,ro"]).expect(0);
    let ran = lode(&["mount", text(&pool), text(&dir)]).expect(9);
    says(&ran, &["read-only", "`-o ro`"]);
    assert!(!ran.err.contains("permissions"), "{}", ran.err);
    fsck(&pool).expect(0);
    lode(&["mount", text(&pool), text(&dir), "-o", "ro"]).expect(0);
    lode(&["umount", text(&dir)]).expect(0);
}

#[test]
fn json_errors_name_what_is_missing() {
    let error = lode(&["--json", "fsck"]).expect(16).error_json();
    assert_eq!(error["command"], "fsck");
    assert!(error["error"]["what"].as_str().unwrap().contains("<POOL>"), "{error}");
    for args in [&["--json", "foo"][..], &["--json", "foo", "fsck"], &["--json"]] {
        let error = lode(args).expect(2).error_json();
        assert!(error["command"].is_null(), "{error}");
        assert!(error["error"]["advice"].as_str().unwrap().contains("lode --help"), "{error}");
    }
}

#[test]
fn mount_options_that_are_not_there_are_explained() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let mount = |options| lode(&["mount", text(&pool), text(&dir), "-o", options]).expect(2);
    let ran = mount("rw,noexec,nosuid,nodev,noatime,uid=5");
    says(&ran, &["unknown option `uid=5`", "mount.fuse.lode(8)", "lode mount --help"]);
    assert!(!ran.err.contains("noatime") && ran.err.lines().count() == 1, "{}", ran.err);
    let ran = mount("noatime,page-size=8K");
    says(&ran, &["option `page-size=8K`", "choose 4K, 2M or 1G"]);
    let json = ["mount", text(&pool), text(&dir), "-o", "uid=5", "--json"];
    let error = lode(&json).expect(2).error_json();
    assert!(
        error["error"]["what"].as_str().unwrap().starts_with("unknown option `uid=5`"),
        "{error}"
    );
}

#[test]
fn only_a_log_with_something_in_it_is_kept() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let mount = || lode(&["mount", text(&pool), text(&dir), "--json"]).expect(0).json();
    let log_of = |report: &serde_json::Value| report["log"].as_str().unwrap().to_owned();
    let first = mount();
    let log = log_of(&first);
    assert!(fs::exists(&log).unwrap());
    lode(&["umount", text(&dir)]).expect(0);
    assert!(!fs::exists(&log).unwrap(), "a log that says nothing is left");
    // The server is killed: its log stays. The next one has to take the dead mount off.
    let pid = mount()["pid"].to_string();
    run(Command::new("kill").args(["-9", &pid])).expect(0);
    while fs::exists(format!("/proc/{pid}")).unwrap() {
        std::thread::yield_now();
    }
    assert!(fs::exists(&log).unwrap(), "the log of a killed server is gone");
    mount();
    lode(&["umount", text(&dir)]).expect(0);
    assert!(fs::read_to_string(&log).unwrap().contains("server is gone"));
    fs::remove_file(&log).unwrap();
}
