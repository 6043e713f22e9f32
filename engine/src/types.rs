//! The plain types of the public face.

use alloc::vec::Vec;

use lode_pmem::Losses;

/// Bytes in a page.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a chunk, which memory is lent by: a huge page.
pub const LENT_BYTES: u64 = 2 << 20;
/// Bytes of each half of a file's journal page. An overwrite of no more, inside of one page, takes
/// no pages for its data, so that it is possible in a full pool.
pub const JOURNAL_HALF: u64 = PAGE_BYTES / 2;
/// Longest name of an entry, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes.
pub const SYMLINK_MAX: usize = 4095;
/// Largest size of a file, in bytes.
pub const FILE_MAX: u64 = i64::MAX as u64 & !(PAGE_BYTES - 1);

/// Longest label of a pool, in bytes.
pub const LABEL_MAX: usize = 64;
/// Longest value of an extended attribute, in bytes.
pub const XATTR_VALUE_MAX: usize = 64 << 10;
/// Bytes of the names of an inode's extended attributes, each with a NUL behind it, at most: a
/// longer list can't be asked for.
pub const XATTR_LIST_MAX: usize = 64 << 10;

/// Number of an inode: its slot's offset in the pool, divided by 512.
pub type Ino = u64;

/// Numbers from here on are those of inodes in snapshots.
pub(crate) const VIEW: Ino = 1 << VIEW_BITS;
pub(crate) const VIEW_BITS: u32 = 40;

/// The number that inode `ino` has beside `other`: in the same snapshot, or now (beside 0, too). Whether it is there is
/// another question. (Two snapshots that both have an inode have the same number for it, and no other inode has that
/// in either: a slot is not used again while a snapshot sees what was in it.)
pub fn ino_beside(ino: Ino, other: Ino) -> Ino {
    ino & (VIEW - 1) | other & !(VIEW - 1)
}

/// `st_mode` bits of the file type.
pub mod mode {
    /// All bits that a mode can have.
    pub const ALL: u32 = 0o177_777;
    /// Mask of the type.
    pub const TYPE: u32 = 0o170_000;
    /// Socket.
    pub const SOCKET: u32 = 0o140_000;
    /// Symbolic link.
    pub const SYMLINK: u32 = 0o120_000;
    /// Regular file.
    pub const FILE: u32 = 0o100_000;
    /// Block device.
    pub const BLOCK: u32 = 0o060_000;
    /// Directory.
    pub const DIRECTORY: u32 = 0o040_000;
    /// Character device.
    pub const CHARACTER: u32 = 0o020_000;
    /// FIFO.
    pub const FIFO: u32 = 0o010_000;
}

/// Size and alignment in which a file's pages are taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum PageClass {
    /// 4 KiB.
    #[default]
    Small = 0,
    /// 2 MiB.
    Huge = 1,
    /// 1 GiB.
    Giant = 2,
}

impl PageClass {
    /// 4 KiB pages in one page of this class.
    pub const fn pages(self) -> u64 {
        match self {
            Self::Small => 1,
            Self::Huge => 512,
            Self::Giant => 512 * 512,
        }
    }

    /// The class with this number on the medium.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Small),
            1 => Some(Self::Huge),
            2 => Some(Self::Giant),
            _ => None,
        }
    }
}

/// What `stat` says of an inode. Times in nanoseconds since 1970, UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Differs between the lives of one inode number.
    pub generation: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, major << 32 | minor.
    pub rdev: u64,
    /// Size in bytes.
    pub size: u64,
    /// Pages of 4 KiB that hold data.
    pub pages: u64,
    /// Last access.
    pub atime_ns: i64,
    /// Last modification.
    pub mtime_ns: i64,
    /// Last change.
    pub ctime_ns: i64,
    /// Birth.
    pub btime_ns: i64,
    /// How many extended attributes there are.
    pub xattrs: u32,
}

/// A new inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewInode {
    /// Type and permissions: any type but a symbolic link.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, major << 32 | minor, of devices.
    pub rdev: u64,
}

/// Changes of attributes; what is `None` stays. All of it is one atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permissions (the type is kept).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime_ns: Option<i64>,
    /// Modification time.
    pub mtime_ns: Option<i64>,
}

/// A change of one extended attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XattrChange<'a> {
    /// Its name, with its namespace: 1 to 255 bytes, none of them NUL.
    pub name: &'a [u8],
    /// Its new value, of up to [`XATTR_VALUE_MAX`] bytes; `None` removes it.
    pub value: Option<&'a [u8]>,
    /// When this may be.
    pub when: XattrWhen,
}

/// What must be so for an extended attribute to be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrWhen {
    /// Nothing.
    #[default]
    Always,
    /// There is none of this name yet; else [`crate::Error::Exists`].
    Absent,
    /// There is one of this name; else [`crate::Error::NoAttribute`].
    Present,
}

/// How a rename treats an existing target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// Replace it.
    Replace,
    /// Fail with [`crate::Error::Exists`].
    NoReplace,
    /// Swap the two.
    Exchange,
}

