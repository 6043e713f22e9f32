//! The inodes in memory.
//!
//! An inode is loaded when it is first touched, and may be dropped when nobody uses it: its log tells
//! it again. Where there is a limit for the memory of indexes, inodes that were not touched for a
//! while are dropped when others need the room (second chance: a hand goes round, and takes what was
//! not touched twice since it last came by). Guarantees: what is in use stays, as does what no log
//! tells: what is mapped, has no name, or ended while it is open. Of an open inode that is dropped,
//! how often it is open is kept.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::Hasher;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};
use lock_api::Mutex;
use lode_pmem::Medium;

use super::mix::Mix;
use super::node::Node;
use crate::store::{Room, Spread, Store};
use crate::{Error, Host, IndexMemory, Ino, Result};

const SHARDS: usize = 64;
/// Inodes in a row that are in the same shard: what one thread makes and works with is in few of them, and who works with others
/// does not share these.
const ROW: u64 = 64;
/// Inodes of a shard that are looked at in one go, at most.
const LOOKS: usize = 8;

/// A part of the inodes.
struct Shard<H: Host> {
    nodes: HashTable<(Ino, Arc<Node<H>>)>,
    /// How often those are open that were dropped.
    opens: HashMap<Ino, u32, Mix>,
    /// Where the hand is.
    hand: usize,
    /// Bytes by which its inodes have grown since they were last told to the room.
    untold: i64,
}

fn hash_of(ino: Ino) -> u64 {
    let mut mix = Mix::default();
    mix.write_u64(ino);
    mix.finish()
}

impl<H: Host> Shard<H> {
    fn new() -> Self {
        let (nodes, opens) = (HashTable::new(), HashMap::with_hasher(Mix::default()));
        Self { nodes, opens, hand: 0, untold: 0 }
    }

    /// Counts an inode that came or went. What others count, too, is told little by little: all threads share it.
    #[inline]
    fn count(&mut self, came: bool, room: &Room) {
        self.untold += if came { 1 } else { -1 } * Node::<H>::BYTES as i64;
        if self.untold.unsigned_abs() > room.slack() / SHARDS as u64 {
            self.tell(room);
        }
    }

    fn tell(&mut self, room: &Room) {
        let untold = core::mem::take(&mut self.untold);
        let bytes = untold.unsigned_abs();
        if untold > 0 { room.change(0, bytes) } else { room.change(bytes, 0) }
    }

    fn list_bytes(&self) -> u64 {
        (self.nodes.allocation_size() + self.opens.allocation_size()) as u64
    }

    fn get(&self, ino: Ino) -> Option<&Arc<Node<H>>> {
        self.nodes.find(hash_of(ino), |(other, _)| *other == ino).map(|(_, node)| node)
    }

    /// Makes room in the lists for one more.
    fn reserve(&mut self, room: &Room) -> Result<()> {
        if self.nodes.len() == self.nodes.capacity() {
            let before = self.list_bytes();
            self.nodes.try_reserve(1, |(ino, _)| hash_of(*ino))?;
            room.change(before, self.list_bytes());
        }
        Ok(())
    }

    /// Takes an inode in, for which room was made.
    fn put(&mut self, ino: Ino, node: Arc<Node<H>>, room: &Room) {
        let same = |(other, _): &(Ino, _)| *other == ino;
        match self.nodes.entry(hash_of(ino), same, |(ino, _)| hash_of(*ino)) {
            Entry::Occupied(mut there) => there.get_mut().1 = node,
            Entry::Vacant(place) => {
                place.insert((ino, node));
                self.count(true, room);
            }
        }
    }

    fn remove(&mut self, ino: Ino, room: &Room) {
        if let Ok(there) = self.nodes.find_entry(hash_of(ino), |(other, _)| *other == ino) {
            there.remove();
            self.count(false, room);
        }
    }

    /// Moves the hand over some inodes, or once around, and drops those that can go into `dropped`.
    /// Returns how many it has looked at.
    fn sweep<M: Medium>(
        &mut self,
        store: &Store<M, H>,
        dropped: &mut [Option<Arc<Node<H>>>; LOOKS],
    ) -> usize {
        let (places, mut looks) = (self.nodes.num_buckets(), 0);
        for _ in 0..places {
            let Some(into) = dropped.get_mut(looks) else { break };
            self.hand = if self.hand + 1 < places { self.hand + 1 } else { 0 };
            let Some((ino, node)) = self.nodes.get_bucket_mut(self.hand) else { continue };
            looks += 1;
            // Nobody else has it, nor gets it: the shard is locked.
            let Some(node) = Arc::get_mut(node) else { continue };
            if node.take_touch() || !node.may_drop(store) {
                continue;
            }
            let (ino, opens) = (*ino, node.opens.count());
            if opens > 0 && !self.keep_opens(ino, opens, &store.room) {
                continue;
            }
            if let Ok(there) = self.nodes.get_bucket_entry(self.hand) {
                let ((_, node), _) = there.remove();
                self.count(false, &store.room);
                *into = Some(node);
            }
        }
        self.shorten(&store.room);
        self.tell(&store.room);
        looks
    }

