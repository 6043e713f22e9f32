//! Checksums of strips.

use lode_pmem::crc32c_pieces;

use crate::layout::{CRC_BYTES, PAGE_STRIPS_MOST};

/// A checksum as it is on the medium.
pub(crate) type Crc = [u8; CRC_BYTES as usize];
/// Those of a page's strips.
pub(crate) type Crcs = [Crc; PAGE_STRIPS_MOST];

/// The checksums of whole strips of `strip` bytes of one page.
pub(super) fn crcs_of(bytes: &[u8], strip: usize) -> Crcs {
    let mut crcs = Crcs::default();
    let mut places = crcs.iter_mut();
    crc32c_pieces(bytes, strip, |crc| {
        if let Some(place) = places.next() {
            *place = crc.to_le_bytes();
        }
    });
    crcs
}
