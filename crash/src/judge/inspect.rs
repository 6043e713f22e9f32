//! Judges one state.
//!
//! A state is right if a read-only opening writes nothing and shows one of the allowed trees, if
//! recovery shows the same one, if the full check finds nothing, if recovering the recovered pool
//! changes nothing, and if the pool can then be used, emptied, closed and opened.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use lode_engine::{Error, LENT_BYTES, OpenOptions, PAGE_BYTES, Pool, mode};
use lode_model::Model;
use lode_pmem::Medium;
use lode_testkit::execute::{resolve, resolve_from};
use lode_testkit::fs::Fs;
use lode_testkit::op::Path;
use lode_testkit::snapshot::{Seen, Snapshot, difference, snapshot};

use super::health::{Health, health_of};
use super::receiving::go_on;
use crate::explore::{Memo, Opening as Kind, Question, Setup, SimulatedPool};
use crate::region::{Pages, Simulated, Watch};

/// When recovered pools are looked at; later than any operation.
pub(super) const LATE_NS: i64 = 1 << 60;

/// A file system at a moment, as the model has it.
#[derive(Clone)]
pub struct Expected {
    /// What can be seen of it.
    pub tree: Snapshot,
    /// Of the tree; equal trees have equal hashes.
    pub hash: u64,
    /// It has files so large that what is looked at depends on what may be found.
    pub large: bool,
    /// The model itself; nothing is open in it.
    pub model: Model,
    /// What memory has lost of it, if it is all there nevertheless.
    pub health: Health,
}

impl Expected {
    /// A model and its tree.
    pub fn new(tree: Snapshot, model: Model) -> Self {
        let (hash, large) = (hash_of(&tree), tree.has_large_files());
        Self { tree, hash, large, model, health: Health::default() }
    }

    /// The same, where memory has lost this of it.
    pub fn of(self, health: Health) -> Self {
        Self { health, ..self }
    }
}

/// A hash of a tree, or of what else tells one opening from others.
pub(crate) fn hash_of(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// What may be found, and its name in reports.
#[derive(Clone, Copy)]
pub struct Allowed<'a> {
    /// For example "before".
    pub name: &'a str,
    /// The file system.
    pub expected: &'a Expected,
}

/// What a state turned out to be.
pub struct Found {
    /// Which of the allowed ones; `None` for one of them but for its data, which is mixed.
    pub which: Option<usize>,
    /// The tree.
    pub tree: Snapshot,
    /// The recovered pool, before it was used.
    pub pool: SimulatedPool,
}

/// How to look at states.
pub struct Look<'a> {
    /// The pool's shape and rules.
    pub setup: &'a Setup,
    /// What may be found.
    pub allowed: &'a [Allowed<'a>],
    /// Logs of what is looked at; handed on from opening to opening.
    pub watches: Vec<Watch>,
    /// Copies of metadata may differ until they were looked at: some of it can't be loaded, or was damaged.
    pub mends: bool,
    /// What memory has lost of the states.
    pub health: Health,
    /// Openings that went well; `None` where all is to be gone through.
    pub memo: Option<&'a mut Memo>,
    /// What was being received has gone on: what may be found was part of that.
    pub went_on: bool,
}

impl<'a> Look<'a> {
    /// At states that may be these.
    pub fn new(setup: &'a Setup, allowed: &'a [Allowed<'a>], watches: Vec<Watch>) -> Self {
        let (mends, health) = (false, Health::default());
        let look = Self { setup, allowed, watches, mends, health, memo: None, went_on: false };
        look.at(health_of(allowed))
    }

    /// At states of which memory has lost this.
    pub fn at(self, health: Health) -> Self {
        Self { health, mends: health == Health::Hurt, ..self }
    }

    /// The same, knowing which openings went well.
    pub fn knowing(self, memo: Option<&'a mut Memo>) -> Self {
        Self { memo, ..self }
    }
}

impl Look<'_> {
    /// Opens the state read-only and then for good.
    pub fn recover(&mut self, image: &Pages) -> Result<Found, String> {
        let seen = self.read_only(image)?;
        let medium = self.setup.left(image);
        let pool = self.open(&medium, "open")?;
        nothing_is_lent(&pool)?;
        let (which, tree) = self.allowed_tree(&pool)?;
        if let Some(what) = difference(&seen, &tree) {
            return Err(format!("read-only and recovered trees differ: {what}"));
        }
        self.sound(&pool, "check")?;
        self.scrubbed(&pool)?;
        self.no_machine_check(&medium)?;
        self.watches = medium.take_watches();
        self.unchanged(&medium, &tree)?;
        Ok(Found { which, tree, pool })
    }

