//! Memory by whole slots, for large blocks: they grow and move by their pages.
use super::{Backing, Memory, PAGE, PAGES, SLOT, runs};
use crate::sys;

/// How a block's pages are best mapped, once the lock is let go: none where they come when they are touched.
pub(crate) struct Block {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    /// Bytes at its start that were there before.
    pub(crate) old: usize,
    pub(crate) populate: Option<bool>,
}

impl Block {
    /// Has its new pages mapped.
    pub(crate) fn populated(self) -> usize {
        if let Some(by_reading) = self.populate {
            sys::populate(self.address + self.old, self.bytes - self.old, by_reading);
        }
        self.address
    }
}

impl Memory {
    /// A block of at least `bytes` at a multiple of `align`.
    pub(crate) fn alloc(&mut self, bytes: usize, align: usize, zeros: bool) -> Result<Block, i32> {
        self.space.reserve()?;
        let slots = bytes.max(1).div_ceil(SLOT);
        let first = self.space.find_run(slots, align).ok_or(libc::ENOMEM)?;
        self.space.set_taken(first, slots, true);
        if let Err(error) = self.back(first..first + slots) {
            self.space.set_taken(first, slots, false);
            self.drop_unused(first..first + slots);
            return Err(error);
        }
        self.use_slots(first, slots, zeros);
        Ok(self.block(first, slots, 0))
    }

    fn block(&self, first: usize, slots: usize, old: usize) -> Block {
        let all_pool =
            (first + old..first + slots).all(|at| self.space.look(at).backing == Backing::Pool);
        let populate = if all_pool { self.maps_by_reading(first + old) } else { None };
        let address = self.space.address(first);
        Block { address, bytes: slots * SLOT, old: old * SLOT, populate }
    }

    fn use_slots(&mut self, first: usize, slots: usize, zeros: bool) {
        for at in first..first + slots {
            self.set_idle(at, false);
            let address = self.space.address(at);
            let Some(slot) = self.space.slot(at) else {
                continue;
            };
            if zeros {
                // SAFETY: the slot is mapped, and nobody has it yet.
                let zero =
                    |from, to| unsafe { sys::zero(address + from * PAGE, (to - from) * PAGE) };
                runs(&slot.dirty, zero);
            }
            slot.dirty = [u64::MAX; PAGES / 64];
            slot.used = PAGES as u16;
            let backing = slot.backing;
            self.count_used(backing, SLOT as i64);
        }
    }

    fn spare_slots(&mut self, first: usize, slots: usize) {
        self.space.set_taken(first, slots, false);
        for at in first..first + slots {
            let Some(slot) = self.space.slot(at) else {
                continue;
            };
            slot.used = 0;
            let backing = slot.backing;
            self.count_used(backing, -(SLOT as i64));
            match backing {
                Backing::Pool => self.set_idle(at, true),
                _ => self.drop_dram(at),
            }
        }
    }

    /// Bytes of the block that begins at an address; none does, otherwise.
    pub(crate) fn block_bytes(&self, address: usize) -> Option<usize> {
        let at = self.space.slot_of(address)?;
        let run = self.space.look(at).run as usize;
        (run > 0 && self.space.address(at) == address).then_some(run * SLOT)
    }

    /// Takes a block back; whether one begins there.
    pub(crate) fn free(&mut self, address: usize) -> bool {
        match (self.block_bytes(address), self.space.slot_of(address)) {
            (Some(bytes), Some(first)) => {
                self.spare_slots(first, bytes / SLOT);
                true
            }
            _ => false,
        }
    }

    /// Makes a block larger or smaller, with what is in it; perhaps elsewhere. What fails leaves it as it was.
    pub(crate) fn resize(&mut self, address: usize, bytes: usize) -> Result<Block, i32> {
        let old = self.block_bytes(address).ok_or(libc::EINVAL)? / SLOT;
        let first = self.space.slot_of(address).ok_or(libc::EINVAL)?;
        let new = bytes.max(1).div_ceil(SLOT);
        if new <= old {
            if new < old {
                self.spare_slots(first + new, old - new);
                self.space.set_taken(first, new, true);
            }
            return Ok(self.block(first, new, new));
        }
        let more = new - old;
        let in_place = self.space.is_for_blocks(first, new)
            && self.space.first_taken(first + old, more).is_none();
        let to =
            if in_place { first } else { self.space.find_run(new, SLOT).ok_or(libc::ENOMEM)? };
        self.space.set_taken(to + old, more, true);
        if let Err(error) = self.back(to + old..to + new) {
            self.space.set_taken(to + old, more, false);
            self.drop_unused(to + old..to + new);
            return Err(error);
        }
        if !in_place && let Err(error) = self.carry(first, to, old) {
            self.space.set_taken(to + old, more, false);
            self.drop_unused(to + old..to + new);
            return Err(error);
        }
        self.use_slots(to + old, more, false);
        self.space.set_taken(to, new, true);
        Ok(self.block(to, new, old))
    }

    /// Moves what backs slots to others, which no block has.
    fn carry(&mut self, from: usize, to: usize, slots: usize) -> Result<(), i32> {
        self.release_idle(to, slots);
        for at in 0..slots {
            if let Err(error) = self.move_slot(from + at, to + at) {
                for back in 0..at {
                    let _ = self.move_slot(to + back, from + back);
                }
                return Err(error);
            }
        }
        self.space.set_taken(from, slots, false);
        self.stats.moved += (slots * SLOT) as u64;
        Ok(())
    }
}
