//! Rights that a file gives to whoever runs it, and loses when it changes.

use lode_engine::{Attr, Error, Host, Pool, Result, SetAttr, XattrChange, XattrWhen};
use lode_pmem::Medium;

/// Rights that a program file gives to whoever runs it.
pub const CAPABILITY: &[u8] = b"security.capability";
/// Who runs the file does so as its owner.
pub const SETUID: u32 = 0o4000;
/// Who runs the file does so as its group; a directory hands its group on.
pub const SETGID: u32 = 0o2000;

/// Changes attributes and takes a file's capabilities off, in one step. Returns whether anything
/// was to be done.
///
/// # Errors
/// Those of [`Pool::setattr_with`].
pub fn change_without_capability<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    attr: &Attr,
    changes: &SetAttr,
) -> Result<bool> {
    let gone = XattrChange { name: CAPABILITY, value: None, when: XattrWhen::Always };
    let xattrs = if has_capability(pool, attr)? { &[gone][..] } else { &[] };
    if *changes == SetAttr::default() && xattrs.is_empty() {
        return Ok(false);
    }
    pool.setattr_with(attr.ino, changes, xattrs).map(|_| true)
}

fn has_capability<M: Medium, H: Host>(pool: &Pool<M, H>, attr: &Attr) -> Result<bool> {
    if attr.xattrs == 0 {
        return Ok(false);
    }
    match pool.getxattr(attr.ino, CAPABILITY) {
        Ok(_) => Ok(true),
        Err(Error::NoAttribute) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The bits of a mode that let others run the file as its owner, or its group.
pub fn set_ids(mode: u32) -> u32 {
    let group_runs = mode & 0o010 != 0;
    mode & (SETUID | if group_runs { SETGID } else { 0 })
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
}
