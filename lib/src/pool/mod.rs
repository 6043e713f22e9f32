//! An open pool, and the calls by path.

mod attributes;
mod look;
mod make;
mod names;
mod options;
mod remove;
mod snapshots;
mod whole;

pub use options::{FormatOptions, PoolOptions};
pub use snapshots::Snapshot;

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use lode_engine::{Opening, PoolInfo, StatFs, Stats};
use lode_pmem::{Durability, MappedPages};

use crate::access::Pass;
use crate::error::{Cause, Error, Result};
use crate::file::File;
use crate::hand::Hands;
use crate::inner::Inner;
use crate::options::OpenOptions;

/// An open pool. Clones are the same pool: it is closed when the last of them is dropped, and the
/// last of its open files.
///
/// Paths begin at the pool's root, whether or not they begin with `/`. All calls may be made from
/// many threads at a time; each is atomic and durable when it returns, unless it says otherwise.
#[derive(Clone)]
pub struct Pool {
    pub(crate) inner: Arc<Hands>,
}

impl Pool {
    pub(crate) fn over(inner: Inner) -> Self {
        Self { inner: Arc::new(Hands::new(inner)) }
    }

    /// Opens the pool at `path`, read-write.
    ///
    /// # Errors
    /// Those of [`PoolOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        PoolOptions::new().open(path)
    }

    /// Closes the pool: the next opening has nothing to recover. (So it is when it is dropped, but
    /// then nobody is told of an error.)
    ///
    /// # Errors
    /// `EBUSY` while there are other clones or open files: the pool is closed when the last of them is
    /// dropped. Whatever the error, nothing that was acknowledged is lost.
    pub fn close(self) -> Result<()> {
        let inner = Arc::try_unwrap(self.inner).ok().and_then(Hands::let_go);
        let mut inner = inner.ok_or(Cause::InUse)?;
        Ok(inner.close()?)
    }

    /// Opens a file to read it.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, OpenOptions::new().read(true))
    }

    /// Opens a file to write it, made if it is not there, emptied if it is.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, OpenOptions::new().write(true).create(true).truncate(true))
    }

    /// Makes a file to read and write it, which must not be there yet.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, OpenOptions::new().read(true).write(true).create_new(true))
    }

    /// Opens a file as `options` say.
    ///
    /// # Errors
    /// As `open(2)`; `ENXIO` for devices, FIFOs and sockets, behind which there is nothing here.
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        self.call(path.as_ref(), |_, bytes| File::open(&self.inner, bytes, options))
    }

    /// Makes a regular file without a name, for reading and writing: `O_TMPFILE`. It ends when it is
    /// closed, or by a crash, unless [`File::link`] gives it a name, with all that was written.
    /// `dir` is the directory whose group and access list it inherits.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn temporary(&self, dir: impl AsRef<Path>) -> Result<File> {
        self.temporary_with_mode(dir, 0o666)
    }

    /// The same with permissions `mode`, less the umask.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn temporary_with_mode(&self, dir: impl AsRef<Path>, mode: u32) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(mode).custom_flags(libc::O_TMPFILE);
        self.open_with(dir, &options)
    }

    /// Space and inodes, used and free.
    ///
    /// # Errors
    /// `EIO` after a panic.
    pub fn statfs(&self) -> Result<StatFs> {
        Ok(self.inner.enter()?.statfs())
    }

    /// What the pool says of itself.
    ///
    /// # Errors
    /// `ENOMEM`, `EIO` after a panic.
    pub fn info(&self) -> Result<PoolInfo> {
        Ok(self.inner.enter()?.info()?)
    }

    /// Exact counts since the pool was opened.
    ///
    /// # Errors
    /// `EIO` after a panic.
    pub fn stats(&self) -> Result<Stats> {
        Ok(self.inner.enter()?.stats())
    }

    /// How the pool was found when it was opened.
    ///
    /// # Errors
    /// `EIO` after a panic.
    pub fn opening(&self) -> Result<Opening> {
        Ok(self.inner.enter()?.opening())
    }

    /// What a crash leaves of what was done.
    ///
    /// # Errors
    /// `EIO` after a panic.
    pub fn durability(&self) -> Result<Durability> {
        Ok(self.inner.enter()?.medium().durability())
    }

    /// By what pages the kernel has mapped what has been used of the pool so far. `None` where it does not tell.
    ///
    /// # Errors
    /// `EIO` after a panic.
    pub fn mapped_pages(&self) -> Result<Option<MappedPages>> {
        Ok(self.inner.enter()?.medium().mapped_pages())
    }

    /// What the pool lies on: its kind, how stores reach it, what guards it, what a fence is worth,
    /// as text.
    ///
    /// # Errors
    /// `EIO` after a panic.
    pub fn region(&self) -> Result<String> {
        Ok(self.inner.enter()?.medium().to_string())
    }

    /// Whether changes are refused: asked for when it was opened, or because the medium failed
    /// since.
    ///
    /// # Errors
    /// `EIO` after a panic.
    pub fn is_read_only(&self) -> Result<bool> {
        Ok(self.inner.enter()?.is_read_only())
    }

    /// Whether overwrites may be torn by a crash: asked for when it was opened ([`PoolOptions::relaxed`]).
    ///
    /// # Errors
    /// `EIO` after a panic.
    pub fn is_relaxed(&self) -> Result<bool> {
        Ok(self.inner.enter()?.is_relaxed())
    }

    /// Whether both are the same opening of a pool, as clones are.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Nothing to do: what has returned is durable. Says whether the pool is still all right.
    ///
    /// # Errors
    /// `EIO` after a panic, or where the medium has failed.
    pub fn sync(&self) -> Result<()> {
        let pass = self.inner.enter()?;
        Ok(pass.fsync(pass.root())?)
    }

    /// Does `work` with a path; its error names the path.
    #[inline]
    fn call<R>(
        &self,
        path: &Path,
        work: impl FnOnce(&Pass<'_>, &[u8]) -> std::result::Result<R, Cause>,
    ) -> Result<R> {
        let done = self.inner.enter().and_then(|pass| work(&pass, path.as_os_str().as_bytes()));
        done.map_err(|cause| Error::at(cause, path))
    }

    /// Does `work` with two paths; its error names both.
    fn call_two<R>(
        &self,
        (one, other): (&Path, &Path),
        work: impl FnOnce(&Pass<'_>, &[u8], &[u8]) -> std::result::Result<R, Cause>,
    ) -> Result<R> {
        let bytes = (one.as_os_str().as_bytes(), other.as_os_str().as_bytes());
        let done = self.inner.enter().and_then(|pass| work(&pass, bytes.0, bytes.1));
        done.map_err(|cause| Error::between(cause, one, other))
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let region = self.region().unwrap_or_default();
        f.debug_tuple("Pool").field(&region).finish()
    }
}
