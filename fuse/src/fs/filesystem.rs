//! The kernel's requests: each goes to its concern.

use fuse_abi::linux::{
    FUSE_ASYNC_DIO, FUSE_ASYNC_READ, FUSE_BIG_WRITES, FUSE_CACHE_SYMLINKS,
    FUSE_DIRECT_IO_ALLOW_MMAP, FUSE_DO_READDIRPLUS, FUSE_DONT_MASK, FUSE_EXPLICIT_INVAL_DATA,
    FUSE_EXPORT_SUPPORT, FUSE_PARALLEL_DIROPS, FUSE_POSIX_ACL, FUSE_READDIRPLUS_AUTO,
};
use lode_engine::{Error, Host, mode};
use lode_pmem::Medium;

use super::gate::Pass;
use super::served::Served;
use super::views::is_view;
use super::{LodeFs, MAX_WRITE, Work};
use crate::wire::{Answer, Errno, Handler, NodeId, Operation, Request, Scratch, Wish};

/// What the kernel is asked to do, where it can.
const WANTED: [u64; 9] = [
    // What goes around the page cache can be mapped all the same.
    FUSE_DIRECT_IO_ALLOW_MMAP,
    // Many requests of one file or directory at a time.
    FUSE_ASYNC_READ as u64,
    FUSE_ASYNC_DIO as u64,
    FUSE_PARALLEL_DIROPS as u64,
    // More than a page in a write.
    FUSE_BIG_WRITES as u64,
    // Listings with attributes, when the lister goes on to ask for them.
    (FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO) as u64,
    FUSE_CACHE_SYMLINKS as u64,
    // Pages stay until the kernel itself changes them: nobody else does.
    FUSE_EXPLICIT_INVAL_DATA as u64,
    // File handles (NFS, open_by_handle_at): "." and ".." can be looked up.
    FUSE_EXPORT_SUPPORT as u64,
];
/// Where the kernel checks permissions. Both or none: what a new entry may is asked for with
/// its umask only where lists count.
const ACLS: u64 = (FUSE_POSIX_ACL | FUSE_DONT_MASK) as u64;

/// What is asked of a kernel, which checks permissions or does not.
pub fn wish(checked: bool) -> Wish {
    let acls = checked.then_some(ACLS);
    Wish {
        groups: WANTED.into_iter().chain(acls).collect(),
        max_write: MAX_WRITE,
        max_readahead: MAX_WRITE,
        max_background: 64,
    }
}

impl<M: Medium + 'static, H: Host> Handler for LodeFs<M, H> {
    type Pass<'a> = Pass<'a, Served<M, H>>;

    fn enter(&self) -> Result<Self::Pass<'_>, Errno> {
        self.state.gate.enter().map_err(Errno::new)
    }

    fn answer<'s>(
        &self,
        pass: &Self::Pass<'_>,
        request: &Request<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Answer<'s>, Errno> {
        Work { fs: self, served: pass }.answer(request, scratch)
    }
}

