//! Inode tables: per lane a chain of pieces on the medium, and in memory which
//! slots are free and the last seal of each inode's log (PROTOCOL I5, I22).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lock_api::{Mutex, RwLock};
use lode_pmem::Medium;

use super::{Spread, Store, halves};
use crate::gauges::{list_bytes, tree_bytes};
use crate::layout::{Anchor, HEAD_AT, LANE_CHAIN_AT, LINE, Link, PieceHeader, SLOT_BYTES, ino_of};
use crate::space::Run;
use crate::{Error, Host, Ino, PAGE_BYTES, Result, Rule};

/// A piece of inode table: where it is, and the tails of its inodes' logs.
pub(crate) struct Piece {
    pub(crate) header: PieceHeader,
    /// A power of two, of which [`place`] says whose is which.
    tails: Vec<TailSeal>,
}

/// What follows each other is so many tails apart: more than two lines.
const TAILS_APART: usize = 9;

/// Which of `count` tails slot `index` has: inodes that were made one after the other, and are changed by several threads, have theirs in
/// different lines.
#[inline]
fn place(index: u32, count: usize) -> usize {
    (index as usize).wrapping_mul(TAILS_APART) & (count.wrapping_sub(1))
}

/// The last seal of a log, which a checkpoint will tell: with its complement, so that a bit that flips in
/// memory is noticed.
#[derive(Default)]
struct TailSeal {
    seal: AtomicU64,
    complement: AtomicU64,
}

impl TailSeal {
    fn set(&self, seal: u64) {
        self.seal.store(seal, Relaxed);
        self.complement.store(!seal, Relaxed);
    }

    /// Whether it is what was set, if nobody sets it now.
    fn is_whole(&self) -> bool {
        self.seal.load(Relaxed) == !self.complement.load(Relaxed)
    }
}

/// A slot taken for a new inode, or the one an inode lives in.
#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) piece: Arc<Piece>,
    pub(crate) index: u32,
}

/// Which of 64 slots are free, a bit for each: with its complement, as what a new inode takes must not be a living one's.
#[derive(Clone, Copy)]
struct FreeWord {
    word: u64,
    complement: u64,
}

impl FreeWord {
    const NONE: Self = Self { word: 0, complement: !0 };

    /// What is free, as far as that is known: where a bit has flipped, none is until the pool is opened again.
    fn get(&mut self) -> u64 {
        if self.word != !self.complement {
            *self = Self::NONE;
        }
        self.word
    }

    fn set(&mut self, word: u64) {
        *self = Self { word, complement: !word };
    }
}

struct Slots {
    piece: Arc<Piece>,
    free: Vec<FreeWord>,
    /// So many are free, but for those of which that is not known any more.
    free_count: u32,
}

#[derive(Default)]
struct Chain {
    pieces: Vec<Slots>,
    free_count: u64,
}

/// The inode tables of all lanes.
pub(crate) struct Table<H: Host> {
    chains: Spread<Mutex<H::Mutex, Chain>>,
    by_ino: RwLock<H::RwLock, BTreeMap<Ino, Arc<Piece>>>,
    /// Inodes in use, counted up and down in any lane.
    used: Spread<AtomicU64>,
}

impl Piece {
    /// A piece whose inodes are not known yet.
    pub(crate) fn new(header: PieceHeader) -> Result<Self> {
        let count = (PAGE_BYTES / SLOT_BYTES) << header.log2_pages;
        let mut tails = Vec::new();
        tails.try_reserve_exact(count as usize)?;
        tails.resize_with(count as usize, TailSeal::default);
        tails.iter().for_each(|tail: &TailSeal| tail.set(0));
        Ok(Self { header, tails })
    }

    /// Slots, the header's included.
    pub(crate) fn slots(&self) -> u32 {
        self.tails.len() as u32
    }

    /// Pages of the piece.
    pub(crate) fn run(&self) -> Run {
        Run { page: self.header.page, pages: 1 << self.header.log2_pages }
    }

