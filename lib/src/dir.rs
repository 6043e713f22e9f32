//! Listings.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Cause, Error, Result};
use crate::file::File;
use crate::metadata::{FileType, Metadata};

/// Entries that are taken from the pool at a time.
const BATCH: usize = 64;

/// The entries of a directory, which stays open. What is made or removed meanwhile may be met or
/// not; all else is met once.
pub struct ReadDir {
    dir: Arc<Listed>,
    /// Behind which entry the next batch begins.
    cookie: u64,
    batch: VecDeque<Held>,
    ended: bool,
}

/// A directory that is listed.
struct Listed {
    file: File,
    path: PathBuf,
}

struct Held {
    ino: u64,
    kind: u32,
    name: OsString,
}

impl ReadDir {
    pub(crate) fn new(file: File, path: PathBuf) -> Self {
        let dir = Arc::new(Listed { file, path });
        Self { dir, cookie: 0, batch: VecDeque::with_capacity(BATCH), ended: false }
    }

    fn fill(&mut self) -> std::result::Result<(), Cause> {
        let (batch, cookie) = (&mut self.batch, &mut self.cookie);
        let mut full = false;
        self.dir.file.list(*cookie, &mut |entry| {
            full = batch.len() == BATCH;
            if !full {
                let name = OsString::from_vec(entry.name.to_vec());
                batch.push_back(Held { ino: entry.ino, kind: entry.kind, name });
                *cookie = entry.cookie;
            }
            !full
        })?;
        self.ended = !full;
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if self.batch.is_empty()
            && !self.ended
            && let Err(cause) = self.fill()
        {
            self.ended = true;
            return Some(Err(Error::at(cause, &self.dir.path)));
        }
        let held = self.batch.pop_front()?;
        Some(Ok(DirEntry { dir: Arc::clone(&self.dir), held }))
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.dir.path).finish()
    }
}

/// An entry of a directory.
pub struct DirEntry {
    dir: Arc<Listed>,
    held: Held,
}

impl DirEntry {
    /// The directory's path, as it was given, and the name.
    pub fn path(&self) -> PathBuf {
        self.dir.path.join(&self.held.name)
    }

    /// The name.
    pub fn file_name(&self) -> OsString {
        self.held.name.clone()
    }

    /// The name, borrowed.
    pub fn file_name_ref(&self) -> &OsStr {
        &self.held.name
    }

    /// What kind of inode it names.
    pub fn file_type(&self) -> FileType {
        FileType::of_mode(self.held.kind)
    }

    /// Number of the inode that it names.
    pub fn ino(&self) -> u64 {
        self.held.ino
    }

    /// What is known of what it names now; of a symbolic link itself.
    ///
    /// # Errors
    /// As `lstat(2)`.
    pub fn metadata(&self) -> Result<Metadata> {
        let found = self.dir.file.look_in(self.held.name.as_bytes());
        found.map_err(|cause| Error::at(cause, Path::new(&self.path())))
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
