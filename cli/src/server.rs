//! The server of a mount, and questions to one: the only file that knows how pools are served.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lode_engine::{OpenOptions, Pool};
use lode_fuse::control::Client;
use lode_fuse::{MountError, Server};
use lode_host::StdHost;
use lode_pmem::RegionOptions;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::failure::{Failure, Kind, Result};
use crate::human::printable;
use crate::options::MountOptions;
use crate::region::{self, MappedPool};
use crate::report::{
    Counted, MountReport, OpeningFacts, PoolFacts, RegionFacts, SpaceFacts, StatsReport,
    StoredGroups,
};

/// Keys of the region's facts on the control socket.
const DURABILITY: &str = "durability";
const FLUSH: &str = "flush";
const WINDOWS: &str = "windows";
const RELAXED: &str = "relaxed";

/// What to serve, and where.
pub(crate) struct Settings {
    /// The pool, an absolute path.
    pub(crate) pool: PathBuf,
    /// The directory, an absolute path.
    pub(crate) dir: PathBuf,
    /// How.
    pub(crate) options: MountOptions,
}

/// Mounts and serves until unmounted; calls `ready` once the mount answers.
///
/// # Errors
/// What opening, mounting and closing give; that of `ready`, when the mount has ended.
pub(crate) fn serve(
    settings: &Settings,
    ready: impl FnOnce(MountReport) -> Result<()>,
) -> Result<()> {
    let pool = open(settings)?;
    let report = report(settings, &pool)?;
    let options = mount_options(settings, &report.region);
    let failed = |error| explain(&settings.dir, &error);
    let server = Server::mount(Arc::new(pool), &settings.dir, &options).map_err(failed)?;
    let mut told = Ok(());
    server.run_with(|| told = ready(report)).map_err(failed)?;
    told
}

fn open(settings: &Settings) -> Result<MappedPool> {
    let options = &settings.options;
    let read_only = options.read_only.unwrap_or(false);
    let region = RegionOptions { read_only, windows: options.windows, flush: options.flush };
    let region = region::open(&settings.pool, &region)?;
    let options = OpenOptions {
        read_only,
        relaxed: options.relaxed,
        page_class: options.page_class,
        atime: options.atime.unwrap_or_default(),
    };
    Pool::open(region, StdHost::new(), &options)
        .map_err(|error| Failure::engine(&settings.pool, &error))
}

fn report(settings: &Settings, pool: &MappedPool) -> Result<MountReport> {
    let info = pool.info().map_err(|error| Failure::engine(&settings.pool, &error))?;
    Ok(MountReport {
        dir: settings.dir.display().to_string(),
        pid: std::process::id(),
        log: None,
        read_only: settings.options.read_only.unwrap_or(false),
        relaxed: settings.options.relaxed,
        pool: PoolFacts::new(&settings.pool, &info),
        region: region::facts(pool.medium()),
        opening: OpeningFacts::from(&pool.opening()),
    })
}

fn mount_options(settings: &Settings, region: &RegionFacts) -> lode_fuse::MountOptions {
    let said = &settings.options;
    let facts = [
        (DURABILITY, &region.durability),
        (FLUSH, &region.flush),
        (WINDOWS, &region.windows),
        (RELAXED, &said.relaxed.to_string()),
    ];
    let region: BTreeMap<String, String> =
        facts.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
    lode_fuse::MountOptions {
        read_only: said.read_only.unwrap_or(false),
        atime: said.atime.unwrap_or_default(),
        allow_other: said.allow_other.then_some(true),
        suid: said.suid.unwrap_or(false),
        dev: said.dev.unwrap_or(false),
        noexec: said.noexec.unwrap_or(false),
        region,
        ..lode_fuse::MountOptions::new(&settings.pool)
    }
}

