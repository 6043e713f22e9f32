//! To what it is done: one file each.

mod ablation;
mod aging;
mod disk;
mod engine;
mod in_engine;
mod levels;
mod library;
mod limit;
pub(crate) mod lode_mount;
pub(crate) mod mapped;
mod million;
mod null_fuse;
mod posix;
mod tmpfs;
mod trust;

use std::io;
use std::path::PathBuf;

use lode_pmem::{Profile, RegionOptions};

use crate::calls::{Calls, Name};
use crate::error::Result;
use crate::place::Place;
use crate::plan::Cell;
use crate::report::{Figure, Risk};
use crate::stats::Histogram;
use crate::worker::Worker;
use crate::workload::{Stage, Workload, workers};

pub use aging::{HUGE as FREE_HUGE, REACHED};
pub(crate) use in_engine::InEngine;
pub use levels::{
    BARE, BARE_MOUNT, FULL, FULL_MOUNT, LEVELS, METADATA, MOUNTS, SNAPSHOTS, SNAPSHOTS_MOUNT,
};
pub(crate) use lode_mount::needs_fuse;
pub use million::{
    COUNT as FILE_COUNT, FILES, IDLE, LIMIT as INDEX_LIMIT, LIMITED, TOUCHED, weigh,
};
pub use null_fuse::serve as serve_null_fuse;
#[cfg(test)]
pub(crate) use posix::Posix;
pub use trust::{
    AT_RISK, CREATE_AT_0, CREATE_AT_MANY, LOST, MANIFESTS, REDUNDANCY_FULL, REDUNDANCY_METADATA,
    TRUST,
};

/// What subjects are made of.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The command `lode` itself, for its servers.
    pub lode: PathBuf,
    /// The medium to be emulated, for subjects that can, if any.
    pub emulate: Option<Profile>,
    /// The same as options of `lode mount`.
    pub mount_options: Vec<String>,
    /// Be done soon, with pools that are smaller, where subjects have a choice.
    pub quick: bool,
}

impl Programs {
    /// How regions are opened.
    pub(crate) fn region(&self) -> RegionOptions {
        RegionOptions { emulate: self.emulate, ..RegionOptions::new() }
    }
}

/// Something that is measured.
pub trait Subject: Send + Sync {
    /// Its name, for good.
    fn id(&self) -> &'static str;

    /// What it is, in a sentence.
    fn about(&self) -> &'static str;

    /// Memory that it may take at most while these cells are measured, in bytes, besides what
    /// [`Workload::bytes_more`] says.
    fn bytes_max(&self, cells: &[Cell]) -> u64;

    /// Why it can't be measured by this user on this machine, if so.
    fn missing(&self, place: &Place) -> Option<String>;

    /// Whether it lies on a medium that can be emulated: the kernel's own file systems do not.
    fn takes_emulation(&self) -> bool {
        false
    }

    /// What it does for a workload, where that is worth telling.
    fn steps(&self, _workload: &Workload) -> Option<&'static str> {
        None
    }

    /// Makes it ready, below `place`.
    ///
    /// # Errors
    /// Where that fails: it is left out then.
    fn start(&self, place: &Place, programs: &Programs) -> Result<Box<dyn Ready>>;
}

/// A subject that is ready.
pub trait Ready: Send {
    /// The threads that do a cell's work, ready to start; none where the subject has no part in it.
    ///
    /// # Errors
    /// Where the subject fails.
    fn workers(&mut self, cell: &Cell) -> io::Result<Option<Vec<Box<dyn Worker>>>>;

    /// The same, by the names of their rows (the subject's own where that is empty), where a subject
    /// does it in several ways.
    ///
    /// # Errors
    /// Where the subject fails.
    fn variants(&mut self, cell: &Cell) -> io::Result<Variants> {
        Ok(self.workers(cell)?.map(|workers| ("", workers)).into_iter().collect())
    }

    /// Does a workload that is one long run and not measured in rounds; nothing where the subject has
    /// no part in it, or where it was interrupted.
    ///
    /// # Errors
    /// Where the subject fails.
    fn long_run(
        &mut self,
        _cell: &Cell,
        _is_over: &dyn Fn() -> bool,
    ) -> io::Result<Option<Outcome>> {
        Ok(None)
    }

