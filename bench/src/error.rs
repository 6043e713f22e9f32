//! Why there is no report.

use std::io;
use std::path::{Path, PathBuf};

/// Result of a part of a run.
pub type Result<T> = std::result::Result<T, BenchError>;

/// Why there is no report, or a subject is left out of it.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The system said no.
    #[error("{doing} {} failed: {source}", path.display())]
    Io {
        /// What was tried, such as "mounting".
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program did not do what it was started for.
    #[error("{program} failed: {said}")]
    Program {
        /// Which.
        program: String,
        /// What it said.
        said: String,
    },
    /// What is measured would not fit.
    #[error("this takes up to {} MiB of memory, and {} MiB are free", needed >> 20, free >> 20)]
    NoMemory {
        /// Bytes that the subjects may take.
        needed: u64,
        /// Bytes that may be taken.
        free: u64,
    },
    /// None of the subjects can be measured here.
    #[error("nothing that was asked for can be measured here: {0}")]
    NoSubject(String),
    /// A region of memory could not be had.
    #[error(transparent)]
    Region(#[from] lode_pmem::RegionError),
    /// A mount without a pool did not come about.
    #[error(transparent)]
    Mount(#[from] lode_fuse::MountError),
}

impl BenchError {
    /// A system call that failed.
    pub(crate) fn io(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { doing, path: path.to_owned(), source: source.into() }
    }
}
