//! Pages of the area for mappings: they get memory, lose it, are zeros again. All below the lock.
//!
//! Of a slot there, the pages alone that the program has are mapped, each with its own rights; in the place of the others is address space
//! without memory. So a chunk that is idle there is not mapped at all.
use super::table::{FOREIGN, FREE, MINE, RIGHTS};
use crate::memory::{Area, Backing, Memory, PAGE, PAGES, SLOT, Slot, bits, runs};
use crate::sys;

/// What may be done with new memory.
pub(crate) const ALL: u8 = (libc::PROT_READ | libc::PROT_WRITE) as u8;

/// Pages of one slot: the slot, and from which of its pages to which.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) slot: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Part {
    const fn bytes(self) -> usize {
        (self.to - self.from) * PAGE
    }
}

impl Memory {
    /// Has the area and its tables.
    pub(crate) fn open_maps(&mut self) -> Result<(), i32> {
        if self.maps.is_open() {
            return Ok(());
        }
        self.space.reserve()?;
        let (first, end) = self.space.bounds(Area::Maps);
        self.maps.open(self.space.address(first), end - first)?;
        super::AREA.set(self.space.address(first), self.maps.limit());
        Ok(())
    }

    /// The part of pages `from .. to` that is in the slot of the first of them.
    pub(crate) fn part(&self, from: usize, to: usize) -> Part {
        let (first, _) = self.space.bounds(Area::Maps);
        let start = from / PAGES * PAGES;
        Part { slot: first + from / PAGES, from: from - start, to: (to - start).min(PAGES) }
    }

    fn place(&self, part: Part) -> usize {
        self.space.address(part.slot) + part.from * PAGE
    }

    /// Puts memory into free pages: zeros, readable and writable.
    pub(crate) fn map_pages(&mut self, from: usize, to: usize) -> Result<(), i32> {
        let (first, _) = self.space.bounds(Area::Maps);
        let slots = first + from / PAGES..first + to.div_ceil(PAGES);
        self.space.used_maps(slots.end);
        let mut at = from;
        let mut done = self.back(slots.clone());
        while done.is_ok() && at < to {
            let part = self.part(at, to);
            // (It is DRAM then: a refusal is the owner's alone.)
            done = self.map_part(part).map_err(|_| libc::EAGAIN);
            if done.is_ok() {
                self.maps.set(at, at + part.to - part.from, MINE | ALL);
                at += part.to - part.from;
            }
        }
        if done.is_err() {
            let _ = self.unmap_pages(from, at);
            self.drop_unused(slots);
        }
        done
    }

    fn map_part(&mut self, part: Part) -> Result<(), i32> {
        let (address, asked) = (self.place(part), bits(part.from, part.to));
        let found = self.space.look(part.slot);
        if found.backing == Backing::Pool {
            let file = self.living_file(found.file).ok_or(libc::EAGAIN)?;
            let from = u64::from(found.chunk) * SLOT as u64 + (part.from * PAGE) as u64;
            sys::file_at(address, part.bytes(), file, from)?;
        } else {
            sys::anonymous_at(address, part.bytes())?;
        }
        let base = self.space.address(part.slot);
        if let Some(slot) = self.space.slot(part.slot) {
            let mut stale = asked;
            stale.iter_mut().zip(slot.dirty).for_each(|(stale, dirty)| *stale &= dirty);
            if slot.backing == Backing::Pool {
                slot.dirty.iter_mut().zip(asked).for_each(|(dirty, asked)| *dirty |= asked);
                // SAFETY: these pages have just been mapped, and nobody has them yet.
                runs(&stale, |from, to| unsafe {
                    sys::zero(base + from * PAGE, (to - from) * PAGE);
                });
            }
            slot.used += (part.to - part.from) as u16;
        }
        self.set_idle(part.slot, false);
        self.count_used(found.backing, part.bytes() as i64);
        Ok(())
    }

    /// A descriptor of the pool's file that a chunk is of.
    fn living_file(&self, file: u8) -> Option<i32> {
        let of = self.file(file);
        if of.is_there() {
            return Some(of.descriptor);
        }
        let same = |other: &&crate::memory::File| other.is_same(&of) && other.is_there();
        self.files.iter().find(same).map(|file| file.descriptor)
    }

    /// Takes the memory out of pages that are the program's.
    pub(crate) fn unmap_pages(&mut self, from: usize, to: usize) -> Result<(), i32> {
        if from >= to {
            return Ok(());
        }
        sys::vacate(self.maps.address(from), (to - from) * PAGE)?;
        self.forget_pages(from, to, FREE);
        Ok(())
    }

