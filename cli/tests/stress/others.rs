//! What others have written to stress file systems: stress-ng and dbench, beside our own.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Stressors of stress-ng's class `filesystem` that do not work on a directory, or not on this one.
const LEFT_OUT: [&str; 8] = [
    "bind-mount",  // mounts of its own, over /
    "binderfs",    // a file system of its own
    "eventfd",     // no files
    "procfs",      // /proc
    "fiemap",      // what FUSE does not pass: where extents lie,
    "verity",      // seals of files,
    "inode-flags", // and flags of inodes
    "inotify", // gives each event so long to come, which dozens of processes at once do not keep
];
/// Sizes that stress-ng would choose by the machine and not by the pool.
const SMALL: [&str; 10] = [
    "--copy-file-bytes",
    "128M",
    "--fallocate-bytes",
    "16M",
    "--hdd-bytes",
    "16M",
    "--iomix-bytes",
    "16M",
    "--sync-file-bytes",
    "16M",
];
const LOADS: &str = "/usr/share/dbench/client.txt";
const CLIENTS: &str = "2";

/// Running programs; ended on drop.
pub struct Others {
    mount: PathBuf,
    logs: PathBuf,
    running: Vec<Other>,
}

struct Other {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Others {
    /// None yet; they will work below `mount`, and say what they say in `logs`.
    pub fn new(mount: &Path, logs: &Path) -> Self {
        Self { mount: mount.to_owned(), logs: logs.to_owned(), running: Vec::new() }
    }

    /// Starts stress-ng, if it is there, for `time`.
    pub fn stress_ng(&mut self, time: Duration) {
        // Nice: dozens of processes would leave ours next to nothing of two processors.
        let mut command = Command::new("nice");
        command.args(["-n", "15", "stress-ng", "--class", "filesystem", "--all", "1", "--verify"]);
        command.args(["--exclude", &LEFT_OUT.join(","), "--timeout", &seconds(time)]).args(SMALL);
        self.start("stress-ng", command, "--temp-path", &[]);
    }

    /// Starts dbench, if it is there, for `time`, of which it does not count the first sixth.
    pub fn dbench(&mut self, time: Duration) {
        let mut command = Command::new("dbench");
        command.args(["-c", LOADS, "-t", &seconds(time * 5 / 6)]);
        self.start("dbench", command, "-D", &[CLIENTS]);
    }

    /// Starts one in a directory of its own, which it learns by `option`.
    fn start(&mut self, name: &'static str, mut command: Command, option: &str, more: &[&str]) {
        if Command::new(name).arg("--version").output().is_err() {
            println!("skipped: {name} is not installed");
            return;
        }
        let (dir, log) = (self.mount.join(name), self.logs.join(name));
        fs::create_dir(&dir).unwrap();
        let file = File::create(&log).unwrap();
        command.arg(option).arg(dir).args(more).stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        // A group of its own: what it has started ends with it.
        let child = command.process_group(0).spawn().unwrap();
        self.running.push(Other { name, child, log });
    }

    /// Waits for their ends, which must be good ones; names them.
    pub fn wait(mut self, within: Duration) -> String {
        let deadline = Instant::now() + within;
        self.running.iter_mut().for_each(|other| other.wait(deadline));
        let names: Vec<&str> = self.running.iter().map(|other| other.name).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(" and ") }
    }
}

impl Other {
    fn wait(&mut self, deadline: Instant) {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "{} does not end:\n{}", self.name, self.tail());
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(status.success(), "{} ended with {status}:\n{}", self.name, self.tail());
    }

    fn tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

fn seconds(time: Duration) -> String {
    time.as_secs().max(1).to_string()
}
