//! What several tests need.
#![allow(dead_code)]

use std::ffi::c_int;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lode_pmem::{Mapped, RegionError, RegionOptions, WindowMode};
use tempfile::TempDir;

pub const PAGE: u64 = 4096;

/// A directory in tmpfs that removes itself.
pub fn shm() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// A directory on an ordinary file system that removes itself.
pub fn disk() -> TempDir {
    let under = option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(under).unwrap()
}

/// A region guarded in `mode`, or `None` and a line that says why there is none.
pub fn guarded(mode: WindowMode, pages: u64) -> Option<Mapped> {
    match Mapped::anonymous(pages * PAGE, &RegionOptions::new().windows(mode)) {
        Ok(region) => Some(region),
        Err(RegionError::NoWindows { why, .. }) => {
            eprintln!("skipped: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const CHILD: &str = "LODE_PMEM_TEST_CHILD";
const CHILD_PATH: &str = "LODE_PMEM_TEST_PATH";

/// How the other process ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Signal(c_int),
    Code(i32),
    Skipped,
}

const CODE_SKIPPED: i32 = 77;

/// Runs `body` in a process of its own: this program again, for the one test `name`.
/// `body` returns false if it can't be done here.
pub fn in_other_process(name: &str, body: impl FnOnce() -> bool) -> End {
    enter_other_process(name, |_| body());
    start_other_process(name, Path::new(""))
}

/// The first half of [`in_other_process`]: does not return there.
pub fn enter_other_process(name: &str, body: impl FnOnce(&Path) -> bool) {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        no_core_dump();
        let path = PathBuf::from(std::env::var_os(CHILD_PATH).unwrap_or_default());
        std::process::exit(if body(&path) { 0 } else { CODE_SKIPPED });
    }
}

/// As [`in_other_process`], with what the other process said on standard error.
pub fn words_of_other_process(name: &str, body: impl FnOnce() -> bool) -> (End, String) {
    enter_other_process(name, |_| body());
    start_and_listen(name, Path::new(""))
}

/// The second half: the other process is told `path`.
pub fn start_other_process(name: &str, path: &Path) -> End {
    start_and_listen(name, path).0
}

fn start_and_listen(name: &str, path: &Path) -> (End, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--include-ignored"])
        .env(CHILD, name)
        .env(CHILD_PATH, path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    eprint!("{text}");
    let end = match output.status.signal() {
        Some(signal) => End::Signal(signal),
        None if output.status.code() == Some(CODE_SKIPPED) => End::Skipped,
        None => End::Code(output.status.code().unwrap()),
    };
    (end, text.into_owned())
}

pub fn no_core_dump() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: takes a valid pointer.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
}

/// A store that bypasses the door.
pub fn stray_store(region: &Mapped, at: u64) {
    // SAFETY: not safe at all: that is what the tests are about.
    unsafe {
        let target = region.as_ptr().cast_mut().add(at as usize);
        std::arch::asm!("mov byte ptr [{target}], 1", target = in(reg) target);
    }
}

/// Deterministic bytes that differ from offset to offset.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}
