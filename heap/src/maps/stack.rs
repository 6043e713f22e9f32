//! Forks on a stack that a program has mapped: parent and child would run on the same pages until the child has its own.
use super::table::MINE;
use crate::memory::{Backing, Memory, PAGE};
use crate::sys;

/// Pages below the stack's pointer that a fork and its handlers may use, and those above it where their callers are.
const BELOW: usize = 8;
const ABOVE: usize = 2;

impl Memory {
    /// Whether this thread runs on an allocator's block that is the pool's.
    pub(crate) fn is_on_block(&self) -> bool {
        let here = 0_u8;
        let slot = self.space.slot_of((&raw const here) as usize);
        slot.is_some_and(|slot| {
            !self.space.is_for_maps(slot) && self.space.look(slot).backing == Backing::Pool
        })
    }

    /// Makes anonymous memory of the pages that this thread runs on, where they are the pool's.
    pub(crate) fn leave_stack(&mut self) -> Result<(), i32> {
        let here = 0_u8;
        let Some(page) = self.maps.page_of((&raw const here) as usize) else {
            return Ok(());
        };
        let is_mine = |page: usize| self.maps.state(page) & MINE != 0;
        if !is_mine(page) {
            return Ok(());
        }
        let like = self.maps.state(page);
        let same = |page: &usize| self.maps.state(*page) == like;
        let from = (page.saturating_sub(BELOW)..page).rev().take_while(same).last().unwrap_or(page);
        let to = (page..page + 1 + ABOVE).take_while(same).last().unwrap_or(page) + 1;
        let bytes = (to - from) * PAGE;
        let other = sys::anonymous(bytes)?;
        // SAFETY: the memory at `other` is nobody's, and as large; signals wait, since the lock is held.
        if let Err(error) = unsafe { swap(self.maps.address(from), other, bytes) } {
            let _ = sys::unmap(other, bytes);
            return Err(error);
        }
        self.forget_pages(from, to, super::table::FOREIGN);
        self.count_foreign(self.maps.address(from), bytes);
        Ok(())
    }
}

/// Copies memory to `other`, and moves that to where it was, without a store to a stack in between: it may be the stack.
///
/// # Safety
/// Both are mapped, readable and writable; `other` is nobody's; no handler of a signal runs in this thread meanwhile.
#[cfg(target_arch = "x86_64")]
unsafe fn swap(at: usize, other: usize, bytes: usize) -> Result<(), i32> {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    let result: isize;
    // SAFETY: as the caller says. The copy is made, and takes the old pages' place, in registers alone.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            "mov rdi, {other}",
            "mov rsi, rdx",
            "mov eax, {mremap}",
            "syscall",
            other = in(reg) other,
            mremap = const libc::SYS_mremap,
            inout("rdi") other => _,
            inout("rsi") at => _,
            inout("rcx") bytes => _,
            in("rdx") bytes,
            in("r10") flags,
            in("r8") at,
            out("rax") result,
            out("r11") _,
            options(nostack),
        );
    }
    if result < 0 { Err(-result as i32) } else { Ok(()) }
}

/// It can't be known how a compiler's code uses the stack meanwhile.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn swap(_: usize, _: usize, _: usize) -> Result<(), i32> {
    Err(libc::ENOSYS)
}