    /// Number of the inode in slot `index`.
    pub(crate) fn ino(&self, index: u32) -> Ino {
        ino_of(self.header.page * PAGE_BYTES) + u64::from(index)
    }

    fn of(&self, index: u32) -> Option<&TailSeal> {
        if index < self.slots() { self.tails.get(place(index, self.tails.len())) } else { None }
    }

    /// The last seal of the log of the inode in slot `index`, 0 for none.
    pub(crate) fn tail(&self, index: u32) -> u64 {
        self.of(index).map_or(0, |tail| tail.seal.load(Relaxed))
    }

    /// Notes the last seal of a log.
    pub(crate) fn set_tail(&self, index: u32, seal: u64) {
        if let Some(tail) = self.of(index) {
            tail.set(seal);
        }
    }

    /// A bit of a tail flips.
    #[cfg(test)]
    pub(crate) fn flip_tail(&self, index: u32, bit: u64) {
        if let Some(tail) = self.of(index) {
            tail.seal.fetch_xor(bit, Relaxed);
        }
    }

    /// Whether all tails are what was set, if nobody sets them now.
    pub(crate) fn is_whole(&self) -> bool {
        self.tails.iter().all(TailSeal::is_whole)
    }

    /// Offset of the word that links to the next piece.
    pub(super) fn next_at(&self) -> u64 {
        self.header.page * PAGE_BYTES + HEAD_AT
    }
}

impl Slot {
    /// Number of the inode.
    pub(crate) fn ino(&self) -> Ino {
        self.piece.ino(self.index)
    }

    /// The last seal of its log, 0 for none.
    pub(crate) fn tail(&self) -> u64 {
        self.piece.tail(self.index)
    }

    /// Notes the last seal of its log.
    pub(crate) fn set_tail(&self, seal: u64) {
        self.piece.set_tail(self.index, seal);
    }
}

impl Slots {
    /// Every slot whose inode has no tail is free.
    fn new(piece: Arc<Piece>) -> Result<Self> {
        let words = piece.slots().div_ceil(64) as usize;
        let mut free = Vec::new();
        free.try_reserve_exact(words)?;
        free.resize(words, FreeWord::NONE);
        let mut slots = Self { piece, free, free_count: 0 };
        for index in 1..slots.piece.slots() {
            if slots.piece.tail(index) == 0 {
                slots.give(index);
            }
        }
        Ok(slots)
    }

    /// Makes a slot a free one; says whether it was not.
    fn give(&mut self, index: u32) -> bool {
        self.change(index, true)
    }

    /// Makes a slot one that is not free; says whether it was.
    fn keep(&mut self, index: u32) -> bool {
        self.change(index, false)
    }

    fn change(&mut self, index: u32, is_free: bool) -> bool {
        let Some(held) = self.free.get_mut(index as usize / 64) else { return false };
        let (word, bit) = (held.get(), 1 << (index % 64));
        if (word & bit != 0) == is_free {
            return false;
        }
        held.set(word ^ bit);
        self.free_count = match is_free {
            true => self.free_count + 1,
            false => self.free_count.saturating_sub(1),
        };
        true
    }

    fn take(&mut self) -> Option<u32> {
        for (at, held) in self.free.iter_mut().enumerate() {
            let word = held.get();
            if word != 0 {
                held.set(word & (word - 1));
                self.free_count = self.free_count.saturating_sub(1);
                return Some(at as u32 * 64 + word.trailing_zeros());
            }
        }
        // (Of what was counted something is not known any more.)
        self.free_count = 0;
        None
    }

    /// Whether no slot is in use. Counted where it is likely: nothing is given up for a count alone.
    fn is_empty(&mut self) -> bool {
        let all = self.piece.slots() - 1;
        self.free_count == all
            && self.free.iter_mut().map(|held| held.get().count_ones()).sum::<u32>() == all
    }

    /// A bit of what is free flips.
    #[cfg(test)]
    fn flip(&mut self, at: usize, bit: u32) {
        if let Some(held) = self.free.get_mut(at) {
            held.word ^= 1 << (bit % 64);
        }
    }
}

