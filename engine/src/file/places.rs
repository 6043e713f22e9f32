//! Where a file that is written by sectors has its pages, for those who read it all the time.
//!
//! Who reads through a [`SectorFile`] takes no lock, and stores to nothing that another reader loads: it looks whether
//! the inode has the version that the place of these bytes was noted in, loads them, and looks whether it has it still, and whether
//! nobody has stored these sectors meanwhile. Else they are read as others are, with the inode locked, and the place is
//! noted.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, fence};

use lode_pmem::Medium;

use super::sectors::AT_ONCE;
use crate::inode::State;
use crate::{Handle, Host, Ino, Op, PAGE_BYTES, PageClass, Pool, Result};

/// Bytes whose place is noted in one: as large as pages of large files are.
const CHUNK: u64 = PageClass::Huge.pages() * PAGE_BYTES;
/// Places of a file, at most (of 128 GiB): what is behind them is read as other files are.
const PLACES_MOST: u64 = 1 << 16;

/// Where a chunk of the file is, all of it in one.
#[derive(Default)]
struct Place {
    /// One more than the version of the inode that knows (which is even: nobody was changing it); else 0.
    version: AtomicU64,
    /// Offset in the pool.
    at: AtomicU64,
}

/// A file that is open to be read and written by sectors, from [`Pool::hold_by_sectors`] on. (What was opened is let go by
/// [`Pool::let_go`], with [`SectorFile::into_handle`].)
pub struct SectorFile<H: Host> {
    handle: Handle<H>,
    places: Vec<Place>,
}

impl<H: Host> SectorFile<H> {
    /// The file.
    #[inline]
    pub fn handle(&self) -> &Handle<H> {
        &self.handle
    }

    /// The same, without what is known of its places.
    pub fn into_handle(self) -> Handle<H> {
        self.handle
    }

    /// Where the byte at `offset` was in this version, if that is known.
    #[inline]
    fn place(&self, version: u64, offset: u64) -> Option<u64> {
        let place = self.places.get((offset / CHUNK) as usize)?;
        // (That of an inode which somebody changes just now is odd, and no place's.)
        (place.version.load(Acquire) == version + 1)
            .then(|| place.at.load(Acquire) + offset % CHUNK)
    }

    /// Notes where bytes are that were read, by who has the right to look at the inode.
    fn note(&self, state: &State, offset: u64, len: u64) {
        let Ok(file) = state.file() else { return };
        // (Else something is to be asked besides the pages.)
        let is_home = file.exempt.is_none() && file.journal.pending().is_empty();
        if !is_home || state.view != 0 || len == 0 {
            return;
        }
        let version = self.handle.node.version();
        for chunk in offset / CHUNK..=(offset + len - 1) / CHUNK {
            let (from, end) = (chunk * CHUNK, (chunk + 1) * CHUNK);
            let Some(place) = self.places.get(chunk as usize) else { return };
            let extent = file.extents.find(from / PAGE_BYTES);
            let Some(extent) = extent.filter(|extent| {
                extent.end() * PAGE_BYTES >= end && end <= state.size && version.is_multiple_of(2)
            }) else {
                continue;
            };
            if place.version.load(Relaxed) != version + 1 {
                // (Others who note it now note the same.)
                place.version.store(0, Relaxed);
                fence(Release);
                let skip = from - extent.file_page * PAGE_BYTES;
                place.at.store(extent.page * PAGE_BYTES + skip, Release);
                place.version.store(version + 1, Release);
            }
        }
    }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Opens a file that is read and written by sectors: [`Pool::hold`], with room for what becomes known of its places.
    ///
    /// # Errors
    /// Those of [`Pool::hold`]; `NoMemory`.
    pub fn hold_by_sectors(&self, ino: Ino) -> Result<SectorFile<H>> {
        let handle = self.hold(ino)?;
        let size = self.size_held(&handle);
        let count = size.map(|size| size.div_ceil(CHUNK).min(PLACES_MOST) as usize);
        let places = count.and_then(|count| {
            let mut places = Vec::new();
            places.try_reserve_exact(count)?;
            places.resize_with(count, Place::default);
            Ok(places)
        });
        match places {
            Ok(places) => Ok(SectorFile { handle, places }),
            Err(error) => {
                self.let_go(handle);
                Err(error)
            }
        }
    }

    /// As [`Pool::read_quietly`]: no sector is torn that was written by [`Pool::write_sectors`].
    ///
    /// # Errors
    /// The same.
    pub fn read_by_sectors(
        &self,
        file: &SectorFile<H>,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let Some(at) = offset.checked_add(done as u64) else { break };
            let most = (AT_ONCE - at % PAGE_BYTES).min(CHUNK - at % CHUNK);
            let len = (rest.len() as u64).min(most) as usize;
            let (part, _) = rest.split_at_mut(len);
            if !self.read_known(file, at, part) {
                break;
            }
            done += len;
        }
        match into.get_mut(done..) {
            Some(rest) if !rest.is_empty() || done == 0 => {
                let (at, len) = (offset.saturating_add(done as u64), rest.len() as u64);
                let node = &file.handle.node;
                let has_sums = self.store.geometry.strips.are_kept();
                let note = |state: &State| {
                    if !has_sums {
                        file.note(state, at, len)
                    }
                };
                Ok(done + self.read_node(node, at, rest, note)?)
            }
            _ => {
                self.count(Op::Read);
                Ok(done)
            }
        }
    }

    /// Reads bytes of one chunk, no more than are locked in one, where their place is known; says whether it did.
    #[inline]
    fn read_known(&self, file: &SectorFile<H>, at: u64, into: &mut [u8]) -> bool {
        let (store, node) = (&self.store, &file.handle.node);
        let (version, ino, end) = (node.version(), node.slot.ino(), at + into.len() as u64);
        let Some(place) = file.place(version, at).filter(|_| !store.bad.any()) else {
            return false;
        };
        let Some(versions) = store.sectors.versions(ino, at, end) else { return false };
        // (What can't be loaded is met again by who tells of it.)
        store.door.load(place, into).is_ok()
            && store.sectors.are_same(&versions, ino, at, end)
            && node.version() == version
    }
}
