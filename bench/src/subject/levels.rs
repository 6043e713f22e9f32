//! Pools of each protection level, with and without keys, atomic and relaxed, two of them mounted; and one, and one mounted, that a
//! snapshot is made of ten times a second. They are measured where they are asked for: `--protect` asks for all of them.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lode::{Pool, Protection, WindowMode};
use lode_fuse::control::Client;
use serde_json::json;

use super::Subject;
use super::library::Library;
use super::lode_mount::LodeMount;
use crate::error::{BenchError, Result};

/// Between two snapshots.
const EVERY: Duration = Duration::from_millis(100);
/// Snapshots that are kept at a time.
const KEPT: u64 = 3;
/// Fewer fences than these between two snapshots: nobody works on the pool.
const IDLE: u64 = 200;

const fn level(id: &'static str, protection: Protection, windows: WindowMode) -> Library {
    let about = "a pool of this protection level, by the library's calls";
    Library { id, about, windows: Some(windows), protection, relaxed: false, snapshots: false }
}

const fn relaxed(id: &'static str, protection: Protection, windows: WindowMode) -> Library {
    let about = "the same, overwrites in place without atomicity";
    Library { about, relaxed: true, ..level(id, protection, windows) }
}

const fn mounted(id: &'static str, level: &'static str) -> LodeMount {
    let about = "a pool of this protection level, mounted by `lode mount`";
    LodeMount { id, about, level, snapshots: false }
}

use Protection::{Full, Metadata, None as Bare};
use WindowMode::{Key, None as Open};

/// Level none, without a guard: what the others are compared with.
pub const BARE: &str = "lode-none";
/// Level metadata.
pub const METADATA: &str = "lode-metadata";
/// Level full.
pub const FULL: &str = "lode-full";
/// The same two, mounted.
pub const BARE_MOUNT: &str = "lode-mount-none";
/// Level full.
pub const FULL_MOUNT: &str = "lode-mount-full";
/// Level none, and snapshots.
pub const SNAPSHOTS: &str = "lode-snapshots";
/// The same, mounted.
pub const SNAPSHOTS_MOUNT: &str = "lode-mount-snapshots";
/// Mounts that are compared with each other alone.
pub const MOUNTS: [&str; 3] = [BARE_MOUNT, FULL_MOUNT, SNAPSHOTS_MOUNT];

/// All of them.
pub const LEVELS: &[&dyn Subject] = &[
    &level(BARE, Bare, Open),
    &level(METADATA, Metadata, Open),
    &level(FULL, Full, Open),
    &relaxed("lode-none-relaxed", Bare, Open),
    &relaxed("lode-metadata-relaxed", Metadata, Open),
    &relaxed("lode-full-relaxed", Full, Open),
    &level("lode-none-key", Bare, Key),
    &level("lode-metadata-key", Metadata, Key),
    &level("lode-full-key", Full, Key),
    &relaxed("lode-none-key-relaxed", Bare, Key),
    &relaxed("lode-metadata-key-relaxed", Metadata, Key),
    &relaxed("lode-full-key-relaxed", Full, Key),
    &Library {
        about: "level none; a snapshot is made every 100 ms while it is worked on, and three are kept",
        snapshots: true,
        ..level(SNAPSHOTS, Bare, Open)
    },
    &mounted(BARE_MOUNT, "none"),
    &mounted(FULL_MOUNT, "full"),
    &LodeMount {
        about: "level none, mounted; a snapshot is made every 100 ms, and three are kept",
        snapshots: true,
        ..mounted(SNAPSHOTS_MOUNT, "none")
    },
];

/// Makes snapshots of a pool that somebody works on, until it is dropped.
pub(super) struct Snapshots {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Snapshots {
    pub(super) fn of(pool: Pool) -> Self {
        Self::by(move |stopping| make(&pool, stopping))
    }

    /// Of the pool that is mounted at `dir`, as `lode snapshot` makes them.
    pub(super) fn of_mount(dir: &Path) -> Result<Self> {
        let client = Client::for_mount(dir).map_err(|error| {
            BenchError::io("asking the server of", dir, io::Error::other(error.to_string()))
        })?;
        let root = File::open(dir).map_err(|error| BenchError::io("opening", dir, error))?;
        Ok(Self::by(move |stopping| make_mounted(client, &root, stopping)))
    }

    fn by(make: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopping);
        let thread = thread::spawn(move || make(&seen));
        Self { stopping, thread: Some(thread) }
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        self.stopping.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

fn make(pool: &Pool, stopping: &AtomicBool) {
    let fences = || pool.stats().map_or(0, |stats| stats.door.fences);
    let (mut before, mut made) = (fences(), 0_u64);
    while !stopping.load(Relaxed) {
        thread::park_timeout(EVERY);
        if fences() - before > IDLE {
            // (Files that the library has mapped do not keep it from being made. Where there is no space, say, there are fewer.)
            if pool.create_snapshot(made.to_string()).is_ok() {
                made += 1;
            }
            if let Some(old) = made.checked_sub(KEPT + 1) {
                let _ = pool.delete_snapshot(old.to_string());
            }
        }
        before = fences();
    }
}

/// Where nobody works on it, too: those are made of nothing.
fn make_mounted(mut client: Client, root: &File, stopping: &AtomicBool) {
    let mut ask = |op: &str, number: u64| {
        let name = number.to_string();
        client.request(&json!({ "op": op, "name": name.as_bytes() })).is_ok()
    };
    for number in 0.. {
        thread::park_timeout(EVERY);
        // (What programs have stored through mappings is in the kernel's cache until then.)
        let is_over = stopping.load(Relaxed) || rustix::fs::syncfs(root).is_err();
        if is_over || !ask("snapshot-create", number) {
            return;
        }
        if let Some(old) = number.checked_sub(KEPT) {
            ask("snapshot-delete", old);
        }
    }
}
