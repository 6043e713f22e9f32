//! A place for files of a test.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Says to a child that is about to die, and cleans up nothing, where its files may be.
pub const SCRATCH: &str = "LODE_TEST_SCRATCH";

/// A directory in memory, where the machine has such a place; it cleans up after itself.
pub fn scratch(prefix: &str) -> TempDir {
    let shm = Path::new("/dev/shm");
    let usual = || if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let base = std::env::var_os(SCRATCH).map_or_else(usual, PathBuf::from);
    tempfile::Builder::new().prefix(prefix).tempdir_in(base).unwrap()
}
