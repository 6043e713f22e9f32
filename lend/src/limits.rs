//! How much is lent, at most.

use std::time::Duration;

use lode_loan::CHUNK_BYTES;

/// Chunks that are kept ready where nobody says otherwise.
pub const READY: u64 = 32;
/// How long a frame may take to come, once it has begun, where nobody says otherwise.
const FRAME_WITHIN: Duration = Duration::from_secs(10);
/// The part of a pool that files keep where nobody says otherwise.
const RESERVE_PART: u64 = 16;

/// How much is lent, at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes that all programs have together; no limit but the pool's space where `None`.
    pub heap: Option<u64>,
    /// Bytes that one program (process) has.
    pub program: Option<u64>,
    /// Bytes that stay free for files: nothing is lent of what would be left then.
    pub reserve: u64,
    /// Chunks that are kept zeroed, for each method in use: who wants memory need not wait for that.
    pub ready: u64,
    /// How long a frame may take to come, once it has begun: then its session ends.
    pub frame_within: Duration,
}

impl Limits {
    /// Those of a pool of so many bytes where nobody says otherwise.
    pub const fn of_pool(bytes: u64) -> Self {
        Self {
            heap: None,
            program: None,
            reserve: bytes / RESERVE_PART,
            ready: READY,
            frame_within: FRAME_WITHIN,
        }
    }

    /// Chunks that all programs have together: whole ones alone.
    pub(crate) fn heap_chunks(&self) -> u64 {
        self.heap.map_or(u64::MAX, |bytes| bytes / CHUNK_BYTES)
    }

    /// Chunks that one program has.
    pub(crate) fn program_chunks(&self) -> u64 {
        self.program.map_or(u64::MAX, |bytes| bytes / CHUNK_BYTES)
    }
}
