//! The data of a file, as its inode has it in memory.

use alloc::boxed::Box;
use core::sync::atomic::AtomicBool;

use super::beside::Size;
use super::exempt::Exempt;
use super::journal::Journal;
use super::maps::Maps;
use crate::index::Extents;

/// The data of a file.
#[derive(Default)]
pub(crate) struct File {
    pub(crate) extents: Extents,
    pub(crate) journal: Journal,
    /// All mapped bytes behind the size are known to be zero.
    pub(crate) zero_behind: bool,
    /// Pages of a large class have been mapped, and may still be.
    pub(crate) has_large: bool,
    /// What is kept while programs have pages of it mapped.
    pub(crate) maps: Option<Box<Maps>>,
    /// Pages whose checksums mean nothing now.
    pub(crate) exempt: Option<Box<Exempt>>,
    /// It is written by sectors, as volumes are: who reads heeds who writes.
    pub(crate) by_sectors: bool,
    /// Its writers go side by side, until somebody has the right to change it: here, too.
    pub(super) side_by_side: bool,
    /// Lines of the sector journal may tell of it.
    pub(crate) sector_lines: AtomicBool,
    /// How many lanes of the sector journal told of it when somebody got the right to change it, if any might; one more than that. The most since a
    /// writer took it.
    pub(super) lanes_seen: u8,
    /// How often writers of it have met, about.
    pub(crate) meetings: u8,
    /// How many places are noted for those who go side by side.
    pub(super) beside_size: Size,
}

impl File {
    /// Without any pages.
    pub(crate) fn empty() -> Self {
        Self { zero_behind: true, ..Self::default() }
    }

    /// Whether somebody may be writing to it who has no right to change it: who reads looks whether what was read is whole.
    #[inline]
    pub(crate) fn is_read_by_sectors(&self) -> bool {
        self.by_sectors || self.side_by_side
    }
}
