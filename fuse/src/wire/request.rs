//! Requests: from the bytes that a read of the device gave to values that can't be wrong.

use fuse_abi::linux::{
    FATTR_ATIME, FATTR_ATIME_NOW, FATTR_GID, FATTR_MODE, FATTR_MTIME, FATTR_MTIME_NOW, FATTR_SIZE,
    FATTR_UID, FUSE_READ_LOCKOWNER, FUSE_ROOT_ID, FUSE_WRITE_CACHE, FUSE_WRITE_KILL_SUIDGID,
    fuse_access_in, fuse_batch_forget_in, fuse_copy_file_range_in, fuse_create_in,
    fuse_fallocate_in, fuse_flush_in, fuse_forget_in, fuse_forget_one, fuse_fsync_in,
    fuse_getattr_in, fuse_getxattr_in, fuse_in_header, fuse_ioctl_in, fuse_link_in, fuse_lseek_in,
    fuse_mkdir_in, fuse_mknod_in, fuse_opcode as op, fuse_open_in, fuse_read_in, fuse_release_in,
    fuse_rename_in, fuse_rename2_in, fuse_setattr_in, fuse_statx_in, fuse_write_in,
};
use zerocopy::FromBytes;

use super::arguments::Arguments;
use super::errno::Errno;

/// The kernel's number of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The directory that is mounted.
    pub const ROOT: Self = Self(FUSE_ROOT_ID);
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process.
    pub pid: u32,
}

/// A request of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The inode it is about; where that is a name, the directory.
    pub node: NodeId,
    /// Who asks.
    pub who: Who,
    /// What for.
    pub operation: Operation<'a>,
}

impl Request<'_> {
    /// The inodes that it is about.
    pub fn nodes(&self) -> [NodeId; 2] {
        let other = match self.operation {
            Operation::Rename { to, .. } | Operation::CopyFileRange { to, .. } => to,
            Operation::Link { from, .. } => from,
            _ => self.node,
        };
        [self.node, other]
    }
}

