//! Who has a volume of a mount: one loop device, or servers by NBD. A loop device has a cache of its own, so what is stored by another
//! way it does not show, and may store over.
//!
//! What this file guarantees: of two that attach a volume at the same time the second sees the first one's device; and a volume that
//! is served and can be written there is not attached, nor one that is attached so served. It is a lock (`flock`) of the volume's file.

use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::failure::{Failure, Kind, Result};
use crate::mounts;

/// How long somebody else may take to attach it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A volume that is held, until this is dropped.
pub(super) struct Taken {
    _file: File,
}

impl Taken {
    /// To make a loop device of it, which nobody else does meanwhile.
    ///
    /// # Errors
    /// [`Kind::Busy`] where it is served; its file can't be opened.
    pub(super) fn to_attach(file: &Path) -> Result<Self> {
        let opened = File::open(file);
        let opened = opened.map_err(|error| Failure::io("opening the volume", file, &error))?;
        if is_locked_by(&opened, file, FlockOperation::NonBlockingLockExclusive)? {
            return Ok(Self { _file: opened });
        }
        let users = mounts::users(file).into_iter().filter(|(pid, _)| *pid != std::process::id());
        let users: Vec<String> = users.map(|(pid, name)| format!("{name} ({pid})")).collect();
        let by = if users.is_empty() { "another process".to_owned() } else { users.join(", ") };
        Err(Failure::new(Kind::Busy, format!("the volume is served, by {by}")).at(file).advise(
            "end that server, or have both --read-only: a loop device has a cache of its own",
        ))
    }
}

/// Holds a volume as long as it is open here, to serve it to clients that write, beside others who do.
///
/// # Errors
/// [`Kind::Busy`] where it is attached.
pub(super) fn hold_to_serve(opened: &File, file: &Path) -> Result<()> {
    let is_free = is_locked_by(opened, file, FlockOperation::NonBlockingLockShared)?;
    let what = match mounts::loops_of(file).into_iter().next() {
        None if is_free => return Ok(()),
        None => "the volume is being attached".to_owned(),
        Some(device) => format!("the volume is attached, as {device}"),
    };
    Err(Failure::new(Kind::Busy, what).at(file).advise(
        "`lode block detach` ends that; or serve it --read-only: a loop device has a cache of its own",
    ))
}

/// Locks a file, whoever else does so for a moment; says whether it is locked now.
fn is_locked_by(opened: &File, file: &Path, how: FlockOperation) -> Result<bool> {
    let begun = Instant::now();
    loop {
        match flock(opened, how) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < PATIENCE => {
                thread::sleep(PATIENCE / 100);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(Failure::io("locking the volume", file, &error.into())),
        }
    }
}
