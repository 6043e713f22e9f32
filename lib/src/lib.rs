//! Files on persistent memory, in this process.
//!
//! A [`Pool`] is opened as a file is, and has the calls of [`std::fs`] and
//! [`std::os::unix::fs`] as methods, with the same errors. They make no system call: they load from
//! the memory that the pool lies on and store to it. When a call returns, what it did is durable,
//! and a call that a crash cuts off happened wholly or not at all.
//!
//! ```
//! use std::io::Write;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // `Pool::open("/mnt/pmem/pool")` opens one that is there, `PoolOptions::create` makes one.
//! let pool = lode::PoolOptions::new().in_memory(16 << 20)?;
//!
//! pool.create_dir("mail")?;
//! pool.write("mail/1", "hello")?;
//! assert_eq!(pool.read_to_string("mail/1")?, "hello");
//!
//! let mut file = pool.open_with("log", lode::OpenOptions::new().append(true).create(true))?;
//! writeln!(file, "delivered")?;
//! assert_eq!(file.append(b"read\n")?, 10);
//!
//! pool.rename("mail/1", "mail/read")?;
//! assert_eq!(pool.metadata("mail/read")?.len(), 5);
//! assert_eq!(pool.open_file("mail/1").unwrap_err().kind(), std::io::ErrorKind::NotFound);
//!
//! drop(file);
//! pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! * **One opener.** A pool that is open to be changed is open nowhere else: not in another process, not
//!   mounted, not twice in this one. Read-only openings share it.
//! * **Threads.** [`Pool`] and [`File`] are `Send` and `Sync`; a pool has one thread of its own,
//!   `lode-maintain`, while it is open.
//! * **fork.** A child does not inherit the memory: there it must not touch the pool nor its files, or it
//!   dies by SIGSEGV. `exec` is all right, and so is [`std::process::Command`].
//! * **Rights.** Who can open the pool owns it: no permission is checked. New files get the process's owner,
//!   group and umask, or those in [`PoolOptions`], and inherit as on a mount.
//! * **Panics.** If a call panics nothing else is done with the pool: it is left as after a crash, and
//!   each later call fails.
//!
//! `docs/library.md` tells more, and what differs from std.
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod access;
mod attributes;
mod canonical;
mod dir;
mod error;
mod file;
mod hand;
mod inner;
mod map;
mod metadata;
mod options;
mod pin;
mod pool;
mod walk;
mod ways;

pub use dir::{DirEntry, ReadDir};
pub use error::{Error, HeapError, Result};
pub use file::File;
pub use lode_engine::{
    AccessTimes, Corruption, Opening, PageClass as PageSize, PoolInfo, Protection, RenameMode,
    SnapshotInfo, Staging, StatFs, Stats, XattrWhen,
};
pub use lode_kept::{
    Block, Content, Damage, Error as HeapFault, ROOT, Stats as HeapStats, WORDS_MOST,
};
pub use lode_pmem::{
    Bandwidth, Durability, FlushStrategy, LineStore, MappedPages, Profile, RegionError, WindowMode,
    WriteBack,
};
pub use map::{Entries, KeptHeap, Log, Map, MapOptions, Position};
pub use metadata::{FileTimes, FileType, Metadata};
pub use options::OpenOptions;
pub use pool::{FormatOptions, Pool, PoolOptions, Snapshot};
