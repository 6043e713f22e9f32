//! File systems for disks, each on a loop device over a file in memory. They promise what Lode
//! promises once `fsync` has returned, so that is part of what is timed.

use std::fs::File;
use std::process::Command;

use super::posix::Posix;
use super::{Programs, Ready, Subject, needs_program, needs_root};
use crate::error::{BenchError, Result};
use crate::place::{Place, run_program};
use crate::plan::Cell;
use crate::workload::Stage;

/// Bytes of an image; only what is written takes memory.
const IMAGE_BYTES: u64 = 1536 << 20;
/// Bytes of it that are written at most, and of the kernel's cache of them.
const BYTES_MAX: u64 = 640 << 20;

/// A file system that is made by a program and mounted from an image.
pub struct Disk {
    id: &'static str,
    about: &'static str,
    fs_type: &'static str,
    /// Makes it, without a word.
    mkfs: &'static [&'static str],
    package: &'static str,
    options: &'static str,
}

/// ext4 as it is by default: metadata in the journal, data written before.
pub const EXT4: Disk = Disk {
    id: "ext4",
    about: "ext4 on a loop device over memory, with fsync of the file and of its directory",
    fs_type: "ext4",
    mkfs: &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    package: "e2fsprogs",
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
    fs_type: "xfs",
    mkfs: &["mkfs.xfs", "-q", "-f"],
    package: "xfsprogs",
    options: "loop",
};

/// Btrfs as it is by default.
pub const BTRFS: Disk = Disk {
    id: "btrfs",
    about: "Btrfs on a loop device over memory, with fsync of the file and of its directory",
    fs_type: "btrfs",
    mkfs: &["mkfs.btrfs", "-q", "-f"],
    package: "btrfs-progs",
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
        let program = self.mkfs.first().copied().unwrap_or_default();
        needs_root(place).or_else(|| needs_program(program, self.package))
    }

    fn start(&self, place: &Place, _programs: &Programs) -> Result<Box<dyn Ready>> {
        // Beside the pools, not among them: huge pages would take memory for holes.
        let images = place.tmpfs(&format!("{}-image", self.id), &format!("size={IMAGE_BYTES}"))?;
        let image = images.join("image");
        let made = File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES));
        made.map_err(|error| BenchError::io("making the image", &image, error))?;
        let (program, options) = self.mkfs.split_first().unwrap_or((&"false", &[]));
        run_program(Command::new(program).args(options).arg(&image).env("PATH", PATH))?;
        let dir = place.new_dir(self.id)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", self.fs_type, "-o", self.options]).arg(&image).arg(&dir);
        run_program(mount.env("PATH", PATH))?;
        let posix =
            Posix::new(&dir, true).map_err(|error| BenchError::io("opening", &dir, error))?;
        Ok(Box::new(Stage::new(posix)))
    }
}

/// Where programs for file systems are, whatever the user's path is.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
