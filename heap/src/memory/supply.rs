//! Where a slot's chunk comes from.
use core::ops::Range;

use super::{Area, Backing, File, Memory, READY, SLOT, Slot};
use crate::session::{Answer, Lost};
use crate::{keeper, sys};

/// What came of asking the owner.
pub(crate) enum Supply {
    /// At least one chunk is ready.
    Ready,
    /// The owner says no.
    Refused,
    /// There is no owner.
    NoOwner,
}

impl Memory {
    /// Sees to it that there is an owner, where there can be one.
    pub(crate) fn meet(&mut self) -> Result<(), Lost> {
        if self.session.is_open() {
            return Ok(());
        }
        if self.settings.socket.bytes().is_empty() || !self.session.may_try() {
            return Err(Lost);
        }
        // (Only its locks are left of what was ready: there is nobody to give it to.)
        self.put_ready_back();
        let settings = self.settings;
        let pool = self.session.open(&settings)?;
        if self.adopt(pool).is_err() {
            self.session.close();
            return Err(Lost);
        }
        self.stats.owners += 1;
        self.hold_all();
        // It listens to another socket until then.
        keeper::wake(self);
        Ok(())
    }

    /// Tells a new owner what is this program's.
    fn hold_all(&mut self) {
        let mut batch = [0_u32; READY];
        let mut count = 0;
        let identity = self.file(self.file).identity;
        let mut at = 0;
        while let Some(slot) = self.space.skip_unused(at) {
            at = slot + 1;
            let found = self.space.look(slot);
            if found.backing != Backing::Pool || self.file(found.file).identity != identity {
                continue;
            }
            if count == READY {
                if self.session.hold(&batch).is_err() {
                    return self.session.close();
                }
                count = 0;
            }
            push(&mut batch, &mut count, found.chunk);
        }
        let rest = batch.get(..count).unwrap_or_default();
        if count > 0 && self.session.hold(rest).is_err() {
            self.session.close();
        }
    }

    /// Whether the owner's memory is a device's, whose pieces may have to be as large as chunks.
    pub(crate) fn maps_whole_chunks(&self) -> bool {
        self.file(self.file).device
    }

    /// Asks for so many chunks, 512 at most at a time. What comes is locked already.
    pub(crate) fn request(&mut self, count: usize) -> Supply {
        for _ in 0..2 {
            if self.meet().is_err() {
                return Supply::NoOwner;
            }
            if !self.file(self.file).is_there() {
                if !self.session.is_mine() {
                    continue;
                }
                // Nothing of it could be mapped, or unlocked.
                self.stats.refused += 1;
                return Supply::Refused;
            }
            let answer = self.session.take(count.min(READY));
            if self.session.has_wishes() {
                keeper::poke(self);
            }
            match answer {
                Answer::Granted(count) if self.accept(count) > 0 => return Supply::Ready,
                Answer::Granted(_) | Answer::Refused => {
                    self.stats.refused += 1;
                    return Supply::Refused;
                }
                Answer::Lost => self.unlock_unknown(),
            }
        }
        Supply::NoOwner
    }

    /// Takes in what was granted; how many can be used.
    fn accept(&mut self, count: usize) -> usize {
        let file = self.file(self.file);
        for at in 0..count {
            let Some(&chunk) = self.session.granted(count).get(at) else {
                break;
            };
            if !file.is_there() {
                // Somebody has closed it just now. (It is locked as long as the session is.)
                self.session.give(&[chunk]);
                continue;
            }
            push(&mut self.ready, &mut self.ready_count, chunk);
            self.count_locked(self.file, 1);
            self.count_held(1);
            self.stats.lent += SLOT as u64;
        }
        keeper::want();
        self.ready_count
    }

    /// What is ready goes back: nothing is, where this is called for another reason than an owner's change.
    pub(crate) fn put_ready_back(&mut self) {
        while let Some(last) = self.ready_count.checked_sub(1) {
            self.ready_count = last;
            let chunk = self.ready.get(last).copied().unwrap_or(0);
            self.unlock(chunk, self.file);
            self.session.give(&[chunk]);
        }
        if self.session.has_wishes() {
            keeper::wake(self);
        }
    }

    /// Whether a file's pages are best mapped by reading them, where a slot is the pool's.
    pub(crate) fn maps_by_reading(&self, slot: usize) -> Option<bool> {
        let found = self.space.look(slot);
        (found.backing == Backing::Pool).then(|| self.file(found.file).in_memory)
    }

    /// Sees to it that all slots of a range are backed. Those that were not are idle then, or anonymous memory.
    pub(crate) fn back(&mut self, range: Range<usize>) -> Result<(), i32> {
        let mut missing =
            range.clone().filter(|slot| self.space.look(*slot).backing == Backing::None).count();
        for slot in range.clone() {
            if missing == 0 {
                break;
            }
            if self.space.look(slot).backing == Backing::None {
                self.back_one(slot, missing, &range)?;
                missing -= 1;
            }
        }
        Ok(())
    }

    fn back_one(&mut self, slot: usize, missing: usize, range: &Range<usize>) -> Result<(), i32> {
        if self.space.area(slot) == Area::Dram {
            return self.back_by_dram(slot);
        }
        if self.ready_count == 0 {
            if let Some(idle) = self.idle_outside(range).filter(|idle| self.can_move(*idle)) {
                self.set_idle(idle, false);
                self.move_slot(idle, slot)?;
                self.set_idle(slot, true);
                return Ok(());
            }
            match self.request(missing) {
                Supply::Ready => {}
                Supply::Refused => return Err(libc::ENOMEM),
                Supply::NoOwner => return self.back_by_dram(slot),
            }
        }
        self.map_ready(slot)
    }

