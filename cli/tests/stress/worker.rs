//! A process of the stress, and how the test speaks with it: a line when its time is over, and one
//! more after the pool was mounted again. It keeps its model all the while.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::modelled::Modelled;
use super::races::{Races, Report};

const VARIABLE: &str = "LODE_TEST_STRESS";
/// What the lines begin with: a test program says other things, too.
const MARK: &str = "stress worker: ";
const SAME: &str = "the same again";

/// A running process. Killed on drop.
pub struct Worker {
    number: u64,
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts number `number` on the mount at `dir`, in the test function `stress_worker`.
    pub fn start(number: u64, dir: &Path, seed: u64, time: Duration) -> Self {
        let words = [
            number.to_string(),
            dir.display().to_string(),
            seed.to_string(),
            time.as_secs().to_string(),
        ];
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "stress_worker", "--ignored", "--nocapture"])
            .env(VARIABLE, words.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Self { number, child, says }
    }

    /// What it has done, once its time is over and its tree is as its model.
    pub fn report(&mut self) -> Report {
        Report::parse(&self.line())
    }

    /// Has it compare its tree with its model once more.
    pub fn again(mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"again\n").unwrap();
        assert_eq!(self.line(), SAME);
        assert!(self.child.wait().unwrap().success());
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        while self.says.read_line(&mut line).unwrap() > 0 {
            // Behind what the test program has begun to say, perhaps.
            if let Some((_, said)) = line.split_once(MARK) {
                return said.trim_end().to_owned();
            }
            line.clear();
        }
        panic!("process {} of the stress has failed: see above", self.number);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of the test function `stress_worker`: nothing, unless [`Worker::start`] called it.
pub fn main() {
    let Ok(words) = std::env::var(VARIABLE) else {
        return;
    };
    let words: Vec<&str> = words.split('\n').collect();
    let (number, dir) = (words[0].parse().unwrap(), PathBuf::from(words[1]));
    let seed: u64 = words[2].parse().unwrap();
    let end = Instant::now() + Duration::from_secs(words[3].parse().unwrap());
    let mut own = Modelled::new(dir.join(format!("own{number}")), seed, number);
    let mut races = Races::new(&dir, seed, number);
    while Instant::now() < end {
        own.some(50);
        races.some();
    }
    own.end();
    let report = Report { modelled: own.done(), ..races.end() };
    println!("{MARK}{}", report.text());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    own.compare();
    println!("{MARK}{SAME}");
}
