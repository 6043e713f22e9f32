//! What programs are run on.

use std::fs;

use crate::file_system::{self, FileSystem, needs_program};
use crate::place::Place;
use crate::subject::needs_fuse;

/// A directory for a program.
pub struct Subject {
    /// Its name, for good.
    pub id: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// It is measured where none are asked for.
    pub usual: bool,
    /// And in a quick run.
    pub quick: bool,
    pub(super) base: Base,
    /// Options of `lode mount`, where there is a pool.
    pub(super) pool_options: &'static [&'static str],
    /// Options of the file system's mount, where there is a device.
    pub(super) options: &'static str,
}

/// What a directory lies on.
pub(super) enum Base {
    /// A file system in memory, by the kernel's name.
    Memory(&'static str),
    /// A mounted pool.
    Pool,
    /// This file system on a loop device of a file in memory: a RAM disk.
    Image(&'static FileSystem),
    /// This file system on the loop device of a volume.
    Volume(&'static FileSystem),
}

const USUAL: Subject = Subject {
    id: "",
    about: "",
    usual: true,
    quick: false,
    base: Base::Pool,
    pool_options: &[],
    options: "nodiscard",
};
const ASKED: Subject = Subject { usual: false, ..USUAL };
const VOLUME: Subject = Subject { base: Base::Volume(&file_system::EXT4), ..USUAL };

/// What guards a pool, and how stores reach it: nothing, and through the cache.
const CACHED: &[&str] = &["windows=none", "flush=msync"];
const UNGUARDED: &[&str] = &["windows=none"];
const MPROTECT: &[&str] = &["windows=mprotect"];
/// Writes need not have reached the device in the order that the file system asks for.
const NO_BARRIER: &str = "nodiscard,nobarrier";

/// All of them.
pub(super) const ALL: &[Subject] = &[
    Subject {
        id: "tmpfs",
        about: "the kernel's file system in memory: no device, nothing is durable",
        base: Base::Memory("tmpfs"),
        quick: true,
        ..USUAL
    },
    Subject {
        id: "ramfs",
        about: "the simpler one, without a limit of its size",
        base: Base::Memory("ramfs"),
        ..ASKED
    },
    Subject {
        id: "lode-mount",
        about: "a pool mounted by `lode mount`, the files in the pool itself",
        ..USUAL
    },
    Subject {
        id: "ext4-ram",
        about: "ext4 on a loop device of a file in a tmpfs",
        base: Base::Image(&file_system::EXT4),
        quick: true,
        ..USUAL
    },
    Subject {
        id: "ext4-volume",
        about: "ext4 on the loop device of a volume of a mounted pool, everything as it is where nothing is said",
        quick: true,
        ..VOLUME
    },
    Subject {
        id: "ext4-unguarded",
        about: "the same, the pool mounted with windows=none: no guard against stray stores",
        pool_options: UNGUARDED,
        ..VOLUME
    },
    Subject {
        id: "ext4-mprotect",
        about: "the same with windows=mprotect: guarded by the page tables",
        pool_options: MPROTECT,
        ..VOLUME
    },
    Subject {
        id: "ext4-cached",
        about: "the same with windows=none and flush=msync: ordinary stores, which stay in the cache",
        pool_options: CACHED,
        ..VOLUME
    },
    Subject {
        id: "ext4-nobarrier",
        about: "ext4-volume, ext4 mounted with nobarrier: it asks for no order of its writes",
        options: NO_BARRIER,
        ..VOLUME
    },
    Subject {
        id: "unguarded-nobarrier",
        about: "ext4-unguarded with nobarrier",
        pool_options: UNGUARDED,
        options: NO_BARRIER,
        ..VOLUME
    },
    Subject {
        id: "mprotect-nobarrier",
        about: "ext4-mprotect with nobarrier",
        pool_options: MPROTECT,
        options: NO_BARRIER,
        ..VOLUME
    },
    Subject {
        id: "cached-nobarrier",
        about: "ext4-cached with nobarrier: what the others are compared with, as in the paper",
        pool_options: CACHED,
        options: NO_BARRIER,
        ..VOLUME
    },
    Subject {
        id: "ext2-ram",
        about: "ext2, which has no journal, as ext4-ram",
        base: Base::Image(&file_system::EXT2),
        options: "defaults",
        ..ASKED
    },
    Subject {
        id: "ext2-volume",
        about: "ext2 as ext4-volume",
        base: Base::Volume(&file_system::EXT2),
        options: "defaults",
        ..ASKED
    },
    Subject {
        id: "xfs-ram",
        about: "XFS as ext4-ram",
        base: Base::Image(&file_system::XFS),
        ..ASKED
    },
    Subject {
        id: "xfs-volume",
        about: "XFS as ext4-volume",
        base: Base::Volume(&file_system::XFS),
        ..ASKED
    },
    Subject {
        id: "btrfs-ram",
        about: "Btrfs as ext4-ram",
        base: Base::Image(&file_system::BTRFS),
        ..ASKED
    },
    Subject {
        id: "btrfs-volume",
        about: "Btrfs as ext4-volume",
        base: Base::Volume(&file_system::BTRFS),
        ..ASKED
    },
];

/// The subject of this name.
pub fn by_id(id: &str) -> Option<&'static Subject> {
    ALL.iter().find(|subject| subject.id == id)
}

impl Subject {
    /// Why it can't be measured by this user on this machine.
    pub(super) fn missing(&self, place: &Place) -> Option<String> {
        if !place.is_root() {
            return Some("only root may mount it".to_owned());
        }
        let device = |file_system: &FileSystem| {
            file_system.missing().or_else(|| needs_program("losetup", "mount"))
        };
        match &self.base {
            Base::Memory(_) => None,
            Base::Pool => needs_fuse(),
            Base::Image(file_system) => device(file_system),
            Base::Volume(_) if self.pool_options == UNGUARDED && !has_keys() => {
                let twin =
                    if self.options == NO_BARRIER { "ext4-nobarrier" } else { "ext4-volume" };
                Some(format!("the CPU has no protection keys: {twin} is unguarded, too"))
            }
            Base::Volume(file_system) => needs_fuse().or_else(|| device(file_system)),
        }
    }

    /// Whether it lies in a pool: then it takes the times of an emulated medium.
    pub(super) fn has_pool(&self) -> bool {
        matches!(self.base, Base::Pool | Base::Volume(_))
    }
}

/// Whether pools are guarded where nothing is said.
fn has_keys() -> bool {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.split_whitespace().any(|word| word == "ospke")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_distinct_and_a_quick_run_has_memory_a_ram_disk_and_a_volume() {
        let ids: BTreeSet<_> = ALL.iter().map(|subject| subject.id).collect();
        assert_eq!(ids.len(), ALL.len());
        let quick: Vec<_> = ALL.iter().filter(|one| one.quick).map(|one| one.id).collect();
        assert_eq!(quick, ["tmpfs", "ext4-ram", "ext4-volume"]);
        assert!(ALL.iter().all(|one| one.usual || !one.quick));
        assert!(by_id("ext3-volume").is_none() && by_id("xfs-volume").is_some());
    }

    #[test]
    fn who_is_not_root_is_told_so() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::new(Some(base.path()), 16 << 20).unwrap();
        for subject in ALL {
            if !place.is_root() {
                assert!(subject.missing(&place).unwrap().contains("root"), "{}", subject.id);
            }
        }
        assert_eq!(by_id("tmpfs").unwrap().missing(&place).is_some(), !place.is_root());
    }
}
