//! What is served: a range of bytes that can be read, and perhaps written.

use std::ops::ControlFlow;

use crate::errno::Errno;

/// How a device wants to be accessed, all in bytes; such sizes as the protocol allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSizes {
    min: u32,
    preferred: u32,
    max: u32,
}

impl BlockSizes {
    /// Longest read or write that is ever served.
    pub const MAX: u32 = 32 << 20;

    /// Offsets and lengths are multiples of `min`, a power of two up to 64 KiB; those of `preferred`, a power of
    /// two not below `min` and 512, are fast; no read or write is longer than `max`, a multiple of `min` from
    /// `preferred` to [`Self::MAX`]. `None` for other sizes.
    pub fn new(min: u32, preferred: u32, max: u32) -> Option<Self> {
        let right = min.is_power_of_two()
            && min <= 1 << 16
            && preferred.is_power_of_two()
            && preferred >= min.max(512)
            && max.is_multiple_of(min)
            && (preferred..=Self::MAX).contains(&max);
        right.then_some(Self { min, preferred, max })
    }

    /// What offsets and lengths are multiples of.
    pub fn min(self) -> u32 {
        self.min
    }

    /// What is fast.
    pub fn preferred(self) -> u32 {
        self.preferred
    }

    /// The longest read or write.
    pub fn max(self) -> u32 {
        self.max
    }
}

impl Default for BlockSizes {
    /// Any byte, best in pages.
    fn default() -> Self {
        Self { min: 1, preferred: 4096, max: Self::MAX }
    }
}

/// A part of a device of which all is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Its length in bytes, a multiple of the smallest block.
    pub len: u64,
    /// Nothing is allocated for it: a write could find no space.
    pub hole: bool,
    /// It reads as zeros.
    pub zero: bool,
}

/// How zeros are to be written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WriteZeroes {
    /// What is written stays allocated.
    pub no_hole: bool,
    /// Where this would not be faster than a write of zeros, it is to fail with [`Errno::ENOTSUP`], at once.
    pub fast_zero: bool,
    /// It is to be durable when the call returns.
    pub fua: bool,
}

/// What is served. Threads call it side by side.
///
/// Its calls are expected to return in the time that memory needs: while one lasts, the other clients of the same
/// thread wait. Ranges lie within [`Device::size`] as it was just before; a device that shrinks has to look itself.
/// Ranges are multiples of the smallest block, and never empty. A long request comes as several calls: of 1 MiB at
/// most, 2 MiB for [`Device::write_zeroes`], or 16 MiB for [`Device::trim`], [`Device::cache`] and [`Device::status`].
///
/// All clients see one device: what was flushed for one is durable for all.
///
/// # Errors
/// A method's [`Errno`] goes to the client.
pub trait Device: Send + Sync {
    /// Size in bytes, asked for each request. What is behind the last whole smallest block is not served.
    fn size(&self) -> u64;

    /// How it wants to be accessed; always the same.
    fn block_sizes(&self) -> BlockSizes {
        BlockSizes::default()
    }

    /// Whether nobody may write to it.
    fn read_only(&self) -> bool {
        false
    }

    /// Whether what a call has returned of is durable, without `fua` and without a flush; always the same.
    fn is_write_through(&self) -> bool {
        false
    }

    /// Fills `into` with what is at `at`.
    ///
    /// # Errors
    /// `into` then holds anything.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Errno>;

    /// Writes `from` to `at`; with `fua` it is durable at return.
    ///
    /// # Errors
    /// Any of the blocks may have been written.
    fn write(&self, at: u64, from: &[u8], fua: bool) -> Result<(), Errno>;

    /// Makes all durable that was written before.
    ///
    /// # Errors
    /// It may not be.
    fn flush(&self) -> Result<(), Errno>;

    /// `len` bytes at `at` are not needed any more. With `fua`, what becomes of them is durable at return.
    ///
    /// # Errors
    /// Any of it may have happened.
    fn trim(&self, at: u64, len: u64, fua: bool) -> Result<(), Errno>;

    /// Makes `len` bytes at `at` zeros.
    ///
    /// # Errors
    /// Any of it may have happened.
    fn write_zeroes(&self, at: u64, len: u64, how: WriteZeroes) -> Result<(), Errno>;

    /// `len` bytes at `at` will be read soon.
    ///
    /// # Errors
    /// Those of a read, perhaps.
    fn cache(&self, at: u64, len: u64) -> Result<(), Errno> {
        let _ = (at, len);
        Ok(())
    }

    /// Tells `found` what lies from `at` on, extent by extent, until `len` bytes are told of or it breaks. What is
    /// told beyond that is left out; what is not told counts as allocated, and as no zeros.
    ///
    /// # Errors
    /// What was told before then counts for nothing.
    fn status(
        &self,
        at: u64,
        len: u64,
        found: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let _ = (at, found(Extent { len, hole: false, zero: false }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_block_sizes_of_the_protocol_exist() {
        for (min, preferred, max) in
            [(1, 512, 512), (512, 512, 1 << 20), (1 << 16, 1 << 16, BlockSizes::MAX)]
        {
            let sizes = BlockSizes::new(min, preferred, max).unwrap();
            assert_eq!((sizes.min(), sizes.preferred(), sizes.max()), (min, preferred, max));
        }
        let default = BlockSizes::default();
        assert_eq!(BlockSizes::new(default.min, default.preferred, default.max), Some(default));
        for (min, preferred, max) in [
            (0, 512, 512),
            (3, 512, 1024),
            (1 << 17, 1 << 17, 1 << 20),
            (1, 256, 1024),
            (4096, 512, 8192),
            (1, 4096, 512),
            (512, 512, 1000),
            (1, 512, BlockSizes::MAX + 1),
            (1, 600, 1024),
        ] {
            assert_eq!(BlockSizes::new(min, preferred, max), None, "{min} {preferred} {max}");
        }
    }
}
