//! Changes of attributes, alike for paths and open files. Who has an inode pinned or open asks.
//!
//! Some change by what was before: the mode with the access list, the set-id bits with the owner.
//! Those of one inode go one after the other.

use lode_engine::{Attr, Error, Ino, SetAttr, XattrWhen, mode};
use lode_posix::rights::{change_without_capability, set_ids};
use lode_posix::xattrs::{self, Kind, kind_of};

use crate::access::Engine;
use crate::error::Cause;
use crate::inner::Inner;
use crate::metadata::{FileTimes, ns_of};
use crate::walk::is_kind;

impl Inner {
    /// Changes permissions, and the access list with them.
    pub(crate) fn chmod(&self, engine: &Engine, ino: Ino, bits: u32) -> Result<(), Cause> {
        let _alone = self.attributes(ino);
        let bits = bits & 0o7777;
        let brought = xattrs::brought_by_mode(engine, &engine.getattr(ino)?, bits)?;
        let changes = SetAttr { mode: Some(bits), ..SetAttr::default() };
        engine.setattr_with(ino, &changes, &xattrs::changes(&brought))?;
        Ok(())
    }

    /// Changes owner and group; a file loses its set-id bits and capabilities.
    pub(crate) fn chown(
        &self,
        engine: &Engine,
        ino: Ino,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), Cause> {
        let _alone = self.attributes(ino);
        let attr = engine.getattr(ino)?;
        let mut changes = SetAttr { uid, gid, ..SetAttr::default() };
        if is_kind(&attr, mode::DIRECTORY) {
            engine.setattr(ino, &changes)?;
            return Ok(());
        }
        let kept = attr.mode & !set_ids(attr.mode);
        changes.mode = (kept != attr.mode).then_some(kept);
        change_without_capability(engine, &attr, &changes)?;
        Ok(())
    }

    /// The value of an extended attribute, if there is one of this name.
    pub(crate) fn get_xattr(
        &self,
        engine: &Engine,
        ino: Ino,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>, Cause> {
        check_length(name)?;
        kind_of(name)?;
        match engine.getxattr(ino, name) {
            Ok(value) => Ok(Some(value)),
            Err(Error::NoAttribute) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets an extended attribute.
    pub(crate) fn set_xattr(
        &self,
        engine: &Engine,
        ino: Ino,
        (name, value): (&[u8], &[u8]),
        when: XattrWhen,
    ) -> Result<(), Cause> {
        check_length(name)?;
        let kind = kind_of(name)?;
        let _alone = (kind == Kind::Access).then(|| self.attributes(ino));
        may_have(&engine.getattr(ino)?, name, kind)?;
        // Who has opened the pool may do everything.
        Ok(xattrs::set(engine, ino, (name, value), when, |_| true)?)
    }

    /// Removes an extended attribute.
    pub(crate) fn remove_xattr(&self, engine: &Engine, ino: Ino, name: &[u8]) -> Result<(), Cause> {
        check_length(name)?;
        let _alone = (kind_of(name)? == Kind::Access).then(|| self.attributes(ino));
        Ok(xattrs::remove(engine, ino, name)?)
    }
}

/// Changes times.
pub(crate) fn set_times(engine: &Engine, ino: Ino, times: FileTimes) -> Result<(), Cause> {
    let changes = SetAttr {
        atime_ns: times.accessed.map(ns_of),
        mtime_ns: times.modified.map(ns_of),
        ..SetAttr::default()
    };
    engine.setattr(ino, &changes)?;
    Ok(())
}

/// Names that are none have an error of their own.
fn check_length(name: &[u8]) -> Result<(), Cause> {
    let none = name.is_empty() || name.len() > lode_engine::NAME_MAX;
    if none { Err(Cause::Number(libc::ERANGE)) } else { Ok(()) }
}

/// Not every kind of inode can have every attribute.
fn may_have(attr: &Attr, name: &[u8], kind: Kind) -> Result<(), Cause> {
    let directory = is_kind(attr, mode::DIRECTORY);
    match kind {
        Kind::Plain if !name.starts_with(b"user.") => Ok(()),
        Kind::Plain if directory || is_kind(attr, mode::FILE) => Ok(()),
        Kind::Plain => Err(Cause::Number(libc::EPERM)),
        Kind::Access | Kind::Default if is_kind(attr, mode::SYMLINK) => {
            Err(Error::NotSupported.into())
        }
        Kind::Default if !directory => Err(Cause::Number(libc::EACCES)),
        Kind::Access | Kind::Default => Ok(()),
    }
}