impl<H: Host> Table<H> {
    /// Tables of `lanes` lanes, without pieces.
    #[inline(never)]
    pub(crate) fn new(lanes: usize) -> Result<Self> {
        let chains = Spread::new(lanes, || Mutex::new(Chain::default()))?;
        let used = Spread::new(lanes, || AtomicU64::new(0))?;
        Ok(Self { chains, by_ino: RwLock::new(BTreeMap::new()), used })
    }

    /// Inodes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.sum()
    }

    /// Free slots in all pieces.
    pub(crate) fn free(&self) -> u64 {
        self.chains.iter().map(|chain| chain.lock().free_count).sum()
    }

    /// Takes in a piece, last in its lane's chain, its tails set.
    pub(crate) fn add_piece(&self, piece: Arc<Piece>) -> Result<()> {
        let lane = usize::from(piece.header.lane);
        let chain = self.chains.get(lane);
        let chain = chain.ok_or(Error::corrupt("table piece of an unknown lane", 0))?;
        let slots = Slots::new(piece.clone())?;
        let used = u64::from(piece.slots() - 1 - slots.free_count);
        let mut chain = chain.lock();
        chain.pieces.try_reserve(1)?;
        chain.free_count += u64::from(slots.free_count);
        chain.pieces.push(slots);
        drop(chain);
        self.used.of(lane).fetch_add(used, Relaxed);
        self.by_ino.write().insert(piece.ino(0), piece);
        Ok(())
    }

    /// The slot an inode number means, if it is in a piece of table.
    pub(crate) fn find(&self, ino: Ino) -> Option<Slot> {
        let pieces = self.by_ino.read();
        let (first, piece) = pieces.range(..=ino).next_back()?;
        let index = u32::try_from(ino - first).ok()?;
        (index > 0 && index < piece.slots()).then(|| Slot { piece: piece.clone(), index })
    }

    /// Bytes of memory that the tables take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let mut bytes = self.chains.memory_bytes() + self.used.memory_bytes();
        for chain in self.chains.iter() {
            let chain = chain.lock();
            bytes += list_bytes::<Slots>(chain.pieces.capacity());
            for slots in &chain.pieces {
                bytes += list_bytes::<FreeWord>(slots.free.capacity());
                bytes += size_of::<Piece>() as u64;
                bytes += list_bytes::<TailSeal>(slots.piece.tails.capacity());
            }
        }
        bytes + tree_bytes(self.by_ino.read().len(), size_of::<(Ino, Arc<Piece>)>())
    }

    /// Does something while the chain of a lane stays as it is.
    pub(crate) fn with_chain<R>(&self, lane: u32, what: impl FnOnce() -> R) -> R {
        let _chain = self.chains.get(lane as usize).map(|chain| chain.lock());
        what()
    }

    /// Calls `each` with every piece, lane by lane, in the order of the chains.
    pub(crate) fn for_each_piece(
        &self,
        each: &mut dyn FnMut(&Arc<Piece>) -> Result<()>,
    ) -> Result<()> {
        for chain in self.chains.iter() {
            for slots in &chain.lock().pieces {
                each(&slots.piece)?;
            }
        }
        Ok(())
    }

    /// Frees a slot after its inode's death is settled, or when a create did not happen.
    pub(crate) fn give_slot(&self, ino: Ino) {
        let Some(slot) = self.find(ino) else { return };
        let Some(chain) = self.chains.get(usize::from(slot.piece.header.lane)) else { return };
        let mut chain = chain.lock();
        let found = chain.pieces.iter_mut().find(|slots| Arc::ptr_eq(&slots.piece, &slot.piece));
        if found.is_some_and(|slots| slots.give(slot.index)) {
            chain.free_count += 1;
        }
    }

    /// Takes a slot out of the free ones: a dead inode is kept there for snapshots.
    pub(crate) fn keep_slot(&self, ino: Ino) {
        let Some(slot) = self.find(ino) else { return };
        let Some(chain) = self.chains.get(usize::from(slot.piece.header.lane)) else { return };
        let mut chain = chain.lock();
        let found = chain.pieces.iter_mut().find(|slots| Arc::ptr_eq(&slots.piece, &slot.piece));
        if found.is_some_and(|slots| slots.keep(slot.index)) {
            chain.free_count = chain.free_count.saturating_sub(1);
        }
    }

    /// Counts an inode that came to be, or ended.
    pub(crate) fn count_used(&self, slot: &Slot, born: bool) {
        self.used.count(usize::from(slot.piece.header.lane), born);
    }

    /// A bit of what slots are free flips: of a lane that has any.
    #[cfg(test)]
    pub(crate) fn flip_some(&self, roll: &mut dyn FnMut(u64) -> u64) -> Option<()> {
        let mut chain = self.chains.get(0)?.lock();
        let pieces = chain.pieces.len() as u64;
        let slots =
            (pieces > 0).then(|| roll(pieces)).and_then(|at| chain.pieces.get_mut(at as usize))?;
        let words = slots.free.len() as u64;
        slots.flip(roll(words) as usize, roll(64) as u32);
        Some(())
    }

    fn take_from(&self, lane: usize) -> Option<Slot> {
        self.chains.get(lane)?.lock().take()
    }
}

