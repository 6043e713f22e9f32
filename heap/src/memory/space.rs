//! Address space, and a table of what is in it: a *slot* for each chunk that can be mapped.
//!
//! Four areas: [`Area::Pages`], which an allocator cuts small, with chunks of the pool; [`Area::Dram`], the same
//! with anonymous memory; [`Area::Blocks`], runs of whole slots; [`Area::Maps`], mappings of programs. Both tables and areas are address space alone
//! until they are touched.
use crate::sys::{self, Outcome};

/// Bytes of a slot.
pub const SLOT: usize = lode_loan::CHUNK_BYTES as usize;
/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Pages of a slot.
pub(crate) const PAGES: usize = SLOT / PAGE;

/// Address space that is asked for; less where there are limits, so that as much is left for what else a program maps.
const MOST: usize = 2 << 40;
const LEAST: usize = 1 << 30;
/// So much of it for each byte that may be private memory: its tables, and those for mappings, are 1/14,000 of it.
const DATA_TO_SPACE: usize = 2048;

/// What a part of the address space is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Area {
    /// Chunks of the pool, cut by an allocator.
    Pages,
    /// Anonymous memory, cut by an allocator.
    Dram,
    /// Blocks of whole chunks.
    Blocks,
    /// What programs map by themselves; see `maps`.
    Maps,
}

/// What backs a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum Backing {
    #[default]
    None,
    Pool,
    Dram,
    /// The parent's chunk, which a new child has yet to copy.
    Inherited,
}

/// Pages of a slot, a bit each.
pub(crate) type Bits = [u64; PAGES / 64];

/// What is known of a slot.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Slot {
    /// The chunk's number, where the pool backs it.
    pub(crate) chunk: u32,
    /// Slots of the block that begins here.
    pub(crate) run: u32,
    /// Pages in use.
    pub(crate) used: u16,
    pub(crate) backing: Backing,
    /// Which of the files the chunk is of.
    pub(crate) file: u8,
    /// A block has it.
    pub(crate) taken: bool,
    /// It was idle when unused memory was looked for last.
    pub(crate) aged: bool,
    /// The program has said what may be done with pages of it.
    pub(crate) odd: bool,
    /// Pages that may be something else than zeros.
    pub(crate) dirty: Bits,
}

/// The bits of pages `from .. to`.
pub(crate) fn bits(from: usize, to: usize) -> Bits {
    core::array::from_fn(|word| {
        let start = from.clamp(word * 64, word * 64 + 64) - word * 64;
        let end = to.clamp(word * 64, word * 64 + 64) - word * 64;
        if start >= end { 0 } else { (u64::MAX >> (64 - (end - start))) << start }
    })
}

/// Calls `each` with the runs of pages whose bits are set, as `from, to`.
pub(crate) fn runs(set: &Bits, mut each: impl FnMut(usize, usize)) {
    let is_set = |page: usize| set.get(page / 64).is_some_and(|word| word >> (page % 64) & 1 == 1);
    let mut page = 0;
    while page < PAGES {
        if set.get(page / 64) == Some(&0) {
            page = (page / 64 + 1) * 64;
            continue;
        }
        let start = page;
        while page < PAGES && is_set(page) {
            page += 1;
        }
        if page > start {
            each(start, page);
        } else {
            page += 1;
        }
    }
}

/// The address space; none until [`Space::reserve`].
pub(crate) struct Space {
    base: usize,
    slots: usize,
    table: usize,
    idle: usize,
    /// Where the next piece of each area begins, as an offset.
    next: [usize; 2],
    /// Slots of [`Area::Blocks`] from here on were never used.
    blocks_end: usize,
    /// The same of [`Area::Maps`].
    maps_end: usize,
    /// There is none to be had.
    refused: bool,
}

/// As much as limits of this process leave: half of its address space, and tables that are a seventh of its private memory.
fn most() -> usize {
    let of_data = sys::limit(libc::RLIMIT_DATA).saturating_mul(DATA_TO_SPACE);
    (sys::limit(libc::RLIMIT_AS) / 2).min(of_data).min(MOST)
}

impl Space {
    pub(crate) const NONE: Self = Self {
        base: 0,
        slots: 0,
        table: 0,
        idle: 0,
        next: [0; 2],
        blocks_end: 0,
        maps_end: 0,
        refused: false,
    };

    /// Reserves it, with its tables. What was refused once stays so: nobody else has memory then but by the system.
    pub(crate) fn reserve(&mut self) -> Outcome<()> {
        if self.base != 0 {
            return Ok(());
        }
        if self.refused {
            return Err(libc::ENOMEM);
        }
        let (most, mut bytes) = (most(), MOST);
        let (found, table) = loop {
            if bytes < LEAST {
                self.refused = true;
                return Err(libc::ENOMEM);
            }
            let made = if bytes <= most { Self::try_reserve(bytes) } else { None };
            match made {
                Some(made) => break made,
                None => bytes /= 2,
            }
        };
        let slots = bytes / SLOT;
        (self.table, self.idle) = (table, table + slots * size_of::<Slot>());
        (self.base, self.slots) = (found.next_multiple_of(SLOT), slots);
        self.next = [self.start(Area::Pages), self.start(Area::Dram)].map(|slot| slot * SLOT);
        crate::maps::SPACE.set(self.base, self.base + self.slots * SLOT);
        self.blocks_end = self.start(Area::Blocks);
        self.maps_end = self.start(Area::Maps);
        Ok(())
    }

