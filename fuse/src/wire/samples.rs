//! Requests as a kernel sends them: for tests.

use fuse_abi::linux::{
    FATTR_ATIME, FATTR_MODE, FATTR_MTIME, FATTR_MTIME_NOW, FUSE_READ_LOCKOWNER, FUSE_WRITE_CACHE,
    FUSE_WRITE_KILL_SUIDGID, fuse_access_in, fuse_batch_forget_in, fuse_copy_file_range_in,
    fuse_create_in, fuse_fallocate_in, fuse_flush_in, fuse_forget_in, fuse_forget_one,
    fuse_fsync_in, fuse_getattr_in, fuse_getxattr_in, fuse_in_header, fuse_ioctl_in, fuse_link_in,
    fuse_lseek_in, fuse_mkdir_in, fuse_mknod_in, fuse_opcode as op, fuse_open_in, fuse_read_in,
    fuse_release_in, fuse_rename_in, fuse_rename2_in, fuse_setattr_in, fuse_statx_in,
    fuse_write_in,
};
use zerocopy::IntoBytes;

use super::request::{Changes, NewData, NewFile, NodeId, Operation, TimeOrNow};

/// The number of every request made here.
pub const UNIQUE: u64 = 0x1234;
/// The inode that every request made here is about.
pub const NODE: u64 = 5;

/// What stands behind the header of a request, and what it means.
pub struct Sample {
    pub opcode: op,
    pub body: Vec<u8>,
    /// Bytes of the structure that the body begins with.
    pub own: usize,
    pub operation: Operation<'static>,
}

/// A request with the header that goes with it.
pub fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let len = (size_of::<fuse_in_header>() + body.len()) as u32;
    let (unique, uid, gid, pid) = (UNIQUE, 1, 2, 3);
    let header = fuse_in_header { len, opcode, unique, nodeid: node, uid, gid, pid, ..zero() };
    [header.as_bytes(), body].concat()
}

impl Sample {
    /// The whole request.
    pub fn bytes(&self) -> Vec<u8> {
        request(self.opcode as u32, NODE, &self.body)
    }
}

fn zero<T: Default>() -> T {
    T::default()
}

fn sample(opcode: op, parts: &[&[u8]], operation: Operation<'static>) -> Sample {
    let without = matches!(
        opcode,
        op::FUSE_LOOKUP
            | op::FUSE_SYMLINK
            | op::FUSE_UNLINK
            | op::FUSE_RMDIR
            | op::FUSE_REMOVEXATTR
    );
    let own = parts.first().filter(|_| !without).map_or(0, |part| part.len());
    Sample { opcode, body: parts.concat(), own, operation }
}

/// A request of every kind that is understood, but for the forgets of many inodes.
pub fn all() -> Vec<Sample> {
    let mut all = of_names();
    all.extend(of_files());
    all.extend(of_attributes());
    all
}

/// Forgets of so many inodes as `each` has; the kernel says `count`.
pub fn forgets(count: u32, each: &[(u64, u64)]) -> Vec<u8> {
    let mut body = fuse_batch_forget_in { count, dummy: 0 }.as_bytes().to_vec();
    for &(nodeid, nlookup) in each {
        body.extend(fuse_forget_one { nodeid, nlookup }.as_bytes());
    }
    body
}

fn of_names() -> Vec<Sample> {
    let new = NewFile { name: b"n", mode: 1, umask: 2, flags: 3 };
    let create = fuse_create_in { flags: 3, mode: 1, umask: 2, open_flags: 0 };
    let mknod = fuse_mknod_in { mode: 1, rdev: 2, umask: 3, padding: 0 };
    let rename = fuse_rename2_in { newdir: 9, flags: 2, padding: 0 };
    let (name, new_name, to) = (&b"n"[..], &b"new"[..], NodeId(9));
    vec![
        sample(op::FUSE_LOOKUP, &[b"n\0"], Operation::Lookup { name }),
        sample(
            op::FUSE_FORGET,
            &[fuse_forget_in { nlookup: 7 }.as_bytes()],
            Operation::Forget { lookups: 7 },
        ),
        sample(op::FUSE_READLINK, &[], Operation::Readlink),
        sample(op::FUSE_SYMLINK, &[b"n\0", b"to\0"], Operation::Symlink { name, target: b"to" }),
        sample(
            op::FUSE_MKNOD,
            &[mknod.as_bytes(), b"n\0"],
            Operation::Mknod { name, mode: 1, umask: 3, rdev: 2 },
        ),
        sample(
            op::FUSE_MKDIR,
            &[fuse_mkdir_in { mode: 1, umask: 3 }.as_bytes(), b"n\0"],
            Operation::Mkdir { name, mode: 1, umask: 3 },
        ),
        sample(op::FUSE_CREATE, &[create.as_bytes(), b"n\0"], Operation::Create(new)),
        sample(op::FUSE_TMPFILE, &[create.as_bytes(), b"n\0"], Operation::Tmpfile(new)),
        sample(op::FUSE_UNLINK, &[b"n\0"], Operation::Unlink { name }),
        sample(op::FUSE_RMDIR, &[b"n\0"], Operation::Rmdir { name }),
        sample(
            op::FUSE_RENAME,
            &[fuse_rename_in { newdir: 9 }.as_bytes(), b"n\0new\0"],
            Operation::Rename { name, to, new_name, flags: 0 },
        ),
        sample(
            op::FUSE_RENAME2,
            &[rename.as_bytes(), b"n\0new\0"],
            Operation::Rename { name, to, new_name, flags: 2 },
        ),
        sample(
            op::FUSE_LINK,
            &[fuse_link_in { oldnodeid: 9 }.as_bytes(), b"n\0"],
            Operation::Link { from: to, name },
        ),
    ]
}

