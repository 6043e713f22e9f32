//! Names: lookup, making, linking, renaming, removing.

use lode_engine::{Attr, Error, Host, Ino, NewInode, RenameMode, mode};
use lode_pmem::Medium;
use lode_posix::birth::{self, Maker};
use lode_posix::xattrs::{Brought, changes};

use super::convert::device_from_kernel;
use super::{FOREVER, Work};
use crate::wire::{Answer, Errno, NewFile, NodeId, Who};

impl<M: Medium + 'static, H: Host> Work<'_, M, H> {
    pub(super) fn do_lookup(&self, parent: NodeId, name: &[u8]) -> Result<Answer<'static>, Errno> {
        let dir = self.ino(parent);
        let found = match name {
            // Whoever holds a file handle of any kind of inode asks it for itself.
            b"." => self.pool().getattr(dir),
            name => self.pool().lookup(dir, name),
        };
        match found {
            // (What is in there besides is seen without views.)
            Ok(_) if self.views.is_meant(parent, name) && self.volumes()?.is_some() => {
                Ok(Answer::entry(self.views.directory()?))
            }
            Ok(attr) => Ok(Answer::entry(self.named(&attr)?)),
            Err(Error::NotFound) if self.views.is_meant(parent, name) => {
                Ok(Answer::entry(self.views.directory()?))
            }
            Err(Error::NotFound) => Ok(Answer::absent(FOREVER)),
            Err(error) => Err(self.errno_in(dir, &error)),
        }
    }

    pub(super) fn do_make(
        &self,
        who: Who,
        parent: NodeId,
        name: &[u8],
        (mode, umask, rdev): (u32, u32, u32),
    ) -> Result<Answer<'static>, Errno> {
        let dir = self.ino(parent);
        self.answer_entry(dir, || self.make(who, dir, name, (mode, umask, rdev)))
    }

    /// A file that is made and opened by one request.
    pub(super) fn do_create(
        &self,
        who: Who,
        parent: NodeId,
        file: &NewFile<'_>,
    ) -> Result<Answer<'static>, Errno> {
        let dir = self.ino(parent);
        // (Of what is opened otherwise, nothing else can be made.)
        let mode = file.mode & !mode::TYPE | mode::FILE;
        let made = self.make(who, dir, file.name, (mode, file.umask, 0));
        let attr = made.map_err(|error| self.errno_in(dir, &error))?;
        let entry = self.named(&attr)?;
        Ok(Answer::created(entry, self.opened(attr.ino, file.flags)))
    }

    /// Makes an inode with a name.
    fn make(
        &self,
        who: Who,
        dir: Ino,
        name: &[u8],
        (mode, umask, rdev): (u32, u32, u32),
    ) -> Result<Attr, Error> {
        let (new, brought) = self.new_in(who, dir, (mode, umask))?;
        let new = NewInode { rdev: device_from_kernel(rdev), ..new };
        self.pool().create_with(dir, name, &new, &changes(&brought))
    }

    /// A file without a name, open: by `O_TMPFILE`, in a directory.
    pub(super) fn do_tmpfile(
        &self,
        who: Who,
        parent: NodeId,
        file: &NewFile<'_>,
    ) -> Result<Answer<'static>, Errno> {
        let dir = self.ino(parent);
        let made = self
            .new_in(who, dir, (file.mode, file.umask))
            .and_then(|(new, brought)| self.pool().create_nameless(dir, &new, &changes(&brought)));
        let attr = made.map_err(|error| self.errno_in(dir, &error))?;
        // From here on it is open as long as the kernel knows it.
        let entry = self.named(&attr);
        self.pool().release(attr.ino);
        let entry = entry?;
        Ok(Answer::created(entry, self.opened(attr.ino, file.flags)))
    }

    /// What an inode becomes that is made in a directory, and the lists it inherits.
    fn new_in(
        &self,
        who: Who,
        dir: Ino,
        (mode, umask): (u32, u32),
    ) -> Result<(NewInode, Brought), Error> {
        let parent = self.pool().getattr(dir)?;
        let maker = Maker { uid: who.uid, gid: who.gid, umask };
        birth::new_in(self.pool(), &parent, maker, mode, self.acls)
    }

    pub(super) fn do_symlink(
        &self,
        who: Who,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Result<Answer<'static>, Errno> {
        let dir = self.ino(parent);
        self.answer_entry(dir, || {
            let (gid, _) = birth::group_in(&self.pool().getattr(dir)?, who.gid);
            self.pool().symlink(dir, name, target, who.uid, gid)
        })
    }

    pub(super) fn do_link(
        &self,
        node: NodeId,
        parent: NodeId,
        name: &[u8],
    ) -> Result<Answer<'static>, Errno> {
        let (ino, dir) = (self.ino(node), self.ino(parent));
        self.answer_entry(dir, || self.pool().link(ino, dir, name))
    }

    pub(super) fn do_remove(
        &self,
        parent: NodeId,
        name: &[u8],
        directory: bool,
    ) -> Result<Answer<'static>, Errno> {
        let (dir, pool) = (self.ino(parent), self.pool());
        let done = if directory { pool.rmdir(dir, name) } else { pool.unlink(dir, name) };
        done.map(|()| Answer::Done).map_err(|error| self.errno_of(&error, &[(parent, name)]))
    }

    pub(super) fn do_rename(
        &self,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        flags: u32,
    ) -> Result<Answer<'static>, Errno> {
        let how = rename_mode(flags).ok_or(Errno::EINVAL)?;
        let done = self.pool().rename(self.ino(from.0), from.1, self.ino(to.0), to.1, how);
        if done.is_ok() && self.views.is_meant(to.0, to.1) {
            self.views.replaced();
        }
        done.map(|()| Answer::Done).map_err(|error| self.errno_of(&error, &[from, to]))
    }

    /// The answer for an error of what was to be done with these names: what a mount shows of itself
    /// is not in the pool.
    fn errno_of(&self, error: &Error, names: &[(NodeId, &[u8])]) -> Errno {
        let views = names.iter().any(|(parent, name)| self.views.is_meant(*parent, name));
        if *error == Error::NotFound && views {
            return Errno::EPERM;
        }
        let dir = names.first().map_or(0, |(parent, _)| self.ino(*parent));
        self.errno_in(dir, error)
    }

    /// Answers with the inode that `work` names, in this directory.
    fn answer_entry(
        &self,
        dir: Ino,
        work: impl FnOnce() -> Result<Attr, Error>,
    ) -> Result<Answer<'static>, Errno> {
        let attr = work().map_err(|error| self.errno_in(dir, &error))?;
        Ok(Answer::entry(self.named(&attr)?))
    }
}

fn rename_mode(flags: u32) -> Option<RenameMode> {
    match flags {
        0 => Some(RenameMode::Replace),
        libc::RENAME_NOREPLACE => Some(RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Some(RenameMode::Exchange),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rename_flags_are_one_at_a_time() {
        let (keep, swap) = (libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE);
        assert_eq!(rename_mode(0), Some(RenameMode::Replace));
        assert_eq!(rename_mode(keep), Some(RenameMode::NoReplace));
        assert_eq!(rename_mode(swap), Some(RenameMode::Exchange));
        assert_eq!(rename_mode(keep | swap), None);
        assert_eq!(rename_mode(libc::RENAME_WHITEOUT), None);
        assert_eq!(rename_mode(1 << 20), None);
    }
}
