//! A mapped file of any file system: a region as the medium of pools is, so that stores become
//! durable by what that place needs: `msync` of the page, or the CPU's instructions.

use std::io;
use std::path::Path;

use lode_pmem::{Counters, Door, Mapped, MediaError, RegionOptions, WindowMode};

use crate::calls::Mapping;

/// The pages of a file.
pub struct RegionMap {
    door: Door<Mapped>,
}

impl RegionMap {
    /// Maps the file at `path`, without a guard against stray stores.
    ///
    /// # Errors
    /// Where it can't be mapped.
    pub fn new(path: &Path) -> io::Result<Self> {
        let options = RegionOptions::new().windows(WindowMode::None);
        let region = Mapped::open(path, &options).map_err(io::Error::other)?;
        Ok(Self { door: Door::new(region) })
    }
}

impl Mapping for RegionMap {
    fn load(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.door.load(at, into).map_err(failed)
    }

    fn store(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        // Nobody asks for these, and counters that threads share would be what is measured.
        let (len, counters) = (bytes.len() as u64, Counters::new());
        let mut window = self.door.window(len, &counters);
        window.store(at, bytes);
        window.flush(at, len);
        drop(window);
        self.door.fence(&counters).map_err(failed)
    }
}

/// An error of the medium as one of the system.
pub fn failed(error: MediaError) -> io::Error {
    io::Error::other(format!("{error:?}"))
}
