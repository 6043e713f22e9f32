//! File systems of the kernel for block devices: how they are made, mounted and checked.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Result;
use crate::place::run_program;

/// Where programs for file systems are, whatever the user's path is.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A file system, as the programs of its package have it.
pub(crate) struct FileSystem {
    /// As the kernel names it.
    pub(crate) fs_type: &'static str,
    /// Makes it, without a word.
    mkfs: &'static [&'static str],
    /// And that way discards nothing: memory that is there stays.
    pub(crate) keep: &'static [&'static str],
    /// Looks whether it is sound, and changes nothing.
    fsck: &'static [&'static str],
    package: &'static str,
}

/// ext4, its journal and tables made at once: else the kernel would go on making them while it is measured.
pub(crate) const EXT4: FileSystem = FileSystem {
    fs_type: "ext4",
    mkfs: &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    keep: &["-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
    fsck: &["e2fsck", "-f", "-n"],
    package: "e2fsprogs",
};

/// ext2: no journal.
pub(crate) const EXT2: FileSystem = FileSystem {
    fs_type: "ext2",
    mkfs: &["mkfs.ext2", "-q", "-F", "-E", "lazy_itable_init=0"],
    keep: &["-E", "lazy_itable_init=0,nodiscard"],
    ..EXT4
};

/// XFS as it is by default.
pub(crate) const XFS: FileSystem = FileSystem {
    fs_type: "xfs",
    mkfs: &["mkfs.xfs", "-q", "-f"],
    keep: &["-K"],
    fsck: &["xfs_repair", "-n"],
    package: "xfsprogs",
};

/// Btrfs as it is by default.
pub(crate) const BTRFS: FileSystem = FileSystem {
    fs_type: "btrfs",
    mkfs: &["mkfs.btrfs", "-q", "-f"],
    keep: &["-K"],
    fsck: &["btrfs", "check", "--readonly"],
    package: "btrfs-progs",
};

/// A program and its arguments.
fn command(words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().unwrap_or((&"false", &[]));
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", PATH);
    command
}

impl FileSystem {
    /// Why there is none here.
    pub(crate) fn missing(&self) -> Option<String> {
        let program = self.mkfs.first().copied().unwrap_or_default();
        needs_program(program, self.package)
    }

    /// Makes one at `at`, which may be a file.
    pub(crate) fn make(&self, at: &Path, options: &[&str]) -> Result<()> {
        run_program(command(self.mkfs).args(options).arg(at))
    }

    /// Mounts the one that is at `from`.
    pub(crate) fn mount(&self, from: &Path, dir: &Path, options: &str) -> Result<()> {
        let mut mount = command(&["mount", "-t", self.fs_type, "-o", options]);
        run_program(mount.arg(from).arg(dir))
    }

    /// Looks whether the one on `device`, which is not mounted, is sound.
    pub(crate) fn check(&self, device: &Path) -> Result<()> {
        run_program(command(self.fsck).arg(device))
    }
}

/// Where a program is; users' paths often lack the directories of the system's own.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut found = dirs.map(|dir: PathBuf| dir.join(program)).filter(|path| path.is_file());
    found.next()
}

/// Why a program is not used.
pub(crate) fn needs_program(program: &str, package: &str) -> Option<String> {
    let missing = find_program(program).is_none();
    missing.then(|| format!("{program} is missing (package {package})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_missed_by_its_package() {
        assert_eq!(needs_program("sh", "dash"), None);
        let said = needs_program("mkfs.nothing", "nothing-progs").unwrap();
        assert!(said.contains("mkfs.nothing") && said.contains("nothing-progs"), "{said}");
    }

    #[test]
    fn a_file_system_that_is_damaged_is_not_taken_for_a_sound_one() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        if EXT4.missing().is_some() {
            println!("skipped: mkfs.ext4 is missing");
            return;
        }
        std::fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
        EXT2.make(&image, EXT2.keep).unwrap();
        EXT2.check(&image).unwrap();
        let mut bytes = std::fs::read(&image).unwrap();
        // The first group's tables, behind the superblock and the descriptors.
        bytes[4096..65_536].fill(0x5a);
        std::fs::write(&image, bytes).unwrap();
        let said = EXT2.check(&image).unwrap_err().to_string();
        assert!(said.contains("e2fsck"), "{said}");
    }
}
