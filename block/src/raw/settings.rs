//! How a raw device is to be used: what keeps strays out, how stores reach the memory, how slow it is to be.

use core::fmt;
use core::str::FromStr;
use std::path::Path;

use lode_pmem::{ProtectIo, RawOptions, Slowdown, WriteScheme};

use crate::Sector;

/// Bytes of the pages that are protected and buffered.
pub(crate) const PAGE: u64 = 4096;

/// What keeps stray stores out between accesses (PMBD, section IV.B).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// At each access.
    Each(ProtectIo),
    /// `mprotect`, for many writes at once: they wait in buffers of main memory, and a barrier writes them.
    Batch(Batching),
}

/// Buffers of deferred writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batching {
    buffers: u8,
    buffer_bytes: u64,
    watermark_percent: u8,
    syncers: u8,
    merges: bool,
}

/// What buffers can't be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchingError {
    /// As many.
    #[error("1 to 16 buffers are possible, and as many syncers")]
    Count,
    /// As large.
    #[error("a buffer has 64 KiB to 1 GiB, in whole pages of 4096 bytes")]
    Size,
    /// Written then.
    #[error("the watermark is 1 to 100 percent of a buffer")]
    Watermark,
}

impl Batching {
    /// Most buffers.
    pub const BUFFERS_MAX: u8 = 16;
    /// One buffer of 16 MiB that is written when half of it is used, by one thread: the paper's first.
    pub const DEFAULT: Self = Self {
        buffers: 1,
        buffer_bytes: 16 << 20,
        watermark_percent: 50,
        syncers: 1,
        merges: true,
    };

    /// So many buffers of so many bytes, each written when so many percent of it are used, by so many threads.
    ///
    /// # Errors
    /// [`BatchingError`].
    pub fn new(
        buffers: u8,
        buffer_bytes: u64,
        watermark_percent: u8,
        syncers: u8,
    ) -> Result<Self, BatchingError> {
        let counts = 1..=Self::BUFFERS_MAX;
        if !counts.contains(&buffers) || !counts.contains(&syncers) {
            return Err(BatchingError::Count);
        }
        if !(64 << 10..=1 << 30).contains(&buffer_bytes) || !buffer_bytes.is_multiple_of(PAGE) {
            return Err(BatchingError::Size);
        }
        if !(1..=100).contains(&watermark_percent) {
            return Err(BatchingError::Watermark);
        }
        Ok(Self { buffers, buffer_bytes, watermark_percent, syncers, merges: true })
    }

    /// With pages written one by one though they follow each other: the paper's Figure 5 shows what merging is worth.
    pub fn without_merging(self) -> Self {
        Self { merges: false, ..self }
    }

    /// Whether pages that follow each other are written in one.
    pub fn merges(&self) -> bool {
        self.merges
    }

    /// How many buffers.
    pub fn buffers(&self) -> usize {
        self.buffers.into()
    }

    /// How many threads write them.
    pub fn syncers(&self) -> usize {
        self.syncers.into()
    }

    /// Pages of a buffer.
    pub(crate) fn pages(&self) -> usize {
        (self.buffer_bytes / PAGE) as usize
    }

    /// From so many on a buffer is written.
    pub(crate) fn watermark(&self) -> usize {
        (self.pages() * usize::from(self.watermark_percent)).div_ceil(100)
    }
}

const BATCH: &str = "mprotect-batch";

/// The names that users know; of `mprotect-batch` with the buffers that are the default.
impl FromStr for Protection {
    type Err = UnknownProtection;
    fn from_str(text: &str) -> Result<Self, UnknownProtection> {
        match text {
            BATCH => Ok(Self::Batch(Batching::DEFAULT)),
            _ => text.parse().map(Self::Each).map_err(|_| UnknownProtection(text.to_owned())),
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Each(protect) => protect.fmt(f),
            Self::Batch(_) => f.pad(BATCH),
        }
    }
}

/// A text that names no [`Protection`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "no protection is called {0:?}: it is one of none, key, key-rw, mprotect, mprotect-batch, private-map"
)]
pub struct UnknownProtection(String);

/// How a raw device is to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawSettings {
    /// Its blocks. (They are not atomic: what is written is written in place.)
    pub sector: Sector,
    /// For reading alone.
    pub read_only: bool,
    /// What keeps strays out. Chosen when `None`: a key where there are any free, else nothing.
    pub protection: Option<Protection>,
    /// How what is written reaches the memory.
    pub scheme: WriteScheme,
    /// How much slower to read.
    pub slow_read: Slowdown,
    /// How much slower to write.
    pub slow_write: Slowdown,
    /// Where sysfs is, which tells of the memory; `/sys` when `None`.
    pub sysfs: Option<&'static Path>,
}

impl Default for RawSettings {
    fn default() -> Self {
        let RawOptions { read_only, scheme, slow_read, slow_write, .. } = RawOptions::default();
        let sector = Sector::Small;
        Self { sector, read_only, protection: None, scheme, slow_read, slow_write, sysfs: None }
    }
}

impl RawSettings {
    /// What the region is opened with.
    pub(crate) fn options(&self) -> RawOptions {
        let Self { read_only, scheme, slow_read, slow_write, sysfs, .. } = *self;
        let protect = self.protection.map(|protection| match protection {
            Protection::Each(protect) => protect,
            Protection::Batch(_) => ProtectIo::Mprotect,
        });
        RawOptions { read_only, protect, scheme, slow_read, slow_write, sysfs }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for name in ["none", "key", "key-rw", "mprotect", "mprotect-batch", "private-map"] {
            assert_eq!(name.parse::<Protection>().unwrap().to_string(), name);
        }
        let error = "keys".parse::<Protection>().unwrap_err().to_string();
        assert!(error.contains("\"keys\"") && error.contains("mprotect-batch"), "{error}");
    }

    #[test]
    fn buffers_have_limits() {
        let made = Batching::new(16, 64 << 10, 1, 16).unwrap();
        assert_eq!((made.pages(), made.watermark()), (16, 1));
        assert_eq!(Batching::new(1, 16 << 20, 50, 1), Ok(Batching::DEFAULT));
        assert_eq!(Batching::DEFAULT.watermark(), 2048);
        for (wrong, why) in [
            (Batching::new(0, 1 << 20, 50, 1), BatchingError::Count),
            (Batching::new(17, 1 << 20, 50, 1), BatchingError::Count),
            (Batching::new(1, 1 << 20, 50, 0), BatchingError::Count),
            (Batching::new(1, 1 << 15, 50, 1), BatchingError::Size),
            (Batching::new(1, (1 << 20) + 1, 50, 1), BatchingError::Size),
            (Batching::new(1, 1 << 20, 0, 1), BatchingError::Watermark),
            (Batching::new(1, 1 << 20, 101, 1), BatchingError::Watermark),
        ] {
            assert_eq!(wrong, Err(why));
        }
    }
}
