//! What is done: one file a family of workloads.
//!
//! Everything but the operation itself, names and random numbers above all, is ready before the
//! clock runs or costs a few nanoseconds, the same for all subjects.

mod appends;
mod blocks;
pub mod churn;
mod entries;
mod looks;
mod maps;
mod personalities;
mod personality;
mod sqlite;
mod stage;
#[cfg(test)]
mod tests;
mod truncate;
mod utilities;

use std::io;

use crate::calls::Calls;
use crate::plan::Cell;
use crate::worker::Worker;

pub use personality::Personality;
pub use stage::Stage;

/// What a workload does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is told by the text of the workloads it is of")]
pub enum Kind {
    Create,
    Unlink,
    CreateUnlink,
    Mkdir,
    Rename,
    Stat,
    OpenClose,
    Readdir,
    Append,
    Overwrite,
    Read,
    Truncate,
    MapStore,
    MapRead,
    Personality(&'static Personality),
    Sqlite,
    Utilities,
    Opening { crashed: bool, file_bytes: u64 },
    Churn,
    Memory,
    Risk,
    Space,
    Snapshots,
    AblationFence,
    AblationLine,
}

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Its name, for good.
    pub id: &'static str,
    /// What an operation of it is.
    pub about: &'static str,
    /// What it does.
    pub kind: Kind,
    /// Bytes that an operation moves; of openings the number of files.
    pub size: u64,
    /// Several threads can do it to the same file or directory, too.
    pub shared: bool,
    /// Modes in which a quick run measures it with two threads.
    pub quick: &'static [Mode],
    /// Takes too long for a quick run, unless it is asked for.
    pub long: bool,
    /// One long run of one thread, not measured in rounds.
    pub once: bool,
    /// Memory that it takes besides what its subjects have, in bytes.
    pub bytes_more: u64,
}

/// Whether threads meet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// Each has files and directories of its own.
    Private,
    /// All use the same.
    Shared,
}

impl Mode {
    /// As it is in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Shared => "shared",
        }
    }
}

const PRIVATE: &[Mode] = &[Mode::Private];
const SHARED: &[Mode] = &[Mode::Shared];

const fn of(kind: Kind, id: &'static str, size: u64, about: &'static str) -> Workload {
    Workload {
        id,
        about,
        kind,
        size,
        shared: true,
        quick: &[],
        long: false,
        once: false,
        bytes_more: 0,
    }
}

const fn quick(modes: &'static [Mode], workload: Workload) -> Workload {
    Workload { quick: modes, ..workload }
}

/// Without a shared form.
const fn alone(workload: Workload) -> Workload {
    Workload { shared: false, ..workload }
}

/// Not in a quick run.
const fn long(workload: Workload) -> Workload {
    Workload { long: true, ..workload }
}

/// One long run that takes so much memory.
const fn once(workload: Workload, bytes_more: u64) -> Workload {
    Workload { once: true, bytes_more, ..long(alone(workload)) }
}

const fn personality(
    id: &'static str,
    personality: &'static Personality,
    about: &'static str,
) -> Workload {
    of(Kind::Personality(personality), id, 0, about)
}

const CLEAN: &str = "open a pool of so many files that was closed";
const CRASHED: &str = "open a pool of so many files whose server was killed";

/// Files that are 10 GiB together.
const MANY: u64 = 50_000;
const PAGE: u64 = 4096;

const fn opening(crashed: bool, files: u64) -> Workload {
    let (id, about) = if crashed { ("mount-crash", CRASHED) } else { ("mount-clean", CLEAN) };
    // Many files are 10 GiB together, as in the papers; few are small.
    let file_bytes = if files < MANY { 8 << 10 } else { (10 << 30) / files / PAGE * PAGE + PAGE };
    alone(of(Kind::Opening { crashed, file_bytes }, id, files, about))
}

