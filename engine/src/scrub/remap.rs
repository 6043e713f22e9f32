//! Leaving bad memory: what can still be read of a page with bad lines is stored in another one.

use alloc::vec::Vec;

use lode_pmem::Medium;

use super::report::{Finding, Outcome, What};
use super::step::Scrub;
use crate::index::Xattr;
use crate::inode::{Body, Node, State, load_xattr_name, move_log};
use crate::space::{Ended, Run};
use crate::store::Purpose;
use crate::{Error, Host, Ino, PAGE_BYTES, Pool, Result};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Moves what an inode has in pages with bad lines, where all of it is known: data with checksums from its parity,
    /// logs from their second copy.
    pub(super) fn leave_bad(&self, scrub: &mut Scrub, ino: Ino) -> Result<()> {
        if self.store.writable().is_err() {
            return Ok(());
        }
        self.store.take_met()?;
        if !self.store.bad.any() {
            return Ok(());
        }
        // What is moved leaves pages that nobody is to get, after a crash neither: first the list says so. (What that has no room
        // for stays where it is.)
        self.store.keep_bad()?;
        let node = match self.node(ino) {
            Err(Error::Stale) => return Ok(()),
            node => node?,
        };
        // (Where it can't be loaded, that has been told.)
        let Ok(mut state) = node.write(&self.store) else { return Ok(()) };
        for (file_page, page) in self.bad_pages_of(&state)? {
            let outcome = match self.store.bad.has_room_for(page) {
                true => self.leave_page(&node, &mut state, file_page)?,
                false => Some(Outcome::Left),
            };
            if let Some(outcome) = outcome {
                let what = What::Data;
                let (at, offset) = (page * PAGE_BYTES, file_page * PAGE_BYTES);
                scrub.note(Finding { what, outcome, ino, at, offset, bytes: PAGE_BYTES })?;
            }
        }
        self.leave_values(scrub, &node, &mut state)?;
        self.leave_log(scrub, &node, &mut state)
    }

    /// Stores values in pages with bad lines in others, where what is kept of these gives them.
    fn leave_values(&self, scrub: &mut Scrub, node: &Node<H>, state: &mut State) -> Result<()> {
        let is_bad = |xattr: &&Xattr| {
            let mut pages = xattr.runs.iter().flat_map(|run| run.page..run.end());
            pages.any(|page| self.is_page_bad(page))
        };
        if !self.store.geometry.strips.are_kept() {
            return Ok(());
        }
        let mut bad = Vec::new();
        for xattr in state.xattrs.iter().filter(is_bad) {
            let mut pages = xattr.runs.iter().flat_map(|run| run.page..run.end());
            let name = match pages.all(|page| self.may_leave(page)) {
                true => load_xattr_name(&self.store, state, xattr),
                false => Err(Error::NoSpace),
            };
            let first = xattr.runs.first().map_or(0, |run| run.page);
            bad.try_reserve(1)?;
            bad.push((first * PAGE_BYTES, name));
        }
        for (at, name) in bad {
            let moved = name.and_then(|name| self.relocate_xattr(node, state, &name));
            let outcome = match moved {
                Ok(()) => Outcome::Repaired,
                Err(Error::NoSpace) => Outcome::Left,
                // (That it is lost has been told.)
                Err(Error::Media { .. } | Error::Corrupt(_)) => continue,
                Err(error) => return Err(error),
            };
            let (what, ino) = (What::Attribute, state.log.ino);
            scrub.note(Finding { what, outcome, ino, at, offset: 0, bytes: 0 })?;
        }
        Ok(())
    }

    /// Writes a log anew that has a page with bad lines, in either copy.
    fn leave_log(&self, scrub: &mut Scrub, node: &Node<H>, state: &mut State) -> Result<()> {
        let Some(bad) = state.log.pages.iter().find(|log| self.is_log_bad(log.page)) else {
            return Ok(());
        };
        let (what, ino, at) = (What::Metadata, state.log.ino, bad.page * PAGE_BYTES);
        let twin = self.store.geometry.twin_pages;
        let pages = state.log.pages.iter().flat_map(|log| [log.page, log.page ^ twin]);
        let is_listed = |page| self.may_leave(page);
        // (A log that a snapshot sees stays where it is.)
        let may_move = self.store.latest() == 0 && pages.into_iter().all(is_listed);
        let moved = match may_move {
            true => move_log(&self.store, &node.slot, state),
            false => Err(Error::NotSupported),
        };
        let outcome = match moved {
            Ok(()) => Outcome::Repaired,
            Err(error @ (Error::NoMemory | Error::Unwritten)) => return Err(error),
            Err(_) => Outcome::Left,
        };
        scrub.note(Finding { what, outcome, ino, at, offset: 0, bytes: 0 })
    }

    /// Whether a page of a log is in bad memory that can be left.
    pub(super) fn is_log_bad(&self, page: u64) -> bool {
        let twin = self.store.geometry.twin_pages;
        twin != 0 && (self.is_page_bad(page) || self.is_page_bad(page ^ twin))
    }

    /// Whether a page is good, or can be listed as one that nobody is to get.
    fn may_leave(&self, page: u64) -> bool {
        !self.is_page_bad(page) || self.store.bad.has_room_for(page)
    }

    pub(super) fn is_page_bad(&self, page: u64) -> bool {
        self.store.bad.touches_run(Run { page, pages: 1 })
    }

    /// Pages of a file with bad lines: in the file, and in the pool.
    fn bad_pages_of(&self, state: &State) -> Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        let Body::File(file) = &state.body else { return Ok(found) };
        if !self.store.geometry.strips.are_kept() || file.is_mapped() {
            return Ok(found);
        }
        // (A program has its memory where it is.)
        let stays = |page| self.store.lent.touches(Run { page, pages: 1 });
        for bad in self.store.bad.list()?.into_iter().filter(|bad| bad.in_use && !stays(bad.page)) {
            let mut extents = file.extents.iter();
            let holds = extents.find(|one| (one.page..one.page + one.pages).contains(&bad.page));
            if let Some(extent) = holds {
                found.try_reserve(1)?;
                found.push((extent.file_page + (bad.page - extent.page), bad.page));
            }
        }
        Ok(found)
    }

    /// Stores a page of a file in another one. Says what became of it, but where part of it is lost, which has been told.
    fn leave_page(
        &self,
        node: &Node<H>,
        state: &mut State,
        file_page: u64,
    ) -> Result<Option<Outcome>> {
        let moved = self.empty_journal(node, state).and_then(|()| {
            let to = self.store.take_some(1, Purpose::Replaces)?;
            let give = &mut |ended: Ended, died| self.store.release(ended, died);
            let moved = self.relocate(node, state, file_page, to, give);
            if moved.is_err() {
                self.store.give(to);
            }
            moved
        });
        match moved {
            Ok(()) => Ok(Some(Outcome::Repaired)),
            // It stays where it is.
            Err(Error::NoSpace) => Ok(Some(Outcome::Left)),
            Err(Error::Media { .. } | Error::Corrupt(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