    /// Has what is not yet durable written, so that nobody else pays for it.
    ///
    /// # Errors
    /// Where the subject fails.
    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Ways of a subject: the name of the row, and the threads.
pub type Variants = Vec<(&'static str, Vec<Box<dyn Worker>>)>;

/// What a long run has found.
#[derive(Default)]
pub struct Outcome {
    /// Times, each a row.
    pub times: Vec<Timed>,
    /// What is no time. (The subject's name is put in by whoever asked.)
    pub figures: Vec<Figure>,
    /// What scribbles can take.
    pub risk: Vec<Risk>,
}

/// Times of a part of a long run.
pub struct Timed {
    /// What it is called in rows.
    pub workload: &'static str,
    /// Of an operation, in several pieces of that part.
    pub ns_per_op: Vec<f64>,
    /// Of single operations.
    pub samples: Histogram,
}

impl<C: Calls> Ready for Stage<C> {
    fn workers(&mut self, cell: &Cell) -> io::Result<Option<Vec<Box<dyn Worker>>>> {
        workers(self, cell)
    }

    fn settle(&mut self) -> io::Result<()> {
        self.calls.settle()
    }
}

/// All that are measured where none are asked for, in the order they are told.
pub const ALL: &[&dyn Subject] = &[
    &limit::Limit,
    &ablation::Ablation,
    &library::LIBRARY,
    &library::GUARDED,
    &library::UNGUARDED,
    &engine::Engine,
    &lode_mount::MOUNT,
    &null_fuse::NullFuse,
    &tmpfs::Tmpfs,
    &disk::EXT4,
    &disk::EXT4_JOURNAL,
    &disk::XFS,
    &disk::BTRFS,
];

/// The subject of this name.
pub fn by_id(id: &str) -> Option<&'static dyn Subject> {
    every().find(|subject| subject.id() == id)
}

/// All that there are.
pub fn every() -> impl Iterator<Item = &'static dyn Subject> {
    ALL.iter().chain(LEVELS).chain(&[TRUST]).copied()
}

/// Why something that is mounted by the system call is left out.
fn needs_root(place: &Place) -> Option<String> {
    (!place.is_root()).then(|| "only root may mount it".to_owned())
}

/// A file that goes when this does.
struct Gone(PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        // What can't be removed goes with the place.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes nearly all of a pool of so many bytes once, as far as files can have it, and gives it free again: persistent memory is
/// there, and need not be zeroed by the kernel when it is first touched, as the memory of a run is.
fn touch<C: Calls>(calls: &C, bytes: u64) -> io::Result<()> {
    let name = Name::new("touch")?;
    let file = calls.create(&name)?;
    let piece = vec![0; TOUCH_BYTES];
    for at in (0..bytes - bytes / 8).step_by(TOUCH_BYTES) {
        match calls.write_at(&file, at, &piece) {
            Err(error) if NO_ROOM.contains(&error.kind()) => break,
            written => written?,
        }
    }
    drop(file);
    calls.unlink(&name)
}

/// What a full pool says: to a write of which nothing fits, and to one of which a part does.
const NO_ROOM: [io::ErrorKind; 2] = [io::ErrorKind::StorageFull, io::ErrorKind::WriteZero];
/// Bytes that a pool is touched by.
const TOUCH_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plan::cells;

    #[test]
    fn names_are_distinct_and_found() {
        let ids: BTreeSet<_> = every().map(|subject| subject.id()).collect();
        assert_eq!(ids.len(), ALL.len() + LEVELS.len() + 1);
        assert_eq!(by_id("tmpfs").unwrap().id(), "tmpfs");
        assert!(by_id("ramfs").is_none());
    }

    #[test]
    fn memory_is_looked_for_as_threads_take_it_and_nothing_for_what_nobody_asked_for() {
        let bytes = |subject: &str, workload: &str, threads: usize| {
            let workloads = [crate::workload::by_id(workload).unwrap()];
            by_id(subject).unwrap().bytes_max(&cells(&workloads, &[1, threads], false))
        };
        for (subject, workload) in [
            ("ablation", "ablation-fence"),
            ("ablation", "ablation-line"),
            ("lode-engine", "mount-clean"),
            ("lode-engine", "mount-crash"),
        ] {
            let [one, four, all] = [1, 4, 64].map(|threads| bytes(subject, workload, threads));
            let more = (four - one) / 3;
            assert!(more >= 64 << 20, "{workload}: {more}");
            assert_eq!(all, four + 60 * more, "{workload}");
            assert_eq!(bytes(subject, "append-4k", 64), 0, "{workload}");
        }
        assert!(bytes("limit", "append-4k", 64) > 0);
    }
}
