//! Memory that a program maps by itself, privately and anonymously, from the pool.
//!
//! An area of the address space is for such mappings; pages of it are handed out in runs, and what may be done with them is kept page by
//! page (`table`). To the program they are anonymous memory: zeros at first and after `MADV_DONTNEED`, copied for a child. What can't
//! be so with pages of a file becomes anonymous memory then and there, and is the program's own business from then on.
//!
//! The functions are the system's calls, with the same errors; of a range they see to what is theirs, and pass on the rest.
//! They may be called from a handler of signals: signals wait while the lock is held, and no allocator is called.
//!
//! * `table`: the pages. `pages`: their memory. `calls`: the calls. `moves`: `mremap`. `counted`: DRAM that the program has mapped.
//!   `forked`: a child's copy. `stack`: the stack that a fork is called on.
mod calls;
mod counted;
mod forked;
mod moves;
mod pages;
mod stack;
mod table;

use core::sync::atomic::{AtomicUsize, Ordering};

pub use crate::memory::{advise as advise_block, protect as protect_block};
pub(crate) use calls::whole;
pub use calls::{Wanted, advise, is_resident, leave, map, protect, sync, takes, unmap};
pub(crate) use counted::Counted;
pub use moves::{Moved, remap, remapped};
pub(crate) use table::Table;

/// Where the area for mappings is, once there is one: what isn't there needs no lock.
pub(crate) struct Bounds {
    start: AtomicUsize,
    end: AtomicUsize,
}

static AREA: Bounds = Bounds { start: AtomicUsize::new(usize::MAX), end: AtomicUsize::new(0) };

/// All that is reserved.
pub(crate) static SPACE: Bounds =
    Bounds { start: AtomicUsize::new(usize::MAX), end: AtomicUsize::new(0) };

impl Bounds {
    pub(crate) fn set(&self, start: usize, end: usize) {
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Release);
    }

    fn meets(&self, at: usize, bytes: usize) -> bool {
        at < self.end.load(Ordering::Acquire)
            && at.saturating_add(bytes.max(1)) > self.start.load(Ordering::Relaxed)
    }
}

/// Whether unmapping a range has to do with this: something may have been mapped here, or be counted.
#[inline]
pub fn concerns(at: usize, bytes: usize) -> bool {
    AREA.meets(at, bytes) || counted::are_any()
}

/// Whether a range that does not meet mappings may be an allocator's.
#[inline]
pub fn is_of_blocks(at: usize, bytes: usize) -> bool {
    SPACE.meets(at, bytes)
}

/// Whether some of a range may have been mapped here.
#[inline]
pub fn meets(at: usize, bytes: usize) -> bool {
    AREA.meets(at, bytes)
}
