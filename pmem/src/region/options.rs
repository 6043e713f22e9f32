//! How a region is to be opened.

use std::path::Path;

use super::sysfs::ROOT;
use crate::emulation::Profile;
use crate::flush::FlushStrategy;
use crate::windows::WindowMode;

/// How to open a region. The default is read-write, with the best that kind of
/// region, CPU and operating system offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegionOptions {
    /// Map it for loads alone, beside other readers; a store fails an assertion.
    pub read_only: bool,
    /// Guard stores in this way. Chosen when `None`: keys where there are any free,
    /// else nothing.
    pub windows: Option<WindowMode>,
    /// Store and flush in this way. Chosen when `None`.
    pub flush: Option<FlushStrategy>,
    /// Take as long as this slower medium would: for measuring. What the region is, and what its
    /// fences are worth, stays as it is.
    pub emulate: Option<Profile>,
    /// Where sysfs is, which tells of the memory; `/sys` when `None`. (A test can show what this machine has not.)
    pub sysfs: Option<&'static Path>,
}

impl RegionOptions {
    /// The defaults.
    pub const fn new() -> Self {
        Self { read_only: false, windows: None, flush: None, emulate: None, sysfs: None }
    }

    /// With [`RegionOptions::read_only`] set to this.
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// With this window mode.
    pub const fn windows(mut self, windows: WindowMode) -> Self {
        self.windows = Some(windows);
        self
    }

    /// With this flush strategy.
    pub const fn flush(mut self, flush: FlushStrategy) -> Self {
        self.flush = Some(flush);
        self
    }

    /// With sysfs at this directory.
    pub const fn sysfs(mut self, sysfs: Option<&'static Path>) -> Self {
        self.sysfs = sysfs;
        self
    }

    /// Where sysfs is.
    pub(super) fn sysfs_root(&self) -> &'static Path {
        self.sysfs.unwrap_or(Path::new(ROOT))
    }

    /// With the times of this medium.
    pub const fn emulate(mut self, profile: Profile) -> Self {
        self.emulate = Some(profile);
        self
    }
}