    /// Keeps how often an inode is open that is about to be dropped; says whether there is memory.
    fn keep_opens(&mut self, ino: Ino, opens: u32, room: &Room) -> bool {
        let before = self.list_bytes();
        let there_is = self.opens.try_reserve(1).is_ok();
        room.change(before, self.list_bytes());
        if there_is {
            self.opens.insert(ino, opens);
        }
        there_is
    }

    /// Gives back what lists of few inodes take that were many.
    fn shorten(&mut self, room: &Room) {
        let before = self.list_bytes();
        if self.nodes.capacity() > 4 * self.nodes.len() + LOOKS {
            let mut short = HashTable::new();
            let hasher = |(ino, _): &(Ino, _)| hash_of(*ino);
            if short.try_reserve(2 * self.nodes.len(), hasher).is_ok() {
                for entry in self.nodes.drain() {
                    short.insert_unique(hash_of(entry.0), entry, hasher);
                }
                (self.nodes, self.hand) = (short, 0);
            }
        }
        if self.opens.capacity() > 4 * self.opens.len() + LOOKS {
            let mut short = HashMap::with_hasher(Mix::default());
            if short.try_reserve(2 * self.opens.len()).is_ok() {
                short.extend(self.opens.drain());
                self.opens = short;
            }
        }
        room.change(before, self.list_bytes());
    }
}

/// All inodes in memory, by number.
pub(crate) struct Cache<H: Host> {
    shards: Spread<Mutex<H::Mutex, Shard<H>>>,
    /// The shard that the hand is in.
    hand: AtomicUsize,
}

impl<H: Host> Cache<H> {
    /// An empty cache.
    pub(crate) fn new() -> Result<Self> {
        let shards = Spread::new(SHARDS, || Mutex::new(Shard::new()))?;
        Ok(Self { shards, hand: AtomicUsize::new(0) })
    }

    fn shard(&self, ino: Ino) -> &Mutex<H::Mutex, Shard<H>> {
        self.shards.of(hash_of(ino / ROW) as usize % SHARDS)
    }

    /// The inode with this number; `Stale` if no inode has it.
    pub(crate) fn get<M: Medium>(&self, store: &Store<M, H>, ino: Ino) -> Result<Arc<Node<H>>> {
        let mut shard = self.shard(ino).lock();
        if let Some(node) = shard.get(ino) {
            node.expect();
            node.touch();
            return Ok(node.clone());
        }
        let slot = store.table.find(ino).filter(|slot| slot.tail() != 0).ok_or(Error::Stale)?;
        shard.reserve(&store.room)?;
        let opens = shard.opens.remove(&ino).unwrap_or(0);
        let node = Arc::new(Node::new(slot, None, opens));
        shard.put(ino, node.clone(), &store.room);
        drop(shard);
        self.make_room(store);
        Ok(node)
    }

    /// The inode with this number, if it is in memory.
    pub(crate) fn peek(&self, ino: Ino) -> Option<Arc<Node<H>>> {
        self.shard(ino).lock().get(ino).cloned()
    }

    /// The inode with this number as a snapshot has it; `view` is what the number has besides that of the inode.
    pub(crate) fn get_view<M: Medium>(
        &self,
        store: &Store<M, H>,
        ino: Ino,
        view: Ino,
    ) -> Result<Arc<Node<H>>> {
        let mut shard = self.shard(ino).lock();
        if let Some(node) = shard.get(ino) {
            node.touch();
            return Ok(node.clone());
        }
        let slot = store.table.find(ino & !view).ok_or(Error::Stale)?;
        shard.reserve(&store.room)?;
        let opens = shard.opens.remove(&ino).unwrap_or(0);
        let node = Arc::new(Node::of_view(slot, view, opens));
        shard.put(ino, node.clone(), &store.room);
        drop(shard);
        self.make_room(store);
        Ok(node)
    }

    /// Ends all inodes of a snapshot, one by one: that needs no memory.
    pub(crate) fn end_views(&self, room: &Room, is_of: &dyn Fn(Ino) -> bool) {
        for shard in self.shards.iter() {
            loop {
                let mut shard = shard.lock();
                let next = shard.nodes.iter().find(|it| is_of(it.0)).map(|it| it.1.clone());
                let Some(node) = next else {
                    shard.opens.retain(|ino, _| !is_of(*ino));
                    break;
                };
                shard.remove(node.ino(), room);
                drop(shard);
                node.end_view(room);
            }
        }
    }

