//! What a pool is worth, and what its opening found.

use std::ffi::c_int;

use lode::{Durability, Pool};

use crate::pointers::place;
use crate::pool::{lode_pool, with};

/// What was made durable is gone when the pool is closed.
pub const LODE_DURABLE_NONE: c_int = 0;
/// It survives the process, not the system.
pub const LODE_DURABLE_PROCESS: c_int = 1;
/// It survives a crash of the system, not a power failure.
pub const LODE_DURABLE_SYSTEM: c_int = 2;
/// It survives a power failure.
pub const LODE_DURABLE_POWER: c_int = 3;

/// It had been closed: there was nothing to recover.
pub const LODE_OPENING_CLEAN: u64 = 1;
/// Damage was found that takes nothing away. In a pool that is open to be changed it is repaired.
pub const LODE_OPENING_REPAIRED: u64 = 2;

/// What the opening of a pool found.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct lode_opening {
    /// LODE_OPENING_...
    pub flags: u64,
    /// Inodes that there were.
    pub inodes: u64,
    /// Calls that had been cut off, and did not happen.
    pub aborted: u64,
    /// Files without a name that were open: they are gone.
    pub orphans: u64,
    /// Places that are damaged and can't be read: only a pool that is opened read-only has any.
    pub damaged: u64,
    /// Zeros, for later versions.
    pub reserved: [u64; 8],
}

/// C's number of a class.
pub(crate) fn class(durability: Durability) -> c_int {
    match durability {
        Durability::None => LODE_DURABLE_NONE,
        Durability::ProcessCrash => LODE_DURABLE_PROCESS,
        Durability::KernelCrash => LODE_DURABLE_SYSTEM,
        Durability::Power => LODE_DURABLE_POWER,
    }
}

/// What survives what, once a call has returned: LODE_DURABLE_...
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_pool_durability(pool: *mut lode_pool) -> c_int {
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, |pool| Ok(class(pool.durability()?))) }
}

/// What the opening of a pool found.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_pool_opening(
    pool: *mut lode_pool,
    buffer: *mut lode_opening,
) -> c_int {
    let work = |pool: &Pool| {
        // SAFETY: a place for the structure, by C's promise.
        let buffer = unsafe { place(buffer) }?;
        let found = pool.opening()?;
        let repaired = !found.superblock_damage.is_empty()
            || !found.chain_damage.is_empty()
            || found.checkpoint_damage.is_some();
        let flag = |set, flag| if set { flag } else { 0 };
        buffer.write(lode_opening {
            flags: flag(found.clean, LODE_OPENING_CLEAN) | flag(repaired, LODE_OPENING_REPAIRED),
            inodes: found.inodes,
            aborted: found.aborted,
            orphans: found.orphans,
            damaged: found.damage.len() as u64,
            reserved: [0; 8],
        });
        Ok(0)
    };
    // SAFETY: a handle, by C's promise.
    unsafe { with(pool, -1, work) }
}
