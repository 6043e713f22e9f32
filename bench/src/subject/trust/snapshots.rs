//! What a snapshot takes: the time to make one where there is none and where there are many, what manifests take of
//! the space in use, and what it costs to map a file that a snapshot sees.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use lode_engine::{FormatOptions, Ino, NewInode, OpenOptions, PAGE_BYTES, Pool, mode};
use lode_host::StdHost;
use lode_pmem::{Mapped, RegionOptions};

use super::figure;
use crate::plan::Cell;
use crate::stats::{Histogram, median};
use crate::subject::in_engine::Shared;
use crate::subject::{InEngine, Outcome, Timed};
use crate::worker::{Until, Worker, clock_ns};
use crate::workload::{Mode, Stage, by_id, workers};

/// The row of making a snapshot where there is none.
pub const CREATE_AT_0: &str = "snapshot-at-0";
/// And where there are [`MANY`].
pub const CREATE_AT_MANY: &str = "snapshot-at-1000";
/// The figure of manifests in memory, as a part of the space in use.
pub const MANIFESTS: &str = "manifests in memory, of the space in use";
const MANIFESTS_STORED: &str = "manifests in a checkpoint, of the space in use";
const KEPT: &str = "snapshots that are kept";
const USED: &str = "space in use";
const USED_BY_THEM: &str = "of it what only snapshots see";
const MANIFESTS_OF_THAT: &str = "manifests in memory, of what only snapshots see";
const MAP_PAGE: &str = "mapping a file that no snapshot sees, a page";
const MAP_PAGE_SEEN: &str = "mapping a file that a snapshot sees, a page";

const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
const DIRECTORY: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 0, gid: 0, rdev: 0 };
/// Bytes of a file that stays.
const FILE_BYTES: usize = 128 << 10;
/// Snapshots that there are in the end.
const MANY: u64 = 1000;
/// Parts of a row, and snapshots that are made in each.
const PARTS: usize = 7;
const EACH: usize = 61;
/// What is done between two of these.
const BETWEEN: Duration = Duration::from_micros(50);
/// Pages of the file that is mapped.
const FILE_PAGES: u64 = 4096;
/// Of the pages of the pool, one in so many is let free.
const SPARED: u64 = 10;

/// Measures it in a pool of so many bytes, half of them in files that stay, that a file server works on; nothing where it was interrupted.
pub(super) fn measure(bytes: u64, is_over: &dyn Fn() -> bool) -> io::Result<Option<Outcome>> {
    let (pool, failed) = (empty(bytes)?, io::Error::other);
    let mut stage = Stage::new(InEngine::of(Arc::clone(&pool)));
    let workload = by_id("fileserver").ok_or(io::ErrorKind::NotFound)?;
    let cell = Cell { workload, threads: 1, mode: Mode::Private };
    let workers = workers(&mut stage, &cell)?.unwrap_or_default();
    let worker = workers.into_iter().next().ok_or(io::ErrorKind::NotFound)?;
    fill(&pool)?;
    let mut made = Made { pool: &pool, worker, number: 0 };
    let first = made.timed(CREATE_AT_0)?;
    // So long that a large part of the other half is kept for all of them together, where nothing takes longer than here.
    let (between, lived) = (Duration::from_nanos(bytes >> 12), used(&pool));
    for _ in 0..MANY {
        if is_over() {
            return Ok(None);
        }
        made.work(between)?;
        made.snapshot()?;
    }
    let manifests = pool.manifest_bytes().map_err(failed)?;
    let (used, only_seen) = (used(&pool), (used(&pool) - lived).max(1.0));
    let kept = pool.snapshot_names().map_err(failed)?.len();
    let last = made.timed(CREATE_AT_MANY)?;
    let told = |what, value, unit| figure("snapshots", what, value, unit);
    let mut figures = vec![
        told(KEPT, kept as f64, "snapshots"),
        told(USED, used, "bytes"),
        told(USED_BY_THEM, only_seen / used, "part"),
        told(MANIFESTS, manifests.memory as f64 / used, "part"),
        told(MANIFESTS_OF_THAT, manifests.memory as f64 / only_seen, "part"),
        told(MANIFESTS_STORED, manifests.checkpoint as f64 / used, "part"),
    ];
    let [unseen, seen] = mapped()?;
    figures.extend([told(MAP_PAGE, unseen, "ns"), told(MAP_PAGE_SEEN, seen, "ns")]);
    Ok(Some(Outcome { times: vec![first, last], figures, ..Outcome::default() }))
}

/// A pool in memory.
fn empty(bytes: u64) -> io::Result<Shared<Mapped>> {
    let region = Mapped::anonymous(bytes, &RegionOptions::new()).map_err(io::Error::other)?;
    let failed = io::Error::other;
    Pool::format(&region, StdHost::new(), &FormatOptions::default()).map_err(failed)?;
    let pool = Pool::open(region, StdHost::new(), &OpenOptions::default()).map_err(failed)?;
    Ok(Arc::new(pool))
}

