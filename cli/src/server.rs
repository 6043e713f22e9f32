//! The server of a mount, and questions to one: the only file that knows how pools are served.

use std::path::{Path, PathBuf};

use lode_engine::{OpenOptions, PoolInfo, StatFs, Stats};

use crate::failure::{Failure, Kind, Result};
use crate::options::MountOptions;
use crate::report::{MountReport, OpeningFacts, RegionFacts};

/// What to serve, and where.
pub(crate) struct Settings {
    /// The pool, an absolute path.
    pub(crate) pool: PathBuf,
    /// The directory, an absolute path.
    pub(crate) dir: PathBuf,
    /// How.
    pub(crate) options: MountOptions,
}

/// What a server says of itself.
pub(crate) struct ServerFacts {
    pub(crate) pid: u32,
    pub(crate) read_only: bool,
    pub(crate) relaxed: bool,
    pub(crate) info: PoolInfo,
    pub(crate) region: RegionFacts,
    pub(crate) opening: OpeningFacts,
    pub(crate) space: StatFs,
    pub(crate) stats: Stats,
}

pub(crate) fn serve(settings: &Settings, _ready: impl FnOnce(MountReport) -> Result<()>) -> Result<()> {
    let _ = OpenOptions::default();
    Err(Failure::new(Kind::Failed, "this build can't mount").at(&settings.dir))
}

pub(crate) fn wait_for_answer(dir: &Path) -> Result<()> {
    Err(Failure::new(Kind::Failed, "this build can't mount").at(dir))
}

pub(crate) fn ask(dir: &Path) -> Result<ServerFacts> {
    Err(Failure::new(Kind::Failed, "this build can't mount").at(dir))
}

pub(crate) fn pid_of(_mount: &crate::mounts::Mount) -> Option<u32> {
    None
}

pub(crate) fn closed_cleanly(_pool: &Path) -> Result<bool> {
    Ok(false)
}
