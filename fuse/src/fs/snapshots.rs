//! The directory `.lode/snapshots`: a directory for each snapshot, which is the pool as it was.
//!
//! What is below those are inodes of the pool to the kernel, with numbers that no other inode has, and it is asked for
//! and answered as all others are; the engine refuses changes. The kernel keeps no name that is here itself, because
//! snapshots come and go without it: a path into one that is deleted ends here, whatever the kernel has
//! cached behind it.

use fuse_abi::linux::{fuse_attr, fuse_entry_out};
use lode_engine::{Error, Host, Ino, Pool, mode};
use lode_pmem::Medium;

use super::Work;
use super::views::{BEHIND_DOTS, DIRECTORY, NEVER};
use crate::wire::{Answer, Entry, Errno, Listing, NodeId, Operation, Request, Room, Scratch};

/// Where the directory is in the mount.
pub const PATH: &str = "/.lode/snapshots";
/// Name of the directory.
pub(super) const NAME: &str = "snapshots";
/// Its number, behind those of all files beside it.
pub(super) const SNAPSHOTS: NodeId = NodeId(DIRECTORY + (1 << 32));

impl<M: Medium + 'static, H: Host> Work<'_, M, H> {
    /// Opens a file of the pool. One in a snapshot can't be opened for writing.
    pub(super) fn do_open(&self, node: NodeId, flags: u32) -> Result<Answer<'static>, Errno> {
        let reads_only = flags.cast_signed() & libc::O_ACCMODE == libc::O_RDONLY;
        let ino = self.ino(node);
        if !reads_only && Pool::<M, H>::is_in_snapshot(ino) {
            return Err(self.errno_in(ino, &Error::ReadOnly));
        }
        Ok(Answer::opened(self.opened(ino, flags)))
    }

    /// Counts an opening of a file that is pinned; returns how the kernel is to treat it.
    pub(super) fn opened(&self, ino: Ino, flags: u32) -> u32 {
        self.served.open(ino);
        self.keeping.open_flags(flags, self.served.pins.was_mapped(ino))
    }

    /// Requests about the directory, and those that would change something in it.
    pub(super) fn answer_snapshots<'s>(
        &self,
        request: &Request<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Answer<'s>, Errno> {
        match request.operation {
            Operation::Lookup { name: b"." } => self.views.entry(SNAPSHOTS).map(Answer::entry),
            Operation::Lookup { name: b".." } => self.views.directory().map(Answer::entry),
            Operation::Lookup { name } => self.lookup_snapshot(name),
            // (Where the kernel has learned not to ask, it keeps the listing until the time of change differs.)
            Operation::Opendir => Ok(Answer::opened(0)),
            Operation::Readdir { position, size } => {
                self.list_snapshots(position, false, scratch.room(size as usize)?)
            }
            Operation::Readdirplus { position, size } => {
                self.list_snapshots(position, true, scratch.room(size as usize)?)
            }
            Operation::Setattr(_)
            | Operation::Symlink { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Create(_)
            | Operation::Tmpfile(_)
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Rename { .. }
            | Operation::Link { .. }
            | Operation::Setxattr { .. }
            | Operation::Removexattr { .. } => Err(Errno::new(Error::ReadOnly.errno())),
            _ => self.answer_any_view(request, scratch),
        }
    }

    fn lookup_snapshot(&self, name: &[u8]) -> Result<Answer<'static>, Errno> {
        let found = self.root_of(name).and_then(|root| self.pool().getattr(root));
        match found {
            Ok(attr) => Ok(Answer::entry(Entry { entry_ttl: NEVER, ..self.named(&attr)? })),
            // Deleted just now, maybe.
            Err(Error::NotFound | Error::Stale | Error::Invalid) => Ok(Answer::absent(NEVER)),
            Err(error) => Err(self.errno_in(0, &error)),
        }
    }

    /// The root of a snapshot. Of very many in one mount the last ones can't be looked into: their numbers would be
    /// those of the views.
    fn root_of(&self, name: &[u8]) -> Result<Ino, Error> {
        let root = self.pool().snapshot_root(name)?;
        if self.served.node(root).0 < DIRECTORY { Ok(root) } else { Err(Error::NoMemory) }
    }

    /// A listing from `position` on, which is behind an epoch. `plus` is the form that has attributes, too; those of
    /// number 0 the kernel does not take.
    fn list_snapshots<'s>(
        &self,
        position: u64,
        plus: bool,
        room: &'s mut [u8],
    ) -> Result<Answer<'s>, Errno> {
        let mut list = Listing::new(room);
        let mut add = |node: NodeId, behind: u64, name: &[u8]| {
            if behind <= position {
                return Room::Left;
            }
            if !plus {
                return list.add(node, behind, mode::DIRECTORY, name);
            }
            let attr = fuse_attr { ino: node.0, mode: mode::DIRECTORY, ..fuse_attr::default() };
            let unknown = fuse_entry_out { attr, ..fuse_entry_out::default() };
            list.add_entry(&unknown, behind, mode::DIRECTORY, name)
        };
        let dots = [(SNAPSHOTS, 1, "."), (NodeId(DIRECTORY), BEHIND_DOTS, "..")];
        let full = dots
            .into_iter()
            .any(|(node, behind, name)| add(node, behind, name.as_bytes()) == Room::Full);
        if full {
            return Ok(list.finish());
        }
        for (name, epoch) in
            self.pool().snapshot_names().map_err(|error| self.errno_in(0, &error))?
        {
            let behind = BEHIND_DOTS + u64::from(epoch);
            if behind <= position {
                continue;
            }
            match self.root_of(&name) {
                Ok(root) if add(NodeId(root), behind, &name) == Room::Full => break,
                // Deleted since it was listed.
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => return Err(self.errno_in(0, &error)),
            }
        }
        Ok(list.finish())
    }
}