    /// Recovers the state and notes every point of that; returns what it then shows, too.
    pub fn recover_recorded(&mut self, image: &Pages) -> Result<(Simulated, Snapshot), String> {
        let medium = self.setup.as_left(Simulated::new(image.clone(), self.setup.rules));
        medium.record(true);
        let pool = self.open(&medium, "open")?;
        medium.record(false);
        let (_, tree) = self.allowed_tree(&pool)?;
        self.watches = medium.take_watches();
        Ok((medium, tree))
    }

    /// Opens a pool for writing. What it loads is logged until the watches are taken back.
    pub fn open(&mut self, medium: &Simulated, what: &str) -> Result<SimulatedPool, String> {
        self.open_to(medium, what, self.allowed)
    }

    /// The same; what is being received may end at one of these, or at anything if there are none.
    fn open_to(
        &mut self,
        medium: &Simulated,
        what: &str,
        allowed: &[Allowed<'_>],
    ) -> Result<SimulatedPool, String> {
        medium.watch(std::mem::take(&mut self.watches));
        let host = self.setup.lone_host();
        host.set_now(LATE_NS);
        host.set_cpu(0);
        let mut pool = Pool::open(medium.clone(), host.clone(), &self.setup.options());
        if pool.as_ref().err() == Some(&Error::Receiving) {
            self.went_on = true;
            let gone_on = go_on(medium, self.setup, allowed);
            gone_on.map_err(|why| format!("{what}: {why}"))?;
            pool = Pool::abandon_receiving(medium.clone(), host.clone())
                .and_then(|()| Pool::open(medium.clone(), host, &self.setup.options()));
        }
        let pool = pool.map_err(|error| format!("{what}: {error} ({error:?})"))?;
        self.undamaged(&pool.opening(), what)?;
        Ok(pool)
    }

    /// The full check finds nothing.
    pub(super) fn sound(&self, pool: &SimulatedPool, what: &str) -> Result<(), String> {
        if self.mends { undamaged_but_copies(pool, what).map(|_| ()) } else { sound(pool, what) }
    }

    /// Nothing may be written.
    fn read_only(&mut self, image: &Pages) -> Result<Snapshot, String> {
        let medium = self.setup.left(image);
        medium.watch(std::mem::take(&mut self.watches));
        let options = OpenOptions { read_only: true, ..self.setup.options() };
        let pool = Pool::open(medium.clone(), self.setup.host(8), &options)
            .map_err(|error| format!("read-only open: {error} ({error:?})"))?;
        self.undamaged(&pool.opening(), "read-only open")?;
        let hint = self.allowed.first().map(|allowed| &allowed.expected.tree);
        let tree = snapshot(&pool, self.setup.times(), hint)
            .map_err(|what| format!("read-only: {what}"))?;
        self.sound(&pool, "read-only check")?;
        pool.close().map_err(|error| format!("read-only close: {error:?}"))?;
        if medium.stores() > 0 {
            return Err("a read-only opening wrote".to_owned());
        }
        self.watches = medium.take_watches();
        Ok(tree)
    }

    /// Recovering what was recovered shows the same tree, and is sound.
    fn unchanged(&mut self, medium: &Simulated, tree: &Snapshot) -> Result<(), String> {
        let again = medium.fork();
        again.list_nothing();
        let bad = medium.listed_bad();
        let kind = (Kind::Again, hash_of(&(tree, bad)));
        self.once(&again, kind, &mut |look| look.opens_again(&again, bad, tree))
    }

    /// Opens what a state has become, unless the same went well before: what was looked at then is what would be now.
    /// The hint is what the opening depends on besides the memory and how it is opened.
    pub(super) fn once(
        &mut self,
        medium: &Simulated,
        (kind, hint): (Kind, u64),
        open: &mut dyn FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        if self.memo.is_none() || self.mends || medium.has_bad() {
            return open(self);
        }
        let hint = hash_of(&(hint, &self.setup.geometry));
        let question = Question::opening(medium.fingerprint(), kind, hint);
        let own = medium.take_own();
        let known = self.memo.as_deref().and_then(|memo| memo.opening(&question));
        if let Some(lines) = known {
            self.watches.iter_mut().for_each(|watch| watch.replay(lines, &own));
            return Ok(());
        }
        let outer = std::mem::replace(&mut self.watches, vec![Watch::all(medium.bytes())]);
        self.went_on = false;
        open(self)?;
        let inner = std::mem::replace(&mut self.watches, outer).pop().unwrap_or_default();
        let lines: Vec<u32> = inner.lines().collect();
        self.watches.iter_mut().for_each(|watch| watch.replay(&lines, &own));
        if let Some(memo) = self.memo.as_deref_mut().filter(|_| !self.went_on) {
            memo.note_opening(question, &lines);
        }
        Ok(())
    }

    fn opens_again(
        &mut self,
        again: &Simulated,
        bad: Option<u64>,
        tree: &Snapshot,
    ) -> Result<(), String> {
        let pool = self.open(again, "second open")?;
        self.heeded(&pool, bad)?;
        let found = snapshot(&pool, self.setup.times(), Some(tree))?;
        sound(&pool, "check after a second open")?;
        self.watches = again.take_watches();
        match difference(tree, &found) {
            None => Ok(()),
            Some(what) => Err(format!("recovered again, the tree is another: {what}")),
        }
    }

    /// What the memory told of itself the first time is known: the second opening need not hear it again.
    fn heeded(&self, pool: &SimulatedPool, bad: Option<u64>) -> Result<(), String> {
        let (losses, told) = (pool.opening().losses, pool.medium().losses());
        let noted = pool.info().map_err(|error| format!("info: {error:?}"))?.losses;
        if losses > 0 || noted != told {
            return Err(format!("losses of the memory, {told:?}, are noted as {noted:?}"));
        }
        let Some(at) = bad else { return Ok(()) };
        let known = pool.bad_memory().map_err(|error| format!("bad memory: {error:?}"))?;
        match known.iter().find(|known| known.page == at / PAGE_BYTES) {
            Some(known) if known.lines == u64::MAX && !known.in_use => Ok(()),
            Some(known) => Err(format!("the page at {at:#x}, told to be bad, is {known:?}")),
            None => Err(format!("the page at {at:#x} was told to be bad, and is forgotten")),
        }
    }

    /// Recovers what a cut inside recovery left: it must end at the same tree.
    pub fn again(&mut self, image: &Pages, tree: &Snapshot) -> Result<(), String> {
        let medium = self.setup.left(image);
        // (What a recovery leaves may be one that has not yet begun to give up what was received.)
        let pool = self.open_to(&medium, "recovery after a recovery cut off", &[])?;
        let found = snapshot(&pool, self.setup.times(), Some(tree))?;
        if let Some(what) = difference(tree, &found) {
            return Err(format!("recovery after a recovery cut off: another tree: {what}"));
        }
        self.sound(&pool, "check after a recovery cut off")?;
        self.watches = medium.take_watches();
        Ok(())
    }

    /// The tree, which must be one of those allowed.
    fn allowed_tree(&self, pool: &SimulatedPool) -> Result<(Option<usize>, Snapshot), String> {
        let found = self.tree(pool)?;
        Ok((self.which(pool, &found)?, found))
    }

    /// All that a pool shows.
    pub(super) fn tree(&self, pool: &SimulatedPool) -> Result<Snapshot, String> {
        let hint = self.allowed.first().map(|allowed| &allowed.expected.tree);
        snapshot(pool, self.setup.times(), hint)
    }

    /// Which of those allowed a pool shows.
    pub(super) fn which(
        &self,
        pool: &SimulatedPool,
        found: &Snapshot,
    ) -> Result<Option<usize>, String> {
        let mut worst = String::new();
        for (number, allowed) in self.allowed.iter().enumerate() {
            match difference(&allowed.expected.tree, found) {
                None => return Ok(Some(number)),
                Some(_) if self.setup.in_place() && self.mixed(allowed.expected, found, pool) => {
                    return Ok(None);
                }
                Some(what) => {
                    worst.push_str(&format!("\n    not what is {}: {what}", allowed.name));
                }
            }
        }
        Err(format!("wrong tree:{worst}"))
    }

    /// Relaxed: whether only data differs from `expected`, and each word of it is what it
    /// was or what it became.
    fn mixed(&self, expected: &Expected, found: &Snapshot, pool: &SimulatedPool) -> bool {
        let bare = |tree: &Snapshot| {
            let strip = |(path, seen): (&Path, &Seen)| {
                (path.clone(), Seen { pages: BTreeMap::new(), ..seen.clone() })
            };
            Snapshot(tree.0.iter().map(strip).collect())
        };
        if difference(&bare(&expected.tree), &bare(found)).is_some() {
            return false;
        }
        found.0.keys().all(|path| {
            let models = self.allowed.iter().map(|allowed| &allowed.expected.model);
            let all: Vec<Vec<u8>> = models.filter_map(|model| read(model, path)).collect();
            let Some(bytes) = read(pool, path) else { return all.is_empty() };
            bytes.chunks(8).enumerate().all(|(index, word)| {
                // A file that ends before this word has nothing to mix in.
                all.iter().filter(|one| one.len() > index * 8).any(|one| {
                    let to = (index * 8 + word.len()).min(one.len());
                    let mut there = one[index * 8..to].to_vec();
                    there.resize(word.len(), 0);
                    there == word
                })
            })
        })
    }
}

/// Nobody has memory of the pool, but a program that holds on to some.
fn nothing_is_lent(pool: &SimulatedPool) -> Result<(), String> {
    let held: Vec<u64> = pool.medium().held().map(|(at, _)| at / LENT_BYTES).into_iter().collect();
    match pool.lent() {
        Ok(lent) if lent == held => Ok(()),
        lent => Err(format!("chunks that are lent: {lent:?}, where programs hold {held:?}")),
    }
}

/// The full check finds nothing, and both copies of metadata say the same, where there are two.
pub(crate) fn sound(pool: &SimulatedPool, what: &str) -> Result<(), String> {
    match undamaged_but_copies(pool, what)? {
        0 => Ok(()),
        mended => Err(format!("{what}: the copies of {mended} lines of metadata differ")),
    }
}

/// The full check finds nothing; says how many lines of metadata differed in their copies.
fn undamaged_but_copies(pool: &SimulatedPool, what: &str) -> Result<u64, String> {
    let report =
        pool.check(&mut |_, _| ()).map_err(|error| format!("{what}: {error} ({error:?})"))?;
    match report.damage.first() {
        Some(damage) => Err(format!("{what}: {damage} (of {})", report.damage.len())),
        None => Ok(report.mended),
    }
}

/// All bytes of a file, in a snapshot, too; `None` of anything else.
fn read(fs: &dyn Fs, path: &Path) -> Option<Vec<u8>> {
    // (Those of snapshots stand below one of these: see `lode_testkit::snapshot`.)
    let ino = match path.0.as_slice() {
        [lode, number, _, rest @ ..] if lode == b".lode" => {
            let number: usize = std::str::from_utf8(number).ok()?.parse().ok()?;
            let root = fs.snapshots().ok()?.get(number).map(|(_, root)| *root)?;
            resolve_from(fs, root, &Path(rest.to_vec())).ok()?
        }
        _ => resolve(fs, path).ok()?,
    };
    let attr = fs.getattr(ino).ok()?;
    if attr.mode & mode::TYPE != mode::FILE {
        return None;
    }
    let mut bytes = vec![0; attr.size.min(4 << 20) as usize];
    fs.read(ino, 0, &mut bytes).ok()?;
    Some(bytes)
}
