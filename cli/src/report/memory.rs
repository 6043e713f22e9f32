//! What is known of the memory that a pool lies on.

use lode_pmem::{Mapped, RegionKind};
use serde::{Deserialize, Serialize};

use crate::human::Lines;
use crate::sizes::human;

/// What a pool lies on, in the words of [`RegionKind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum Medium {
    #[serde(rename = "dax device")]
    DaxDevice,
    #[serde(rename = "dax file")]
    DaxFile,
    #[serde(rename = "file")]
    File,
    #[serde(rename = "tmpfs file")]
    Tmpfs,
    #[serde(rename = "hugetlbfs file")]
    Hugetlb,
    #[default]
    #[serde(rename = "anonymous memory")]
    Anonymous,
}

impl Medium {
    fn kind(self) -> RegionKind {
        match self {
            Self::DaxDevice => RegionKind::DeviceDax,
            Self::DaxFile => RegionKind::DaxFile,
            Self::File => RegionKind::File,
            Self::Tmpfs => RegionKind::Tmpfs,
            Self::Hugetlb => RegionKind::Hugetlb,
            Self::Anonymous => RegionKind::Anonymous,
        }
    }

    /// Stores reach the memory itself.
    fn is_direct(self) -> bool {
        matches!(self, Self::DaxDevice | Self::DaxFile)
    }
}

impl From<RegionKind> for Medium {
    fn from(kind: RegionKind) -> Self {
        match kind {
            RegionKind::DeviceDax => Self::DaxDevice,
            RegionKind::DaxFile => Self::DaxFile,
            RegionKind::File => Self::File,
            RegionKind::Tmpfs => Self::Tmpfs,
            RegionKind::Hugetlb => Self::Hugetlb,
            RegionKind::Anonymous => Self::Anonymous,
        }
    }
}

/// What is known of the memory that a pool lies on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct MemoryFacts {
    /// What it is: a DAX device, a DAX file, an ordinary one.
    pub(crate) medium: Medium,
    /// The device below it.
    pub(crate) device: Option<String>,
    /// It is part of a region of persistent memory.
    pub(crate) persistent: bool,
    /// There is no page cache between.
    pub(crate) dax: bool,
    /// Bytes of the pages that it can be mapped by at least.
    pub(crate) page_bytes: u64,
    /// What the kernel has mapped when this was asked, or when the pool was mounted.
    pub(crate) mapped_bytes: Option<u64>,
    /// By pages of 2 MiB or more.
    pub(crate) huge_bytes: Option<u64>,
    /// What of the CPU's stores a power failure spares.
    pub(crate) persistence_domain: Option<String>,
    /// How often it has lost what was stored.
    pub(crate) dirty_shutdowns: Option<u64>,
    /// Bytes of the pool's region that the system knows to be bad.
    pub(crate) listed_bad_bytes: u64,
}

impl MemoryFacts {
    /// Of this region.
    pub(crate) fn of(region: &Mapped) -> Self {
        let (memory, pages) = (region.memory(), region.mapped_pages());
        let listed = memory.listed_bad.iter().map(|piece| piece.end - piece.start);
        Self {
            medium: region.kind().into(),
            device: memory.device.clone(),
            persistent: memory.is_persistent,
            dax: memory.is_dax || region.kind() == RegionKind::DaxFile,
            page_bytes: region.page_bytes(),
            mapped_bytes: pages.map(|pages| pages.bytes),
            huge_bytes: pages.map(|pages| pages.huge_bytes),
            persistence_domain: memory.persistence_domain.clone(),
            dirty_shutdowns: memory.losses.map(|losses| losses.count),
            listed_bad_bytes: listed.sum(),
        }
    }

    /// Adds these facts as text, but [`MemoryFacts::medium_text`].
    pub(crate) fn lines(&self, lines: &mut Lines) {
        lines.add("mapping", self.mapping_text());
        if let Some(domain) = &self.persistence_domain {
            let spared = match domain.as_str() {
                _ if !self.medium.is_direct() => {
                    "of the memory below, which this file does not reach by itself"
                }
                "cpu_cache" => "the CPU's caches survive power failure, nothing need be flushed",
                "memory_controller" => "what was flushed survives power failure",
                _ => "the system does not say what survives power failure",
            };
            lines.add("persistence", format!("{domain}: {spared}"));
        }
        if let Some(count) = self.dirty_shutdowns {
            lines.add("dirty shutdowns", format!("{count} so far"));
        }
        if self.listed_bad_bytes > 0 {
            let bytes = self.listed_bad_bytes;
            lines.add("BAD BLOCKS", format!("{bytes} bytes, by the system's list"));
        }
    }

    /// What it is, in words.
    pub(crate) fn medium_text(&self) -> String {
        let medium = self.medium.kind();
        let device = self.device.as_ref().map_or_else(String::new, |name| format!(", on {name}"));
        let how = match self.medium {
            Medium::File if self.dax => "; DAX, but without MAP_SYNC: only msync makes it durable",
            Medium::DaxDevice if !self.persistent => "; nothing tells that it is persistent",
            _ => "",
        };
        format!("{medium}{device}{how}")
    }

    fn mapping_text(&self) -> String {
        let pages = format!("pages of {}", human(self.page_bytes));
        match (self.mapped_bytes, self.huge_bytes) {
            _ if self.page_bytes > lode_engine::PAGE_BYTES => pages,
            (Some(mapped), Some(huge)) if mapped > 0 => {
                let (huge, mapped) = (human(huge), human(mapped));
                format!("{pages}; of {mapped} in use so far, {huge} by huge ones")
            }
            _ => pages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_medium_is_called_what_its_region_is() -> Result<(), serde_json::Error> {
        use RegionKind::{Anonymous, DaxFile, DeviceDax, File, Hugetlb, Tmpfs};
        for kind in [DeviceDax, DaxFile, File, Tmpfs, Hugetlb, Anonymous] {
            let medium = Medium::from(kind);
            assert_eq!(medium.kind(), kind);
            assert_eq!(serde_json::to_value(medium)?, kind.to_string());
        }
        Ok(())
    }
}