    /// So much address space, and tables for it.
    fn try_reserve(bytes: usize) -> Option<(usize, usize)> {
        let found = sys::reserve(bytes + SLOT).ok()?;
        let slots = bytes / SLOT;
        let table = sys::anonymous(slots * size_of::<Slot>() + slots / 8);
        if table.is_err() {
            let _ = sys::unmap(found, bytes + SLOT);
        }
        Some((found, table.ok()?))
    }

    /// Where it begins and ends.
    pub(crate) const fn ends(&self) -> (usize, usize) {
        (self.base, self.base + self.slots * SLOT)
    }

    /// The first slot of an area. The last slot of all is for [`Space::scratch_slot`].
    const fn start(&self, area: Area) -> usize {
        match area {
            Area::Pages => 0,
            Area::Dram => self.slots / 8 * 3,
            Area::Blocks => self.slots / 2,
            Area::Maps => self.slots / 8 * 7,
        }
    }

    const fn end(&self, area: Area) -> usize {
        match area {
            Area::Pages => self.slots / 8 * 3,
            Area::Dram => self.slots / 2,
            Area::Blocks => self.slots / 8 * 7,
            Area::Maps => self.slots.saturating_sub(1),
        }
    }

    /// The first slot of an area, and the one behind its last.
    pub(crate) const fn bounds(&self, area: Area) -> (usize, usize) {
        (self.start(area), self.end(area))
    }

    /// Slots of [`Area::Maps`] are used up to this one.
    pub(crate) fn used_maps(&mut self, end: usize) {
        self.maps_end = self.maps_end.max(end.next_multiple_of(64)).min(self.end(Area::Maps));
    }

    /// A slot that is in no area.
    pub(crate) const fn scratch_slot(&self) -> usize {
        self.slots.saturating_sub(1)
    }

    /// The area of a slot.
    pub(crate) const fn area(&self, slot: usize) -> Area {
        if slot < self.start(Area::Dram) {
            Area::Pages
        } else if slot < self.start(Area::Blocks) {
            Area::Dram
        } else if slot < self.start(Area::Maps) {
            Area::Blocks
        } else {
            Area::Maps
        }
    }

    /// Where areas of an allocator's, and blocks, begin: addresses.
    pub(crate) const fn borders(&self) -> (usize, usize) {
        let (dram, blocks) = (self.start(Area::Dram), self.start(Area::Blocks));
        (self.address(dram), self.address(blocks))
    }

    pub(crate) const fn address(&self, slot: usize) -> usize {
        self.base + slot * SLOT
    }

    /// The slot that an address is in.
    pub(crate) fn slot_of(&self, address: usize) -> Option<usize> {
        let slot = address.checked_sub(self.base)? / SLOT;
        (slot < self.slots).then_some(slot)
    }

    /// What is known of a slot.
    pub(crate) fn slot(&mut self, slot: usize) -> Option<&mut Slot> {
        if slot >= self.slots {
            return None;
        }
        let place = self.table as *mut Slot;
        // SAFETY: the table has so many slots, and zeros are one; it is reached through `self` alone.
        Some(unsafe { &mut *place.add(slot) })
    }

    /// A copy of it; an empty one for a slot that isn't.
    pub(crate) fn look(&self, slot: usize) -> Slot {
        if slot >= self.slots {
            return Slot::default();
        }
        // SAFETY: as above.
        unsafe { *(self.table as *const Slot).add(slot) }
    }

    fn idle_word(&mut self, word: usize) -> Option<&mut u64> {
        if word >= self.slots / 64 {
            return None;
        }
        // SAFETY: the bits of all slots lie behind the table.
        Some(unsafe { &mut *(self.idle as *mut u64).add(word) })
    }

    /// Marks a slot as having a chunk that nobody uses, or not; whether that changes anything.
    pub(crate) fn set_idle(&mut self, slot: usize, idle: bool) -> bool {
        let Some(word) = self.idle_word(slot / 64) else {
            return false;
        };
        let bit = 1 << (slot % 64);
        let was = *word & bit != 0;
        *word = if idle { *word | bit } else { *word & !bit };
        was != idle
    }

