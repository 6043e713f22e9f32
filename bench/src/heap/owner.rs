//! Servers that lend memory, each with a pool of its own.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lode_fuse::control::{Client, place};
use lode_loan::CHUNK_BYTES;

use super::helper::Helper;
use super::subject::{Lender, Step};
use crate::place::run_program;

/// How long a server may take to be there, and then to have zeroed what it keeps ready.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(2);
/// Space of a pool besides what is lent; and of the one whose memory a build has, some of each method kept ready.
const BESIDE: u64 = 96 << 20;
const BESIDE_BUILD: u64 = 384 << 20;
/// Chunks that a server keeps ready where nothing is said.
const USUAL: u64 = lode_lend::READY;

/// A server of a pool; both are taken away with this.
pub(super) struct Owner {
    helper: Option<Helper>,
    pool: PathBuf,
    socket: PathBuf,
    /// Bytes that it keeps zeroed; none where it can't be asked.
    ready: Option<u64>,
}

/// Bytes of a pool that lends so many.
pub(super) fn pool_bytes(lender: Lender, bytes: u64) -> u64 {
    let beside = if lender == Lender::Usual { BESIDE_BUILD } else { BESIDE };
    (bytes + bytes / 4 + beside).next_multiple_of(CHUNK_BYTES)
}

impl Owner {
    /// Makes a pool in `dir` that can lend `bytes`, and has it served.
    pub(super) fn start(lode: &Path, dir: &Path, lender: Lender, bytes: u64) -> io::Result<Self> {
        let (pool, log) = (dir.join(lender.name()), dir.join(format!("{}.log", lender.name())));
        let mut command = Command::new(lode);
        command.args(["bench", "heap", "--child"]);
        let chunks = bytes / CHUNK_BYTES;
        let (ready, options) = match lender {
            Lender::Usual => (USUAL.min(chunks), String::new()),
            Lender::Ready => (chunks, format!(",heap_ready={chunks}")),
            Lender::Bare => (0, ",heap_ready=0".to_owned()),
            Lender::Slow(ns) => (0, format!(",heap_ready=0,{}", slow(ns))),
            Lender::Bitmap(step) => return Self::bitmap(command, pool, log, (bytes, step)),
        };
        let size = pool_bytes(lender, bytes).to_string();
        let made = run_program(Command::new(lode).arg("mkfs").arg(&pool).args(["--size", &size]));
        made.map_err(|error| io::Error::other(error.to_string()))?;
        fill(&pool)?;
        command.arg("serve").arg(lode).arg(&pool).arg(format!("heap_reserve=0{options}"));
        let socket = place::socket(&place::directory(), &pool);
        Self::serving(command, (pool, socket), log, Some(ready * CHUNK_BYTES))
    }

    fn bitmap(
        mut command: Command,
        pool: PathBuf,
        log: PathBuf,
        (bytes, step): (u64, Step),
    ) -> io::Result<Self> {
        let socket = pool.with_extension("sock");
        let size = pool_bytes(Lender::Bitmap(step), bytes).to_string();
        command.arg("bitmap").arg(&pool).arg(&size).arg(&socket).arg(step.pages().to_string());
        Self::serving(command, (pool, socket), log, None)
    }

    fn serving(
        mut command: Command,
        (pool, socket): (PathBuf, PathBuf),
        log: PathBuf,
        ready: Option<u64>,
    ) -> io::Result<Self> {
        let mut owner = Self { helper: None, pool, socket, ready };
        let mut helper = Helper::start(&mut command, log)?;
        let heard = helper.hear(PATIENCE);
        owner.helper = Some(helper);
        heard.map(|_| owner)
    }

    /// Where programs connect to.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The pool.
    pub(super) fn pool(&self) -> &Path {
        &self.pool
    }

    /// Waits until nothing is lent, and all that is to be ready for who had memory is.
    pub(super) fn settle(&self) -> io::Result<()> {
        let Some(wanted) = self.ready else { return Ok(()) };
        self.until(|bytes| bytes("lent_bytes") == Some(0) && bytes("ready_bytes") >= Some(wanted))
    }

    /// Waits until nothing is lent, and nobody is there that could be.
    pub(super) fn rest(&self) -> io::Result<()> {
        self.until(|count| count("lent_bytes") == Some(0) && count("sessions") == Some(0))
    }

    fn until(&self, holds: impl Fn(&dyn Fn(&str) -> Option<u64>) -> bool) -> io::Result<()> {
        let failed = |error: lode_fuse::MountError| io::Error::other(error.to_string());
        let mut client = Client::for_mount(&self.pool).map_err(failed)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = client.ask("heap-stats").map_err(failed)?;
            if holds(&|key| answer.get(key).and_then(serde_json::Value::as_u64)) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(io::Error::other(format!(
                    "the server does not come to rest: {answer}"
                )));
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Options for memory that takes so long for a line that is written, as the paper has it; loads take what they take. A CPU has so
/// many lines under way at once, so it takes the bytes of these in that time.
fn slow(ns: u32) -> String {
    const LINES_UNDER_WAY: f64 = 16.0;
    format!("write-gbps={:.3},fence-ns={ns}", 64.0 * LINES_UNDER_WAY / f64::from(ns))
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.helper.take());
        let _ = fs::remove_file(&self.pool);
        if self.ready.is_none() {
            let _ = fs::remove_file(&self.socket);
        }
    }
}

/// Has memory for all of a file, with what is in it: persistent memory is there, too, before it is lent.
pub(super) fn fill(path: &Path) -> io::Result<()> {
    let file: File = OpenOptions::new().read(true).write(true).open(path)?;
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let read = file.read_at(&mut piece, at)?;
        let Some(bytes) = piece.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Ok(());
        };
        file.write_all_at(bytes, at)?;
        at += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_slow_medium_takes_sixteen_lines_in_the_time_of_one() {
        assert_eq!(slow(1000), "write-gbps=1.024,fence-ns=1000");
        assert_eq!(slow(150), "write-gbps=6.827,fence-ns=150");
    }

    #[test]
    fn a_file_is_filled_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_len((3 << 20) + 5).unwrap();
        file.write_all_at(b"here", 2 << 20).unwrap();
        let before = fs::read(&path).unwrap();
        fill(&path).unwrap();
        assert!(fs::read(&path).unwrap() == before);
        assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 3 << 20);
    }
}
