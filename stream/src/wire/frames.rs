//! Frames: a change each, under a checksum that goes on from the one before it. So none can be left out, put
//! elsewhere, or come from another stream.

use lode_pmem::crc32c;

use super::change::Change;
use super::parts::Parts;

/// Bytes in front of a frame's contents: kind (1), zero (3), length of the contents (4), checksum (4).
pub(crate) const FRAME_HEAD: usize = 12;
/// Bytes of a frame's contents, at most.
const CONTENTS_MAX: usize = 1 << 20;

/// Makes frames.
pub(crate) struct Frames {
    /// The checksum of all before.
    chain: u32,
}

impl Frames {
    /// Frames behind what has this checksum.
    pub(crate) fn behind(chain: u32) -> Self {
        Self { chain }
    }

    /// Puts the frame of a change behind what is in `out`.
    pub(crate) fn put(&mut self, change: &Change, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend([change.kind(), 0, 0, 0]);
        out.extend([0; 8]);
        change.put_contents(out);
        let len = (out.len() - at - FRAME_HEAD) as u32;
        debug_assert!(len as usize <= CONTENTS_MAX);
        let Some((head, contents)) =
            out.get_mut(at..).and_then(|frame| frame.split_first_chunk_mut::<FRAME_HEAD>())
        else {
            return;
        };
        head[4..8].copy_from_slice(&len.to_le_bytes());
        self.chain = crc32c(crc32c(self.chain, &head[..8]), contents);
        head[8..].copy_from_slice(&self.chain.to_le_bytes());
    }
}

/// Bytes of the contents that follow this head of a frame.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn frame_len(head: &[u8; FRAME_HEAD]) -> Result<usize, &'static str> {
    let mut parts = Parts(head);
    let (kind, zero, len) = (parts.u8(), parts.array::<3>(), parts.u32());
    if zero != Some([0; 3]) || kind.is_none_or(|kind| kind == 0) {
        return Err("no frame begins there");
    }
    match len.map(|len| len as usize) {
        Some(len) if len <= CONTENTS_MAX => Ok(len),
        _ => Err("a frame is too long"),
    }
}

/// The checksum of all up to the end of this frame, which follows what has the checksum `chain`.
///
/// # Errors
/// It is not the one that the frame bears.
pub(crate) fn check_frame(
    chain: u32,
    head: &[u8; FRAME_HEAD],
    contents: &[u8],
) -> Result<u32, &'static str> {
    let (front, crc) = head.split_at(8);
    let chain = crc32c(crc32c(chain, front), contents);
    if crc == chain.to_le_bytes() { Ok(chain) } else { Err("a checksum is wrong") }
}