fn of_files() -> Vec<Sample> {
    let flags = libc::O_NOATIME.cast_unsigned();
    let read = fuse_read_in { fh: 6, offset: 8, size: 9, flags, ..zero() };
    let for_map = fuse_read_in { flags: libc::O_RDWR.cast_unsigned(), ..read };
    let around = fuse_read_in { read_flags: FUSE_READ_LOCKOWNER, ..for_map };
    let write_flags = FUSE_WRITE_KILL_SUIDGID | FUSE_WRITE_CACHE;
    let write = fuse_write_in { offset: 8, size: 4, write_flags, ..zero() };
    let (offset, length, size) = (8, 10, 9);
    let fallocate = fuse_fallocate_in { offset, length, mode: 3, ..zero() };
    let lseek = fuse_lseek_in { offset, whence: 4, ..zero() };
    let copy = fuse_copy_file_range_in { off_in: 8, nodeid_out: 9, off_out: 7, len: 10, ..zero() };
    let (open, release) =
        (fuse_open_in { flags: 2, ..zero() }, fuse_release_in { fh: 6, ..zero() });
    let (fsync, flush) = (fuse_fsync_in::default(), fuse_flush_in::default());
    vec![
        sample(op::FUSE_OPEN, &[open.as_bytes()], Operation::Open { flags: 2 }),
        sample(
            op::FUSE_READ,
            &[read.as_bytes()],
            Operation::Read { handle: 6, offset, size, quiet: true, for_map: false },
        ),
        sample(
            op::FUSE_READ,
            &[for_map.as_bytes()],
            Operation::Read { handle: 6, offset, size, quiet: false, for_map: true },
        ),
        sample(
            op::FUSE_READ,
            &[around.as_bytes()],
            Operation::Read { handle: 6, offset, size, quiet: false, for_map: false },
        ),
        sample(
            op::FUSE_WRITE,
            &[write.as_bytes(), b"data"],
            Operation::Write(NewData { offset, data: b"data", unprivileged: true, mapped: true }),
        ),
        sample(op::FUSE_FLUSH, &[flush.as_bytes()], Operation::Flush),
        sample(op::FUSE_RELEASE, &[release.as_bytes()], Operation::Release { handle: 6 }),
        sample(op::FUSE_FSYNC, &[fsync.as_bytes()], Operation::Fsync),
        sample(op::FUSE_OPENDIR, &[open.as_bytes()], Operation::Opendir),
        sample(op::FUSE_READDIR, &[read.as_bytes()], Operation::Readdir { position: offset, size }),
        sample(
            op::FUSE_READDIRPLUS,
            &[read.as_bytes()],
            Operation::Readdirplus { position: offset, size },
        ),
        sample(op::FUSE_RELEASEDIR, &[release.as_bytes()], Operation::Releasedir),
        sample(op::FUSE_FSYNCDIR, &[fsync.as_bytes()], Operation::Fsyncdir),
        sample(op::FUSE_IOCTL, &[fuse_ioctl_in::default().as_bytes()], Operation::Ioctl),
        sample(
            op::FUSE_FALLOCATE,
            &[fallocate.as_bytes()],
            Operation::Fallocate { offset, length, mode: 3 },
        ),
        sample(op::FUSE_LSEEK, &[lseek.as_bytes()], Operation::Lseek { offset, whence: 4 }),
        sample(
            op::FUSE_COPY_FILE_RANGE,
            &[copy.as_bytes()],
            Operation::CopyFileRange { offset, to: NodeId(9), to_offset: 7, length },
        ),
    ]
}

fn of_attributes() -> Vec<Sample> {
    let valid = FATTR_MODE | FATTR_ATIME | FATTR_MTIME | FATTR_MTIME_NOW;
    let (mode, atime, atimensec) = (0o644, u64::MAX, 250_000_000);
    let setattr = fuse_setattr_in { valid, mode, atime, atimensec, ..zero() };
    // A second before 1970, and a quarter forward from there.
    let atime = Some(TimeOrNow::At(-750_000_000));
    let changes = Changes { mode: Some(mode), atime, mtime: Some(TimeOrNow::Now), ..zero() };
    let (name, size, flags) = (&b"user.n"[..], 9, 1);
    let getxattr = fuse_getxattr_in { size, padding: 0 };
    vec![
        sample(op::FUSE_GETATTR, &[fuse_getattr_in::default().as_bytes()], Operation::Getattr),
        sample(op::FUSE_SETATTR, &[setattr.as_bytes()], Operation::Setattr(changes)),
        sample(op::FUSE_STATX, &[fuse_statx_in::default().as_bytes()], Operation::Statx),
        sample(op::FUSE_STATFS, &[], Operation::Statfs),
        sample(
            op::FUSE_SETXATTR,
            &[[5, flags].as_bytes(), b"user.n\0", b"value"],
            Operation::Setxattr { name, value: b"value", flags },
        ),
        sample(
            op::FUSE_GETXATTR,
            &[getxattr.as_bytes(), b"user.n\0"],
            Operation::Getxattr { name, size },
        ),
        sample(op::FUSE_LISTXATTR, &[getxattr.as_bytes()], Operation::Listxattr { size }),
        sample(op::FUSE_REMOVEXATTR, &[b"user.n\0"], Operation::Removexattr { name }),
        sample(op::FUSE_ACCESS, &[fuse_access_in::default().as_bytes()], Operation::Access),
        sample(op::FUSE_DESTROY, &[], Operation::Destroy),
    ]
}