    fn idle_outside(&mut self, range: &Range<usize>) -> Option<usize> {
        if self.stats.idle == 0 {
            return None;
        }
        let found = self.space.next_idle(0)?;
        if range.contains(&found) { self.space.next_idle(range.end) } else { Some(found) }
    }

    /// Whether a chunk can be mapped elsewhere: what is not mapped needs its file for that.
    fn can_move(&self, slot: usize) -> bool {
        let file = self.file(self.space.look(slot).file);
        !self.space.is_for_maps(slot) || file.is_there()
    }

    fn back_by_dram(&mut self, slot: usize) -> Result<(), i32> {
        if !self.space.is_for_maps(slot) {
            sys::anonymous_at(self.space.address(slot), SLOT)?;
        }
        if let Some(slot) = self.space.slot(slot) {
            *slot = Slot {
                backing: Backing::Dram,
                run: slot.run,
                taken: slot.taken,
                ..Slot::default()
            };
        }
        Ok(())
    }

    /// Maps a chunk that is ready; the slot is idle then.
    fn map_ready(&mut self, slot: usize) -> Result<(), i32> {
        let last = self.ready_count.checked_sub(1).ok_or(libc::ENOMEM)?;
        let chunk = self.ready.get(last).copied().ok_or(libc::ENOMEM)?;
        let (at, file) = (self.file, self.file(self.file));
        if !file.is_there() {
            return Err(libc::ENOMEM);
        }
        let address = self.space.address(slot);
        if !self.space.is_for_maps(slot) {
            sys::file_at(address, SLOT, file.descriptor, u64::from(chunk) * SLOT as u64)?;
        }
        self.ready_count = last;
        if let Some(slot) = self.space.slot(slot) {
            let (run, taken) = (slot.run, slot.taken);
            *slot = Slot { backing: Backing::Pool, chunk, file: at, run, taken, ..Slot::default() };
        }
        self.set_idle(slot, true);
        Ok(())
    }

    /// In a child: what is ready is the parent's.
    pub(crate) fn forget_ready(&mut self) {
        self.ready_count = 0;
    }

    /// All descriptors, to be closed by who takes them.
    pub(crate) fn take_files(&mut self) -> [File; super::FILES] {
        core::mem::replace(&mut self.files, [File::NONE; super::FILES])
    }

    /// Backs the slot that is in no area, from the pool where `wanted` chunks are to be asked for and some come; whether
    /// it is from there.
    pub(crate) fn back_scratch(&mut self, wanted: usize) -> Result<bool, i32> {
        let scratch = self.space.scratch_slot();
        let from_pool =
            wanted > 0 && (self.ready_count > 0 || matches!(self.request(wanted), Supply::Ready));
        if from_pool {
            self.map_ready(scratch)?;
            self.set_idle(scratch, false);
        } else {
            self.back_by_dram(scratch)?;
        }
        Ok(from_pool)
    }

    /// Puts what backs the slot in no area in the place of what a slot has inherited, whose copy it is.
    pub(crate) fn settle(&mut self, scratch: usize, slot: usize) -> Result<(), i32> {
        let inherited = self.space.look(slot);
        let old = inherited.dirty;
        self.move_slot(scratch, slot)?;
        if let Some(slot) = self.space.slot(slot) {
            (slot.used, slot.dirty) = (inherited.used, old);
            let (backing, bytes) = (slot.backing, u64::from(slot.used) * super::PAGE as u64);
            self.count_used(backing, bytes as i64);
        }
        Ok(())
    }

    /// Moves what backs a slot to another one, which nothing backs: pages, not bytes.
    pub(crate) fn move_slot(&mut self, from: usize, to: usize) -> Result<(), i32> {
        let (source, target) = (self.space.address(from), self.space.address(to));
        let found = self.space.look(from);
        let mapped = !self.space.is_for_maps(from);
        if self.space.is_for_maps(to) {
            // Its pages are mapped when somebody wants them.
        } else if !mapped || sys::move_pages(source, target, SLOT).is_err() {
            let file = self.file(found.file);
            if found.backing == Backing::Pool && file.is_there() {
                let start = u64::from(found.chunk) * SLOT as u64;
                sys::file_at(target, SLOT, file.descriptor, start)?;
            } else if found.backing == Backing::Dram {
                sys::anonymous_at(target, SLOT)?;
                // SAFETY: both slots are mapped, and the lock on them is held.
                unsafe { sys::copy(source, target, SLOT) };
            } else {
                return Err(libc::ENOMEM);
            }
        }
        self.vacate_slot(from)?;
        if let Some(slot) = self.space.slot(from) {
            *slot = Slot { run: slot.run, taken: slot.taken, ..Slot::default() };
        }
        if let Some(slot) = self.space.slot(to) {
            *slot = Slot { run: slot.run, taken: slot.taken, aged: false, ..found };
        }
        Ok(())
    }
}

fn push(list: &mut [u32; READY], count: &mut usize, chunk: u32) {
    if let Some(place) = list.get_mut(*count) {
        *place = chunk;
        *count += 1;
    }
}
