//! The index of a write-ahead log: memory that the connections to a database share, and its locks.
//!
//! A pool has one process that changes it, so that nobody else needs to see it: it is on the heap, begins
//! empty, and is gone with the last connection.

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;

use libsqlite3_sys as ffi;

use crate::error::Outcome;

/// How many locks there are.
pub(crate) const LOCKS: usize = ffi::SQLITE_SHM_NLOCK as usize;

/// Memory and locks of one database.
#[derive(Default)]
pub(crate) struct SharedMemory {
    /// SQLite changes these from all its threads, ordered as it sees fit.
    regions: Vec<Box<[AtomicU64]>>,
    /// How many hold each lock to share it; -1 where one has it alone.
    locks: [i32; LOCKS],
    users: usize,
}

/// What one connection has of it.
#[derive(Default)]
pub(crate) struct Share {
    uses: bool,
    shared: u32,
    exclusive: u32,
}

/// Which locks a call is about.
#[derive(Clone, Copy)]
pub(crate) struct Which {
    from: usize,
    count: usize,
}

impl Which {
    /// Checks what SQLite says.
    pub(crate) fn new(from: i32, count: i32) -> Outcome<Self> {
        match (usize::try_from(from), usize::try_from(count)) {
            (Ok(from), Ok(count)) if count > 0 && from + count <= LOCKS => Ok(Self { from, count }),
            _ => Err(ffi::SQLITE_IOERR_SHMLOCK),
        }
    }

    fn bits(self) -> u32 {
        ((1 << self.count) - 1) << self.from
    }
}

impl SharedMemory {
    /// Memory of a region of `bytes` bytes. Where it is not there yet it is made, or it is null.
    pub(crate) fn map(
        &mut self,
        share: &mut Share,
        (region, bytes): (usize, usize),
        make: bool,
    ) -> Outcome<*mut c_void> {
        if !share.uses {
            (share.uses, self.users) = (true, self.users + 1);
        }
        while make && self.regions.len() <= region {
            let memory = zeros(bytes.div_ceil(size_of::<AtomicU64>()));
            let kept =
                self.regions.try_reserve(1).map(|()| memory.map(|new| self.regions.push(new)));
            kept.ok().flatten().ok_or(ffi::SQLITE_IOERR_NOMEM)?;
        }
        let Some(found) = self.regions.get(region) else { return Ok(std::ptr::null_mut()) };
        if size_of_val(&**found) < bytes {
            return Err(ffi::SQLITE_IOERR_SHMSIZE);
        }
        Ok(found.as_ptr().cast_mut().cast())
    }

    /// Takes locks, to share them or alone; busy where somebody is in the way.
    pub(crate) fn lock(&mut self, share: &mut Share, which: Which, alone: bool) -> Outcome<()> {
        if !share.uses {
            return Err(ffi::SQLITE_IOERR_SHMLOCK);
        }
        let bits = which.bits();
        if !alone && share.shared & bits == bits {
            return Ok(());
        }
        let mine = (share.shared | share.exclusive) & bits != 0;
        let mut locks = self.locks.iter_mut().skip(which.from).take(which.count);
        if mine || locks.any(|lock| if alone { *lock != 0 } else { *lock < 0 }) {
            return Err(ffi::SQLITE_BUSY);
        }
        for lock in self.locks.iter_mut().skip(which.from).take(which.count) {
            *lock = if alone { -1 } else { *lock + 1 };
        }
        let held = if alone { &mut share.exclusive } else { &mut share.shared };
        *held |= bits;
        Ok(())
    }

    /// Gives locks back; those that are not held need nothing.
    pub(crate) fn unlock(&mut self, share: &mut Share, which: Which) {
        let bits = which.bits();
        for (number, lock) in self.locks.iter_mut().enumerate() {
            let bit = bits & 1 << number;
            if share.exclusive & bit != 0 {
                *lock = 0;
            } else if share.shared & bit != 0 {
                *lock -= 1;
            }
        }
        share.exclusive &= !bits;
        share.shared &= !bits;
    }

    /// A connection needs the memory no longer. Nobody does: it is gone.
    pub(crate) fn leave(&mut self, share: &mut Share) {
        self.unlock(share, Which { from: 0, count: LOCKS });
        if std::mem::take(&mut share.uses) {
            self.users = self.users.saturating_sub(1);
        }
        if self.users == 0 {
            self.regions = Vec::new();
        }
    }
}

fn zeros(count: usize) -> Option<Box<[AtomicU64]>> {
    let mut words = Vec::new();
    words.try_reserve_exact(count).ok()?;
    words.resize_with(count, AtomicU64::default);
    Some(words.into_boxed_slice())
}
