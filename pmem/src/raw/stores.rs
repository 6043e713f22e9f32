//! The stores of a write scheme, to lines that are open.

use super::{RawLines, WriteScheme};
use crate::LINE_BYTES;

static ZEROS: [[u8; LINE_BYTES]; 64] = [[0; LINE_BYTES]; 64];

impl WriteScheme {
    /// Stores whole lines. Where it is not [`WriteScheme::Cached`] a fence makes them durable.
    #[inline(always)]
    pub(super) fn store(self, lines: &mut impl RawLines, at: u64, bytes: &[u8]) {
        match self {
            Self::Nt => lines.stream(at, bytes.as_chunks::<LINE_BYTES>().0),
            Self::Clwb | Self::Clflush => {
                lines.store(at, bytes.as_chunks::<8>().0);
                lines.write_back(at, bytes.len() as u64);
            }
            Self::Cached => lines.store(at, bytes.as_chunks::<8>().0),
        }
    }

    /// Stores zeros, whole lines of them.
    pub(super) fn zero(self, lines: &mut impl RawLines, len: u64) {
        let zeros = ZEROS.as_flattened();
        for at in (0..len).step_by(zeros.len()) {
            let part = zeros.get(..(len - at) as usize).unwrap_or(zeros);
            self.store(lines, at, part);
        }
    }
}
