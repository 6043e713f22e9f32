//! Judges one image: see [`crate::explore()`].

use std::collections::BTreeMap;

use lode_engine::{Error, Ino, NewInode, OpenOptions, Pool, mode};

use crate::explore::{Expected, Setup, SimulatedPool, Tally};
use crate::images::choose;
use crate::pages::Pages;
use crate::simulated::Simulated;
use lode_testkit::execute::resolve;
use lode_testkit::fs::Fs;
use lode_testkit::op::Path;
use lode_testkit::rng::Rng;
use lode_testkit::snapshot::{Seen, Snapshot, difference, snapshot};

/// What an image is judged by.
pub(crate) struct Judge<'a> {
    pub(crate) setup: &'a Setup,
    /// What may be found.
    pub(crate) allowed: &'a [&'a Expected],
    /// Cut the recovery off too.
    pub(crate) inside: bool,
    /// Use and empty the pool.
    pub(crate) used: bool,
    pub(crate) rng: Rng,
    pub(crate) tally: &'a mut Tally,
}

impl Judge<'_> {
    /// Judges an image.
    pub(crate) fn judge(&mut self, image: &Pages) -> Result<(), String> {
        let read_only = self.look_only(image)?;
        let medium = self.setup.medium(image.clone());
        medium.record(self.inside);
        let pool = self.open(&medium, "open")?;
        let tree = self.tree(&pool)?;
        if let Some(what) = difference(&tree, &read_only) {
            return Err(format!("a read-only opening shows another tree: {what}"));
        }
        medium.record(false);
        self.tally.sites.extend(medium.sites().into_keys());
        sound(&pool, "check")?;
        if self.inside {
            for (number, point) in medium.take_points().iter().enumerate() {
                self.tally.points_inside += 1;
                for image in choose(point, self.setup.images_inside, &mut self.rng) {
                    self.tally.images_inside += 1;
                    let site = point.fence.map_or(String::new(), |site| site.to_string());
                    self.again(&image.pages, &tree).map_err(|what| {
                        let kept = image.kept;
                        format!("recovery cut off at fence {number}, {site}\n{kept}{what}")
                    })?;
                }
            }
        }
        if self.used { self.use_up(&pool) } else { Ok(()) }
    }

    fn open(&self, medium: &Simulated, what: &str) -> Result<SimulatedPool, String> {
        let host = self.setup.host(7);
        host.set_now(1 << 60);
        host.set_cpu(0);
        let pool = Pool::open(medium.clone(), host, &self.setup.options());
        let pool = pool.map_err(|error| format!("{what}: {error} ({error:?})"))?;
        let opening = pool.opening();
        if opening.damage.is_empty() { Ok(pool) } else { Err(format!("{what}: {opening:?}")) }
    }

    /// Opens read-only: nothing may be written.
    fn look_only(&self, image: &Pages) -> Result<Snapshot, String> {
        let medium = self.setup.medium(image.clone());
        let options = OpenOptions { read_only: true, ..self.setup.options() };
        let pool = Pool::open(medium.clone(), self.setup.host(8), &options)
            .map_err(|error| format!("read-only open: {error} ({error:?})"))?;
        let opening = pool.opening();
        if !opening.damage.is_empty() {
            return Err(format!("read-only open: {opening:?}"));
        }
        let tree = snapshot(&pool, self.setup.times(), Some(&self.allowed[0].tree))
            .map_err(|what| format!("read-only: {what}"))?;
        sound(&pool, "read-only check")?;
        pool.close().map_err(|error| format!("read-only close: {error:?}"))?;
        if medium.stores() > 0 || medium.seen() != *image {
            return Err("a read-only opening wrote".to_owned());
        }
        Ok(tree)
    }

    /// The tree, which must be one of those allowed.
    fn tree(&self, pool: &SimulatedPool) -> Result<Snapshot, String> {
        let found = snapshot(pool, self.setup.times(), Some(&self.allowed[0].tree))?;
        let mut worst = String::new();
        for (number, expected) in self.allowed.iter().enumerate() {
            match difference(&expected.tree, &found) {
                None => return Ok(found),
                Some(what) if self.setup.relaxed && self.mixed(expected, &found, pool) => {
                    let _ = what;
                    return Ok(found);
                }
                Some(what) => {
                    let which = if number + 1 == self.allowed.len() { "after" } else { "before" };
                    worst.push_str(&format!("\n    not what is {which}: {what}"));
                }
            }
        }
        Err(format!("wrong tree:{worst}"))
    }

    /// Relaxed: whether only data differs from `expected`, and each word of it is what it
    /// was or what it became.
    fn mixed(&self, expected: &Expected, found: &Snapshot, pool: &SimulatedPool) -> bool {
        let bare = |tree: &Snapshot| {
            let pages = BTreeMap::new();
            let strip = |(path, seen): (&Path, &Seen)| {
                (path.clone(), Seen { pages: pages.clone(), ..seen.clone() })
            };
            Snapshot(tree.0.iter().map(strip).collect())
        };
        if difference(&bare(&expected.tree), &bare(found)).is_some() {
            return false;
        }
        found.0.keys().all(|path| {
            let all: Vec<Vec<u8>> =
                self.allowed.iter().filter_map(|one| read(&one.model, path)).collect();
            let Some(bytes) = read(pool, path) else { return all.is_empty() };
            bytes.chunks(8).enumerate().all(|(index, word)| {
                all.iter().any(|one| {
                    let from = (index * 8).min(one.len());
                    let to = (from + word.len()).min(one.len());
                    let mut there = one[from..to].to_vec();
                    there.resize(word.len(), 0);
                    there == word
                })
            })
        })
    }

    /// Recovers what a cut inside recovery left: it must end at the same tree.
    fn again(&self, image: &Pages, tree: &Snapshot) -> Result<(), String> {
        let medium = self.setup.medium(image.clone());
        let pool = self.open(&medium, "second open")?;
        let found = snapshot(&pool, self.setup.times(), Some(tree))?;
        if let Some(what) = difference(tree, &found) {
            return Err(format!("the second recovery shows another tree: {what}"));
        }
        sound(&pool, "check after the second recovery")
    }

    /// Puts something into every directory, removes everything, mounts again.
    fn use_up(&mut self, pool: &SimulatedPool) -> Result<(), String> {
        self.tally.emptied += 1;
        let mut directories = Vec::new();
        walk(pool, pool.root(), &mut directories)?;
        for (number, dir) in directories.iter().enumerate() {
            let new = NewInode { mode: mode::FILE | 0o600, uid: 1, gid: 1, rdev: 0 };
            let name = b"made after the cut";
            let made = match pool.create(*dir, name, &new) {
                Err(Error::NoSpace) => continue,
                made => made.map_err(|error| format!("use: create: {error} ({error:?})"))?,
            };
            for (offset, len) in [(number as u64 * 100, 5000), (300, 200), (300, 100)] {
                match pool.write(made.ino, offset, &vec![number as u8 + 1; len]) {
                    Ok(()) | Err(Error::NoSpace) => {}
                    Err(error) => return Err(format!("use: write: {error} ({error:?})")),
                }
            }
        }
        sound(pool, "check in use")?;
        empty(pool, pool.root())?;
        sound(pool, "check when emptied")?;
        self.close_and_open(pool)
    }

    fn close_and_open(&self, pool: &SimulatedPool) -> Result<(), String> {
        pool.close().map_err(|error| format!("close after use: {error} ({error:?})"))?;
        let medium = pool.medium().point().durable;
        let pool = self.open(&self.setup.medium(medium), "open after use")?;
        if !pool.opening().clean {
            return Err("closed cleanly, but not opened so".to_owned());
        }
        let found = snapshot(&pool, self.setup.times(), None)?;
        if found.0.len() != 1 {
            return Err(format!("emptied, but {} names are there", found.0.len() - 1));
        }
        let inodes = pool.statfs().inodes;
        if inodes != 1 {
            return Err(format!("emptied, but {inodes} inodes are in use"));
        }
        sound(&pool, "check after use")
    }
}

