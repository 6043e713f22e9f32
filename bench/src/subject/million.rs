//! `memory`: what a pool of a million files takes of main memory, when it has just been opened,
//! when each file has been looked at, and at most while each is, if that is limited.
//!
//! It is weighed in a process of its own: what others have allocated before, and given back, would
//! hide a part of it.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use lode_engine::{FormatOptions, Ino, NewInode, OpenOptions, Pool, mode};
use lode_host::StdHost;
use lode_pmem::{Mapped, RegionOptions};

use super::{Gone, Outcome, Programs};
use crate::machine;
use crate::report::Figure;

/// The option of `lode bench` by which a process weighs a pool.
pub const WEIGH: &str = "--weigh";
/// Files, and where memory is short.
pub const FILES: u64 = 1_000_000;
const FILES_SHORT: u64 = 100_000;
/// Files of a directory.
const WIDTH: u64 = 1000;
/// Bytes of the pool, and more for each file: its inode, its name, and room for both to be taken
/// in pieces.
const POOL: u64 = 64 << 20;
const POOL_FILE: u64 = 1 << 10;
/// What must be free for all of them: the pool, and what is weighed.
const BYTES: u64 = POOL + FILES * (POOL_FILE + 1024);

const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
const DIRECTORY: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 0, gid: 0, rdev: 0 };

type Opened = Pool<Mapped, StdHost>;

/// What is weighed at one time, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Weight {
    /// The engine's indexes, as its gauges tell.
    indexes: u64,
    /// The process's own memory: mappings of files, the pool above all, are not in it.
    process: u64,
}

/// Makes a pool of a million files in `dir`, and has it weighed.
///
/// # Errors
/// Where the pool fails, or the process that weighs it.
pub fn memory(
    dir: &Path,
    programs: &Programs,
    is_over: &dyn Fn() -> bool,
) -> io::Result<Option<Outcome>> {
    let short = machine::available().is_some_and(|free| free < BYTES * 2);
    let files = if short { FILES_SHORT } else { FILES };
    let file = Gone(dir.join("million"));
    if !make(&file.0, files, is_over)? {
        return Ok(None);
    }
    let text = weighed_by(&programs.lode, &file.0)?;
    outcome(files, &text).map(Some)
}

/// Makes a pool of so many empty files, and closes it; not all where nobody wants more.
fn make(path: &Path, files: u64, is_over: &dyn Fn() -> bool) -> io::Result<bool> {
    let bytes = POOL + files * POOL_FILE;
    let region = Mapped::create(path, bytes, &RegionOptions::new(), false);
    let region = region.map_err(io::Error::other)?;
    Pool::format(&region, StdHost::new(), &FormatOptions::default()).map_err(io::Error::other)?;
    drop(region);
    let pool = open(path, None)?;
    let mut dir = pool.root();
    for number in 0..files {
        if number % WIDTH == 0 {
            if is_over() {
                return Ok(false);
            }
            dir = create(&pool, pool.root(), &format!("d{number}"), &DIRECTORY)?;
        }
        create(&pool, dir, &format!("f{number}"), &FILE)?;
    }
    pool.close().map_err(io::Error::other)?;
    Ok(true)
}

fn create(pool: &Opened, dir: Ino, name: &str, new: &NewInode) -> io::Result<Ino> {
    Ok(pool.create(dir, name.as_bytes(), new).map_err(io::Error::other)?.ino)
}

fn open(path: &Path, index_memory: Option<u64>) -> io::Result<Opened> {
    let region = Mapped::open(path, &RegionOptions::new()).map_err(io::Error::other)?;
    let options = OpenOptions { index_memory, ..OpenOptions::default() };
    Pool::open(region, StdHost::new(), &options).map_err(io::Error::other)
}

