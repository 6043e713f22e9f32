//! The full check: every page is reachable or free, exactly once; every entry leads to
//! an inode, every inode is led to as often as it says, and every log reads to its end. What only
//! snapshots see is looked at in `kept`.

use alloc::vec::Vec;

use hashbrown::HashMap;
use lode_pmem::Medium;

use super::kept::Kept as KeptInodes;
use crate::inode::{Body, Mix, State, load_name, load_xattr_value};
use crate::layout::{Body as Record, tag_of};
use crate::space::{Claims, Run};
use crate::store::{Item, Kept, LinkWord, NO_WATERMARK, Owner, Store, read_watermark};
use crate::{CheckReport, Error, Host, Ino, NAME_MAX, PAGE_BYTES, Pool, Result, mode};

/// Inodes, names, tree and space.
const PHASES: u64 = 4;
/// Damage that a report holds.
pub(super) const DAMAGE_MAX: usize = 10_000;

/// What is said of an inode, by itself and by entries.
#[derive(Clone, Copy, Default)]
struct Seen {
    kind: u32,
    tag: u32,
    links: u32,
    parent: Ino,
    /// Entries that lead to it.
    found: u32,
    /// The directory with the last of them.
    by: Ino,
    /// It has no name, and is there only because it is open.
    nameless: bool,
}

/// An entry, to be compared with its child.
#[derive(Clone, Copy)]
struct Named {
    dir: Ino,
    child: Ino,
    kind: u32,
    tag: u32,
    at: u64,
}

pub(super) struct Check<'p, M: Medium, H: Host> {
    pub(super) pool: &'p Pool<M, H>,
    claims: Claims,
    seen: HashMap<Ino, Seen, Mix>,
    named: Vec<Named>,
    /// What only snapshots see.
    pub(super) kept: KeptInodes,
    pub(super) report: CheckReport,
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Checks everything; the pool must not be changed meanwhile. `progress` gets steps
    /// done and steps in all: each inode is one, and so are its entry and its place in the
    /// tree; the comparison of the space is as many again, done at once. Inodes that only snapshots see come last, one step each, and
    /// damage of these is told behind all other, by their numbers there ([`Pool::is_in_snapshot`]).
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let mut check = Check {
            pool: self,
            claims: Claims::new(self.store.geometry.pages)?,
            seen: HashMap::with_hasher(Mix::default()),
            named: Vec::new(),
            kept: KeptInodes::default(),
            report: CheckReport::default(),
        };
        for damage in &self.opening.damage {
            check.note(Error::Corrupt(*damage))?;
        }
        let dead = check.list_kept()?;
        check.copies(&dead)?;
        check.pieces()?;
        let inodes = self.inodes()?;
        let (phase, last) = (inodes.len().max(1) as u64, dead.len() as u64);
        let mut told = |done: usize, phases: u64| {
            if done.is_multiple_of(256) {
                let most = if phases < PHASES { phase } else { last };
                progress(phase * phases + (done as u64).min(most), phase * PHASES + last);
            }
        };
        for (done, ino) in inodes.iter().enumerate() {
            told(done, 0);
            check.inode(*ino)?;
        }
        check.names(&mut |done| told(done, 1))?;
        check.tree(&mut |done| told(done, 2))?;
        told(0, 3);
        check.space()?;
        told(0, PHASES);
        check.kept_inodes(&dead, &mut |done| told(done, PHASES))?;
        check.past_names()?;
        check.tell_kept()?;
        progress(phase * PHASES + last, phase * PHASES + last);
        Ok(check.report)
    }
}