/// The entries of a directory: name, inode and kind.
type Entries = Vec<(Vec<u8>, Ino, u32)>;

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

/// Removes everything in a directory, what is deepest first.
fn empty(pool: &SimulatedPool, dir: Ino) -> Result<(), String> {
    for (name, ino, kind) in entries(pool, dir)? {
        let gone = if kind == mode::DIRECTORY {
            empty(pool, ino)?;
            pool.rmdir(dir, &name)
        } else {
            pool.unlink(dir, &name)
        };
        gone.map_err(|error| format!("use: removal of kind {kind:o}: {error} ({error:?})"))?;
    }
    Ok(())
}

fn sound(pool: &SimulatedPool, what: &str) -> Result<(), String> {
    let report =
        pool.check(&mut |_, _| ()).map_err(|error| format!("{what}: {error} ({error:?})"))?;
    match report.damage.first() {
        Some(damage) => Err(format!("{what}: {damage} (of {})", report.damage.len())),
        None => Ok(()),
    }
}

/// All bytes of a file; `None` of anything else.
fn read(fs: &dyn Fs, path: &Path) -> Option<Vec<u8>> {
    let ino = resolve(fs, path).ok()?;
    let attr = fs.getattr(ino).ok()?;
    if attr.mode & mode::TYPE != mode::FILE {
        return None;
    }
    let mut bytes = vec![0; attr.size.min(4 << 20) as usize];
    fs.read(ino, 0, &mut bytes).ok()?;
    Some(bytes)
}