impl<M: Medium + 'static, H: Host> Work<'_, M, H> {
    fn answer<'s>(
        &self,
        request: &Request<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Answer<'s>, Errno> {
        let Request { node, who, operation } = *request;
        if request.nodes().iter().any(|node| self.served.is_of_before(*node)) {
            return self.answer_of_before(operation);
        }
        if is_view(request) {
            return self.answer_view(request, scratch);
        }
        match operation {
            Operation::Getattr => self.do_getattr(node),
            Operation::Setattr(changes) => self.do_setattr(node, &changes),
            Operation::Statx => self.do_statx(node),
            Operation::Open { flags } => self.do_open(node, flags),
            Operation::Read { offset, size, quiet, for_map, .. } => {
                if for_map {
                    self.served.pins.note_map(self.ino(node));
                }
                self.do_read(node, offset, size, quiet, scratch)
            }
            Operation::Write(new) => self.do_write(node, new),
            // What was answered is durable: once the pool has said so the kernel takes every
            // later fsync for done, after it has written out what was stored through mappings.
            Operation::Fsync | Operation::Fsyncdir => self.do_fsync(node).and(Err(Errno::ENOSYS)),
            // What was answered is durable: nothing to do at a close. The kernel still writes
            // out, before it would ask, what was stored through mappings.
            Operation::Flush => Err(Errno::ENOSYS),
            Operation::Release { .. } => {
                // (The inode lives as long as the kernel knows it.)
                let _ = self.served.opened.forget(self.ino(node), 1);
                Ok(Answer::Done)
            }
            Operation::Releasedir => Ok(Answer::Done),
            Operation::Opendir => self.keeping.opendir(),
            Operation::Readdir { position, size } => self.do_readdir(node, position, size, scratch),
            Operation::Readdirplus { position, size } => {
                self.do_readdirplus(node, position, size, scratch)
            }
            Operation::Statfs => Ok(self.do_statfs()),
            Operation::Setxattr { name, value, flags } => {
                self.do_setxattr(who, node, name, value, flags)
            }
            Operation::Getxattr { name, size } => self.do_getxattr(node, name, size),
            Operation::Listxattr { size } => self.do_listxattr(who, node, size),
            Operation::Removexattr { name } => self.do_removexattr(node, name),
            Operation::Fallocate { offset, length, mode } => {
                self.do_fallocate(node, offset, length, mode)
            }
            Operation::Lseek { offset, whence } => self.do_seek(node, offset, whence),
            Operation::CopyFileRange { offset, to, to_offset, length } => {
                self.do_copy((node, offset), (to, to_offset), length, scratch)
            }
            Operation::Ioctl => Err(Errno::ENOTTY),
            other => self.answer_names(request, other),
        }
    }
}

impl<M: Medium + 'static, H: Host> Work<'_, M, H> {
    /// Requests about names, and what the kernel knows of inodes.
    fn answer_names(
        &self,
        request: &Request<'_>,
        operation: Operation<'_>,
    ) -> Result<Answer<'static>, Errno> {
        let (node, who) = (request.node, request.who);
        match operation {
            Operation::Lookup { name } => self.do_lookup(node, name),
            Operation::Forget { lookups } => Ok(self.forget([(node, lookups)])),
            Operation::BatchForget(forgets) => Ok(self.forget(forgets.each())),
            Operation::Readlink => self.do_readlink(node),
            Operation::Symlink { name, target } => self.do_symlink(who, node, name, target),
            Operation::Mknod { name, mode, umask, rdev } => {
                self.do_make(who, node, name, (mode, umask, rdev))
            }
            Operation::Mkdir { name, mode, umask } => {
                let mode = mode & !mode::TYPE | mode::DIRECTORY;
                self.do_make(who, node, name, (mode, umask, 0))
            }
            Operation::Create(file) => self.do_create(who, node, &file),
            Operation::Tmpfile(file) => self.do_tmpfile(who, node, &file),
            Operation::Unlink { name } => self.do_remove(node, name, false),
            Operation::Rmdir { name } => self.do_remove(node, name, true),
            Operation::Rename { name, to, new_name, flags } => {
                self.do_rename((node, name), (to, new_name), flags)
            }
            Operation::Link { from, name } => self.do_link(from, node, name),
            // Access: the kernel checks permissions by the attributes.
            _ => Err(Errno::ENOSYS),
        }
    }

    /// The answer about an inode of what was served before: it can be left, and no more.
    fn answer_of_before(&self, operation: Operation<'_>) -> Result<Answer<'static>, Errno> {
        match operation {
            // (That is about no inode, or about many, which may be others.)
            Operation::BatchForget(forgets) => Ok(self.forget(forgets.each())),
            Operation::Forget { .. } | Operation::Release { .. } | Operation::Releasedir => {
                Ok(Answer::Done)
            }
            _ => Err(Errno::new(Error::Stale.errno())),
        }
    }

    fn forget(&self, all: impl IntoIterator<Item = (NodeId, u64)>) -> Answer<'static> {
        for (node, lookups) in all {
            self.unpin(node, lookups);
        }
        Answer::Done
    }
}
