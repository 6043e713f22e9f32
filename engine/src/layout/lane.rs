//! Lane lines: watermarks, in two alternating lines (PROTOCOL F5).

use lode_pmem::Line;

use super::bytes::{get_u32, get_u64, put_u32, put_u64};
use super::seal::{PoolSeed, put_seal, stored_seal};

/// Bytes of a lane in the lane table.
pub const LANE_BYTES: u64 = 256;
/// Place of the link to the first piece of inode table in a lane's bytes.
pub const LANE_CHAIN_AT: u64 = 128;

const MAGIC: u32 = u32::from_le_bytes(*b"LWAT");

/// Every transaction of this session and lane up to `sequence` is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watermark {
    /// The session it speaks of.
    pub session: u32,
    /// The last sequence that is certain.
    pub sequence: u64,
    /// Raised with each write; the higher of the two lines counts.
    pub version: u64,
}

impl Watermark {
    /// The line, sealed for offset `at`.
    pub fn line(&self, seed: &PoolSeed, at: u64) -> Line {
        let mut line = Line::ZERO;
        put_u32(&mut line.0, 0, MAGIC);
        put_u32(&mut line.0, 4, self.session);
        put_u64(&mut line.0, 8, self.sequence);
        put_u64(&mut line.0, 16, self.version);
        let seal = seed.line(&line, MAGIC, at);
        put_seal(&mut line, seal);
        line
    }

    /// Reads a line found at offset `at`; `None` if it is not a valid one.
    pub fn parse(line: &Line, seed: &PoolSeed, at: u64) -> Option<Self> {
        let right = stored_seal(line) == seed.line(line, MAGIC, at);
        if right { Self::parse_unsealed(line) } else { None }
    }

    /// As [`Watermark::parse`], the checksum apart.
    pub fn parse_unsealed(line: &Line) -> Option<Self> {
        let right = get_u32(&line.0, 0) == MAGIC && stored_seal(line) >> 32 == u64::from(MAGIC);
        let watermark = Self {
            session: get_u32(&line.0, 4),
            sequence: get_u64(&line.0, 8),
            version: get_u64(&line.0, 16),
        };
        (right && watermark.version <= u64::MAX / 2).then_some(watermark)
    }
}
