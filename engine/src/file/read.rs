//! Reading: no fence, no store but a relaxed access time.

use core::sync::atomic::Ordering::Relaxed;

use lode_pmem::{LINE_BYTES, Medium};

use crate::index::Extent;
use crate::inode::{File, Node, State};
use crate::integrity::Whose;
use crate::layout::{IDENTITY_ATIME_AT, slot_at};
use crate::{AccessTimes, Error, Host, Ino, Op, PAGE_BYTES, Pool, Result};

/// Access times older than this are renewed by a read (relatime).
pub(super) const RELATIME_NS: i64 = 24 * 60 * 60 * 1_000_000_000;

impl<M: Medium, H: Host> Pool<M, H> {
    /// Reads up to `into.len()` bytes; fewer only at the end of the file. The access time moves as
    /// the pool was opened to have it.
    pub fn read(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.read_node(&*self.node(ino)?, offset, into, |state| self.touch(state))
    }

    /// The same, and the access time stays (`O_NOATIME`).
    pub fn read_quietly(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.read_node(&*self.node(ino)?, offset, into, |_| ())
    }

    pub(crate) fn read_node(
        &self,
        node: &Node<H>,
        offset: u64,
        into: &mut [u8],
        was_read: impl FnOnce(&State),
    ) -> Result<usize> {
        self.count(Op::Read);
        let state = node.read(&self.store)?;
        if self.reads_alone(node, &state, offset, into.len() as u64) {
            drop(state);
            return self.read_alone(node, offset, into, was_read);
        }
        self.read_locked(&state, offset, into, was_read)
    }

    /// The same, with the right to look at the inode.
    #[inline]
    pub(super) fn read_locked(
        &self,
        state: &State,
        offset: u64,
        into: &mut [u8],
        was_read: impl FnOnce(&State),
    ) -> Result<usize> {
        super::write::regular(state)?;
        let left = state.size.saturating_sub(offset);
        let len = left.min(into.len() as u64) as usize;
        let into = into.get_mut(..len).unwrap_or_default();
        self.read_pages(state, offset, into)?;
        if len > 0 {
            was_read(state);
        }
        Ok(len)
    }

    /// Reads bytes below the size; holes read as zeros.
    pub(crate) fn read_pages(&self, state: &State, offset: u64, into: &mut [u8]) -> Result<()> {
        let file = state.file()?;
        if !file.journal.pending().is_empty() && (self.store.writable().is_err() || state.view != 0)
        {
            return self.read_journalled(state, offset, into);
        }
        if file.exempt.is_some() {
            return self.read_exempt(state, offset, into);
        }
        if file.is_read_by_sectors() {
            return self.read_sectors(state, file, offset, into);
        }
        self.read_home(state, file, offset, into)
    }

