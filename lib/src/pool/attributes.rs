//! Attributes, by path.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lode_engine::{Ino, XattrWhen};

use super::Pool;
use crate::access::Engine;
use crate::attributes::set_times;
use crate::error::{Cause, Result};
use crate::metadata::FileTimes;
use crate::pin::pin_found;

impl Pool {
    /// Sets permissions, with the set-id and sticky bits; an access list changes with them.
    ///
    /// # Errors
    /// As `chmod(2)`.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        self.change(path.as_ref(), true, |engine, ino| {
            self.inner.chmod(engine, ino, permissions.mode())
        })
    }

    /// Sets owner and group, if given. A file loses its set-id bits and capabilities.
    ///
    /// # Errors
    /// As `chown(2)`.
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.change(path.as_ref(), true, |engine, ino| self.inner.chown(engine, ino, uid, gid))
    }

    /// The same; of a symbolic link itself.
    ///
    /// # Errors
    /// As `lchown(2)`.
    pub fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.change(path.as_ref(), false, |engine, ino| self.inner.chown(engine, ino, uid, gid))
    }

    /// Sets times.
    ///
    /// # Errors
    /// As `utimensat(2)`.
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        self.change(path.as_ref(), true, |engine, ino| set_times(engine, ino, times))
    }

    /// The same; of a symbolic link itself.
    ///
    /// # Errors
    /// As `utimensat(2)`.
    pub fn set_times_nofollow(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        self.change(path.as_ref(), false, |engine, ino| set_times(engine, ino, times))
    }

    /// The value of an extended attribute, if there is one of this name.
    ///
    /// # Errors
    /// As `getxattr(2)`, but for `ENODATA`.
    pub fn get_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        let name = name.as_ref().as_bytes();
        self.change(path.as_ref(), true, |engine, ino| self.inner.get_xattr(engine, ino, name))
    }

    /// Sets an extended attribute: `user.`, `trusted.`, `security.`, and the access lists
    /// `system.posix_acl_access` and `system.posix_acl_default` in the form that the system has
    /// them.
    ///
    /// # Errors
    /// As `setxattr(2)`.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
    ) -> Result<()> {
        self.set_xattr_when(path, name, value, XattrWhen::Always)
    }

    /// The same, if there is one of this name, or none.
    ///
    /// # Errors
    /// As `setxattr(2)`: `EEXIST`, `ENODATA`.
    pub fn set_xattr_when(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        when: XattrWhen,
    ) -> Result<()> {
        let change = (name.as_ref().as_bytes(), value);
        self.change(path.as_ref(), true, |engine, ino| {
            self.inner.set_xattr(engine, ino, change, when)
        })
    }

    /// The names of all extended attributes, in no stated order.
    ///
    /// # Errors
    /// As `listxattr(2)`.
    pub fn list_xattr(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        self.change(path.as_ref(), true, |engine, ino| {
            Ok(engine.listxattr(ino)?.into_iter().map(OsString::from_vec).collect())
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As `removexattr(2)`: `ENODATA` if there is none.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref().as_bytes();
        self.change(path.as_ref(), true, |engine, ino| self.inner.remove_xattr(engine, ino, name))
    }

    /// Does `work` with the inode that a path leads to.
    fn change<R>(
        &self,
        path: &Path,
        follow: bool,
        work: impl FnOnce(&Engine, Ino) -> std::result::Result<R, Cause>,
    ) -> Result<R> {
        self.call(path, |pass, bytes| {
            let pin = pin_found(pass, bytes, follow)?;
            work(pass, pin.ino())
        })
    }
}
