//! Checksums of strips, several at once.

use lode_pmem::{crc32c, crc32c_four};

use crate::layout::{CRC_BYTES, PAGE_STRIPS_MOST};

/// A checksum as it is on the medium.
pub(super) type Crc = [u8; CRC_BYTES as usize];
/// Those of a page's strips.
pub(super) type Crcs = [Crc; PAGE_STRIPS_MOST];

/// The checksums of whole strips of `strip` bytes of one page.
pub(super) fn crcs_of(bytes: &[u8], strip: usize) -> Crcs {
    let mut crcs = Crcs::default();
    let mut places = crcs.iter_mut();
    let mut put = |crc: u32| {
        if let Some(place) = places.next() {
            *place = crc.to_le_bytes();
        }
    };
    let mut fours = bytes.chunks_exact(4 * strip);
    for four in fours.by_ref() {
        let mut strips = four.chunks_exact(strip);
        let pieces = core::array::from_fn(|_| strips.next().unwrap_or_default());
        crc32c_four(pieces).into_iter().for_each(&mut put);
    }
    fours.remainder().chunks_exact(strip).for_each(|strip| put(crc32c(0, strip)));
    crcs
}