/// A mount's error for the user.
pub(crate) fn explain(dir: &Path, error: &MountError) -> Failure {
    use std::io::ErrorKind::{NotFound, PermissionDenied, ResourceBusy};
    let text = without_place(error);
    let (kind, advice) = match error {
        MountError::Kernel { source, .. } if source.kind() == PermissionDenied => {
            return may_not_mount(dir, source);
        }
        MountError::NotMounted(_) => {
            (Kind::NotMounted, "`findmnt -t fuse.lode` lists Lode's mounts")
        }
        MountError::Busy(_) => (Kind::Busy, "choose another directory, or unmount this one first"),
        MountError::Unmount { source, .. } if source.kind() == ResourceBusy => {
            (Kind::Busy, "end who uses it, then try again; --lazy detaches it now")
        }
        MountError::NotADirectory(_) => (Kind::Usage, "give the path of an existing directory"),
        MountError::MountPoint { source, .. } if source.kind() == NotFound => {
            (Kind::NotFound, "make the directory first, with mkdir -p")
        }
        MountError::Kernel { source, .. } if source.kind() == NotFound => {
            (Kind::Failed, "FUSE is missing here: load the module (modprobe fuse), install fuse3")
        }
        MountError::MountPoint { source, .. }
        | MountError::Unmount { source, .. }
        | MountError::DeadMount { source, .. }
            if source.kind() == PermissionDenied =>
        {
            (Kind::Denied, "run as root, or install fusermount3 (package fuse3)")
        }
        MountError::NoServer(_) => (Kind::Denied, "run as the user who mounted it, or as root"),
        MountError::Close(error) => return Failure::engine(dir, error),
        _ => return Failure::new(Kind::Failed, text).at(dir),
    };
    Failure::new(kind, text).at(dir).advise(advice)
}

/// What is wrong, without the mount point, which is said beside it.
fn without_place(error: &MountError) -> String {
    match error {
        MountError::NotMounted(_) => "no Lode pool is mounted here".to_owned(),
        MountError::Busy(_) => "a Lode pool is mounted here already".to_owned(),
        MountError::NotADirectory(_) => "the mount point is not a directory".to_owned(),
        MountError::MountPoint { source, .. } => format!("can't mount here: {source}"),
        MountError::Kernel { source, .. } => format!("the kernel refused to mount: {source}"),
        MountError::Protocol { source, .. } => format!("can't serve a mount: {source}"),
        MountError::Unmount { source, .. } => format!("can't unmount: {source}"),
        MountError::DeadMount { source, .. } => {
            format!("the server of this mount is gone, and it can't be taken off: {source}")
        }
        MountError::NoServer(_) => "no server of this mount can be reached".to_owned(),
        other => other.to_string(),
    }
}

/// Who may mount is decided by the kernel and by the helper program; here it was not allowed.
fn may_not_mount(dir: &Path, source: &std::io::Error) -> Failure {
    let said = source.to_string();
    let (what, advice) = if said.contains("allow_other") {
        (
            "allow_other is not allowed to you".to_owned(),
            "leave it out, or let root write user_allow_other into /etc/fuse.conf",
        )
    } else if said.contains("write access") {
        (
            "you may not write to this directory, so you may not mount here".to_owned(),
            "choose a directory of your own, or mount as root",
        )
    } else if said.contains("/dev/fuse") {
        (
            format!("mounting was not allowed: {said}"),
            "let root open the device to you (chmod 0666 /dev/fuse), or mount as root",
        )
    } else {
        (
            format!("mounting was not allowed: {said}"),
            "run as root, or install fusermount3 (package fuse3)",
        )
    };
    Failure::new(Kind::Denied, what).at(dir).advise(advice)
}

/// What a server says of itself.
pub(crate) struct ServerFacts {
    /// Process id.
    pub(crate) pid: u32,
    /// Mounted read-only.
    pub(crate) read_only: bool,
    /// The pool itself was opened read-only.
    pub(crate) opened_read_only: bool,
    /// File data is overwritten in place.
    pub(crate) relaxed: bool,
    /// The pool.
    pub(crate) pool: PoolFacts,
    /// What it lies on.
    pub(crate) region: RegionFacts,
    /// How it was found when it was mounted.
    pub(crate) opening: OpeningFacts,
    /// Its space.
    pub(crate) space: SpaceFacts,
}

/// The answer to `info`, as it is sent.
#[derive(Deserialize)]
struct InfoAnswer {
    pid: u32,
    pool: String,
    read_only: bool,
    opened_read_only: bool,
    region: BTreeMap<String, String>,
    info: InfoPart,
    opening: OpeningPart,
    statfs: SpaceFacts,
}

#[derive(Deserialize)]
struct InfoPart {
    uuid: String,
    label: String,
    version: u32,
    bytes: u64,
    lanes: u32,
    protection: u8,
    page_class: String,
    session: u32,
    epoch: u32,
    created_ns: i64,
    clean: bool,
    features: FeaturesPart,
}

