//! What of that which is served can't be written: all of it, or volumes by their names.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use lode_nbd::{BlockSizes, Device, Errno, Extent, WriteZeroes};

use super::ServeArgs;
use crate::failure::{Failure, Result};
use crate::human::printable;

impl ServeArgs {
    /// Nothing can be written. (No volume has an empty name.)
    pub(super) fn is_read_only(&self) -> bool {
        self.read_only.iter().any(|name| name.is_empty())
    }

    /// The export of this name can't be written.
    pub(super) fn is_only_read(&self, name: &str) -> bool {
        self.is_read_only() || self.read_only.iter().any(|one| one == name)
    }

    /// A device under its name, as it is to be served.
    pub(super) fn guarded(&self, name: &str, device: Arc<dyn Device>) -> Arc<dyn Device> {
        if self.is_only_read(name) { Arc::new(OnlyRead(device)) } else { device }
    }

    /// All that is only to be read is there.
    ///
    /// # Errors
    /// `Usage`: who has misspelt a name must not find the volume writable.
    pub(super) fn has_all_read_only(&self, path: &Path, names: &[String]) -> Result<()> {
        let is_served = |one: &OsStr| names.iter().any(|name| one == name.as_str());
        let absent = self.read_only.iter().find(|one| !one.is_empty() && !is_served(one));
        let Some(absent) = absent else { return Ok(()) };
        let name = printable(absent.as_encoded_bytes());
        Err(Failure::usage(format!("--read-only={name}: nothing of that name is served"))
            .at(path)
            .advise("name something that is served, or give --read-only without a name: then nothing can be written"))
    }
}

/// A device that can't be written.
struct OnlyRead(Arc<dyn Device>);

impl Device for OnlyRead {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn block_sizes(&self) -> BlockSizes {
        self.0.block_sizes()
    }

    fn read_only(&self) -> bool {
        true
    }

    fn is_write_through(&self) -> bool {
        self.0.is_write_through()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> std::result::Result<(), Errno> {
        self.0.read(at, into)
    }

    fn write(&self, _: u64, _: &[u8], _: bool) -> std::result::Result<(), Errno> {
        Err(Errno::EPERM)
    }

    fn flush(&self) -> std::result::Result<(), Errno> {
        self.0.flush()
    }

    fn trim(&self, _: u64, _: u64, _: bool) -> std::result::Result<(), Errno> {
        Err(Errno::EPERM)
    }

    fn write_zeroes(&self, _: u64, _: u64, _: WriteZeroes) -> std::result::Result<(), Errno> {
        Err(Errno::EPERM)
    }

    fn cache(&self, at: u64, len: u64) -> std::result::Result<(), Errno> {
        self.0.cache(at, len)
    }

    fn status(
        &self,
        at: u64,
        len: u64,
        found: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> std::result::Result<(), Errno> {
        self.0.status(at, len, found)
    }
}
