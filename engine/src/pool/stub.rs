//! Signatures of the public face; the bodies follow.
#![allow(unused_variables, missing_docs)]

use alloc::vec::Vec;
use lode_pmem::Medium;

use crate::{
    Attr, Corruption, DirEntry, Error, Fallocate, FormatOptions, Host, Ino, NewInode, OpenOptions,
    PoolInfo, RenameMode, Result, SetAttr, StatFs, Stats,
};

/// How the pool was found when it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Opening {
    /// A checkpoint was loaded: the last unmount was clean.
    pub clean: bool,
    /// Inodes found.
    pub inodes: u64,
    /// Log pages walked by recovery.
    pub log_pages: u64,
    /// Transactions that a crash had cut off and that did not happen.
    pub aborted: u64,
    /// Files that were open when unlinked, dropped now.
    pub orphans: u64,
    /// One superblock copy was damaged (and repaired, unless read-only).
    pub superblock_repaired: bool,
    /// Damage found by recovery; only a read-only open goes on with any.
    pub damage: Vec<Corruption>,
}

/// What a full check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    /// Pages reachable from metadata (metadata itself included).
    pub pages_used: u64,
    pub pages_free: u64,
    /// All damage, in the order found (the first 10,000).
    pub damage: Vec<Corruption>,
}

/// One line of an inode's log, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordDump {
    /// Offset of the line in the pool.
    pub at: u64,
    /// Name of the kind, as in the format description.
    pub kind: &'static str,
    pub session: u32,
    pub lane: u8,
    pub sequence: u64,
    pub part: u16,
    pub parts: u16,
    /// The body's fields by name, in the order of the format description.
    pub fields: Vec<(&'static str, u64)>,
    /// Name or text bytes, where the kind has any.
    pub text: Vec<u8>,
}

/// A run of a file's pages in the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentDump {
    /// Offset in the file, in bytes.
    pub file_offset: u64,
    /// Offset in the pool, in bytes.
    pub pool_offset: u64,
    pub bytes: u64,
    /// 0 4 KiB, 1 2 MiB, 2 1 GiB.
    pub class: u8,
}

/// All there is to see of an inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InodeDump {
    pub attr: Attr,
    pub nonce: u64,
    /// Offset of the inode's slot.
    pub slot_at: u64,
    /// Offsets of the pages of its log.
    pub log_pages: Vec<u64>,
    pub records: Vec<RecordDump>,
    pub extents: Vec<ExtentDump>,
}

/// An open pool. All methods may be called from many threads.
pub struct Pool<M: Medium, H: Host> {
    medium: M,
    host: H,
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Makes a new, empty pool in the region; what was in it is lost.
    pub fn format(medium: M, host: H, options: &FormatOptions) -> Result<()> {
        Err(Error::NotSupported)
    }
    /// Opens a pool; recovers it when its last session did not end cleanly.
    pub fn open(medium: M, host: H, options: &OpenOptions) -> Result<Self> {
        Err(Error::NotSupported)
    }
    /// Ends the session: writes the checkpoint. Later changes fail with `ReadOnly`.
    pub fn close(&self) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn medium(&self) -> &M {
        &self.medium
    }
    /// How the pool was found.
    pub fn opening(&self) -> Opening {
        Opening::default()
    }
    pub fn info(&self) -> Result<PoolInfo> {
        Err(Error::NotSupported)
    }
    pub fn stats(&self) -> Stats {
        Stats { ops: [0; crate::Op::COUNT], door: lode_pmem::Tally::default() }
    }
    pub fn statfs(&self) -> StatFs {
        StatFs { pages: 0, pages_free: 0, inodes: 0, inodes_free: 0 }
    }
    pub fn root(&self) -> Ino {
        0
    }
    /// `..` works in any directory, `.` too.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
        Err(Error::NotSupported)
    }
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        Err(Error::NotSupported)
    }
    /// One atomic operation, whatever it changes.
    pub fn setattr(&self, ino: Ino, changes: &SetAttr) -> Result<Attr> {
        Err(Error::NotSupported)
    }
    /// Makes a file, directory, FIFO, socket or device.
    pub fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Attr> {
        Err(Error::NotSupported)
    }
    pub fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Attr> {
        Err(Error::NotSupported)
    }
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        Err(Error::NotSupported)
    }
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
        Err(Error::NotSupported)
    }
    pub fn unlink(&self, dir: Ino, name: &[u8]) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn rename(&self, dir: Ino, name: &[u8], to_dir: Ino, to_name: &[u8], mode: RenameMode) -> Result<()> {
        Err(Error::NotSupported)
    }
    /// Keeps an inode's contents while it is open, unlinked or not.
    pub fn acquire(&self, ino: Ino) -> Result<()> {
        Err(Error::NotSupported)
    }
    /// Ends an [`Pool::acquire`]; the last one of an unlinked file frees it.
    pub fn release(&self, ino: Ino) {}
    /// Reads up to `into.len()` bytes; fewer only at the end of the file.
    pub fn read(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        Err(Error::NotSupported)
    }
    /// Writes all of `data` at `offset`, atomically and durably (relaxed mode: durably).
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        Err(Error::NotSupported)
    }
    /// Writes all of `data` at the end of the file; returns the offset it went to.
    pub fn append(&self, ino: Ino, data: &[u8]) -> Result<u64> {
        Err(Error::NotSupported)
    }
    pub fn fallocate(&self, ino: Ino, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        Err(Error::NotSupported)
    }
    /// First offset at or after `offset` with (or without) data; NotFound when there is none.
    pub fn seek(&self, ino: Ino, offset: u64, data: bool) -> Result<u64> {
        Err(Error::NotSupported)
    }
    /// Lists a directory from behind `cookie` (0: from its start; `.` and `..` are not
    /// listed) until `each` returns false: that entry was not taken.
    pub fn readdir(&self, dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<()> {
        Err(Error::NotSupported)
    }
    /// The parent of a directory.
    pub fn parent(&self, dir: Ino) -> Result<Ino> {
        Err(Error::NotSupported)
    }
    /// Everything returned is durable already: checks that the inode exists.
    pub fn fsync(&self, ino: Ino) -> Result<()> {
        Err(Error::NotSupported)
    }
    /// Background work that is due: a round, collection, indexes of untouched inodes dropped.
    /// Call it now and then (about once a second) from one thread.
    pub fn maintain(&self) -> Result<()> {
        Err(Error::NotSupported)
    }
    /// Checks everything; the pool must not be changed meanwhile. `progress` gets
    /// inodes checked and inodes in all.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        Err(Error::NotSupported)
    }
    /// Everything about one inode, offsets in the pool included.
    pub fn dump_inode(&self, ino: Ino) -> Result<InodeDump> {
        Err(Error::NotSupported)
    }
    /// Calls `each` with every inode in use until it returns false.
    pub fn for_each_inode(&self, each: &mut dyn FnMut(Ino) -> bool) -> Result<()> {
        Err(Error::NotSupported)
    }
}
