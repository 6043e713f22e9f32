//! `tmpfs`: the fastest file system of the kernel, which promises nothing.

use super::posix::Posix;
use super::{Programs, Ready, Subject};
use crate::error::{BenchError, Result};
use crate::place::Place;
use crate::plan::Cell;
use crate::workload::Stage;

/// Bytes that it holds at most.
const BYTES_MAX: u64 = 512 << 20;

/// Memory as a directory.
pub struct Tmpfs;

impl Subject for Tmpfs {
    fn id(&self) -> &'static str {
        "tmpfs"
    }

    fn about(&self) -> &'static str {
        "the kernel's file system in memory, ordinary pages, no fsync: nothing it has is durable"
    }

    fn bytes_max(&self, _cells: &[Cell]) -> u64 {
        BYTES_MAX
    }

    fn missing(&self, place: &Place) -> Option<String> {
        const TMPFS: rustix::fs::FsWord = 0x0102_1994;
        let found = rustix::fs::statfs(place.dir());
        let is_tmpfs = place.is_root() || found.is_ok_and(|found| found.f_type == TMPFS);
        (!is_tmpfs).then(|| "there is none, and only root may mount one".to_owned())
    }

    fn start(&self, place: &Place, _programs: &Programs) -> Result<Box<dyn Ready>> {
        let dir = if place.is_root() {
            place.tmpfs("tmpfs", &format!("size={}", BYTES_MAX))?
        } else {
            place.new_dir("tmpfs")?
        };
        let posix =
            Posix::new(&dir, false).map_err(|error| BenchError::io("opening", &dir, error))?;
        Ok(Box::new(Stage::new(posix)))
    }
}
