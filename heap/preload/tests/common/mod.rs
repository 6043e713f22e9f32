//! Programs with memory of a test's owner.
#![allow(dead_code)]

mod library;
pub mod owner;

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use library::library;
use owner::{Owner, pool};

/// An owner, and the directory in which its socket is.
pub struct Place {
    pub owner: Owner,
    pub dir: tempfile::TempDir,
}

/// An owner of so many chunks, which lends `limit` at most.
pub fn limited_place(chunks: u64, limit: usize) -> Place {
    let dir = tempfile::tempdir().unwrap();
    let owner = Owner::new(&dir.path().join("socket"), pool(chunks), limit);
    Place { owner, dir }
}

impl Place {
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Runs it; all that it had is back then.
    pub fn runs(&self, command: Command) -> String {
        let text = run(with_memory(command, &self.socket()));
        assert!(self.owner.books(|books| books.granted) > 0, "nothing was lent");
        self.all_is_back();
        text
    }

    /// The program goes on to its end, which is a good one; all that it had is back then.
    pub fn ends(&self, mut program: Talking) {
        program.go_on();
        program.ends_well();
        self.all_is_back();
    }

    pub fn all_is_back(&self) {
        self.owner.until("all is back", |owner| owner.out() == 0);
    }
}

/// The program of `program.c`: in one place of the build's own, so that nothing is left behind by any run.
pub fn program() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program.c");
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let draft = dir.join(format!("heap-program-{}", std::process::id()));
        let flags = ["-O1", "-g", "-Wall", "-Wno-use-after-free", "-fno-builtin", "-pthread", "-o"];
        let mut command = Command::new("cc");
        command.args(flags).arg(&draft).arg(source);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        // (Other tests may be running it.)
        let made = dir.join("heap-program");
        std::fs::rename(&draft, &made).unwrap();
        made
    });
    made.clone()
}

/// A command with memory of the owner at `socket`.
pub fn with_memory(mut command: Command, socket: &std::path::Path) -> Command {
    command.env("LD_PRELOAD", library()).env("LODE_HEAP_SOCKET", socket);
    command
}

/// Runs a command to its end, for two minutes at most; what it printed, where it ended well.
pub fn run(mut command: Command) -> String {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    finish(child)
}

pub fn finish(mut child: Child) -> String {
    let (mut out, mut error) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = std::thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        text
    });
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        error.read_to_string(&mut text).unwrap();
        text
    });
    let end = Instant::now() + Duration::from_secs(120);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("not in time");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (text, errors) = (read.join().unwrap(), errors.join().unwrap());
    assert!(status.success(), "{status}: {errors}{text}");
    text
}

/// A program that is talked to by lines. Killed on drop.
pub struct Talking(Child);

impl Talking {
    pub fn new(mut command: Command) -> Self {
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// The next line has to be this one, within 100 seconds.
    pub fn says(&mut self, line: &str) {
        let end = Instant::now() + Duration::from_secs(100);
        let out = self.0.stdout.as_mut().unwrap();
        let mut said = Vec::new();
        while said.last() != Some(&b'\n') {
            let mut poll = libc::pollfd { fd: out.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let left = end.saturating_duration_since(Instant::now()).as_millis() as i32;
            // SAFETY: one structure, of this frame.
            let ready = unsafe { libc::poll(&raw mut poll, 1, left) };
            assert!(ready == 1, "not in time: {line}");
            let mut byte = [0];
            assert!(out.read(&mut byte).unwrap() == 1, "it ends before it says: {line}");
            said.push(byte[0]);
        }
        assert_eq!(String::from_utf8(said).unwrap().trim(), line);
    }

    pub fn go_on(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    pub fn ends_well(mut self) {
        let end = Instant::now() + Duration::from_secs(100);
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "{status}");
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
