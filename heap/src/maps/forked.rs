//! In a child of a fork: mappings of its own.
use super::pages::ALL;
use super::table::{FREE, MINE, RIGHTS, UNFORKED, WIPED};
use crate::memory::{Area, Backing, Memory, PAGE, PAGES, SLOT};
use crate::sys;

impl Memory {
    /// Lets go of what the program wants its children to be without, and clears what they are to have as zeros.
    pub(crate) fn forget_unforked(&mut self) {
        if !self.maps.any_forked {
            return;
        }
        let (mut at, end) = (0, self.maps.end());
        while at < end {
            let (to, state) = (self.maps.run(at, end), self.maps.state(at));
            if state & MINE != 0 && state & UNFORKED != 0 {
                let _ = self.unmap_pages(at, to);
            } else if state & MINE != 0 && state & WIPED != 0 {
                // (The pool's are the parent's still: they are not copied.)
                let mut part = at;
                while part < to {
                    let of = self.part(part, to);
                    let next = part + of.to - of.from;
                    if self.space.look(of.slot).backing == Backing::Dram {
                        let _ = sys::discard(self.maps.address(part), (next - part) * PAGE);
                    }
                    part = next;
                }
            }
            at = to;
        }
    }

    /// Copies what a slot has inherited into what backs the slot in no area, and puts that in its place, with the same rights.
    pub(crate) fn settle_mapped(&mut self, scratch: usize, slot: usize) -> Result<(), i32> {
        let (first, _) = self.space.bounds(Area::Maps);
        let (start, new) = ((slot - first) * PAGES, self.space.look(scratch));
        let (target, address) = (self.space.address(scratch), self.space.address(slot));
        let file = self.file(new.file).descriptor;
        let (mut at, end, mut used) = (start, start + PAGES, 0);
        let mut dirty = [0_u64; PAGES / 64];
        while at < end {
            let (to, state) = (self.maps.run(at, end), self.maps.state(at));
            let (offset, bytes) = ((at - start) * PAGE, (to - at) * PAGE);
            let has = state & MINE != 0;
            (at, used) = (to, used + if has { (bytes / PAGE) as u16 } else { 0 });
            if !has {
                continue;
            }
            if state & WIPED == 0 {
                if state & libc::PROT_READ as u8 == 0 {
                    sys::protect(address + offset, bytes, i32::from(ALL))?;
                }
                // SAFETY: the program's pages, and the scratch's, which are nobody's; there is no other thread.
                unsafe { sys::copy(address + offset, target + offset, bytes) };
            }
            let (from, to) = (offset / PAGE, (offset + bytes) / PAGE);
            let more = crate::memory::bits(from, to);
            dirty.iter_mut().zip(more).for_each(|(dirty, more)| *dirty |= more);
            if new.backing == Backing::Pool {
                let place = u64::from(new.chunk) * SLOT as u64 + offset as u64;
                sys::file_at(address + offset, bytes, file, place)?;
            } else {
                sys::move_pages(target + offset, address + offset, bytes)?;
            }
            if state & RIGHTS != ALL {
                sys::protect(address + offset, bytes, i32::from(state & RIGHTS))?;
            }
        }
        sys::vacate(target, SLOT)?;
        if let Some(scratch) = self.space.slot(scratch) {
            *scratch = crate::memory::Slot::default();
        }
        if let Some(slot) = self.space.slot(slot) {
            *slot = crate::memory::Slot { used, dirty, ..new };
        }
        self.count_used(new.backing, i64::from(used) * PAGE as i64);
        Ok(())
    }
}

const _: () = assert!(FREE == 0, "what was never touched is free");
