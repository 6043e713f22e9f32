//! What backs the address space: chunks that an owner lends, or anonymous memory while there is none.
//!
//! * `space`: the address space and its slots. `supply`: where a slot's chunk comes from.
//! * `advice`: what programs say of it. `files`: the files they are of, and the locks on them. `pages`: memory that an allocator cuts small. `blocks`: memory by whole slots. `trim`: what nobody uses goes back.
//!
//! A chunk that nobody uses any more stays where it is, *idle*, until it is used again, moved to
//! where one is missing, or given back. What can't be had from the pool since its owner says no, can't be had; anonymous
//! memory takes its place only where there is no owner.
mod advice;
mod blocks;
mod files;
mod pages;
mod space;
mod supply;
mod trim;

pub use advice::{advise, protect};
pub use space::{Area, PAGE, SLOT};
pub(crate) use space::{Backing, PAGES, Slot, Space, bits, runs};

use crate::bell::Bell;
use crate::fork_page::ForkPage;
use crate::lock::{Guard, Lock};
use crate::maps::{Counted, Table};
use crate::session::Session;
use crate::settings::Settings;
use crate::sys;

/// Files of pools that chunks can be of at a time: one, but for programs whose owners changed.
const FILES: usize = 8;
/// Chunks that are lent and not mapped yet.
const READY: usize = lode_loan::CHUNKS_MOST as usize;

/// A descriptor of a pool's file, under which chunks are locked.
#[derive(Clone, Copy)]
pub(crate) struct File {
    pub(crate) descriptor: i32,
    identity: (u64, u64),
    in_memory: bool,
    /// It is a device, not a file.
    device: bool,
    /// Chunks locked under it.
    locked: u32,
}

impl File {
    const NONE: Self = Self {
        descriptor: sys::NONE,
        identity: (0, 0),
        in_memory: false,
        device: false,
        locked: 0,
    };

    /// Whether both are of one pool.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.identity == other.identity
    }

    /// Whether the number still is the pool's file: programs close descriptors that aren't theirs.
    pub(crate) fn is_there(&self) -> bool {
        self.descriptor != sys::NONE && sys::identity(self.descriptor) == Some(self.identity)
    }
}

/// Figures of a process's memory; bytes, where nothing else is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Lent by the pool's owner now.
    pub held: u64,
    /// Of these, in use by nobody.
    pub idle: u64,
    /// In use, from the pool.
    pub pool: u64,
    /// In use, from DRAM.
    pub dram: u64,
    /// Lent at most.
    pub held_peak: u64,
    /// In use from the pool when most was in use.
    pub pool_peak: u64,
    /// In use from DRAM then.
    pub dram_peak: u64,
    /// Lent since the process began.
    pub lent: u64,
    /// Given back since then.
    pub returned: u64,
    /// Bytes whose pages went to another address instead of being copied.
    pub moved: u64,
    /// Wishes for memory that the owner refused.
    pub refused: u64,
    /// Owners that were found.
    pub owners: u64,
}

/// All there is of it in this process.
pub(crate) struct Memory {
    pub(crate) space: Space,
    pub(crate) maps: Table,
    pub(crate) counted: Counted,
    pub(crate) session: Session,
    pub(crate) settings: Settings,
    pub(crate) files: [File; FILES],
    /// Of these, the owner's.
    file: u8,
    ready: [u32; READY],
    ready_count: usize,
    pub(crate) stats: Stats,
    /// Wakes the keeper.
    pub(crate) bell: Bell,
    /// What a fork's two sides say to each other.
    pub(crate) fork: ForkPage,
}

// SAFETY: numbers and addresses, none of them a thread's own.
unsafe impl Send for Memory {}

static MEMORY: Lock<Memory> = Lock::new(Memory {
    space: Space::NONE,
    maps: Table::NONE,
    counted: Counted::NONE,
    session: Session::NONE,
    settings: Settings::NONE,
    files: [File::NONE; FILES],
    file: 0,
    ready: [0; READY],
    ready_count: 0,
    stats: Stats {
        held: 0,
        idle: 0,
        pool: 0,
        dram: 0,
        held_peak: 0,
        pool_peak: 0,
        dram_peak: 0,
        lent: 0,
        returned: 0,
        moved: 0,
        refused: 0,
        owners: 0,
    },
    bell: Bell::NONE,
    fork: ForkPage::NONE,
});

/// The lock on it.
pub(crate) fn lock() -> Guard<'static, Memory> {
    MEMORY.lock()
}

/// A guard for what a fork has locked.
///
/// # Safety
/// As [`Lock::taken`].
pub(crate) unsafe fn locked_before() -> Guard<'static, Memory> {
    // SAFETY: as the caller says.
    unsafe { MEMORY.taken() }
}

impl Memory {
    /// Figures of now.
    pub(crate) fn stats(&self) -> Stats {
        self.stats
    }

    /// A slot is backed by the pool, or not any more.
    fn count_held(&mut self, more: i64) {
        self.stats.held = self.stats.held.saturating_add_signed(more * SLOT as i64);
        self.stats.held_peak = self.stats.held_peak.max(self.stats.held);
    }

    /// So many more bytes are in use, from what backs them.
    pub(crate) fn count_used(&mut self, backing: Backing, bytes: i64) {
        let stats = &mut self.stats;
        let place = if backing == Backing::Pool { &mut stats.pool } else { &mut stats.dram };
        *place = place.saturating_add_signed(bytes);
        if stats.pool + stats.dram > stats.pool_peak + stats.dram_peak {
            (stats.pool_peak, stats.dram_peak) = (stats.pool, stats.dram);
        }
    }

    /// Takes what backs a slot out of the address space. (Of mappings nothing is left there when nobody has any of it.)
    pub(crate) fn vacate_slot(&self, slot: usize) -> sys::Outcome<()> {
        if self.space.is_for_maps(slot) {
            return Ok(());
        }
        sys::vacate(self.space.address(slot), SLOT)
    }

    pub(crate) fn set_idle(&mut self, slot: usize, idle: bool) {
        if self.space.set_idle(slot, idle) {
            let bytes = SLOT as u64;
            let stats = &mut self.stats;
            stats.idle = if idle { stats.idle + bytes } else { stats.idle.saturating_sub(bytes) };
        }
        let is_odd = idle && self.space.look(slot).odd;
        if is_odd && !self.space.is_for_maps(slot) {
            // (Whoever has it next may read and write it.)
            let _ = self.map_again(slot, self.space.address(slot));
        }
        if let Some(slot) = self.space.slot(slot) {
            slot.aged = false;
            slot.odd &= !is_odd;
        }
    }
}
