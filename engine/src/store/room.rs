//! How much main memory inodes may take, and how much they do.
//!
//! The limit is of all indexes. Those of free space and the inode tables have to be there, and are
//! taken off it: what is left is the room that inodes have, with their entries and extents. They
//! are weighed when they are loaded or made, and again when they have grown or shrunk by an eighth:
//! that is the only time that this costs anything.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Inodes looked at for each call that needs room, at least: what is too much is gone after some calls.
const LOOKS_LEAST: u64 = 64;
/// A look for so many bytes that have come in. (No inode is smaller.)
const LOOK_BYTES: u64 = 256;
/// The part of the room that is made free beyond what is needed, so that it is not needed each time.
const SPARE_PART: u64 = 64;

/// The memory of inodes. Alone in its cache lines: all threads that load or make inodes add to it.
#[repr(align(128))]
pub(crate) struct Room {
    /// Bytes that all indexes may take.
    limit: Option<u64>,
    /// What of the limit is left for inodes.
    bytes: AtomicU64,
    used: AtomicU64,
    /// Bytes that came in since inodes were last dropped.
    grown: AtomicU64,
    dropped: AtomicU64,
}

impl Room {
    /// With this limit for all indexes, if any.
    pub(crate) const fn of(limit: Option<u64>) -> Self {
        Self {
            limit,
            bytes: AtomicU64::new(u64::MAX),
            used: AtomicU64::new(0),
            grown: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// The limit.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Takes what other indexes need off the limit.
    pub(crate) fn leave(&self, others: u64) {
        if let Some(limit) = self.limit {
            self.bytes.store(limit.saturating_sub(others), Relaxed);
        }
    }

    /// Counts an inode, or a list of inodes, that weighed `before` and weighs `after` now, where there is a limit.
    #[inline]
    pub(crate) fn change(&self, before: u64, after: u64) {
        if self.limit.is_none() {
            return;
        }
        if after > before {
            self.used.fetch_add(after - before, Relaxed);
            self.grown.fetch_add(after - before, Relaxed);
        } else if before > after {
            self.used.fetch_sub(before - after, Relaxed);
        }
    }

    /// Bytes that may have come or gone without being counted, all in all.
    #[inline]
    pub(crate) fn slack(&self) -> u64 {
        self.bytes.load(Relaxed) / SPARE_PART
    }

    /// Counts inodes that were dropped to make room.
    pub(crate) fn count_dropped(&self, inodes: u64) {
        self.dropped.fetch_add(inodes, Relaxed);
    }

    /// Inodes that were dropped to make room.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Whether inodes may take more than they should: what has come without being counted fits below the limit, too.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.used.load(Relaxed) > self.bytes.load(Relaxed) - self.slack()
    }

    /// Whether some more should go, once any do.
    pub(crate) fn is_short(&self) -> bool {
        self.used.load(Relaxed) > self.bytes.load(Relaxed) - 2 * self.slack()
    }

    /// How many inodes to look at now: as many as what has come in since may be worth, so that no
    /// call has to wait for long, and each for what it has brought.
    pub(crate) fn looks(&self) -> u64 {
        LOOKS_LEAST + self.grown.swap(0, Relaxed) / LOOK_BYTES
    }
}
