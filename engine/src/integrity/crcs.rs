//! Checksums of strips.

use lode_pmem::crc32c_pieces;

use crate::layout::{CRC_BYTES, PAGE_STRIPS_MOST};

/// A checksum as it is on the medium: [`kept`], of a CRC32C.
pub(crate) type Crc = [u8; CRC_BYTES as usize];
/// Those of a page's strips.
pub(crate) type Crcs = [Crc; PAGE_STRIPS_MOST];

/// What is kept of a strip with this CRC32C. Zeros everywhere, and ones, are what no strip has: else whatever
/// overwrites a strip and both of its checksums with such could pass for data. (The CRC32C of four bytes of ones and zeros
/// behind them, which the last strip of a file may be, is ones.)
#[inline]
pub(super) const fn kept(crc: u32) -> Crc {
    let kept = match crc {
        0 => 1,
        u32::MAX => u32::MAX - 1,
        crc => crc,
    };
    kept.to_le_bytes()
}

/// What is kept of a strip that is lost, in place of this: it is that of nothing that may be there.
#[inline]
pub(super) const fn complement(crc: Crc) -> Crc {
    (!u32::from_le_bytes(crc)).to_le_bytes()
}

/// The checksums of whole strips of `strip` bytes of one page.
pub(super) fn crcs_of(bytes: &[u8], strip: usize) -> Crcs {
    let mut crcs = Crcs::default();
    let mut places = crcs.iter_mut();
    crc32c_pieces(bytes, strip, |crc| {
        if let Some(place) = places.next() {
            *place = kept(crc);
        }
    });
    crcs
}
