//! `lode block serve`, started and ended.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::LODE;

/// A server of block devices, and where it is to be found. Killed on drop.
pub struct Serving {
    child: Child,
    pub lines: Vec<String>,
}

impl Serving {
    /// `lode block serve WORDS`, once clients can come.
    pub fn start(words: &[&str]) -> Self {
        Self::start_logging(words, Stdio::inherit())
    }

    /// The same, once they can come by TCP, too.
    pub fn start_listening(words: &[&str]) -> Self {
        Self::start_until(words, Stdio::inherit(), "nbd://")
    }

    /// The same; what it logs goes there.
    pub fn start_logging(words: &[&str], log: Stdio) -> Self {
        Self::start_until(words, log, "+unix:")
    }

    fn start_until(words: &[&str], log: Stdio, last: &str) -> Self {
        let child = Command::new(LODE)
            .args(["block", "serve"])
            .args(words)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut serving = Self { child, lines: Vec::new() };
        let mut out = BufReader::new(serving.child.stdout.take().unwrap());
        while !serving.lines.last().is_some_and(|line| line.contains(last)) {
            let mut line = String::new();
            assert!(
                out.read_line(&mut line).unwrap() > 0,
                "it serves nothing: {:?}",
                serving.lines
            );
            serving.lines.push(line.trim().to_owned());
        }
        serving
    }

    /// Sends it a signal that does not end it.
    pub fn tell(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The exit status once it has ended, -1 where it has none; `None` where it has not within so long.
    pub fn ended_within(&mut self, time: Duration) -> Option<i32> {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status.code().unwrap_or(-1));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// Ends it by a signal; its exit status, -1 where it has none.
    pub fn signal(&mut self, signal: Signal) -> i32 {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
