//! A raw device as it is served by NBD.

use std::sync::atomic::Ordering::Relaxed;

use lode_nbd::{BlockSizes, Device, Errno, WriteZeroes};
use lode_pmem::{RawError, RawMemory};

use super::RawDevice;
use super::settings::PAGE;

impl<M: RawMemory + 'static> RawDevice<M> {
    /// What a client is told.
    fn told(&self, error: RawError) -> Errno {
        tracing::debug!(%error, "a client's request of a raw device failed");
        match error {
            RawError::Outside { .. } => Errno::EINVAL,
            RawError::ReadOnly => Errno::EPERM,
            RawError::Cut { .. } => {
                if !self.cut_told.swap(true, Relaxed) {
                    let path = self.path().display();
                    tracing::error!(%path, "{error}: requests of what is gone fail; make the file as long as it was, and serve it anew");
                }
                Errno::EIO
            }
            RawError::NoSpace { .. } => {
                if !self.full_told.swap(true, Relaxed) {
                    let path = self.path().display();
                    tracing::error!(%path, "{error}, which somebody has taken away: requests of such pages fail; free space there, and serve it anew");
                }
                Errno::ENOSPC
            }
            _ => Errno::EIO,
        }
    }
}

impl<M: RawMemory + 'static> Device for RawDevice<M> {
    fn size(&self) -> u64 {
        self.bytes()
    }

    fn block_sizes(&self) -> BlockSizes {
        let sector = self.sector().bytes() as u32;
        BlockSizes::new(sector, PAGE as u32, BlockSizes::MAX).unwrap_or_default()
    }

    fn is_write_through(&self) -> bool {
        self.is_durable_when_written()
    }

    fn read_only(&self) -> bool {
        self.region().is_read_only()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        RawDevice::read(self, at, into).map_err(|error| match self.told(error) {
            // (Who reads asks for no space.)
            Errno::ENOSPC => Errno::EIO,
            other => other,
        })
    }

    fn write(&self, at: u64, from: &[u8], fua: bool) -> Result<(), Errno> {
        let written = if fua { self.write_durably(at, from) } else { self.write(at, from) };
        written.map_err(|error| self.told(error))
    }

    fn flush(&self) -> Result<(), Errno> {
        RawDevice::flush(self).map_err(|error| self.told(error))
    }

    /// (There is nothing to give back.)
    fn trim(&self, _at: u64, _len: u64, _fua: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn write_zeroes(&self, at: u64, len: u64, how: WriteZeroes) -> Result<(), Errno> {
        if how.fast_zero {
            // Zeros are written as all else is.
            return Err(Errno::ENOTSUP);
        }
        self.zero(at, len).map_err(|error| self.told(error))?;
        if how.fua { self.settle().map_err(|error| self.told(error)) } else { Ok(()) }
    }
}
