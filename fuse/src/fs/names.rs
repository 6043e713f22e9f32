//! Names: lookup, making, linking, renaming, removing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, RenameFlags, ReplyEntry, Request};
use lode_engine::{Attr, Error, Host, NewInode, RenameMode, mode};
use lode_pmem::Medium;

use super::convert::{device_from_kernel, errno, system_time};
use super::xattrs::changes;
use super::{FOREVER, LodeFs};

const SETGID: u32 = 0o2000;

impl<M: Medium, H: Host> LodeFs<M, H> {
    pub(super) fn do_lookup(&self, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.enter().and_then(|pass| {
            let dir = self.ino(parent);
            let found = match name.as_bytes() {
                // Whoever holds a file handle of any kind of inode asks it for itself.
                b"." => self.pool().getattr(dir),
                name => self.pool().lookup(dir, name),
            };
            match found {
                Ok(attr) => Ok((pass, Some(self.named(&attr)?))),
                Err(Error::NotFound) => Ok((pass, None)),
                Err(error) => Err(errno(&error)),
            }
        });
        match found {
            Ok((_pass, Some(it))) => {
                reply.entry_with_ttls(&it.attr_ttl, &FOREVER, &it.attr, it.generation);
            }
            Ok((_pass, None)) => reply.entry(&FOREVER, &no_such_name(), Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    pub(super) fn do_make(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        (mode, umask, rdev): (u32, u32, u32),
        reply: ReplyEntry,
    ) {
        self.answer_entry(reply, || {
            let dir = self.ino(parent);
            let parent = self.pool().getattr(dir)?;
            let group = group_for(&parent, req.gid());
            let (mode, brought) = self.mode_in(&parent, mode, umask)?;
            let new = NewInode {
                mode: if group.inherited && mode & mode::TYPE == mode::DIRECTORY {
                    mode | SETGID
                } else {
                    mode
                },
                uid: req.uid(),
                gid: group.gid,
                rdev: device_from_kernel(rdev),
            };
            self.pool().create_with(dir, name.as_bytes(), &new, &changes(&brought))
        });
    }

    pub(super) fn do_symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &[u8],
        reply: ReplyEntry,
    ) {
        self.answer_entry(reply, || {
            let dir = self.ino(parent);
            let gid = group_for(&self.pool().getattr(dir)?, req.gid()).gid;
            self.pool().symlink(dir, name.as_bytes(), target, req.uid(), gid)
        });
    }

    pub(super) fn do_link(&self, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.answer_entry(reply, || {
            self.pool().link(self.ino(node), self.ino(parent), name.as_bytes())
        });
    }

    pub(super) fn do_remove(
        &self,
        parent: INodeNo,
        name: &OsStr,
        directory: bool,
    ) -> Result<(), Errno> {
        let (dir, name) = (self.ino(parent), name.as_bytes());
        let pool = self.pool();
        let done = if directory { pool.rmdir(dir, name) } else { pool.unlink(dir, name) };
        done.map_err(|error| errno(&error))
    }

    pub(super) fn do_rename(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let how = rename_mode(flags).ok_or(Errno::EINVAL)?;
        let (dir, name) = (self.ino(from.0), from.1.as_bytes());
        let (to_dir, to_name) = (self.ino(to.0), to.1.as_bytes());
        self.pool().rename(dir, name, to_dir, to_name, how).map_err(|error| errno(&error))
    }

    /// Answers with the inode that `work` names.
    fn answer_entry(&self, reply: ReplyEntry, work: impl FnOnce() -> Result<Attr, Error>) {
        let named = self.enter().and_then(|pass| {
            let attr = work().map_err(|error| errno(&error))?;
            Ok((pass, self.named(&attr)?))
        });
        match named {
            Ok((_pass, it)) => {
                reply.entry_with_ttls(&it.attr_ttl, &FOREVER, &it.attr, it.generation);
            }
            Err(error) => reply.error(error),
        }
    }
}

/// The group of a new inode in `parent`: the maker's, or the directory's where that hands its
/// group on.
fn group_for(parent: &Attr, maker: u32) -> Group {
    let inherited = parent.mode & SETGID != 0;
    Group { gid: if inherited { parent.gid } else { maker }, inherited }
}

struct Group {
    gid: u32,
    inherited: bool,
}

fn rename_mode(flags: RenameFlags) -> Option<RenameMode> {
    if flags.is_empty() {
        Some(RenameMode::Replace)
    } else if flags == RenameFlags::RENAME_NOREPLACE {
        Some(RenameMode::NoReplace)
    } else if flags == RenameFlags::RENAME_EXCHANGE {
        Some(RenameMode::Exchange)
    } else {
        None
    }
}

/// An entry of inode number 0: there is no such name, and that may be kept.
fn no_such_name() -> FileAttr {
    let never = system_time(0);
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: never,
        mtime: never,
        ctime: never,
        crtime: never,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rename_flags_are_one_at_a_time() {
        let (keep, swap) = (RenameFlags::RENAME_NOREPLACE, RenameFlags::RENAME_EXCHANGE);
        assert_eq!(rename_mode(RenameFlags::empty()), Some(RenameMode::Replace));
        assert_eq!(rename_mode(keep), Some(RenameMode::NoReplace));
        assert_eq!(rename_mode(swap), Some(RenameMode::Exchange));
        assert_eq!(rename_mode(keep | swap), None);
        assert_eq!(rename_mode(RenameFlags::RENAME_WHITEOUT), None);
        assert_eq!(rename_mode(RenameFlags::from_bits_retain(1 << 20)), None);
    }
}
