//! Judges a state some of whose memory can't be loaded, besides what a crash left of it.
//!
//! Where the pool's level has something to restore it from, the state is right as any other is: one of the allowed
//! trees, sound, and good to be used. Where it has nothing, there may be an error; without one, all is as it was.

use lode_engine::layout::Superblock;
use lode_engine::{Error, InodeDump, OpenOptions, Pool, Protection};
use lode_testkit::execute::{resolve, resolve_from};
use lode_testkit::fs::Fs;
use lode_testkit::op::Path;
use lode_testkit::snapshot::{Snapshot, difference};

use super::inspect::{LATE_NS, Look};
use crate::corrupt::waiting;
use crate::explore::{Setup, SimulatedPool};
use crate::region::{Pages, Simulated};

const LINE: u64 = 64;
const PAGE: u64 = 4096;
const SUPERBLOCK: usize = 512;
/// Where a tree has what snapshots have.
const SNAPSHOTS: &[u8] = b".lode";

/// Memory that can't be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bad {
    /// Offset of its first line.
    pub(crate) at: u64,
    /// Lines.
    pub(crate) lines: u64,
}

impl Bad {
    /// What nothing restores at the level of this pool.
    fn is_lost(&self, setup: &Setup, image: &Pages) -> bool {
        match setup.format().protection {
            Protection::None => true,
            Protection::Metadata => image.may_be_data(self.at),
            Protection::Full => false,
        }
    }

    /// Whether it is a superblock whose other copy the crash has torn: then there is none.
    fn is_last_superblock(&self, image: &Pages) -> bool {
        let last = image.bytes() - PAGE;
        let is_left = |at: u64| {
            let mut raw = [0; SUPERBLOCK];
            image.load(at, &mut raw);
            Superblock::parse(&raw).is_ok()
        };
        let copy = self.at / PAGE * PAGE;
        (copy == 0 || copy == last) && !is_left(last - copy)
    }

    fn medium(&self, image: &Pages) -> Simulated {
        let medium = Simulated::plain(image);
        medium.poison(self.at, self.lines);
        medium
    }
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:#x}", self.lines * LINE, self.at)
    }
}

