//! The inodes in memory.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use hashbrown::HashMap;
use lock_api::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use lode_pmem::Medium;

use super::replay::Mix;
use super::state::{Body, State};
use crate::gauges::list_bytes;
use crate::store::{Slot, Store};
use crate::{Error, Host, IndexMemory, Ino, Result};

const SHARDS: usize = 64;
/// Inodes a shard keeps without need.
const SHARD_LIMIT: usize = 4096;

/// Where an inode is in its life in memory.
pub(crate) enum Life {
    /// Not read from its log yet.
    Unloaded,
    /// Read.
    Live(Box<State>),
    /// Ended; its slot may already be another inode's.
    Gone,
}

/// An inode in memory.
pub(crate) struct Node<H: Host> {
    pub(crate) slot: Slot,
    life: RwLock<H::RwLock, Life>,
    /// How often it is open.
    pub(crate) opens: AtomicU32,
}

/// The right to look at an inode.
pub(crate) type Shared<'n, H> = MappedRwLockReadGuard<'n, <H as Host>::RwLock, State>;
/// The right to change an inode.
pub(crate) type Exclusive<'n, H> = MappedRwLockWriteGuard<'n, <H as Host>::RwLock, State>;

type Shard<H> = HashMap<Ino, Arc<Node<H>>, Mix>;

/// All inodes in memory, by number.
pub(crate) struct Cache<H: Host> {
    shards: Vec<Mutex<H::Mutex, Shard<H>>>,
}

impl<H: Host> Node<H> {
    fn new(slot: Slot, life: Life, opens: u32) -> Self {
        Self { slot, life: RwLock::new(life), opens: AtomicU32::new(opens) }
    }

    /// Number of the inode.
    pub(crate) fn ino(&self) -> Ino {
        self.slot.ino()
    }

    /// Whether its log has been read.
    pub(crate) fn is_loaded(&self) -> bool {
        matches!(*self.life.read(), Life::Live(_))
    }

    /// Whether it is a file without a name. (Such a one stays loaded.)
    pub(crate) fn is_nameless(&self) -> bool {
        matches!(&*self.life.read(), Life::Live(state) if state.is_nameless())
    }

    /// Locks the inode for reading, loading it when this is its first touch.
    pub(crate) fn read<M: Medium>(&self, store: &Store<M, H>) -> Result<Shared<'_, H>> {
        loop {
            let guard = self.life.read();
            let loaded = RwLockReadGuard::try_map(guard, |life| match life {
                Life::Live(state) => Some(&**state),
                _ => None,
            });
            match loaded {
                Ok(state) => return Ok(state),
                Err(guard) if matches!(*guard, Life::Gone) => return Err(Error::Stale),
                Err(guard) => drop(guard),
            }
            drop(self.write(store)?);
        }
    }

    /// Locks the inode for changes, loading it when this is its first touch.
    pub(crate) fn write<M: Medium>(&self, store: &Store<M, H>) -> Result<Exclusive<'_, H>> {
        let mut guard = self.life.write();
        if matches!(*guard, Life::Unloaded) {
            *guard = Life::Live(super::load(store, &self.slot)?);
        }
        let state = RwLockWriteGuard::try_map(guard, |life| match life {
            Life::Live(state) => Some(&mut **state),
            _ => None,
        });
        state.map_err(|_| Error::Stale)
    }

    /// Ends the life in memory of an inode whose last link is gone and that nobody has
    /// open, and hands out what it was.
    pub(crate) fn end_if_dead(&self) -> Option<Box<State>> {
        let mut life = self.life.write();
        let ended = match &*life {
            Life::Live(state) => state.dead && self.opens.load(Relaxed) == 0,
            _ => false,
        };
        if !ended {
            return None;
        }
        match core::mem::replace(&mut *life, Life::Gone) {
            Life::Live(state) => Some(state),
            _ => None,
        }
    }
}

impl<H: Host> Cache<H> {
    /// An empty cache.
    pub(crate) fn new() -> Result<Self> {
        let mut shards = Vec::new();
        shards.try_reserve_exact(SHARDS)?;
        shards.resize_with(SHARDS, || Mutex::new(HashMap::with_hasher(Mix::default())));
        Ok(Self { shards })
    }

    fn shard(&self, ino: Ino) -> &Mutex<H::Mutex, Shard<H>> {
        &self.shards[(ino ^ ino >> 6) as usize % SHARDS]
    }

