//! The changes that make one tree another: two snapshots of a pool, or one and what is there now.
//!
//! 1 `leave`: entries of the older tree that the newer one does not have go. What moves waits in a directory of its
//!   own: directories under their numbers, of other inodes a name more. Children come before their parents, so that each path is as it was.
//! 2 `arrive`: entries that only the newer one has come, parents first; then each path is as it will be.
//! 3 `contents`: what differs in inodes: sizes, data (`data`), attributes; times last, as nothing changes them then.
//!
//! Guarantees: what is told depends on the two trees alone; it is found without reading data that both have; no memory
//! is taken that grows with data, only with the names of the directories on the way and with what has several.

mod arrive;
mod contents;
mod data;
mod leave;
mod tree;

use std::collections::{HashSet, VecDeque};

use lode_engine::{Host, Ino, Pool, ino_beside};
use lode_pmem::Medium;

use crate::Result;
use crate::wire::Change;
use arrive::{Arrive, Held};
use contents::Contents;
use leave::Leave;

/// What is known of the two trees, and has been found.
pub(crate) struct Trees {
    /// Root of the one that the changes lead to.
    new: Ino,
    /// Root of the one that they begin at; none begins at nothing.
    old: Option<Ino>,
    /// Inodes, not directories, that were there and get a name that they had not.
    held: HashSet<Ino>,
    /// Directories whose entries change.
    touched: HashSet<Ino>,
    /// Access times count.
    access_times: bool,
    /// Something waits.
    waits: bool,
    /// Changes that were found and not told.
    found: VecDeque<Change>,
}

enum Phase {
    Holding(Held),
    Leaving(Leave),
    Arriving(Arrive),
    Filling(Contents),
    Over,
}

/// What a look at the trees gave.
pub(crate) enum Found {
    Change(Change),
    /// Nothing yet.
    Nothing,
    End,
}

/// Finds the changes, one by one.
pub(crate) struct Differ {
    trees: Trees,
    phase: Phase,
}

impl Differ {
    /// From the tree at `old`, or from nothing, to the one at `new`.
    pub(crate) fn new<M: Medium, H: Host>(
        pool: &Pool<M, H>,
        old: Option<Ino>,
        new: Ino,
    ) -> Result<Self> {
        let trees = Trees {
            new,
            old,
            held: HashSet::new(),
            touched: HashSet::new(),
            access_times: true,
            waits: false,
            found: VecDeque::new(),
        };
        let phase = match old {
            Some(old) => Phase::Holding(Held::new(pool, &trees, old)?),
            None => Phase::Arriving(Arrive::new(pool, &trees)?),
        };
        Ok(Self { trees, phase })
    }

    /// The same, where differing access times are no difference.
    pub(crate) fn without_access_times(mut self) -> Self {
        self.trees.access_times = false;
        self
    }

    /// The next change; `None` at the end.
    pub(crate) fn next<M: Medium, H: Host>(&mut self, pool: &Pool<M, H>) -> Result<Option<Change>> {
        loop {
            match self.step(pool)? {
                Found::Change(change) => return Ok(Some(change)),
                Found::Nothing => {}
                Found::End => return Ok(None),
            }
        }
    }

    /// Tells a change that was found, or looks at one entry more.
    pub(crate) fn step<M: Medium, H: Host>(&mut self, pool: &Pool<M, H>) -> Result<Found> {
        if let Some(change) = self.trees.found.pop_front() {
            return Ok(Found::Change(change));
        }
        let trees = &mut self.trees;
        let goes_on = match &mut self.phase {
            Phase::Holding(held) => held.step(pool, trees)?,
            Phase::Leaving(leave) => leave.step(pool, trees)?,
            Phase::Arriving(arrive) => arrive.step(pool, trees)?,
            Phase::Filling(contents) => contents.step(pool, trees)?,
            Phase::Over => return Ok(Found::End),
        };
        if !goes_on {
            self.phase = match &self.phase {
                Phase::Holding(held) => Phase::Leaving(Leave::new(pool, trees, held.old)?),
                Phase::Leaving(_) => Phase::Arriving(Arrive::new(pool, trees)?),
                Phase::Arriving(_) => {
                    if trees.waits {
                        // (What waits is in a directory of the root.)
                        trees.touched.insert(ino_beside(trees.new, 0));
                        trees.found.push_back(Change::Clear);
                    }
                    Phase::Filling(Contents::new(pool, trees)?)
                }
                _ => Phase::Over,
            };
        }
        Ok(Found::Nothing)
    }
}
