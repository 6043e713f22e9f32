//! Memory that an allocator cuts small: address space first, and memory in it page by page.
use core::ops::Range;

use super::space::{Bits, bits};
use super::{Area, Backing, Memory, PAGE, PAGES, SLOT, runs};
use crate::sys;

/// Slots are populated at once from this one on: programs that need fewer touch few of their pages.
const POPULATE_FROM: u64 = 3 * SLOT as u64;

impl Memory {
    /// Address space: `bytes` of whole pages at a multiple of `align`; no memory.
    pub(crate) fn cut(&mut self, area: Area, bytes: usize, align: usize) -> Option<usize> {
        self.space.reserve().ok()?;
        self.space.cut(area, bytes, align)
    }

    /// Backs whole pages of what was cut; they are zeros.
    pub(crate) fn commit(&mut self, start: usize, bytes: usize) -> Result<(), i32> {
        let (first, last) = self.slots_of(start, bytes).ok_or(libc::EINVAL)?;
        // (All of the range at once: what is idle in it must not go to where something is missing.)
        if let Err(error) = self.back(first..last + 1) {
            self.drop_unused(first..last + 1);
            return Err(error);
        }
        for slot in first..=last {
            let (from, to) = self.pages_of(slot, start, bytes);
            self.use_pages(slot, from, to);
        }
        Ok(())
    }

    fn use_pages(&mut self, at: usize, from: usize, to: usize) {
        let (address, asked) = (self.space.address(at), bits(from, to));
        let held = self.stats.held;
        let by_reading = self.maps_by_reading(at);
        let Some(slot) = self.space.slot(at) else {
            return;
        };
        let fresh = slot.used == 0 && slot.dirty == [0; PAGES / 64];
        let stale: Bits = core::array::from_fn(|word| {
            let of = |bits: &Bits| bits.get(word).copied().unwrap_or(0);
            of(&slot.dirty) & of(&asked)
        });
        slot.dirty.iter_mut().zip(asked).for_each(|(dirty, asked)| *dirty |= asked);
        slot.used += (to - from) as u16;
        let backing = slot.backing;
        if let Some(by_reading) = by_reading.filter(|_| fresh && held >= POPULATE_FROM) {
            sys::populate(address, SLOT, by_reading);
        }
        // SAFETY: the slot is mapped, and nobody has these pages yet.
        runs(&stale, |from, to| unsafe { sys::zero(address + from * PAGE, (to - from) * PAGE) });
        self.set_idle(at, false);
        self.count_used(backing, ((to - from) * PAGE) as i64);
    }

    /// Takes whole pages back that were committed.
    pub(crate) fn decommit(&mut self, start: usize, bytes: usize) -> Result<(), i32> {
        let (first, last) = self.slots_of(start, bytes).ok_or(libc::EINVAL)?;
        for slot in first..=last {
            let (from, to) = self.pages_of(slot, start, bytes);
            self.spare_pages(slot, from, to);
        }
        Ok(())
    }

    fn spare_pages(&mut self, at: usize, from: usize, to: usize) {
        let address = self.space.address(at);
        let Some(slot) = self.space.slot(at) else {
            return;
        };
        slot.used = slot.used.saturating_sub((to - from) as u16);
        let (backing, unused) = (slot.backing, slot.used == 0);
        self.count_used(backing, -(((to - from) * PAGE) as i64));
        match backing {
            Backing::Pool if unused => self.set_idle(at, true),
            Backing::Dram if unused => self.drop_dram(at),
            Backing::Dram if sys::discard(address + from * PAGE, (to - from) * PAGE).is_ok() => {
                if let Some(slot) = self.space.slot(at) {
                    let gone = bits(from, to);
                    slot.dirty.iter_mut().zip(gone).for_each(|(dirty, gone)| *dirty &= !gone);
                }
            }
            _ => {}
        }
    }

    /// Anonymous memory goes back to where it came from at once.
    pub(crate) fn drop_dram(&mut self, at: usize) {
        if self.vacate_slot(at).is_ok()
            && let Some(slot) = self.space.slot(at)
        {
            *slot = super::Slot { run: slot.run, taken: slot.taken, ..super::Slot::default() };
        }
    }

    /// Anonymous memory of slots that nobody came to use goes; chunks stay, idle.
    pub(crate) fn drop_unused(&mut self, range: Range<usize>) {
        for at in range {
            let found = self.space.look(at);
            if found.backing == Backing::Dram && found.used == 0 {
                self.drop_dram(at);
            }
        }
    }

    fn slots_of(&self, start: usize, bytes: usize) -> Option<(usize, usize)> {
        let last = start.checked_add(bytes.checked_sub(1)?)?;
        Some((self.space.slot_of(start)?, self.space.slot_of(last)?))
    }

    /// The pages of a slot that are in a range.
    fn pages_of(&self, slot: usize, start: usize, bytes: usize) -> (usize, usize) {
        let address = self.space.address(slot);
        let from = start.saturating_sub(address) / PAGE;
        let to = (start + bytes - address).min(SLOT) / PAGE;
        (from, to)
    }
}
