//! Attributes, by handle.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;

use lode_engine::XattrWhen;

use super::File;
use crate::attributes::set_times;
use crate::error::Result;
use crate::metadata::{FileTimes, Metadata};

impl File {
    /// What is known of the file.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub fn metadata(&self) -> Result<Metadata> {
        let attr = self.open.enter()?.getattr(self.open.ino)?;
        Ok(Metadata::new(attr, self.open.inner.device))
    }

    /// Sets permissions, with the set-id and sticky bits; an access list changes with them.
    ///
    /// # Errors
    /// As `fchmod(2)`.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        let pass = self.open.enter()?;
        Ok(self.open.inner.chmod(&pass, self.open.ino, permissions.mode())?)
    }

    /// Sets owner and group, if given. A file loses its set-id bits and capabilities.
    ///
    /// # Errors
    /// As `fchown(2)`.
    pub fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let pass = self.open.enter()?;
        Ok(self.open.inner.chown(&pass, self.open.ino, uid, gid)?)
    }

    /// Sets times.
    ///
    /// # Errors
    /// As `futimens(3)`.
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        Ok(set_times(&*self.open.enter()?, self.open.ino, times)?)
    }

    /// The value of an extended attribute, if there is one of this name.
    ///
    /// # Errors
    /// As `fgetxattr(2)`, but for `ENODATA`.
    pub fn get_xattr(&self, name: impl AsRef<OsStr>) -> Result<Option<Vec<u8>>> {
        let pass = self.open.enter()?;
        Ok(self.open.inner.get_xattr(&pass, self.open.ino, name.as_ref().as_bytes())?)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As `fsetxattr(2)`.
    pub fn set_xattr(&self, name: impl AsRef<OsStr>, value: &[u8]) -> Result<()> {
        self.set_xattr_when(name, value, XattrWhen::Always)
    }

    /// The same, if there is one of this name, or none.
    ///
    /// # Errors
    /// As `fsetxattr(2)`: `EEXIST`, `ENODATA`.
    pub fn set_xattr_when(
        &self,
        name: impl AsRef<OsStr>,
        value: &[u8],
        when: XattrWhen,
    ) -> Result<()> {
        let pass = self.open.enter()?;
        let change = (name.as_ref().as_bytes(), value);
        Ok(self.open.inner.set_xattr(&pass, self.open.ino, change, when)?)
    }

    /// The names of all extended attributes, in no stated order.
    ///
    /// # Errors
    /// As `flistxattr(2)`.
    pub fn list_xattr(&self) -> Result<Vec<OsString>> {
        let names = self.open.enter()?.listxattr(self.open.ino)?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As `fremovexattr(2)`: `ENODATA` if there is none.
    pub fn remove_xattr(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let pass = self.open.enter()?;
        Ok(self.open.inner.remove_xattr(&pass, self.open.ino, name.as_ref().as_bytes())?)
    }
}