#[derive(Deserialize)]
struct FeaturesPart {
    compatible: u64,
    read_only_compatible: u64,
    incompatible: u64,
}

#[derive(Deserialize)]
struct OpeningPart {
    clean: bool,
    inodes: u64,
    log_pages: u64,
    aborted: u64,
    orphans: u64,
    superblock_repaired: bool,
    damage: Vec<Value>,
}

/// Asks the server of the mount at `dir` what it is.
///
/// # Errors
/// Where it does not answer.
pub(crate) fn ask_info(dir: &Path) -> Result<ServerFacts> {
    let answer: InfoAnswer = ask(dir, "info")?;
    let fact = |key: &str| answer.region.get(key).cloned().unwrap_or_else(|| "unknown".to_owned());
    let region =
        RegionFacts { durability: fact(DURABILITY), flush: fact(FLUSH), windows: fact(WINDOWS) };
    Ok(ServerFacts {
        pid: answer.pid,
        read_only: answer.read_only,
        opened_read_only: answer.opened_read_only,
        relaxed: fact(RELAXED) == "true",
        pool: answer.info.facts(answer.pool),
        region,
        opening: answer.opening.into(),
        space: answer.statfs,
    })
}

/// Asks the server of the mount at `dir` what it has counted, and how its pool is now.
///
/// # Errors
/// Where it does not answer.
pub(crate) fn ask_stats(dir: &Path, pool: &PoolFacts) -> Result<StatsReport> {
    let counted: Counted = ask(dir, "stats")?;
    Ok(StatsReport { dir: dir.display().to_string(), counted, pool: pool.clone() })
}

/// The answer to `wear`, as it is sent.
#[derive(Deserialize)]
struct WearAnswer {
    group_bytes: u64,
    stored: Vec<(u64, u64)>,
    next: Option<u64>,
}

/// Asks the server of the mount at `dir` what was stored to each group of `regions` regions.
///
/// # Errors
/// Where it does not answer.
pub(crate) fn ask_wear(dir: &Path, regions: u64) -> Result<StoredGroups> {
    let mut client = Client::for_mount(dir).map_err(|error| explain(dir, &error))?;
    let mut groups = StoredGroups::default();
    let mut from = Some(0);
    while let Some(first) = from {
        let request = json!({ "op": "wear", "from": first, "group": regions });
        let answer = client.request(&request).map_err(|error| explain(dir, &error))?;
        let answer: WearAnswer = understand(dir, answer)?;
        groups.group_bytes = answer.group_bytes;
        groups.stored.extend(answer.stored);
        // An answer that does not go on would be asked for for ever.
        from = answer.next.filter(|next| *next > first);
    }
    Ok(groups)
}

fn ask<T: serde::de::DeserializeOwned>(dir: &Path, op: &str) -> Result<T> {
    let asked = Client::for_mount(dir).and_then(|mut client| client.ask(op));
    understand(dir, asked.map_err(|error| explain(dir, &error))?)
}

fn understand<T: serde::de::DeserializeOwned>(dir: &Path, answer: Value) -> Result<T> {
    serde_json::from_value(answer).map_err(|error| {
        Failure::new(Kind::Failed, format!("the server's answer is not understood: {error}"))
            .at(dir)
            .advise("server and command are of different versions: use the same `lode` for both")
    })
}

impl InfoPart {
    fn facts(self, path: String) -> PoolFacts {
        let features = &self.features;
        PoolFacts {
            path,
            label: printable(self.label.as_bytes()),
            uuid: self.uuid,
            version: self.version,
            bytes: self.bytes,
            lanes: self.lanes,
            protection: PoolFacts::protection_name(self.protection),
            page_size: self.page_class,
            session: self.session,
            epoch: self.epoch,
            created: crate::human::time_text(self.created_ns),
            created_ns: self.created_ns,
            clean: self.clean,
            features: crate::report::Features::new([
                features.compatible,
                features.read_only_compatible,
                features.incompatible,
            ]),
        }
    }
}

impl From<OpeningPart> for OpeningFacts {
    fn from(part: OpeningPart) -> Self {
        Self {
            clean: part.clean,
            inodes: part.inodes,
            log_pages: part.log_pages,
            aborted: part.aborted,
            orphans: part.orphans,
            superblock_repaired: part.superblock_repaired,
            damage: part.damage.len() as u64,
        }
    }
}
