//! What the tests share: pools with a VFS, and a load whose state can be judged.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod bank;
pub mod raw;
pub mod worker;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lode::{FormatOptions, Pool, PoolOptions};
use lode_sqlite::Vfs;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

/// A directory in memory.
pub fn scratch() -> TempDir {
    lode_testkit::real::scratch("lode-sqlite-")
}

/// A name that no other test's VFS has.
pub fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("pool{}", NEXT.fetch_add(1, Relaxed))
}

/// A pool that SQLite can use.
pub struct Place {
    pub vfs: Vfs,
    pub pool: Pool,
}

impl Place {
    pub fn over(pool: Pool) -> Self {
        Self { vfs: lode_sqlite::register(&pool, &fresh_name()).unwrap(), pool }
    }

    /// In memory.
    pub fn new(megabytes: u64) -> Self {
        Self::over(PoolOptions::new().in_memory(megabytes << 20).unwrap())
    }

    pub fn open_with(&self, path: &str, flags: OpenFlags) -> rusqlite::Result<Connection> {
        let db = Connection::open_with_flags_and_vfs(path, flags, self.vfs.name())?;
        db.busy_timeout(Duration::from_secs(30))?;
        Ok(db)
    }

    pub fn open(&self, path: &str) -> Connection {
        self.open_with(path, OpenFlags::default()).unwrap()
    }

    /// All names in the pool's root.
    pub fn names(&self) -> Vec<String> {
        let entries = self.pool.read_dir("/").unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Closes the pool: everything else is closed.
    pub fn close(self) {
        drop(self.vfs);
        self.pool.close().unwrap();
    }
}

/// A pool in a file, in a directory that cleans up after itself.
pub struct PoolFile {
    pub dir: TempDir,
    pub path: PathBuf,
}

impl PoolFile {
    pub fn new(megabytes: u64) -> Self {
        let dir = scratch();
        let path = dir.path().join("pool");
        let made = PoolOptions::new().create(&path, megabytes << 20, &FormatOptions::default());
        made.unwrap().close().unwrap();
        Self { dir, path }
    }

    pub fn open(&self) -> Place {
        Place::over(Pool::open(&self.path).unwrap())
    }
}

/// The one value that a statement gives.
#[track_caller]
pub fn value<T: rusqlite::types::FromSql>(db: &Connection, sql: &str) -> T {
    db.query_row(sql, (), |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// SQLite finds nothing wrong.
#[track_caller]
pub fn check_integrity(db: &Connection) {
    assert_eq!(value::<String>(db, "PRAGMA integrity_check"), "ok");
}
