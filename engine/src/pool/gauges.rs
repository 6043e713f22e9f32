//! What a pool says of itself to those who watch it.

use lode_pmem::{Medium, Wear};

use super::Pool;
use crate::{Gauges, Host, IndexMemory, Result};

impl<M: Medium, H: Host> Pool<M, H> {
    /// How the pool is right now. It takes time: about 0.2 us for each inode in memory, and that
    /// of reading a bit for each page. No operation has to wait for long, and none is waited for.
    pub fn gauges(&self) -> Result<Gauges> {
        let (waiting_slots, waiting_bytes) = self.store.waiting();
        let mut memory = IndexMemory {
            free_space: self.store.space.memory_bytes() + waiting_bytes,
            tables: self.store.table.memory_bytes(),
            wear: self.wear().memory_bytes(),
            ..IndexMemory::default()
        };
        let (inodes_in_memory, inodes_busy) = self.nodes.weigh(&mut memory)?;
        Ok(Gauges {
            space: self.space(),
            free_extents: self.store.space.extents(),
            waiting_pages: self.store.quarantined_pages(),
            waiting_slots,
            free_slots: self.store.table.free(),
            inodes_in_memory,
            inodes_busy,
            memory,
        })
    }

    /// How much was stored to each part of the pool since it was opened; nothing is counted in a
    /// pool that was opened read-only.
    pub fn wear(&self) -> &Wear {
        self.store.door.wear()
    }
}
