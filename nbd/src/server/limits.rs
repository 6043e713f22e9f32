//! How much a server does at a time.

use std::thread;
use std::time::Duration;

/// How much a server does at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Threads; one at least.
    pub workers: usize,
    /// Clients at a time; others are refused. Each holds about 1.75 MiB at most, 2 MiB by TLS. Where clients come by a Unix socket and by
    /// TCP, a quarter of them can't come by TCP; and another machine has half of those that can, at most.
    pub max_clients: usize,
    /// How long a client may take until it has chosen an export; and, when all is said, to take the last replies.
    pub handshake: Duration,
}

impl Default for Limits {
    /// A thread for each processor up to four, 256 clients, 10 s.
    fn default() -> Self {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        Self { workers: cpus.min(4), max_clients: 256, handshake: Duration::from_secs(10) }
    }
}
