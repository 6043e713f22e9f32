//! A device in memory that the kernel swaps to, while it is measured.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::owner::fill;
use crate::place::{run_program, told_by};

/// A loop device over a file, swapped to before any other; taken off with this.
pub(super) struct Swap {
    file: PathBuf,
    device: Option<String>,
}

impl Swap {
    /// Of so many bytes, over a file in `dir`.
    pub(super) fn start(dir: &Path, bytes: u64) -> io::Result<Self> {
        let file = dir.join("swap");
        File::create(&file)?.set_len(bytes)?;
        let mut swap = Self { file, device: None };
        fill(&swap.file)?;
        let failed = |error: crate::BenchError| io::Error::other(error.to_string());
        let mut losetup = Command::new("losetup");
        let told = told_by(losetup.args(["--find", "--show"]).arg(&swap.file), 0);
        let device = told.map_err(failed)?.trim().to_owned();
        swap.device = Some(device.clone());
        run_program(Command::new("mkswap").arg(&device)).map_err(failed)?;
        run_program(Command::new("swapon").args(["-p", "32767"]).arg(&device)).map_err(failed)?;
        Ok(swap)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            // (It may not be on yet. What stays is ended with the run's directory.)
            let _ = run_program(Command::new("swapoff").arg(device));
            let _ = run_program(Command::new("losetup").arg("-d").arg(device));
        }
        let _ = fs::remove_file(&self.file);
    }
}