    /// The next idle slot from `from` on.
    pub(crate) fn next_idle(&mut self, from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            at = self.skip_unused(at)?;
            let word = *self.idle_word(at / 64)? >> (at % 64);
            if word != 0 {
                return Some(at + word.trailing_zeros() as usize);
            }
            at = (at / 64 + 1) * 64;
        }
    }

    /// The next slot from `from` on that may ever have been used.
    pub(crate) fn skip_unused(&self, from: usize) -> Option<usize> {
        let [pages, dram] = self.next.map(|next| next.div_ceil(SLOT).next_multiple_of(64));
        if from < pages {
            Some(from)
        } else if from < dram {
            Some(from.max(self.start(Area::Dram)))
        } else {
            let at = from.max(self.start(Area::Blocks));
            if at < self.blocks_end {
                return Some(at);
            }
            let at = from.max(self.start(Area::Maps));
            (at < self.maps_end).then_some(at)
        }
    }

    /// Address space of an allocator's area: `bytes` of whole pages at a multiple of `align`.
    pub(crate) fn cut(&mut self, area: Area, bytes: usize, align: usize) -> Option<usize> {
        let end = self.end(area) * SLOT;
        let base = self.base;
        let next = self.next.get_mut(usize::from(area == Area::Dram))?;
        let at = (base + *next).checked_next_multiple_of(align.max(PAGE))?;
        let behind = at.checked_add(bytes)?.checked_sub(base)?;
        if behind > end {
            return None;
        }
        *next = behind;
        Some(at)
    }

    /// The first free run of slots for blocks, at a multiple of `align` bytes.
    pub(crate) fn find_run(&mut self, slots: usize, align: usize) -> Option<usize> {
        let mut at = self.start(Area::Blocks);
        let end = self.end(Area::Blocks);
        loop {
            at = self.slot_of(self.address(at).checked_next_multiple_of(align.max(SLOT))?)?;
            if at.checked_add(slots)? > end {
                return None;
            }
            match self.first_taken(at, slots) {
                Some(taken) => at = taken + (self.look(taken).run as usize).max(1),
                None => return Some(at),
            }
        }
    }

    /// The first slot of a range that a block has.
    pub(crate) fn first_taken(&self, from: usize, slots: usize) -> Option<usize> {
        (from..from + slots).take_while(|at| *at < self.blocks_end).find(|at| self.look(*at).taken)
    }

    /// Marks a range as a block's, or as nobody's.
    pub(crate) fn set_taken(&mut self, from: usize, slots: usize, taken: bool) {
        for at in from..from + slots {
            if let Some(slot) = self.slot(at) {
                slot.taken = taken;
                slot.run = 0;
            }
        }
        if taken {
            if let Some(slot) = self.slot(from) {
                slot.run = slots as u32;
            }
            self.blocks_end = self
                .blocks_end
                .max((from + slots).next_multiple_of(64))
                .min(self.end(Area::Blocks));
        }
    }

    /// Whether a slot is for mappings of programs: what nobody has of it is not mapped.
    pub(crate) const fn is_for_maps(&self, slot: usize) -> bool {
        slot >= self.start(Area::Maps) && slot < self.end(Area::Maps)
    }

    /// Whether a range of slots lies among those for blocks.
    pub(crate) const fn is_for_blocks(&self, from: usize, slots: usize) -> bool {
        from >= self.start(Area::Blocks) && from.saturating_add(slots) <= self.end(Area::Blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_runs_are_each_others_inverse() {
        for (from, to) in [(0, 0), (0, 1), (0, 512), (63, 65), (64, 128), (5, 300), (511, 512)] {
            let mut found = Vec::new();
            runs(&bits(from, to), |from, to| found.push((from, to)));
            assert_eq!(found, if from < to { vec![(from, to)] } else { vec![] });
        }
        let mut two = bits(3, 70);
        two.iter_mut().zip(bits(80, 200)).for_each(|(to, more)| *to |= more);
        let mut found = Vec::new();
        runs(&two, |from, to| found.push((from, to)));
        assert_eq!(found, [(3, 70), (80, 200)]);
    }

    #[test]
    fn runs_of_slots_are_found_around_those_taken() {
        let mut space = Space::NONE;
        space.reserve().unwrap();
        let first = space.find_run(3, SLOT).unwrap();
        space.set_taken(first, 3, true);
        assert_eq!(space.find_run(2, SLOT), Some(first + 3));
        space.set_taken(first, 3, false);
        space.set_taken(first + 1, 1, true);
        assert_eq!(space.find_run(1, SLOT), Some(first));
        assert_eq!(space.find_run(2, SLOT), Some(first + 2));
        let aligned = space.find_run(1, 64 * SLOT).unwrap();
        assert!(space.address(aligned).is_multiple_of(64 * SLOT));
    }

    #[test]
    fn what_is_idle_is_found_in_all_areas() {
        let mut space = Space::NONE;
        space.reserve().unwrap();
        assert_eq!(space.next_idle(0), None);
        let pages = space.cut(Area::Pages, 8 * SLOT, PAGE).unwrap();
        let block = space.find_run(4, SLOT).unwrap();
        space.set_taken(block, 4, true);
        let pages = space.slot_of(pages).unwrap();
        for slot in [pages + 5, block + 2] {
            assert!(space.set_idle(slot, true));
            assert!(!space.set_idle(slot, true));
        }
        assert_eq!(space.next_idle(0), Some(pages + 5));
        assert_eq!(space.next_idle(pages + 6), Some(block + 2));
        assert_eq!(space.next_idle(block + 3), None);
    }
}