/// What can be asked for. The number of an open file is what its open was answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is the system call of its name, with its arguments")]
pub enum Operation<'a> {
    Lookup { name: &'a [u8] },
    Forget { lookups: u64 },
    BatchForget(Forgets<'a>),
    Getattr,
    Setattr(Changes),
    Statx,
    Readlink,
    Symlink { name: &'a [u8], target: &'a [u8] },
    Mknod { name: &'a [u8], mode: u32, umask: u32, rdev: u32 },
    Mkdir { name: &'a [u8], mode: u32, umask: u32 },
    Create(NewFile<'a>),
    Tmpfile(NewFile<'a>),
    Unlink { name: &'a [u8] },
    Rmdir { name: &'a [u8] },
    Rename { name: &'a [u8], to: NodeId, new_name: &'a [u8], flags: u32 },
    Link { from: NodeId, name: &'a [u8] },
    Open { flags: u32 },
    Read { handle: u64, offset: u64, size: u32, quiet: bool, for_map: bool },
    Write(NewData<'a>),
    Flush,
    Release { handle: u64 },
    Fsync,
    Opendir,
    Readdir { position: u64, size: u32 },
    Readdirplus { position: u64, size: u32 },
    Releasedir,
    Fsyncdir,
    Statfs,
    Setxattr { name: &'a [u8], value: &'a [u8], flags: u32 },
    Getxattr { name: &'a [u8], size: u32 },
    Listxattr { size: u32 },
    Removexattr { name: &'a [u8] },
    Access,
    Ioctl,
    Fallocate { offset: u64, length: u64, mode: u32 },
    Lseek { offset: u64, whence: u32 },
    CopyFileRange { offset: u64, to: NodeId, to_offset: u64, length: u64 },
    Destroy,
}

impl Operation<'_> {
    /// Whether it may take so long that another thread is to wait for requests from the beginning. (Of what moves a megabyte that
    /// would only be slower: another thread has memory of its own, which no cache has.)
    pub(super) fn is_long(&self) -> bool {
        matches!(self, Self::Fallocate { .. } | Self::CopyFileRange { .. })
    }

    /// Bytes that it brings or asks for.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Read { size, .. } => *size as usize,
            Self::Write(new) => new.data.len(),
            _ => 0,
        }
    }
}

/// Bytes to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewData<'a> {
    /// Where in the file.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
    /// Who writes may not keep a file that runs with rights of its own as it is.
    pub unprivileged: bool,
    /// They were stored through a mapping: nobody waits for them, and nobody would write the
    /// rest of them again.
    pub mapped: bool,
}

/// A file to be made and opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFile<'a> {
    /// Its name; of one without a name, whatever the kernel calls it.
    pub name: &'a [u8],
    /// Type and permissions asked for.
    pub mode: u32,
    /// Permissions that it must not get.
    pub umask: u32,
    /// The flags of the open.
    pub flags: u32,
}

/// A time that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeOrNow {
    /// The time when it is done.
    Now,
    /// Nanoseconds since 1970; the nearest that 64 bits can hold.
    At(i64),
}

/// Attributes to be changed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Changes {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<TimeOrNow>,
    /// Last modification.
    pub mtime: Option<TimeOrNow>,
}

/// Inodes to forget, and how many lookups of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forgets<'a>(&'a [[u8; FORGET]]);

const FORGET: usize = size_of::<fuse_forget_one>();

impl Forgets<'_> {
    /// Each inode, with the lookups to forget.
    pub fn each(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let read = |bytes: &[u8; FORGET]| fuse_forget_one::read_from_bytes(bytes).ok();
        self.0.iter().filter_map(read).map(|one| (NodeId(one.nodeid), one.nlookup))
    }
}

/// What came: whom to answer, and the request, or what is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming<'a> {
    /// The kernel's number of the request; none where it waits for no answer.
    pub unique: Option<u64>,
    /// The request, or the error to answer with.
    pub request: Result<Request<'a>, Errno>,
}

/// Reads the request that one read of the device gave; none if it has not even a header.
pub fn parse(bytes: &[u8]) -> Option<Incoming<'_>> {
    let (header, rest) = fuse_in_header::read_from_prefix(bytes).ok()?;
    let opcode = op::try_from(header.opcode);
    let silent = matches!(opcode, Ok(op::FUSE_FORGET | op::FUSE_BATCH_FORGET));
    // An answer to number 0 would be taken for a message of the server's own.
    let unique = Some(header.unique).filter(|unique| *unique != 0 && !silent);
    if header.len as usize != bytes.len() {
        return Some(Incoming { unique, request: Err(Errno::EIO) });
    }
    Some(Incoming { unique, request: request_of(&header, Arguments::new(rest)) })
}

/// The request of which header, structure and data stand apart. Each of those is answered.
pub fn parse_parts<'a>(
    header: &fuse_in_header,
    structure: &'a [u8],
    data: &'a [u8],
) -> Incoming<'a> {
    let request = request_of(header, Arguments::split(structure, data));
    Incoming { unique: Some(header.unique), request }
}

fn request_of<'a>(header: &fuse_in_header, arguments: Arguments<'a>) -> Result<Request<'a>, Errno> {
    let opcode = op::try_from(header.opcode).map_err(|_| Errno::ENOSYS)?;
    Ok(Request {
        node: NodeId(header.nodeid),
        who: Who { uid: header.uid, gid: header.gid, pid: header.pid },
        operation: operation_of(opcode, arguments)?,
    })
}