impl<M: Medium, H: Host> Check<'_, M, H> {
    pub(super) fn note(&mut self, error: Error) -> Result<()> {
        let damage = error.into_damage()?;
        if self.report.damage.len() < DAMAGE_MAX && !self.report.damage.contains(&damage) {
            self.report.damage.try_reserve(1)?;
            self.report.damage.push(damage);
        }
        Ok(())
    }

    pub(super) fn damage(&mut self, what: &'static str, at: u64, ino: Ino) -> Result<()> {
        self.note(Error::corrupt_inode(what, at, ino))
    }

    fn claim(&mut self, run: Run, ino: Ino) -> Result<()> {
        match self.claims.claim(run) {
            Ok(()) => {
                self.report.pages_used += run.pages;
                Ok(())
            }
            Err(page) => self.damage("page belongs to two owners", page * PAGE_BYTES, ino),
        }
    }

    /// Claims pages of metadata, with their twins if they have such.
    fn claim_metadata(&mut self, run: Run, ino: Ino) -> Result<()> {
        self.claim(run, ino)?;
        match self.pool.store.twin_run(run) {
            Some(twin) => self.claim(twin, ino),
            None => Ok(()),
        }
    }

    /// Superblocks, lane table and inode tables.
    fn pieces(&mut self) -> Result<()> {
        let geometry = self.pool.store.geometry;
        self.claim(Run { page: 0, pages: geometry.first_page() }, 0)?;
        for (page, pages) in geometry.reserved() {
            self.claim(Run { page, pages }, 0)?;
        }
        self.claim(Run { page: geometry.end_page(), pages: 1 }, 0)?;
        if let Some(run) = self.pool.store.sector_run() {
            self.claim(run, 0)?;
        }
        let mut runs = Vec::new();
        self.pool.store.table.for_each_piece(&mut |piece| {
            runs.try_reserve(1)?;
            runs.push(piece.run());
            Ok(())
        })?;
        for run in &runs {
            self.claim_metadata(*run, 0)?;
        }
        self.watermarks()?;
        self.chains(&mut runs)
    }

    /// Each lane has one: the next recovery needs it.
    fn watermarks(&mut self) -> Result<()> {
        let store = &self.pool.store;
        let Store { door, host, seed, geometry, .. } = &**store;
        for lane in 0..geometry.lanes {
            if read_watermark(door, host, seed, geometry, lane)?.is_none() {
                self.damage(NO_WATERMARK, geometry.lane_at(lane), 0)?;
            }
        }
        Ok(())
    }

    /// The medium has the tables that are in use: the next recovery begins there.
    fn chains(&mut self, used: &mut [Run]) -> Result<()> {
        let mut found = Vec::new();
        for lane in 0..self.pool.store.geometry.lanes {
            let chain = self.pool.store.walk_chain(lane, &mut |piece| {
                if found.len() > used.len() {
                    return Err(Error::corrupt("inode tables form a circle", 0));
                }
                found.try_reserve(1)?;
                found.push(piece.run());
                Ok(())
            });
            if let Err(error) = chain {
                self.note(error)?;
            }
        }
        used.sort_unstable_by_key(|run| run.page);
        found.sort_unstable_by_key(|run| run.page);
        if found != used && self.report.damage.is_empty() {
            self.damage("inode tables in use are others than those on the medium", 0, 0)?;
        }
        Ok(())
    }

    /// Nothing follows the end of a log. (What a crash left there is cleared by an opening that
    /// writes.)
    fn log_end(&self, state: &State) -> Result<()> {
        let store = &self.pool.store;
        let at = state.log.last_link_at();
        let cleared = self.pool.opening.clean || store.writable().is_ok();
        // (None is to be followed.)
        if !cleared || store.load_link_to(Owner::Alive, at, LinkWord::Next, &|_| false)? == Ok(None)
        {
            return Ok(());
        }
        Err(Error::corrupt_inode("link behind the end of a log", at, state.log.ino))
    }

    fn inode(&mut self, ino: Ino) -> Result<()> {
        let pool = self.pool;
        let node = match pool.node(ino) {
            Ok(node) => node,
            Err(Error::Stale) => return Ok(()),
            Err(error) => return Err(error),
        };
        let state = match node.read(&pool.store) {
            Ok(state) => state,
            Err(Error::Stale) => return Ok(()),
            Err(error) => return self.note(error),
        };
        let is_list = ino == pool.store.snapshots.home();
        match state.kind() {
            mode::FILE if is_list => {}
            mode::FILE => self.report.files += 1,
            mode::DIRECTORY => self.report.directories += 1,
            _ => self.report.others += 1,
        }
        for page in &state.log.pages {
            self.claim_metadata(Run { page: page.page, pages: 1 }, ino)?;
        }
        let looked = self.body(&state).and_then(|()| self.log_end(&state));
        if let Err(error) = looked.and_then(|()| self.past_of(&state)) {
            self.note(error)?;
        }
        self.seen.try_reserve(1)?;
        let seen = Seen {
            kind: state.kind() >> 12,
            tag: tag_of(state.log.nonce),
            links: state.links,
            parent: state.parent,
            nameless: state.is_dead() || state.is_nameless() && (node.opens.count() > 0 || is_list),
            ..Seen::default()
        };
        self.seen.insert(ino, seen);
        Ok(())
    }

    fn body(&mut self, state: &State) -> Result<()> {
        let ino = state.log.ino;
        let mut runs = Vec::new();
        let mut result: Result<()> = Ok(());
        state.for_each_data_run(&mut |run| match runs.try_reserve(1) {
            Ok(()) => runs.push(run),
            Err(error) => result = Err(error.into()),
        });
        result?;
        for run in runs {
            self.claim(run, ino)?;
        }
        for xattr in state.xattrs.iter() {
            load_xattr_value(&self.pool.store, state, xattr)?;
        }
        let Body::Directory(directory) = &state.body else { return Ok(()) };
        self.named.try_reserve(directory.entries.len())?;
        let mut name = [0u8; NAME_MAX];
        for entry in directory.entries.iter() {
            let (parsed, _) = load_name(&self.pool.store, state, &entry, &mut name)?;
            let Record::Add { tag, .. } = parsed.body else { continue };
            self.named.push(Named {
                dir: ino,
                child: entry.ino,
                kind: u32::from(entry.kind),
                tag,
                at: entry.at,
            });
        }
        Ok(())
    }

    /// Every entry leads to the inode that it means.
    fn names(&mut self, told: &mut dyn FnMut(usize)) -> Result<()> {
        for (done, named) in core::mem::take(&mut self.named).into_iter().enumerate() {
            told(done);
            let what = match self.seen.get_mut(&named.child) {
                None => Some("entry leads to no inode"),
                Some(child) => {
                    child.found += 1;
                    child.by = named.dir;
                    let right =
                        child.tag == named.tag && child.kind == named.kind && !child.nameless;
                    (!right).then_some("entry leads to another inode than it says")
                }
            };
            if let Some(what) = what {
                self.damage(what, named.at, named.dir)?;
            }
        }
        Ok(())
    }

    /// Every inode is led to as often as it says, directories by their parent alone and
    /// from the root.
    fn tree(&mut self, told: &mut dyn FnMut(usize)) -> Result<()> {
        let root = self.pool.store.root;
        let mut inos = Vec::new();
        inos.try_reserve_exact(self.seen.len())?;
        inos.extend(self.seen.keys().copied());
        inos.sort_unstable();
        for (done, ino) in inos.into_iter().enumerate() {
            told(done);
            let Some(seen) = self.seen.get(&ino) else { continue };
            let directory = seen.kind == mode::DIRECTORY >> 12;
            let what = if seen.nameless {
                continue;
            } else if ino == root {
                (seen.found > 0 || seen.parent != root).then_some("root has a parent")
            } else if seen.found == 0 {
                Some("inode without an entry")
            } else if directory && (seen.found != 1 || seen.by != seen.parent) {
                Some("directory in another place than it says")
            } else if directory && !self.reaches_root(ino) {
                Some("directory not connected to the root")
            } else if !directory && seen.found != seen.links {
                Some("wrong link count")
            } else {
                None
            };
            if let Some(what) = what {
                self.damage(what, crate::layout::slot_at(ino), ino)?;
            }
        }
        Ok(())
    }

    /// Whether this life of an inode is there.
    pub(super) fn is_alive(&self, ino: Ino, kind: u32, tag: u32) -> bool {
        self.seen.get(&ino).is_some_and(|seen| (seen.kind, seen.tag) == (kind, tag))
    }

    fn reaches_root(&self, ino: Ino) -> bool {
        let mut at = ino;
        for _ in 0..=self.report.directories {
            if at == self.pool.store.root {
                return true;
            }
            match self.seen.get(&at) {
                Some(seen) => at = seen.parent,
                None => return false,
            }
        }
        false
    }

    /// What snapshots keep.
    fn kept_pages(&mut self) -> Result<()> {
        let mut kept: Vec<Item> = Vec::new();
        let told = self.pool.store.snapshots.for_each_item(&mut |item| {
            kept.try_reserve(1)?;
            kept.push(*item);
            Ok(())
        });
        if let Err(error) = told {
            self.note(error)?;
        }
        for item in kept {
            match (item.kind(), item.run()) {
                (Kept::Log, Some(run)) => self.claim_metadata(run, 0)?,
                (_, Some(run)) => self.claim(run, 0)?,
                (_, None) => {}
            }
        }
        Ok(())
    }

    /// What is not reachable is free, and the other way round.
    fn space(&mut self) -> Result<()> {
        let store = &self.pool.store;
        let mut quarantined = Vec::new();
        let mut result: Result<()> = Ok(());
        store.for_each_quarantined(&mut |run| match quarantined.try_reserve(1) {
            Ok(()) => quarantined.push(run),
            Err(error) => result = Err(error.into()),
        });
        result?;
        for run in quarantined {
            self.claim_metadata(run, 0)?;
        }
        self.kept_pages()?;
        for bad in store.bad.list()?.iter().filter(|bad| !bad.in_use) {
            self.claim(Run { page: bad.page, pages: 1 }, 0)?;
        }
        let mut lent = Vec::new();
        store.lent.for_each_owed(&mut |run| {
            lent.try_reserve(1)?;
            lent.push(run);
            Ok(())
        })?;
        for run in lent {
            self.claim(run, 0)?;
        }
        let mut free = Vec::new();
        store.space.for_each_free(&mut |run| {
            free.try_reserve(1)?;
            free.push(run);
            Ok(())
        })?;
        for run in free {
            self.report.pages_free += run.pages;
            if let Err(page) = self.claims.claim(run) {
                self.damage("page is free and in use", page * PAGE_BYTES, 0)?;
            }
        }
        if self.pool.opening.clean && store.writable().is_err() {
            for run in &self.pool.checkpoint {
                if let Err(page) = self.claims.claim(*run) {
                    self.damage("page of the checkpoint is in use", page * PAGE_BYTES, 0)?;
                }
            }
        }
        if !self.report.damage.is_empty() {
            // Lost pages are only a consequence then.
            return Ok(());
        }
        let mut lost = None;
        let pages = store.geometry.pages;
        self.claims.for_each_unclaimed(0, pages, &mut |run| {
            lost = lost.or(Some(run));
            Ok(())
        })?;
        if let Some(run) = lost {
            self.damage("page is neither free nor in use", run.page * PAGE_BYTES, 0)?;
        }
        Ok(())
    }
}