    /// Notes that pages which were the program's are not mapped any more: they are free, or something else is there.
    pub(crate) fn forget_pages(&mut self, from: usize, to: usize, state: u8) {
        self.maps.set(from, to, state);
        let mut at = from;
        while at < to {
            let part = self.part(at, to);
            self.forget_part(part);
            at += part.to - part.from;
        }
    }

    fn forget_part(&mut self, part: Part) {
        let Some(slot) = self.space.slot(part.slot) else {
            return;
        };
        slot.used = slot.used.saturating_sub((part.to - part.from) as u16);
        let (backing, unused) = (slot.backing, slot.used == 0);
        if backing != Backing::Pool && unused {
            *slot = Slot::default();
        }
        self.count_used(backing, -(part.bytes() as i64));
        if backing == Backing::Pool && unused {
            self.set_idle(part.slot, true);
        }
    }

    /// Makes pages that are the program's zeros, whatever may be done with them.
    pub(crate) fn clear_pages(&mut self, from: usize, to: usize) -> Result<(), i32> {
        let mut at = from;
        while at < to {
            let part = self.part(at, to);
            let end = self.maps.run(at, at + part.to - part.from);
            let part = self.part(at, end);
            let address = self.place(part);
            let writable = self.maps.state(at) & RIGHTS & !(libc::PROT_EXEC as u8) == ALL;
            if self.space.look(part.slot).backing != Backing::Pool {
                sys::discard(address, part.bytes())?;
            } else if writable {
                // SAFETY: the program's pages, which it wants to be zeros.
                unsafe { sys::zero(address, part.bytes()) };
            } else {
                let twin = self.twin(part)?;
                // SAFETY: the same pages at another address, where they can be written to.
                unsafe { sys::zero(twin, part.bytes()) };
                self.drop_twin()?;
            }
            at = end;
        }
        Ok(())
    }

    /// The chunk's pages of a part, at another address, readable and writable there.
    fn twin(&mut self, part: Part) -> Result<usize, i32> {
        let scratch = self.space.address(self.space.scratch_slot());
        sys::twin(self.place(part), scratch, part.bytes())?;
        Ok(scratch)
    }

    fn drop_twin(&mut self) -> Result<(), i32> {
        sys::vacate(self.space.address(self.space.scratch_slot()), SLOT)
    }

    /// Copies pages that are the program's to `target`, whatever may be done with them.
    pub(crate) fn copy_pages(&mut self, from: usize, to: usize, target: usize) -> Result<(), i32> {
        let mut at = from;
        while at < to {
            let part = self.part(at, to);
            let end = self.maps.run(at, at + part.to - part.from);
            let part = self.part(at, end);
            let (address, target) = (self.place(part), target + (at - from) * PAGE);
            let readable = self.maps.state(at) & libc::PROT_READ as u8 != 0;
            if readable {
                // SAFETY: the program's pages; the caller says that the target is nobody's.
                unsafe { sys::copy(address, target, part.bytes()) };
            } else if self.space.look(part.slot).backing == Backing::Pool {
                let twin = self.twin(part)?;
                // SAFETY: as above.
                unsafe { sys::copy(twin, target, part.bytes()) };
                self.drop_twin()?;
            } else {
                let rights = i32::from(self.maps.state(at) & RIGHTS);
                sys::protect(address, part.bytes(), i32::from(ALL))?;
                // SAFETY: as above.
                unsafe { sys::copy(address, target, part.bytes()) };
                sys::protect(address, part.bytes(), rights)?;
            }
            at = end;
        }
        Ok(())
    }

    /// Puts anonymous memory with the same contents in the place of pages that are the program's, and all of one kind.
    pub(crate) fn make_foreign(&mut self, from: usize, to: usize) -> Result<(), i32> {
        let bytes = (to - from) * PAGE;
        let other = sys::anonymous(bytes)?;
        let moved = self
            .copy_pages(from, to, other)
            .and_then(|()| sys::protect(other, bytes, i32::from(self.maps.state(from) & RIGHTS)))
            .and_then(|()| sys::move_away(other, self.maps.address(from), bytes));
        if let Err(error) = moved {
            let _ = sys::unmap(other, bytes);
            return Err(error);
        }
        self.forget_pages(from, to, FOREIGN);
        self.count_foreign(self.maps.address(from), bytes);
        Ok(())
    }
}
