//! The mmap method: one file without a name for each session, which grows by a chunk at a time, and gets holes where
//! chunks are given back.

use std::io;
use std::os::fd::OwnedFd;

use lode_engine::Fallocate;
use lode_host::without_asking;
use lode_loan::{CHUNK_BYTES, Refusal};
use parking_lot::Mutex;

use super::common::{self, File};
use super::{Owner, Source};

/// A part of the file.
struct Slot {
    chunk: u64,
    /// It holds the zeros that it was backed with.
    is_zero: bool,
}

struct Session<O: Owner> {
    file: Option<File<O::Host>>,
    /// By place in the file.
    slots: Vec<Option<Slot>>,
}

/// A file of a pool, for one session.
pub struct Mmap<O: Owner> {
    owner: O,
    spared: u64,
    session: Mutex<Session<O>>,
}

impl<O: Owner> Mmap<O> {
    /// One in this pool, of which `spared` pages besides its reserve are for other files. The file is made when it is needed,
    /// and ends with this.
    pub fn new(owner: O, spared: u64) -> Self {
        let session = Mutex::new(Session { file: None, slots: Vec::new() });
        Self { owner, spared, session }
    }
}

impl<O: Owner> Session<O> {
    fn slot(&mut self, chunk: u64) -> Option<(usize, &mut Option<Slot>)> {
        let is_it = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.chunk == chunk);
        self.slots.iter_mut().enumerate().find(|(_, slot)| is_it(slot))
    }
}

impl<O: Owner> Source for Mmap<O> {
    fn take(&self) -> Result<u64, Refusal> {
        let mut session = self.session.lock();
        let session = &mut *session;
        let taken = without_asking(|| {
            self.owner.with(|pool| {
                if session.file.as_ref().is_none_or(|file| file.life != pool.life()) {
                    session.file = Some(common::make_file(pool)?);
                    session.slots.clear();
                }
                let file = session.file.as_ref().ok_or(Refusal::Ending)?;
                let free = session.slots.iter().position(Option::is_none);
                let place = free.unwrap_or(session.slots.len());
                let chunk = common::back(pool, file, place as u64 * CHUNK_BYTES, self.spared)?;
                Ok((place, chunk))
            })
        });
        let (place, chunk) = taken.ok_or(Refusal::Ending)??;
        let slot = Some(Slot { chunk, is_zero: true });
        match session.slots.get_mut(place) {
            Some(free) => *free = slot,
            None => session.slots.push(slot),
        }
        Ok(chunk)
    }

    fn give(&self, chunk: u64) {
        let mut session = self.session.lock();
        let place = session.slot(chunk).map(|(place, slot)| {
            *slot = None;
            place
        });
        without_asking(|| {
            if let (Some(file), Some(place)) = (&session.file, place) {
                let offset = place as u64 * CHUNK_BYTES;
                let punched = self.owner.with(|pool| match file.life == pool.life() {
                    true => {
                        pool.fallocate(file.handle.ino(), Fallocate::Punch, offset, CHUNK_BYTES)
                    }
                    false => Ok(()),
                });
                if let Some(Err(error)) = punched {
                    tracing::error!(%error, chunk, "a file keeps pages that were given back");
                }
            }
            common::give_back(&self.owner, chunk);
        });
    }

    fn zero(&self, chunk: u64) {
        let mut session = self.session.lock();
        let slot = session.slot(chunk).and_then(|(_, slot)| slot.as_mut());
        if !slot.is_some_and(|slot| std::mem::replace(&mut slot.is_zero, false)) {
            common::zero(&self.owner, chunk);
        }
    }

    fn locked(&self, chunk: u64) -> bool {
        common::locked(&self.owner, chunk)
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        common::descriptor(&self.owner)
    }
}

impl<O: Owner> Drop for Mmap<O> {
    fn drop(&mut self) {
        let Some(file) = self.session.get_mut().file.take() else { return };
        // Chunks of it that are lent still stay lent: whoever gives them back does not need the file.
        without_asking(|| {
            self.owner.with(|pool| {
                if file.life == pool.life() {
                    pool.let_go(file.handle);
                }
            })
        });
    }
}
