//! Segments of a checkpoint: runs of pages that carry one stream of bytes.

use lode_pmem::Line;

use super::bytes::{get_u32, get_u64, put_u32, put_u64};
use super::seal::{PoolSeed, put_seal, stored_seal};

/// Bytes of a segment's header.
pub const SEGMENT_HEADER_BYTES: u64 = 64;

const MAGIC: u32 = u32::from_le_bytes(*b"LCKP");

/// The header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// Session the checkpoint ends.
    pub session: u32,
    /// Pages in this segment.
    pub pages: u64,
    /// First page of the next segment, 0 for none.
    pub next: u64,
    /// Bytes of the stream in this segment.
    pub bytes: u64,
    /// CRC32C of those bytes.
    pub crc: u32,
}

impl Segment {
    /// The line, sealed for offset `at`.
    pub fn line(&self, seed: &PoolSeed, at: u64) -> Line {
        let mut line = Line::ZERO;
        put_u32(&mut line.0, 0, MAGIC);
        put_u32(&mut line.0, 4, self.session);
        put_u64(&mut line.0, 8, self.pages);
        put_u64(&mut line.0, 16, self.next);
        put_u64(&mut line.0, 24, self.bytes);
        put_u32(&mut line.0, 32, self.crc);
        let seal = seed.line(&line, MAGIC, at);
        put_seal(&mut line, seal);
        line
    }

    /// Reads a line found at offset `at`; `None` if it is not a valid one.
    pub fn parse(line: &Line, seed: &PoolSeed, at: u64) -> Option<Self> {
        Self::read(line).filter(|_| stored_seal(line) == seed.line(line, MAGIC, at))
    }

    /// What a line says, sealed or not.
    pub(crate) fn read(line: &Line) -> Option<Self> {
        (get_u32(&line.0, 0) == MAGIC).then(|| Self {
            session: get_u32(&line.0, 4),
            pages: get_u64(&line.0, 8),
            next: get_u64(&line.0, 16),
            bytes: get_u64(&line.0, 24),
            crc: get_u32(&line.0, 32),
        })
    }
}
