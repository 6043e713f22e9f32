//! A volume as others are served it.

use std::ops::ControlFlow;

use lode_engine::{Error as EngineError, Host};
use lode_nbd::{BlockSizes, Device, Errno, WriteZeroes};
use lode_pmem::Medium;

use crate::{Error, Extent, Volume};

/// Bytes that are fast: a page.
const PREFERRED: u32 = 4096;

/// What a client is told.
fn told(error: Error) -> Errno {
    tracing::debug!(%error, "a client's request of a volume failed");
    match error {
        Error::Outside { .. } => Errno::EINVAL,
        Error::Pool(EngineError::NoSpace) => Errno::ENOSPC,
        Error::Pool(EngineError::NoMemory) => Errno::ENOMEM,
        Error::Pool(EngineError::ReadOnly) => Errno::EPERM,
        _ => Errno::EIO,
    }
}

/// (All is durable when a call returns, so nothing more is done to make it so.)
impl<M: Medium, H: Host> Device for Volume<M, H> {
    fn size(&self) -> u64 {
        self.bytes().unwrap_or_else(|error| {
            told(error);
            0
        })
    }

    fn block_sizes(&self) -> BlockSizes {
        let sector = self.settings().sector.bytes() as u32;
        BlockSizes::new(sector, PREFERRED, BlockSizes::MAX).unwrap_or_default()
    }

    fn read_only(&self) -> bool {
        self.is_read_only()
    }

    fn is_write_through(&self) -> bool {
        true
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        Volume::read(self, at, into).map_err(told)
    }

    fn write(&self, at: u64, from: &[u8], _fua: bool) -> Result<(), Errno> {
        Volume::write(self, at, from).map_err(told)
    }

    fn flush(&self) -> Result<(), Errno> {
        Volume::flush(self).map_err(told)
    }

    fn trim(&self, at: u64, len: u64, _fua: bool) -> Result<(), Errno> {
        self.discard(at, len).map_err(told)
    }

    fn write_zeroes(&self, at: u64, len: u64, how: WriteZeroes) -> Result<(), Errno> {
        let gives_back = self.settings().is_thin && !how.no_hole;
        if how.fast_zero && !gives_back {
            // Zeros are written as all else is.
            return Err(Errno::ENOTSUP);
        }
        self.zero(at, len, !gives_back).map_err(told)
    }

    fn status(
        &self,
        at: u64,
        len: u64,
        found: &mut dyn FnMut(lode_nbd::Extent) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let each = &mut |Extent { len, has_pages }: Extent| {
            let (hole, zero) = (!has_pages, !has_pages);
            found(lode_nbd::Extent { len, hole, zero }).is_continue()
        };
        self.extents(at, len, each).map_err(told)
    }
}
