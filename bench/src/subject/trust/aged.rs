//! Pools that a file server has aged, what their pages are used for, and what is left of one that is scribbled over.

use std::fs::{File, OpenOptions as FileOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lode::{FormatOptions, PoolOptions, Protection};
use lode_engine::{OpenOptions, PagesUsed, Pool};
use lode_host::StdHost;
use lode_pmem::{Mapped, RegionOptions};

use super::figure;
use crate::random::Random;
use crate::report::Figure;
use crate::risk::is_metadata;
use crate::subject::Gone;
use crate::subject::aging::{self, Plan};

/// Scribbles that are tried: at places with the most metadata, and at any.
const TRIALS: usize = 12;
const PAGE: u64 = 4096;

/// The figure of how many of them took anything.
pub const LOST: &str = "scribbles of that size that lost metadata";
const TRIED: &str = "scribbles of that size that were tried";

type Opened = Pool<Mapped, StdHost>;

/// What was found of an aged pool.
pub(super) struct Aged {
    pub(super) level: Protection,
    pub(super) uses: Vec<PagesUsed>,
    pub(super) dead_zone: u64,
    /// Scribbles that were tried, and those that took something: where there are two copies.
    tried: usize,
    lost: usize,
}

impl Aged {
    /// Makes a pool at `path`, ages it, looks at it, and removes it; nothing where that was interrupted.
    pub(super) fn make(
        path: &Path,
        level: Protection,
        plan: &Plan,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<Option<Self>> {
        let _file = Gone(path.to_owned());
        let format = FormatOptions { protection: level, ..FormatOptions::default() };
        if !aging::age(path, (&PoolOptions::new(), &format), plan, is_over)? {
            return Ok(None);
        }
        let pool = open(path)?;
        let uses = uses_of(&pool)?;
        let dead_zone = pool.info().map_err(io::Error::other)?.dead_zone;
        drop(pool);
        let (mut tried, mut lost) = (0, 0);
        if level == Protection::Metadata {
            let places = places(&uses, plan.bytes, dead_zone);
            (tried, lost) = (places.len(), scribble(path, &places, dead_zone)?);
        }
        Ok(Some(Self { level, uses, dead_zone, tried, lost }))
    }

    /// What came of the scribbles.
    pub(super) fn trials(&self) -> [Figure; 2] {
        let told = |what, value: usize| figure("risk", what, value as f64, "scribbles");
        [told(TRIED, self.tried), told(LOST, self.lost)]
    }
}

fn open(path: &Path) -> io::Result<Opened> {
    let region = Mapped::open(path, &RegionOptions::new()).map_err(io::Error::other)?;
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    Pool::open(region, StdHost::new(), &options).map_err(io::Error::other)
}

/// What all pages of a pool are used for.
pub(super) fn uses_of(pool: &Opened) -> io::Result<Vec<PagesUsed>> {
    let mut uses = Vec::new();
    pool.for_each_use(&mut |run| uses.push(run)).map_err(io::Error::other)?;
    Ok(uses)
}

/// Where scribbles of so many bytes are tried: where the most pages of metadata follow each other, at both ends of
/// the pool, and by lot.
fn places(uses: &[PagesUsed], bytes: u64, scribble: u64) -> Vec<u64> {
    let last = bytes.saturating_sub(scribble);
    let metadata = uses.iter().filter(|run| is_metadata(run));
    let mut crowds = vec![0; (bytes / scribble.max(1)) as usize + 1];
    for run in metadata {
        for page in [Some(run.page), run.twin].into_iter().flatten() {
            if let Some(crowd) = crowds.get_mut((page * PAGE / scribble.max(1)) as usize) {
                *crowd += run.pages;
            }
        }
    }
    let mut order: Vec<_> = (0..crowds.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(crowds.get(*at)));
    let crowded = order.iter().take(TRIALS / 2).map(|at| *at as u64 * scribble);
    let mut random = Random::new(48);
    // (Below 2^32 by lot, so by lines.)
    let any: Vec<u64> = (0..TRIALS / 2 - 2).map(|_| random.below(last / 64) * 64 + 1).collect();
    crowded.chain([0, last]).chain(any).map(|at| at.min(last)).collect()
}

/// Overwrites `bytes` bytes of the pool at each of these places in turn, and puts them back; returns how often
/// anything of its metadata could not be read any more.
fn scribble(path: &Path, places: &[u64], bytes: u64) -> io::Result<usize> {
    let file = FileOptions::new().read(true).write(true).open(path)?;
    let found = content(path)?;
    let mut random = Random::new(7);
    let noise: Vec<u8> = (0..bytes).map(|_| random.below(256) as u8).collect();
    let mut lost = 0;
    for &at in places {
        let before = read(&file, at, bytes)?;
        file.write_all_at(&noise, at)?;
        let after = content(path);
        file.write_all_at(&before, at)?;
        // (One that can't be opened has lost it all.)
        lost += usize::from(after.ok().is_none_or(|after| after != found));
    }
    Ok(lost)
}

fn read(file: &File, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut before = vec![0; bytes as usize];
    file.read_exact_at(&mut before, at)?;
    Ok(before)
}

/// All that metadata says, in numbers: what is damaged, files, directories, pages of them.
fn content(path: &Path) -> io::Result<(usize, u64, u64, u64)> {
    let pool = open(path)?;
    let report = pool.check(&mut |_, _| ()).map_err(io::Error::other)?;
    let mut pages = 0;
    pool.for_each_use(&mut |run| {
        pages += if run.used_for == lode_engine::Use::Data { run.pages } else { 0 };
    })
    .map_err(io::Error::other)?;
    Ok((report.damage.len(), report.files, report.directories, pages))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::risk::{Scheme, curve};

    const PLAN: Plan =
        Plan { bytes: 256 << 20, times: 1, log_pages: 200, time: Duration::from_secs(20) };

    fn made(level: Protection) -> Aged {
        let dir = tempfile::tempdir_in(crate::place::usual()).unwrap();
        let path = dir.path().join("aged");
        let made = Aged::make(&path, level, &PLAN, &|| false).unwrap().unwrap();
        assert!(!path.exists());
        made
    }

    #[test]
    fn scribbles_smaller_than_the_dead_zone_take_nothing_of_two_copies_and_some_of_one() {
        let aged = made(Protection::Metadata);
        assert!(aged.dead_zone >= 1 << 20);
        assert_eq!((aged.tried, aged.lost), (TRIALS, 0));
        let layout = Scheme::DeadZone.layout(&aged.uses);
        assert_eq!(layout.bytes, PLAN.bytes);
        assert_eq!(layout.lost_to(aged.dead_zone).max, 0);
        assert!(layout.lost_to(32 << 20).max > 0);
        let alone = made(Protection::None);
        assert_eq!((alone.tried, alone.dead_zone), (0, 0));
        let points = curve(Scheme::Once, &Scheme::Once.layout(&alone.uses));
        assert!(points.iter().all(|point| point.max_bytes > 0), "{points:?}");
    }

    #[test]
    fn a_scribble_on_a_pool_without_second_copies_is_seen() {
        let dir = tempfile::tempdir_in(crate::place::usual()).unwrap();
        let path = dir.path().join("aged");
        let options = PoolOptions::new();
        let how = (&options, &FormatOptions::default());
        assert!(aging::age(&path, how, &PLAN, &|| false).unwrap());
        let uses = uses_of(&open(&path).unwrap()).unwrap();
        let places = places(&uses, PLAN.bytes, 1 << 20);
        assert!(places.len() == TRIALS && places.iter().all(|at| *at <= 255 << 20));
        assert!(scribble(&path, &places, 1 << 20).unwrap() >= TRIALS / 2);
        // All was put back.
        assert_eq!(scribble(&path, &[32 << 20], 0).unwrap(), 0);
    }

    #[test]
    fn nothing_is_told_of_what_was_interrupted() {
        let dir = tempfile::tempdir_in(crate::place::usual()).unwrap();
        let path = dir.path().join("aged");
        assert!(Aged::make(&path, Protection::None, &PLAN, &|| true).unwrap().is_none());
        assert!(!path.exists());
    }
}
