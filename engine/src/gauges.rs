//! How a pool is right now: its free extents, and the memory that knowing it takes.

use crate::{PageClass, StatFs};

/// Sizes that free extents are told apart by.
pub const EXTENT_SIZES: usize = 32;

/// Free extents by size. (Two that touch are one.)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FreeExtents {
    /// `[k]` of them have 2^k to 2^(k+1) - 1 pages; the last counts all larger ones too.
    pub by_size: [u64; EXTENT_SIZES],
    /// Chunks of 2 MiB, aligned, that are wholly free.
    pub huge: u64,
    /// Chunks of 1 GiB, aligned, that are wholly free (and counted in `huge`, too).
    pub giant: u64,
}

impl FreeExtents {
    /// Takes in the free extent `page .. end`, which is not empty.
    pub(crate) fn add(&mut self, page: u64, end: u64) {
        let size = end.saturating_sub(page).checked_ilog2().unwrap_or(0) as usize;
        if let Some(count) = self.by_size.get_mut(size.min(EXTENT_SIZES - 1)) {
            *count += 1;
        }
        let whole = |block: u64| (end / block).saturating_sub(page.div_ceil(block));
        self.huge += whole(PageClass::Huge.pages());
        self.giant += whole(PageClass::Giant.pages());
    }
}

/// Main memory, in bytes, that the engine's indexes take. Tables, lists and bitmaps are counted by
/// what is allocated for them; trees by their entries, as if each node were two thirds full. What
/// the allocator adds to each piece is not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexMemory {
    /// Inodes in memory, with what is known of their logs, journals and attributes.
    pub inodes: u64,
    /// Entries of directories in memory.
    pub entries: u64,
    /// Extents of files in memory.
    pub extents: u64,
    /// Free pages: lines of chunks, a bitmap, magazines, what waits for a round, what snapshots keep.
    pub free_space: u64,
    /// Inode tables: which slots are free, and the ends of all logs. Lanes and stripes of the sector journal.
    pub tables: u64,
    /// Counters of wear.
    pub wear: u64,
}

impl IndexMemory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.inodes + self.entries + self.extents + self.free_space + self.tables + self.wear
    }
}

/// How a pool is right now. What others change meanwhile may be seen or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gauges {
    /// Space and inodes, used and free.
    pub space: StatFs,
    /// Free extents by size; pages that wait for a round are in none.
    pub free_extents: FreeExtents,
    /// Pages that the next round frees (log pages of inodes that have ended).
    pub waiting_pages: u64,
    /// Inode slots that the next round frees.
    pub waiting_slots: u64,
    /// Inode slots that are ready in tables.
    pub free_slots: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Pages that are kept for them alone.
    pub snapshot_pages: u64,
    /// Pages of files that programs have mapped to store into, at level `full`: nothing is compared with their checksums
    /// until the last map of the file has ended.
    pub exempt_pages: u64,
    /// Inodes in memory.
    pub inodes_in_memory: u64,
    /// Those of them that were in use just then: what their indexes take is not in `memory`.
    pub inodes_busy: u64,
    /// Main memory that the indexes take.
    pub memory: IndexMemory,
    /// What they may take ([`crate::OpenOptions::index_memory`]).
    pub memory_limit: Option<u64>,
}

/// Bytes of a B-tree of so many entries: nodes of eleven entries, two thirds of them used in a
/// tree of several, and what a node knows of its neighbours.
pub(crate) fn tree_bytes(entries: usize, entry_bytes: usize) -> u64 {
    const PLACES: usize = 11;
    const NODE_BYTES: usize = 16;
    let nodes = if entries <= PLACES { entries.min(1) } else { (entries * 3 / 2).div_ceil(PLACES) };
    let inner = if nodes > 1 { nodes.div_ceil(PLACES) } else { 0 };
    (nodes * (PLACES * entry_bytes + NODE_BYTES) + inner * (PLACES + 1) * size_of::<u64>()) as u64
}

/// Bytes of a list that has room for so many things of type `T`.
pub(crate) fn list_bytes<T>(room: usize) -> u64 {
    (room * size_of::<T>()) as u64
}
