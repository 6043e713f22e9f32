//! What programs say of memory that they have by an allocator: that is anonymous memory to them, and a file's here.
use super::{Backing, Memory, SLOT};
use crate::maps::whole;
use crate::sys::{self, Outcome};

/// `MADV_DONTNEED_LOCKED`.
const DONTNEED_LOCKED: i32 = 24;

/// `mprotect` of memory that is an allocator's.
///
/// # Errors
/// As the call has them.
pub fn protect(at: usize, bytes: usize, rights: i32) -> Outcome<()> {
    let _errno = sys::KeepErrno::new();
    let end = whole(at, bytes).ok_or(libc::EINVAL)?;
    let mut memory = super::lock();
    let first = memory.space.slot_of(at).unwrap_or(0);
    let last = memory.space.slot_of(end.saturating_sub(1));
    for slot in first..=last.unwrap_or(memory.space.scratch_slot()) {
        if let Some(slot) = memory.space.slot(slot) {
            slot.odd = true;
        }
    }
    sys::protect(at, bytes, rights)
}

/// `madvise` of memory that is an allocator's.
///
/// # Errors
/// As the call has them.
pub fn advise(at: usize, bytes: usize, advice: i32) -> Outcome<()> {
    let _errno = sys::KeepErrno::new();
    let end = whole(at, bytes).ok_or(libc::EINVAL)?;
    let (mut memory, mut at) = (super::lock(), at);
    while at < end {
        let slot = memory.space.slot_of(at);
        let next = slot.map_or(end, |slot| memory.space.address(slot + 1).min(end));
        match slot.filter(|slot| memory.space.look(*slot).backing == Backing::Pool) {
            Some(slot) => memory.advise_part(slot, at, next, advice)?,
            None => sys::advise(at, next - at, advice)?,
        }
        at = next;
    }
    Ok(())
}

impl Memory {
    /// The same of a part of a slot that a chunk backs.
    fn advise_part(&mut self, slot: usize, at: usize, end: usize, advice: i32) -> Outcome<()> {
        match advice {
            libc::MADV_DONTNEED | DONTNEED_LOCKED => self.clear_part(slot, at, end),
            // What is old may stay there; and a child has a copy of its own, whatever is said.
            libc::MADV_FREE | libc::MADV_DONTFORK | libc::MADV_DOFORK | libc::MADV_KEEPONFORK => {
                Ok(())
            }
            // A file's pages would be gone.
            libc::MADV_REMOVE | libc::MADV_HWPOISON | libc::MADV_SOFT_OFFLINE => Err(libc::EINVAL),
            _ => sys::advise(at, end - at, advice),
        }
    }

    fn clear_part(&mut self, slot: usize, at: usize, end: usize) -> Outcome<()> {
        if !self.space.look(slot).odd {
            // SAFETY: a part of a slot that is mapped; nobody has said that it can't be written.
            unsafe { sys::zero(at, end - at) };
            return Ok(());
        }
        // What may be done with it is the program's affair: zeros come by another way.
        let scratch = self.space.address(self.space.scratch_slot());
        self.map_again(slot, scratch)?;
        // SAFETY: the same part of the same chunk, where it was mapped just now.
        unsafe { sys::zero(scratch + (at - self.space.address(slot)), end - at) };
        sys::vacate(scratch, SLOT)
    }

    /// Maps a slot's chunk at an address, readable and writable, over what is mapped there.
    pub(crate) fn map_again(&self, slot: usize, at: usize) -> Outcome<()> {
        let found = self.space.look(slot);
        let file = self.file(found.file);
        if found.backing != Backing::Pool || !file.is_there() {
            return Err(libc::EINVAL);
        }
        sys::file_at(at, SLOT, file.descriptor, u64::from(found.chunk) * SLOT as u64)
    }
}
