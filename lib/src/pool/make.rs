//! Making: directories, links, special files.

use std::path::Path;

use lode_engine::{Error as EngineError, NewInode, SYMLINK_MAX, mode};
use lode_posix::{birth, xattrs};

use super::Pool;
use crate::error::{Cause, Result};
use crate::pin::{link as link_to, not_made, parent_of_new, pin_found};

impl Pool {
    /// Makes a directory, with all permissions but the umask's.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with_mode(path, 0o777)
    }

    /// Makes a directory with the permissions and the sticky bit in `mode`, less the umask.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    pub fn create_dir_with_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.make(path.as_ref(), mode::DIRECTORY | mode & 0o1777, 0)
    }

    /// Makes a directory and those above it that are not there: one step each.
    ///
    /// # Errors
    /// As `mkdir(2)`; it is none if the directory is there.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        match self.create_dir_unless_there(path) {
            Err(error) if error.errno() == libc::ENOENT => {
                match path.parent() {
                    Some(above) => self.create_dir_all(above)?,
                    None => return Err(error),
                }
                self.create_dir_unless_there(path)
            }
            done => done,
        }
    }

    fn create_dir_unless_there(&self, path: &Path) -> Result<()> {
        match self.create_dir(path) {
            Err(error) if error.errno() == libc::ENOENT => Err(error),
            Err(error) => match self.metadata(path) {
                Ok(there) if there.is_dir() => Ok(()),
                _ => Err(error),
            },
            Ok(()) => Ok(()),
        }
    }

    /// Makes a FIFO, socket, device or regular file: type and permissions as `mode` says (less the
    /// umask), `device` for devices. Nothing is behind them here.
    ///
    /// # Errors
    /// As `mknod(2)`.
    pub fn mknod(&self, path: impl AsRef<Path>, mode: u32, device: u64) -> Result<()> {
        let path = path.as_ref();
        let kind = match mode & mode::TYPE {
            0 => Ok(mode::FILE),
            mode::FILE | mode::FIFO | mode::SOCKET | mode::CHARACTER | mode::BLOCK => {
                Ok(mode & mode::TYPE)
            }
            mode::DIRECTORY => Err(Cause::Number(libc::EPERM)),
            _ => Err(Cause::Number(libc::EINVAL)),
        };
        let kind = kind.map_err(|cause| crate::Error::at(cause, path))?;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        self.make(path, kind | mode & 0o7777, u64::from(major) << 32 | u64::from(minor))
    }

    fn make(&self, path: &Path, mode: u32, rdev: u64) -> Result<()> {
        let inner = &*self.inner;
        let directory = mode & mode::TYPE == mode::DIRECTORY;
        self.call(path, |pass, bytes| {
            let (dir, name) = parent_of_new(pass, bytes, directory)?;
            let (new, brought) = birth::new_in(pass, &dir.attr, inner.maker, mode, true)?;
            let new = NewInode { rdev, ..new };
            let made = pass.create_in(&dir, name, &new, &xattrs::changes(&brought));
            made.map(drop).map_err(|error| not_made(pass, &dir, name, error))
        })
    }

    /// Makes a symbolic link at `link` to `target`, which need not be there.
    ///
    /// # Errors
    /// As `symlink(2)`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (inner, target) = (&*self.inner, target.as_ref());
        self.call_two((target, link.as_ref()), |pass, target, link| {
            match target.len() {
                0 => return Err(EngineError::NotFound.into()),
                1..=SYMLINK_MAX => {}
                _ => return Err(EngineError::NameTooLong.into()),
            }
            if target.contains(&0) {
                return Err(EngineError::Invalid.into());
            }
            let (dir, name) = parent_of_new(pass, link, false)?;
            let (gid, _) = birth::group_in(&dir.attr, inner.maker.gid);
            let made = pass.symlink_in(&dir, name, target, (inner.maker.uid, gid));
            made.map(drop).map_err(|error| not_made(pass, &dir, name, error))
        })
    }

    /// Gives a file another name, `link`. (Of a symbolic link, the link itself.)
    ///
    /// # Errors
    /// As `link(2)`: `EPERM` for a directory.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.call_two((original.as_ref(), link.as_ref()), |pass, original, link_path| {
            let linked = pin_found(pass, original, false)?;
            link_to(pass, linked.ino(), link_path)
        })
    }
}