impl Chain {
    fn take(&mut self) -> Option<Slot> {
        if self.free_count == 0 {
            return None;
        }
        for slots in self.pieces.iter_mut().rev().filter(|slots| slots.free_count > 0) {
            if let Some(index) = slots.take() {
                self.free_count = self.free_count.saturating_sub(1);
                return Some(Slot { piece: slots.piece.clone(), index });
            }
        }
        self.free_count = 0;
        None
    }
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Takes a slot for a new inode: of the lane's own table, of a grown one, of another lane's.
    pub(crate) fn take_slot(&self) -> Result<Slot> {
        let lane = self.lane();
        if let Some(slot) = self.table.take_from(lane) {
            return Ok(slot);
        }
        if self.round_is_due() {
            self.round()?;
            if let Some(slot) = self.table.take_from(lane) {
                return Ok(slot);
            }
        }
        let full = match self.take_grown(lane) {
            Ok(slot) => return Ok(slot),
            Err(error) => error,
        };
        let lanes = self.table.chains.iter().count();
        for step in 0..lanes {
            let other = (lane + step) % lanes;
            if let Some(slot) = self.table.take_from(other) {
                return Ok(slot);
            }
        }
        let grown = if self.reclaim()? { self.take_grown(lane) } else { Err(full) };
        // (Of the smallest piece.)
        let pages = if self.geometry.twin_pages == 0 { 1 } else { 2 };
        self.again(grown, self.reserve() + pages, &|| self.take_grown(lane))
    }

    /// Adds a piece to a lane's chain: zeroed and fenced, then linked and fenced (I22). Takes a
    /// slot of it under the same lock: background work takes away pieces that are empty.
    fn take_grown(&self, lane: usize) -> Result<Slot> {
        let chain = self.table.chains.get(lane).ok_or(Error::Invalid)?;
        let mut chain = chain.lock();
        if let Some(slot) = chain.take() {
            return Ok(slot);
        }
        let run = self.take_piece()?;
        let piece = match self.new_piece(lane, run) {
            Ok(piece) => Arc::new(piece),
            Err(error) => {
                self.give_metadata(run);
                return Err(error);
            }
        };
        let slots = Slots::new(piece.clone());
        let (slots, ()) = match (slots, chain.pieces.try_reserve(1)) {
            (Ok(slots), Ok(())) => (slots, ()),
            _ => {
                self.give_metadata(run);
                return Err(Error::NoMemory);
            }
        };
        let link_at = match chain.pieces.last() {
            Some(last) => last.piece.next_at(),
            None => self.geometry.lane_at(lane as u32) + LANE_CHAIN_AT,
        };
        self.store_piece(&piece, link_at)?;
        chain.free_count += u64::from(slots.free_count);
        chain.pieces.push(slots);
        self.table.by_ino.write().insert(piece.ino(0), piece);
        chain.take().ok_or(Error::NoSpace)
    }

