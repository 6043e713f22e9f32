//! Extended attributes, and the lists of access rights that come as such.

use lode_engine::{Attr, Error, Host, Ino, SetAttr, XattrChange, XattrWhen, mode};
use lode_pmem::Medium;

use super::LodeFs;
use super::acl::{ACCESS, Acl, DEFAULT};
use super::convert::{errno, errno_in};
use crate::wire::{Answer, Errno, NodeId, Who};

/// Rights that a program file gives to whoever runs it.
const CAPABILITY: &[u8] = b"security.capability";
const TRUSTED: &[u8] = b"trusted.";
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const PERMISSIONS: u32 = 0o777;

/// Lists that a change of the mode, or a new inode, brings with it.
pub(super) type Brought = Vec<(&'static [u8], Vec<u8>)>;

/// As the engine takes them.
pub(super) fn changes(brought: &Brought) -> Vec<XattrChange<'_>> {
    let all = brought.iter();
    all.map(|(name, value)| XattrChange { name, value: Some(value), when: XattrWhen::Always })
        .collect()
}

impl<M: Medium, H: Host> LodeFs<M, H> {
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
        match kind_of(name)? {
            Kind::Plain => self.change(ino, &XattrChange { name, value: Some(value), when }),
            Kind::Access => self.set_access(who, ino, Acl::parse(value)?),
            Kind::Default => {
                let value = Acl::parse(value)?.value();
                self.change(ino, &XattrChange { name, value: Some(&value), when })
            }
        }
    }

    fn change(&self, ino: Ino, change: &XattrChange<'_>) -> Result<Answer<'static>, Errno> {
        let done = self.pool().setxattr(ino, change);
        done.map(|()| Answer::Done).map_err(|error| errno_in(ino, &error))
    }

    /// Sets who may do what: the list, and the permission bits with it.
    fn set_access(&self, who: Who, ino: Ino, acl: Acl) -> Result<Answer<'static>, Errno> {
        let attr = self.pool().getattr(ino).map_err(|error| errno(&error))?;
        let value = (!acl.is_plain()).then(|| acl.value());
        let change = XattrChange { name: ACCESS, value: value.as_deref(), when: XattrWhen::Always };
        let mut bits = attr.mode & !mode::TYPE & !PERMISSIONS | acl.bits();
        if bits & SETGID != 0 && !may_keep_group(who, attr.gid) {
            bits &= !SETGID;
        }
        let mode = SetAttr { mode: Some(bits), ..SetAttr::default() };
        let changed = self.pool().setattr_with(ino, &mode, &[change]);
        changed.map(|_| Answer::Done).map_err(|error| errno_in(ino, &error))
    }

    pub(super) fn do_removexattr(
        &self,
        node: NodeId,
        name: &[u8],
    ) -> Result<Answer<'static>, Errno> {
        let when = match kind_of(name)? {
            Kind::Plain => XattrWhen::Present,
            // No list is a list, too: the one that the permission bits are.
            Kind::Access | Kind::Default => XattrWhen::Always,
        };
        self.change(self.ino(node), &XattrChange { name, value: None, when })
    }

    pub(super) fn do_getxattr(
        &self,
        node: NodeId,
        name: &[u8],
        size: u32,
    ) -> Result<Answer<'static>, Errno> {
        kind_of(name)?;
        let ino = self.ino(node);
        let value = self.pool().getxattr(ino, name).map_err(|error| errno_in(ino, &error))?;
        answer(size, value)
    }

    pub(super) fn do_listxattr(
        &self,
        who: Who,
        node: NodeId,
        size: u32,
    ) -> Result<Answer<'static>, Errno> {
        let ino = self.ino(node);
        let names = self.pool().listxattr(ino).map_err(|error| errno_in(ino, &error))?;
        // Only who may read them sees them.
        let seen = |name: &&Vec<u8>| who.uid == 0 || !name.starts_with(TRUSTED);
        let mut list = Vec::new();
        for name in names.iter().filter(seen) {
            list.extend_from_slice(name);
            list.push(0);
        }
        answer(size, list)
    }

    /// A list of an inode, if it has one.
    fn acl(&self, attr: &Attr, name: &[u8]) -> Result<Option<Acl>, Error> {
        if attr.xattrs == 0 {
            return Ok(None);
        }
        match self.pool().getxattr(attr.ino, name) {
            // Only what makes sense was let in.
            Ok(value) => Acl::parse(&value).map(Some).map_err(|_| Error::Invalid),
            Err(Error::NoAttribute) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What a change of the permission bits to `bits` brings with it.
    pub(super) fn brought_by_mode(&self, ino: Ino, bits: u32) -> Result<Brought, Error> {
        let acl = self.acl(&self.pool().getattr(ino)?, ACCESS)?;
        Ok(acl.map(|acl| (ACCESS, acl.with_bits(bits).value())).into_iter().collect())
    }

    /// The mode of a new entry of `dir`, for which `mode` was asked; and what it brings.
    pub(super) fn mode_in(
        &self,
        dir: &Attr,
        asked: u32,
        umask: u32,
    ) -> Result<(u32, Brought), Error> {
        if !self.acls {
            return Ok((asked, Brought::new()));
        }
        let Some(default) = self.acl(dir, DEFAULT)? else {
            return Ok((asked & !(umask & PERMISSIONS), Brought::new()));
        };
        let mut brought = Brought::new();
        let own = default.clone().for_new(asked & PERMISSIONS);
        if !own.is_plain() {
            brought.push((ACCESS, own.value()));
        }
        if asked & mode::TYPE == mode::DIRECTORY {
            brought.push((DEFAULT, default.value()));
        }
        Ok((asked & !PERMISSIONS | own.bits(), brought))
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
        let gone = XattrChange { name: CAPABILITY, value: None, when: XattrWhen::Always };
        let xattrs = if self.has_capability(&attr)? { &[gone][..] } else { &[] };
        if changes.mode.is_none() && xattrs.is_empty() {
            return Ok(());
        }
        self.pool().setattr_with(attr.ino, &changes, xattrs)?;
        // To the kernel a write changes size and times: it would run the file by the old mode.
        self.notices.attributes(node);
        Ok(())
    }

    fn has_capability(&self, attr: &Attr) -> Result<bool, Error> {
        if attr.xattrs == 0 {
            return Ok(false);
        }
        match self.pool().getxattr(attr.ino, CAPABILITY) {
            Ok(_) => Ok(true),
            Err(Error::NoAttribute) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The bits of a mode that let others run the file as its owner, or its group.
fn set_ids(mode: u32) -> u32 {
    let group_runs = mode & 0o010 != 0;
    mode & (SETUID | if group_runs { SETGID } else { 0 })
}

/// Answers with `bytes`, or how many there are where nothing is asked for but that.
fn answer(size: u32, bytes: Vec<u8>) -> Result<Answer<'static>, Errno> {
    match size as usize {
        0 => Ok(Answer::size(bytes.len() as u32)),
        room if room < bytes.len() => Err(Errno::ERANGE),
        _ => Ok(Answer::Data(bytes.into())),
    }
}

/// What an attribute is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Plain,
    Access,
    Default,
}

/// Who may use an attribute is for the kernel to say, by its namespace; others than these it
/// does not know.
fn kind_of(name: &[u8]) -> Result<Kind, Errno> {
    let spaces: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];
    match spaces.into_iter().find_map(|space| name.strip_prefix(space)) {
        Some([]) => Err(Errno::EINVAL),
        Some(_) => Ok(Kind::Plain),
        None if name == ACCESS => Ok(Kind::Access),
        None if name == DEFAULT => Ok(Kind::Default),
        None => Err(Errno::EOPNOTSUPP),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_group_id_without_its_execution_is_another_thing() {
        assert_eq!(set_ids(0o106_777), 0o6000);
        assert_eq!(set_ids(0o106_767), 0o4000);
        assert_eq!(set_ids(0o101_777), 0);
    }

    #[test]
    fn namespaces_are_told_apart() {
        for name in ["user.a", "trusted.b", "security.selinux"] {
            assert_eq!(kind_of(name.as_bytes()), Ok(Kind::Plain), "{name}");
        }
        assert_eq!(kind_of(ACCESS), Ok(Kind::Access));
        assert_eq!(kind_of(DEFAULT), Ok(Kind::Default));
        assert_eq!(kind_of(b"user."), Err(Errno::EINVAL));
        for name in ["system.posix_acl_x", "system.nfs4_acl", "other.a", "user", ""] {
            assert_eq!(kind_of(name.as_bytes()), Err(Errno::EOPNOTSUPP), "{name}");
        }
    }
}
