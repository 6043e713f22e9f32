//! `mremap`: memory that grows, shrinks, moves.
use libc::{EFAULT, EINVAL, ENOMEM, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};

use super::calls::whole;
use super::table::{FOREIGN, FREE, MINE, RIGHTS};
use super::{counted, meets};
use crate::memory::{self, Memory, PAGE};
use crate::sys::{self, Outcome};

/// What a program asks `mremap` for.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Where it is.
    pub at: usize,
    /// How much.
    pub old: usize,
    /// How much it is to be.
    pub new: usize,
    /// How.
    pub flags: i32,
    /// Where to, where the flags say so.
    pub to: usize,
}

/// `mremap` of what may be ours, at its old place or at its new one.
///
/// # Errors
/// As the call has them.
pub fn remap(asked: Moved) -> Outcome<usize> {
    let _errno = sys::KeepErrno::new();
    let known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    let moves = asked.flags & MREMAP_MAYMOVE != 0;
    let keeps = asked.flags & MREMAP_DONTUNMAP != 0;
    let fixed = asked.flags & MREMAP_FIXED != 0;
    if asked.flags & !known != 0 || ((keeps || fixed) && !moves) {
        return Err(EINVAL);
    }
    let end = whole(asked.at, asked.old).ok_or(EINVAL)?;
    let new = asked.new.checked_next_multiple_of(PAGE).filter(|new| *new > 0).ok_or(EINVAL)?;
    if keeps && new != end - asked.at {
        return Err(EINVAL);
    }
    if keeps && !asked.to.is_multiple_of(PAGE) {
        return Err(EINVAL);
    }
    if fixed {
        let to_end = whole(asked.to, new).ok_or(EINVAL)?;
        if asked.to < end && asked.at < to_end {
            return Err(EINVAL);
        }
    }
    let mut memory = memory::lock();
    let piece = memory.piece(asked.at, end.max(asked.at + 1));
    if piece.state == FOREIGN && piece.end < end {
        return Err(EFAULT);
    }
    if piece.state == FOREIGN {
        return remap_foreign(&mut memory, asked, new);
    }
    if asked.old == 0 {
        return Err(if piece.state == FREE { EFAULT } else { EINVAL });
    }
    // What is of several kinds is several mappings.
    if piece.state == FREE || piece.end < end {
        return Err(EFAULT);
    }
    let place = Place { first: piece.pages.0, behind: piece.pages.1, state: piece.state };
    if fixed {
        memory.move_to(place, asked.to, new, keeps)
    } else if keeps {
        memory.move_on(place, new, true)
    } else {
        memory.change(place, new, moves)
    }
}

/// What isn't ours goes its way; over ours, perhaps.
fn remap_foreign(memory: &mut Memory, asked: Moved, new: usize) -> Outcome<usize> {
    let Moved { at, old, flags, to, .. } = asked;
    let found = sys::remap(at, old, asked.new, flags, to)?;
    if flags & MREMAP_DONTUNMAP == 0 {
        memory.uncount_foreign(at, old.next_multiple_of(PAGE));
    }
    if flags & MREMAP_FIXED != 0 {
        memory.cover(found, found + new);
    }
    let old = old.next_multiple_of(PAGE);
    let kept = if flags & MREMAP_DONTUNMAP != 0 {
        old
    } else if found == at {
        new.min(old)
    } else {
        0
    };
    if let Some(from) = memory.maps.page_of(at + kept).filter(|_| kept < old) {
        // The hole it leaves in the area.
        if sys::vacate(at + kept, old - kept).is_ok() {
            memory.maps.set(from, from + (old - kept) / PAGE, FREE);
        }
    }
    memory.count_foreign(found, new);
    Ok(found)
}

/// `mremap` of what isn't ours has been done: counts it.
pub fn remapped(asked: Moved, found: usize) {
    let _errno = sys::KeepErrno::new();
    let mut memory = memory::lock();
    if memory.is_counted(asked.at) {
        memory.uncount_foreign(asked.at, asked.old.next_multiple_of(PAGE));
        drop(memory);
        counted::count(found, asked.new.next_multiple_of(PAGE));
    }
}

