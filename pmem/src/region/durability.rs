//! What a region's fences are worth.

use core::fmt;

use super::{Memory, RegionKind};
use crate::flush::{FlushStrategy, WriteBack};

/// The worst event that what was fenced survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Durability {
    /// Gone when the region is closed.
    None,
    /// Survives the death of the process, not that of the system.
    ProcessCrash,
    /// Survives a crash of the operating system, not a power failure.
    KernelCrash,
    /// Survives a power failure.
    Power,
}

impl Durability {
    /// The class of a region of `kind` on this memory that is stored to by `strategy`.
    ///
    /// An ordinary file under `msync` is worth what the disk below it is.
    pub(crate) fn of(kind: RegionKind, strategy: FlushStrategy, memory: &Memory) -> Self {
        let unflushed =
            matches!(strategy, FlushStrategy::Instructions { write_back: WriteBack::None, .. });
        match (kind, strategy) {
            (RegionKind::Anonymous, _) => Self::None,
            (RegionKind::Tmpfs | RegionKind::Hugetlb, _) => Self::ProcessCrash,
            (RegionKind::DeviceDax, _) if !memory.is_persistent => Self::ProcessCrash,
            (RegionKind::DeviceDax | RegionKind::DaxFile, _)
                if unflushed && !memory.caches_survive() =>
            {
                Self::KernelCrash
            }
            (RegionKind::DeviceDax | RegionKind::DaxFile, _) => Self::Power,
            (RegionKind::File, FlushStrategy::Msync) => Self::Power,
            // The page cache keeps it, and nobody says when the disk gets it.
            (RegionKind::File, FlushStrategy::Instructions { .. }) => Self::ProcessCrash,
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::ProcessCrash => "process crash",
            Self::KernelCrash => "kernel crash",
            Self::Power => "power",
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn class_of_each_kind() {
        let flushed: FlushStrategy = "sse2+clflush".parse().unwrap();
        let unflushed: FlushStrategy = "sse2+none".parse().unwrap();
        let msync = FlushStrategy::Msync;
        let classes = [
            (RegionKind::DaxFile, flushed, false, "power"),
            (RegionKind::DaxFile, unflushed, true, "power"),
            (RegionKind::DaxFile, unflushed, false, "kernel crash"),
            (RegionKind::DaxFile, msync, false, "power"),
            (RegionKind::DeviceDax, flushed, false, "power"),
            (RegionKind::DeviceDax, unflushed, false, "kernel crash"),
            (RegionKind::File, msync, false, "power"),
            (RegionKind::File, flushed, false, "process crash"),
            (RegionKind::Tmpfs, flushed, false, "process crash"),
            (RegionKind::Tmpfs, msync, false, "process crash"),
            (RegionKind::Hugetlb, flushed, false, "process crash"),
            (RegionKind::Anonymous, flushed, true, "none"),
        ];
        for (kind, strategy, caches_survive, text) in classes {
            let domain = if caches_survive { "cpu_cache" } else { "memory_controller" };
            let persistence_domain = Some(domain.to_owned());
            let memory = Memory { persistence_domain, is_persistent: true, ..Memory::default() };
            let class = Durability::of(kind, strategy, &memory);
            assert_eq!(class.to_string(), text, "{kind} {strategy}");
            let volatile = Memory { is_persistent: false, ..memory };
            let class = Durability::of(kind, strategy, &volatile);
            let text = if kind == RegionKind::DeviceDax { "process crash" } else { text };
            assert_eq!(class.to_string(), text, "{kind} {strategy}, memory that forgets");
        }
        assert!(Durability::None < Durability::ProcessCrash);
        assert!(Durability::KernelCrash < Durability::Power);
    }
}
