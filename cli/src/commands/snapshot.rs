//! `lode snapshot`: makes, lists and deletes snapshots of a pool, mounted or not, and returns to one.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use lode_engine::{Error, Pool, SnapshotInfo};
use lode_fuse::control::Client;
use lode_fuse::mountpoint::{self, Mounted};
use lode_host::StdHost;
use lode_pmem::RegionOptions;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ask::understand;
use crate::explain::mount_failure;
use crate::failure::{Failure, Kind, Result};
use crate::human::printable;
use crate::mounts;
use crate::output::Output;
use crate::progress::while_working;
use crate::region;
use crate::report::{
    SnapshotDeleted, SnapshotFacts, SnapshotList, SnapshotMade, SnapshotRolledBack,
};

/// How long a server may take for a rollback, which is as long as an opening after a crash.
const ROLLBACK: Duration = Duration::from_secs(3600);
/// Uses of a mount that are named, at most.
const NAMED_MAX: usize = 5;

/// `lode snapshot`.
#[derive(Subcommand, Debug)]
pub(crate) enum SnapshotCommand {
    /// Keep what is in a pool now, mounted or not: it takes a moment, and a page or two, which a full pool has not
    Create(CreateArgs),
    /// Show which snapshots a pool has, and how much space is kept for them
    List(ListArgs),
    /// Delete a snapshot: what it alone kept becomes free
    Delete(NameArgs),
    /// Make a pool, mounted or not, what it was at a snapshot; what came later is lost, later snapshots too
    Rollback(RollbackArgs),
}

impl SnapshotCommand {
    /// The name, for messages and JSON.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "snapshot create",
            Self::List(_) => "snapshot list",
            Self::Delete(_) => "snapshot delete",
            Self::Rollback(_) => "snapshot rollback",
        }
    }
}

/// `lode snapshot create`.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// The pool, or the directory it is mounted at
    #[arg(value_name = "POOL|DIR")]
    pub(crate) target: PathBuf,
    /// Name of the snapshot, at most 128 bytes
    #[arg(value_parser = OsStringValueParser::new().try_map(new_name))]
    pub(crate) name: OsString,
}

/// `lode snapshot list`.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// The pool, or the directory it is mounted at
    #[arg(value_name = "POOL|DIR")]
    pub(crate) target: PathBuf,
}

/// `lode snapshot delete`.
#[derive(Args, Debug)]
pub(crate) struct NameArgs {
    /// The pool, or the directory it is mounted at
    #[arg(value_name = "POOL|DIR")]
    pub(crate) target: PathBuf,
    /// Name of the snapshot
    pub(crate) name: OsString,
}

/// `lode snapshot rollback`.
#[derive(Args, Debug)]
pub(crate) struct RollbackArgs {
    /// The pool, or the directory it is mounted at
    #[arg(value_name = "POOL|DIR")]
    pub(crate) target: PathBuf,
    /// Name of the snapshot
    pub(crate) name: OsString,
    /// Of a mount that is in use, too: files that are open become stale, what is mapped can't be loaded any more
    #[arg(long, short)]
    pub(crate) force: bool,
    /// Of a snapshot of which something is lost, too: the pool, which must not be mounted, is then what the rest was
    #[arg(long)]
    pub(crate) lossy: bool,
}

/// A name that can be shown.
fn new_name(name: OsString) -> std::result::Result<OsString, String> {
    match name.to_str() {
        Some(text) if text.chars().any(char::is_control) => {
            Err("control characters can't be shown".to_owned())
        }
        _ => Ok(name),
    }
}

/// What can be done to snapshots, of a pool that is mounted or not.
trait Snapshots {
    fn create(&mut self, name: &OsStr) -> Result<()>;
    fn delete(&mut self, name: &OsStr) -> Result<()>;
    fn list(&mut self) -> Result<Vec<SnapshotInfo>>;
}

