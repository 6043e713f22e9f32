//! The load: processes that create, append, overwrite, rename over, truncate and unlink files,
//! one operation at a time each, and note outside the pool what was acknowledged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::model::{Journal, Op, content};
use super::random::Random;

const FILES_MAX: usize = 24;
const FILE_BYTES_MAX: u64 = 192 << 10;
const WRITE_BYTES_MAX: u64 = 48 << 10;
const VARIABLE: &str = "LODE_TEST_WORKER";

/// One worker: its directory in the mount, and its journal outside.
#[derive(Clone, Debug)]
pub struct Worker {
    pub number: u64,
    pub dir: PathBuf,
    pub journal: PathBuf,
}

impl Worker {
    /// Worker `number` on the mount at `mount`, its journal in `notes`.
    pub fn new(number: u64, mount: &Path, notes: &Path) -> Self {
        Self {
            number,
            dir: mount.join(format!("worker{number}")),
            journal: notes.join(format!("worker{number}.journal")),
        }
    }

    /// Makes its directories. Called once, on a new pool.
    pub fn prepare(&self) {
        for part in ["left", "right"] {
            fs::create_dir_all(self.dir.join(part)).unwrap();
        }
        fs::write(&self.journal, "").unwrap();
    }

    /// Starts it as a process of its own, in the test function `load_worker` of the calling
    /// test program. It ends when an operation fails, or when `stop` exists.
    pub fn start(&self, seed: u64, stop: &Path) -> Child {
        let words = [
            self.number.to_string(),
            self.dir.display().to_string(),
            self.journal.display().to_string(),
            seed.to_string(),
            stop.display().to_string(),
        ];
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "load_worker", "--ignored", "--nocapture"])
            .env(VARIABLE, words.join("\n"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// What its journal says now.
    pub fn read(&self) -> Journal {
        Journal::parse(&fs::read_to_string(&self.journal).unwrap())
    }

    /// Compares its directory with its journal, and settles the operation in flight.
    pub fn judge(&self) -> Result<u64, String> {
        let journal = self.read();
        let failed = |why: String| format!("worker {}: {why}", self.number);
        let line = journal.judge(self.number, &self.dir).map_err(failed)?;
        let mut file = OpenOptions::new().append(true).open(&self.journal).unwrap();
        file.write_all(line.unwrap_or_default().as_bytes()).unwrap();
        Ok(journal.acknowledged)
    }
}

/// The body of the test function `load_worker`: nothing, unless [`Worker::start`] called it.
pub fn worker_main() {
    let Ok(words) = std::env::var(VARIABLE) else {
        return;
    };
    let words: Vec<&str> = words.split('\n').collect();
    let worker = Worker {
        number: words[0].parse().unwrap(),
        dir: words[1].into(),
        journal: words[2].into(),
    };
    let stop = PathBuf::from(words[4]);
    let mut random = Random::new(words[3].parse().unwrap());
    let mut journal = worker.read();
    assert!(journal.pending.is_none(), "the operation in flight must be judged first");
    let mut notes = OpenOptions::new().append(true).open(&worker.journal).unwrap();
    for seq in journal.next.. {
        if seq % 16 == 0 && stop.exists() {
            return;
        }
        let op = choose(&journal, &mut random);
        notes.write_all(format!("B {seq} {}\n", op.text()).as_bytes()).unwrap();
        match perform(&worker, seq, &op) {
            Ok(()) => notes.write_all(format!("A {seq}\n").as_bytes()).unwrap(),
            Err(error) => {
                notes.write_all(format!("F {seq} {error}\n").as_bytes()).unwrap();
                return;
            }
        }
        journal.state.apply(seq, &op);
    }
}

fn choose(journal: &Journal, random: &mut Random) -> Op {
    let files = &journal.state.files;
    let names: Vec<&String> = files.keys().collect();
    if names.is_empty() {
        return Op::Create { name: new_name(random) };
    }
    let name = (*random.pick(&names)).clone();
    let size = files[&name].size;
    let scale = 1 + random.below(16); // as many small writes as large ones
    let len = 1 + random.below(1 << scale).min(WRITE_BYTES_MAX - 1);
    match random.below(100) {
        0..15 if names.len() < FILES_MAX => {
            let new = new_name(random);
            if files.contains_key(&new) {
                Op::Unlink { name: new }
            } else {
                Op::Create { name: new }
            }
        }
        15..50 if size + len <= FILE_BYTES_MAX => Op::Write { name, offset: size, len },
        50..75 if size > 0 => {
            let offset = random.below(size);
            Op::Write { name, offset, len: len.min(size - offset) }
        }
        75..85 => {
            let to = if random.below(3) == 0 {
                new_name(random)
            } else {
                (*random.pick(&names)).clone()
            };
            if to == name { Op::Unlink { name } } else { Op::Rename { from: name, to } }
        }
        85..90 if size > 0 => Op::Truncate { name, size: random.below(size) },
        _ => Op::Unlink { name },
    }
}

/// Names of several lengths, in two directories.
fn new_name(random: &mut Random) -> String {
    let side = random.pick(&["left", "right"]);
    let number = random.below(40);
    let tail = match number % 4 {
        0 => String::new(),
        1 => "-of-more-than-sixteen".to_owned(),
        2 => format!("-{}", "long".repeat(20)),
        _ => format!("-{}", "longest".repeat(33)),
    };
    format!("{side}/file{number}{tail}")
}

fn perform(worker: &Worker, seq: u64, op: &Op) -> io::Result<()> {
    let at = |name: &str| worker.dir.join(name);
    match op {
        Op::Create { name } => File::create_new(at(name)).map(drop),
        Op::Write { name, offset, len } => {
            let file = OpenOptions::new().write(true).open(at(name))?;
            let bytes = content(worker.number, seq, *len);
            let written = file.write_at(&bytes, *offset)?;
            if written as u64 == *len { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
        }
        Op::Truncate { name, size } => {
            OpenOptions::new().write(true).open(at(name))?.set_len(*size)
        }
        Op::Rename { from, to } => fs::rename(at(from), at(to)),
        Op::Unlink { name } => fs::remove_file(at(name)),
    }
}

/// Waits for processes that must end by themselves.
pub fn join(workers: Vec<Child>, within: Duration) {
    let deadline = Instant::now() + within;
    for mut worker in workers {
        loop {
            if let Some(status) = worker.try_wait().unwrap() {
                assert!(status.success(), "a worker ended with {status}");
                break;
            }
            if Instant::now() > deadline {
                let _ = worker.kill();
                panic!("a worker hangs: an operation on the mount of a dead server never returned");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
