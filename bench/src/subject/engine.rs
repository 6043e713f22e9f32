//! `lode-engine`: pools that are opened, by the engine alone: neither mapping nor mounting is
//! counted, because they cost the same whatever is in a pool.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lode_engine::{FormatOptions, NewInode, OpenOptions, Pool, mode};
use lode_host::StdHost;
use lode_pmem::{Mapped, RegionOptions};

use super::{Programs, Ready, Subject};
use crate::error::Result;
use crate::place::Place;
use crate::plan::Cell;
use crate::worker::{Step, Worker, worker};
use crate::workload::Kind;

const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
const DIRECTORY: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 0, gid: 0, rdev: 0 };
/// Files in a directory.
const WIDTH: u64 = 500;
/// Bytes of a file. Recovery never reads them.
const FILE_BYTES: usize = 8 << 10;
/// Bytes of a pool, and more for each file.
const POOL_BYTES: u64 = 64 << 20;
const POOL_BYTES_FILE: u64 = 12 << 10;
/// Files that come and go before each crash, so that there is something to judge.
const UNSETTLED: usize = 100;

/// The engine's openings.
pub struct Engine;

impl Subject for Engine {
    fn id(&self) -> &'static str {
        "lode-engine"
    }

    fn about(&self) -> &'static str {
        "the engine opening a pool, without its mapping and mounting"
    }

    fn bytes_max(&self) -> u64 {
        768 << 20
    }

    fn missing(&self, _place: &Place) -> Option<String> {
        None
    }

    fn start(&self, place: &Place, _programs: &Programs) -> Result<Box<dyn Ready>> {
        Ok(Box::new(Pools { dir: place.pools().to_owned(), next: 0 }))
    }
}

struct Pools {
    dir: PathBuf,
    next: usize,
}

impl Ready for Pools {
    fn workers(&mut self, cell: &Cell) -> io::Result<Option<Vec<Box<dyn Worker>>>> {
        let Kind::Opening { crashed } = cell.workload.kind else { return Ok(None) };
        let mut all = Vec::new();
        for _ in 0..cell.threads {
            self.next += 1;
            let path = self.dir.join(format!("openings{}", self.next));
            all.push(worker(Opening::new(path, cell.workload.size, crashed)?));
        }
        Ok(Some(all))
    }
}

type OpenPool = Pool<Mapped, StdHost>;

struct Opening {
    path: PathBuf,
    crashed: bool,
    /// Mapped, and not yet opened.
    region: Option<Mapped>,
    pool: Option<OpenPool>,
}

impl Opening {
    /// A pool of so many files, closed or not.
    fn new(path: PathBuf, files: u64, crashed: bool) -> io::Result<Self> {
        let bytes = POOL_BYTES + files * POOL_BYTES_FILE;
        let region = Mapped::create(&path, bytes, &RegionOptions::new(), false);
        // From here on the file goes when this does.
        let mut this = Self { path, crashed, region: None, pool: None };
        let region = region.map_err(io::Error::other)?;
        Pool::format(region, StdHost::new(), &FormatOptions::default())
            .map_err(io::Error::other)?;
        let pool = Pool::open(map(&this.path)?, StdHost::new(), &OpenOptions::default());
        let pool = pool.map_err(io::Error::other)?;
        fill(&pool, files).map_err(io::Error::other)?;
        this.pool = Some(pool);
        Ok(this)
    }
}

fn map(path: &Path) -> io::Result<Mapped> {
    Mapped::open(path, &RegionOptions::new()).map_err(io::Error::other)
}

fn fill(pool: &OpenPool, files: u64) -> lode_engine::Result<()> {
    let bytes = vec![1; FILE_BYTES];
    let mut dir = pool.root();
    for number in 0..files {
        if number % WIDTH == 0 {
            dir = pool.create(pool.root(), format!("d{number}").as_bytes(), &DIRECTORY)?.ino;
        }
        let file = pool.create(dir, format!("f{number}").as_bytes(), &FILE)?;
        pool.write(file.ino, 0, &bytes)?;
    }
    Ok(())
}

/// Changes that no checkpoint knows.
fn change(pool: &OpenPool) -> lode_engine::Result<()> {
    for number in 0..UNSETTLED {
        let name = format!("unsettled{number}");
        pool.create(pool.root(), name.as_bytes(), &FILE)?;
        pool.unlink(pool.root(), name.as_bytes())?;
    }
    Ok(())
}

impl Step for Opening {
    fn batch(&self) -> u64 {
        1
    }

    fn prepare(&mut self, _done: u64) -> io::Result<()> {
        if let Some(pool) = self.pool.take() {
            if self.crashed {
                change(&pool).map_err(io::Error::other)?;
            } else {
                pool.close().map_err(io::Error::other)?;
            }
        }
        self.region = Some(map(&self.path)?);
        Ok(())
    }

    fn step(&mut self, _number: u64) -> io::Result<()> {
        let region = self.region.take().ok_or(io::ErrorKind::NotFound)?;
        let pool = Pool::open(region, StdHost::new(), &OpenOptions::default());
        let pool = pool.map_err(io::Error::other)?;
        if pool.opening().clean == self.crashed {
            return Err(io::Error::other("the pool was not found as it was left"));
        }
        self.pool = Some(pool);
        Ok(())
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // What can't be removed goes with the place.
        let _ = fs::remove_file(&self.path);
    }
}
