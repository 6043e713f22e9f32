//! Making with permissions of one's own, as the system's calls have it.

use std::path::Path;

use lode_engine::mode;
use lode_posix::{birth, xattrs};

use super::Pool;
use crate::error::Result;
use crate::file::File;

impl Pool {
    /// Makes a directory with the permissions and the sticky bit in `mode`, less the umask.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    pub fn create_dir_with_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let inner = &*self.inner;
        self.call(path.as_ref(), |pass, bytes| {
            let (dir, name) = inner.pin_for_new(pass, bytes, true)?;
            let mode = mode::DIRECTORY | mode & 0o1777;
            let (new, brought) = birth::new_in(pass, &dir.attr, inner.maker, mode, true)?;
            let made = pass.create_with(dir.ino(), name, &new, &xattrs::changes(&brought));
            made.map(drop).map_err(|error| inner.not_made(pass, dir.ino(), name, error))
        })
    }

    /// As [`Pool::temporary`], with permissions `mode`, less the umask.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn temporary_with_mode(&self, dir: impl AsRef<Path>, mode: u32) -> Result<File> {
        self.call(dir.as_ref(), |_, bytes| File::temporary_with_mode(&self.inner, bytes, mode))
    }
}
