//! Whether the two copies of metadata say the same, where it has two.
//!
//! All slots of all tables and all logs, those of dead inodes that snapshots see too, are read again, from the medium. What differs is made the same in a
//! pool that is open for writes, and told of in one that was closed. (In one that crashed, it is what
//! the crash has left.)

use alloc::vec::Vec;

use lode_pmem::Medium;

use super::full::{Check, DAMAGE_MAX};
use crate::log::{Step, Walk, read_death, read_identity};
use crate::{Corruption, Error, Host, Ino, Result, ino_beside};

const DIFFERS: &str = "the two copies of metadata differ";
const LEFT_BEHIND: &str = "a line behind the end of a log is valid";

impl<M: Medium, H: Host> Check<'_, M, H> {
    /// Compares all copies; `dead` are the inodes that snapshots keep, by their numbers there.
    pub(super) fn copies(&mut self, dead: &[Ino]) -> Result<()> {
        let store = &self.pool.store;
        if store.geometry.twin_pages == 0 {
            return Ok(());
        }
        store.compare_twins();
        let compared = self.compare(dead);
        let write = store.writable().is_ok();
        // (No fence: until the next one the copy counts that did before.)
        let differing = store.end_comparing(write);
        compared?;
        self.report.mended = if write { differing.len() as u64 } else { 0 };
        if !write && self.pool.opening.clean {
            let shown = differing.len().min(DAMAGE_MAX);
            self.report.differing.try_reserve_exact(shown)?;
            let damage = |at| Corruption { what: DIFFERS, at, ino: 0 };
            let all = differing.iter().map(|one| damage(one.at()));
            self.report.differing.extend(all.take(shown));
        }
        Ok(())
    }

    fn compare(&mut self, kept: &[Ino]) -> Result<()> {
        let mut dead = Vec::new();
        dead.try_reserve_exact(kept.len())?;
        dead.extend(kept.iter().map(|seen| ino_beside(*seen, 0)));
        dead.sort_unstable();
        let store = &self.pool.store;
        for lane in 0..store.geometry.lanes {
            over(store.walk_chain(lane, &mut |_| Ok(())))?;
        }
        let settled = store.writable().is_ok() || self.pool.opening.clean;
        store.table.for_each_piece(&mut |piece| {
            for index in 1..piece.slots() {
                let in_use = piece.tail(index) != 0;
                let is_kept = !in_use && dead.binary_search(&piece.ino(index)).is_ok();
                let compared = self.compare_slot(piece.ino(index), (in_use, is_kept));
                let behind = over(compared)?.flatten();
                if let Some(at) = behind.filter(|_| settled) {
                    self.damage(LEFT_BEHIND, at, piece.ino(index))?;
                }
            }
            Ok(())
        })
    }

    /// Loads all of an inode that is alive, or that snapshots keep; returns where the log of one that is alive goes on behind its
    /// end, if it does.
    #[inline(never)]
    fn compare_slot(&self, ino: Ino, (in_use, is_kept): (bool, bool)) -> Result<Option<u64>> {
        let store = &self.pool.store;
        let Some((identity, head, _, seal)) = read_identity(store, ino)? else { return Ok(None) };
        let is_dead = read_death(store, &identity)?.is_some() || !in_use;
        if is_dead && !is_kept {
            // (Its pages may be somebody's data, also where its death is lost.)
            return Ok(None);
        }
        let mut walk = Walk::new(store, &identity, head, seal)?;
        while !matches!(walk.step()?, Step::End) {}
        let mut behind = None;
        walk.beyond(&mut |beyond| behind = Some(beyond.at))?;
        // (Of one that is dead that is asked with all else of it.)
        Ok(behind.filter(|_| !is_dead))
    }
}

/// Damage is told by the rest of the check.
fn over<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::Corrupt(_) | Error::Media { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
