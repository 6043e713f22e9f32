//! What the tests of the command share: a scratch place, the command itself, servers that can
//! be killed, and a load whose every acknowledged operation is known.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod load;
pub mod model;
pub mod nbd;
pub mod program;
pub mod prometheus;
pub mod random;
pub mod server;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The command under test.
pub const LODE: &str = env!("CARGO_BIN_EXE_lode");

/// What a run of the command gave.
#[derive(Debug)]
pub struct Ran {
    pub line: String,
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// The same, which must have ended with `code`.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{} gave\n{}{}", self.line, self.out, self.err);
        self
    }

    /// Standard output as JSON, of which it must consist.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| {
            panic!("{}: no JSON on standard output: {error}\n{}{}", self.line, self.out, self.err)
        })
    }

    /// Standard error as JSON, of which it must consist.
    #[track_caller]
    pub fn error_json(&self) -> Value {
        assert_eq!(self.out, "", "{}: output beside an error", self.line);
        serde_json::from_str(&self.err).unwrap_or_else(|error| {
            panic!("{}: no JSON on standard error: {error}\n{}", self.line, self.err)
        })
    }
}

/// Runs the command.
pub fn lode<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Ran {
    run(Command::new(LODE).args(args))
}

/// Runs a command line.
pub fn run(command: &mut Command) -> Ran {
    let done = command.stdin(Stdio::null()).output().expect("the command starts");
    let line = format!("{command:?}");
    let status = done.status;
    assert!(status.code().is_some(), "{line} ended by signal {:?}", status.signal());
    Ran {
        line,
        code: status.code().unwrap(),
        out: String::from_utf8(done.stdout).expect("text on standard output"),
        err: String::from_utf8(done.stderr).expect("text on standard error"),
    }
}

/// A place for one test: a pool's path, mount points, notes. On drop all that was mounted in
/// it is unmounted.
pub struct Scratch {
    dir: TempDir,
}

impl Scratch {
    /// In memory where the machine has such a place.
    pub fn new() -> Self {
        Self { dir: lode_testkit::real::scratch("lode-test-") }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A directory in it, made.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// A new pool in it.
    #[track_caller]
    pub fn pool(&self, name: &str, size: &str) -> PathBuf {
        let path = self.path(name);
        lode(&["mkfs", path.to_str().unwrap(), "--size", size]).expect(0);
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for line in mounts.lines().rev() {
            let dir = Path::new(line.split(' ').nth(4).unwrap_or_default());
            if dir.starts_with(self.dir.path()) {
                let _ = rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH);
            }
        }
    }
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The exit status of `lode fsck -n`, with what it said.
pub fn fsck(pool: &Path) -> Ran {
    lode(&["fsck", "-n", text(pool)])
}
