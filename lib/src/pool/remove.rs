//! Removing: names, directories, whole trees.

use std::path::Path;

use lode_engine::{Error as EngineError, mode};

use super::Pool;
use crate::access::Engine;
use crate::error::{Cause, Result};
use crate::pin::{Pin, parent};
use crate::walk::{Found, Last, TRIES, is_kind};

/// Names that are taken from a directory at a time.
const BATCH: usize = 64;

type Outcome<T> = std::result::Result<T, Cause>;

impl Pool {
    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// As `unlink(2)`: `EISDIR` for a directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.call(path.as_ref(), |pass, bytes| {
            let (dir, last) = parent(pass, bytes)?;
            match last {
                Last::Name { name, slashed: false } => Ok(pass.unlink_in(&dir, name)?),
                Last::Name { name, slashed: true } => {
                    if pass.is_read_only() {
                        return Err(EngineError::ReadOnly.into());
                    }
                    let found = pass.lookup_in(&dir, name)?;
                    let directory = is_kind(&found.attr, mode::DIRECTORY);
                    let wrong = if directory { libc::EISDIR } else { libc::ENOTDIR };
                    Err(Cause::Number(wrong))
                }
                _ => Err(EngineError::IsDirectory.into()),
            }
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.call(path.as_ref(), |pass, bytes| {
            let (dir, last) = parent(pass, bytes)?;
            Ok(pass.rmdir_in(&dir, directory_name(last)?)?)
        })
    }

    /// Removes a directory and all that is in it, one step each; symbolic links are removed, not
    /// followed. If `path` is a symbolic link, that is removed.
    ///
    /// # Errors
    /// As `unlink(2)` and `rmdir(2)`; what was removed before stays so. The root can't be removed
    /// (`EBUSY`), and nothing in it is then.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.call(path.as_ref(), |pass, bytes| {
            let (dir, last) = parent(pass, bytes)?;
            let name = directory_name(last)?;
            let found = pass.lookup_in(&dir, name)?.attr;
            if is_kind(&found, mode::SYMLINK) && !matches!(last, Last::Name { slashed: true, .. }) {
                return Ok(pass.unlink_in(&dir, name)?);
            }
            if !is_kind(&found, mode::DIRECTORY) {
                return Err(EngineError::NotDirectory.into());
            }
            remove_tree(pass, Pin::new(pass, Found::clone(&dir))?, name)
        })
    }
}

/// Removes a directory and all that is in it.
fn remove_tree(engine: &Engine, above: Pin<'_>, name: &[u8]) -> Outcome<()> {
    // The directories on the way down, each with the name of the next.
    let mut way: Vec<(Pin<'_>, Vec<u8>)> = Vec::new();
    let mut next = Some((above, name.to_vec()));
    while let Some((dir, name)) = next.take() {
        match empty(engine, &dir.found, &name)? {
            // There is a directory in it: that first.
            Some((inside, child)) => {
                way.push((dir, name));
                next = Some((inside, child));
            }
            None => next = way.pop(),
        }
    }
    Ok(())
}

/// Removes all files of a directory and then itself; or returns it, with the name of a
/// directory in it.
fn empty<'e>(
    engine: &'e Engine,
    above: &Found,
    name: &[u8],
) -> Outcome<Option<(Pin<'e>, Vec<u8>)>> {
    for _ in 0..TRIES {
        let found = match engine.lookup_in(above, name) {
            Ok(found) => found,
            // Somebody else was faster.
            Err(EngineError::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if !is_kind(&found.attr, mode::DIRECTORY) {
            return absent_is_done(engine.unlink_in(above, name));
        }
        // Kept while it is listed, which goes by its number.
        let dir = match Pin::new(engine, found) {
            Err(cause) if cause.is_stale() => continue,
            pinned => pinned?,
        };
        if let Some(child) = remove_files(engine, dir.ino())? {
            return Ok(Some((dir, child)));
        }
        match engine.rmdir_in(above, name) {
            // Others make what we remove.
            Err(EngineError::NotEmpty | EngineError::NotDirectory) => {}
            done => return absent_is_done(done),
        }
    }
    Err(EngineError::NotEmpty.into())
}

/// Removes what is in a directory, up to the first directory, whose name is returned.
fn remove_files(engine: &Engine, dir: u64) -> Outcome<Option<Vec<u8>>> {
    loop {
        let batch = batch(engine, dir)?;
        if batch.is_empty() {
            return Ok(None);
        }
        for (kind, name) in batch {
            if kind == mode::DIRECTORY {
                return Ok(Some(name));
            }
            match engine.unlink(dir, &name) {
                // It became a directory since: the next batch says so.
                Ok(()) | Err(EngineError::NotFound | EngineError::IsDirectory) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn absent_is_done<T>(done: lode_engine::Result<()>) -> Outcome<Option<T>> {
    match done {
        Ok(()) | Err(EngineError::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Some of what is in a directory, up to the first directory.
fn batch(engine: &Engine, dir: u64) -> Outcome<Vec<(u32, Vec<u8>)>> {
    let mut names: Vec<(u32, Vec<u8>)> = Vec::with_capacity(BATCH);
    engine.readdir(dir, 0, &mut |entry| {
        let enough = |(kind, _): &(u32, Vec<u8>)| *kind == mode::DIRECTORY;
        if names.len() == BATCH || names.last().is_some_and(enough) {
            return false;
        }
        names.push((entry.kind, entry.name.to_vec()));
        true
    })?;
    Ok(names)
}

/// The name of a directory that is to be removed.
fn directory_name(last: Last<'_>) -> Outcome<&[u8]> {
    match last {
        Last::Name { name, .. } => Ok(name),
        Last::Dot => Err(EngineError::Invalid.into()),
        Last::Above => Err(EngineError::NotEmpty.into()),
        Last::Root => Err(Cause::Number(libc::EBUSY)),
    }
}
