//! Between the engine's types and the kernel's.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use lode_engine::{Attr, Error, Ino, mode};

const NS: i64 = 1_000_000_000;

/// The answer for an error of the engine. Damage is logged.
pub fn errno(error: &Error) -> Errno {
    errno_in(0, error)
}

/// The answer for an error that came up in the inode `ino`, 0 where that is not known.
/// Damage is logged, each place of it once.
pub fn errno_in(ino: Ino, error: &Error) -> Errno {
    let damage = match error {
        Error::Corrupt(damage) => Some((damage.at, damage.ino)),
        Error::Media { at } => Some((*at, 0)),
        _ => None,
    };
    if let Some((at, of)) = damage
        && first_seen(at)
    {
        let inode = if of == 0 { ino } else { of };
        tracing::error!(inode, offset = at, %error, "the pool is damaged here: answering EIO");
    }
    Errno::from_i32(error.errno())
}

/// Whether damage at this offset is met for the first time. Of more places than can be
/// remembered no more is said: fsck finds them all.
fn first_seen(at: u64) -> bool {
    const PLACES_MAX: usize = 1000;
    static SEEN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.len() < PLACES_MAX && seen.insert(at)
}

/// The kernel's type for the type bits of a mode.
pub fn file_type(bits: u32) -> Option<FileType> {
    Some(match bits & mode::TYPE {
        mode::FILE => FileType::RegularFile,
        mode::DIRECTORY => FileType::Directory,
        mode::SYMLINK => FileType::Symlink,
        mode::FIFO => FileType::NamedPipe,
        mode::SOCKET => FileType::Socket,
        mode::CHARACTER => FileType::CharDevice,
        mode::BLOCK => FileType::BlockDevice,
        _ => return None,
    })
}

/// The kernel's attributes for `attr` under the inode number `ino`.
pub fn attributes(attr: &Attr, ino: INodeNo) -> Result<FileAttr, Errno> {
    let kind = file_type(attr.mode).ok_or(Errno::EIO)?;
    Ok(FileAttr {
        ino,
        size: attr.size,
        blocks: attr.pages.saturating_mul(8),
        atime: system_time(attr.atime_ns),
        mtime: system_time(attr.mtime_ns),
        ctime: system_time(attr.ctime_ns),
        crtime: system_time(attr.btime_ns),
        kind,
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: device_to_kernel(attr.rdev),
        blksize: 4096,
        flags: 0,
    })
}

/// A time of the engine as std's.
pub fn system_time(ns: i64) -> SystemTime {
    let size = Duration::from_nanos(ns.unsigned_abs());
    if ns >= 0 { UNIX_EPOCH + size } else { UNIX_EPOCH - size }
}

/// A time that the kernel asks to set, in nanoseconds; the nearest that can be kept.
pub fn asked_time(time: TimeOrNow, now: i64) -> i64 {
    match time {
        TimeOrNow::Now => now,
        TimeOrNow::SpecificTime(time) => asked_ns(time),
    }
}

/// Nanoseconds of a time that came through fuser, which takes a time before 1970 of
/// `s` seconds and `n` nanoseconds (`s` negative) for `s - n`: undone here.
pub fn asked_ns(time: SystemTime) -> i64 {
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds);
            (seconds, before.subsec_nanos())
        }
    };
    seconds.saturating_mul(NS).saturating_add(i64::from(nanoseconds))
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
    fn times_survive_the_way_to_the_kernel() {
        for ns in [0, 1, NS, 1_700_000_000 * NS + 123_456_789, i64::MAX] {
            assert_eq!(asked_ns(system_time(ns)), ns);
        }
        assert_eq!(system_time(-1), UNIX_EPOCH - Duration::from_nanos(1));
        let _ = system_time(i64::MIN);
    }

    #[test]
    fn times_before_1970_are_taken_as_the_kernel_meant_them() {
        // The kernel says -2 s + 0.25 s; fuser makes 1970 - 2.25 s of it.
        let from_fuser = UNIX_EPOCH - Duration::new(2, 250_000_000);
        assert_eq!(asked_ns(from_fuser), -1_750_000_000);
        assert_eq!(asked_ns(UNIX_EPOCH - Duration::new(3, 0)), -3 * NS);
    }

    #[test]
    fn times_that_do_not_fit_become_the_nearest_that_do() {
        assert_eq!(asked_ns(UNIX_EPOCH + Duration::from_secs(1 << 40)), i64::MAX);
        assert_eq!(asked_ns(UNIX_EPOCH - Duration::from_secs(1 << 40)), i64::MIN);
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
        assert_eq!(file_type(mode::FILE | 0o644), Some(FileType::RegularFile));
        assert_eq!(file_type(0o644), None);
        assert_eq!(file_type(0o170_000), None);
    }
}
