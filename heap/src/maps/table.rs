//! What is known of each page of the address space for mappings: a byte, and for each slot, how its free pages lie.
//!
//! Both tables are address space alone until they are touched; zeros mean pages that are free.
use crate::memory::{PAGE, PAGES, SLOT};
use crate::sys::{self, Outcome};

/// A page's byte: what may be done with it, as `mprotect` has it, below what it is.
pub(crate) const RIGHTS: u8 = 7;
/// It is the program's, and backed by its slot.
pub(crate) const MINE: u8 = 8;
/// The program has something else there.
pub(crate) const FOREIGN: u8 = 16;
/// A child of a fork is to be without it.
pub(crate) const UNFORKED: u8 = 32;
/// In a child of a fork it is to be zeros.
pub(crate) const WIPED: u8 = 64;
/// Nobody has it; there is no memory.
pub(crate) const FREE: u8 = 0;

/// How the free pages of a slot lie; counted as those that are *not* free, so that zeros are a free slot.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Gaps {
    /// Not free at its start: all but the first run.
    lead: u16,
    /// The same at its end.
    trail: u16,
    /// All but the longest run.
    rest: u16,
}

impl Gaps {
    const fn lead(self) -> usize {
        PAGES.saturating_sub(self.lead as usize)
    }
    const fn trail(self) -> usize {
        PAGES.saturating_sub(self.trail as usize)
    }
    const fn longest(self) -> usize {
        PAGES.saturating_sub(self.rest as usize)
    }
}

/// The tables; none until [`Table::open`]. Pages are counted from the start of the area.
pub(crate) struct Table {
    base: usize,
    pages: usize,
    states: usize,
    gaps: usize,
    /// No slot below this one has a free page.
    full: usize,
    /// Pages from here on were never used.
    end: usize,
    /// Some page was [`UNFORKED`] or [`WIPED`], once.
    pub(crate) any_forked: bool,
}

impl Table {
    pub(crate) const NONE: Self =
        Self { base: 0, pages: 0, states: 0, gaps: 0, full: 0, end: 0, any_forked: false };

    pub(crate) const fn is_open(&self) -> bool {
        self.states != 0
    }

    /// Makes the tables for an area of so many slots.
    pub(crate) fn open(&mut self, base: usize, slots: usize) -> Outcome<()> {
        if self.is_open() {
            return Ok(());
        }
        let pages = slots * PAGES;
        let states = sys::anonymous(pages + slots * size_of::<Gaps>())?;
        *self = Self { base, pages, states, gaps: states + pages, ..Self::NONE };
        Ok(())
    }

    /// The page that an address is in; none outside.
    pub(crate) fn page_of(&self, address: usize) -> Option<usize> {
        let page = address.checked_sub(self.base)? / PAGE;
        (page < self.pages).then_some(page)
    }

    pub(crate) const fn address(&self, page: usize) -> usize {
        self.base + page * PAGE
    }

    /// The area's end, as an address.
    pub(crate) const fn limit(&self) -> usize {
        self.address(self.pages)
    }

    /// The page behind the last one that was ever used.
    pub(crate) const fn end(&self) -> usize {
        self.end
    }

    fn states(&self) -> &[u8] {
        if self.states == 0 {
            return &[];
        }
        // SAFETY: the table has so many bytes, and is reached through `self` alone.
        unsafe { core::slice::from_raw_parts(self.states as *const u8, self.pages) }
    }

    fn gaps(&mut self) -> &mut [Gaps] {
        if self.states == 0 {
            return &mut [];
        }
        // SAFETY: the table lies behind the states, for all slots; zeros are values; it is reached through `self` alone.
        unsafe { core::slice::from_raw_parts_mut(self.gaps as *mut Gaps, self.pages / PAGES) }
    }

    /// A page's byte.
    pub(crate) fn state(&self, page: usize) -> u8 {
        self.states().get(page).copied().unwrap_or(FOREIGN)
    }

    /// Where the run of pages like this one ends, `to` at most.
    pub(crate) fn run(&self, page: usize, to: usize) -> usize {
        let state = self.state(page);
        let run = self.states().get(page..to).unwrap_or_default();
        run.iter().position(|other| *other != state).map_or(to, |at| page + at)
    }

    /// Whether all pages of a range are like that.
    pub(crate) fn all(&self, from: usize, to: usize, like: impl Fn(u8) -> bool) -> bool {
        self.states().get(from..to).is_some_and(|states| states.iter().all(|state| like(*state)))
    }