/// A part of a file that is contiguous in the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapExtent {
    /// Offset in the file, in bytes.
    pub file_offset: u64,
    /// Offset in the pool, in bytes.
    pub pool_offset: u64,
    /// Bytes: whole pages.
    pub bytes: u64,
}

/// What staged pages hold before something is stored to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Staging {
    /// What the file has there.
    Copied,
    /// Zeros: for those who will store all of it.
    Zeroed,
}

/// What `fallocate` is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallocate {
    /// Back the range with (zeroed) pages; grow the file unless told to keep its size.
    Allocate {
        /// Do not grow the file.
        keep_size: bool,
    },
    /// Make a hole; the size stays.
    Punch,
    /// Make the range read as zeros; grow the file unless told to keep its size.
    Zero {
        /// Do not grow the file.
        keep_size: bool,
    },
}

/// One entry of a directory listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// Inode number of the child.
    pub ino: Ino,
    /// File type of the child, as the top bits of its mode (`mode::TYPE`).
    pub kind: u32,
    /// Where a later listing goes on behind this entry; never 0, stable for the life of the name.
    pub cookie: u64,
    /// Name, any bytes but `/` and NUL.
    pub name: &'a [u8],
}

/// Space of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Pages of 4 KiB in the pool.
    pub pages: u64,
    /// Pages that hold nothing (those that a round would free included).
    pub pages_free: u64,
    /// Pages that can be had: the others are kept so that a full pool can be emptied.
    pub pages_available: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that could still be made.
    pub inodes_free: u64,
}

/// How to make a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatOptions {
    /// Label, at most 64 bytes.
    pub label: Vec<u8>,
    /// UUID; random where `None`.
    pub uuid: Option<[u8; 16]>,
    /// Lanes on the medium, 1 to 256.
    pub lanes: u32,
    /// Record lines of a log page, 4 to 63. With fewer, logs grow and are collected sooner,
    /// and names longer than a log page holds are refused.
    pub log_lines: u8,
    /// Default page class of files.
    pub page_class: PageClass,
    /// What the pool has of its contents twice.
    pub protection: Protection,
    /// Bytes of a scribble that may not reach both copies of anything that the pool has twice, at most
    /// [`DEAD_ZONE_MOST`].
    pub dead_zone: u64,
    /// Bytes of a strip of file data at level [`Protection::Full`]: 512, 1024 or 2048. Each has a checksum in
    /// two tables, and each page a parity strip of this size.
    pub strip_bytes: u32,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Permissions of the root directory.
    pub root_mode: u32,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            label: Vec::new(),
            uuid: None,
            lanes: 16,
            log_lines: crate::layout::LOG_LINES_MOST,
            page_class: PageClass::Small,
            protection: Protection::None,
            dead_zone: DEAD_ZONE,
            strip_bytes: STRIP_BYTES,
            root_uid: 0,
            root_gid: 0,
            root_mode: 0o755,
        }
    }
}

/// What a pool has of its contents twice, or checksums of (NOVA-Fortis, 4.2 and 4.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Protection {
    /// Nothing but the superblock: damage is found, and can't be mended.
    #[default]
    None = 0,
    /// Each line of metadata, at a distance, stored under the same fence.
    Metadata = 1,
    /// The same, and of file data a checksum for each strip, in two tables at a distance, and a parity strip
    /// for each page: what is loaded is right, or an error.
    Full = 2,
}

impl Protection {
    /// All levels, the weakest first.
    pub const ALL: [Self; 3] = [Self::None, Self::Metadata, Self::Full];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Metadata => "metadata",
            Self::Full => "full",
        }
    }

    /// Its number on the medium.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Metadata),
            2 => Some(Self::Full),
            _ => None,
        }
    }
}

/// Bytes of the usual strip of file data.
pub const STRIP_BYTES: u32 = 512;
/// The usual dead zone of a pool, in bytes.
pub const DEAD_ZONE: u64 = 1 << 20;
/// The largest dead zone of a pool, in bytes.
pub const DEAD_ZONE_MOST: u64 = (PAGE_BYTES << crate::layout::TWIN_LOG2_MOST) - PAGE_BYTES;

/// How to open a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    /// Write nothing, not even recovery's repairs.
    pub read_only: bool,
    /// Overwrite file data in place, without atomicity.
    pub relaxed: bool,
    /// Page class for files made in this run, instead of the pool's default.
    pub page_class: Option<PageClass>,
    /// Access times.
    pub atime: AccessTimes,
    /// Bytes of main memory that the indexes may take ([`crate::IndexMemory`]); as much as they need
    /// where `None`. What is in use stays in memory, and may take more.
    pub index_memory: Option<u64>,
    /// For who receives a snapshot: a pool that is being received into opens, as far as that has come. (Else it
    /// opens read-only, as it was before.) Sizes are no hints at page classes: what is received keeps its holes.
    pub receiving: bool,
}

