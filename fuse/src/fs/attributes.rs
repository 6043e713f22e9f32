//! Attributes: of inodes, and of the whole pool.

use fuser::{Errno, INodeNo, ReplyAttr, ReplyStatfs, TimeOrNow};
use lode_engine::{Attr, Error, Host, NAME_MAX, PAGE_BYTES, SetAttr};
use lode_pmem::Medium;

use super::LodeFs;
use super::convert::{asked_time, attributes, errno};
use super::xattrs::{self, Brought};

/// What a request asks to change.
#[derive(Clone, Copy, Default)]
pub(super) struct Asked {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
}

impl Asked {
    /// The same for the engine, where a new size is a modification, whether or not the
    /// kernel says so.
    fn changes(self, now: i64) -> SetAttr {
        SetAttr {
            mode: self.mode.map(|mode| mode & 0o7777),
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            atime_ns: self.atime.map(|time| asked_time(time, now)),
            mtime_ns: self.mtime.map(|time| asked_time(time, now)),
        }
    }
}

impl<M: Medium, H: Host> LodeFs<M, H> {
    pub(super) fn do_getattr(&self, node: INodeNo, reply: ReplyAttr) {
        self.answer_attr(node, reply, || self.pool().getattr(self.ino(node)));
    }

    pub(super) fn do_setattr(&self, node: INodeNo, asked: Asked, reply: ReplyAttr) {
        self.answer_attr(node, reply, || {
            let (ino, changes) = (self.ino(node), asked.changes(lode_host::now_ns()));
            let brought = match changes.mode {
                Some(bits) => self.brought_by_mode(ino, bits)?,
                None => Brought::new(),
            };
            self.pool().setattr_with(ino, &changes, &xattrs::changes(&brought))
        });
    }

    fn answer_attr(
        &self,
        node: INodeNo,
        reply: ReplyAttr,
        work: impl FnOnce() -> Result<Attr, Error>,
    ) {
        let attr = self.enter().and_then(|pass| {
            let attr = work().map_err(|error| errno(&error))?;
            Ok((pass, attributes(&attr, node)?))
        });
        match attr {
            Ok((_pass, attr)) => reply.attr(&self.attr_ttl(self.ino(node)), &attr),
            Err(error) => reply.error(error),
        }
    }

    pub(super) fn do_statfs(&self, reply: ReplyStatfs) {
        let pass = match self.enter() {
            Ok(pass) => pass,
            Err(error) => return reply.error(error),
        };
        let space = self.pool().statfs();
        let (page, free) = (PAGE_BYTES as u32, space.pages_free);
        let available = space.pages_available;
        let files = space.inodes.saturating_add(space.inodes_free);
        let name = NAME_MAX as u32;
        reply.statfs(space.pages, free, available, files, space.inodes_free, page, name, page);
        drop(pass);
    }

    pub(super) fn do_readlink(&self, node: INodeNo) -> Result<Vec<u8>, Errno> {
        self.pool().readlink(self.ino(node)).map_err(|error| errno(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_size_needs_no_other_change() {
        let asked = Asked { size: Some(5), ..Asked::default() };
        let changes = asked.changes(77);
        assert_eq!(changes.size, Some(5));
        assert_eq!((changes.mtime_ns, changes.atime_ns), (None, None));
    }

    #[test]
    fn a_time_that_is_asked_for_is_kept() {
        let then = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos(5);
        let asked = Asked {
            size: Some(0),
            mtime: Some(TimeOrNow::SpecificTime(then)),
            atime: Some(TimeOrNow::Now),
            mode: Some(0o100_644),
            ..Asked::default()
        };
        let changes = asked.changes(77);
        assert_eq!((changes.mtime_ns, changes.atime_ns), (Some(5), Some(77)));
        assert_eq!(changes.mode, Some(0o644));
    }

    #[test]
    fn nothing_asked_changes_nothing() {
        assert_eq!(Asked::default().changes(77), SetAttr::default());
    }
}
