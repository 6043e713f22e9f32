//! Questions to a mount: over its socket, or from within its server.

use std::collections::BTreeMap;
use std::path::Path;

use lode_fuse::Ask;
use lode_fuse::control::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::explain::mount_failure;
use crate::failure::{Failure, Kind, Result};
use crate::human::printable;
use crate::options::MountOptions;
use crate::report::{
    BadMemoryFacts, Counted, InfoReport, MountFacts, OpeningFacts, PoolFacts, RegionFacts,
    SpaceFacts, StatsReport, StoredGroups, exposition,
};

/// Keys of the region's facts on the control socket.
pub(crate) const DURABILITY: &str = "durability";
pub(crate) const FLUSH: &str = "flush";
pub(crate) const WINDOWS: &str = "windows";
pub(crate) const RELAXED: &str = "relaxed";
/// As JSON; not there where nothing is emulated.
pub(crate) const EMULATED: &str = "emulated";
/// As JSON.
pub(crate) const MEMORY: &str = "memory";
pub(crate) const OPTIONS: &str = "options";

/// Answers a request, or says for the user why not.
type Answers<'a> = Box<dyn FnMut(&Value) -> Result<Value> + 'a>;

/// A mount that can be asked.
pub(crate) struct Asked<'a> {
    dir: &'a Path,
    answers: Answers<'a>,
}

impl<'a> Asked<'a> {
    /// The server of the mount at `dir`.
    ///
    /// # Errors
    /// Where it can't be reached.
    pub(crate) fn at(dir: &'a Path) -> Result<Self> {
        let mut client = Client::for_mount(dir).map_err(|error| mount_failure(dir, &error))?;
        let answers = move |request: &Value| {
            client.request(request).map_err(|error| mount_failure(dir, &error))
        };
        Ok(Self { dir, answers: Box::new(answers) })
    }

    /// This server itself, whose mount is at `dir`.
    pub(crate) fn within(dir: &'a Path, ask: &'a mut Ask<'_>) -> Self {
        let answers =
            |request: &Value| ask(request).map_err(|what| Failure::new(Kind::Failed, what));
        Self { dir, answers: Box::new(answers) }
    }

    /// What it is.
    ///
    /// # Errors
    /// Where it does not answer.
    pub(crate) fn info(&mut self) -> Result<ServerFacts> {
        let answer: InfoAnswer = self.ask(&json!({ "op": "info" }))?;
        let fact =
            |key: &str| answer.region.get(key).cloned().unwrap_or_else(|| "unknown".to_owned());
        let region = RegionFacts {
            durability: fact(DURABILITY),
            flush: fact(FLUSH),
            windows: fact(WINDOWS),
            emulated: answer.region.get(EMULATED).and_then(|it| serde_json::from_str(it).ok()),
            // (A server of an older version does not tell.)
            memory: answer
                .region
                .get(MEMORY)
                .and_then(|it| serde_json::from_str(it).ok())
                .unwrap_or_default(),
        };
        Ok(ServerFacts {
            pid: answer.pid,
            read_only: answer.read_only,
            opened_read_only: answer.opened_read_only,
            io_uring: answer.io_uring,
            relaxed: fact(RELAXED) == "true",
            // (A server of an older version does not tell them.)
            options: MountOptions::parse(&fact(OPTIONS)).unwrap_or_default(),
            pool: answer.info.facts(answer.pool),
            region,
            opening: answer.opening.into(),
            space: answer.statfs,
            bad_memory: answer.bad_memory,
        })
    }

    /// What it has counted, and how its pool is now.
    ///
    /// # Errors
    /// Where it does not answer.
    pub(crate) fn stats(&mut self, pool: &PoolFacts) -> Result<StatsReport> {
        let counted: Counted = self.ask(&json!({ "op": "stats" }))?;
        Ok(StatsReport { dir: self.dir.display().to_string(), counted, pool: pool.clone() })
    }

    /// The same as Prometheus text, with what was stored to each region.
    ///
    /// # Errors
    /// Where it does not answer.
    pub(crate) fn metrics(&mut self, pool: &PoolFacts) -> Result<String> {
        let report = self.stats(pool)?;
        let groups = match report.counted.wear.regions {
            0 => StoredGroups::default(),
            regions => self.wear(StoredGroups::regions_in_group(regions))?,
        };
        Ok(exposition(&report, &groups))
    }

