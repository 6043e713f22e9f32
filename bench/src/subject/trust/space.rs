//! What the pages of nearly full pools are used for, at each level: as the dissertation's Figure 4.13.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use lode::Protection;
use lode_engine::{Error, FormatOptions, NewInode, OpenOptions, PagesUsed, Pool, Use, mode};
use lode_host::StdHost;
use lode_pmem::{Mapped, RegionOptions};

use super::aged::uses_of;
use super::figure;
use crate::report::Figure;
use crate::risk::is_metadata;
use crate::subject::Gone;

/// The figure of all that is there because of level full.
pub const REDUNDANCY_FULL: &str = "full, files of 128 KiB: redundancy";
/// And of level metadata.
pub const REDUNDANCY_METADATA: &str = "metadata, files of 128 KiB: redundancy";

const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
const DIRECTORY: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 0, gid: 0, rdev: 0 };
/// Files of a directory.
const WIDTH: u64 = 1000;
/// One page in so many stays free.
const FREE_PART: u64 = 20;

/// Tells the parts of a pool: what of it protection takes, and what each structure takes without that.
pub(super) fn tell(uses: &[PagesUsed], level: Protection, of: &str, figures: &mut Vec<Figure>) {
    let (mut all, mut twins) = (0, 0);
    let mut parts: BTreeMap<Use, u64> = BTreeMap::new();
    for run in uses {
        let twin = if run.twin.is_some() { run.pages } else { 0 };
        // Both tables of checksums are there because of level full; of metadata, the second copy is.
        let second = if is_metadata(run) { 0 } else { twin };
        *parts.entry(run.used_for).or_default() += run.pages + second;
        (all, twins) = (all + run.pages + twin, twins + twin - second);
    }
    let mut put = |what: &str, pages: u64| {
        let what = format!("{}, {of}: {what}", level.name());
        figures.push(figure("space", &what, pages as f64 / all as f64, "part"));
    };
    let part = |used_for: Use| parts.get(&used_for).copied().unwrap_or_default();
    put("redundancy", twins + part(Use::Checksums) + part(Use::Parity));
    put("second copies of metadata", twins);
    for used_for in Use::ALL.into_iter().filter(|used_for| part(*used_for) > 0) {
        put(used_for.name(), part(used_for));
    }
}

/// Fills a pool of `bytes` bytes at `path` with files of so many, each written at once, looks at it, and removes it;
/// nothing where that was interrupted.
pub(super) fn filled(
    path: &Path,
    protection: Protection,
    (bytes, file_bytes): (u64, usize),
    is_over: &dyn Fn() -> bool,
) -> io::Result<Option<Vec<PagesUsed>>> {
    let _file = Gone(path.to_owned());
    let (failed, content) = (io::Error::other, vec![0x42; file_bytes]);
    let region =
        Mapped::create(path, bytes, &RegionOptions::new(), false).map_err(io::Error::other)?;
    let format = FormatOptions { protection, ..FormatOptions::default() };
    Pool::format(&region, StdHost::new(), &format).map_err(failed)?;
    let pool = Pool::open(region, StdHost::new(), &OpenOptions::default()).map_err(failed)?;
    let mut dir = pool.root();
    for number in 0.. {
        if number % WIDTH == 0 {
            if is_over() {
                return Ok(None);
            }
            dir = match pool.create(pool.root(), format!("d{number}").as_bytes(), &DIRECTORY) {
                Ok(made) => made.ino,
                Err(Error::NoSpace) => break,
                Err(error) => return Err(failed(error)),
            };
        }
        let made = pool.create(dir, format!("f{number}").as_bytes(), &FILE);
        match made.and_then(|made| pool.write(made.ino, 0, &content)) {
            // (A small pool of small pieces may be full before: metadata needs two pages that are as far apart as all.)
            Err(Error::NoSpace) => break,
            written => written.map_err(failed)?,
        }
        let space = pool.space();
        if space.pages_free <= space.pages / FREE_PART {
            break;
        }
    }
    uses_of(&pool).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_all_pages_and_protection_takes_what_it_is_to() {
        let dir = tempfile::tempdir_in(crate::place::usual()).unwrap();
        let mut redundant = Vec::new();
        for level in Protection::ALL {
            let path = dir.path().join("filled");
            let uses = filled(&path, level, (64 << 20, 4096), &|| false).unwrap().unwrap();
            let mut figures = Vec::new();
            tell(&uses, level, "x", &mut figures);
            let value = |what: &str| {
                let what = format!("{}, x: {what}", level.name());
                figures.iter().find(|one| one.what == what).map_or(0.0, |one| one.value)
            };
            let parts: f64 = Use::ALL.iter().map(|used_for| value(used_for.name())).sum();
            assert!((parts + value("second copies of metadata") - 1.0).abs() < 1e-9, "{figures:?}");
            assert!((0.04..0.1).contains(&value("free")), "{figures:?}");
            redundant.push(value("redundancy"));
        }
        let [none, metadata, full] = redundant[..] else { panic!("{redundant:?}") };
        // (How much of the logs is collected by then is up to what else the machine does: 0.106 and 0.113 at level metadata.)
        assert!(none < 0.001 && metadata > none && full > metadata + 0.05, "{redundant:?}");
        let path = dir.path().join("filled");
        assert!(filled(&path, Protection::None, (64 << 20, 4096), &|| true).unwrap().is_none());
    }
}
