//! File systems for disks, each on a loop device over a file in memory. They promise what Lode
//! promises once `fsync` has returned, so that is part of what is timed.

use std::fs::File;

use super::posix::Posix;
use super::{Programs, Ready, Subject, needs_root};
use crate::error::{BenchError, Result};
use crate::file_system::{self, FileSystem};
use crate::place::Place;
use crate::plan::Cell;
use crate::workload::Stage;

/// Bytes of an image; only what is written takes memory.
const IMAGE_BYTES: u64 = 1536 << 20;
/// Bytes of it that are written at most, and of the kernel's cache of them.
const BYTES_MAX: u64 = 640 << 20;

/// A file system that is mounted from an image.
pub struct Disk {
    id: &'static str,
    about: &'static str,
    file_system: &'static FileSystem,
    options: &'static str,
}

/// ext4 as it is by default: metadata in the journal, data written before.
pub const EXT4: Disk = Disk {
    id: "ext4",
    about: "ext4 on a loop device over memory, with fsync of the file and of its directory",
    file_system: &file_system::EXT4,
    options: "loop",
};

/// ext4 with data in the journal, too.
pub const EXT4_JOURNAL: Disk = Disk {
    id: "ext4-journal",
    about: "the same with data=journal, so that writes are atomic up to a page",
    options: "loop,data=journal",
    ..EXT4
};

/// XFS as it is by default.
pub const XFS: Disk = Disk {
    id: "xfs",
    about: "XFS on a loop device over memory, with fsync of the file and of its directory",
    file_system: &file_system::XFS,
    options: "loop",
};

/// Btrfs as it is by default.
pub const BTRFS: Disk = Disk {
    id: "btrfs",
    about: "Btrfs on a loop device over memory, with fsync of the file and of its directory",
    file_system: &file_system::BTRFS,
    options: "loop",
};

impl Subject for Disk {
    fn id(&self) -> &'static str {
        self.id
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn bytes_max(&self, _cells: &[Cell]) -> u64 {
        BYTES_MAX
    }

    fn missing(&self, place: &Place) -> Option<String> {
        needs_root(place).or_else(|| self.file_system.missing())
    }

    fn start(&self, place: &Place, _programs: &Programs) -> Result<Box<dyn Ready>> {
        // Beside the pools, not among them: huge pages would take memory for holes.
        let images = place.tmpfs(&format!("{}-image", self.id), &format!("size={IMAGE_BYTES}"))?;
        let image = images.join("image");
        let made = File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES));
        made.map_err(|error| BenchError::io("making the image", &image, error))?;
        self.file_system.make(&image, &[])?;
        let dir = place.new_dir(self.id)?;
        self.file_system.mount(&image, &dir, self.options)?;
        let posix =
            Posix::new(&dir, true).map_err(|error| BenchError::io("opening", &dir, error))?;
        Ok(Box::new(Stage::new(posix)))
    }
}
