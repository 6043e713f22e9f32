//! What a region is made of.

use core::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::memory::Memory;
use super::sysfs::{Class, Device};
use super::{RegionError, extents, sysfs};

/// What a region is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionKind {
    /// A DAX character device (`/dev/dax0.0`).
    DeviceDax,
    /// A file on a DAX file system, mapped with `MAP_SYNC`.
    DaxFile,
    /// An ordinary file, mapped through the page cache.
    File,
    /// A file in tmpfs (`/dev/shm`).
    Tmpfs,
    /// A file in hugetlbfs.
    Hugetlb,
    /// Memory of this process.
    Anonymous,
}

impl fmt::Display for RegionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DeviceDax => "dax device",
            Self::DaxFile => "dax file",
            Self::File => "file",
            Self::Tmpfs => "tmpfs file",
            Self::Hugetlb => "hugetlbfs file",
            Self::Anonymous => "anonymous memory",
        })
    }
}

/// Bytes of an ordinary page.
pub(super) const PAGE_BYTES: u64 = 4096;

/// What an opened file turns out to be.
pub(crate) struct Source {
    /// `File` stands for "perhaps a DAX file" until it is mapped.
    pub(crate) kind: RegionKind,
    /// Bytes it has.
    pub(crate) bytes: u64,
    /// Bytes of the pieces it is mapped in.
    pub(crate) page_bytes: u64,
    /// Whether it is a device, whose size is what it is.
    pub(super) is_device: bool,
    /// The file system reads and writes the memory itself, with no page cache between.
    pub(super) is_dax: bool,
    /// The device under it, where sysfs has it.
    pub(super) device: Option<Device>,
}

impl Source {
    /// What `file`, opened at `path`, is; sysfs is at `sysfs`.
    pub(super) fn of(file: &File, path: &Path, sysfs: &Path) -> Result<Self, RegionError> {
        let io = |source| RegionError::io("reading the attributes of", path, source);
        let metadata = file.metadata().map_err(io)?;
        let file_type = metadata.file_type();
        if file_type.is_file() {
            Self::of_file(file, &metadata, sysfs).map_err(io)
        } else if file_type.is_char_device() {
            Self::of_device(&metadata, path, sysfs)
        } else {
            Err(RegionError::NotARegion { path: path.to_owned() })
        }
    }

    fn of_file(file: &File, metadata: &Metadata, sysfs: &Path) -> io::Result<Self> {
        // SAFETY: a zeroed statfs is a valid value, which the call fills.
        let statfs = unsafe {
            let mut statfs: libc::statfs = std::mem::zeroed();
            if libc::fstatfs(file.as_raw_fd(), &mut statfs) != 0 {
                return Err(io::Error::last_os_error());
            }
            statfs
        };
        let (kind, page_bytes) = match statfs.f_type {
            libc::TMPFS_MAGIC | RAMFS_MAGIC => (RegionKind::Tmpfs, PAGE_BYTES),
            libc::HUGETLBFS_MAGIC => (RegionKind::Hugetlb, statfs.f_bsize as u64),
            _ => (RegionKind::File, PAGE_BYTES),
        };
        Ok(Self {
            kind,
            bytes: metadata.len(),
            page_bytes: page_bytes.max(PAGE_BYTES),
            is_device: false,
            is_dax: is_dax(file),
            device: Device::find(sysfs, Class::Block, metadata.dev()),
        })
    }

    fn of_device(metadata: &Metadata, path: &Path, sysfs: &Path) -> Result<Self, RegionError> {
        let untold = || {
            let (path, sysfs) = (path.to_owned(), sysfs.to_owned());
            RegionError::NotInSysfs { path, sysfs }
        };
        let device = Device::find(sysfs, Class::Char, metadata.rdev()).ok_or_else(untold)?;
        if !device.is_of("dax") {
            return Err(RegionError::NotARegion { path: path.to_owned() });
        }
        const ALIGN_USUAL: u64 = 2 << 20;
        let align = device.number("align").unwrap_or(ALIGN_USUAL);
        let align = Some(align.max(PAGE_BYTES)).filter(|align| align.is_power_of_two());
        Ok(Self {
            kind: RegionKind::DeviceDax,
            bytes: device.number("size").ok_or_else(untold)?,
            page_bytes: align.ok_or_else(untold)?,
            is_device: true,
            is_dax: true,
            device: Some(device),
        })
    }

    /// What is known of the memory below it, as a region of its first `bytes` bytes.
    pub(super) fn memory(&self, file: &File, bytes: u64) -> Memory {
        let Some(device) = &self.device else {
            return Memory { is_dax: self.is_dax, ..Memory::default() };
        };
        let bad = device.bad();
        let listed_bad = match self.is_device {
            true => bad,
            // (Most have none, and a file may have many extents. Where they are not told, loads still tell what is bad.)
            false if bad.is_empty() => Vec::new(),
            false => extents::of_file_in(file, bytes, &bad).unwrap_or_default(),
        };
        Memory {
            device: device.name(),
            is_dax: self.is_dax,
            is_persistent: device.is_persistent(),
            persistence_domain: device.persistence_domain(),
            losses: device.losses(),
            listed_bad: sysfs::part_of(&listed_bad, 0, bytes),
        }
    }
}

/// Whether the file system says that a file has no page cache.
fn is_dax(file: &File) -> bool {
    const ATTRIBUTE_DAX: u64 = 0x0020_0000;
    // SAFETY: a zeroed statx is a valid value, which the call fills; the empty path is the file itself.
    unsafe {
        let mut told: libc::statx = std::mem::zeroed();
        let (fd, flags) = (file.as_raw_fd(), libc::AT_EMPTY_PATH);
        libc::statx(fd, c"".as_ptr(), flags, 0, &raw mut told) == 0
            && told.stx_attributes & ATTRIBUTE_DAX != 0
    }
}

const RAMFS_MAGIC: libc::c_long = 0x8584_58f6;
