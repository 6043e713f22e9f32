//! The files of pools that chunks are of, and the locks on their chunks.
//!
//! A chunk is locked on the open file description that its owner has passed, by the owner, before it is granted; so it is
//! nobody else's from then on, whatever becomes of the owner. Here locks are ended, and taken along to the description that
//! the next owner of the same pool passes.
use super::{Backing, FILES, File, Memory, SLOT};
use crate::session::Lost;
use crate::sys::{self, Locked};

/// Chunks that are looked at in one go through all slots: 32 GiB of a pool.
const WINDOW: usize = 1 << 14;

impl File {
    fn lock(&self, chunk: u32, how: Locked) -> sys::Outcome<()> {
        let start = u64::from(chunk) * SLOT as u64;
        sys::lock_bytes(self.descriptor, start, SLOT as u64, how)
    }

    /// Unlocks the chunks from one to another, which is not one of them; all from there on, where that is none.
    fn unlock(&self, from: usize, to: Option<usize>) {
        let bytes = to.map_or(0, |to| (to.saturating_sub(from) * SLOT) as u64);
        if to.is_none() || bytes > 0 {
            let _ = sys::lock_bytes(self.descriptor, (from * SLOT) as u64, bytes, Locked::No);
        }
    }
}

impl Memory {
    pub(crate) fn file(&self, at: u8) -> File {
        self.files.get(usize::from(at)).copied().unwrap_or(File::NONE)
    }

    /// Takes the descriptor of an owner's pool, and along to it the locks of chunks of the same pool.
    pub(super) fn adopt(&mut self, pool: i32) -> Result<(), Lost> {
        for file in &mut self.files {
            if file.descriptor == pool {
                // Somebody has closed that one: the number is the new one's.
                file.descriptor = sys::NONE;
            }
        }
        let Some(at) = self.files.iter().position(|file| file.locked == 0) else {
            sys::close(pool);
            return Err(Lost);
        };
        let identity = sys::identity(pool).unwrap_or_default();
        let in_memory = sys::in_memory(pool);
        let device = sys::is_device(pool);
        self.drop_file(at as u8);
        if let Some(file) = self.files.get_mut(at) {
            *file = File { descriptor: pool, identity, in_memory, device, locked: 0 };
        }
        self.file = at as u8;
        self.take_locks_along();
        for old in (0..FILES as u8).filter(|old| usize::from(*old) != at) {
            if self.file(old).locked == 0 {
                self.drop_file(old);
            }
        }
        Ok(())
    }

    /// Closes a file that no chunk is known of. What is locked there is what was granted, and never heard of.
    fn drop_file(&mut self, at: u8) {
        let file = self.file(at);
        if file.is_there() {
            // (What is mapped of it may keep the description for a while.)
            file.unlock(0, None);
            sys::close(file.descriptor);
        }
        if let Some(file) = self.files.get_mut(usize::from(at)) {
            *file = File::NONE;
        }
    }

    fn take_locks_along(&mut self) {
        let (to, new) = (self.file, self.file(self.file));
        let mut from = 0;
        while let Some(at) = self.next_of_pool(from) {
            from = at + 1;
            let found = self.space.look(at);
            let old = self.file(found.file);
            if found.file == to || !old.is_same(&new) || !old.is_there() {
                continue;
            }
            // At each moment it is locked by one of the two.
            let is_along = old.lock(found.chunk, Locked::Shared).is_ok()
                && new.lock(found.chunk, Locked::Shared).is_ok();
            if is_along {
                let _ = old.lock(found.chunk, Locked::No);
                self.count_locked(found.file, -1);
                self.count_locked(to, 1);
                if let Some(slot) = self.space.slot(at) {
                    slot.file = to;
                }
            }
            let file = if is_along { new } else { old };
            let _ = file.lock(found.chunk, Locked::Alone);
        }
    }

    /// The next slot from one on that a chunk of a pool backs.
    fn next_of_pool(&self, from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            at = self.space.skip_unused(at)?;
            if self.space.look(at).backing == Backing::Pool {
                return Some(at);
            }
            at += 1;
        }
    }

    /// Unlocks all of the owner's file but the chunks that are known: others were granted by an answer that never came.
    #[cold]
    pub(super) fn unlock_unknown(&mut self) {
        let file = self.file(self.file);
        if !file.is_there() {
            return;
        }
        let (mut first, mut unlocked_to) = (0, 0);
        loop {
            let mut known = [0_u64; WINDOW / 64];
            let mut is_last = true;
            let mut note = |chunk: u32| {
                let at = (chunk as usize).checked_sub(first);
                if let Some(word) = at.and_then(|at| known.get_mut(at / 64)) {
                    *word |= 1 << (chunk % 64);
                } else if at.is_some() {
                    is_last = false;
                }
            };
            let mut from = 0;
            while let Some(at) = self.next_of_pool(from) {
                from = at + 1;
                let found = self.space.look(at);
                if found.file == self.file {
                    note(found.chunk);
                }
            }
            self.ready.iter().take(self.ready_count).for_each(|chunk| note(*chunk));
            for at in 0..WINDOW {
                if known.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1) {
                    file.unlock(unlocked_to, Some(first + at));
                    unlocked_to = first + at + 1;
                }
            }
            if is_last {
                return file.unlock(unlocked_to, None);
            }
            first += WINDOW;
        }
    }

    pub(super) fn count_locked(&mut self, file: u8, more: i32) {
        if let Some(file) = self.files.get_mut(usize::from(file)) {
            file.locked = file.locked.saturating_add_signed(more);
        }
    }

    /// Unlocks a chunk that is not mapped any more.
    pub(crate) fn unlock(&mut self, chunk: u32, file: u8) {
        let of = self.file(file);
        if of.is_there() {
            let _ = of.lock(chunk, Locked::No);
        }
        self.count_locked(file, -1);
        self.count_held(-1);
        self.stats.returned += SLOT as u64;
    }
}
