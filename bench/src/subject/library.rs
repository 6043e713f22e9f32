//! `lode-library`: a pool in this process, by the library's calls. `lode-library-key` and
//! `lode-library-open` are the same with and without memory protection keys against stray stores.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lode::{
    File, FormatOptions, Map, MapOptions, OpenOptions, Pool, PoolOptions, Protection, WindowMode,
};

use lode_sqlite::Vfs;
use rusqlite::{Connection, OpenFlags};

use super::levels::Snapshots;
use super::{Outcome, Programs, Ready, Subject, aging, touch};
use crate::calls::{Calls, For, Mapping, Name};
use crate::error::{BenchError, Result};
use crate::place::Place;
use crate::plan::Cell;
use crate::worker::Worker;
use crate::workload::{Kind, Stage};

/// Bytes of the pool.
const POOL: u64 = 1 << 30;

/// A pool that is open in this process.
pub struct Library {
    pub(super) id: &'static str,
    pub(super) about: &'static str,
    /// The guard against stray stores; the best there is unless one is named.
    pub(super) windows: Option<WindowMode>,
    pub(super) protection: Protection,
    /// Overwrites need not be atomic.
    pub(super) relaxed: bool,
    /// Snapshots are made of it all the time.
    pub(super) snapshots: bool,
}

/// Level none, atomic, no snapshots.
const PLAIN: Library = Library {
    id: "",
    about: "",
    windows: None,
    protection: Protection::None,
    relaxed: false,
    snapshots: false,
};

/// As it is opened by everybody.
pub const LIBRARY: Library = Library {
    id: "lode-library",
    about: "a pool in this process, by the library's calls; durable when they return",
    ..PLAIN
};

/// With protection keys.
pub const GUARDED: Library = Library {
    id: "lode-library-key",
    about: "the same, its memory closed by a protection key but for the lines that store",
    windows: Some(WindowMode::Key),
    ..PLAIN
};

/// Without a guard.
pub const UNGUARDED: Library = Library {
    id: "lode-library-open",
    about: "the same, its memory open to all stores",
    windows: Some(WindowMode::None),
    ..PLAIN
};

impl Subject for Library {
    fn id(&self) -> &'static str {
        self.id
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn bytes_max(&self, _cells: &[Cell]) -> u64 {
        POOL + (64 << 20)
    }

    fn missing(&self, _place: &Place) -> Option<String> {
        let keys = lode_pmem::CpuFeatures::get().protection_keys;
        let lacks = self.windows == Some(WindowMode::Key) && !keys;
        lacks.then(|| "this CPU or kernel has no protection keys".to_owned())
    }

    fn takes_emulation(&self) -> bool {
        true
    }

    fn start(&self, place: &Place, programs: &Programs) -> Result<Box<dyn Ready>> {
        let path = place.pools().join(self.id);
        let mut options = PoolOptions::new();
        if let Some(windows) = self.windows {
            options.windows(windows);
        }
        if let Some(profile) = programs.emulate {
            options.emulate(profile);
        }
        options.relaxed(self.relaxed);
        let format = FormatOptions { protection: self.protection, ..FormatOptions::default() };
        let pool = options.create(&path, POOL, &format);
        let pool = pool.map_err(|error| BenchError::io("making", &path, io::Error::from(error)))?;
        let made = pool.clone();
        let calls =
            InProcess::new(pool).map_err(|error| BenchError::io("opening", &path, error))?;
        touch(&calls, POOL).map_err(|error| BenchError::io("filling", &path, error))?;
        // What ages is the same whatever guards it.
        let ages = self.windows.is_none();
        let snapshots = self.snapshots.then(|| Snapshots::of(made));
        Ok(Box::new(Opened {
            stage: Stage::new(calls),
            options,
            path,
            ages,
            _snapshots: snapshots,
        }))
    }
}

/// A pool that is open.
struct Opened {
    stage: Stage<InProcess>,
    options: PoolOptions,
    path: PathBuf,
    ages: bool,
    _snapshots: Option<Snapshots>,
}

impl Ready for Opened {
    fn workers(&mut self, cell: &Cell) -> io::Result<Option<Vec<Box<dyn Worker>>>> {
        self.stage.workers(cell)
    }

    fn long_run(&mut self, cell: &Cell, is_over: &dyn Fn() -> bool) -> io::Result<Option<Outcome>> {
        match cell.workload.kind {
            Kind::Churn if self.ages => {
                let path = self.path.with_extension("churn");
                aging::churn(&path, &self.options, &aging::PLAN, is_over)
            }
            _ => Ok(None),
        }
    }
}

/// A pool's calls.
pub(super) struct InProcess {
    pool: Pool,
    /// How SQLite gets there: not to a pool whose overwrites may be torn.
    vfs: Option<Vfs>,
}

