//! Space for every byte of a region before the first store.
//!
//! A store into a hole of a file needs space at that moment, and gets SIGBUS if
//! there is none. (A file system that copies on write can need more even so.)

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::RegionError;

/// What `st_blocks` counts in.
const BLOCK_BYTES: u64 = 512;

/// Allocates what holes there are in the first `bytes` bytes of `file`.
pub(super) fn allocate(file: &File, path: &Path, bytes: u64) -> Result<(), RegionError> {
    let outcome = allocate_holes(file, bytes);
    outcome.map_err(|source| match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => RegionError::NoSpace { path: path.to_owned(), bytes },
        _ => RegionError::io("allocating the space of", path, source),
    })
}

fn allocate_holes(file: &File, bytes: u64) -> io::Result<()> {
    if file.metadata()?.blocks().saturating_mul(BLOCK_BYTES) >= bytes {
        return Ok(());
    }
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    loop {
        // SAFETY: takes a descriptor and numbers.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP) => return zero_holes(file, length),
            _ => return Err(error),
        }
    }
}

/// Writes zeros where nothing has been written.
fn zero_holes(file: &File, length: libc::off_t) -> io::Result<()> {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    let mut at = 0;
    while at < length {
        // SAFETY: takes a descriptor and numbers.
        let hole = unsafe { libc::lseek(file.as_raw_fd(), at, libc::SEEK_HOLE) };
        if hole < 0 || hole >= length {
            return Ok(());
        }
        // SAFETY: takes a descriptor and numbers.
        let data = unsafe { libc::lseek(file.as_raw_fd(), hole, libc::SEEK_DATA) };
        let end = if data < 0 { length } else { data.min(length) };
        at = hole;
        while at < end {
            let piece = (end - at).min(ZEROS.len() as libc::off_t);
            let zeros = ZEROS.get(..piece as usize).unwrap_or(&ZEROS);
            file.write_all_at(zeros, at as u64)?;
            at += piece;
        }
    }
    Ok(())
}
