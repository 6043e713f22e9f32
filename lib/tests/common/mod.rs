//! What the tests of the library share: a pool, and a directory of a tmpfs in which std does the
//! same.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod forbid;
pub mod script;
pub mod tree;

use std::path::PathBuf;

use lode::{FormatOptions, Pool, PoolOptions};
use tempfile::TempDir;

/// A directory in memory.
pub fn scratch() -> TempDir {
    lode_testkit::real::scratch("lode-lib-")
}

/// A pool that is gone when it is closed.
pub fn pool(megabytes: u64) -> Pool {
    PoolOptions::new().in_memory(megabytes << 20).unwrap()
}

/// A pool in a file, in a directory that cleans up after itself.
pub struct PoolFile {
    pub dir: TempDir,
    pub path: PathBuf,
}

impl PoolFile {
    pub fn new(megabytes: u64) -> Self {
        Self::with(megabytes, &FormatOptions::default())
    }

    pub fn with(megabytes: u64, format: &FormatOptions) -> Self {
        let dir = scratch();
        let path = dir.path().join("pool");
        let made = PoolOptions::new().create(&path, megabytes << 20, format);
        made.unwrap().close().unwrap();
        Self { dir, path }
    }

    pub fn open(&self) -> Pool {
        Pool::open(&self.path).unwrap()
    }
}

/// The error number of a call that must fail.
#[track_caller]
pub fn errno<T>(done: lode::Result<T>) -> i32 {
    done.map(drop).unwrap_err().errno()
}