    /// Sets the byte of pages.
    pub(crate) fn set(&mut self, from: usize, to: usize, state: u8) {
        if self.states == 0 || from >= to || to > self.pages {
            return;
        }
        // SAFETY: as in `states`; `self` is borrowed for it.
        let states = unsafe { core::slice::from_raw_parts_mut(self.states as *mut u8, self.pages) };
        states.get_mut(from..to).unwrap_or_default().fill(state);
        self.end = self.end.max(to);
        if state == FREE {
            self.full = self.full.min(from / PAGES);
        }
        for slot in from / PAGES..to.div_ceil(PAGES) {
            let whole = from <= slot * PAGES && to >= (slot + 1) * PAGES;
            let found = match (whole, state) {
                (true, FREE) => Gaps::default(),
                (true, _) => Gaps { lead: PAGES as u16, trail: PAGES as u16, rest: PAGES as u16 },
                _ => self.measure(slot),
            };
            if let Some(place) = self.gaps().get_mut(slot) {
                *place = found;
            }
        }
    }

    fn measure(&self, slot: usize) -> Gaps {
        let states = self.states().get(slot * PAGES..(slot + 1) * PAGES).unwrap_or_default();
        let (mut run, mut longest, mut lead) = (0, 0, None);
        for state in states {
            if *state == FREE {
                run += 1;
                longest = longest.max(run);
            } else {
                lead = lead.or(Some(run));
                run = 0;
            }
        }
        let not = |free: usize| (PAGES - free) as u16;
        Gaps { lead: not(lead.unwrap_or(run)), trail: not(run), rest: not(longest) }
    }

    /// Free pages for a mapping: the first that are enough. One of a slot's size or more begins where a slot does.
    pub(crate) fn find(&mut self, count: usize) -> Option<usize> {
        let used = self.end.div_ceil(PAGES);
        let mut full = self.full;
        let gaps = self.gaps();
        while full < used && gaps.get(full).is_some_and(|gaps| gaps.longest() == 0) {
            full += 1;
        }
        let (mut start, mut run) = (full * PAGES, 0);
        for slot in full..used {
            let of = gaps.get(slot).copied()?;
            if run + of.lead() >= count && (run > 0 || of.lead() > 0) {
                break;
            }
            if count < PAGES && of.longest() >= count {
                self.full = full;
                return self.find_in(slot, count);
            }
            if of.lead() == PAGES {
                run += PAGES;
            } else {
                // (Of a slot that is used in part, the rest begins where no large mapping does.)
                run = if count < PAGES { of.trail() } else { 0 };
                start = (slot + 1) * PAGES - run;
            }
        }
        self.full = full;
        (start.checked_add(count)? <= self.pages).then_some(start)
    }

    fn find_in(&self, slot: usize, count: usize) -> Option<usize> {
        let end = (slot + 1) * PAGES;
        let mut page = slot * PAGES;
        while page < end {
            let to = self.run(page, end);
            if self.state(page) == FREE && to - page >= count {
                return Some(page);
            }
            page = to;
        }
        None
    }
}

const _: () = assert!(SLOT.is_multiple_of(PAGE), "a slot is whole pages");

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::NONE;
        table.open(1 << 40, 64).unwrap();
        table
    }

    #[test]
    fn the_first_pages_that_are_enough_are_found() {
        let mut table = table();
        let take = |table: &mut Table, count| {
            let at = table.find(count).unwrap();
            assert!(table.all(at, at + count, |state| state == FREE));
            table.set(at, at + count, MINE | 3);
            at
        };
        assert_eq!(take(&mut table, 300), 0);
        // Over the border of a slot.
        assert_eq!(take(&mut table, 300), 300);
        assert_eq!(take(&mut table, 512), 1024);
        assert_eq!(take(&mut table, 100), 600);
        table.set(10, 20, FREE);
        assert_eq!(take(&mut table, 11), 700);
        assert_eq!(take(&mut table, 10), 10);
        // A large one begins where a slot does, and takes what is free behind whole slots.
        assert_eq!(take(&mut table, 1000), 1536);
        assert_eq!(take(&mut table, 24), 711);
        table.set(1024, 1536, FREE);
        assert_eq!(take(&mut table, 513), 3 * 512 + 2 * 512);
        assert_eq!(take(&mut table, 512), 1024);
        assert_eq!(table.find(64 * 512), None);
    }

    #[test]
    fn what_is_found_is_free_whatever_came_before() {
        let mut table = table();
        let (mut seed, mut held) = (7_u64, Vec::new());
        for _ in 0..4000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let r = (seed >> 33) as usize;
            if held.len() > 30 || (r.is_multiple_of(3) && !held.is_empty()) {
                let (at, count) = held.swap_remove(r % held.len());
                table.set(at, at + count, FREE);
            } else {
                let count = if r.is_multiple_of(7) { r % 1500 + 1 } else { r % 60 + 1 };
                let Some(at) = table.find(count) else {
                    continue;
                };
                assert!(table.all(at, at + count, |state| state == FREE), "{at} {count}");
                assert!(count < 512 || at.is_multiple_of(512));
                table.set(at, at + count, MINE);
                held.push((at, count));
            }
        }
        let used: usize = held.iter().map(|(_, count)| count).sum();
        assert_eq!(table.states().iter().filter(|state| **state == MINE).count(), used);
    }
}
