//! `null-fuse`: a FUSE server with the mount's options that answers from memory and stores
//! nothing: what the kernel, its device and two crossings cost, which no mount can save.
//!
//! It knows names, types and sizes, because without them the kernel would ask for other things
//! than it asks a real one. Data is taken and dropped; what is read is zeros.

mod nodes;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lode_fuse::MountOptions;
use lode_fuse::bare::{self, Keeping};
use lode_fuse::mountpoint;

use super::lode_mount::needs_fuse;
use super::posix::Posix;
use super::{Programs, Ready, Subject};
use crate::error::{BenchError, Result};
use crate::place::Place;
use crate::plan::Cell;
use crate::worker::Worker;
use crate::workload::{Kind, Stage};
use nodes::Nodes;

/// The option of `lode bench` by which a process becomes this server.
pub const SERVE: &str = "--serve-null-fuse";
/// How long it may take to answer.
const START: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// FUSE and nothing behind it.
pub struct NullFuse;

impl Subject for NullFuse {
    fn id(&self) -> &'static str {
        "null-fuse"
    }

    fn about(&self) -> &'static str {
        "a FUSE server with the same options as lode-mount's that stores nothing"
    }

    fn bytes_max(&self, _cells: &[Cell]) -> u64 {
        // The kernel's cache of zeros that are read.
        320 << 20
    }

    fn missing(&self, _place: &Place) -> Option<String> {
        needs_fuse()
    }

    fn start(&self, place: &Place, programs: &Programs) -> Result<Box<dyn Ready>> {
        let dir = place.new_dir(self.id())?;
        start_server(&programs.lode, &dir)?;
        let posix =
            Posix::new(&dir, false).map_err(|error| BenchError::io("opening", &dir, error))?;
        Ok(Box::new(Served(Stage::new(posix))))
    }
}

/// The mount. It is taken off with the place, and then its server ends.
struct Served(Stage<Posix>);

impl Ready for Served {
    fn workers(&mut self, cell: &Cell) -> std::io::Result<Option<Vec<Box<dyn Worker>>>> {
        // Whoever reads what was written needs somebody who stores it.
        match cell.workload.kind {
            Kind::Sqlite | Kind::Utilities => Ok(None),
            _ => self.0.workers(cell),
        }
    }

    fn settle(&mut self) -> std::io::Result<()> {
        self.0.settle()
    }
}

/// A process of its own, as the mount has: its threads are not the run's.
fn start_server(lode: &Path, dir: &Path) -> Result<()> {
    let failed = |said: String| BenchError::Program { program: "null-fuse".to_owned(), said };
    let mut command = Command::new(lode);
    command.args(["bench", SERVE]).arg(dir).stdin(Stdio::null()).stdout(Stdio::null());
    // A key that interrupts the run is not meant for its servers.
    let child = command.process_group(0).spawn();
    let mut child = child.map_err(|error| failed(error.to_string()))?;
    let end = Instant::now() + START;
    while !mountpoint::answers(dir) {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(failed(format!("it ended with {status}")));
        }
        if Instant::now() > end {
            // It may have ended by itself in the meantime.
            let _ = child.kill();
            return Err(failed("it does not answer".to_owned()));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Mounts at `dir` and serves until that is unmounted.
///
/// # Errors
/// Where it can't be mounted.
pub fn serve(dir: &Path) -> Result<()> {
    let options = MountOptions::new("null-fuse");
    let handler = |agreed: &lode_fuse::wire::Agreed| {
        Nodes::new(Keeping::new(agreed, lode_engine::AccessTimes::default()))
    };
    Ok(bare::serve(dir, &options, handler)?)
}