/// Pages of one kind.
#[derive(Clone, Copy)]
struct Place {
    first: usize,
    behind: usize,
    state: u8,
}

impl Memory {
    /// Makes memory smaller or larger; elsewhere, where it may.
    fn change(&mut self, place: Place, new: usize, moves: bool) -> Outcome<usize> {
        let Place { first, behind, state } = place;
        let (old, new) = (behind - first, new / PAGE);
        if new <= old {
            self.unmap_pages(first + new, behind)?;
            return Ok(self.maps.address(first));
        }
        let end = first.checked_add(new).ok_or(ENOMEM)?;
        if self.maps.all(behind, end, |state| state == FREE) {
            match self.map_pages(behind, end) {
                Ok(()) => {
                    self.give_state(behind, end, state)?;
                    return Ok(self.maps.address(first));
                }
                Err(ENOMEM) => return Err(ENOMEM),
                Err(_) => {}
            }
        }
        if moves { self.move_on(place, new * PAGE, false) } else { Err(ENOMEM) }
    }

    /// Gives pages that have just been mapped the rights and the marks of others.
    fn give_state(&mut self, from: usize, to: usize, state: u8) -> Outcome<()> {
        let rights = i32::from(state & RIGHTS);
        sys::protect(self.maps.address(from), (to - from) * PAGE, rights)?;
        self.maps.set(from, to, state);
        Ok(())
    }

    /// Moves memory to other pages of ours.
    fn move_on(&mut self, place: Place, new: usize, keeps: bool) -> Outcome<usize> {
        let to = match self.map_new(new) {
            Ok(to) => to,
            Err(ENOMEM) => return Err(ENOMEM),
            Err(_) => {
                let at = sys::anonymous(new)?;
                return self.carry_to(place, at, new, keeps);
            }
        };
        let target = self.maps.address(to);
        self.copy_pages(place.first, place.first + self.kept(place, new), target)?;
        self.give_state(to, to + new / PAGE, place.state)?;
        self.leave(place, keeps)?;
        Ok(target)
    }

    fn kept(&self, place: Place, new: usize) -> usize {
        (place.behind - place.first).min(new / PAGE)
    }

    /// Moves memory to an address of the program's: it is anonymous memory there.
    fn move_to(&mut self, place: Place, at: usize, new: usize, keeps: bool) -> Outcome<usize> {
        let scratch = sys::anonymous(new)?;
        let (from, to) = (place.first, place.first + self.kept(place, new));
        let moved = self
            .copy_pages(from, to, scratch)
            .and_then(|()| sys::protect(scratch, new, i32::from(place.state & RIGHTS)))
            .and_then(|()| sys::move_away(scratch, at, new));
        if let Err(error) = moved {
            let _ = sys::unmap(scratch, new);
            return Err(error);
        }
        if meets(at, new) {
            self.cover(at, at + new);
        }
        self.count_foreign(at, new);
        self.leave(place, keeps)?;
        Ok(at)
    }

    /// As [`Memory::move_to`], to anonymous memory that is there.
    fn carry_to(&mut self, place: Place, at: usize, new: usize, keeps: bool) -> Outcome<usize> {
        self.copy_pages(place.first, place.first + self.kept(place, new), at)?;
        sys::protect(at, new, i32::from(place.state & RIGHTS))?;
        self.count_foreign(at, new);
        self.leave(place, keeps)?;
        Ok(at)
    }

    /// What has moved is gone from its place; or is zeros there.
    fn leave(&mut self, place: Place, keeps: bool) -> Outcome<()> {
        let Place { first, behind, state } = place;
        debug_assert!(state & MINE != 0, "only what is the program's moves");
        if keeps { self.clear_pages(first, behind) } else { self.unmap_pages(first, behind) }
    }
}
