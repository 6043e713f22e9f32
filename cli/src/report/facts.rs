//! Facts that several reports share.

use std::path::Path;

use lode_engine::{Corruption, PoolInfo, StatFs, ino_beside};
use serde::{Deserialize, Serialize};

use super::MemoryFacts;
use crate::emulation::EmulationFacts;
use crate::human::{Lines, printable, time_text, uuid_text};
use crate::region::MappedPool;
use crate::sizes::{human, page_class_name};

const PAGE_BYTES: u64 = lode_engine::PAGE_BYTES;

/// What a pool says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PoolFacts {
    /// Path of the file or device.
    pub(crate) path: String,
    /// Label, empty for none.
    pub(crate) label: String,
    /// UUID.
    pub(crate) uuid: String,
    /// Format version.
    pub(crate) version: u32,
    /// Bytes in the pool.
    pub(crate) bytes: u64,
    /// Lanes.
    pub(crate) lanes: u32,
    /// `none`, `metadata` or `full`.
    pub(crate) protection: String,
    /// Bytes of a scribble that can't reach both copies of metadata; 0 where there is one.
    pub(crate) dead_zone: u64,
    /// Bytes of a strip of file data, each of which has a checksum; 0 below `full`.
    pub(crate) strip_bytes: u32,
    /// Default page size of files: `4K`, `2M` or `1G`.
    pub(crate) page_size: String,
    /// Read-write opens so far.
    pub(crate) session: u32,
    /// Epoch.
    pub(crate) epoch: u32,
    /// Time of creation, UTC.
    pub(crate) created: String,
    /// Time of creation, nanoseconds since 1970.
    pub(crate) created_ns: i64,
    /// The last read-write session ended cleanly.
    pub(crate) clean: bool,
    /// Feature bits.
    pub(crate) features: Features,
}

/// Feature bits, as hexadecimal text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Features {
    /// Unknown ones are ignored.
    pub(crate) compatible: String,
    /// With unknown ones a pool is opened read-only.
    pub(crate) read_only_compatible: String,
    /// With unknown ones a pool is not opened.
    pub(crate) incompatible: String,
}

impl Features {
    /// Of the three words of feature bits.
    pub(crate) fn new(features: [u64; 3]) -> Self {
        let [compatible, read_only_compatible, incompatible] =
            features.map(|bits| format!("{bits:#x}"));
        Self { compatible, read_only_compatible, incompatible }
    }
}

impl PoolFacts {
    /// Of the pool at `path`.
    pub(crate) fn new(path: &Path, info: &PoolInfo) -> Self {
        Self {
            path: path.display().to_string(),
            label: printable(&info.label),
            uuid: uuid_text(&info.uuid),
            version: info.version,
            bytes: info.bytes,
            lanes: info.lanes,
            protection: info.protection.name().to_owned(),
            dead_zone: info.dead_zone,
            strip_bytes: info.strip_bytes,
            page_size: page_class_name(info.page_class).to_owned(),
            session: info.session,
            epoch: info.epoch,
            created: time_text(info.created_ns),
            created_ns: info.created_ns,
            clean: info.clean,
            features: Features::new(info.features),
        }
    }

    /// The level that is in force, and what belongs to it.
    pub(crate) fn level(&self) -> String {
        let (level, dead_zone) = (&self.protection, human(self.dead_zone));
        match (self.dead_zone, self.strip_bytes) {
            (0, 0) => level.clone(),
            (_, 0) => format!("{level}, dead zone {dead_zone}"),
            (_, strip) => format!("{level}, dead zone {dead_zone}, strips of {strip} bytes"),
        }
    }

    /// Adds these facts as text.
    pub(crate) fn lines(&self, lines: &mut Lines) {
        lines.add("pool", &self.path);
        lines.add("label", if self.label.is_empty() { "(none)" } else { &self.label });
        lines.add("uuid", &self.uuid);
        lines.add("size", format!("{} ({} bytes)", human(self.bytes), self.bytes));
        lines.add("page size", &self.page_size);
        lines.add("lanes", self.lanes.to_string());
        lines.add("protection", self.level());
        let features = &self.features;
        lines.add(
            "format",
            format!(
                "version {}; features {}, {}, {}",
                self.version,
                features.compatible,
                features.read_only_compatible,
                features.incompatible
            ),
        );
        lines.add("created", &self.created);
        lines.add("session", format!("{}, epoch {}", self.session, self.epoch));
    }
}

