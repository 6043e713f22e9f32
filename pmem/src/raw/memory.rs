//! What a raw region is made of: this machine's memory and its instructions, or a simulation that takes note of each.
//!
//! What this file guarantees: nothing of its own. It is the seam at which all that stands above is explored: which stores
//! are written back, which are fenced, and which barrier waits for what is written once, in [`crate::RawRegion`] and above it. The real
//! memory is known when this is compiled, so that the seam costs nothing there.

use super::RawError;
use crate::{LINE_BYTES, RegionKind};

/// Lines that are open, for as long as who opened them does something. Offsets are bytes from the first of them on; who leaves them
/// panics.
pub trait RawLines {
    /// Streams whole lines past the cache.
    #[track_caller]
    fn stream(&mut self, at: u64, lines: &[[u8; LINE_BYTES]]);

    /// Stores words through the cache, each in one piece.
    #[track_caller]
    fn store(&mut self, at: u64, words: &[[u8; 8]]);

    /// Starts the write-back of whole lines that were stored through the cache.
    #[track_caller]
    fn write_back(&mut self, at: u64, len: u64);
}

/// The memory of a raw region.
pub trait RawMemory: Send + Sync {
    /// What it opens.
    type Lines: RawLines;

    /// Bytes in it.
    fn bytes(&self) -> u64;

    /// What it is made of.
    fn kind(&self) -> RegionKind;

    /// Asks for the first lines of what is about to be loaded, if it is in it.
    #[inline(always)]
    fn prefetch(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Loads bytes that are in it.
    ///
    /// # Errors
    /// [`RawError::Media`], [`RawError::Cut`], [`RawError::Mapping`].
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), RawError>;

    /// Opens whole lines that are in it for stores, and closes them again.
    ///
    /// # Errors
    /// [`RawError::Cut`], [`RawError::NoSpace`], [`RawError::Mapping`], and what `store` gives.
    fn for_stores<E: From<RawError>>(
        &self,
        at: u64,
        len: u64,
        store: impl FnOnce(&mut Self::Lines) -> Result<(), E>,
    ) -> Result<(), E>;

    /// Opens whole lines that are in it to be written back.
    ///
    /// # Errors
    /// [`RawError::Cut`], [`RawError::Mapping`].
    fn for_write_back(
        &self,
        at: u64,
        len: u64,
        write_back: impl FnOnce(&mut Self::Lines),
    ) -> Result<(), RawError>;

    /// Completes what this thread has streamed, and has begun to write back.
    #[track_caller]
    fn fence(&self);

    /// Has the system write the file that is below it.
    ///
    /// # Errors
    /// Those of the system.
    #[track_caller]
    fn sync_file(&self) -> std::io::Result<()>;

    /// Whether a rule of who stands above is kept. A simulation leaves one out, to see that this is noticed.
    #[inline(always)]
    fn keeps(&self, rule: RawRule) -> bool {
        let _ = rule;
        true
    }

    /// A thread is there. A simulation decides so who goes on first.
    #[inline(always)]
    fn reached(&self, place: RawPlace) {
        let _ = place;
    }
}

/// What makes a device of a raw region keep its promises, besides fences and write-backs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RawRule {
    /// What is stored through the cache is noted for the next barrier.
    StoresNoted,
    /// A barrier waits for the writes that are under way.
    BarrierWaits,
    /// A barrier writes what waits in buffers.
    BarrierDrains,
    /// A barrier waits for buffers that others are writing.
    DrainWaits,
    /// A write that is to be durable ends with a barrier, where it needs one.
    DurableSettled,
}

impl RawRule {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::StoresNoted,
        Self::BarrierWaits,
        Self::BarrierDrains,
        Self::DrainWaits,
        Self::DurableSettled,
    ];
}

/// Where threads meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RawPlace {
    /// A write is about to say that it has ended, by an instruction that makes this thread's stores visible first.
    WriteEnds,
    /// A barrier is about to wait for another thread.
    BarrierWaits,
}