/// Bytes of the pool that are in use.
fn used(pool: &Shared<Mapped>) -> f64 {
    let space = pool.space();
    ((space.pages - space.pages_free) * PAGE_BYTES) as f64
}

/// Fills half of the pool with files that stay.
fn fill(pool: &Shared<Mapped>) -> io::Result<()> {
    let failed = io::Error::other;
    let content = vec![0x42; FILE_BYTES];
    let dir = pool.create(pool.root(), b"stays", &DIRECTORY).map_err(failed)?.ino;
    for number in 0.. {
        let space = pool.space();
        if space.pages_free * 2 <= space.pages {
            break;
        }
        let made = pool.create(dir, format!("f{number}").as_bytes(), &FILE).map_err(failed)?;
        pool.write(made.ino, 0, &content).map_err(failed)?;
    }
    Ok(())
}

/// A pool that is worked on, and that snapshots are made of.
struct Made<'p> {
    pool: &'p Shared<Mapped>,
    worker: Box<dyn Worker>,
    number: u64,
}

impl Made<'_> {
    /// Lets the file server work for a while, as long as there is space.
    fn work(&mut self, busy: Duration) -> io::Result<()> {
        self.pool.maintain().map_err(io::Error::other)?;
        let space = self.pool.space();
        if space.pages_available < space.pages / SPARED {
            return Ok(());
        }
        let stop = AtomicBool::new(false);
        let until = Until { busy, every: 1, clock_ns: 0, stop: &stop };
        self.worker.slice(&until, &mut Histogram::new()).map(drop)
    }

    /// Makes one; returns its name, and how long it took.
    fn snapshot(&mut self) -> io::Result<(String, Duration)> {
        self.number += 1;
        let name = format!("snapshot-{}", self.number);
        let began = Instant::now();
        self.pool.create_snapshot(name.as_bytes()).map_err(io::Error::other)?;
        Ok((name, began.elapsed()))
    }

    /// Makes many, each of which is deleted before the next.
    fn timed(&mut self, workload: &'static str) -> io::Result<Timed> {
        let (mut samples, mut ns_per_op, clock) = (Histogram::new(), Vec::new(), clock_ns());
        for _ in 0..PARTS {
            let mut part = Vec::new();
            for _ in 0..EACH {
                self.work(BETWEEN)?;
                let (name, took) = self.snapshot()?;
                let ns = (took.as_nanos() as u64).saturating_sub(clock);
                samples.add(ns);
                part.push(ns as f64);
                self.pool.delete_snapshot(name.as_bytes()).map_err(io::Error::other)?;
            }
            // (The list's log is rewritten now and then; that is seen in p99.)
            ns_per_op.push(median(&part));
        }
        Ok(Timed { workload, ns_per_op, samples })
    }
}

/// What mapping a file costs for each of its pages, where no snapshot sees them and where one does, in nanoseconds.
fn mapped() -> io::Result<[f64; 2]> {
    let (pool, failed) = (empty(4 * FILE_PAGES * PAGE_BYTES)?, io::Error::other);
    let ino = pool.create(pool.root(), b"mapped", &FILE).map_err(failed)?.ino;
    let page = vec![0x42; PAGE_BYTES as usize];
    for at in 0..FILE_PAGES {
        pool.write(ino, at * PAGE_BYTES, &page).map_err(failed)?;
    }
    let unseen = map(&pool, ino)?;
    pool.create_snapshot(b"sees what is mapped").map_err(failed)?;
    Ok([unseen, map(&pool, ino)?])
}

fn map(pool: &Shared<Mapped>, ino: Ino) -> io::Result<f64> {
    let held = pool.hold(ino).map_err(io::Error::other)?;
    let began = Instant::now();
    let extents = pool.map(&held, 0, FILE_PAGES * PAGE_BYTES);
    let took = began.elapsed();
    pool.unmap(&held);
    pool.let_go(held);
    extents.map_err(io::Error::other)?;
    Ok(took.as_nanos() as f64 / FILE_PAGES as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_timed_where_there_is_none_and_where_there_are_many() {
        let found = measure(256 << 20, &|| false).unwrap().unwrap();
        let value = |what: &str| found.figures.iter().find(|one| one.what == what).unwrap().value;
        assert_eq!(value(KEPT), MANY as f64);
        assert!(value(MANIFESTS) > value(MANIFESTS_STORED) && value(MANIFESTS_STORED) > 0.0);
        assert!(value(MANIFESTS) < 0.01, "{:?}", found.figures);
        assert!(value(MAP_PAGE_SEEN) > value(MAP_PAGE), "{:?}", found.figures);
        let [first, last] = &found.times[..] else { panic!("two rows") };
        assert_eq!((first.workload, last.workload), (CREATE_AT_0, CREATE_AT_MANY));
        assert!(first.ns_per_op.len() == PARTS && last.ns_per_op.iter().all(|ns| *ns > 100.0));
        assert!(measure(256 << 20, &|| true).unwrap().is_none());
    }
}
