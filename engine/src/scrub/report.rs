//! What a scrub finds.

use crate::Ino;

/// What was found to be bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A superblock.
    Superblock,
    /// The list of bad memory behind one.
    BadList,
    /// The line that tells where the second superblock is.
    Locator,
    /// Lane table, inode tables, and the logs of inodes.
    Metadata,
    /// Bytes of a file.
    Data,
    /// The value of an extended attribute.
    Attribute,
}

impl What {
    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            What::Superblock => "superblock",
            What::BadList => "bad-list",
            What::Locator => "locator",
            What::Metadata => "metadata",
            What::Data => "data",
            What::Attribute => "attribute",
        }
    }

    /// The same for people, where there are two of it or not.
    pub const fn words(self) -> &'static str {
        match self {
            What::Superblock => "one copy of the superblock",
            What::BadList => "one copy of the list of bad memory",
            What::Locator => "the locator of the second superblock",
            What::Metadata | What::Data | What::Attribute => self.name(),
        }
    }
}

/// A part of what a pool says of itself that is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SuperblockDamage {
    /// A superblock, the list behind it, or the locator.
    pub what: What,
    /// Offset in the pool.
    pub at: u64,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was made good from the other copy.
    Repaired,
    /// Nothing is lost, as the other copy is good; this one stays bad (or the pool is open read-only).
    Left,
    /// There was no other copy.
    Lost,
}

impl Outcome {
    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Repaired => "repaired",
            Outcome::Left => "left",
            Outcome::Lost => "lost",
        }
    }
}

/// Something bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What it belongs to.
    pub what: What,
    /// What became of it.
    pub outcome: Outcome,
    /// The inode, 0 for none.
    pub ino: Ino,
    /// Offset in the pool.
    pub at: u64,
    /// Of data: offset in the file.
    pub offset: u64,
    /// Bytes; 0 where it is not known how many.
    pub bytes: u64,
}