fn weighed_by(lode: &Path, pool: &Path) -> io::Result<String> {
    let mut command = Command::new(lode);
    command.args(["bench", WEIGH]).arg(pool).stdin(Stdio::null());
    let done = command.output()?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        return Err(io::Error::other(format!("weighing ended with {}: {said}", done.status)));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Weighs the pool at `path` when it is opened and when every file has been looked at, and again with a limit, the most that
/// is there meanwhile: numbers, for [`memory`].
///
/// # Errors
/// Where it can't be opened or read.
pub fn weigh(path: &Path) -> io::Result<String> {
    let pool = open(path, None)?;
    let idle = weight(&pool)?;
    let files = look_at_all(&pool, &mut || Ok(()))?;
    let touched = weight(&pool)?;
    pool.close().map_err(io::Error::other)?;
    drop(pool);
    let limited = open(path, Some(LIMIT))?;
    let mut most = indexes(&limited)?;
    look_at_all(&limited, &mut || {
        most = most.max(indexes(&limited)?);
        Ok(())
    })?;
    limited.close().map_err(io::Error::other)?;
    let Weight { indexes, process } = idle;
    Ok(format!("{files} {indexes} {process} {} {} {most}\n", touched.indexes, touched.process))
}

fn weight(pool: &Opened) -> io::Result<Weight> {
    Ok(Weight { indexes: indexes(pool)?, process: own_memory()? })
}

/// Bytes of the engine's indexes now.
fn indexes(pool: &Opened) -> io::Result<u64> {
    Ok(pool.gauges().map_err(io::Error::other)?.memory.total())
}

/// Memory of this process that is no file's.
fn own_memory() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Looks every file up by its name, and calls `between` behind each directory; returns how many there are.
fn look_at_all(pool: &Opened, between: &mut dyn FnMut() -> io::Result<()>) -> io::Result<u64> {
    let mut files = 0;
    for (dir, _) in names(pool, pool.root())? {
        for (_, name) in names(pool, dir)? {
            pool.lookup(dir, &name).map_err(io::Error::other)?;
            files += 1;
        }
        between()?;
    }
    Ok(files)
}

fn names(pool: &Opened, dir: Ino) -> io::Result<Vec<(Ino, Vec<u8>)>> {
    let mut all = Vec::new();
    let listed = pool.readdir(dir, 0, &mut |entry| {
        all.push((entry.ino, entry.name.to_vec()));
        true
    });
    listed.map_err(io::Error::other)?;
    Ok(all)
}

/// The figure of the indexes' memory when nothing has been looked at.
pub const IDLE: &str = "indexes, when the pool has been opened";
/// The same when all has.
pub const TOUCHED: &str = "indexes, when each file has been looked at";
/// The most that it is meanwhile, by [`LIMIT`].
pub const LIMITED: &str = "indexes, at most while each file is looked at with index_memory=100M";
/// Bytes of memory that indexes may take there.
pub const LIMIT: u64 = 100 << 20;
/// How many files it was.
pub const COUNT: &str = "files";
const IDLE_PROCESS: &str = "process, when the pool has been opened";
const TOUCHED_PROCESS: &str = "process, when each file has been looked at";

fn outcome(files: u64, text: &str) -> io::Result<Outcome> {
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [found, idle, idle_process, touched, touched_process, limited] = *numbers else {
        return Err(io::Error::other(format!("weighing told {text:?}")));
    };
    if found != files as f64 {
        return Err(io::Error::other(format!("only {found} of {files} files were found")));
    }
    let figure = |what: &str, value: f64, unit: &str| Figure {
        workload: "memory".to_owned(),
        subject: String::new(),
        what: what.to_owned(),
        value,
        unit: unit.to_owned(),
    };
    let figures = vec![
        figure(COUNT, found, "files"),
        figure(IDLE, idle, "bytes"),
        figure(IDLE_PROCESS, idle_process, "bytes"),
        figure(TOUCHED, touched, "bytes"),
        figure(TOUCHED_PROCESS, touched_process, "bytes"),
        figure(LIMITED, limited, "bytes"),
    ];
    Ok(Outcome { figures, ..Outcome::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_weighed_before_and_after_its_files_have_been_looked_at() {
        let dir = tempfile::tempdir_in(crate::place::usual()).unwrap();
        let path = dir.path().join("pool");
        assert!(make(&path, 20_000, &|| false).unwrap());
        let text = weigh(&path).unwrap();
        let found = outcome(20_000, &text).unwrap();
        let figure = |what: &str| found.figures.iter().find(|one| one.what == what).unwrap().value;
        assert_eq!(figure(COUNT), 20_000.0);
        // All inodes come to memory by being looked at: some hundred bytes each.
        let each = (figure(TOUCHED) - figure(IDLE)) / 20_000.0;
        assert!((50.0..5000.0).contains(&each), "{text}");
        assert!(figure(LIMITED) >= figure(IDLE) && figure(LIMITED) <= LIMIT as f64, "{text}");
        assert!(figure(IDLE) > 1000.0 && figure(IDLE_PROCESS) > 100_000.0, "{text}");
        assert!(outcome(20_001, &text).is_err() && outcome(1, "1 2 x").is_err());
    }

    #[test]
    fn nothing_is_weighed_where_nobody_wants_more() {
        let dir = tempfile::tempdir_in(crate::place::usual()).unwrap();
        assert!(!make(&dir.path().join("pool"), 3000, &|| true).unwrap());
    }
}
