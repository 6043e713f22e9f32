//! What a device is told to be.

use lode_nbd::Device;

use crate::wire::{BASIC, DISCARDS, HAS_FUA, Parameters, READ_ONLY, SECTOR_BYTES, VOLATILE_CACHE};

/// Bytes of data of a request, at most.
pub const DATA_BYTES: u32 = 512 << 10;
/// Bytes that are discarded or made zeros by a request, at most: as much as a device is asked for at a time.
pub const RANGE_BYTES: u32 = 16 << 20;

/// Blocks that the kernel can have, in bytes: sectors up to the smallest of all pages.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 512..=4096;

/// What requests are checked against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Bytes that offsets and lengths are multiples of.
    pub block_bytes: u32,
    /// Bytes that are written at once.
    pub physical_bytes: u32,
    /// Bytes that the device has, whole blocks.
    pub bytes: u64,
    /// Nothing may be written.
    pub read_only: bool,
}

impl Shape {
    /// That of a device; none if the kernel can't have such blocks, or it has not one of them.
    pub fn of(device: &dyn Device) -> Option<Self> {
        let sizes = device.block_sizes();
        let block_bytes = sizes.min().max(*BLOCK_BYTES.start());
        if !BLOCK_BYTES.contains(&block_bytes) || sizes.max() < DATA_BYTES {
            return None;
        }
        let size = device.size();
        let bytes = size - size % u64::from(block_bytes);
        let physical_bytes = sizes.preferred().clamp(block_bytes, *BLOCK_BYTES.end());
        let read_only = device.read_only();
        (bytes > 0).then_some(Self { block_bytes, physical_bytes, bytes, read_only })
    }

    /// What the kernel is told of it. Where writes are durable when they return nothing is said of a cache: then the
    /// kernel neither flushes nor asks for writes that are durable by themselves, as all are.
    pub fn parameters(&self, device: &dyn Device) -> Parameters {
        let sectors = |bytes: u32| bytes / SECTOR_BYTES as u32;
        let attributes = match device.is_write_through() {
            true => 0,
            false => VOLATILE_CACHE | HAS_FUA,
        };
        let physical_shift = self.physical_bytes.trailing_zeros() as u8;
        Parameters {
            bytes: size_of::<Parameters>() as u32,
            parts: BASIC | DISCARDS,
            attributes: attributes | if self.read_only { READ_ONLY } else { 0 },
            logical_shift: self.block_bytes.trailing_zeros() as u8,
            physical_shift,
            optimal_shift: physical_shift,
            minimal_shift: physical_shift,
            max_sectors: sectors(DATA_BYTES),
            sectors: self.bytes / SECTOR_BYTES,
            discard_bytes: self.physical_bytes,
            max_discard_sectors: sectors(RANGE_BYTES),
            max_zero_sectors: sectors(RANGE_BYTES),
            max_discard_segments: 1,
            ..Parameters::default()
        }
    }
}
