//! Uses a recovered pool: something is made in every directory, everything is removed, the pool
//! is closed and opened again. What recovery left wrong shows here, if it did not before.

use lode_engine::layout::BAD_PAGES_MOST;
use lode_engine::{Error, Ino, NewInode, mode};
use lode_testkit::op::Path;
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot};

use super::inspect::{Look, hash_of};
use crate::explore::{Opening, SimulatedPool};
use crate::region::Simulated;

/// The entries of a directory: name, inode and kind.
type Entries = Vec<(Vec<u8>, Ino, u32)>;

/// How a pool was closed after use.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct LeftBehind {
    /// With nothing in it.
    emptied: bool,
    /// With all bad memory on its list.
    listed: bool,
}

impl Look<'_> {
    /// Uses a recovered pool up, which shows `tree`.
    pub fn use_up(&mut self, pool: &SimulatedPool, tree: &Snapshot) -> Result<(), String> {
        let medium = pool.medium();
        medium.watch(std::mem::take(&mut self.watches));
        let kept = kept_in(tree);
        let mut directories = Vec::new();
        walk(pool, pool.root(), &mut directories)?;
        for (number, dir) in directories.iter().enumerate() {
            make(pool, *dir, number as u8)?;
        }
        self.sound(pool, "check in use")?;
        let emptied = empty(pool, pool.root())?;
        pool.close().map_err(|error| format!("close after use: {error} ({error:?})"))?;
        self.watches = medium.take_watches();
        let closed = medium.fork();
        // (Where bad memory is left that the list has no room for, there is no checkpoint.)
        let bad = pool.bad_memory().map_err(|error| format!("bad memory after use: {error:?}"))?;
        let left = LeftBehind { emptied, listed: bad.len() <= BAD_PAGES_MOST };
        let kind = (Opening::UsedUp, hash_of(&(&kept, left)));
        self.once(&closed, kind, &mut |look| look.open_closed(&closed, left, &kept))
    }

    fn open_closed(
        &mut self,
        medium: &Simulated,
        left: LeftBehind,
        kept: &Snapshot,
    ) -> Result<(), String> {
        let pool = self.open(medium, "open after use")?;
        if !left.emptied {
            self.sound(&pool, "check of a full pool after use")?;
            self.watches = medium.take_watches();
            return Ok(());
        }
        if left.listed && !pool.opening().clean {
            return Err("closed cleanly, but not opened so".to_owned());
        }
        let found = kept_in(&snapshot(&pool, Times::NONE, None)?);
        if let Some(what) = difference(kept, &found) {
            return Err(format!("emptied, snapshots have something else: {what}"));
        }
        let gone = lode_testkit::fs::Fs::snapshots(&pool);
        for (name, _) in gone.map_err(|error| format!("snapshots after use: {error:?}"))? {
            pool.delete_snapshot(&name).map_err(|error| format!("a snapshot ends: {error:?}"))?;
            pool.maintain().map_err(|error| format!("a snapshot has ended: {error:?}"))?;
        }
        let found = snapshot(&pool, Times::NONE, None)?;
        if found.0.len() != 1 {
            return Err(format!("emptied, but {} names are there", found.0.len() - 1));
        }
        let inodes = pool.statfs().inodes;
        if inodes != 1 {
            return Err(format!("emptied, but {inodes} inodes are in use"));
        }
        self.sound(&pool, "check after use")?;
        self.watches = medium.take_watches();
        Ok(())
    }
}

/// What snapshots have, of all that there is.
fn kept_in(tree: &Snapshot) -> Snapshot {
    let is_kept = |path: &Path| path.0.first().is_some_and(|name| name == b".lode");
    let kept = tree.0.iter().filter(|(path, _)| is_kept(path));
    Snapshot(kept.map(|(path, seen)| (path.clone(), seen.clone())).collect())
}

/// Makes a file and writes to it, in each of the ways that go to other places.
fn make(pool: &SimulatedPool, dir: Ino, number: u8) -> Result<(), String> {
    let new = NewInode { mode: mode::FILE | 0o600, uid: 1, gid: 1, rdev: 0 };
    let full = pool.statfs().pages_available < USE_PAGES;
    let made = match pool.create(dir, b"made after the cut", &new) {
        Err(Error::NoSpace) if full => return Ok(()),
        made => made.map_err(|error| format!("use: create: {error} ({error:?})"))?,
    };
    let (place, fill) = (usize::from(number % 16), number % 200);
    let mut wanted = vec![0; 16 * 100 + 5000];
    for (fill, offset, len) in
        [(fill + 1, place * 100, 5000), (fill + 2, 300, 200), (fill + 3, 300, 100)]
    {
        match pool.write(made.ino, offset as u64, &vec![fill; len]) {
            Ok(()) => wanted[offset..offset + len].fill(fill),
            Err(Error::NoSpace) if pool.statfs().pages_available < USE_PAGES => {}
            Err(error) => return Err(format!("use: write: {error} ({error:?})")),
        }
    }
    let mut found = vec![0; wanted.len()];
    let got = pool.read(made.ino, 0, &mut found);
    got.map_err(|error| format!("use: read: {error} ({error:?})"))?;
    if found == wanted { Ok(()) } else { Err("use: what was written is not what is read".into()) }
}

fn entries(pool: &SimulatedPool, dir: Ino) -> Result<Entries, String> {
    let mut found = Vec::new();
    let mut visit = |entry: lode_engine::DirEntry<'_>| {
        found.push((entry.name.to_vec(), entry.ino, entry.kind));
        true
    };
    pool.readdir(dir, 0, &mut visit).map_err(|error| format!("use: listing: {error:?}"))?;
    Ok(found)
}

/// Finds all directories.
fn walk(pool: &SimulatedPool, dir: Ino, directories: &mut Vec<Ino>) -> Result<(), String> {
    directories.push(dir);
    for (_, ino, kind) in entries(pool, dir)? {
        if kind == mode::DIRECTORY {
            walk(pool, ino, directories)?;
        }
    }
    Ok(())
}

/// Available pages with which what is made here finds space.
const USE_PAGES: u64 = 12;
/// Free pages below which a removal may find no space: a pool full of nothing but names has no
/// page left for a log that removals grow.
const FULL_PAGES: u64 = 4;

/// Removes everything in a directory, what is deepest first; `false` if the pool is too full.
fn empty(pool: &SimulatedPool, dir: Ino) -> Result<bool, String> {
    for (name, ino, kind) in entries(pool, dir)? {
        let gone = if kind == mode::DIRECTORY {
            if !empty(pool, ino)? {
                return Ok(false);
            }
            pool.rmdir(dir, &name)
        } else {
            pool.unlink(dir, &name)
        };
        if gone == Err(Error::NoSpace) && pool.statfs().pages_free < FULL_PAGES {
            return Ok(false);
        }
        gone.map_err(|error| format!("use: removal of kind {kind:o}: {error} ({error:?})"))?;
    }
    Ok(true)
}
