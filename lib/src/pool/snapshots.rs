//! Snapshots: what the whole pool was at a moment.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use lode_engine::{Ino, SnapshotInfo};

use super::look::target_of;
use super::whole::read_all;
use super::{Pool, PoolOptions};
use crate::dir::ReadDir;
use crate::error::{Error, Result};
use crate::file::File;
use crate::metadata::Metadata;
use crate::options::OpenOptions;
use crate::walk::Walk;

impl Pool {
    /// Keeps what is in the pool now, under a name of 1 to 128 bytes without `/`. It takes a moment, and a page or
    /// two: what is changed or removed from then on is kept for it. Of what programs store through maps it has what was stored before.
    ///
    /// # Errors
    /// `EEXIST` for a name that there is; `ENOMEM` where the system can't keep stores out of a map;
    /// `EINVAL` and `ENAMETOOLONG` for names that can't be; `ENOSPC`, `EROFS`.
    pub fn create_snapshot(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.call(Path::new(&name), |pass, name| Ok(pass.create_snapshot(name)?))
    }

    /// Deletes a snapshot. What it alone kept becomes free in the background, or when it is needed. Who has a
    /// file of it open gets `ESTALE`.
    ///
    /// # Errors
    /// `ENOENT` if there is none of this name; `EROFS`.
    pub fn delete_snapshot(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.call(Path::new(&name), |pass, name| Ok(pass.delete_snapshot(name)?))
    }

    /// Makes the pool at `path`, which nobody has open, what it was when the snapshot `name` was made, in one atomic
    /// step. What came later is lost; later snapshots go as well.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// let pool = lode::PoolOptions::new().create(&path, 16 << 20, &Default::default())?;
    /// pool.create_snapshot("before")?;
    /// pool.write("letter", "not meant")?;
    /// pool.close()?;
    /// lode::Pool::rollback(&path, "before")?;
    /// assert!(!lode::Pool::open(&path)?.exists("letter"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`PoolOptions::rollback`].
    pub fn rollback(path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        PoolOptions::new().rollback(path, name)
    }

    /// All snapshots, the oldest first.
    ///
    /// # Errors
    /// `EIO`, `ENOMEM`.
    pub fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        Ok(self.inner.enter()?.snapshots()?)
    }

    /// A snapshot, to look into it.
    ///
    /// # Errors
    /// `ENOENT` if there is none of this name.
    pub fn snapshot(&self, name: impl AsRef<OsStr>) -> Result<Snapshot> {
        let root = self.call(Path::new(&name), |pass, name| Ok(pass.snapshot_root(name)?))?;
        Ok(Snapshot { pool: self.clone(), root })
    }
}

/// What a pool was when a snapshot was made, to look and to read: paths lead to what they led to then.
/// What would change a file of it fails with `EROFS`. It is a clone of the pool to who closes that.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = lode::PoolOptions::new().in_memory(16 << 20)?;
/// pool.write("letter", "first")?;
/// pool.create_snapshot("before")?;
/// pool.write("letter", "second")?;
/// assert_eq!(pool.snapshot("before")?.read("letter")?, b"first");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Snapshot {
    pool: Pool,
    root: Ino,
}

impl Snapshot {
    /// Opens a file to read it.
    ///
    /// # Errors
    /// As `open(2)`; `ENOENT` once the snapshot is deleted.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open(path.as_ref(), OpenOptions::new().read(true))
    }

    /// All that is in a file.
    ///
    /// # Errors
    /// As `open(2)` and `read(2)`; `ENOENT` once the snapshot is deleted.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        read_all(&self.open_file(path)?).map_err(|cause| Error::at(cause, path))
    }

    /// What is known of what a path leads to.
    ///
    /// # Errors
    /// As `stat(2)`; `ENOENT` once the snapshot is deleted.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.look(path.as_ref(), true)
    }

    /// The same; of a symbolic link itself.
    ///
    /// # Errors
    /// As `lstat(2)`; `ENOENT` once the snapshot is deleted.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.look(path.as_ref(), false)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As `readlink(2)`; `ENOENT` once the snapshot is deleted.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.pool.call(path.as_ref(), |pass, bytes| target_of(pass, Some(self.root), bytes))
    }

    /// What is in a directory, in no stated order, without `.` and `..`.
    ///
    /// # Errors
    /// As `opendir(3)`; each entry may be an error, as with `readdir(3)`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        let dir = self.open(path, options.read(true).custom_flags(libc::O_DIRECTORY))?;
        Ok(ReadDir::new(dir, path.to_owned()))
    }

    fn open(&self, path: &Path, options: &OpenOptions) -> Result<File> {
        let inner = &self.pool.inner;
        let open = |bytes: &[u8]| File::open_in_snapshot(inner, self.root, bytes, options);
        self.pool.call(path, |_, bytes| open(bytes))
    }

    fn look(&self, path: &Path, follow: bool) -> Result<Metadata> {
        let device = self.pool.inner.device;
        self.pool.call(path, |pass, bytes| {
            let found = Walk::within(pass, Some(self.root)).find(None, bytes, follow)?;
            Ok(Metadata::new(found.attr, device))
        })
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Snapshot").field(&self.pool).finish()
    }
}
