//! A process that does transfers and says each when it is committed, until it is killed.

use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lode::Pool;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::Place;
use super::bank::{self, WAYS, Way};

const VARIABLE: &str = "LODE_TEST_SQLITE";

/// The database of a way.
pub fn database(way: usize) -> String {
    format!("db{way}")
}

/// What the process does: to be called by a test that is ignored, named `worker`.
pub fn work() {
    let Ok(words) = std::env::var(VARIABLE) else { return };
    let words: Vec<&str> = words.split('\n').collect();
    let place = Place::over(Pool::open(words[0]).unwrap());
    let way: usize = words[1].parse().unwrap();
    thread::scope(|scope| {
        for (writer, last) in words[2..].iter().enumerate() {
            let (place, last): (_, u64) = (&place, last.parse().unwrap());
            scope.spawn(move || write(place, way, writer as u64, last));
        }
    });
}

fn write(place: &Place, number: usize, writer: u64, last: u64) {
    let (way, name) = (&WAYS[number], database(number));
    let db = place.open(&name);
    bank::settle(&db, way, &name);
    // Nobody waits long for the other: SQLite's own handler sleeps longer each time.
    let wait = |_| {
        thread::sleep(Duration::from_micros(100));
        true
    };
    db.busy_handler(Some(wait)).unwrap();
    for number in last + 1.. {
        bank::step(&db, way, writer, number).unwrap();
        // From here on it was said to be committed.
        let mut out = std::io::stdout().lock();
        out.write_all(format!("committed {writer} {number}\n").as_bytes()).unwrap();
        out.flush().unwrap();
        drop(out);
        if way.journal == "WAL" && number.is_multiple_of(10) {
            // Two writers that never rest would let the log grow for ever.
            db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).unwrap();
        }
    }
}

/// The process, and what it has said.
pub struct Worker {
    child: Child,
    out: ChildStdout,
    text: Vec<u8>,
    /// Each writer's last transfer.
    pub said: Vec<u64>,
}

impl Worker {
    /// Starts one that goes on after each writer's last transfer.
    pub fn start(pool: &Path, way: usize, last: &[u64]) -> Self {
        let mut words = vec![pool.to_str().unwrap().to_owned(), way.to_string()];
        words.extend(last.iter().map(u64::to_string));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker", "--ignored", "--nocapture"])
            .env(VARIABLE, words.join("\n"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        rustix::fs::fcntl_setfl(&out, OFlags::NONBLOCK).unwrap();
        Self { child, out, text: Vec::new(), said: last.to_vec() }
    }

    /// Lets it work until each writer has said something, and then so long.
    pub fn run(&mut self, time: Duration) {
        let before = self.said.clone();
        let late = Instant::now() + Duration::from_secs(60);
        while self.said.iter().zip(&before).any(|(now, before)| now == before) {
            assert!(Instant::now() < late, "the worker does nothing");
            thread::sleep(Duration::from_millis(1));
            self.listen();
        }
        let end = Instant::now() + time;
        while Instant::now() < end {
            thread::sleep(Duration::from_micros(500).min(time));
            self.listen();
        }
    }

    /// Takes in what it has said.
    fn listen(&mut self) {
        let mut piece = [0; 4096];
        loop {
            match self.out.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => self.text.extend(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let end = self.text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let text: Vec<u8> = self.text.drain(..end).collect();
        for line in String::from_utf8(text).unwrap().lines() {
            // The test's own lines are between.
            if let Some((_, said)) = line.split_once("committed ") {
                let (writer, number) = said.split_once(' ').unwrap();
                self.said[writer.parse::<usize>().unwrap()] = number.parse().unwrap();
            }
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Stops all its threads, and takes in what it said before.
    pub fn stop(&mut self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "the worker ended by itself");
        self.listen();
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    /// Kills it. Returns what it said.
    pub fn kill(mut self) -> Vec<u64> {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.code().is_none(), "the worker ended by itself");
        self.listen();
        std::mem::take(&mut self.said)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a crash left of a way's database fits what was said. Returns what was committed.
pub fn judge(place: &Place, number: usize, said: &[u64], what: &str) -> Vec<u64> {
    let (way, name): (&Way, _) = (&WAYS[number], database(number));
    let db = place.open(&name);
    bank::settle(&db, way, &name);
    let found = bank::judge(&db, way);
    for (found, said) in found.iter().zip(said) {
        // One may have been committed and not been said.
        assert!(
            (*said..=said + 1).contains(found),
            "{what}, {way:?}: {said} were said to be committed, {found} are there"
        );
    }
    found
}

/// Makes the databases of all ways.
pub fn prepare(place: &Place) {
    for (number, way) in WAYS.iter().enumerate() {
        let name = database(number);
        let db = place.open(&name);
        bank::settle(&db, way, &name);
        bank::prepare(&db, way);
    }
}
