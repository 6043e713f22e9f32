//! `lode-engine`: pools that are opened, by the engine alone: neither mapping nor mounting is
//! counted, because they cost the same whatever is in a pool.
//!
//! The pool lies in memory that stays mapped. What files hold is never stored, because no opening
//! reads it: so 10 GiB of data take no memory, and the metadata is where it would be.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use lode_engine::{FormatOptions, NewInode, OpenOptions, Pool, mode};
use lode_host::StdHost;
use lode_pmem::{LINE_BYTES, Mapped, Medium, RegionOptions};

use super::{Outcome, Programs, Ready, Subject, million};
use crate::error::Result;
use crate::medium::{Way, Wrapped};
use crate::place::Place;
use crate::plan::Cell;
use crate::worker::{Step, Worker, worker};
use crate::workload::Kind;

const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
const DIRECTORY: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 0, gid: 0, rdev: 0 };
/// Files in a directory.
const WIDTH: u64 = 500;
/// Bytes of a pool, and more for each file besides what it holds.
const POOL_BYTES: u64 = 64 << 20;
const POOL_BYTES_FILE: u64 = 4 << 10;
/// Memory that a pool takes at most, and more for each file: of the region what is stored, and the indexes.
const TAKEN_BYTES: u64 = 32 << 20;
const TAKEN_BYTES_FILE: u64 = 4 << 10;
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

    fn bytes_max(&self, cells: &[Cell]) -> u64 {
        let of = |cell: &Cell| match cell.workload.kind {
            // Each thread has a pool of its own.
            Kind::Opening { .. } => {
                cell.threads as u64 * (TAKEN_BYTES + cell.workload.size * TAKEN_BYTES_FILE)
            }
            _ => 0,
        };
        cells.iter().map(of).max().unwrap_or_default()
    }

    fn missing(&self, _place: &Place) -> Option<String> {
        None
    }

    fn takes_emulation(&self) -> bool {
        true
    }

    fn start(&self, place: &Place, programs: &Programs) -> Result<Box<dyn Ready>> {
        Ok(Box::new(Pools { dir: place.pools().to_owned(), programs: programs.clone() }))
    }
}

struct Pools {
    dir: PathBuf,
    programs: Programs,
}

impl Ready for Pools {
    fn workers(&mut self, cell: &Cell) -> io::Result<Option<Vec<Box<dyn Worker>>>> {
        let Kind::Opening { crashed, file_bytes } = cell.workload.kind else { return Ok(None) };
        let each = |_| {
            let files = (cell.workload.size, file_bytes);
            Ok(worker(Opening::new(&self.programs.region(), files, crashed)?))
        };
        (0..cell.threads).map(each).collect::<io::Result<_>>().map(Some)
    }

    fn long_run(&mut self, cell: &Cell, is_over: &dyn Fn() -> bool) -> io::Result<Option<Outcome>> {
        match cell.workload.kind {
            Kind::Memory => million::memory(&self.dir, &self.programs, is_over),
            _ => Ok(None),
        }
    }
}

/// A medium that stores what it is told to, or all but the data of files.
struct Hollow {
    /// Data is dropped: nobody reads it.
    drops: bool,
}

/// Longest copy, in lines, that is no file's data: zeros are streamed in pieces of this length.
const SHORT: usize = 16;

impl Way for Hollow {
    type Notes = ();

    fn store_lines(
        &self,
        under: &Mapped,
        to: (&mut <Mapped as Medium>::Window, &mut ()),
        at: u64,
        lines: &[[u8; LINE_BYTES]],
    ) {
        if !self.drops || lines.len() <= SHORT {
            under.store_lines(to.0, at, lines);
        }
    }
}

type OpenPool = Pool<Wrapped<Hollow>, StdHost>;

struct Opening {
    region: Arc<Mapped>,
    crashed: bool,
    pool: Option<OpenPool>,
}

impl Opening {
    /// A pool of so many files, open.
    fn new(
        options: &RegionOptions,
        (files, file_bytes): (u64, u64),
        crashed: bool,
    ) -> io::Result<Self> {
        let bytes = POOL_BYTES + files * (file_bytes + POOL_BYTES_FILE);
        let region = Mapped::anonymous(bytes, options).map_err(io::Error::other)?;
        let region = Arc::new(region);
        Pool::format(&*region, StdHost::new(), &FormatOptions::default())
            .map_err(io::Error::other)?;
        // Left as by a crash: what comes at its end would be dropped, too.
        fill(&open(&region, true)?, files, file_bytes).map_err(io::Error::other)?;
        let pool = Some(open(&region, false)?);
        Ok(Self { region, crashed, pool })
    }
}

fn open(region: &Arc<Mapped>, drops: bool) -> io::Result<OpenPool> {
    let medium = Wrapped::new(region, u64::MAX, Hollow { drops });
    Pool::open(medium, StdHost::new(), &OpenOptions::default()).map_err(io::Error::other)
}

fn fill(pool: &OpenPool, files: u64, file_bytes: u64) -> lode_engine::Result<()> {
    let bytes = vec![1; file_bytes as usize];
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
        Ok(())
    }

    fn step(&mut self, _number: u64) -> io::Result<()> {
        let pool = open(&self.region, false)?;
        if pool.opening().clean == self.crashed {
            return Err(io::Error::other("the pool was not found as it was left"));
        }
        self.pool = Some(pool);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;

    #[test]
    fn files_are_found_with_their_sizes_and_their_data_takes_no_memory() {
        const FILES: u64 = 500;
        const FILE_BYTES: u64 = 2 << 20;
        let before = machine::available().unwrap();
        for crashed in [false, true] {
            let mut opening =
                Opening::new(&RegionOptions::new(), (FILES, FILE_BYTES), crashed).unwrap();
            for _ in 0..2 {
                opening.prepare(1).unwrap();
                opening.step(0).unwrap();
            }
            let pool = opening.pool.as_ref().unwrap();
            assert_eq!(pool.opening().clean, !crashed);
            assert!(!pool.opening().is_damaged());
            let space = pool.space();
            let used = (space.pages - space.pages_free) * 4096;
            assert!(used > FILES * FILE_BYTES, "{used}");
            let dir = pool.lookup(pool.root(), b"d0").unwrap().ino;
            assert_eq!(pool.lookup(dir, b"f499").unwrap().size, FILE_BYTES);
            // 1 GiB of data: of which nothing is there.
            let taken = before.saturating_sub(machine::available().unwrap());
            assert!(taken < 512 << 20, "{taken}");
        }
    }
}
