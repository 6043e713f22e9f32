//! What a new inode becomes: by who makes it, and by the directory it is made in.

use lode_engine::{Attr, Host, NewInode, Pool, Result, mode};
use lode_pmem::Medium;

use crate::acl::DEFAULT;
use crate::rights::SETGID;
use crate::xattrs::{ACCESS, Brought, acl_of};

const PERMISSIONS: u32 = 0o777;

/// Who makes an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Maker {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Permissions that new inodes do not get.
    pub umask: u32,
}

/// What an inode becomes that is made in the directory `parent`, and the lists it inherits. With
/// `acls` lists count, and the umask where there is none; without, `mode` is taken as it is.
///
/// # Errors
/// Those of [`Pool::getxattr`].
pub fn new_in<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    parent: &Attr,
    maker: Maker,
    mode: u32,
    acls: bool,
) -> Result<(NewInode, Brought)> {
    let (gid, inherited) = group_in(parent, maker.gid);
    let (mode, brought) =
        if acls { mode_in(pool, parent, mode, maker.umask)? } else { (mode, Brought::new()) };
    let hands_on = inherited && mode & mode::TYPE == mode::DIRECTORY;
    let mode = if hands_on { mode | SETGID } else { mode };
    Ok((NewInode { mode, uid: maker.uid, gid, rdev: 0 }, brought))
}

/// The group of a new inode in `parent`: the maker's, or the directory's where that hands its
/// group on; and whether it does.
pub fn group_in(parent: &Attr, maker: u32) -> (u32, bool) {
    let inherited = parent.mode & SETGID != 0;
    (if inherited { parent.gid } else { maker }, inherited)
}

/// The mode of a new entry of `dir`, for which `asked` was asked; and what it brings.
fn mode_in<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    dir: &Attr,
    asked: u32,
    umask: u32,
) -> Result<(u32, Brought)> {
    let Some(default) = acl_of(pool, dir, DEFAULT)? else {
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
