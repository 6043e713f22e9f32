//! Writing by sectors: whole ones, each of them atomic, and the call as a whole not.
//!
//! What a file has pages for that nobody else sees is written through the sector journal, by as many threads at a time as
//! there are lanes, with no record and no new times. All else goes the way of other writes.
//!
//! Who writes by a handle takes no lock of the inode where it has written before: it looks where that was, in which version of the inode, and
//! with a lane held whether the inode has that version still. Whoever gets the right to change the inode gives it another version first, and
//! then waits for lanes: so it waits for this one, or this one sees that version.

use core::sync::atomic::Ordering::Relaxed;

use lode_pmem::Medium;

use super::write::regular;
use crate::inode::{File, Node, State};
use crate::layout::SectorLine;
use crate::store::Locked;
use crate::{Error, Handle, Host, Ino, Op, PAGE_BYTES, Pool, Result, Rule};

/// Bytes of a sector: what is written is whole ones.
pub const SECTOR_BYTES: u64 = 512;

/// What became of a part of a write.
enum Written {
    /// So many bytes are written.
    Bytes(usize),
    /// The file, or the pool, is not ready for that.
    NotReady,
    /// These bytes are to go the way of others.
    Otherwise,
    /// None: the file is too small.
    Outside,
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Writes all of `data` at `offset`, durably, and each sector of 512 bytes atomically; so are the 4096 bytes of a page. (Of what a crash
    /// cuts off some may be there.) The times of the file may stay.
    ///
    /// # Errors
    /// [`Error::Invalid`] where these are not whole sectors; those of [`Pool::write`]: then some sectors may be written.
    pub fn write_sectors(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.write_sectors_of(&*self.node(ino)?, None, offset, data, 0).map(|_| ())
    }

    /// As [`Pool::write_sectors`].
    ///
    /// # Errors
    /// The same.
    pub fn write_sectors_held(&self, file: &Handle<H>, offset: u64, data: &[u8]) -> Result<()> {
        self.write_sectors_of(&file.node, Some(file), offset, data, 0).map(|_| ())
    }

    /// As [`Pool::write_sectors`], if the file has `size` bytes at least; says whether it has. Else nothing is written.
    ///
    /// # Errors
    /// The same.
    pub fn write_sectors_within(
        &self,
        file: &Handle<H>,
        offset: u64,
        data: &[u8],
        size: u64,
    ) -> Result<bool> {
        self.write_sectors_of(&file.node, Some(file), offset, data, size)
    }

    fn write_sectors_of(
        &self,
        node: &Node<H>,
        handle: Option<&Handle<H>>,
        offset: u64,
        data: &[u8],
        size: u64,
    ) -> Result<bool> {
        let len = data.len() as u64;
        if !offset.is_multiple_of(SECTOR_BYTES) || !len.is_multiple_of(SECTOR_BYTES) {
            return Err(Error::Invalid);
        }
        self.store.before_operation()?;
        let (mut done, mut is_ready) = (0, false);
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.checked_add(done as u64).ok_or(Error::FileTooLarge)?;
            let known = handle.map_or(Ok(0), |file| self.write_known(file, at, rest, size))?;
            if known == rest.len() {
                // (It is counted.)
                return Ok(true);
            }
            if known > 0 {
                done += known;
                continue;
            }
            match self.write_in_lane(node, handle, at, rest, size)? {
                Written::Bytes(bytes) => done += bytes,
                Written::NotReady if !is_ready && self.ready_for_sectors(node)? => is_ready = true,
                Written::NotReady | Written::Otherwise => {
                    return self.write_node(node, Some(at), rest).map(|_| true);
                }
                Written::Outside => return Ok(false),
            }
        }
        self.counts.add_here(self.store.lane(), Op::Write);
        Ok(true)
    }

    /// Makes a file, and the pool, ready to be written by sectors; says whether they are.
    #[cold]
    #[inline(never)]
    fn ready_for_sectors(&self, node: &Node<H>) -> Result<bool> {
        if self.options.relaxed || !self.store.make_sectors()? {
            return Ok(false);
        }
        let mut state = node.write(&self.store)?;
        regular(&state)?;
        // Else a recovery would put what is journalled over what is written.
        match self.retire_now(node, &mut state) {
            Err(Error::NoSpace) => return Ok(false),
            result => result?,
        }
        state.file_mut()?.by_sectors = true;
        Ok(true)
    }

