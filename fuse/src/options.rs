//! How a pool is to be mounted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lode_engine::{AccessTimes, Ino};

use crate::lending::HeapOptions;
use crate::views::View;

/// Options of a mount. What concerns the region and the engine (`relaxed`, windows,
/// page sizes) is decided by whoever opens the pool; it is named here to be told.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Path of the pool, for `mount` and for finding the server by its pool.
    pub pool: PathBuf,
    /// The directory that is to be the root of the mount, where that is not the pool's: that of a snapshot, which
    /// nobody may delete meanwhile. So the pool has to be opened read-only.
    pub root: Option<Ino>,
    /// The kernel refuses changes. The pool has to be opened read-only too.
    pub read_only: bool,
    /// When reads move access times. The pool has to be opened so too.
    pub atime: AccessTimes,
    /// Other users than the server's may use the mount. Unless said otherwise they may
    /// where the server runs as root, as with any file system that root mounts.
    pub allow_other: Option<bool>,
    /// Leave out the kernel's permission checks, so that every user may do everything.
    pub no_permissions: bool,
    /// Set-user-id bits of programs count.
    pub suid: bool,
    /// Device nodes can be opened.
    pub dev: bool,
    /// Programs can't be run.
    pub noexec: bool,
    /// Files in the directory `.lode`, which is there if there are some.
    pub views: Vec<View>,
    /// How long after one scrub by itself the server begins the next; `None`: none.
    pub scrub_period: Option<Duration>,
    /// Bytes a second that such a scrub looks at, [`crate::SCRUB_RATE`] where `None`.
    pub scrub_rate: Option<u64>,
    /// Server threads, at least one; as many as make sense where `None`.
    pub threads: Option<usize>,
    /// Whether requests come by io_uring. Where nothing is said they do if the kernel allows it and
    /// no number of threads is asked for.
    pub rings: Option<bool>,
    /// No processor of the machine falls asleep while requests come.
    pub awake: bool,
    /// How much memory is lent to programs.
    pub heap: HeapOptions,
    /// What the region says of itself (medium, durability, flush strategy, windows), for
    /// the control socket.
    pub region: BTreeMap<String, String>,
}

impl MountOptions {
    /// Options of an ordinary mount of the pool at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { pool: path.into(), ..Self::default() }
    }

    /// Number of server threads: one for each CPU, and some that may wait.
    pub fn server_threads(&self) -> usize {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or((cpus + 2).min(16)).max(1)
    }

    /// Whether the kernel is to be asked for requests by io_uring.
    pub fn wants_rings(&self) -> bool {
        self.rings.unwrap_or(self.threads.is_none())
    }

    /// Whether users other than the server's may use the mount.
    pub fn others(&self) -> bool {
        self.allow_other.unwrap_or_else(|| rustix::process::geteuid().is_root())
    }

    /// Whether the kernel checks permissions.
    pub fn permissions(&self) -> bool {
        !self.no_permissions
    }
}
