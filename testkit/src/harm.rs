//! What memory loses by itself, as an operation names it; and a scrub that finds it.

use std::fmt;

use lode_engine::{Error, Finding, Host, Outcome, Pool, Result};
use lode_pmem::Medium;

/// Of what a line is damaged. Of what is there twice, even numbers are first copies, odd ones second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Harmed {
    /// A superblock.
    Superblock,
    /// The line that says where the second superblock is.
    Locator,
    /// The list of bad memory behind a superblock.
    BadList,
    /// The link from a lane to its inode tables.
    Chain,
    /// The header of a piece of inode table.
    Table,
    /// The identity of an inode.
    Identity,
    /// A record of an inode's log.
    Record,
    /// The header of a log page, with the link to the next one.
    LogPage,
    /// A line of an inode that has ended.
    Dead,
    /// The checksums of a page of file data.
    Checksum,
    /// The parity of a page of file data.
    Parity,
    /// File data.
    Data,
    /// File data that only snapshots see.
    Kept,
    /// The value of an extended attribute, in pages of its own.
    Value,
    /// The checksums of a page of such a value.
    ValueChecksum,
}

/// How it is damaged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HarmedBy {
    /// A bit flips.
    Flip,
    /// The line is zeros.
    Zero,
    /// The line can't be loaded, until it is stored as a whole.
    Poison,
    /// The line can't be loaded, whatever is stored to it.
    Broken,
}

/// One damage: in which line of these, counted as they are found in the pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub struct Harm {
    pub of: Harmed,
    pub number: u64,
    pub by: HarmedBy,
}

impl Harmed {
    /// All of them.
    pub const ALL: [Harmed; 15] = [
        Harmed::Superblock,
        Harmed::Locator,
        Harmed::BadList,
        Harmed::Chain,
        Harmed::Table,
        Harmed::Identity,
        Harmed::Record,
        Harmed::LogPage,
        Harmed::Dead,
        Harmed::Checksum,
        Harmed::Parity,
        Harmed::Data,
        Harmed::Kept,
        Harmed::Value,
        Harmed::ValueChecksum,
    ];

    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Harmed::Superblock => "superblock",
            Harmed::Locator => "locator",
            Harmed::BadList => "bad-list",
            Harmed::Chain => "chain",
            Harmed::Table => "table",
            Harmed::Identity => "identity",
            Harmed::Record => "record",
            Harmed::LogPage => "log-page",
            Harmed::Dead => "dead",
            Harmed::Checksum => "checksum",
            Harmed::Parity => "parity",
            Harmed::Data => "data",
            Harmed::Kept => "kept",
            Harmed::Value => "value",
            Harmed::ValueChecksum => "value-checksum",
        }
    }
}

impl HarmedBy {
    /// All of them.
    pub const ALL: [HarmedBy; 4] =
        [HarmedBy::Flip, HarmedBy::Zero, HarmedBy::Poison, HarmedBy::Broken];

    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            HarmedBy::Flip => "flip",
            HarmedBy::Zero => "zero",
            HarmedBy::Poison => "poison",
            HarmedBy::Broken => "broken",
        }
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.of.name(), self.number)?;
        match self.by {
            HarmedBy::Flip => Ok(()),
            by => write!(f, " {}", by.name()),
        }
    }
}

/// Bytes of a step: few, so that a scrub of a small pool has several.
const STEP_BYTES: u64 = 8192;

/// Scrubs all of a pool; returns what it has found.
///
/// # Errors
/// Those of the pool.
pub fn scrubbed<M: Medium, H: Host>(pool: &Pool<M, H>) -> Result<Vec<Finding>> {
    let mut scrub = pool.begin_scrub()?;
    let mut found = Vec::new();
    while !scrub.is_over() {
        pool.scrub(&mut scrub, STEP_BYTES)?;
        found.extend(scrub.take_findings());
    }
    Ok(found)
}

/// Scrubs all of a pool: each finding is to be made good, and a second scrub is to find nothing.
///
/// # Errors
/// Those of the pool; [`Error::Media`] where something is left or lost.
pub(crate) fn scrub<M: Medium, H: Host>(pool: &Pool<M, H>) -> Result<()> {
    let found = scrubbed(pool)?;
    let mut bad = found.into_iter().filter(|one| one.outcome != Outcome::Repaired);
    let more = scrubbed(pool)?;
    match bad.next().or(more.into_iter().next()) {
        None => Ok(()),
        Some(one) => Err(Error::Media { at: one.at }),
    }
}