    /// As [`Pool::write_in_lane`], where it is known how; else nothing is written. Who so writes all of `bytes` is counted as one
    /// operation, as the lane has asked already which processor this is.
    #[inline(never)]
    fn write_known(&self, file: &Handle<H>, offset: u64, bytes: &[u8], size: u64) -> Result<usize> {
        let (store, node) = (&self.store, &*file.node);
        let Some(place) = file.places.for_sectors(node.version(), offset, size) else {
            return Ok(0);
        };
        let Some(held) = store.hold_sector_lane() else { return Ok(0) };
        let ino = node.slot.ino();
        held.writes(ino);
        // (A snapshot is waited for by nobody, and waits for lanes: it is known of here, or sees what is written.)
        let is_same = node.version() == place.version && place.born > store.latest()
            || store.host.leaves_out(Rule::SectorsKnown);
        if !is_same || store.bad.any() {
            return Ok(0);
        }
        // (Who ends the session waits for lanes.)
        store.writable()?;
        let most = (held.slot_bytes() - offset % PAGE_BYTES).min(place.len);
        let len = most.min(bytes.len() as u64);
        let part = bytes.get(..len as usize).unwrap_or_default();
        let (nonce, home_at) = (place.nonce, place.at);
        let line = SectorLine { ino, nonce, offset, home_at, len, sequence: 0 };
        store.write_sectors(&held, line, part)?;
        if part.len() == bytes.len() {
            self.counts.add_here(held.cpu(), Op::Write);
        }
        Ok(part.len())
    }

    /// Writes as much from the beginning of `bytes` as goes in one, to a file of `size` bytes at least.
    #[inline(never)]
    fn write_in_lane(
        &self,
        node: &Node<H>,
        handle: Option<&Handle<H>>,
        offset: u64,
        bytes: &[u8],
        size: u64,
    ) -> Result<Written> {
        let store = &self.store;
        let state = node.read(store)?;
        if state.size < size {
            return Ok(Written::Outside);
        }
        let file = state.file()?;
        let Some(area) = store.sectors.area().filter(|_| file.takes_sectors()) else {
            return Ok(Written::NotReady);
        };
        // (The epoch first: should a snapshot come between, it is another one when the lane is held.)
        let (epoch, latest) = (store.epoch(), store.latest());
        let extent = file.extents.find(offset / PAGE_BYTES).filter(|extent| extent.epoch > latest);
        let Some(extent) = extent.filter(|_| !state.is_dead()) else {
            return Ok(Written::Otherwise);
        };
        let end = (extent.end() * PAGE_BYTES).min(state.size);
        let most = area.slot_bytes() - offset % PAGE_BYTES;
        let len = end.saturating_sub(offset).min(bytes.len() as u64).min(most);
        let len = len - len % SECTOR_BYTES;
        let home_at = extent.page * PAGE_BYTES + (offset - extent.file_page * PAGE_BYTES);
        if len == 0 || store.bad.any() && store.bad.touches(home_at, len) {
            return Ok(Written::Otherwise);
        }
        let bytes = bytes.get(..len as usize).unwrap_or_default();
        let (ino, nonce) = (state.log.ino, state.log.nonce);
        let Some(held) = store.hold_sector_lane() else { return Ok(Written::NotReady) };
        // (Who ends the session waits for lanes.)
        store.writable()?;
        if held.epoch() != epoch {
            return Ok(Written::Bytes(0));
        }
        if !file.sector_lines.load(Relaxed) {
            file.sector_lines.store(true, Relaxed);
        }
        held.writes(ino);
        if let Some(handle) = handle {
            self.note_sectors(handle, &state, offset, len);
        }
        // (Others' processors want its lock, and from now on the lane is in its place.)
        drop(state);
        let line = SectorLine { ino, nonce, offset, home_at, len, sequence: 0 };
        store.write_sectors(&held, line, bytes)?;
        Ok(Written::Bytes(bytes.len()))
    }

    /// Reads bytes below the size of a file that is written by sectors: none of them is torn.
    #[inline(never)]
    pub(super) fn read_sectors(
        &self,
        state: &State,
        file: &File,
        offset: u64,
        into: &mut [u8],
    ) -> Result<()> {
        let (stripes, ino) = (&self.store.sectors.stripes, state.log.ino);
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let most = AT_ONCE - at % PAGE_BYTES;
            let len = (rest.len() as u64).min(most);
            let (bytes, tail) = rest.split_at_mut(len as usize);
            let mut home = Ok(());
            let is_whole = stripes.are_whole(ino, (at, at + len), || {
                home = self.read_home(state, file, at, bytes);
                home.is_ok()
            });
            home?;
            if !is_whole {
                let mut locked = Locked::none();
                stripes.lock(&mut locked, ino, at, at + len);
                self.read_home(state, file, at, bytes)?;
            }
            (at, rest) = (at + len, tail);
        }
        Ok(())
    }
}

/// Bytes that are read in one: as many as are written.
pub(super) const AT_ONCE: u64 = crate::layout::SECTOR_PAGES_MOST as u64 * PAGE_BYTES;

impl File {
    /// Whether it is ready to be written by sectors.
    #[inline]
    fn takes_sectors(&self) -> bool {
        self.by_sectors && self.may_take_sectors()
    }

    /// Whether nothing of it stands against that.
    #[inline]
    pub(super) fn may_take_sectors(&self) -> bool {
        !self.is_mapped() && self.exempt.is_none() && !self.journal.is_pending()
    }
}
