//! Moving away what snapshots see.
//!
//! A page of data that one sees is named by a record in a part of a log that is never rewritten, and that part lies in pages
//! that stay: so the log is written anew, record by record (`inode::write_anew`), with the pages that had to go in other places.
//! Of dead inodes, too, of which nothing else is ever written. What is in memory of these inodes, and of what is
//! kept for snapshots, is not changed with that: the pool is opened again before anybody asks.
//!
//! Guarantees: until the one word is durable that leads to the new log the old one counts, and nothing of what that has is
//! stored to before the pool is opened again, but for overwrites that come home.

use alloc::vec::Vec;

use lode_pmem::Medium;

use super::places::Places;
use crate::inode::{Seen, look_at_seen, write_anew};
use crate::layout::{HEAD_AT, slot_at};
use crate::space::{Moved, Run};
use crate::store::Purpose;
use crate::{Error, Host, Ino, PAGE_BYTES, Pool, Result};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Dead inodes that snapshots see.
    pub(super) fn kept_inodes(&self) -> Result<Vec<Ino>> {
        let mut kept: Vec<Ino> = Vec::new();
        self.store.snapshots.for_each_slot(&mut |_, ino| {
            kept.try_reserve(1)?;
            kept.push(ino);
            Ok(())
        })?;
        Ok(kept)
    }

    /// Moves what inode `ino`, which snapshots see, has in pages that it must leave, or they see there. Where checksums are to come
    /// nothing waits in its journal then, in no snapshot. Says whether the pool has to be opened again.
    ///
    /// # Errors
    /// `NoSpace`; [`Error::Media`] for bytes that are lost; [`Error::Corrupt`].
    pub(super) fn vacate_seen(&self, ino: Ino, places: &mut Places) -> Result<bool> {
        let store = &self.store;
        let seen = look_at_seen(store, ino, false)?;
        let is_busy = |page: u64| places.is_busy(page ^ store.geometry.twin_pages);
        let moves = seen.data.iter().any(|run| places.is_any_busy(*run))
            || seen.pages.iter().any(|page| places.is_busy(*page) || is_busy(*page));
        let has_to = moves || seen.waits && places.are_for_tables();
        if !has_to {
            return Ok(false);
        }
        // (What this session has stored there is yet to be settled. Nothing more of it comes when it is.)
        if seen.session < store.session() {
            self.write_seen_anew(ino, &seen, places)?;
        }
        Ok(true)
    }

    #[inline(never)]
    fn write_seen_anew(&self, ino: Ino, seen: &Seen, places: &mut Places) -> Result<()> {
        let store = &self.store;
        if seen.waits {
            look_at_seen(store, ino, true)?;
        }
        let moved = self.move_data(&seen.data, places)?;
        let mut take = || match store.geometry.twin_pages {
            0 => places.take_pair(store)?.map_or_else(|| store.take_spare_page(), Ok),
            _ => store.take_spare_page(),
        };
        let head = write_anew(store, (ino, seen.end), &moved, &mut take)?;
        store.door.fence(store.counters())?;
        // (Durable before the pool is open again.)
        store.store_link(slot_at(ino) + HEAD_AT, Some(head));
        Ok(())
    }

    /// Copies the pages among these that must be left, which are in order.
    fn move_data(&self, data: &[Run], places: &mut Places) -> Result<Moved> {
        let mut moved = Moved::default();
        for run in data {
            let mut page = run.page;
            while page < run.end() {
                if !places.is_busy(page) {
                    page += 1;
                    continue;
                }
                let busy = (page..run.end()).take_while(|page| places.is_busy(*page)).count();
                let to = match places.take_spare() {
                    Some(run) => run,
                    None => self.store.take_some(busy as u64, Purpose::Replaces)?,
                };
                let from = Run { page, pages: to.pages };
                if let Some(at) = self.store.bad.first(page * PAGE_BYTES, to.pages * PAGE_BYTES) {
                    return Err(Error::Media { at });
                }
                self.copy(from, to)?;
                moved.note(from, to.page)?;
                page = from.end();
            }
        }
        Ok(moved)
    }
}
