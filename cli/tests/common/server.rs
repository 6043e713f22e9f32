//! A server in the foreground: a child whose process id is known, to be killed or stopped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{LODE, lode, text};

const MOUNTS_WITHIN: Duration = Duration::from_secs(60);

/// A running server. Killed on drop.
pub struct Server {
    child: Child,
    pub dir: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts it and returns at once.
    pub fn start(pool: &Path, dir: &Path, log: &Path) -> Self {
        Self::start_with(pool, dir, log, "rw")
    }

    /// The same with mount options.
    pub fn start_with(pool: &Path, dir: &Path, log: &Path, options: &str) -> Self {
        let file = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let child = Command::new(LODE)
            .args(["mount", text(pool), text(dir), "--foreground", "-o", options])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, dir: dir.to_owned(), log: log.to_owned() }
    }

    /// Starts it and waits until the mount answers.
    pub fn mount(pool: &Path, dir: &Path, log: &Path) -> Self {
        Self::mount_with(pool, dir, log, "rw")
    }

    /// The same with mount options.
    pub fn mount_with(pool: &Path, dir: &Path, log: &Path, options: &str) -> Self {
        let mut server = Self::start_with(pool, dir, log, options);
        server.wait_until_mounted();
        server
    }

    /// Waits until this server's mount answers: not a dead one that lies there, whose
    /// attributes the kernel may still know.
    pub fn wait_until_mounted(&mut self) {
        let deadline = Instant::now() + MOUNTS_WITHIN;
        while !self.answers() {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server ended with {status}:\n{}", self.log_tail());
            }
            assert!(
                Instant::now() < deadline,
                "no mount within {MOUNTS_WITHIN:?}:\n{}",
                self.log_tail()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn answers(&self) -> bool {
        let info = lode(&["info", text(&self.dir), "--json"]);
        info.code == 0 && info.json()["mount"]["pid"] == self.child.id()
    }

    /// The end of what it logged.
    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Kills it, as a crash would, and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it and waits until every thread stands still.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let stands = |task: &Path| {
            // The state is behind the name, which is in parentheses.
            let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        };
        while !fs::read_dir(&tasks).unwrap().flatten().all(|task| stands(&task.path())) {
            std::thread::yield_now();
        }
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Works while it stands still most of the time, a hundredth of a second each.
    pub fn slowly<T>(&self, work: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    self.freeze();
                    std::thread::sleep(Duration::from_millis(10));
                    self.thaw();
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            let done = work();
            is_over.store(true, Relaxed);
            done
        })
    }

    /// Unmounts with the command, and waits for the end of the server.
    #[track_caller]
    pub fn umount(self) {
        lode(&["umount", text(&self.dir)]).expect(0);
        self.wait();
    }

    /// Works on the mount, and unmounts it.
    #[track_caller]
    pub fn run_with(self, work: impl FnOnce()) {
        work();
        self.umount();
    }

    /// Waits until it has ended by itself, without an error.
    #[track_caller]
    pub fn wait(mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the server ended with {status}:\n{}", self.log_tail());
    }

    /// Waits until it has ended by itself; its exit code, and the end of what it logged.
    #[track_caller]
    pub fn ends(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + MOUNTS_WITHIN;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.log_tail());
            std::thread::sleep(Duration::from_millis(2));
        }
        (self.child.wait().unwrap().code(), self.log_tail())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