/// Runs it.
///
/// # Errors
/// `Exists` and `NotFound` for names, `Corrupt` for a rollback to a snapshot of which something is lost, `Busy` where programs use what is to be rolled back or one has opened the pool
/// by itself, `Denied` where it is mounted read-only, and what opening, or asking the server, gives.
pub(crate) fn run(command: &SnapshotCommand, output: &Output) -> Result<()> {
    match command {
        SnapshotCommand::Create(CreateArgs { target, name }) => {
            let snapshot = with(target, false, output, |snapshots| {
                snapshots.create(name)?;
                let made = snapshots.list()?.into_iter().find(|one| one.name == name.as_bytes());
                made.ok_or_else(|| refused(target, name, &Error::NotFound))
            })?;
            let snapshot = SnapshotFacts::from(&snapshot);
            output.print(&SnapshotMade { target: target.display().to_string(), snapshot })
        }
        SnapshotCommand::List(ListArgs { target }) => {
            let all = with(target, true, output, |snapshots| snapshots.list())?;
            let snapshots = all.iter().map(SnapshotFacts::from).collect();
            output.print(&SnapshotList::new(target.display().to_string(), snapshots))
        }
        SnapshotCommand::Delete(NameArgs { target, name }) => {
            with(target, false, output, |snapshots| snapshots.delete(name))?;
            let name = printable(name.as_bytes());
            output.print(&SnapshotDeleted { target: target.display().to_string(), name })
        }
        SnapshotCommand::Rollback(args) => rollback(args, output),
    }
}

/// Where a pool is mounted, if it is.
pub(super) fn mount_of(target: &Path, clean: &Path) -> Result<Option<Mounted>> {
    match mounts::at(clean)? {
        Some(mount) => Ok(Some(mount)),
        None if clean.is_dir() => mounts::lode_at(target).map(Some),
        None => mounts::of_pool(clean),
    }
}

/// Does `work` with the snapshots of a pool.
fn with<R>(
    target: &Path,
    read_only: bool,
    output: &Output,
    work: impl FnOnce(&mut dyn Snapshots) -> Result<R>,
) -> Result<R> {
    let clean = mounts::clean_path(target)?;
    if let Some(mount) = mount_of(target, &clean)? {
        mounts::must_answer(&mount)?;
        let client = Client::for_mount(&mount.point);
        let client = client.map_err(|error| mount_failure(&mount.point, &error))?;
        return work(&mut InMount { client, dir: &mount.point });
    }
    let mut pool = InPool { path: &clean, pool: region::open_pool(&clean, read_only, output)? };
    let done = work(&mut pool);
    if !read_only {
        let closed = pool.pool.close().map_err(|error| Failure::engine(&clean, &error));
        // What went wrong first is what to tell.
        return done.and_then(|done| closed.map(|()| done));
    }
    done
}

fn rollback(args: &RollbackArgs, output: &Output) -> Result<()> {
    let RollbackArgs { target, name, force, lossy } = args;
    let clean = mounts::clean_path(target)?;
    let mut lost = Vec::new();
    let all = if let Some(mount) = mount_of(target, &clean)? {
        mounts::must_answer(&mount)?;
        let client = Client::for_mount(&mount.point);
        let client = client.map_err(|error| mount_failure(&mount.point, &error))?;
        let mut mount = InMount { client, dir: &mount.point };
        let all = mount.list()?;
        while_working("rolling back", output.progress, || mount.roll_back(name, *force))?;
        all
    } else {
        let failed = |error| refused(target, name, &error);
        let before = region::open_pool(&clean, true, output)?;
        let all = before.snapshots().map_err(failed)?;
        if *lossy {
            let found = before.lost_in_snapshot(name.as_bytes()).map_err(failed)?;
            lost = found.named.iter().map(|one| printable(&one.path)).collect();
        }
        drop(before);
        roll_back_closed(args, &clean, output)?;
        all
    };
    let later = all.iter().skip_while(|one| one.name != name.as_bytes()).skip(1);
    let deleted: Vec<String> = later.map(|one| printable(&one.name)).collect();
    let (target, name) = (target.display().to_string(), printable(name.as_bytes()));
    output.print(&SnapshotRolledBack { target, name, deleted, lost })
}

/// Of a pool that is not mounted.
fn roll_back_closed(args: &RollbackArgs, clean: &Path, output: &Output) -> Result<()> {
    let RollbackArgs { target, name, lossy, .. } = args;
    let region = region::open(clean, &RegionOptions::new())?;
    let rolled = while_working("rolling back", output.progress, || match lossy {
        false => Pool::rollback(region, StdHost::new(), name.as_bytes()),
        true => Pool::rollback_to_rest(region, StdHost::new(), name.as_bytes()),
    });
    let Err(error) = rolled else { return Ok(()) };
    let failure = refused(target, name, &error);
    if !matches!(error, Error::Corrupt(_) | Error::Media { .. }) {
        return Err(failure);
    }
    if *lossy {
        return Err(failure.advise(
            "`lode fsck -y POOL` gives up what can't be read, and ends the rollback if it has begun",
        ));
    }
    let pool = region::open_pool(clean, true, output)?;
    let lost = pool.lost_in_snapshot(name.as_bytes()).map_err(|_| failure.clone())?;
    if lost.count == 0 {
        return Err(failure.advise(
            "a rollback reads all logs, and one that can't be read is in the way; nothing has changed. `lode fsck -n POOL` tells which: `lode fsck -y POOL` gives it up, or, where only a snapshot has it, `lode snapshot delete` of that one",
        ));
    }
    let paths = lost.named.iter().map(|one| printable(&one.path)).collect();
    Err(lossy_failure(target, name, paths, lost.count))
}

