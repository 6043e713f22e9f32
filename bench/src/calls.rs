//! What a workload asks of a file system.
//!
//! Every subject answers the same calls for the same paths, by the shortest way it has. What makes
//! a change durable is asked for apart, because it is done at once by some and at great cost by
//! others; a workload asks for it after each change that it times, and a subject whose calls are
//! durable when they return has nothing to do.

use std::io;
use std::path::Path;

use rusqlite::Connection;

pub use crate::name::Name;

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum For {
    /// Reading alone.
    Reading,
    /// Reading and writing.
    Writing,
    /// Writing at its end.
    Appending,
}

/// A file's pages as memory.
pub trait Mapping: Send + Sync + 'static {
    /// Copies what is at `at` there.
    ///
    /// # Errors
    /// Outside of the file.
    fn load(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Stores `bytes`, a line at most and in one line, at `at`; durable when this returns, as far as
    /// the subject knows what that is.
    ///
    /// # Errors
    /// Outside of the file, and where the medium fails.
    fn store(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
}

/// A file system, as far as it is measured. Paths are below its root.
pub trait Calls: Send + Sync + 'static {
    /// An open file, closed when it is dropped.
    type File: Send + Sync + 'static;
    /// An open directory.
    type Dir: Send + Sync + 'static;
    /// A mapped file.
    type Map: Mapping;

    /// Makes a file that is not there, open for reading and writing.
    fn create(&self, at: &Name) -> io::Result<Self::File>;
    /// Opens a file.
    fn open(&self, at: &Name, what_for: For) -> io::Result<Self::File>;
    /// Opens a directory, to make its names durable.
    fn open_dir(&self, at: &Name) -> io::Result<Self::Dir>;
    /// Removes the name of a file.
    fn unlink(&self, at: &Name) -> io::Result<()>;
    /// Makes a directory.
    fn mkdir(&self, at: &Name) -> io::Result<()>;
    /// Removes an empty directory.
    fn rmdir(&self, at: &Name) -> io::Result<()>;
    /// Gives a file another name.
    fn rename(&self, from: &Name, to: &Name) -> io::Result<()>;
    /// Looks at what a path leads to; returns its size.
    fn stat(&self, at: &Name) -> io::Result<u64>;
    /// Lists a directory wholly: opens, reads, closes it; returns the number of names.
    fn list(&self, at: &Name) -> io::Result<u64>;
    /// Reads all of `into` from `at` on.
    fn read_at(&self, file: &Self::File, at: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` from `at` on.
    fn write_at(&self, file: &Self::File, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Writes all of `bytes` behind the end of a file opened for that.
    fn append(&self, file: &Self::File, bytes: &[u8]) -> io::Result<()>;
    /// Cuts a file, or makes it longer.
    fn set_len(&self, file: &Self::File, bytes: u64) -> io::Result<()>;
    /// Makes a file's contents and attributes durable.
    fn persist(&self, file: &Self::File) -> io::Result<()>;
    /// Makes a directory's names durable.
    fn persist_names(&self, dir: &Self::Dir) -> io::Result<()>;
    /// Maps a file, wholly, to be read and written.
    fn map(&self, at: &Name) -> io::Result<Self::Map>;
    /// Has everything written that is not yet durable.
    fn settle(&self) -> io::Result<()>;

    /// Where other programs find it; nowhere unless said otherwise.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// A database in the file `at`; none where SQLite does not get there.
    fn database(&self, at: &Name) -> io::Result<Option<Connection>> {
        let Some(path) = self.path() else { return Ok(None) };
        Connection::open(path.join(at.as_path())).map(Some).map_err(io::Error::other)
    }
}
