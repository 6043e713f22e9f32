//! The reports of the commands: their JSON keys (listed in `docs/json.md`) and their text.
//!
//! Guarantee: every key is always there; what is unknown or absent is `null`.

mod bench;
mod block;
mod corrupt;
mod crash;
mod dump;
mod facts;
mod generate;
mod health;
pub(crate) mod heap;
#[cfg(test)]
mod keys_test;
mod memory;
mod prometheus;
mod repairs;
mod scrub;
mod snapshot;
mod stats;
mod stream;

use serde::{Deserialize, Serialize};

use crate::human::Lines;
use crate::output::Report;
use crate::sizes::human;

pub(crate) use bench::{BenchListReport, BenchReport, CleanedReport};
pub(crate) use block::{
    RawServed, ServedAt, ServedFacts, VolumeAttached, VolumeDeleted, VolumeDetached, VolumeFacts,
    VolumeList, VolumeMade, VolumeResized, VolumesServed,
};
pub(crate) use corrupt::{CorruptReport, InjectionReport};
pub(crate) use crash::{MutantsReport, ReplayReport, RunReport};
pub(crate) use dump::{DumpReport, InodeReport, UnreadableReport, superblock_text};
pub(crate) use facts::{DamageFacts, Features, OpeningFacts, PoolFacts, RegionFacts, SpaceFacts};
pub(crate) use generate::{CompletionsReport, ManReport};
pub(crate) use health::{BadMemoryFacts, HealthFacts, KeptFacts, ScrubsFacts};
pub(crate) use heap::{HeapFacts, HeapServeReport, HeapStatsReport};
pub(crate) use memory::MemoryFacts;
pub(crate) use prometheus::{StoredGroups, exposition};
pub(crate) use repairs::{RepairFacts, Repairs};
pub(crate) use scrub::{ExemptFacts, FindingFacts, ScrubReport};
pub(crate) use snapshot::{
    SnapshotDeleted, SnapshotFacts, SnapshotList, SnapshotMade, SnapshotRolledBack,
};
pub(crate) use stats::{Counted, StatsReport};
pub(crate) use stream::{ReceiveReport, ReceiveState, SendReport};

/// `lode mkfs`.
#[derive(Serialize)]
pub(crate) struct MkfsReport {
    /// The new pool.
    pub(crate) pool: PoolFacts,
    /// What it lies on.
    pub(crate) region: RegionFacts,
    /// Its space.
    pub(crate) space: SpaceFacts,
}

impl Report for MkfsReport {
    fn text(&self) -> String {
        let mut lines = Lines::default();
        self.pool.lines(&mut lines);
        self.region.lines(&mut lines);
        self.space.lines(&mut lines);
        format!("New pool.\n{}Mount it: lode mount {} DIR\n", lines.text(), self.pool.path)
    }
}

/// `lode mount`; also what the server tells the command that started it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct MountReport {
    /// The mount point.
    pub(crate) dir: String,
    /// Process id of the server.
    pub(crate) pid: u32,
    /// File that the server logs to; `null` with `--foreground`.
    pub(crate) log: Option<String>,
    /// Mounted read-only.
    pub(crate) read_only: bool,
    /// The snapshot that is mounted, printable; `null` where it is the pool as it is.
    pub(crate) snapshot: Option<String>,
    /// File data is overwritten in place.
    pub(crate) relaxed: bool,
    /// The pool.
    pub(crate) pool: PoolFacts,
    /// What it lies on.
    pub(crate) region: RegionFacts,
    /// How it was found.
    pub(crate) opening: OpeningFacts,
}

impl Report for MountReport {
    fn text(&self) -> String {
        let mut lines = Lines::default();
        lines.add("pool", &self.pool.path).add("at", &self.dir);
        let mode = match (self.read_only, self.relaxed) {
            (true, _) => "read-only",
            (false, true) => "read-write, relaxed (file data in place, not atomic)",
            (false, false) => "read-write",
        };
        lines.add("mode", mode);
        if let Some(name) = &self.snapshot {
            lines.add("snapshot", name);
        }
        lines.add("protection", self.pool.level());
        self.region.lines(&mut lines);
        self.opening.lines(&mut lines);
        lines.add("server", format!("process {}", self.pid));
        if let Some(log) = &self.log {
            lines.add("log", log);
        }
        format!("Mounted.\n{}Unmount it: lode umount {}\n", lines.text(), self.dir)
    }
}

