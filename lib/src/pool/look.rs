//! Looking: metadata, links, directories.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use lode_engine::{Error as EngineError, Ino, mode};

use super::Pool;
use crate::access::Pass;
use crate::canonical::canonical;
use crate::dir::ReadDir;
use crate::error::{Cause, Result};
use crate::metadata::Metadata;
use crate::walk::{TRIES, Walk, is_kind, read_link};

impl Pool {
    /// What is known of what a path leads to.
    ///
    /// # Errors
    /// As `stat(2)`.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.look(path.as_ref(), true)
    }

    /// The same; of a symbolic link itself.
    ///
    /// # Errors
    /// As `lstat(2)`.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.look(path.as_ref(), false)
    }

    fn look(&self, path: &Path, follow: bool) -> Result<Metadata> {
        let inner = &*self.inner;
        self.call(path, |pass, bytes| {
            let found = Walk::new(pass).find(None, bytes, follow)?;
            Ok(Metadata::new(found.attr, inner.device))
        })
    }

    /// Whether a path leads to something. What can't be told counts as no.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.try_exists(path).unwrap_or(false)
    }

    /// Whether a path leads to something.
    ///
    /// # Errors
    /// As `stat(2)`, but for `ENOENT`.
    pub fn try_exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        self.call(path.as_ref(), |pass, bytes| match Walk::new(pass).find(None, bytes, true) {
            Ok(_) => Ok(true),
            Err(cause) if cause.is_absence() => Ok(false),
            Err(cause) => Err(cause),
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As `readlink(2)`: `EINVAL` for what is none.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.call(path.as_ref(), |pass, bytes| target_of(pass, None, bytes))
    }

    /// The path from the root to what `path` leads to, without `.`, `..` and symbolic links.
    ///
    /// # Errors
    /// As `realpath(3)`.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.call(path.as_ref(), |pass, bytes| {
            canonical(pass, bytes).map(|path| OsString::from_vec(path).into())
        })
    }

    /// What is in a directory, in no stated order, without `.` and `..`.
    ///
    /// # Errors
    /// As `opendir(3)`; each entry may be an error, as with `readdir(3)`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let options = &mut crate::options::OpenOptions::new();
        let dir = self.open_with(path, options.read(true).custom_flags(libc::O_DIRECTORY))?;
        Ok(ReadDir::new(dir, path.to_owned()))
    }
}

/// The target of the symbolic link that a path leads to, in the pool or in the snapshot of this root.
pub(super) fn target_of(
    pass: &Pass<'_>,
    snapshot: Option<Ino>,
    path: &[u8],
) -> std::result::Result<PathBuf, Cause> {
    for _ in 0..TRIES {
        let attr = Walk::within(pass, snapshot).find(None, path, false)?.attr;
        if !is_kind(&attr, mode::SYMLINK) {
            return Err(EngineError::Invalid.into());
        }
        if let Some(target) = read_link(pass, &attr)? {
            return Ok(OsString::from_vec(target).into());
        }
    }
    Err(EngineError::NotFound.into())
}