/// What a pool lies on, and how it is written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RegionFacts {
    /// What a returned call survives.
    pub(crate) durability: String,
    /// How stores are made durable.
    pub(crate) flush: String,
    /// How stray stores are kept out.
    pub(crate) windows: String,
    /// The slower medium whose times it takes.
    pub(crate) emulated: Option<EmulationFacts>,
    /// What is known of the memory.
    pub(crate) memory: MemoryFacts,
}

impl RegionFacts {
    /// Adds these facts as text.
    pub(crate) fn lines(&self, lines: &mut Lines) {
        let survives = match self.durability.as_str() {
            "power" => "power: what a call did survives power failure",
            "kernel crash" => {
                "kernel crash: what a call did survives a crash of the kernel, not power failure"
            }
            "process crash" => {
                "process crash: what a call did survives the death of any process, not a reboot"
            }
            "none" => "none: what is written is gone with the process",
            other => other,
        };
        lines.add("medium", self.memory.medium_text());
        lines.add("durability", survives);
        lines.add("flush", &self.flush);
        lines.add("windows", &self.windows);
        if let Some(emulated) = &self.emulated {
            emulated.lines(lines);
        }
    }
}

/// Space of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SpaceFacts {
    /// Pages of 4 KiB in the pool.
    pub(crate) pages: u64,
    /// Pages of 4 KiB that hold nothing.
    pub(crate) pages_free: u64,
    /// Pages of 4 KiB that can be had; the others are kept so that a full pool can be emptied.
    pub(crate) pages_available: u64,
    /// Inodes in use.
    pub(crate) inodes: u64,
    /// Inodes that could still be made.
    pub(crate) inodes_free: u64,
}

impl SpaceFacts {
    /// Adds these facts as text.
    pub(crate) fn lines(&self, lines: &mut Lines) {
        let bytes = |pages: u64| human(pages.saturating_mul(PAGE_BYTES));
        lines.add(
            "space",
            format!(
                "{} available of {}; inodes in use: {}",
                bytes(self.pages_available),
                bytes(self.pages),
                self.inodes
            ),
        );
    }
}

impl From<StatFs> for SpaceFacts {
    fn from(space: StatFs) -> Self {
        Self {
            pages: space.pages,
            pages_free: space.pages_free,
            pages_available: space.pages_available,
            inodes: space.inodes,
            inodes_free: space.inodes_free,
        }
    }
}

/// How a pool was found when it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct OpeningFacts {
    /// The last unmount was clean: no recovery was needed.
    pub(crate) clean: bool,
    /// Inodes found.
    pub(crate) inodes: u64,
    /// Log pages walked by recovery.
    pub(crate) log_pages: u64,
    /// Transactions that a crash had cut off, and that did not happen.
    pub(crate) aborted: u64,
    /// Files that were open when unlinked, dropped.
    pub(crate) orphans: u64,
    /// Pages that programs had mapped, at level full, and that are made whole by a read-write opening.
    pub(crate) exempt_pages: u64,
    /// How often the memory had lost what was stored, since the pool was last opened for writing.
    pub(crate) losses: u64,
    /// One superblock copy, or what tells where the second is, was damaged; a read-write opening repaired it.
    pub(crate) superblock_repaired: bool,
    /// Links to inode tables were damaged; a read-write opening repairs them.
    pub(crate) tables_repaired: bool,
    /// The last unmount was clean, but its checkpoint is damaged: recovered as after a crash.
    pub(crate) checkpoint_damaged: bool,
    /// Places of damage found by recovery.
    pub(crate) damage: u64,
}

