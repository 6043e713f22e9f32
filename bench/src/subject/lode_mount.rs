//! `lode-mount`: a pool, mounted by a server of its own as any user would. (`-none`, `-full`: of this protection level.)

use std::io;
use std::path::Path;
use std::process::Command;

use super::levels::Snapshots;
use super::posix::Posix;
use super::{Programs, Ready, Subject, touch};
use crate::error::{BenchError, Result};
use crate::place::{Place, run_program};
use crate::plan::Cell;
use crate::worker::Worker;
use crate::workload::Stage;

/// Bytes of the pool.
const POOL: u64 = 1 << 30;

/// A mounted pool.
pub struct LodeMount {
    pub(super) id: &'static str,
    pub(super) about: &'static str,
    /// Its protection level, as `lode mkfs` takes it.
    pub(super) level: &'static str,
    /// Snapshots are made of it all the time.
    pub(super) snapshots: bool,
}

/// As it is made and mounted where nothing is said.
pub const MOUNT: LodeMount = LodeMount {
    id: "lode-mount",
    about: "a pool mounted by `lode mount`, with its usual options; durable when a call returns",
    level: "none",
    snapshots: false,
};

impl Subject for LodeMount {
    fn id(&self) -> &'static str {
        self.id
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn bytes_max(&self, _cells: &[Cell]) -> u64 {
        POOL + (256 << 20)
    }

    fn missing(&self, _place: &Place) -> Option<String> {
        needs_fuse()
    }

    fn takes_emulation(&self) -> bool {
        true
    }

    fn start(&self, place: &Place, programs: &Programs) -> Result<Box<dyn Ready>> {
        let (pool, dir) = (place.pools().join(self.id), place.new_dir(self.id)?);
        make_pool(&pool, POOL, self.level, programs)?;
        mount_pool(&pool, &dir, &[], programs)?;
        let stage = Stage::new(touched(&dir, POOL)?);
        if !self.snapshots {
            return Ok(Box::new(stage));
        }
        Ok(Box::new(Snapped { stage, _snapshots: Snapshots::of_mount(&dir)? }))
    }
}

/// A mounted pool that snapshots are made of.
struct Snapped {
    stage: Stage<Posix>,
    _snapshots: Snapshots,
}

impl Ready for Snapped {
    fn workers(&mut self, cell: &Cell) -> io::Result<Option<Vec<Box<dyn Worker>>>> {
        self.stage.workers(cell)
    }

    fn settle(&mut self) -> io::Result<()> {
        self.stage.settle()
    }
}

/// Makes a pool where there is nothing.
pub(crate) fn make_pool(pool: &Path, bytes: u64, level: &str, programs: &Programs) -> Result<()> {
    let mut mkfs = Command::new(&programs.lode);
    mkfs.arg("mkfs").arg(pool).args(["--size", &bytes.to_string()]);
    run_program(mkfs.args(["--protect", level]))
}

/// Mounts it, with `options` besides those of the run.
pub(crate) fn mount_pool(
    pool: &Path,
    dir: &Path,
    options: &[&str],
    programs: &Programs,
) -> Result<()> {
    let mut mount = Command::new(&programs.lode);
    mount.arg("mount").arg(pool).arg(dir);
    let of_run = programs.mount_options.iter().map(String::as_str);
    for option in of_run.chain(options.iter().copied()) {
        mount.args(["-o", option]);
    }
    run_program(&mut mount)
}

/// A mounted pool of so many bytes, the memory of which is there.
pub(crate) fn touched(dir: &Path, bytes: u64) -> Result<Posix> {
    let posix = Posix::new(dir, false).map_err(|error| BenchError::io("opening", dir, error))?;
    touch(&posix, bytes).map_err(|error| BenchError::io("filling", dir, error))?;
    Ok(posix)
}

/// Why nothing is mounted through FUSE.
pub fn needs_fuse() -> Option<String> {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(lode_fuse::wire::DEVICE);
    opened.err().map(|error| format!("{} can't be opened: {error}", lode_fuse::wire::DEVICE))
}
