//! Open files.

mod attributes;
mod data;
mod open;
mod position;
mod space;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use lode_engine::{DirEntry, Handle, Ino};
use lode_host::StdHost;
use parking_lot::Mutex;

use crate::access::Pass;
use crate::error::{Cause, Error, Result};
use crate::hand::{Hand, Hands};
use crate::map::Asked;
use crate::metadata::Metadata;
use crate::options::Wish;
use crate::pin::link;

/// An open file, or directory. It keeps its contents, named or not, and the pool open.
///
/// What stands at an offset ([`File::read_at`], [`File::write_at`], ...) may be called from
/// many threads. What moves the position (the traits `Read`, `Write` and `Seek`) may be too:
/// the position is one, also with [`File::try_clone`], and each call moves it as a whole.
pub struct File {
    pub(crate) open: Arc<Open>,
}

/// What all clones of a file share.
pub(crate) struct Open {
    inner: Arc<Hand>,
    /// There until it is dropped.
    held: Option<Handle<StdHost>>,
    ino: Ino,
    read: bool,
    write: bool,
    append: bool,
    /// Reads do not move the access time.
    quiet: bool,
    /// It has no name, and gets none.
    stays_nameless: bool,
    position: Mutex<u64>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Where the pool can't be trusted any more there is nothing to give back.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if let (Ok(pass), Some(held)) = (self.inner.enter(), self.held.take()) {
                pass.let_go(held);
            }
        }));
    }
}

impl File {
    /// An inode that is held, to be let go when the file is dropped.
    fn over(inner: &Hands, held: Handle<StdHost>, wish: &Wish) -> Self {
        let Wish { read, write, append, quiet, .. } = *wish;
        let stays_nameless = wish.nameless && wish.exclusive;
        let (position, ino, held) = (Mutex::new(0), held.ino(), Some(held));
        let inner = inner.here();
        let open = Open { inner, held, ino, read, write, append, quiet, stays_nameless, position };
        Self { open: Arc::new(open) }
    }

    /// Another handle of the same opening: it shares the position.
    ///
    /// # Errors
    /// None; as std has it.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self { open: Arc::clone(&self.open) })
    }

    /// Gives the file a (further) name; a file without one keeps all that was written.
    ///
    /// # Errors
    /// As `linkat(2)`: `ENOENT` for a file whose last name was removed, or that was made without a name
    /// with `O_EXCL`; `EPERM` for a directory.
    pub fn link(&self, path: impl AsRef<Path>) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let path = path.as_ref();
        if self.open.stays_nameless {
            return Err(Error::at(Cause::Number(libc::ENOENT), path));
        }
        let (pass, ino) = (self.open.inner.enter(), self.open.ino);
        let linked = pass.and_then(|pass| link(&pass, ino, path.as_os_str().as_bytes()));
        linked.map_err(|cause| Error::at(cause, path))
    }

    /// Whether both are openings of the same inode.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.open.inner.is_on_that_of(&other.open.inner) && self.open.ino == other.open.ino
    }

    /// Lists what is in a directory, see [`lode_engine::Pool::readdir`].
    pub(crate) fn list(
        &self,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> std::result::Result<(), Cause> {
        Ok(self.open.enter()?.readdir(self.open.ino, cookie, each)?)
    }

    /// What is known of a name in a directory.
    pub(crate) fn look_in(&self, name: &[u8]) -> std::result::Result<Metadata, Cause> {
        let attr = self.open.enter()?.lookup(self.open.ino, name)?;
        Ok(Metadata::new(attr, self.open.inner.device))
    }
}

impl Open {
    #[inline]
    pub(crate) fn enter(&self) -> std::result::Result<Pass<'_>, Cause> {
        self.inner.enter()
    }

    /// Who answers the stores to maps of the pool.
    pub(crate) fn stores(&self) -> std::result::Result<Arc<Asked>, Cause> {
        self.inner.stores()
    }

    /// Number of the inode.
    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }

    #[inline]
    pub(crate) fn held(&self) -> std::result::Result<&Handle<StdHost>, Cause> {
        self.held.as_ref().ok_or(Cause::Number(libc::EBADF))
    }

    #[inline]
    pub(crate) fn readable(&self) -> std::result::Result<Pass<'_>, Cause> {
        if self.read { self.enter() } else { Err(Cause::Number(libc::EBADF)) }
    }

    #[inline]
    pub(crate) fn writable(&self) -> std::result::Result<Pass<'_>, Cause> {
        if self.write { self.enter() } else { Err(Cause::Number(libc::EBADF)) }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Open { ino, read, write, append, .. } = &*self.open;
        f.debug_struct("File")
            .field("ino", ino)
            .field("read", read)
            .field("write", write)
            .field("append", append)
            .finish()
    }
}