/// Why a pool does not become a snapshot of which `count` things are lost, of which some are named.
fn lossy_failure(target: &Path, name: &OsStr, paths: Vec<String>, count: u64) -> Failure {
    let named: Vec<String> =
        paths.into_iter().take(NAMED_MAX).map(|path| format!("/{path}")).collect();
    let more = count.saturating_sub(named.len() as u64);
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    let (shown, named) = (printable(name.as_bytes()), named.join(", "));
    let what = format!("snapshot {shown} has lost {named}{more}; nothing has changed");
    Failure::new(Kind::Corrupt, what).at(target).advise(
        "copy what is needed out of the snapshot (a mount has it in .lode/snapshots), or go back to the rest of it: `lode snapshot rollback POOL NAME --lossy`, of a pool that is not mounted",
    )
}

/// Why nothing was done with this snapshot, for the user.
fn refused(target: &Path, name: &OsStr, error: &Error) -> Failure {
    explained(target, name, error.errno(), || Failure::engine(target, error))
}

/// The same by the number of the error, which a server tells.
fn explained(target: &Path, name: &OsStr, errno: i32, other: impl FnOnce() -> Failure) -> Failure {
    let shown = printable(name.as_bytes());
    let is = |error: &Error| errno == error.errno();
    let failure = if is(&Error::NotFound) {
        Failure::new(Kind::NotFound, format!("there is no snapshot {shown}"))
            .advise("`lode snapshot list` shows which there are")
    } else if is(&Error::Exists) {
        Failure::new(Kind::Exists, format!("there is a snapshot {shown} already"))
            .advise("choose another name, or delete that one with `lode snapshot delete`")
    } else if is(&Error::Busy) {
        let what = "the server has files of the pool mapped into its own memory";
        Failure::new(Kind::Busy, what).advise("try again when they are closed")
    } else if is(&Error::ReadOnly) {
        Failure::new(Kind::Denied, "the pool is mounted read-only")
            .advise("mount it read-write to make or delete snapshots")
    } else if is(&Error::NameTooLong) {
        Failure::usage("the name is too long").advise("choose one of 128 bytes or less")
    } else if is(&Error::Invalid) {
        Failure::usage(format!("`{shown}` can't be the name of a snapshot"))
            .advise("choose a name without /, which is not `.`, `..` or empty")
    } else if is(&Error::NoSpace) {
        Failure::new(Kind::NoSpace, "no space left in the pool")
            .advise("delete files or snapshots first")
    } else {
        other()
    };
    failure.at(target)
}

/// A pool that this command has opened.
struct InPool<'a> {
    path: &'a Path,
    pool: region::MappedPool,
}

impl Snapshots for InPool<'_> {
    fn create(&mut self, name: &OsStr) -> Result<()> {
        let made = self.pool.create_snapshot(name.as_bytes());
        made.map_err(|error| refused(self.path, name, &error))
    }

    fn delete(&mut self, name: &OsStr) -> Result<()> {
        let deleted = self.pool.delete_snapshot(name.as_bytes());
        deleted.map_err(|error| refused(self.path, name, &error))
    }

    fn list(&mut self) -> Result<Vec<SnapshotInfo>> {
        self.pool.snapshots().map_err(|error| Failure::engine(self.path, &error))
    }
}

/// A pool that a server has mounted.
struct InMount<'a> {
    client: Client,
    dir: &'a Path,
}

/// What a server says that did not do it.
#[derive(Deserialize)]
struct Refused {
    errno: i32,
    why: String,
}

/// What a snapshot has lost, by a server.
#[derive(Deserialize)]
struct Lost {
    paths: Vec<Vec<u8>>,
    count: u64,
}

/// A part of a server's list.
#[derive(Deserialize)]
struct Listed {
    snapshots: Vec<ListedOne>,
    more: bool,
}

