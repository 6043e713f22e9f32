//! By what pages the kernel has mapped a region.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const PRESENT: u64 = 1 << 3;
const HUGE: u64 = 1 << 6;
/// Pieces that are asked for at once.
const PIECES: usize = 256;

/// What the kernel has mapped of a region so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MappedPages {
    /// Bytes that it has mapped.
    pub bytes: u64,
    /// Those among them that it has mapped by huge pages.
    pub huge_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Piece {
    start: u64,
    end: u64,
    categories: u64,
}

#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    pieces: u64,
    pieces_len: u64,
    pages_max: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any: u64,
    return_mask: u64,
}

/// Asks the kernel by what pages it has mapped `len` bytes at `base`.
///
/// # Errors
/// Of the system: kernels before 6.7 do not tell.
pub(super) fn mapped(base: *const u8, len: u64) -> io::Result<MappedPages> {
    let pagemap = File::open("/proc/self/pagemap")?;
    let mut pieces = [Piece::default(); PIECES];
    let end = base as u64 + len.next_multiple_of(4096);
    let (mut start, mut pages) = (base as u64, MappedPages::default());
    while start < end {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: 0,
            start,
            end,
            walk_end: 0,
            pieces: pieces.as_mut_ptr() as u64,
            pieces_len: PIECES as u64,
            pages_max: 0,
            category_inverted: 0,
            category_mask: PRESENT,
            category_any: 0,
            return_mask: PRESENT | HUGE,
        };
        // SAFETY: the struct is the one that the call takes, and has room for as many pieces as it says; it changes no
        // mapping, as no page is to be protected.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
        let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
        for piece in pieces.iter().take(found) {
            let bytes = piece.end.saturating_sub(piece.start);
            pages.bytes += bytes;
            pages.huge_bytes += if piece.categories & HUGE != 0 { bytes } else { 0 };
        }
        if scan.walk_end <= start {
            break;
        }
        start = scan.walk_end;
    }
    Ok(pages)
}
