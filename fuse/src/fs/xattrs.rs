//! Extended attributes, for who asks through the kernel.

use lode_engine::{Host, SetAttr, XattrWhen};
use lode_pmem::Medium;
use lode_posix::rights::{change_without_capability, set_ids};
use lode_posix::xattrs::{self, TRUSTED, kind_of};

use super::Work;
use crate::wire::{Answer, Errno, NodeId, Who};

impl<M: Medium, H: Host> Work<'_, M, H> {
    pub(super) fn do_setxattr(
        &self,
        who: Who,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<Answer<'static>, Errno> {
        let when = match flags.cast_signed() {
            0 => XattrWhen::Always,
            libc::XATTR_CREATE => XattrWhen::Absent,
            libc::XATTR_REPLACE => XattrWhen::Present,
            _ => return Err(Errno::EINVAL),
        };
        let ino = self.ino(node);
        let keeps_group = |gid| may_keep_group(who, gid);
        let done = xattrs::set(self.pool(), ino, (name, value), when, keeps_group);
        done.map(|()| Answer::Done).map_err(|error| self.errno_in(ino, &error))
    }

    pub(super) fn do_removexattr(
        &self,
        node: NodeId,
        name: &[u8],
    ) -> Result<Answer<'static>, Errno> {
        let ino = self.ino(node);
        let done = xattrs::remove(self.pool(), ino, name);
        done.map(|()| Answer::Done).map_err(|error| self.errno_in(ino, &error))
    }

    pub(super) fn do_getxattr(
        &self,
        node: NodeId,
        name: &[u8],
        size: u32,
    ) -> Result<Answer<'static>, Errno> {
        let ino = self.ino(node);
        kind_of(name).map_err(|error| self.errno_in(ino, &error))?;
        let value = self.pool().getxattr(ino, name).map_err(|error| self.errno_in(ino, &error))?;
        answer(size, value)
    }

    pub(super) fn do_listxattr(
        &self,
        who: Who,
        node: NodeId,
        size: u32,
    ) -> Result<Answer<'static>, Errno> {
        let ino = self.ino(node);
        let names = self.pool().listxattr(ino).map_err(|error| self.errno_in(ino, &error))?;
        // Only who may read them sees them.
        let seen = |name: &&Vec<u8>| who.uid == 0 || !name.starts_with(TRUSTED);
        let mut list = Vec::new();
        for name in names.iter().filter(seen) {
            list.extend_from_slice(name);
            list.push(0);
        }
        answer(size, list)
    }

    /// A file that others run with rights of its own does not keep them when it is written: its
    /// capabilities never, its set-id bits unless the writer is privileged. (Who may execute it
    /// as its group is what the set-group-id bit is about; without that it means something else.)
    pub(super) fn take_off_rights(
        &self,
        node: NodeId,
        unprivileged: bool,
    ) -> lode_engine::Result<()> {
        let attr = self.pool().getattr(self.ino(node))?;
        let mut changes = SetAttr::default();
        let kept = attr.mode & !set_ids(attr.mode);
        if unprivileged && kept != attr.mode {
            changes.mode = Some(kept);
        }
        if change_without_capability(self.pool(), &attr, &changes)? {
            // To the kernel a write changes size and times: it would run the file by the old mode.
            self.notices.attributes(node);
        }
        Ok(())
    }
}

/// Answers with `bytes`, or how many there are where nothing is asked for but that.
fn answer(size: u32, bytes: Vec<u8>) -> Result<Answer<'static>, Errno> {
    match size as usize {
        0 => Ok(Answer::size(bytes.len() as u32)),
        room if room < bytes.len() => Err(Errno::ERANGE),
        _ => Ok(Answer::Data(bytes.into())),
    }
}

/// Whether who asks is of this group, or may do everything.
fn may_keep_group(who: Who, gid: u32) -> bool {
    if who.uid == 0 || who.gid == gid {
        return true;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", who.pid));
    let groups = status.unwrap_or_default();
    let groups = groups.lines().find_map(|line| line.strip_prefix("Groups:"));
    groups.is_some_and(|all| all.split_whitespace().any(|one| one.parse() == Ok(gid)))
}