    /// The inode with this number, which is about to be closed, if it is in memory. Where it was
    /// dropped, it is closed.
    pub(crate) fn get_to_close(&self, ino: Ino) -> Option<Arc<Node<H>>> {
        let mut shard = self.shard(ino).lock();
        if let Some(node) = shard.get(ino) {
            return Some(node.clone());
        }
        let opens = shard.opens.get_mut(&ino)?;
        *opens -= 1;
        if *opens == 0 {
            shard.opens.remove(&ino);
        }
        None
    }

    /// How often the inode with this number is open, in memory or dropped.
    pub(crate) fn opens(&self, ino: Ino) -> u32 {
        let shard = self.shard(ino).lock();
        match shard.get(ino) {
            Some(node) => node.opens.count(),
            None => shard.opens.get(&ino).copied().unwrap_or(0),
        }
    }

    /// Makes sure that [`Cache::insert`] of this inode can't fail.
    pub(crate) fn reserve<M: Medium>(&self, store: &Store<M, H>, ino: Ino) -> Result<()> {
        self.shard(ino).lock().reserve(&store.room)
    }

    /// Takes in a new inode, which was weighed and whose log ends with the seal `tail`: from here on its number leads
    /// to it. Room was reserved; should another thread have used it up, it is handed back: it is loaded from its
    /// log when it is wanted.
    pub(crate) fn insert<M: Medium>(
        &self,
        store: &Store<M, H>,
        mut node: Arc<Node<H>>,
        tail: u64,
    ) -> core::result::Result<Arc<Node<H>>, Arc<Node<H>>> {
        let ino = node.ino();
        let mut shard = self.shard(ino).lock();
        // In one step with the rest: who found the tail alone would make another node of it.
        node.slot.set_tail(tail);
        if shard.reserve(&store.room).is_err() {
            drop(shard);
            if let Some(node) = Arc::get_mut(&mut node) {
                node.take_out(&store.room);
            }
            return Err(node);
        }
        shard.put(ino, Arc::clone(&node), &store.room);
        drop(shard);
        self.make_room(store);
        Ok(node)
    }

    /// Forgets an inode whose life has ended.
    pub(crate) fn remove(&self, room: &Room, ino: Ino) {
        self.shard(ino).lock().remove(ino, room);
    }

    /// Drops inodes that were not wanted for a while, where all together take more than they may.
    /// What others use is passed over, and what is too much may stay so for some calls.
    #[inline]
    pub(crate) fn make_room<M: Medium>(&self, store: &Store<M, H>) {
        if store.room.is_over() {
            self.drop_some(store, store.room.looks());
        }
    }

    /// The same, and goes twice around if it takes that.
    pub(crate) fn make_all_room<M: Medium>(&self, store: &Store<M, H>) {
        if store.room.is_over() {
            self.drop_some(store, 2 * (self.len() + SHARDS) as u64);
        }
    }

    #[inline(never)]
    fn drop_some<M: Medium>(&self, store: &Store<M, H>, looks: u64) {
        let mut left = looks;
        while left > 0 && store.room.is_short() {
            let at = self.hand.fetch_add(1, Relaxed) % SHARDS;
            let mut dropped = [const { None }; LOOKS];
            let shard = self.shards.get(at).and_then(Mutex::try_lock);
            let looked = shard.map_or(0, |mut shard| shard.sweep(store, &mut dropped));
            left = left.saturating_sub(looked.max(1) as u64);
            // What it takes to free them is none of the shard's matter.
            let mut count = 0;
            for node in dropped.iter_mut().flatten().filter_map(Arc::get_mut) {
                node.take_out(&store.room);
                count += 1;
            }
            store.room.count_dropped(count);
        }
    }

    /// Calls `each` with every inode in memory.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(&Arc<Node<H>>)) {
        for shard in self.shards.iter() {
            for (_, node) in &shard.lock().nodes {
                each(node);
            }
        }
    }

    /// Adds to `memory` what the inodes take, and returns how many there are and how many of them
    /// were in use just then. Waits for none of them: one that is in use may wait for what its
    /// user holds, and is weighed by what all inodes have. A shard is held while its list is copied.
    pub(crate) fn weigh(&self, memory: &mut IndexMemory) -> Result<(u64, u64)> {
        let (mut count, mut busy) = (0, 0);
        let mut nodes: Vec<Arc<Node<H>>> = Vec::new();
        for shard in self.shards.iter() {
            let shard = shard.lock();
            nodes.try_reserve(shard.nodes.len())?;
            nodes.extend(shard.nodes.iter().map(|(_, node)| node.clone()));
            memory.inodes += shard.list_bytes();
            drop(shard);
            count += nodes.len() as u64;
            for node in nodes.drain(..) {
                memory.inodes += Node::<H>::BYTES;
                busy += u64::from(node.weigh(memory));
            }
        }
        Ok((count, busy))
    }

    /// Bytes that are taken without any inode.
    pub(crate) fn standing_bytes(&self) -> u64 {
        self.shards.memory_bytes()
    }

    /// How many inodes are in memory.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().nodes.len()).sum()
    }
}