/// All of them, in the order they are told.
pub const ALL: &[Workload] = &[
    of(Kind::Create, "create", 0, "make and close an empty file, among 10,000 names"),
    of(Kind::Unlink, "unlink", 0, "remove an empty file, among 10,000 names"),
    quick(
        PRIVATE,
        of(
            Kind::CreateUnlink,
            "create-unlink",
            0,
            "make, close and remove a file, among 10,000 names",
        ),
    ),
    of(Kind::Mkdir, "mkdir", 0, "make a directory, among 10,000 names"),
    of(Kind::Rename, "rename", 0, "give a file another name in its directory, among 10,000 names"),
    of(Kind::Stat, "stat", 0, "look at one of 1,000 files by a path of two directories and a name"),
    of(Kind::OpenClose, "open-close", 0, "open one of 10,000 files for reading and close it"),
    of(Kind::Readdir, "readdir", 0, "open, read and close a directory of 1,000 names"),
    of(Kind::Append, "append-64", 64, "write 64 bytes behind a file's end"),
    of(Kind::Append, "append-1k", 1 << 10, "write 1 KiB behind a file's end"),
    quick(PRIVATE, of(Kind::Append, "append-4k", 4 << 10, "write 4 KiB behind a file's end")),
    of(Kind::Append, "append-64k", 64 << 10, "write 64 KiB behind a file's end"),
    of(Kind::Overwrite, "overwrite-512", 512, "write 512 bytes at random places of 256 MiB"),
    quick(
        SHARED,
        of(
            Kind::Overwrite,
            "overwrite-4k",
            4 << 10,
            "write pages of 4 KiB at random places of 256 MiB",
        ),
    ),
    quick(
        SHARED,
        of(Kind::Read, "read-4k", 4 << 10, "read pages of 4 KiB at random places of 256 MiB"),
    ),
    of(Kind::Read, "read-1m", 1 << 20, "read 1 MiB at random places of 256 MiB"),
    of(Kind::Overwrite, "write-1m", 1 << 20, "write 1 MiB at random places of 256 MiB"),
    alone(of(Kind::Truncate, "truncate", 0, "cut a page of 4 KiB off a file's end")),
    of(
        Kind::MapStore,
        "map-store-64",
        64,
        "store 64 bytes to a mapped file of 256 MiB, and make them durable",
    ),
    of(Kind::MapRead, "map-read-4k", 4 << 10, "copy 4 KiB out of a mapped file of 256 MiB"),
    personality("fileserver", &personalities::FILESERVER, "a call of Filebench's fileserver"),
    personality("webserver", &personalities::WEBSERVER, "a call of Filebench's webserver"),
    personality("webproxy", &personalities::WEBPROXY, "a call of Filebench's webproxy"),
    personality("varmail", &personalities::VARMAIL, "a call of Filebench's varmail"),
    personality("oltp", &personalities::OLTP, "a call of Filebench's oltp"),
    alone(of(
        Kind::Sqlite,
        "sqlite-wal",
        100,
        "commit a row of 100 bytes in SQLite: WAL, synchronous=FULL",
    )),
    long(alone(of(
        Kind::Utilities,
        "file-utilities",
        0,
        "cp, tar x, find, grep, cp -r and rm -r of a tree of 400 files",
    ))),
    opening(false, 1_000),
    opening(false, 10_000),
    long(opening(false, 50_000)),
    opening(true, 1_000),
    opening(true, 10_000),
    long(opening(true, 50_000)),
    alone(of(
        Kind::AblationFence,
        "ablation-fence",
        4 << 10,
        "write 4 KiB behind a file's end, with one fence, two or three",
    )),
    alone(of(
        Kind::AblationLine,
        "ablation-line",
        0,
        "make and remove a file, its records whole lines or sealed after a fence",
    )),
    once(
        of(Kind::Churn, "churn", 0, "a call of Filebench's fileserver in a pool that is 95 % full"),
        2200 << 20,
    ),
    once(
        of(Kind::Memory, "memory", 0, "weigh a pool of a million files, idle and looked at"),
        400 << 20,
    ),
    once(
        of(
            Kind::Risk,
            "risk",
            0,
            "overwrite a part of an aged pool by mistake: what metadata is lost",
        ),
        TRUST_BYTES,
    ),
    once(
        of(Kind::Space, "space", 0, "look what the pages of pools of each level are used for"),
        TRUST_BYTES,
    ),
    once(
        of(
            Kind::Snapshots,
            "snapshots",
            0,
            "make a snapshot, where there is none and where there are many",
        ),
        TRUST_BYTES,
    ),
];

/// A pool that is aged, and what knowing it takes.
const TRUST_BYTES: u64 = 5 << 29;

/// The workload of this name, the first if it has several sizes.
pub fn by_id(id: &str) -> Option<&'static Workload> {
    ALL.iter().find(|workload| workload.id == id)
}

/// The threads that do a cell's work to the subject on `stage`, ready to start; none where it has
/// no part in it.
///
/// # Errors
/// Where the subject fails.
pub fn workers<C: Calls>(
    stage: &mut Stage<C>,
    cell: &Cell,
) -> io::Result<Option<Vec<Box<dyn Worker>>>> {
    match cell.workload.kind {
        Kind::Sqlite => sqlite::commits(stage, cell),
        Kind::Utilities => utilities::tours(stage, cell),
        Kind::Opening { .. }
        | Kind::Churn
        | Kind::Memory
        | Kind::Risk
        | Kind::Space
        | Kind::Snapshots
        | Kind::AblationFence
        | Kind::AblationLine => Ok(None),
        _ => calls(stage, cell).map(Some),
    }
}

/// What every subject that has files can do.
fn calls<C: Calls>(stage: &mut Stage<C>, cell: &Cell) -> io::Result<Vec<Box<dyn Worker>>> {
    match cell.workload.kind {
        Kind::Create => entries::create(stage, cell),
        Kind::Unlink => entries::unlink(stage, cell),
        Kind::CreateUnlink => entries::create_unlink(stage, cell),
        Kind::Mkdir => entries::mkdir(stage, cell),
        Kind::Rename => entries::rename(stage, cell),
        Kind::Stat => looks::stat(stage, cell),
        Kind::OpenClose => looks::open_close(stage, cell),
        Kind::Readdir => looks::readdir(stage, cell),
        Kind::Append => appends::append(stage, cell),
        Kind::Overwrite => blocks::overwrite(stage, cell),
        Kind::Read => blocks::read(stage, cell),
        Kind::Truncate => truncate::truncate(stage, cell),
        Kind::MapStore => maps::store(stage, cell),
        Kind::MapRead => maps::read(stage, cell),
        Kind::Personality(personality) => personality::threads(stage, cell, personality),
        // Not of files alone: above.
        _ => Ok(Vec::new()),
    }
}
