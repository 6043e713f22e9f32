//! Files as wholes: reading, writing, copying.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::Pool;
use crate::error::{Cause, Error, Result};
use crate::file::File;
use crate::options::OpenOptions;

impl Pool {
    /// All that is in a file.
    ///
    /// # Errors
    /// As `open(2)` and `read(2)`.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let file = self.open_file(path)?;
        read_all(&file).map_err(|cause| Error::at(cause, path))
    }

    /// All that is in a file, which has to be UTF-8.
    ///
    /// # Errors
    /// As [`Pool::read`]; [`std::io::ErrorKind::InvalidData`] for what is no text.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?).map_err(|_| Error::at(Cause::NotText, path))
    }

    /// Makes `contents` all that is in a file, which is made if it is not there.
    ///
    /// As in std that is several steps: the file is made or emptied, then written, in one atomic
    /// write if there is room. A file that is to be there whole or not at all is written
    /// with [`Pool::temporary`] or under another name first.
    ///
    /// # Errors
    /// As `open(2)` and `write(2)`.
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let file = self.create_file(path)?;
        file.write_all_at_end(contents.as_ref()).map_err(|cause| Error::at(cause, path))
    }

    /// Copies what is in a file to another one, which is made or emptied, and its permissions. Holes
    /// stay holes. Returns the size. A file that is copied to itself stays as it is (in std
    /// it is emptied).
    ///
    /// # Errors
    /// As `open(2)`, `read(2)` and `write(2)`; `EINVAL` for what is no file.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.open_file(from)?;
        let found = source.metadata()?;
        if !found.is_file() {
            return Err(Error::at(Cause::Number(libc::EINVAL), from));
        }
        let permissions = found.permissions();
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(permissions.mode() & 0o7777);
        let target = self.open_with(to, &options)?;
        if target.is_same(&source) {
            return Ok(found.len());
        }
        let copied = || -> Result<u64> {
            target.set_len(0)?;
            target.set_permissions(permissions)?;
            source.copy_data(&target)
        };
        copied().map_err(|error| error.about(from, to))
    }
}

pub(super) fn read_all(file: &File) -> std::result::Result<Vec<u8>, Cause> {
    let mut all = Vec::new();
    let no_memory = |_| Cause::Engine(lode_engine::Error::NoMemory);
    loop {
        // Once more than that is read to see the end.
        let size = file.len_or_cause()?.saturating_add(1);
        let done = all.len();
        let more = usize::try_from(size).unwrap_or(usize::MAX).saturating_sub(done).max(4096);
        all.try_reserve_exact(more).map_err(no_memory)?;
        all.resize(done + more, 0);
        let read = file.read_some_at(all.get_mut(done..).unwrap_or_default(), done as u64)?;
        all.truncate(done + read);
        if read < more {
            return Ok(all);
        }
    }
}