    /// What was stored to each group of `regions` regions.
    fn wear(&mut self, regions: u64) -> Result<StoredGroups> {
        let mut groups = StoredGroups::default();
        let mut from = Some(0);
        while let Some(first) = from {
            let request = json!({ "op": "wear", "from": first, "group": regions });
            let answer: WearAnswer = self.ask(&request)?;
            groups.group_bytes = answer.group_bytes;
            groups.stored.extend(answer.stored);
            // An answer that does not go on would be asked for for ever.
            from = answer.next.filter(|next| *next > first);
        }
        Ok(groups)
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &Value) -> Result<T> {
        understand(self.dir, (self.answers)(request)?)
    }
}

/// What a server says of itself.
pub(crate) struct ServerFacts {
    /// Process id.
    pub(crate) pid: u32,
    /// Mounted read-only.
    pub(crate) read_only: bool,
    /// The pool itself was opened read-only.
    pub(crate) opened_read_only: bool,
    /// Requests come by io_uring.
    pub(crate) io_uring: bool,
    /// File data is overwritten in place.
    pub(crate) relaxed: bool,
    /// What it was mounted with.
    pub(crate) options: MountOptions,
    /// The pool.
    pub(crate) pool: PoolFacts,
    /// What it lies on.
    pub(crate) region: RegionFacts,
    /// How it was found when it was mounted.
    pub(crate) opening: OpeningFacts,
    /// Its space.
    pub(crate) space: SpaceFacts,
    /// Bad memory that it knows of.
    pub(crate) bad_memory: BadMemoryFacts,
}

/// The answer to `info`, as it is sent.
#[derive(Deserialize)]
struct InfoAnswer {
    pid: u32,
    pool: String,
    read_only: bool,
    opened_read_only: bool,
    #[serde(default)]
    io_uring: bool,
    region: BTreeMap<String, String>,
    info: InfoPart,
    opening: OpeningPart,
    statfs: SpaceFacts,
    #[serde(default)]
    bad_memory: BadMemoryFacts,
}

#[derive(Deserialize)]
struct InfoPart {
    uuid: String,
    label: String,
    version: u32,
    bytes: u64,
    lanes: u32,
    protection: String,
    dead_zone: u64,
    strip_bytes: u32,
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
    #[serde(default)]
    exempt_pages: u64,
    #[serde(default)]
    losses: u64,
    superblock_repaired: bool,
    tables_repaired: bool,
    checkpoint_damaged: bool,
    damage: Vec<Value>,
}

/// The answer to `wear`, as it is sent.
#[derive(Deserialize)]
struct WearAnswer {
    group_bytes: u64,
    stored: Vec<(u64, u64)>,
    next: Option<u64>,
}

impl ServerFacts {
    /// The snapshot that is mounted, printable, if it is one.
    pub(crate) fn snapshot(&self) -> Option<String> {
        self.options.snapshot.as_ref().map(|name| printable(name.as_bytes()))
    }

    /// As a report of the mount at `dir`.
    pub(crate) fn report(self, dir: &Path) -> InfoReport {
        let (dir, pid, snapshot) = (dir.display().to_string(), self.pid, self.snapshot());
        let Self { read_only, relaxed, io_uring, .. } = self;
        let mount = MountFacts { dir, pid, read_only, snapshot, relaxed, io_uring };
        InfoReport {
            pool: self.pool,
            region: self.region,
            space: self.space,
            opening: self.opening,
            bad_memory: self.bad_memory,
            mount: Some(mount),
            receiving: None,
        }
    }
}

/// What a server answered, as a value.
///
/// # Errors
/// Where it is none.
pub(crate) fn understand<T: DeserializeOwned>(dir: &Path, answer: Value) -> Result<T> {
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
            protection: self.protection,
            dead_zone: self.dead_zone,
            strip_bytes: self.strip_bytes,
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
            exempt_pages: part.exempt_pages,
            losses: part.losses,
            superblock_repaired: part.superblock_repaired,
            tables_repaired: part.tables_repaired,
            checkpoint_damaged: part.checkpoint_damaged,
            damage: part.damage.len() as u64,
        }
    }
}