/// `lode umount`.
#[derive(Serialize)]
pub(crate) struct UmountReport {
    /// The mount point.
    pub(crate) dir: String,
    /// The pool's path.
    pub(crate) pool: String,
    /// Process id of the server; `null` where it was gone already, or could not be asked.
    pub(crate) pid: Option<u32>,
    /// It could not be asked: another user's, mostly.
    #[serde(skip)]
    pub(crate) unasked: bool,
    /// The server wrote its checkpoint and ended: the next mount needs no recovery.
    pub(crate) clean: bool,
    /// Only detached: its server goes on until the last user ends.
    pub(crate) lazy: bool,
}

impl Report for UmountReport {
    fn text(&self) -> String {
        if self.lazy {
            let (pool, dir) = (&self.pool, &self.dir);
            format!("Detached {pool} from {dir}. It is closed when its last user ends.\n")
        } else if self.clean {
            format!("Unmounted {} from {}, cleanly.\n", self.pool, self.dir)
        } else if self.unasked {
            let (pool, dir) = (&self.pool, &self.dir);
            format!(
                "Unmounted {pool} from {dir}. Its server could not be asked: `lode info {pool}` says when the pool is closed, and whether cleanly.\n"
            )
        } else {
            format!(
                "Unmounted {} from {}. Its server was gone already: the next mount recovers the pool.\n",
                self.pool, self.dir
            )
        }
    }
}

/// `lode label`.
#[derive(Serialize)]
pub(crate) struct LabelReport {
    /// The label is new.
    pub(crate) changed: bool,
    /// The pool.
    pub(crate) pool: PoolFacts,
}

impl Report for LabelReport {
    fn text(&self) -> String {
        let mut lines = Lines::default();
        let label = if self.pool.label.is_empty() { "(none)" } else { &self.pool.label };
        lines.add("label", label).add("UUID", &self.pool.uuid);
        lines.text()
    }
}

/// `lode resize`.
#[derive(Serialize)]
pub(crate) struct ResizeReport {
    /// Bytes that the pool had.
    pub(crate) bytes_before: u64,
    /// The pool.
    pub(crate) pool: PoolFacts,
    /// Its space.
    pub(crate) space: SpaceFacts,
}

impl Report for ResizeReport {
    fn text(&self) -> String {
        let (before, now) = (human(self.bytes_before), human(self.pool.bytes));
        format!("{} is {now} large now; it was {before}.\n", self.pool.path)
    }
}

/// `lode protect`.
#[derive(Serialize)]
pub(crate) struct ProtectReport {
    /// It had another level before.
    pub(crate) changed: bool,
    /// The pool.
    pub(crate) pool: PoolFacts,
    /// Its space.
    pub(crate) space: SpaceFacts,
}

impl Report for ProtectReport {
    fn text(&self) -> String {
        let PoolFacts { path, protection, .. } = &self.pool;
        let now = if self.changed { "now" } else { "already" };
        format!("{path} is {now} at protection level {protection}.\n")
    }
}

/// `lode fsck`.
#[derive(Serialize)]
pub(crate) struct FsckReport {
    /// The pool's path.
    pub(crate) pool: String,
    /// The exit status: 0, 1 or 4.
    pub(crate) status: u8,
    /// `check` (-n), `preen` (-p) or `repair` (-y).
    pub(crate) mode: String,
    /// Something was written.
    pub(crate) repaired: bool,
    /// How the pool was found.
    pub(crate) opening: OpeningFacts,
    /// Regular files.
    pub(crate) files: u64,
    /// Directories.
    pub(crate) directories: u64,
    /// Symbolic links, devices, FIFOs, sockets.
    pub(crate) others: u64,
    /// Pages of 4 KiB in use.
    pub(crate) pages_used: u64,
    /// Pages of 4 KiB free.
    pub(crate) pages_free: u64,
    /// Damage that is left.
    pub(crate) damage: Vec<DamageFacts>,
    /// What was repaired, and what was given up.
    pub(crate) repairs: Vec<RepairFacts>,
}

