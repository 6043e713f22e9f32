//! Whether the two copies of metadata say the same, where it has two.
//!
//! All slots of all tables and all logs are read again, from the medium. What differs is made the same in a
//! pool that is open for writes, and damage in one that was closed. (In one that crashed, it is what
//! the crash has left.)

use lode_pmem::Medium;

use super::full::{Check, DAMAGE_MAX};
use crate::log::{Step, Walk, read_death, read_identity};
use crate::{Corruption, Error, Host, Ino, Result};

const DIFFERS: &str = "the two copies of metadata differ";

impl<M: Medium, H: Host> Check<'_, M, H> {
    /// Compares all copies.
    pub(super) fn copies(&mut self) -> Result<()> {
        let store = &self.pool.store;
        if store.geometry.twin_pages == 0 {
            return Ok(());
        }
        store.compare_twins();
        let compared = self.compare();
        let write = store.writable().is_ok();
        let differing = store.end_comparing(write);
        if write && !differing.is_empty() {
            store.door.fence(store.counters())?;
        }
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

    fn compare(&self) -> Result<()> {
        let store = &self.pool.store;
        for lane in 0..store.geometry.lanes {
            over(store.walk_chain(lane, &mut |_| Ok(())))?;
        }
        store.table.for_each_piece(&mut |piece| {
            (1..piece.slots()).try_for_each(|index| over(self.compare_slot(piece.ino(index))))
        })
    }

    #[inline(never)]
    fn compare_slot(&self, ino: Ino) -> Result<()> {
        let store = &self.pool.store;
        let Some((identity, head, _, seal)) = read_identity(store, ino)? else { return Ok(()) };
        if read_death(store, &identity)?.is_some() {
            // (Its pages may be somebody's data.)
            return Ok(());
        }
        let mut walk = Walk::new(store, &identity, head, seal)?;
        while !matches!(walk.step()?, Step::End) {}
        walk.beyond(&mut |_| ())?;
        walk.link_past_end().map(|_| ())
    }
}

/// Damage is told by the rest of the check.
fn over(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::Corrupt(_) | Error::Media { .. }) => Ok(()),
        result => result,
    }
}
