//! Between the engine's types and the kernel's.

use fuse_abi::linux::{fuse_attr, fuse_statx, fuse_sx_time};
use lode_engine::{Attr, mode};

use crate::wire::{Errno, NodeId, TimeOrNow};

const NS: i64 = 1_000_000_000;

/// A generation for the kernel, whose handles keep 32 bits of it. The engine's is the session in
/// which the inode was made and a count in it, from low numbers on: one from either end, these differ
/// until both have grown very large. Never 0, which says nothing of an inode.
pub fn generation(of_engine: u64) -> u64 {
    let (session, count) = ((of_engine >> 32) as u32, of_engine as u32);
    u64::from((session.reverse_bits() ^ count).max(1))
}

/// Bytes that are best read and written at a time.
const BLOCK_BYTES: u32 = 4096;

/// Whether these are the type bits of a mode; of damaged inodes they may be anything.
pub fn is_type(bits: u32) -> bool {
    matches!(
        bits & mode::TYPE,
        mode::FILE
            | mode::DIRECTORY
            | mode::SYMLINK
            | mode::FIFO
            | mode::SOCKET
            | mode::CHARACTER
            | mode::BLOCK
    )
}

/// The kernel's attributes for `attr` under the inode number `node`.
pub fn attributes(attr: &Attr, node: NodeId) -> Result<fuse_attr, Errno> {
    if !is_type(attr.mode) {
        return Err(Errno::EIO);
    }
    let (atime, mtime, ctime) = (time(attr.atime_ns), time(attr.mtime_ns), time(attr.ctime_ns));
    Ok(fuse_attr {
        ino: node.0,
        size: attr.size,
        blocks: attr.pages.saturating_mul(8),
        atime: atime.tv_sec.cast_unsigned(),
        mtime: mtime.tv_sec.cast_unsigned(),
        ctime: ctime.tv_sec.cast_unsigned(),
        atimensec: atime.tv_nsec,
        mtimensec: mtime.tv_nsec,
        ctimensec: ctime.tv_nsec,
        mode: attr.mode & (mode::TYPE | 0o7777),
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: device_to_kernel(attr.rdev),
        blksize: BLOCK_BYTES,
        flags: 0,
    })
}

/// The same with the time of birth.
pub fn attributes_with_birth(attr: &Attr, node: NodeId) -> Result<fuse_statx, Errno> {
    let plain = attributes(attr, node)?;
    Ok(fuse_statx {
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        blksize: plain.blksize,
        nlink: plain.nlink,
        uid: plain.uid,
        gid: plain.gid,
        mode: plain.mode as u16,
        ino: plain.ino,
        size: plain.size,
        blocks: plain.blocks,
        atime: time(attr.atime_ns),
        btime: time(attr.btime_ns),
        ctime: time(attr.ctime_ns),
        mtime: time(attr.mtime_ns),
        rdev_major: (attr.rdev >> 32) as u32,
        rdev_minor: attr.rdev as u32,
        ..fuse_statx::default()
    })
}

/// A time of the engine in whole seconds and nanoseconds from there on.
fn time(ns: i64) -> fuse_sx_time {
    let (tv_sec, rest) = (ns.div_euclid(NS), ns.rem_euclid(NS));
    fuse_sx_time { tv_sec, tv_nsec: rest as u32, __reserved: 0 }
}

/// A time that the kernel asks to set, in nanoseconds.
pub fn asked_time(time: TimeOrNow, now: i64) -> i64 {
    match time {
        TimeOrNow::Now => now,
        TimeOrNow::At(ns) => ns,
    }
}

/// A device number as the engine keeps it (major << 32 | minor) in the kernel's 32 bits.
pub fn device_to_kernel(rdev: u64) -> u32 {
    let (major, minor) = ((rdev >> 32) as u32, rdev as u32);
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}

/// The kernel's 32-bit device number as the engine keeps it.
pub fn device_from_kernel(rdev: u32) -> u64 {
    let major = (rdev >> 8) & 0xfff;
    let minor = (rdev & 0xff) | ((rdev >> 12) & !0xff);
    u64::from(major) << 32 | u64::from(minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_have_a_fraction_that_goes_forward() {
        for ns in [0, 1, NS, 1_700_000_000 * NS + 123_456_789, -1, -NS, i64::MIN, i64::MAX] {
            let time = time(ns);
            let back = i128::from(time.tv_sec) * i128::from(NS) + i128::from(time.tv_nsec);
            assert_eq!(back, i128::from(ns));
            assert!(time.tv_nsec < 1_000_000_000);
        }
        assert_eq!((time(-1).tv_sec, time(-1).tv_nsec), (-1, 999_999_999));
    }

    #[test]
    fn device_numbers_go_both_ways() {
        for (major, minor) in [(0, 0), (1, 3), (8, 255), (259, 256), (0xfff, 0xf_ffff)] {
            let rdev = major << 32 | minor;
            assert_eq!(device_from_kernel(device_to_kernel(rdev)), rdev);
        }
        assert_eq!(device_to_kernel(8 << 32 | 1), 0x801);
    }

    #[test]
    fn impossible_types_are_errors() {
        assert!(is_type(mode::FILE | 0o644) && is_type(mode::SOCKET));
        assert!(!is_type(0o644) && !is_type(0o170_000));
    }
}
