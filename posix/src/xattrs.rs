//! Extended attributes, and the lists of access rights that come as such.

use lode_engine::{Attr, Error, Host, Ino, Pool, Result, SetAttr, XattrChange, XattrWhen, mode};
use lode_pmem::Medium;

use crate::acl::Acl;
pub use crate::acl::{ACCESS, DEFAULT};
use crate::rights::SETGID;

/// Attributes that only the privileged see.
pub const TRUSTED: &[u8] = b"trusted.";
const PERMISSIONS: u32 = 0o777;

/// Lists that a change of the mode, or a new inode, brings with it.
pub type Brought = Vec<(&'static [u8], Vec<u8>)>;

/// As the engine takes them.
pub fn changes(brought: &Brought) -> Vec<XattrChange<'_>> {
    let all = brought.iter();
    all.map(|(name, value)| XattrChange { name, value: Some(value), when: XattrWhen::Always })
        .collect()
}

/// What an attribute is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Whatever its user likes.
    Plain,
    /// The list that permissions are checked by.
    Access,
    /// The list that new entries begin with.
    Default,
}

/// What an attribute of this name is for. Who may use it is for others to say, by its namespace.
///
/// # Errors
/// [`Error::NotSupported`] for other namespaces than Linux's, [`Error::Invalid`] for no name in one.
pub fn kind_of(name: &[u8]) -> Result<Kind> {
    let spaces: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];
    match spaces.into_iter().find_map(|space| name.strip_prefix(space)) {
        Some([]) => Err(Error::Invalid),
        Some(_) => Ok(Kind::Plain),
        None if name == ACCESS => Ok(Kind::Access),
        None if name == DEFAULT => Ok(Kind::Default),
        None => Err(Error::NotSupported),
    }
}

/// Sets an attribute. With the list that permissions are checked by, the permission bits change
/// too, and the set-group-id bit goes where `keeps_group` does not say of the file's group that
/// it stays.
///
/// # Errors
/// Those of [`kind_of`], [`Acl::parse`] and [`Pool::setxattr`].
pub fn set<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    (name, value): (&[u8], &[u8]),
    when: XattrWhen,
    keeps_group: impl FnOnce(u32) -> bool,
) -> Result<()> {
    match kind_of(name)? {
        Kind::Plain => pool.setxattr(ino, &XattrChange { name, value: Some(value), when }),
        Kind::Access => set_access(pool, ino, &Acl::parse(value)?, keeps_group),
        Kind::Default => {
            let value = Acl::parse(value)?.value();
            pool.setxattr(ino, &XattrChange { name, value: Some(&value), when })
        }
    }
}

/// Sets who may do what: the list, and the permission bits with it.
fn set_access<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    acl: &Acl,
    keeps_group: impl FnOnce(u32) -> bool,
) -> Result<()> {
    let attr = pool.getattr(ino)?;
    let value = (!acl.is_plain()).then(|| acl.value());
    let change = XattrChange { name: ACCESS, value: value.as_deref(), when: XattrWhen::Always };
    let mut bits = attr.mode & !mode::TYPE & !PERMISSIONS | acl.bits();
    if bits & SETGID != 0 && !keeps_group(attr.gid) {
        bits &= !SETGID;
    }
    let mode = SetAttr { mode: Some(bits), ..SetAttr::default() };
    pool.setattr_with(ino, &mode, &[change]).map(|_| ())
}

/// Removes an attribute.
///
/// # Errors
/// Those of [`kind_of`] and [`Pool::setxattr`].
pub fn remove<M: Medium, H: Host>(pool: &Pool<M, H>, ino: Ino, name: &[u8]) -> Result<()> {
    let when = match kind_of(name)? {
        Kind::Plain => XattrWhen::Present,
        // No list is a list, too: the one that the permission bits are.
        Kind::Access | Kind::Default => XattrWhen::Always,
    };
    pool.setxattr(ino, &XattrChange { name, value: None, when })
}

/// A list of an inode, if it has one.
///
/// # Errors
/// Those of [`Pool::getxattr`]; [`Error::Invalid`] for what is no list.
pub fn acl_of<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    attr: &Attr,
    name: &[u8],
) -> Result<Option<Acl>> {
    if attr.xattrs == 0 {
        return Ok(None);
    }
    match pool.getxattr(attr.ino, name) {
        // Only what makes sense was let in.
        Ok(value) => Acl::parse(&value).map(Some).map_err(|_| Error::Invalid),
        Err(Error::NoAttribute) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a change of an inode's permission bits to `bits` brings with it.
///
/// # Errors
/// Those of [`acl_of`].
pub fn brought_by_mode<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    attr: &Attr,
    bits: u32,
) -> Result<Brought> {
    let acl = acl_of(pool, attr, ACCESS)?;
    Ok(acl.map(|acl| (ACCESS, acl.with_bits(bits).value())).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_told_apart() {
        for name in ["user.a", "trusted.b", "security.selinux"] {
            assert_eq!(kind_of(name.as_bytes()), Ok(Kind::Plain), "{name}");
        }
        assert_eq!(kind_of(ACCESS), Ok(Kind::Access));
        assert_eq!(kind_of(DEFAULT), Ok(Kind::Default));
        assert_eq!(kind_of(b"user."), Err(Error::Invalid));
        for name in ["system.posix_acl_x", "system.nfs4_acl", "other.a", "user", ""] {
            assert_eq!(kind_of(name.as_bytes()), Err(Error::NotSupported), "{name}");
        }
    }
}
