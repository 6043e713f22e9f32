//! What the connections to one database share, whatever names they opened it by.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Weak};

use lode::Pool;
use parking_lot::Mutex;

use crate::error::Outcome;
use crate::locks::{Level, Locks};
use crate::shared_memory::{Share, SharedMemory, Which};

/// A pool, and its databases that are open.
pub(crate) struct Databases {
    pub(crate) pool: Pool,
    nodes: Mutex<HashMap<u64, Arc<Node>>>,
}

/// All pools that have a VFS: one pool may have several, whose connections have to meet.
static POOLS: Mutex<Vec<Weak<Databases>>> = Mutex::new(Vec::new());

/// What is shared of a database. A call takes `memory`, then what its member holds, then `locks`.
#[derive(Default)]
struct Node {
    locks: Mutex<Locks>,
    memory: Mutex<SharedMemory>,
}

impl Databases {
    /// Those of `pool`.
    pub(crate) fn of(pool: &Pool) -> Arc<Self> {
        let mut pools = POOLS.lock();
        pools.retain(|known| known.strong_count() > 0);
        let known = pools.iter().filter_map(Weak::upgrade).find(|known| known.pool.is_same(pool));
        known.unwrap_or_else(|| {
            let new = Arc::new(Self { pool: pool.clone(), nodes: Mutex::default() });
            pools.push(Arc::downgrade(&new));
            new
        })
    }

    /// A connection to the database that is inode `ino`, which must be open as long as that lasts.
    pub(crate) fn join(self: &Arc<Self>, ino: u64) -> Member {
        let node = Arc::clone(self.nodes.lock().entry(ino).or_default());
        Member { databases: Arc::clone(self), ino, node, holds: Mutex::default() }
    }
}

/// A connection to a database. When it is dropped it holds nothing any more.
pub(crate) struct Member {
    databases: Arc<Databases>,
    ino: u64,
    node: Arc<Node>,
    holds: Mutex<Holds>,
}

#[derive(Default)]
struct Holds {
    level: Level,
    share: Share,
}

impl Member {
    /// The inode.
    pub(crate) fn ino(&self) -> u64 {
        self.ino
    }

    /// Raises the lock. Returns whether it holds what it wanted.
    pub(crate) fn raise(&self, wanted: Level) -> bool {
        let mut holds = self.holds.lock();
        holds.level = self.node.locks.lock().raise(holds.level, wanted);
        holds.level >= wanted
    }

    /// Lowers the lock.
    pub(crate) fn lower(&self, wanted: Level) {
        let mut holds = self.holds.lock();
        holds.level = self.node.locks.lock().lower(holds.level, wanted);
    }

    /// What it holds.
    pub(crate) fn level(&self) -> Level {
        self.holds.lock().level
    }

    /// Whether anybody is going to write.
    pub(crate) fn is_reserved(&self) -> bool {
        self.node.locks.lock().is_reserved()
    }

    /// See [`SharedMemory::map`].
    pub(crate) fn map(&self, region: (usize, usize), make: bool) -> Outcome<*mut c_void> {
        self.node.memory.lock().map(&mut self.holds.lock().share, region, make)
    }

    /// See [`SharedMemory::lock`].
    pub(crate) fn lock_memory(&self, which: Which, alone: bool) -> Outcome<()> {
        self.node.memory.lock().lock(&mut self.holds.lock().share, which, alone)
    }

    /// See [`SharedMemory::unlock`].
    pub(crate) fn unlock_memory(&self, which: Which) {
        self.node.memory.lock().unlock(&mut self.holds.lock().share, which);
    }

    /// See [`SharedMemory::leave`].
    pub(crate) fn leave_memory(&self) {
        self.node.memory.lock().leave(&mut self.holds.lock().share);
    }

    /// What this thread stored to the memory before others see before what it stores from here on.
    pub(crate) fn barrier(&self) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        // Whoever had the lock before has stored what it stored.
        drop(self.node.memory.lock());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leave_memory();
        self.lower(Level::None);
        let mut nodes = self.databases.nodes.lock();
        // This one's and the map's: nobody else has it, and nobody can get it meanwhile.
        if Arc::strong_count(&self.node) == 2 {
            nodes.remove(&self.ino);
        }
    }
}
