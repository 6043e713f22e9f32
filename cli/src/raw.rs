//! The bytes of what may hold a pool, whatever they are: a file is read, a DAX device can only be mapped.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use lode_pmem::{Mapped, Medium, RegionError, RegionOptions};

use crate::region;

/// A file or device whose bytes are looked at.
pub(crate) enum Raw {
    File(File),
    Device(Box<Mapped>),
}

impl Raw {
    /// What is at `path`, of which nothing is changed.
    ///
    /// # Errors
    /// Those of opening; of a device also `Busy` where it is in use, as it is mapped.
    pub(crate) fn open(path: &Path) -> Result<Self, RegionError> {
        let failed = |source: io::Error| {
            let (doing, path) = ("looking for what is there", path.to_owned());
            RegionError::Io { doing, path, source }
        };
        let file_type = std::fs::metadata(path).map_err(failed)?.file_type();
        if !file_type.is_file() && !file_type.is_char_device() && !file_type.is_block_device() {
            return Err(RegionError::NotARegion { path: path.to_owned() });
        }
        if file_type.is_char_device() {
            let options = RegionOptions::new().read_only(true).sysfs(region::sysfs_root());
            return Ok(Self::Device(Box::new(Mapped::open(path, &options)?)));
        }
        File::open(path).map(Self::File).map_err(failed)
    }

    /// How many there are.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn bytes(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => (&mut &*file).seek(SeekFrom::End(0)),
            Self::Device(mapped) => Ok(mapped.bytes()),
        }
    }

    /// Reads the bytes at `at`.
    ///
    /// # Errors
    /// Those of the system; where there are not so many.
    pub(crate) fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(into, at),
            Self::Device(mapped) => {
                let end = at.checked_add(into.len() as u64);
                end.filter(|&end| end <= mapped.bytes()).ok_or(io::ErrorKind::UnexpectedEof)?;
                mapped.load(at, into).map_err(io::Error::other)
            }
        }
    }
}