    /// The same, of a file of which something may not be home: that is read from the journal, as nothing is stored.
    #[cold]
    #[inline(never)]
    fn read_journalled(&self, state: &State, offset: u64, into: &mut [u8]) -> Result<()> {
        let file = state.file()?;
        let of = Whose { ino: state.log.ino, end: u64::MAX };
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let pending = file.journal.pending().iter();
            let behind = pending.filter(|piece| piece.file_offset + piece.len > at);
            let next = behind.min_by_key(|piece| piece.file_offset);
            let start = next.map_or(u64::MAX, |piece| piece.file_offset.max(at));
            let home = (start - at).min(rest.len() as u64) as usize;
            let (bytes, tail) = rest.split_at_mut(home);
            self.read_home(state, file, at, bytes)?;
            (at, rest) = (at + home as u64, tail);
            if let Some(piece) = next.filter(|_| !rest.is_empty()) {
                let skip = at - piece.file_offset;
                let strips = self.store.geometry.strips;
                let most = match strips.are_kept() {
                    true => strips.bytes() - (piece.home_at + skip) % strips.bytes(),
                    false => piece.len,
                };
                let len = (piece.len - skip).min(rest.len() as u64).min(most);
                let (bytes, tail) = rest.split_at_mut(len as usize);
                let (waits, home) = (piece.journal_at + skip, piece.home_at + skip);
                self.store.load_waiting(of, waits, home, bytes)?;
                (at, rest) = (at + len, tail);
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn read_home(
        &self,
        state: &State,
        file: &File,
        offset: u64,
        into: &mut [u8],
    ) -> Result<()> {
        let mut at = offset;
        let mut rest = &mut into[..];
        let mut next = file.extents.next_from(at / PAGE_BYTES);
        while !rest.is_empty() {
            let (start, place, len) = match next {
                Some(extent) => {
                    let start = (extent.file_page * PAGE_BYTES).max(at);
                    let end = extent.end() * PAGE_BYTES;
                    let skip = start - extent.file_page * PAGE_BYTES;
                    (start, extent.page * PAGE_BYTES + skip, end - start)
                }
                None => (u64::MAX, 0, 0),
            };
            let hole = (start - at).min(rest.len() as u64) as usize;
            let (zeros, tail) = rest.split_at_mut(hole);
            zeros.fill(0);
            let mapped = len.min(tail.len() as u64) as usize;
            let (bytes, tail) = tail.split_at_mut(mapped);
            if let (Some(extent), false) = (next, tail.is_empty()) {
                next = self.next_piece(file, extent.end(), tail.len() as u64);
            }
            if !bytes.is_empty() {
                let end = place + state.size.saturating_sub(start);
                self.store.load_data(Whose { ino: state.log.ino, end }, place, bytes)?;
            }
            at += (hole + mapped) as u64;
            rest = tail;
        }
        Ok(())
    }

    /// The extent behind one that is about to be read, of which so many bytes at most are read after it: its first page
    /// is asked for now, as nothing asks for it when the one before ends.
    #[inline]
    fn next_piece(&self, file: &File, file_page: u64, bytes: u64) -> Option<Extent> {
        let next = file.extents.next_from(file_page)?;
        let hole = (next.file_page - file_page).saturating_mul(PAGE_BYTES);
        let lines = bytes.saturating_sub(hole).min(PAGE_BYTES) / LINE_BYTES as u64;
        self.store.door.prefetch_lines(next.page * PAGE_BYTES, lines);
        Some(next)
    }

    /// First offset at or after `offset` with (or without) data; `NotFound` when there is none.
    pub fn seek(&self, ino: Ino, offset: u64, data: bool) -> Result<u64> {
        let node = self.node(ino)?;
        let state = node.read(&self.store)?;
        super::write::regular(&state)?;
        let file = state.file()?;
        if offset >= state.size {
            return Err(Error::NotFound);
        }
        let mut at = offset;
        loop {
            let extent = file.extents.next_from(at / PAGE_BYTES);
            let start = extent.map_or(u64::MAX, |extent| extent.file_page * PAGE_BYTES);
            match extent {
                _ if data => {
                    let found = start.max(at);
                    return if found < state.size { Ok(found) } else { Err(Error::NotFound) };
                }
                Some(extent) if start <= at => at = extent.end() * PAGE_BYTES,
                _ => return Ok(at.min(state.size)),
            }
            if at >= state.size {
                return Ok(state.size);
            }
        }
    }

    /// Moves the access time, where that is wanted: an 8-byte store outside sealed bytes.
    pub(crate) fn touch(&self, state: &State) {
        let wanted = self.options.atime;
        if wanted == AccessTimes::Never || self.store.writable().is_err() || state.view != 0 {
            return;
        }
        let atime_ns = state.atime_ns.load(Relaxed);
        let fresh = atime_ns > state.mtime_ns && atime_ns > state.ctime_ns;
        let now_ns = self.now_ns();
        let relative = wanted == AccessTimes::Relative;
        if relative && fresh && now_ns.saturating_sub(atime_ns) < RELATIME_NS {
            return;
        }
        state.atime_ns.store(now_ns, Relaxed);
        self.store.store_atime(slot_at(state.log.ino) + IDENTITY_ATIME_AT, now_ns);
    }
}
