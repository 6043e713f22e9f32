//! Moving away what lies where second copies of metadata, or tables of strips, go.
//!
//! File data and values of attributes are copied to other pages; logs are written anew; what snapshots see moves by a way
//! of its own (`seen`). What moves
//! makes logs grow, and so wants places for more copies: each round has a small part of the one
//! before it left to do.

use alloc::vec::Vec;

use lode_pmem::Medium;

use super::places::Places;
use super::progress::Progress;
use crate::inode::{Body, Node, State, load_xattr_name, move_log};
use crate::space::{Ended, Run};
use crate::store::{Kept, Purpose};
use crate::{Error, Host, Ino, Pool, Result};

/// Rounds after which there is no hope.
const ROUNDS_MOST: u32 = 64;
/// Stages of a round: what is wanted, what moves, and what snapshots see of that.
const STAGES: u64 = 3;

/// What a round has done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    /// All places are held.
    All,
    /// There may be more to move.
    Some,
    /// So there may be, and logs that snapshots see were written anew.
    OfSeen,
}

/// Some pages of a file.
#[derive(Clone, Copy)]
struct Part {
    file_page: u64,
    pages: u64,
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Holds the places of all second copies, or of all tables, and moves away what is there. Returns the pool, which may have been opened again, and
    /// the places.
    ///
    /// # Errors
    /// Those of opening it. Of the places: `NoSpace` where there is no place to move something to; those of the medium.
    pub(super) fn make_places(
        mut self,
        mut places: Places,
        progress: &mut Progress<'_>,
    ) -> Result<(Self, Result<Places>)> {
        for round in 0..ROUNDS_MOST {
            match self.make_some(&mut places, round, progress) {
                Ok(Made::All) => return Ok((self, Ok(places))),
                Ok(Made::Some) => {}
                Ok(Made::OfSeen) => {
                    self = self.open_again()?;
                    places = match places.afresh() {
                        Ok(places) => places,
                        Err(error) => return Ok((self, Err(error))),
                    };
                }
                Err(error) => return Ok((self, Err(error))),
            }
        }
        Ok((self, Err(Error::NoSpace)))
    }

    /// One round.
    fn make_some(
        &self,
        places: &mut Places,
        round: u32,
        progress: &mut Progress<'_>,
    ) -> Result<Made> {
        if places.are_for_tables() {
            self.store.space.end_keeping();
        }
        let inodes = self.inodes()?;
        progress.at_round(round, 0, STAGES);
        self.want_all(&inodes, places, &mut |done| progress.set(done, inodes.len() as u64))?;
        places.hold(&self.store)?;
        // (What waits in journals of snapshots is in nobody's way, and has to come home where checksums are to come.)
        let may_wait = round == 0 && places.are_for_tables() && self.store.snapshots.latest() > 0;
        if places.is_all_held() && !may_wait {
            return Ok(Made::All);
        }
        let mut seen: Vec<Ino> = self.kept_inodes()?;
        progress.at_round(round, 1, STAGES);
        let (all, mut done) = (inodes.len() as u64 + places.busy_pages()?, 0);
        let mut told = |more: u64| {
            done += more;
            progress.set(done, all);
        };
        for ino in &inodes {
            if self.vacate(*ino, places, &mut told)? {
                seen.try_reserve(1)?;
                seen.push(*ino);
            }
            told(1);
        }
        let mut made = Made::Some;
        progress.at_round(round, 2, STAGES);
        for (done, ino) in seen.iter().enumerate() {
            progress.set(done as u64, seen.len() as u64);
            if self.vacate_seen(*ino, places)? {
                made = Made::OfSeen;
            }
        }
        if made == Made::Some {
            // What was given up for good only once it is durable.
            self.store.reclaim()?;
        }
        Ok(made)
    }

    /// Notes which pages are wanted. `told` gets how many inodes were looked at.
    fn want_all(
        &self,
        inodes: &[Ino],
        places: &mut Places,
        told: &mut dyn FnMut(u64),
    ) -> Result<()> {
        places.forget()?;
        if places.are_for_tables() {
            places.want_tables();
            return Ok(());
        }
        places.want(places.fixed());
        self.for_each_metadata(inodes, told, &mut |run| {
            places.want(run);
            Ok(())
        })
    }