impl InProcess {
    pub(super) fn new(pool: Pool) -> io::Result<Self> {
        // SQLite knows them by name, and there may be several pools in this process.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("lode-bench-{}", NEXT.fetch_add(1, Relaxed));
        let is_atomic = !pool.is_relaxed()?;
        let vfs = is_atomic.then(|| lode_sqlite::register(&pool, &name));
        Ok(Self { vfs: vfs.transpose().map_err(io::Error::other)?, pool })
    }
}

impl Calls for InProcess {
    type File = File;
    /// Nothing has to be made durable by a directory.
    type Dir = ();
    type Map = Map;

    fn create(&self, at: &Name) -> io::Result<File> {
        Ok(self.pool.create_new(at.as_path())?)
    }

    fn open(&self, at: &Name, what_for: For) -> io::Result<File> {
        let mut options = OpenOptions::new();
        match what_for {
            For::Reading => options.read(true),
            For::Writing => options.read(true).write(true),
            For::Appending => options.append(true),
        };
        Ok(self.pool.open_with(at.as_path(), &options)?)
    }

    fn open_dir(&self, _at: &Name) -> io::Result<()> {
        Ok(())
    }

    fn unlink(&self, at: &Name) -> io::Result<()> {
        Ok(self.pool.remove_file(at.as_path())?)
    }

    fn mkdir(&self, at: &Name) -> io::Result<()> {
        Ok(self.pool.create_dir(at.as_path())?)
    }

    fn rmdir(&self, at: &Name) -> io::Result<()> {
        Ok(self.pool.remove_dir(at.as_path())?)
    }

    fn rename(&self, from: &Name, to: &Name) -> io::Result<()> {
        Ok(self.pool.rename(from.as_path(), to.as_path())?)
    }

    fn stat(&self, at: &Name) -> io::Result<u64> {
        Ok(self.pool.metadata(at.as_path())?.len())
    }

    fn list(&self, at: &Name) -> io::Result<u64> {
        let mut names = 0;
        for entry in self.pool.read_dir(at.as_path())? {
            entry?;
            names += 1;
        }
        Ok(names)
    }

    fn read_at(&self, file: &File, at: u64, into: &mut [u8]) -> io::Result<()> {
        Ok(file.read_exact_at(into, at)?)
    }

    fn write_at(&self, file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
        Ok(file.write_all_at(bytes, at)?)
    }

    fn append(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        file.append(bytes)?;
        Ok(())
    }

    fn set_len(&self, file: &File, bytes: u64) -> io::Result<()> {
        Ok(file.set_len(bytes)?)
    }

    fn persist(&self, _file: &File) -> io::Result<()> {
        Ok(())
    }

    fn persist_names(&self, _dir: &()) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, at: &Name) -> io::Result<Map> {
        let file = self.open(at, For::Writing)?;
        Ok(file.map(0, file.len()?, MapOptions::new().write(true))?)
    }

    fn settle(&self) -> io::Result<()> {
        Ok(())
    }

    fn database(&self, at: &Name) -> io::Result<Option<Connection>> {
        let Some(vfs) = &self.vfs else { return Ok(None) };
        let (flags, vfs) = (OpenFlags::default(), vfs.name());
        let opened = Connection::open_with_flags_and_vfs(at.as_path(), flags, vfs);
        opened.map(Some).map_err(io::Error::other)
    }
}

impl Mapping for Map {
    fn load(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        Ok(Map::load(self, at, into)?)
    }

    fn store(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        Map::store(self, at, bytes)?;
        Ok(self.persist(at..at + bytes.len() as u64)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;
    use crate::stats::Histogram;
    use crate::worker::Until;
    use crate::workload::{Mode, by_id, workers};

    #[test]
    fn sqlite_commits_to_the_pool_by_its_vfs_and_each_commit_is_stored_when_it_returns() {
        let pool = PoolOptions::new().in_memory(64 << 20).unwrap();
        let mut stage = Stage::new(InProcess::new(pool.clone()).unwrap());
        let workload = by_id("sqlite-wal").unwrap();
        let cell = Cell { workload, threads: 2, mode: Mode::Private };
        let mut workers = workers(&mut stage, &cell).unwrap().expect("it has a part in it");
        let fences = || pool.stats().unwrap().door.fences;
        for worker in &mut workers {
            let (stop, before) = (AtomicBool::new(false), fences());
            let until =
                Until { busy: Duration::from_millis(20), every: 1, clock_ns: 0, stop: &stop };
            let slice = worker.slice(&until, &mut Histogram::new()).unwrap();
            assert!(slice.operations > 1 && fences() - before >= slice.operations);
        }
        let names = pool.read_dir("/").unwrap().map(|entry| entry.unwrap().file_name());
        let logs = names.filter(|name| name.to_string_lossy().ends_with("-wal")).count();
        assert_eq!(logs, 2, "each database has its log in the pool");
    }
}