#[derive(Deserialize)]
struct ListedOne {
    name: Vec<u8>,
    epoch: u32,
    created_ns: i64,
    pages: u64,
    pages_alone: u64,
}

impl From<ListedOne> for SnapshotInfo {
    fn from(one: ListedOne) -> Self {
        let ListedOne { name, epoch, created_ns, pages, pages_alone } = one;
        Self { name, epoch, created_ns, pages, pages_alone }
    }
}

impl InMount<'_> {
    fn ask(&mut self, request: &Value, name: &OsStr) -> Result<Value> {
        let answer =
            self.client.request(request).map_err(|error| mount_failure(self.dir, &error))?;
        match answer.get("refused") {
            None => Ok(answer),
            Some(refused) => {
                let Refused { errno, why } = understand(self.dir, refused.clone())?;
                Err(explained(self.dir, name, errno, || Failure::new(Kind::Failed, why)))
            }
        }
    }
}

/// A use of a mount that speaks against making it what it was.
#[derive(Deserialize)]
struct InUse {
    path: String,
    how: String,
    pid: Option<u32>,
    command: Option<String>,
}

impl InUse {
    fn text(&self) -> String {
        let Self { path, how, pid, command } = self;
        let path = printable(path.as_bytes());
        let who = match (command, pid) {
            (Some(command), Some(pid)) => format!("{} ({pid})", printable(command.as_bytes())),
            _ => "a mount".to_owned(),
        };
        match how.as_str() {
            "map" => format!("{who} has {path} mapped"),
            "write" => format!("{who} has {path} open for writing"),
            _ => format!("something is mounted at {path}"),
        }
    }
}

impl InMount<'_> {
    /// Makes it what it was, where nobody uses it or by force.
    fn roll_back(&mut self, name: &OsStr, force: bool) -> Result<()> {
        let patience = self.client.set_patience(ROLLBACK);
        patience.map_err(|error| mount_failure(self.dir, &error))?;
        let op = "snapshot-rollback";
        let request = json!({ "op": op, "name": name.as_bytes(), "force": force });
        let answer = self.ask(&request, name)?;
        if let Some(lost) = answer.get("lost") {
            let Lost { paths, count } = understand(self.dir, lost.clone())?;
            let paths = paths.iter().map(|path| printable(path)).collect();
            return Err(lossy_failure(self.dir, name, paths, count));
        }
        let Some(busy) = answer.get("busy") else { return Ok(()) };
        let users: Vec<InUse> = understand(self.dir, busy.clone())?;
        let named: Vec<String> = users.iter().take(NAMED_MAX).map(InUse::text).collect();
        let more = users.len().saturating_sub(NAMED_MAX);
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        Err(Failure::new(Kind::Busy, format!("it is in use: {}{more}", named.join("; ")))
            .at(self.dir)
            .advise("end these first, or roll back under them with --force: what they have open is lost to them"))
    }
}

impl Snapshots for InMount<'_> {
    fn create(&mut self, name: &OsStr) -> Result<()> {
        // What programs have stored through mappings is in the kernel's cache until then.
        let is_all_there = mountpoint::sync(self.dir).map_err(|error| {
            Failure::io("writing out what was stored through mappings", self.dir, &error)
        })?;
        if !is_all_there {
            eprintln!(
                "lode snapshot: what was last stored through mappings may not be in the snapshot: it was still on its way to the pool"
            );
        }
        let request = json!({ "op": "snapshot-create", "name": name.as_bytes() });
        self.ask(&request, name).map(drop)
    }

    fn delete(&mut self, name: &OsStr) -> Result<()> {
        let request = json!({ "op": "snapshot-delete", "name": name.as_bytes() });
        self.ask(&request, name).map(drop)
    }

    fn list(&mut self) -> Result<Vec<SnapshotInfo>> {
        let mut all: Vec<SnapshotInfo> = Vec::new();
        loop {
            let after = all.last().map_or(0, |one| one.epoch);
            let request = json!({ "op": "snapshots", "after": after });
            let answer = self.ask(&request, OsStr::new(""))?;
            let Listed { snapshots, more } = understand(self.dir, answer)?;
            // An answer that does not go on would be asked for for ever.
            let goes_on = more && snapshots.last().is_some_and(|one| one.epoch > after);
            all.extend(snapshots.into_iter().map(SnapshotInfo::from));
            if !goes_on {
                return Ok(all);
            }
        }
    }
}
