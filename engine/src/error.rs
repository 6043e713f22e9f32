//! What can go wrong, with the error number a POSIX caller expects.

use core::fmt;

use lode_pmem::MediaError;

use crate::ino_beside;

/// Result of an engine call.
pub type Result<T> = core::result::Result<T, Error>;

/// An error of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// No such file or directory.
    NotFound,
    /// The name exists already.
    Exists,
    /// A directory was needed.
    NotDirectory,
    /// A directory can't be used here.
    IsDirectory,
    /// A directory can't have another name.
    DirectoryLink,
    /// The directory has entries.
    NotEmpty,
    /// Somebody uses it.
    Busy,
    /// Programs have memory of the pool: what is asked for can't be done beside them.
    Lent,
    /// This chunk is not lent.
    NotLent,
    /// An argument makes no sense.
    Invalid,
    /// The name is longer than 255 bytes, or a symbolic link longer than 4095.
    NameTooLong,
    /// The file would be larger than a file can be.
    FileTooLarge,
    /// All lanes are dry.
    NoSpace,
    /// The host has no memory for an index or a table.
    NoMemory,
    /// More links than an inode can count.
    TooManyLinks,
    /// The pool, or this opening of it, is read-only.
    ReadOnly,
    /// A snapshot is being received into the pool: that is to be ended, or given up, first.
    Receiving,
    /// The inode is gone, or its number belongs to a later life.
    Stale,
    /// The operation is not supported on this kind of file.
    NotSupported,
    /// There is no extended attribute of this name.
    NoAttribute,
    /// The value is longer than an extended attribute can be.
    TooLong,
    /// The medium reported an error. Offset in bytes.
    Media {
        /// Where the load was.
        at: u64,
    },
    /// What was stored could not be made durable: the pool takes no more changes until it is
    /// opened again.
    Unwritten,
    /// Bytes on the medium are wrong.
    Corrupt(Corruption),
    /// The pool's memory has lost what had been stored, and all of the pool was checked for it: this is wrong.
    Lost(Corruption),
    /// This is not a pool, or one this version can't open.
    NotAPool(Unusable),
}

/// Damage found: what, where, and in which inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corruption {
    /// What is wrong, in words.
    pub what: &'static str,
    /// Offset in the pool, in bytes.
    pub at: u64,
    /// The inode it belongs to, 0 for none.
    pub ino: u64,
}