impl Report for FsckReport {
    fn text(&self) -> String {
        let mut text = String::new();
        for repair in &self.repairs {
            text.push_str(&format!("{}: {}\n", self.pool, repair.text()));
        }
        for damage in &self.damage {
            text.push_str(&format!("{}: {}\n", self.pool, damage.text()));
        }
        let verdict = match (self.damage.len(), self.repaired) {
            (0, true) => "repaired".to_owned(),
            (0, false) => "clean".to_owned(),
            (1, _) => "DAMAGED in 1 place".to_owned(),
            (count, _) => format!("DAMAGED in {count} places"),
        };
        text.push_str(&format!(
            "{}: {verdict}; {} files, {} directories, {} others; {} used, {} free\n",
            self.pool,
            self.files,
            self.directories,
            self.others,
            human(self.pages_used * 4096),
            human(self.pages_free * 4096),
        ));
        if !self.opening.clean {
            let done = match (self.mode.as_str(), self.damage.is_empty()) {
                ("check", _) => "would be recovered",
                (_, true) => "was recovered",
                (_, false) => "left as it is",
            };
            let found = match self.opening.checkpoint_damaged {
                true => "cleanly unmounted, but its checkpoint is damaged",
                false => "not cleanly unmounted",
            };
            text.push_str(&format!("{}: {found}, {done}\n", self.pool));
        }
        // What is there twice is repaired without giving anything up.
        if self.damage.iter().any(DamageFacts::is_of_now) && self.mode != "repair" {
            text.push_str(&format!(
                "{}: `lode fsck -y` gives up what can't be read and keeps the rest; copy the pool first\n",
                self.pool
            ));
        }
        let mut snapshots: Vec<&str> =
            self.damage.iter().filter_map(|damage| damage.snapshot.as_deref()).collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        for name in snapshots {
            text.push_str(&format!(
                "{pool}: what snapshot {name} has lost can't be repaired, the rest of it can be read; `lode snapshot delete {pool} {name}` deletes it (older ones that have lost the same are told of then)\n",
                pool = self.pool
            ));
        }
        text
    }
}

/// `lode info`.
#[derive(Serialize)]
pub(crate) struct InfoReport {
    /// The pool.
    pub(crate) pool: PoolFacts,
    /// What it lies on.
    pub(crate) region: RegionFacts,
    /// Its space.
    pub(crate) space: SpaceFacts,
    /// How it was found: by this command, or by the server when it mounted.
    pub(crate) opening: OpeningFacts,
    /// Bad memory that is known.
    pub(crate) bad_memory: BadMemoryFacts,
    /// Where it is mounted.
    pub(crate) mount: Option<MountFacts>,
    /// What is being received into it.
    pub(crate) receiving: Option<ReceivingFacts>,
}

/// What is being received into a pool.
#[derive(Serialize)]
pub(crate) struct ReceivingFacts {
    /// The snapshot, printable.
    pub(crate) name: String,
    /// Where the stream goes on, in bytes from its beginning.
    pub(crate) offset: u64,
}

/// Where a pool is mounted.
#[derive(Serialize)]
pub(crate) struct MountFacts {
    /// The mount point.
    pub(crate) dir: String,
    /// Process id of the server.
    pub(crate) pid: u32,
    /// Mounted read-only.
    pub(crate) read_only: bool,
    /// The snapshot that is mounted, printable; `null` where it is the pool as it is.
    pub(crate) snapshot: Option<String>,
    /// File data is overwritten in place.
    pub(crate) relaxed: bool,
    /// Requests come by io_uring.
    pub(crate) io_uring: bool,
}

impl Report for InfoReport {
    fn text(&self) -> String {
        let mut lines = Lines::default();
        self.pool.lines(&mut lines);
        self.region.lines(&mut lines);
        self.region.memory.lines(&mut lines);
        self.space.lines(&mut lines);
        self.opening.lines(&mut lines);
        self.bad_memory.lines(&mut lines);
        if let Some(ReceivingFacts { name, offset }) = &self.receiving {
            let what = format!("snapshot {name}, goes on at {offset}; all else is of before");
            lines.add("receiving", what);
        }
        match &self.mount {
            Some(mount) => {
                let mode = if mount.read_only { "read-only" } else { "read-write" };
                let snapshot = mount.snapshot.as_ref();
                let snapshot =
                    snapshot.map_or_else(String::new, |name| format!(", snapshot {name}"));
                let relaxed = if mount.relaxed { ", relaxed" } else { "" };
                let rings = if mount.io_uring { ", requests by io_uring" } else { "" };
                let MountFacts { dir, pid, .. } = mount;
                lines.add(
                    "mounted",
                    format!("at {dir}, {mode}{snapshot}{relaxed}, by process {pid}{rings}"),
                );
            }
            None => {
                lines.add("mounted", "no");
            }
        }
        lines.text()
    }
}