fn operation_of(opcode: op, mut all: Arguments<'_>) -> Result<Operation<'_>, Errno> {
    match opcode {
        op::FUSE_OPEN => Ok(Operation::Open { flags: all.take::<fuse_open_in>()?.flags }),
        op::FUSE_READ => {
            let fuse_read_in { fh, offset, size, flags, read_flags, .. } = all.take()?;
            // Who opened the file asked for its access time to stay.
            let quiet = flags & libc::O_NOATIME.cast_unsigned() != 0;
            // What fills the kernel's page cache is nobody's, and all else is some process's.
            let fills_cache = read_flags & FUSE_READ_LOCKOWNER == 0;
            let writable = flags.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY;
            let for_map = fills_cache && writable;
            Ok(Operation::Read { handle: fh, offset, size, quiet, for_map })
        }
        op::FUSE_WRITE => write(all),
        op::FUSE_FLUSH => all.take::<fuse_flush_in>().map(|_| Operation::Flush),
        op::FUSE_RELEASE => Ok(Operation::Release { handle: all.take::<fuse_release_in>()?.fh }),
        op::FUSE_FSYNC => all.take::<fuse_fsync_in>().map(|_| Operation::Fsync),
        op::FUSE_OPENDIR => all.take::<fuse_open_in>().map(|_| Operation::Opendir),
        op::FUSE_READDIR => list(all).map(|(position, size)| Operation::Readdir { position, size }),
        op::FUSE_READDIRPLUS => {
            list(all).map(|(position, size)| Operation::Readdirplus { position, size })
        }
        op::FUSE_RELEASEDIR => all.take::<fuse_release_in>().map(|_| Operation::Releasedir),
        op::FUSE_FSYNCDIR => all.take::<fuse_fsync_in>().map(|_| Operation::Fsyncdir),
        op::FUSE_STATFS => Ok(Operation::Statfs),
        op::FUSE_ACCESS => all.take::<fuse_access_in>().map(|_| Operation::Access),
        op::FUSE_IOCTL => all.take::<fuse_ioctl_in>().map(|_| Operation::Ioctl),
        op::FUSE_FALLOCATE => {
            let fuse_fallocate_in { offset, length, mode, .. } = all.take()?;
            Ok(Operation::Fallocate { offset, length, mode })
        }
        op::FUSE_LSEEK => {
            let fuse_lseek_in { offset, whence, .. } = all.take()?;
            Ok(Operation::Lseek { offset, whence })
        }
        op::FUSE_COPY_FILE_RANGE => {
            let fuse_copy_file_range_in { off_in, nodeid_out, off_out, len, .. } = all.take()?;
            let (to, to_offset) = (NodeId(nodeid_out), off_out);
            Ok(Operation::CopyFileRange { offset: off_in, to, to_offset, length: len })
        }
        op::FUSE_DESTROY => Ok(Operation::Destroy),
        // Once, and before all others.
        op::FUSE_INIT => Err(Errno::EIO),
        other => names_of(other, all),
    }
}

/// Operations on names and inodes.
fn names_of(opcode: op, mut all: Arguments<'_>) -> Result<Operation<'_>, Errno> {
    match opcode {
        op::FUSE_LOOKUP => Ok(Operation::Lookup { name: all.name()? }),
        op::FUSE_FORGET => Ok(Operation::Forget { lookups: all.take::<fuse_forget_in>()?.nlookup }),
        op::FUSE_BATCH_FORGET => forgets(all),
        op::FUSE_GETATTR => all.take::<fuse_getattr_in>().map(|_| Operation::Getattr),
        op::FUSE_SETATTR => changes(&all.take()?).map(Operation::Setattr),
        op::FUSE_STATX => all.take::<fuse_statx_in>().map(|_| Operation::Statx),
        op::FUSE_READLINK => Ok(Operation::Readlink),
        op::FUSE_SYMLINK => Ok(Operation::Symlink { name: all.name()?, target: all.text()? }),
        op::FUSE_MKNOD => {
            let fuse_mknod_in { mode, rdev, umask, .. } = all.take()?;
            Ok(Operation::Mknod { name: all.name()?, mode: mode_of(mode)?, umask, rdev })
        }
        op::FUSE_MKDIR => {
            let fuse_mkdir_in { mode, umask } = all.take()?;
            Ok(Operation::Mkdir { name: all.name()?, mode: mode_of(mode)?, umask })
        }
        op::FUSE_CREATE => new_file(all).map(Operation::Create),
        op::FUSE_TMPFILE => new_file(all).map(Operation::Tmpfile),
        op::FUSE_UNLINK => Ok(Operation::Unlink { name: all.name()? }),
        op::FUSE_RMDIR => Ok(Operation::Rmdir { name: all.name()? }),
        op::FUSE_RENAME => rename(all.take::<fuse_rename_in>()?.newdir, 0, all),
        op::FUSE_RENAME2 => {
            let fuse_rename2_in { newdir, flags, .. } = all.take()?;
            rename(newdir, flags, all)
        }
        op::FUSE_LINK => {
            let from = NodeId(all.take::<fuse_link_in>()?.oldnodeid);
            Ok(Operation::Link { from, name: all.name()? })
        }
        op::FUSE_SETXATTR => {
            // The kernel's structure has more parts, which it sends only to who asks for them.
            let [size, flags] = all.take::<[u32; 2]>()?;
            Ok(Operation::Setxattr { name: all.name()?, value: all.rest(size)?, flags })
        }
        op::FUSE_GETXATTR => {
            let size = all.take::<fuse_getxattr_in>()?.size;
            Ok(Operation::Getxattr { name: all.name()?, size })
        }
        op::FUSE_LISTXATTR => {
            Ok(Operation::Listxattr { size: all.take::<fuse_getxattr_in>()?.size })
        }
        op::FUSE_REMOVEXATTR => Ok(Operation::Removexattr { name: all.name()? }),
        // Interrupts among them: no request takes long enough to be broken off. The kernel
        // sends no more once it has heard so (by io_uring it does), and waits for the answers as it would anyway.
        _ => Err(Errno::ENOSYS),
    }
}

fn list(mut all: Arguments<'_>) -> Result<(u64, u32), Errno> {
    let fuse_read_in { offset, size, .. } = all.take()?;
    Ok((offset, size))
}

fn write(mut all: Arguments<'_>) -> Result<Operation<'_>, Errno> {
    let fuse_write_in { offset, size, write_flags, .. } = all.take()?;
    let unprivileged = write_flags & FUSE_WRITE_KILL_SUIDGID != 0;
    let mapped = write_flags & FUSE_WRITE_CACHE != 0;
    Ok(Operation::Write(NewData { offset, data: all.rest(size)?, unprivileged, mapped }))
}

fn rename(to: u64, flags: u32, mut all: Arguments<'_>) -> Result<Operation<'_>, Errno> {
    let (name, new_name) = (all.name()?, all.name()?);
    Ok(Operation::Rename { name, to: NodeId(to), new_name, flags })
}

fn new_file(mut all: Arguments<'_>) -> Result<NewFile<'_>, Errno> {
    let fuse_create_in { flags, mode, umask, .. } = all.take()?;
    Ok(NewFile { name: all.name()?, mode: mode_of(mode)?, umask, flags })
}

fn forgets(mut all: Arguments<'_>) -> Result<Operation<'_>, Errno> {
    let count = all.take::<fuse_batch_forget_in>()?.count as usize;
    let (each, _) = all.all().as_chunks::<FORGET>();
    each.get(..count).map(|each| Operation::BatchForget(Forgets(each))).ok_or(Errno::EINVAL)
}

fn changes(asked: &fuse_setattr_in) -> Result<Changes, Errno> {
    let has = |flag: u32| asked.valid & flag != 0;
    let time = |set: u32, now: u32, seconds: u64, nanoseconds: u32| match (has(set), has(now)) {
        (false, _) => Ok(None),
        (true, true) => Ok(Some(TimeOrNow::Now)),
        (true, false) => time_of(seconds.cast_signed(), nanoseconds).map(Some),
    };
    Ok(Changes {
        mode: has(FATTR_MODE).then(|| mode_of(asked.mode)).transpose()?,
        uid: has(FATTR_UID).then_some(asked.uid),
        gid: has(FATTR_GID).then_some(asked.gid),
        size: has(FATTR_SIZE).then_some(asked.size),
        atime: time(FATTR_ATIME, FATTR_ATIME_NOW, asked.atime, asked.atimensec)?,
        mtime: time(FATTR_MTIME, FATTR_MTIME_NOW, asked.mtime, asked.mtimensec)?,
    })
}

/// A mode has 16 bits: type and permissions.
fn mode_of(bits: u32) -> Result<u32, Errno> {
    u16::try_from(bits).map(u32::from).map_err(|_| Errno::EINVAL)
}

fn time_of(seconds: i64, nanoseconds: u32) -> Result<TimeOrNow, Errno> {
    const NS: u32 = 1_000_000_000;
    if nanoseconds >= NS {
        return Err(Errno::EINVAL);
    }
    let whole = seconds.saturating_mul(i64::from(NS));
    Ok(TimeOrNow::At(whole.saturating_add(i64::from(nanoseconds))))
}

#[cfg(test)]
mod tests;
