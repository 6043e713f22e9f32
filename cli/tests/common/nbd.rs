//! `lode block serve`, started and ended.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

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

    /// The same; what it logs goes there.
    pub fn start_logging(words: &[&str], log: Stdio) -> Self {
        let child = Command::new(LODE)
            .args(["block", "serve"])
            .args(words)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut serving = Self { child, lines: Vec::new() };
        let mut out = BufReader::new(serving.child.stdout.take().unwrap());
        while !serving.lines.last().is_some_and(|line| line.contains("+unix:")) {
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
