//! Where entries of directories lead.
//!
//! What this file guarantees: an entry that a scrub has passed leads to the life of an inode that it means, or a finding tells of
//! it. (What a crash can't be told from damage of leaves an entry without its inode, and nobody else would meet that before its name is
//! looked up.) No directory is locked while what it leads to is loaded, and none for longer than some entries take.

use alloc::sync::Arc;
use alloc::vec::Vec;

use lode_pmem::Medium;

use super::report::What;
use super::step::Scrub;
use crate::index::Entry;
use crate::inode::{
    NameTarget, Node, PastName, Scanned, State, load_name, load_with_past, target_of,
};
use crate::layout::{LINE, slot_at};
use crate::{Error, Host, Ino, NAME_MAX, Pool, Result, VIEW, ino_beside};

/// Entries that are looked at under one lock.
const ENTRIES_MAX: usize = 32;

impl<M: Medium, H: Host> Pool<M, H> {
    /// Looks at where about `bytes` bytes of a directory's entries lead, of those behind a cookie. Returns the bytes looked at,
    /// and the cookie to go on behind, if there is more.
    pub(super) fn scrub_entries(
        &self,
        scrub: &mut Scrub,
        dir: Ino,
        after: u64,
        bytes: u64,
    ) -> Result<(u64, Option<u64>)> {
        // (Of a dead one, only those that have ended are left.)
        if dir >= VIEW {
            return Ok((0, None));
        }
        let (mut done, mut after) = (0, after);
        let mut entries = Vec::new();
        entries.try_reserve_exact(ENTRIES_MAX)?;
        loop {
            entries.clear();
            match self.with_directory(dir, &mut |state| {
                let behind = state.directory()?.entries.after(after);
                // (A name that can't be read has been told of with its line.)
                let read = behind.take(ENTRIES_MAX).map(|one| (one, self.target(state, &one)));
                entries.extend(read);
                Ok(())
            }) {
                Err(Error::NoMemory) => return Err(Error::NoMemory),
                // (Where it can't be loaded, that has been told.)
                Err(_) => return Ok((done, None)),
                Ok(()) => {}
            }
            for (entry, target) in &entries {
                if let Some(target) = target {
                    self.scrub_entry(scrub, dir, entry, target)?;
                }
            }
            done += entries.len() as u64 * LINE;
            match entries.last() {
                Some((last, _)) if entries.len() == ENTRIES_MAX => after = last.cookie,
                _ => return Ok((done, None)),
            }
            if done >= bytes {
                return Ok((done, Some(after)));
            }
        }
    }

    #[inline(never)]
    fn scrub_entry(
        &self,
        scrub: &mut Scrub,
        dir: Ino,
        entry: &Entry,
        target: &NameTarget,
    ) -> Result<()> {
        let node = self.node(entry.ino);
        let Some(error) = self.misses(node, target, (dir, entry.at))? else { return Ok(()) };
        // Where it is the same entry still, and means the same life, it has been there all the time, and so should that.
        let mut is_same = false;
        let looked = self.with_directory(dir, &mut |state| {
            let again = state.directory()?.entries.after(entry.cookie.saturating_sub(1)).next();
            let means_same =
                |again: &Entry| self.target(state, again).is_some_and(|one| one.tag == target.tag);
            is_same = again.is_some_and(|again| again == *entry && means_same(&again));
            Ok(())
        });
        match looked {
            Ok(()) if is_same => scrub.note_error(error, What::Metadata, error.into_damage()?.ino),
            Err(Error::NoMemory) => Err(Error::NoMemory),
            _ => Ok(()),
        }
    }

    /// Entries of a directory that have ended, and that snapshots see.
    pub(super) fn ended_entries(&self, dir: Ino) -> Result<Vec<PastName>> {
        let mut ended = Ok(Vec::new());
        // While it is locked its log stays as it is.
        let looked = self.with_directory(dir, &mut |state| {
            if self.store.sees_log(state.log.ino, state.log.born) {
                ended = self.past_names(state);
            }
            Ok(())
        });
        // (Where it can't be read, that has been told.)
        let none = |error| match error {
            Error::NoMemory => Err(Error::NoMemory),
            _ => Ok(Vec::new()),
        };
        looked.and(ended).or_else(none)
    }

    fn past_names(&self, dir: &State) -> Result<Vec<PastName>> {
        let died = dir.is_dead().then_some(dir.died);
        let Scanned { past, .. } = load_with_past(&self.store, dir.log.ino, died)?;
        Ok(past.map(|past| past.names).unwrap_or_default())
    }

    /// An entry of a directory that has ended, as the latest snapshot has it that sees it. Returns the bytes looked at.
    pub(super) fn scrub_ended(&self, scrub: &mut Scrub, dir: Ino, entry: &PastName) -> Result<u64> {
        let PastName { target, at, epoch } = *entry;
        let dir = ino_beside(dir, 0);
        let Some(view) = self.view_of(epoch)? else { return Ok(LINE) };
        let node = self.node(target.ino | view);
        let Some(error) = self.misses(node, &target, (dir, at))? else { return Ok(LINE) };
        // (With a snapshot that is deleted meanwhile goes what it alone has kept.)
        if self.view_of(epoch)?.is_some() {
            scrub.note_error(error, What::Metadata, error.into_damage()?.ino | view)?;
        }
        Ok(LINE)
    }

    /// What is lost where this is what an entry of a directory, whose record is there, leads to: what it means if there is
    /// nothing, else the entry itself. Of what can't be read that is told with its inode.
    #[inline(never)]
    fn misses(
        &self,
        node: Result<Arc<Node<H>>>,
        target: &NameTarget,
        (dir, at): (Ino, u64),
    ) -> Result<Option<Error>> {
        let state = node.as_ref().map_err(|error| *error).map(|node| node.read(&self.store));
        Ok(match state.and_then(|state| state.map(|state| target.means(&state))) {
            Ok(true) => None,
            Ok(false) => {
                let what = "entry leads to another inode than it says";
                Some(Error::corrupt_inode(what, at, dir))
            }
            Err(Error::Stale) => {
                let (what, slot) = ("entry leads to no inode", slot_at(target.ino));
                Some(Error::corrupt_inode(what, slot, target.ino))
            }
            Err(Error::NoMemory) => return Err(Error::NoMemory),
            Err(_) => None,
        })
    }

    fn target(&self, state: &State, entry: &Entry) -> Option<NameTarget> {
        let mut name = [0; NAME_MAX];
        let (add, _) = load_name(&self.store, state, entry, &mut name).ok()?;
        target_of(entry, &add)
    }

    /// Shows a directory that is locked meanwhile.
    fn with_directory(&self, dir: Ino, look: &mut dyn FnMut(&State) -> Result<()>) -> Result<()> {
        let node = self.node(dir)?;
        let state = node.read(&self.store)?;
        look(&state)
    }
}
