//! The same mounts with requests by io_uring.

use std::fs;
use std::process::{Command, Stdio};

use lode_fuse::wire::RINGS_ALLOWED;

use super::support::{Mount, RINGS, can_mount};

/// Lets mounts have rings for as long as it lives.
struct Allowed(String);

impl Allowed {
    fn new() -> Option<Self> {
        let before = fs::read_to_string(RINGS_ALLOWED).ok()?;
        fs::write(RINGS_ALLOWED, "Y").ok()?;
        Some(Self(before))
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        let _ = fs::write(RINGS_ALLOWED, self.0.trim());
    }
}

/// All tests of this program once more. (A server that is to have rings and can't does not mount.)
#[test]
fn what_holds_by_the_device_holds_by_io_uring() {
    if std::env::var_os(RINGS).is_some() || !can_mount() {
        return;
    }
    let Some(_allowed) = Allowed::new() else {
        eprintln!("skipped: {RINGS_ALLOWED} can't be set to Y");
        return;
    };
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output = again.env(RINGS, "1").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("names::"), "{said}");
}

#[test]
fn each_cpu_has_a_queue_where_rings_are_asked_for() {
    let Some(mount) = Mount::new() else { return };
    let tasks = format!("/proc/{}/task", mount.pid());
    let names = fs::read_dir(&tasks)
        .unwrap()
        .map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    let queues = names.filter(|name| name.starts_with("lode-queue-")).count();
    let asked_for = std::env::var_os(RINGS).is_some();
    let cpus = rustix::thread::sched_getaffinity(None).unwrap().count() as usize;
    assert_eq!(queues, if asked_for { cpus } else { 0 });
    for task in fs::read_dir(&tasks).unwrap().map(|task| task.unwrap().path()) {
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        if let Some(cpu) = name.trim().strip_prefix("lode-queue-") {
            let status = fs::read_to_string(task.join("status")).unwrap();
            assert!(status.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{status}");
        }
    }
    // A child that waits for the mount must not keep its connection.
    let maps = fs::read_to_string(format!("/proc/{}/smaps", mount.pid())).unwrap();
    let flags = maps
        .split("anon_inode:[io_uring]")
        .skip(1)
        .map(|map| map.lines().find(|line| line.starts_with("VmFlags:")).unwrap().to_owned());
    let flags: Vec<String> = flags.collect();
    assert!(flags.len() >= queues && flags.iter().all(|flags| flags.contains(" dc")), "{flags:?}");
}