    /// The inode with this number; `Stale` if no inode has it.
    pub(crate) fn get<M: Medium>(&self, store: &Store<M, H>, ino: Ino) -> Result<Arc<Node<H>>> {
        let mut shard = self.shard(ino).lock();
        if let Some(node) = shard.get(&ino) {
            return Ok(node.clone());
        }
        let slot = store.table.find(ino).filter(|slot| slot.tail() != 0).ok_or(Error::Stale)?;
        let node = Arc::new(Node::new(slot, Life::Unloaded, 0));
        make_room(store, &mut shard)?;
        shard.insert(ino, node.clone());
        Ok(node)
    }

    /// Makes sure that [`Cache::insert`] of this inode can't fail.
    pub(crate) fn reserve<M: Medium>(&self, store: &Store<M, H>, ino: Ino) -> Result<()> {
        make_room(store, &mut self.shard(ino).lock())
    }

    /// Takes in a new inode, which is open so often. Room was reserved; should another
    /// thread have used it up, it is handed back: it is loaded from its log when it is wanted.
    pub(crate) fn insert(
        &self,
        slot: Slot,
        state: Box<State>,
        opens: u32,
    ) -> core::result::Result<(), Arc<Node<H>>> {
        let ino = slot.ino();
        let node = Arc::new(Node::new(slot, Life::Live(state), opens));
        let mut shard = self.shard(ino).lock();
        if shard.try_reserve(1).is_err() {
            return Err(node);
        }
        shard.insert(ino, node);
        Ok(())
    }

    /// Forgets an inode whose life has ended.
    pub(crate) fn remove(&self, ino: Ino) {
        self.shard(ino).lock().remove(&ino);
    }

    /// Calls `each` with every inode in memory.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(&Arc<Node<H>>)) {
        for shard in &self.shards {
            for node in shard.lock().values() {
                each(node);
            }
        }
    }

    /// Adds to `memory` what the inodes take, and returns how many there are and how many of them
    /// were in use just then. Waits for none of them: one that is in use may wait for what its
    /// user holds, and is weighed by what all inodes have. A shard is held while its list is copied.
    pub(crate) fn weigh(&self, memory: &mut IndexMemory) -> Result<(u64, u64)> {
        // What is in front of the value in an `Arc`: two counts.
        const NODE_BYTES: usize = 2 * size_of::<usize>();
        let (mut count, mut busy) = (0, 0);
        let mut nodes: Vec<Arc<Node<H>>> = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            nodes.try_reserve(shard.len())?;
            nodes.extend(shard.values().cloned());
            memory.inodes += shard.allocation_size() as u64;
            drop(shard);
            count += nodes.len() as u64;
            for node in nodes.drain(..) {
                memory.inodes += (NODE_BYTES + size_of::<Node<H>>()) as u64;
                match node.life.try_read().as_deref() {
                    Some(Life::Live(state)) => state.weigh(memory),
                    Some(Life::Unloaded | Life::Gone) => {}
                    None => {
                        busy += 1;
                        memory.inodes += size_of::<State>() as u64;
                    }
                }
            }
        }
        memory.inodes += list_bytes::<Mutex<H::Mutex, Shard<H>>>(self.shards.capacity());
        Ok((count, busy))
    }

    /// How many inodes are in memory.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

fn make_room<M: Medium, H: Host>(store: &Store<M, H>, shard: &mut Shard<H>) -> Result<()> {
    if shard.len() >= SHARD_LIMIT {
        let mut left = SHARD_LIMIT / 2;
        shard.retain(|_, node| {
            let dropped = left > 0 && may_drop(store, node);
            left -= usize::from(dropped);
            !dropped
        });
    }
    shard.try_reserve(1)?;
    Ok(())
}

/// Drops the index of an inode that nobody is using right now; says whether all of it can
/// go. (An open one keeps its count.) Its journal page, if nothing in it is wanted, becomes free.
fn may_drop<M: Medium, H: Host>(store: &Store<M, H>, node: &Arc<Node<H>>) -> bool {
    if Arc::strong_count(node) > 1 {
        return false;
    }
    let Some(mut life) = node.life.try_write() else { return false };
    if let Life::Live(state) = &mut *life {
        if state.dead || state.is_nameless() {
            return false;
        }
        if let Body::File(file) = &mut state.body
            && file.is_mapped()
        {
            return false;
        }
        if let Body::File(file) = &mut state.body
            && file.journal.release_idle(store).is_err()
        {
            return false;
        }
    }
    *life = Life::Unloaded;
    node.opens.load(Relaxed) == 0
}