    /// The largest piece that space allows, up to the pool's usual size.
    fn take_piece(&self) -> Result<Run> {
        for log2 in (0..=self.piece_log2).rev() {
            let pages = if self.geometry.twin_pages == 0 { 1 } else { 2 } << log2;
            if self.space.free_pages() < pages + self.reserve() {
                continue;
            }
            match self.take_table_pages(1 << log2) {
                Err(Error::NoSpace) => {}
                result => return result,
            }
        }
        Err(Error::NoSpace)
    }

    fn new_piece(&self, lane: usize, run: Run) -> Result<Piece> {
        Piece::new(PieceHeader {
            log2_pages: run.pages.trailing_zeros() as u8,
            lane: lane as u8,
            page: run.page,
            nonce: self.nonce(),
        })
    }

    fn store_piece(&self, piece: &Piece, link_at: u64) -> Result<()> {
        let counters = self.counters();
        let at = piece.header.page * PAGE_BYTES;
        let bytes = piece.run().pages * PAGE_BYTES;
        let mut window = self.door.window(2 * bytes, counters);
        window.store_line(at, &piece.header.line(&self.seed, at, None));
        let zeroed = !self.host.leaves_out(Rule::PieceZeroed);
        for at in [Some(at), self.door.twin_of(at)].into_iter().flatten().filter(|_| zeroed) {
            window.zero_nt(at + LINE, bytes - LINE);
        }
        drop(window);
        self.door.fence(counters)?;
        self.store_link(link_at, Some(Link::new(piece.header.page, piece.header.nonce, false)));
        Ok(self.door.fence(counters)?)
    }

    /// Stores a link word; the caller fences.
    pub(crate) fn store_link(&self, at: u64, link: Option<Link>) {
        let none = Link::none(&self.seed, at);
        let word = link.map_or(none, |link| link.word(&self.seed, at));
        let mut window = self.door.window(8, self.counters());
        if self.host.leaves_out(Rule::LinkWhole) {
            return halves(&mut window, at, word);
        }
        self.store_word(&mut window, at, word);
    }

    /// Takes empty pieces out of their chains and frees their pages; the piece that
    /// holds the root stays, and so does one whose slots still wait for a round.
    pub(crate) fn release_empty_pieces(&self) -> Result<()> {
        for (lane, chain) in self.table.chains.iter().enumerate() {
            let mut chain = chain.lock();
            let mut at = 0;
            while let Some(slots) = chain.pieces.get_mut(at) {
                if !slots.is_empty() {
                    at += 1;
                    continue;
                }
                let link_at = match at.checked_sub(1).and_then(|before| chain.pieces.get(before)) {
                    Some(before) => before.piece.next_at(),
                    None => self.geometry.lane_at(lane as u32) + LANE_CHAIN_AT,
                };
                let next = chain
                    .pieces
                    .get(at + 1)
                    .map(|next| Link::new(next.piece.header.page, next.piece.header.nonce, false));
                self.store_link(link_at, next);
                self.door.fence(self.counters())?;
                let slots = chain.pieces.remove(at);
                chain.free_count = chain.free_count.saturating_sub(u64::from(slots.free_count));
                self.table.by_ino.write().remove(&slots.piece.ino(0));
                self.give_metadata(slots.piece.run());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    /// Inodes that one thread makes and several change do not have these wait for each other.
    #[test]
    fn tails_of_inodes_in_a_row_are_in_lines_apart_and_each_has_its_own() {
        for log2_pages in [0, 3, 6] {
            let header = PieceHeader { log2_pages, lane: 0, page: 9, nonce: 1 };
            let piece = Piece::new(header).unwrap();
            let mut places: Vec<_> = (0..piece.slots())
                .map(|index| core::ptr::from_ref(piece.of(index).unwrap()).addr())
                .collect();
            let apart = places.windows(2).all(|two| two[0].abs_diff(two[1]) >= 2 * LINE as usize);
            // (Those of the first piece that a lane has may be few.)
            assert!(apart || log2_pages == 0);
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), piece.slots() as usize);
            assert!(piece.of(piece.slots()).is_none());
        }
    }
}
