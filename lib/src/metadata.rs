//! What `stat` says, in the words of std.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use lode_engine::{Attr, mode};

const NS: i64 = 1_000_000_000;
/// Bytes of what `blocks` counts.
const BLOCKS_A_PAGE: u64 = 8;

/// What is known of a file, directory or other inode: as [`std::fs::Metadata`] with
/// [`std::os::unix::fs::MetadataExt`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    attr: Attr,
    device: u64,
}

impl Metadata {
    pub(crate) fn new(attr: Attr, device: u64) -> Self {
        Self { attr, device }
    }

    /// What kind of inode it is.
    pub fn file_type(&self) -> FileType {
        FileType::of_mode(self.attr.mode)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Size in bytes.
    #[allow(clippy::len_without_is_empty)] // As std has it.
    pub fn len(&self) -> u64 {
        self.attr.size
    }

    /// Permissions.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.attr.mode)
    }

    /// When its contents changed last.
    pub fn modified(&self) -> SystemTime {
        time_of(self.attr.mtime_ns)
    }

    /// When it was read last, as far as that is kept.
    pub fn accessed(&self) -> SystemTime {
        time_of(self.attr.atime_ns)
    }

    /// When it was made.
    pub fn created(&self) -> SystemTime {
        time_of(self.attr.btime_ns)
    }

    /// A number for the pool: differs from that of other pools.
    pub fn dev(&self) -> u64 {
        self.device
    }

    /// Number of the inode.
    pub fn ino(&self) -> u64 {
        self.attr.ino
    }

    /// Differs between the lives of one inode number.
    pub fn generation(&self) -> u64 {
        self.attr.generation
    }

    /// Type and permissions.
    pub fn mode(&self) -> u32 {
        self.attr.mode
    }

    /// Names that it has.
    pub fn nlink(&self) -> u64 {
        self.attr.links.into()
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.attr.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.attr.gid
    }

    /// Number of the device that it stands for.
    pub fn rdev(&self) -> u64 {
        rustix::fs::makedev((self.attr.rdev >> 32) as u32, self.attr.rdev as u32)
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.attr.size
    }

    /// Access time: seconds since 1970.
    pub fn atime(&self) -> i64 {
        self.attr.atime_ns.div_euclid(NS)
    }

    /// Access time: nanoseconds of the second.
    pub fn atime_nsec(&self) -> i64 {
        self.attr.atime_ns.rem_euclid(NS)
    }

    /// Time of the last change of contents: seconds since 1970.
    pub fn mtime(&self) -> i64 {
        self.attr.mtime_ns.div_euclid(NS)
    }

    /// Time of the last change of contents: nanoseconds of the second.
    pub fn mtime_nsec(&self) -> i64 {
        self.attr.mtime_ns.rem_euclid(NS)
    }

    /// Time of the last change: seconds since 1970.
    pub fn ctime(&self) -> i64 {
        self.attr.ctime_ns.div_euclid(NS)
    }

    /// Time of the last change: nanoseconds of the second.
    pub fn ctime_nsec(&self) -> i64 {
        self.attr.ctime_ns.rem_euclid(NS)
    }

    /// Bytes that are best read and written at a time.
    pub fn blksize(&self) -> u64 {
        lode_engine::PAGE_BYTES
    }

    /// Blocks of 512 bytes that its data takes.
    pub fn blocks(&self) -> u64 {
        self.attr.pages.saturating_mul(BLOCKS_A_PAGE)
    }
}

/// What kind of inode it is: as [`std::fs::FileType`] with [`std::os::unix::fs::FileTypeExt`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileType(u32);

impl FileType {
    pub(crate) fn of_mode(mode: u32) -> Self {
        Self(mode & mode::TYPE)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0 == mode::DIRECTORY
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0 == mode::FILE
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0 == mode::SYMLINK
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.0 == mode::BLOCK
    }

    /// Whether it is a character device.
    pub fn is_char_device(&self) -> bool {
        self.0 == mode::CHARACTER
    }

    /// Whether it is a FIFO.
    pub fn is_fifo(&self) -> bool {
        self.0 == mode::FIFO
    }

    /// Whether it is a socket.
    pub fn is_socket(&self) -> bool {
        self.0 == mode::SOCKET
    }
}

/// Times to set: as [`std::fs::FileTimes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileTimes {
    pub(crate) accessed: Option<SystemTime>,
    pub(crate) modified: Option<SystemTime>,
}

impl FileTimes {
    /// None to set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The access time is to be this.
    #[must_use]
    pub fn set_accessed(mut self, time: SystemTime) -> Self {
        self.accessed = Some(time);
        self
    }

    /// The time of the last change of contents is to be this.
    #[must_use]
    pub fn set_modified(mut self, time: SystemTime) -> Self {
        self.modified = Some(time);
        self
    }
}

fn time_of(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if ns < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) };
    time.unwrap_or(epoch)
}

/// The nearest time that can be kept, in nanoseconds since 1970.
pub(crate) fn ns_of(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => {
            i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |before| -before)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_both_ways() {
        for ns in [0, 1, -1, NS, -NS, 1_700_000_000 * NS + 7, i64::MAX, i64::MIN + 1] {
            assert_eq!(ns_of(time_of(ns)), ns);
        }
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(ns_of(far), i64::MAX);
        let long_ago = SystemTime::UNIX_EPOCH - Duration::from_secs(1 << 40);
        assert_eq!(ns_of(long_ago), i64::MIN);
    }
}
