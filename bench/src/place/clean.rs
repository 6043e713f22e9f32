//! Taking away what is below a directory: mounts first, then loop devices, then files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use lode_fuse::mountpoint::{cut_off, mounts, unmount};

use super::run_program;
use crate::error::{BenchError, Result};

/// How often a mount is tried to be taken off before its users are cut off.
const TRIES: u32 = 20;
/// The time between tries.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes off every mount below `dir`, ends its loop devices, and removes it.
///
/// # Errors
/// Where something stays: then no file is removed that may be somebody else's.
pub fn take_away(dir: &Path) -> Result<()> {
    let failed = |error: io::Error| BenchError::io("taking away", dir, error);
    let whole = fs::canonicalize(dir).map_err(failed)?;
    // The last one that was mounted first: it may cover others.
    for point in mounted_below(&whole).map_err(failed)?.into_iter().rev() {
        // Devices of files in it are users of it; what was mounted from them is off already.
        end_loops(&point)?;
        take_off(&point).map_err(|error| BenchError::io("unmounting", &point, error))?;
    }
    end_loops(&whole)?;
    if let Some(point) = mounted_below(&whole).map_err(failed)?.first() {
        let busy = io::Error::from_raw_os_error(libc::EBUSY);
        return Err(BenchError::io("unmounting", point, busy));
    }
    fs::remove_dir_all(&whole).map_err(failed)
}

fn mounted_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let points = mounts()?.into_iter().map(|mount| mount.point);
    Ok(points.filter(|point| point.starts_with(dir)).collect())
}

fn end_loops(dir: &Path) -> Result<()> {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    for device in loops_below(dir) {
        let is_swap = |line: &str| line.split_whitespace().next().map(Path::new) == Some(&device);
        if swaps.lines().any(is_swap) {
            run_program(Command::new("swapoff").arg(&device))?;
        }
        run_program(Command::new("losetup").arg("-d").arg(&device))?;
    }
    Ok(())
}

/// Takes it off, and cuts its users off where they don't leave.
fn take_off(point: &Path) -> io::Result<()> {
    match take_off_unused(point) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => cut_off(point),
        other => other,
    }
}

/// Takes a mount off. A server that is about to end, or a look from outside, may use it for a moment.
///
/// # Errors
/// `EBUSY` where it stays in use, and those of the system.
pub(crate) fn take_off_unused(point: &Path) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match unmount(point) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries < TRIES => {
                tries += 1;
                thread::sleep(PAUSE);
            }
            // Gone in the meantime.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            other => return other,
        }
    }
}

/// Loop devices of images that lie below `dir`. (Most end with their mounts.)
fn loops_below(dir: &Path) -> Vec<PathBuf> {
    let Ok(devices) = fs::read_dir("/sys/block") else { return Vec::new() };
    let devices = devices.flatten().filter(|device| {
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        file.is_ok_and(|file| Path::new(file.trim_end()).starts_with(dir))
    });
    devices.map(|device| Path::new("/dev").join(device.file_name())).collect()
}
