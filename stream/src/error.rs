//! What can go wrong while a snapshot is sent or received: what, and where.

use std::io;

use lode_engine::Error as Engine;

/// Result of a part of sending or receiving.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a snapshot was not sent, or not received.
#[derive(thiserror::Error, Debug)]
pub enum Error {
    /// A pool could not do what was asked of it.
    #[error("{doing} {path}: {source}")]
    Pool {
        /// What was tried.
        doing: &'static str,
        /// With what, in the pool.
        path: String,
        /// Why not.
        source: Engine,
    },
    /// There is no snapshot of this name.
    #[error("there is no snapshot {0}")]
    Absent(String),
    /// A snapshot that is being sent was deleted.
    #[error("snapshot {0} was deleted while it was needed")]
    Deleted(String),
    /// The stream could not be read.
    #[error("reading the stream failed: {0}")]
    Read(#[from] io::Error),
    /// The stream ended too early.
    #[error("the stream ends at {offset}, before its end")]
    Cut {
        /// How far it was received: where the stream is to go on.
        offset: u64,
    },
    /// Somebody wants no more of it.
    #[error("interrupted at {offset}")]
    Interrupted {
        /// How far it was received: where the stream is to go on.
        offset: u64,
    },
    /// These are other bytes.
    #[error("this is not a stream of `lode send`")]
    NotAStream,
    /// A stream that only a newer program knows.
    #[error("the stream has version {0}, this program knows version 1")]
    Version(u32),
    /// The stream is not as it was sent.
    #[error("the stream is damaged at {offset}: {what}")]
    Damaged {
        /// Where, in bytes from its beginning.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// What the stream says can't be done.
    #[error("the stream asks for what can't be, at {offset}: {what}")]
    Impossible {
        /// Where, in bytes from its beginning.
        offset: u64,
        /// What.
        what: &'static str,
    },
    /// The stream is a difference to a snapshot that is not there.
    #[error("the stream begins at a snapshot that the pool does not have")]
    NoOlder,
    /// A whole snapshot is only received into an empty pool.
    #[error("the pool is not empty")]
    NotEmpty,
    /// The pool was changed since the snapshot that the stream begins at.
    #[error("the pool was changed since snapshot {older}: {what}")]
    Changed {
        /// That snapshot.
        older: String,
        /// What is different, for one.
        what: String,
    },
    /// The pool has another snapshot of this name.
    #[error("the pool has another snapshot {0}")]
    NameTaken(String),
    /// Something else is being received.
    #[error("snapshot {0} is being received, and this is another stream")]
    OtherStream(String),
    /// The stream goes on from somewhere, and nothing is being received.
    #[error("the stream does not begin at its beginning, and nothing is being received")]
    NothingBegun,
    /// What follows the end of a stream is no stream.
    #[error("what comes behind the end of the stream is not a stream of `lode send`")]
    Behind,
    /// A path is too long for a stream.
    #[error("a path of {bytes} bytes can't be sent, 65535 are the most: {path}...")]
    PathTooLong {
        /// How it begins.
        path: String,
        /// How long it is.
        bytes: usize,
    },
}

/// Bytes of a path that a message has.
const SHOWN: usize = 200;

/// A path for a message.
pub(crate) fn shown(path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path.get(..SHOWN).unwrap_or(path));
    let path: String = path.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("/{path}")
}

/// Says what was tried with which path of a pool.
pub(crate) trait Doing<T> {
    /// With `path` as it is in the stream.
    fn doing(self, doing: &'static str, path: &[u8]) -> Result<T>;
}

impl<T> Doing<T> for std::result::Result<T, Engine> {
    fn doing(self, doing: &'static str, path: &[u8]) -> Result<T> {
        self.map_err(|source| Error::Pool { doing, path: shown(path), source })
    }
}
