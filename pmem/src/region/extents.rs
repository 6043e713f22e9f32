//! Where a file's bytes are on the device of its file system.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
const FLAG_SYNC: u32 = 1;
const LAST: u32 = 1;
/// Unknown, not there yet, or not as it is read.
const ELSEWHERE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x200;
const EXTENTS: usize = 128;

#[repr(C)]
#[derive(Clone, Copy)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved_wide: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS],
}

/// What of the first `bytes` bytes of a file lies in these pieces of the device.
///
/// # Errors
/// Of the system, as where a file system does not tell.
pub(super) fn of_file_in(
    file: &File,
    bytes: u64,
    pieces: &[Range<u64>],
) -> io::Result<Vec<Range<u64>>> {
    let mut found = Vec::new();
    let mut start = 0;
    while start < bytes {
        let map = extents(file, start, bytes - start)?;
        let told = map.extents.get(..map.mapped as usize).unwrap_or(&map.extents);
        for extent in told.iter().filter(|extent| extent.flags & ELSEWHERE == 0) {
            found.extend(pieces.iter().filter_map(|piece| inside(extent, piece, bytes)));
        }
        let Some(last) = told.last() else { break };
        let end = last.logical.saturating_add(last.length);
        if last.flags & LAST != 0 || end <= start {
            break;
        }
        start = end;
    }
    Ok(found)
}

fn extents(file: &File, start: u64, length: u64) -> io::Result<Box<Fiemap>> {
    let none = Extent {
        logical: 0,
        physical: 0,
        length: 0,
        reserved_wide: [0; 2],
        flags: 0,
        reserved: [0; 3],
    };
    let mut map = Box::new(Fiemap {
        start,
        length,
        flags: FLAG_SYNC,
        mapped: 0,
        count: EXTENTS as u32,
        reserved: 0,
        extents: [none; EXTENTS],
    });
    // SAFETY: the struct is the one that the call takes, with room for as many extents as it says.
    match unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *map) } {
        0 => Ok(map),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The bytes of the file that an extent has in this piece of the device.
fn inside(extent: &Extent, piece: &Range<u64>, bytes: u64) -> Option<Range<u64>> {
    let physical_end = extent.physical.saturating_add(extent.length);
    let (from, to) = (piece.start.max(extent.physical), piece.end.min(physical_end));
    let len = to.checked_sub(from)?;
    let start = extent.logical.checked_add(from - extent.physical)?;
    let end = start.saturating_add(len).min(bytes);
    (start < end).then_some(start..end)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_a_device_is_found_in_the_file_that_has_it() {
        let extent = Extent {
            logical: 8192,
            physical: 1 << 20,
            length: 8192,
            reserved_wide: [0; 2],
            flags: 0,
            reserved: [0; 3],
        };
        let inside = |piece| inside(&extent, &piece, 16_000);
        let at = 1 << 20;
        assert_eq!(inside(at..at + 512), Some(8192..8704));
        assert_eq!(inside(at - 512..at + 512), Some(8192..8704));
        assert_eq!(inside(at + 4096..at + 100_000), Some(12_288..16_000));
        assert_eq!((inside(at - 512..at), inside(at + 8192..at + 9000)), (None, None));
        assert_eq!((inside(0..0), inside(at + 8000..at + 8192)), (None, None));
    }
}
