//! What is known of the memory below a region.

use std::ops::Range;

use crate::Losses;

/// What the system knows of the memory below a region.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// The device, as it is called in /dev: of a file, that of its file system. `None` where sysfs has none.
    pub device: Option<String>,
    /// Loads and stores reach it with no page cache between.
    pub is_dax: bool,
    /// It is part of a region of persistent memory. (Linux makes DAX devices of memory that forgets, too; of a file
    /// MAP_SYNC tells.)
    pub is_persistent: bool,
    /// What of the CPU's stores a power failure spares, in Linux's words: of `cpu_cache` nothing need be flushed.
    pub persistence_domain: Option<String>,
    /// How often it has lost what it had been given.
    pub losses: Option<Losses>,
    /// Bytes of the region that the system knows to be bad: none of them can be loaded.
    pub listed_bad: Vec<Range<u64>>,
}

impl Memory {
    /// Whether the CPU's caches are written back when the power fails, as far as the system knows.
    pub(crate) fn caches_survive(&self) -> bool {
        self.persistence_domain.as_deref() == Some("cpu_cache")
    }
}