impl Look<'_> {
    /// Looks at the state with this memory bad.
    pub(crate) fn poisoned(&mut self, image: &Pages, bad: &Bad) -> Result<(), String> {
        let may = bad.is_lost(self.setup, image) || bad.is_last_superblock(image);
        match self.with_bad(image, bad, may) {
            // (It takes an opening to know, and seldom is so.)
            Err(what)
                if !may
                    && (self.is_of_value(&what)
                        || self.is_in_data(image, bad)?
                        || self.has_torn_parity(image, bad)?) =>
            {
                let may = self.with_bad(image, bad, true);
                may.map_err(|other| format!("{other}; and it may be lost, without which: {what}"))
            }
            result => result,
        }
    }

    /// What the inodes with a name are where nothing is bad.
    fn dumps(&self, image: &Pages) -> Result<Vec<InodeDump>, String> {
        let options = OpenOptions { read_only: true, ..self.setup.options() };
        let host = self.setup.lone_host();
        let pool = Pool::open(Simulated::plain(image), host, &options)
            .map_err(|error| format!("the state as it was: {error:?}"))?;
        let paths = self.tree(&pool)?.0.into_keys();
        Ok(paths.filter_map(|path| dumped(&pool, &path)).collect())
    }

    /// At level `metadata`: whether it is in pages of a file, or of a symbolic link's target, which are there once.
    fn is_in_data(&self, image: &Pages, bad: &Bad) -> Result<bool, String> {
        if self.setup.format().protection != Protection::Metadata {
            return Ok(false);
        }
        let dumps = self.dumps(image)?;
        let mut extents = dumps.iter().flat_map(|dump| &dump.extents);
        Ok(extents.any(|one| (one.pool_offset..one.pool_offset + one.bytes).contains(&bad.at)))
    }

    /// At level `full`: whether an overwrite is on its way to the page of this memory, and not to it, or waits in that page; or
    /// programs have it mapped. Until it is retired what the crash has left of the page's parity may be torn.
    fn has_torn_parity(&self, image: &Pages, bad: &Bad) -> Result<bool, String> {
        if self.setup.format().protection < Protection::Full {
            return Ok(false);
        }
        let (from, to) = (bad.at, bad.at + bad.lines * LINE);
        let pages = from / PAGE..to.div_ceil(PAGE);
        Ok(self.dumps(image)?.iter().any(|dump| {
            let is_exempt = dump.records.iter().any(|record| record.kind == "EXEMPT");
            let waits = waiting(dump);
            let is_covered = waits.iter().any(|wait| wait.covers(from, to - from));
            let is_its = |page: u64| {
                dump.extents.iter().any(|one| {
                    let range = one.pool_offset..one.pool_offset + one.bytes;
                    range.contains(&(page * PAGE))
                })
            };
            pages.clone().any(|page| {
                waits.iter().any(|wait| wait.waits_in(page))
                    || is_exempt && is_its(page)
                    || !is_covered && waits.iter().any(|wait| wait.comes_to(page))
            })
        }))
    }

    /// Whether it is the value of an attribute that can't be loaded: at level `metadata` these are there once, where they have
    /// pages of their own.
    fn is_of_value(&self, what: &str) -> bool {
        let is_once = self.setup.format().protection < Protection::Full;
        is_once && what.contains(": attribute [") && what.contains("Media")
    }

    fn with_bad(&mut self, image: &Pages, bad: &Bad, may: bool) -> Result<(), String> {
        let quiet = bad.medium(image);
        let seen = self.shown(&quiet, true, may).map_err(|what| format!("read-only: {what}"))?;
        if quiet.stores() > 0 {
            return Err("a read-only opening wrote".to_owned());
        }
        let medium = bad.medium(image);
        let Some((pool, tree)) = self.shown(&medium, false, may)? else {
            // (A rollback may have gone on before it came there: then that is no other state than those.)
            self.shown(&medium.fork(), false, may)?;
            return self.no_machine_check(&medium);
        };
        // (What reading alone can't make good, recovery may have.)
        if let Some(what) = seen.and_then(|(_, seen)| difference(&seen, &tree)) {
            return Err(format!("read-only and recovered trees differ: {what}"));
        }
        let is_whole = checked(&pool, "check", may)?.is_some();
        self.shown_again(&medium, &tree, may)?;
        if is_whole && !may {
            self.use_up(&pool, &tree)?;
        }
        self.no_machine_check(&medium)
    }

    /// The pool and its tree, one of those allowed; `None` where there was an error in its place that may be.
    fn shown(
        &self,
        medium: &Simulated,
        read_only: bool,
        may: bool,
    ) -> Result<Option<(SimulatedPool, Snapshot)>, String> {
        let host = self.setup.lone_host();
        host.set_now(LATE_NS);
        host.set_cpu(0);
        let options = OpenOptions { read_only, ..self.setup.options() };
        let pool = match Pool::open(medium.clone(), host, &options) {
            Ok(pool) => pool,
            // (Going on with that is another opening's.)
            Err(Error::Receiving) => return Ok(None),
            Err(error) if may && is_damage(error) => return Ok(None),
            Err(error) => return Err(format!("open: {error} ({error:?})")),
        };
        if let Some(damage) = pool.opening().damage.first() {
            return if may { Ok(None) } else { Err(format!("open: {damage}")) };
        }
        let tree = match self.tree(&pool) {
            Ok(tree) => tree,
            Err(what) if may && tells_damage(&what) => return Ok(None),
            Err(what) => return Err(what),
        };
        self.which(&pool, &tree)?;
        Ok(Some((pool, tree)))
    }

    /// Opened again, it shows the same, and nothing is left to be made good.
    fn shown_again(
        &mut self,
        medium: &Simulated,
        tree: &Snapshot,
        may: bool,
    ) -> Result<(), String> {
        let again = medium.fork();
        let shown = self.shown(&again, false, may);
        let Some((pool, found)) = shown.map_err(|what| format!("opened again: {what}"))? else {
            return self.no_machine_check(&again);
        };
        if let Some(what) = difference(tree, &found) {
            return Err(format!("opened again, the tree is another: {what}"));
        }
        match checked(&pool, "second check", may)? {
            Some(mended) if mended > 0 && !may => {
                Err(format!("{mended} lines of metadata were not made good the first time"))
            }
            _ => self.no_machine_check(&again),
        }
    }

    /// On real hardware a store of less than a line to memory that can't be loaded ends the program. (At level `none`
    /// nothing is looked at ahead.)
    pub(super) fn no_machine_check(&self, medium: &Simulated) -> Result<(), String> {
        match medium.machine_checks() {
            many if many > 0 && self.setup.format().protection > Protection::None => {
                Err(format!("{many} stores of less than a line to memory that can't be loaded"))
            }
            _ => Ok(()),
        }
    }
}

/// The full check finds nothing; says how many lines it made good. `None` where it may find something, and does.
fn checked(pool: &SimulatedPool, what: &str, may: bool) -> Result<Option<u64>, String> {
    match pool.check(&mut |_, _| ()) {
        Ok(report) => match report.damage.first() {
            None => Ok(Some(report.mended)),
            Some(_) if may => Ok(None),
            Some(damage) => Err(format!("{what}: {damage} (of {})", report.damage.len())),
        },
        Err(error) if may && is_damage(error) => Ok(None),
        Err(error) => Err(format!("{what}: {error} ({error:?})")),
    }
}

/// What a pool says of a file, or of what a snapshot has of it; `None` where it is none.
fn dumped(pool: &SimulatedPool, path: &Path) -> Option<InodeDump> {
    let ino = match path.0.as_slice() {
        [first, _, name, inside @ ..] if first == SNAPSHOTS => {
            let kept = Fs::snapshots(pool).ok()?;
            let (_, root) = kept.into_iter().find(|(kept, _)| kept == name)?;
            resolve_from(pool, root, &Path(inside.to_vec())).ok()?
        }
        _ => resolve(pool, path).ok()?,
    };
    pool.dump_inode(ino).ok()
}

fn is_damage(error: Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Lost(_) | Error::Media { .. } | Error::NotAPool(_))
}

/// Whether an error of a snapshot is one of these.
fn tells_damage(what: &str) -> bool {
    ["Corrupt", "Media"].iter().any(|error| what.contains(error))
}