/// When a read moves the access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AccessTimes {
    /// When it is not later than the last change, or a day old (relatime).
    #[default]
    Relative,
    /// Always (strictatime).
    Always,
    /// Never (noatime).
    Never,
}

/// What a pool says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolInfo {
    /// UUID.
    pub uuid: [u8; 16],
    /// Label, without its padding.
    pub label: Vec<u8>,
    /// Format version.
    pub version: u32,
    /// Bytes in the pool.
    pub bytes: u64,
    /// Lanes on the medium.
    pub lanes: u32,
    /// Protection level.
    pub protection: Protection,
    /// Bytes of a scribble that can't reach both copies of anything that the pool has twice; 0 at level
    /// `none`.
    pub dead_zone: u64,
    /// Bytes of a strip of file data, each of which has a checksum; 0 below level `full`.
    pub strip_bytes: u32,
    /// Default page class of files.
    pub page_class: PageClass,
    /// Session: read-write opens so far.
    pub session: u32,
    /// Epoch.
    pub epoch: u32,
    /// Time of creation.
    pub created_ns: i64,
    /// The last read-write session ended with a clean unmount.
    pub clean: bool,
    /// Compatible, read-only compatible and incompatible feature bits.
    pub features: [u64; 3],
    /// How often the memory had lost what was stored when the pool was last opened for writing; `None` where it does not tell.
    pub losses: Option<Losses>,
}

/// The operations that are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
#[allow(missing_docs)]
pub enum Op {
    Lookup,
    Getattr,
    Setattr,
    Create,
    Tmpfile,
    Mkdir,
    Mknod,
    Symlink,
    Readlink,
    Link,
    Unlink,
    Rmdir,
    Rename,
    Read,
    Write,
    Fallocate,
    Truncate,
    Readdir,
    Fsync,
    Statfs,
    Setxattr,
    Getxattr,
    Listxattr,
    Removexattr,
    Round,
    CollectFast,
    CollectThorough,
}

impl Op {
    /// How many kinds there are.
    pub const COUNT: usize = 27;
    /// All kinds, in order.
    pub const ALL: [Op; Self::COUNT] = [
        Op::Lookup,
        Op::Getattr,
        Op::Setattr,
        Op::Create,
        Op::Tmpfile,
        Op::Mkdir,
        Op::Mknod,
        Op::Symlink,
        Op::Readlink,
        Op::Link,
        Op::Unlink,
        Op::Rmdir,
        Op::Rename,
        Op::Read,
        Op::Write,
        Op::Fallocate,
        Op::Truncate,
        Op::Readdir,
        Op::Fsync,
        Op::Statfs,
        Op::Setxattr,
        Op::Getxattr,
        Op::Listxattr,
        Op::Removexattr,
        Op::Round,
        Op::CollectFast,
        Op::CollectThorough,
    ];

    /// Name for people and for JSON keys.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Lookup => "lookup",
            Op::Getattr => "getattr",
            Op::Setattr => "setattr",
            Op::Create => "create",
            Op::Tmpfile => "tmpfile",
            Op::Mkdir => "mkdir",
            Op::Mknod => "mknod",
            Op::Symlink => "symlink",
            Op::Readlink => "readlink",
            Op::Link => "link",
            Op::Unlink => "unlink",
            Op::Rmdir => "rmdir",
            Op::Rename => "rename",
            Op::Read => "read",
            Op::Write => "write",
            Op::Fallocate => "fallocate",
            Op::Truncate => "truncate",
            Op::Readdir => "readdir",
            Op::Fsync => "fsync",
            Op::Statfs => "statfs",
            Op::Setxattr => "setxattr",
            Op::Getxattr => "getxattr",
            Op::Listxattr => "listxattr",
            Op::Removexattr => "removexattr",
            Op::Round => "round",
            Op::CollectFast => "collect_fast",
            Op::CollectThorough => "collect_thorough",
        }
    }
}

/// Log pages that the collection of logs gave back. (Those of inodes that ended are not in it.)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// By fast collection: pages whose records were all dead.
    pub fast_pages: u64,
    /// By thorough collection: the pages of logs that were rewritten, into fewer fresh ones.
    pub thorough_pages: u64,
}

/// Strips of file data that were damaged, or whose checksum was, as reads met them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DataRepairs {
    /// Made right: by the second checksum, or from the parity. (Each time, in a pool that is open read-only.)
    pub repaired: u64,
    /// Reads that ended in an error, as nothing was left that was right.
    pub lost: u64,
}

/// Exact monotonic counts since the pool was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Operations by kind, indexed by [`Op`].
    pub ops: [u64; Op::COUNT],
    /// What went through the door.
    pub door: lode_pmem::Tally,
    /// Log pages that collection gave back.
    pub collected: Collected,
    /// Inodes that were dropped from memory to make room for others.
    pub dropped_inodes: u64,
}

const _: () = assert!(Op::Statfs as usize == 19 && Op::CollectThorough as usize == Op::COUNT - 1);
