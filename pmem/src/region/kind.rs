//! What a region is made of.

use core::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::RegionError;

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
pub(super) struct Source {
    /// `File` stands for "perhaps a DAX file" until it is mapped.
    pub(super) kind: RegionKind,
    /// Bytes it has.
    pub(super) bytes: u64,
    /// Bytes of the pieces it is mapped in.
    pub(super) page_bytes: u64,
    /// Whether it is a device, whose size is what it is.
    pub(super) is_device: bool,
    /// The device under it, in /sys.
    device: PathBuf,
}

impl Source {
    pub(super) fn of(file: &File, path: &Path) -> Result<Self, RegionError> {
        let io = |source| RegionError::io("reading the attributes of", path, source);
        let metadata = file.metadata().map_err(io)?;
        let file_type = metadata.file_type();
        if file_type.is_file() {
            Self::of_file(file, &metadata).map_err(io)
        } else if file_type.is_char_device() {
            Self::of_dax_device(&metadata)
                .ok_or_else(|| RegionError::NotARegion { path: path.to_owned() })
        } else {
            Err(RegionError::NotARegion { path: path.to_owned() })
        }
    }

    fn of_file(file: &File, metadata: &Metadata) -> io::Result<Self> {
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
            device: sysfs_device("block", metadata.dev()),
        })
    }

    fn of_dax_device(metadata: &Metadata) -> Option<Self> {
        let device = sysfs_device("char", metadata.rdev());
        let subsystem = std::fs::canonicalize(device.join("subsystem")).ok()?;
        if subsystem.file_name()? != "dax" {
            return None;
        }
        let number = |name: &str| {
            let text = std::fs::read_to_string(device.join(name)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        const ALIGN_USUAL: u64 = 2 << 20;
        let align = number("align").unwrap_or(ALIGN_USUAL);
        Some(Self {
            kind: RegionKind::DeviceDax,
            bytes: number("size")?,
            page_bytes: align.max(PAGE_BYTES),
            is_device: true,
            device,
        })
    }

    /// Whether the CPU's caches are written back when the power of the memory under
    /// this fails, as far as the system knows.
    pub(super) fn caches_survive(&self) -> bool {
        let Ok(device) = std::fs::canonicalize(&self.device) else {
            return false;
        };
        // .../ndbus0/region0/namespace0.0/block/pmem0 -> region0/persistence_domain
        device.ancestors().any(|directory| {
            std::fs::read_to_string(directory.join("persistence_domain"))
                .is_ok_and(|domain| domain.trim() == "cpu_cache")
        })
    }
}

const RAMFS_MAGIC: libc::c_long = 0x8584_58f6;

fn sysfs_device(class: &str, number: u64) -> PathBuf {
    let (major, minor) = (libc::major(number), libc::minor(number));
    PathBuf::from(format!("/sys/dev/{class}/{major}:{minor}"))
}
