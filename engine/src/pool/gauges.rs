//! What a pool says of itself to those who watch it.

use core::sync::atomic::Ordering::Relaxed;

use lode_pmem::{Medium, Wear};

use super::Pool;
use crate::{Gauges, Host, IndexMemory, Result};

impl<M: Medium, H: Host> Pool<M, H> {
    /// How the pool is right now. It takes time: about 0.2 us for each inode in memory, and that
    /// of reading a bit for each page. No operation has to wait for long, and none is waited for.
    pub fn gauges(&self) -> Result<Gauges> {
        let mut memory = self.standing_memory();
        let (waiting_slots, _) = self.store.waiting();
        let (inodes_in_memory, inodes_busy) = self.nodes.weigh(&mut memory)?;
        let (snapshots, [data, logs]) = self.store.snapshots.sums();
        let twice = if self.store.geometry.twin_pages == 0 { 1 } else { 2 };
        Ok(Gauges {
            snapshots,
            snapshot_pages: data + twice * logs,
            space: self.space(),
            free_extents: self.store.space.extents(),
            waiting_pages: self.store.quarantined_pages(),
            waiting_slots,
            free_slots: self.store.table.free(),
            exempt_pages: self.store.exempt.load(Relaxed),
            inodes_in_memory,
            inodes_busy,
            memory,
            memory_limit: self.store.room.limit(),
        })
    }

    /// What the indexes take that are there whatever inodes are in memory.
    fn standing_memory(&self) -> IndexMemory {
        let (_, waiting_bytes) = self.store.waiting();
        IndexMemory {
            free_space: self.store.space.memory_bytes()
                + waiting_bytes
                + self.store.snapshots.memory_bytes(),
            tables: self.store.table.memory_bytes() + self.store.sectors.memory_bytes(),
            wear: self.store.wear_bytes(),
            inodes: self.nodes.standing_bytes() + self.dentries.memory_bytes(),
            ..IndexMemory::default()
        }
    }

    /// Leaves to the inodes in memory what of the limit no other index needs.
    pub(crate) fn share_memory(&self) {
        if self.store.room.limit().is_some() {
            self.store.room.leave(self.standing_memory().total());
        }
    }

    /// How much was stored to each part of the pool since it was opened; nothing is counted in a
    /// pool that was opened read-only. What is stored just now is waited for.
    pub fn wear(&self) -> &Wear {
        self.store.count_wear();
        self.store.door.wear()
    }
}