impl OpeningFacts {
    /// Adds these facts as text.
    pub(crate) fn lines(&self, lines: &mut Lines) {
        let found = if self.clean {
            format!("cleanly unmounted, {} inodes", self.inodes)
        } else {
            let from = if self.checkpoint_damaged { "its logs" } else { "a crash" };
            format!(
                "recovered from {from}: {} inodes, {} log pages walked, {} calls cut off by it undone, {} deleted files dropped",
                self.inodes, self.log_pages, self.aborted, self.orphans
            )
        };
        lines.add("found", found);
        if self.exempt_pages > 0 {
            let pages = self.exempt_pages;
            let what =
                "programs had them mapped; a read-write mount computes their checksums again";
            lines.add("unprotected", format!("{pages} pages: {what}"));
        }
        if self.losses > 0 {
            let what = "since it was last opened for writing: all of it is checked before anything is stored";
            let count = self.losses;
            lines.add(
                "memory lost",
                format!("its dirty-shutdown count has moved by {count} {what}"),
            );
        }
        if self.superblock_repaired {
            lines.add(
                "superblock",
                "one copy, or what says where it is, was damaged; a read-write mount repairs it",
            );
        }
        if self.tables_repaired {
            lines.add(
                "tables",
                "links to inode tables were damaged; a read-write mount repairs them",
            );
        }
        if self.checkpoint_damaged {
            lines.add(
                "CHECKPOINT",
                "damaged: nobody can tell whether the last changes of a file are missing, too",
            );
        }
        if self.damage > 0 {
            lines.add("DAMAGE", format!("in {} places: run lode fsck", self.damage));
        }
    }
}

impl From<&lode_engine::Opening> for OpeningFacts {
    fn from(opening: &lode_engine::Opening) -> Self {
        Self {
            clean: opening.clean,
            inodes: opening.inodes,
            log_pages: opening.log_pages,
            aborted: opening.aborted,
            orphans: opening.orphans,
            exempt_pages: opening.exempt_pages,
            losses: opening.losses,
            superblock_repaired: !opening.superblock_damage.is_empty(),
            tables_repaired: !opening.chain_damage.is_empty(),
            checkpoint_damaged: opening.checkpoint_damage.is_some(),
            damage: opening.damage.len() as u64,
        }
    }
}

/// One place of damage.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct DamageFacts {
    /// What is wrong.
    pub(crate) what: String,
    /// Offset in the pool, in bytes.
    pub(crate) at: u64,
    /// The inode it belongs to, `null` for none.
    pub(crate) inode: Option<u64>,
    /// Its path, of what only snapshots see and as one gets at it in a mount, as far as there is one.
    pub(crate) path: Option<String>,
    /// The snapshot, of what only snapshots see: the latest that does.
    pub(crate) snapshot: Option<String>,
    /// Only snapshots see it.
    #[serde(skip)]
    pub(crate) is_kept: bool,
    /// A read-write opening (`fsck -p`) repairs it, and gives nothing up.
    pub(crate) repairable: bool,
}

impl DamageFacts {
    /// One line of text.
    pub(crate) fn text(&self) -> String {
        let place = format!("{} at offset {:#x}", self.what, self.at);
        match (self.inode, &self.path, &self.snapshot) {
            (None, ..) => place,
            (Some(inode), None, None) => format!("{place} (inode {inode})"),
            (Some(inode), None, Some(snapshot)) => {
                format!("{place} (inode {inode}, in snapshot {snapshot})")
            }
            (Some(inode), Some(path), _) => format!("{place} (inode {inode}, /{path})"),
        }
    }

    /// Whether a repair would have to give something of the pool up as it is.
    pub(crate) fn is_of_now(&self) -> bool {
        !self.repairable && !self.is_kept
    }
}

impl From<&Corruption> for DamageFacts {
    fn from(damage: &Corruption) -> Self {
        let inode = (damage.ino != 0).then_some(ino_beside(damage.ino, 0));
        let is_kept = MappedPool::is_in_snapshot(damage.ino);
        let (what, at) = (damage.what.to_owned(), damage.at);
        Self { what, at, inode, path: None, snapshot: None, is_kept, repairable: false }
    }
}
