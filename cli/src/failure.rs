//! What can go wrong for a user of the command: what is wrong, where, and what to do next.
//!
//! Guarantee: each kind of failure has one exit code of its own, for good. The codes are
//! listed in `docs/json.md`; `fsck` has the codes of fsck programs instead.

use std::fmt;
use std::io;
use std::path::Path;

use lode_engine::{Error, Unusable};
use serde::{Deserialize, Serialize};

/// Result of a part of a command.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Kinds of failure, by what a caller can do about them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Something else: the system said no.
    Failed,
    /// The command line makes no sense.
    Usage,
    /// The file or device holds no pool.
    NotAPool,
    /// The pool is damaged.
    Corrupt,
    /// The pool needs a newer program.
    Unsupported,
    /// The pool or the directory is in use.
    Busy,
    /// No space: in the pool, or below it.
    NoSpace,
    /// A file, directory, inode or path is not there.
    NotFound,
    /// The system does not allow it.
    Denied,
    /// Something is there already and would be lost.
    Exists,
    /// Nothing is mounted there.
    NotMounted,
}

impl Kind {
    /// Every kind, in the order of the exit codes.
    #[cfg(test)]
    pub(crate) const ALL: [Kind; 11] = [
        Kind::Failed,
        Kind::Usage,
        Kind::NotAPool,
        Kind::Corrupt,
        Kind::Unsupported,
        Kind::Busy,
        Kind::NoSpace,
        Kind::NotFound,
        Kind::Denied,
        Kind::Exists,
        Kind::NotMounted,
    ];

    /// The exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::NotAPool => 3,
            Kind::Corrupt => 4,
            Kind::Unsupported => 5,
            Kind::Busy => 6,
            Kind::NoSpace => 7,
            Kind::NotFound => 8,
            Kind::Denied => 9,
            Kind::Exists => 10,
            Kind::NotMounted => 11,
        }
    }

    /// The exit code under the name `fsck.lode` and of `lode fsck`.
    pub(crate) const fn fsck_code(self) -> u8 {
        match self {
            Kind::Usage => 16,
            Kind::Corrupt => 4,
            _ => 8,
        }
    }

    /// The exit code under the name `mount.fuse.lode`, which mount(8) hands on.
    pub(crate) const fn mount_code(self) -> u8 {
        match self {
            Kind::Usage | Kind::Denied => 1,
            _ => 32,
        }
    }
}

/// A failure as the user sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The kind, which decides the exit code.
    pub(crate) kind: Kind,
    /// What is wrong, one sentence without its full stop.
    pub(crate) what: String,
    /// The file, directory or offset it is about.
    #[serde(rename = "where")]
    pub(crate) place: Option<String>,
    /// What to do next.
    pub(crate) advice: Option<String>,
}