    /// Calls `each` with all pages of inode tables and of the logs of these inodes, and of dead ones that are kept; `told` with how
    /// many of these inodes there were.
    pub(super) fn for_each_metadata(
        &self,
        inodes: &[Ino],
        told: &mut dyn FnMut(u64),
        each: &mut dyn FnMut(Run) -> Result<()>,
    ) -> Result<()> {
        self.store.table.for_each_piece(&mut |piece| each(piece.run()))?;
        for (done, ino) in inodes.iter().enumerate() {
            told(done as u64);
            let node = self.node(*ino)?;
            let state = node.read(&self.store)?;
            for page in &state.log.pages {
                each(Run { page: page.page, pages: 1 })?;
            }
        }
        self.store.snapshots.for_each_item(&mut |item| match item.run() {
            Some(run) if item.kind() == Kept::Log => each(run),
            _ => Ok(()),
        })
    }

    /// Moves what an inode has in pages that it must leave. Says, instead, whether snapshots see it. `told` gets how many pages
    /// were moved.
    fn vacate(&self, ino: Ino, places: &mut Places, told: &mut dyn FnMut(u64)) -> Result<bool> {
        let node = self.node(ino)?;
        let mut state = node.write(&self.store)?;
        if self.store.sees_log(ino, state.log.born) {
            return Ok(true);
        }
        let mut any = false;
        state.for_each_data_run(&mut |run| any |= places.is_any_busy(run));
        if any {
            self.empty_journal(&node, &mut state)?;
            self.vacate_data(&node, &mut state, places, told)?;
            self.vacate_xattrs(&node, &mut state, places)?;
        }
        let twin = |page: u64| page ^ self.store.geometry.twin_pages;
        let is_busy = |page: u64| places.is_busy(page) || places.is_busy(twin(page));
        if state.log.pages.iter().any(|page| is_busy(page.page)) {
            move_log(&self.store, &node.slot, &mut state)?;
        }
        Ok(false)
    }

    fn vacate_data(
        &self,
        node: &Node<H>,
        state: &mut State,
        places: &mut Places,
        told: &mut dyn FnMut(u64),
    ) -> Result<()> {
        for part in busy_parts(state, places)? {
            let mut from = part.file_page;
            let end = from + part.pages;
            while from < end {
                let to = match places.take_spare() {
                    Some(run) => run,
                    None => self.store.take_some(end - from, Purpose::Replaces)?,
                };
                let mut give = |Ended { run, .. }: Ended, _| {
                    let given = (run.page..run.end()).filter(|page| !places.give(*page));
                    given.for_each(|page| self.store.give(Run { page, pages: 1 }));
                };
                if let Err(error) = self.relocate(node, state, from, to, &mut give) {
                    self.store.give(to);
                    return Err(error);
                }
                from += to.pages;
                told(to.pages);
            }
        }
        Ok(())
    }

    fn vacate_xattrs(&self, node: &Node<H>, state: &mut State, places: &Places) -> Result<()> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        for xattr in state.xattrs.iter() {
            if xattr.runs.iter().any(|run| places.is_any_busy(*run)) {
                names.try_reserve(1)?;
                names.push(load_xattr_name(&self.store, state, xattr)?);
            }
        }
        names.iter().try_for_each(|name| self.relocate_xattr(node, state, name))
    }
}

/// The parts of a file whose pages must be left.
fn busy_parts(state: &State, places: &Places) -> Result<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    let Body::File(file) = &state.body else { return Ok(parts) };
    for extent in file.extents.iter() {
        for step in (0..extent.pages).filter(|step| places.is_busy(extent.page + step)) {
            let file_page = extent.file_page + step;
            match parts.last_mut().filter(|last| last.file_page + last.pages == file_page) {
                Some(last) => last.pages += 1,
                None => {
                    parts.try_reserve(1)?;
                    parts.push(Part { file_page, pages: 1 });
                }
            }
        }
    }
    Ok(parts)
}
