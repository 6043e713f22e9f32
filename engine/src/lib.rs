//! Lode's engine: a file system on persistent memory that knows no operating system.
//!
//! What it needs from outside (locks, time, CPU numbers, random bits, helpers for
//! parallel work) comes through [`Host`]; what it stores goes through the door,
//! [`lode_pmem::Door`]. Layers, each using only those above it in this list:
//!
//! * [`layout`]: the bytes on the medium, typed; seals
//! * `space`: free pages; `index`: extents and entries in memory
//! * `store`: superblock, lanes, transactions, rounds, inode slots
//! * `integrity`: checksums and parity of file data
//! * `log`: walking and appending to the logs of inodes
//! * `inode`: what is known of an inode in memory, rebuilt from its log
//! * `pool`: the open pool, locking
//! * `namespace`, `file`, `snapshot`: the operations; `recovery`, `check`: opening, checking, showing
//! * `salvage`: making a damaged pool sound; `level`: changing how much a pool has twice; `scrub`: finding
//!   what has gone bad
#![no_std]

extern crate alloc;

mod check;
mod error;
mod file;
mod gauges;
mod host;
mod index;
mod inode;
mod integrity;
pub mod layout;
mod level;
mod log;
mod namespace;
mod pool;
mod recovery;
mod rule;
mod salvage;
mod scrub;
mod shown;
mod snapshot;
mod space;
mod store;
mod types;

pub use check::{PagesUsed, Use};
pub use error::{Corruption, Error, Result, Unusable};
pub use gauges::{EXTENT_SIZES, FreeExtents, Gauges, IndexMemory};
pub use host::{ExemptRange, Exemption, Host, MEETINGS, NONCES_MAX};
pub use layout::BadPage;
pub use pool::{
    CheckReport, ExtentDump, Found, Handle, InodeDump, Life, Opening, Pool, RecordDump, Seen,
};
pub use recovery::ManifestBytes;
pub use recovery::format::check_format;
pub use rule::Rule;
pub use salvage::Salvage;
pub use scrub::{Finding, Outcome, PathSearch, Scrub, SuperblockDamage, What};
pub use shown::{MakeShown, Shown};
pub use snapshot::{Back, Receiving, SnapshotId, SnapshotInfo, SnapshotLoss, SnapshotLosses};
pub use types::*;