impl Failure {
    /// A failure without a place or advice.
    pub(crate) fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), place: None, advice: None }
    }

    /// The same, about `place`.
    pub(crate) fn at(mut self, place: &Path) -> Self {
        self.place = Some(place.display().to_string());
        self
    }

    /// The same, with what to do next.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// A usage error.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(Kind::Usage, what)
    }

    /// A failed system call: `doing` says what was tried ("opening the pool").
    pub(crate) fn io(doing: &str, place: &Path, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => Kind::NotFound,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::Denied,
            io::ErrorKind::AlreadyExists => Kind::Exists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::NoSpace,
            io::ErrorKind::ResourceBusy => Kind::Busy,
            _ => Kind::Failed,
        };
        let advice = match kind {
            _ if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Some(
                "the file system there is read-only: a pool on it can be mounted with `-o ro`, and looked at",
            ),
            Kind::NotFound => Some("check the path; `lode mkfs POOL --size 1G` makes a new pool"),
            Kind::Denied => Some("check the permissions, or run as the owner or as root"),
            Kind::NoSpace => Some("free space there, choose a smaller --size, or another place"),
            _ => None,
        };
        let failure = Self::new(kind, format!("{doing} failed: {error}")).at(place);
        match advice {
            Some(advice) => failure.advise(advice),
            None => failure,
        }
    }

    /// An error of the engine about the pool at `pool`.
    pub(crate) fn engine(pool: &Path, error: &Error) -> Self {
        let text = error.to_string();
        let failure = match error {
            Error::NotAPool(why) => return Self::unusable(pool, *why),
            Error::Corrupt(_) | Error::Lost(_) | Error::Media { .. } => Self::new(Kind::Corrupt, text)
                .advise("`lode fsck -n POOL` lists damage of metadata, `lode scrub -n POOL` that of files, too; `-o ro` mounts what can be read"),
            Error::NoSpace => Self::new(Kind::NoSpace, text)
                .advise("delete files, or make a larger pool with `lode mkfs --size`"),
            Error::NotFound => Self::new(Kind::NotFound, text).advise("check the path in the pool"),
            Error::Receiving => Self::new(Kind::Busy, text).advise(
                "`lode receive POOL` goes on with it, `lode receive --abandon POOL` makes the pool what it was; `-o ro` mounts that",
            ),
            Error::NoMemory => {
                Self::new(Kind::Failed, text).advise("the machine has too little free memory")
            }
            Error::Invalid => Self::new(Kind::Usage, text),
            _ => Self::new(Kind::Failed, text),
        };
        failure.at(pool)
    }

    /// The same for who asked for a check: a new pool would overwrite what is left of the old one.
    pub(crate) fn of_fsck(self) -> Self {
        let makes_pool = self.advice.as_deref().is_some_and(|advice| advice.contains("lode mkfs"));
        match self.kind {
            Kind::NotAPool | Kind::NotFound if makes_pool => {
                self.advise("check the path; if a pool was there, restore it from a copy")
            }
            _ => self,
        }
    }

    fn unusable(pool: &Path, why: Unusable) -> Self {
        let (kind, advice) = match why {
            Unusable::NoMagic => (
                Kind::NotAPool,
                "check the path; if nothing there is needed, `lode mkfs POOL` makes a pool",
            ),
            Unusable::BadSuperblock | Unusable::Geometry(_) => {
                (Kind::Corrupt, "restore the pool from a copy; `lode dump POOL` shows what is left")
            }
            Unusable::Version(_) | Unusable::Features(_) => {
                (Kind::Unsupported, "use the version of lode that made this pool, or a newer one")
            }
            Unusable::ReadOnlyFeatures(_) => (Kind::Unsupported, "mount it with -o ro"),
            Unusable::Truncated { .. } => (
                Kind::Corrupt,
                "the end of the file is missing: restore the pool from a copy that is complete",
            ),
            Unusable::TooSmall { .. } => {
                (Kind::NotAPool, "check the path; `lode mkfs POOL --size 1G` makes a new pool")
            }
        };
        Self::new(kind, why.to_string()).at(pool).advise(advice)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.what)?;
        if let Some(advice) = &self.advice {
            write!(f, "\n  what to do: {advice}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_distinct() {
        for (index, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(usize::from(kind.code()), index + 1, "{kind:?}");
        }
    }

    #[test]
    fn a_failure_says_what_where_and_what_to_do() {
        let failure = Failure::engine(Path::new("/p"), &Error::NotAPool(Unusable::NoMagic));
        let text = failure.to_string();
        assert!(text.starts_with("/p: not a Lode pool"), "{text}");
        assert!(text.contains("what to do: "), "{text}");
        assert_eq!(failure.kind, Kind::NotAPool);
    }

    #[test]
    fn codes_are_those_of_the_documentation() {
        let page = include_str!("../../docs/json.md");
        for kind in Kind::ALL {
            let name = serde_json::to_value(kind).unwrap();
            let row = format!("| {} | `{}` |", kind.code(), name.as_str().unwrap());
            assert!(page.contains(&row), "docs/json.md lacks the row {row}");
        }
    }
}