/// Why a region can't be opened as a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// Neither superblock has the magic.
    NoMagic,
    /// The magic is there, but neither superblock's checksum is right.
    BadSuperblock,
    /// A format version this program does not know.
    Version(u32),
    /// Features this program does not know, and must.
    Features(u64),
    /// Features this program must know to write; read-only is possible.
    ReadOnlyFeatures(u64),
    /// The region is shorter than the pool. Bytes.
    Truncated {
        /// What the superblock says.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// The region is too small to hold any pool. Bytes.
    TooSmall {
        /// The least possible.
        least: u64,
    },
    /// A number in the superblock is impossible.
    Geometry(&'static str),
}

impl Error {
    /// The Linux error number for this error.
    pub fn errno(&self) -> i32 {
        match self {
            Self::DirectoryLink => 1,
            Self::NotFound => 2,
            Self::TooLong => 7,
            Self::Media { .. } | Self::Unwritten | Self::Corrupt(_) | Self::Lost(_) => 5,
            Self::NoMemory => 12,
            Self::Busy | Self::Lent => 16,
            Self::Exists => 17,
            Self::NotDirectory => 20,
            Self::IsDirectory => 21,
            Self::Invalid | Self::NotLent | Self::NotAPool(_) => 22,
            Self::FileTooLarge => 27,
            Self::NoSpace => 28,
            Self::ReadOnly => 30,
            Self::TooManyLinks => 31,
            Self::NameTooLong => 36,
            Self::NotEmpty => 39,
            Self::NoAttribute => 61,
            Self::NotSupported => 95,
            Self::Stale => 116,
            Self::Receiving => 115,
        }
    }

    /// What of the medium is damaged, where that is what went wrong; other errors are handed on.
    pub(crate) fn into_damage(self) -> Result<Corruption> {
        match self {
            Self::Corrupt(damage) | Self::Lost(damage) => Ok(damage),
            Self::Media { at } => Ok(Corruption { what: "uncorrectable media error", at, ino: 0 }),
            other => Err(other),
        }
    }

    /// Damage of `what` at offset `at`, of no particular inode.
    pub(crate) const fn corrupt(what: &'static str, at: u64) -> Self {
        Self::Corrupt(Corruption { what, at, ino: 0 })
    }

    /// Damage of `what` at offset `at` in inode `ino`.
    pub(crate) fn corrupt_inode(what: &'static str, at: u64, ino: u64) -> Self {
        Self::Corrupt(Corruption { what, at, ino })
    }
}

impl From<MediaError> for Error {
    fn from(error: MediaError) -> Self {
        match error {
            MediaError::OutOfBounds { at, .. } => Self::corrupt("pointer outside the pool", at),
            MediaError::Poisoned { at } => Self::Media { at },
            MediaError::Unwritten => Self::Unwritten,
        }
    }
}

impl From<alloc::collections::TryReserveError> for Error {
    fn from(_: alloc::collections::TryReserveError) -> Self {
        Self::NoMemory
    }
}

impl From<hashbrown::TryReserveError> for Error {
    fn from(_: hashbrown::TryReserveError) -> Self {
        Self::NoMemory
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::NotFound => "no such file or directory",
            Self::Exists => "file exists",
            Self::NotDirectory => "not a directory",
            Self::IsDirectory => "is a directory",
            Self::DirectoryLink => "a directory can't have another name",
            Self::Busy => "in use",
            Self::Lent => "memory of the pool is lent to programs",
            Self::NotLent => "that memory is not lent",
            Self::NotEmpty => "directory not empty",
            Self::Invalid => "invalid argument",
            Self::NameTooLong => "name too long (255 bytes at most)",
            Self::FileTooLarge => "file too large",
            Self::NoSpace => "no space left in the pool",
            Self::NoMemory => "out of memory",
            Self::TooManyLinks => "too many links",
            Self::ReadOnly => "the pool is open read-only",
            Self::Receiving => "a snapshot is being received into the pool",
            Self::Stale => "the inode is gone",
            Self::NotSupported => "operation not supported",
            Self::NoAttribute => "no such extended attribute",
            Self::TooLong => "value too long (65536 bytes at most)",
            Self::Media { at } => return write!(f, "uncorrectable media error at offset {at:#x}"),
            Self::Unwritten => "what was written could not be made durable",
            Self::Corrupt(damage) => return damage.fmt(f),
            Self::Lost(damage) => {
                return write!(f, "the memory below lost some of what it had been given: {damage}");
            }
            Self::NotAPool(why) => return why.fmt(f),
        };
        f.write_str(text)
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {:#x}", self.what, self.at)?;
        match (self.ino, ino_beside(self.ino, 0)) {
            (0, _) => Ok(()),
            (ino, now) if ino == now => write!(f, " (inode {ino})"),
            (_, now) => write!(f, " (inode {now}, in a snapshot)"),
        }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMagic => f.write_str("not a Lode pool: no superblock found"),
            Self::BadSuperblock => f.write_str("both superblocks of this pool are damaged"),
            Self::Version(version) => {
                write!(f, "pool has format version {version}, this program knows version 1")
            }
            Self::Features(bits) => write!(f, "pool needs unknown features {bits:#x}"),
            Self::ReadOnlyFeatures(bits) => {
                write!(f, "pool has unknown features {bits:#x} and can only be opened read-only")
            }
            Self::Truncated { expected, found } => {
                write!(f, "pool is truncated: {expected} bytes expected, {found} found")
            }
            Self::TooSmall { least } => {
                write!(f, "too small for a pool: at least {least} bytes are needed")
            }
            Self::Geometry(what) => write!(f, "superblock is impossible: {what}"),
        }
    }
}

impl core::error::Error for Error {}
