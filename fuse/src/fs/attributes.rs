//! Attributes: of inodes, and of the whole pool.

use fuse_abi::linux::fuse_kstatfs;
use lode_engine::{Attr, Error, Host, NAME_MAX, PAGE_BYTES, SetAttr};
use lode_pmem::Medium;
use lode_posix::xattrs::{self, Brought};

use super::Work;
use super::convert::{asked_time, attributes, attributes_with_birth};
use crate::wire::{Answer, Changes, Errno, NodeId};

/// What is asked for, for the engine. There a new size is a modification, whether or not the
/// kernel says so.
fn for_engine(asked: &Changes, now: i64) -> SetAttr {
    SetAttr {
        mode: asked.mode.map(|mode| mode & 0o7777),
        uid: asked.uid,
        gid: asked.gid,
        size: asked.size,
        atime_ns: asked.atime.map(|time| asked_time(time, now)),
        mtime_ns: asked.mtime.map(|time| asked_time(time, now)),
    }
}

impl<M: Medium, H: Host> Work<'_, M, H> {
    pub(super) fn do_getattr(&self, node: NodeId) -> Result<Answer<'static>, Errno> {
        self.answer_attr(node, || self.pool().getattr(self.ino(node)))
    }

    pub(super) fn do_setattr(
        &self,
        node: NodeId,
        asked: &Changes,
    ) -> Result<Answer<'static>, Errno> {
        self.answer_attr(node, || {
            let (ino, changes) = (self.ino(node), for_engine(asked, lode_host::now_ns()));
            let brought = match changes.mode {
                Some(bits) => {
                    let attr = self.pool().getattr(ino)?;
                    xattrs::brought_by_mode(self.pool(), &attr, bits)?
                }
                None => Brought::new(),
            };
            self.pool().setattr_with(ino, &changes, &xattrs::changes(&brought))
        })
    }

    fn answer_attr(
        &self,
        node: NodeId,
        work: impl FnOnce() -> Result<Attr, Error>,
    ) -> Result<Answer<'static>, Errno> {
        let ino = self.ino(node);
        let attr = work().map_err(|error| self.errno_in(ino, &error))?;
        Ok(Answer::attr(attributes(&attr, self.served.shown(ino))?, self.attr_ttl(ino)))
    }

    /// Attributes for who wants to know the time of birth, too: it has no place among the
    /// others.
    pub(super) fn do_statx(&self, node: NodeId) -> Result<Answer<'static>, Errno> {
        let ino = self.ino(node);
        let attr = self.pool().getattr(ino).map_err(|error| self.errno_in(ino, &error))?;
        let shown = self.served.shown(ino);
        Ok(Answer::statx(attributes_with_birth(&attr, shown)?, self.attr_ttl(ino)))
    }

    pub(super) fn do_statfs(&self) -> Answer<'static> {
        let space = self.pool().statfs();
        Answer::space(fuse_kstatfs {
            blocks: space.pages,
            bfree: space.pages_free,
            bavail: space.pages_available,
            files: space.inodes.saturating_add(space.inodes_free),
            ffree: space.inodes_free,
            bsize: PAGE_BYTES as u32,
            namelen: NAME_MAX as u32,
            frsize: PAGE_BYTES as u32,
            ..fuse_kstatfs::default()
        })
    }

    pub(super) fn do_readlink(&self, node: NodeId) -> Result<Answer<'static>, Errno> {
        let ino = self.ino(node);
        let target = self.pool().readlink(ino).map_err(|error| self.errno_in(ino, &error))?;
        Ok(Answer::Data(target.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::TimeOrNow;

    #[test]
    fn a_new_size_needs_no_other_change() {
        let asked = Changes { size: Some(5), ..Changes::default() };
        let changes = for_engine(&asked, 77);
        assert_eq!(changes.size, Some(5));
        assert_eq!((changes.mtime_ns, changes.atime_ns), (None, None));
    }

    #[test]
    fn a_time_that_is_asked_for_is_kept() {
        let asked = Changes {
            size: Some(0),
            mtime: Some(TimeOrNow::At(5)),
            atime: Some(TimeOrNow::Now),
            mode: Some(0o100_644),
            ..Changes::default()
        };
        let changes = for_engine(&asked, 77);
        assert_eq!((changes.mtime_ns, changes.atime_ns), (Some(5), Some(77)));
        assert_eq!(changes.mode, Some(0o644));
    }

    #[test]
    fn nothing_asked_changes_nothing() {
        assert_eq!(for_engine(&Changes::default(), 77), SetAttr::default());
    }
}
