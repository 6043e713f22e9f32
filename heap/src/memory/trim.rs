//! What nobody uses goes back to the owner.
use super::{Backing, Memory, READY, Slot};
use crate::keeper;

/// Chunks on their way back: unmapped and unlocked, of the present owner.
struct Batch {
    chunks: [u32; READY],
    count: usize,
}

impl Memory {
    /// Gives back idle chunks, `most` of them at most; where `aged`, only those that were idle when this was
    /// called last. How many.
    pub(crate) fn trim(&mut self, most: usize, aged: bool) -> usize {
        let mut batch = Batch { chunks: [0; READY], count: 0 };
        let (mut given, mut from) = (0, 0);
        while given < most
            && let Some(at) = self.space.next_idle(from)
        {
            from = at + 1;
            if aged
                && let Some(slot) = self.space.slot(at)
                && !slot.aged
            {
                slot.aged = true;
                continue;
            }
            self.release(at, &mut batch);
            given += 1;
        }
        self.send(&mut batch);
        if !aged {
            self.put_ready_back();
        }
        given
    }

    /// Gives back the chunks of a range that are idle.
    pub(crate) fn release_idle(&mut self, first: usize, slots: usize) {
        let mut batch = Batch { chunks: [0; READY], count: 0 };
        for at in first..first + slots {
            if self.space.look(at).backing == Backing::Pool {
                self.release(at, &mut batch);
            }
        }
        self.send(&mut batch);
    }

    fn release(&mut self, at: usize, batch: &mut Batch) {
        let found = self.space.look(at);
        self.set_idle(at, false);
        if self.vacate_slot(at).is_err() {
            return self.set_idle(at, true);
        }
        if let Some(slot) = self.space.slot(at) {
            *slot = Slot { run: slot.run, taken: slot.taken, ..Slot::default() };
        }
        self.unlock(found.chunk, found.file);
        if found.file != self.file {
            return;
        }
        if let Some(place) = batch.chunks.get_mut(batch.count) {
            *place = found.chunk;
            batch.count += 1;
        }
        if batch.count == READY {
            self.send(batch);
        }
    }

    fn send(&mut self, batch: &mut Batch) {
        if batch.count > 0 {
            self.session.give(batch.chunks.get(..batch.count).unwrap_or_default());
            batch.count = 0;
            if self.session.has_wishes() {
                keeper::wake(self);
            }
        }
    }
}
