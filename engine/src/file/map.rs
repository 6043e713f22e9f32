//! Direct maps: the pages of a file as memory of a program.
//!
//! The engine says where the pages are, and from then on leaves them there (see `inode::maps`):
//! writes go to them in place, so that both sides see each other's bytes at once; a write that a
//! crash cuts off may then be there in part, as stores of the program may. No journalled
//! overwrite is left that a recovery would put over them (PROTOCOL I16, I17). What the program
//! stores is durable when it has written it back and fenced.
//!
//! Stores that are to happen wholly or not at all go to *staged* pages, which take the place of the
//! file's in one transaction, without a copy.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;

use lode_pmem::Medium;

use super::write::regular;
use crate::index::Extent;
use crate::inode::{Node, Staged, State};
use crate::layout::Body;
use crate::space::Run;
use crate::store::Purpose;
use crate::{
    Error, FILE_MAX, Handle, Host, MapExtent, PAGE_BYTES, PageClass, Pool, Result, Staging,
};

/// Bytes that are moved at a time.
const CHUNK: u64 = 256;

impl<M: Medium, H: Host> Pool<M, H> {
    /// Maps bytes `offset .. offset + len` of a file, `offset` being that of a page: backs what is
    /// a hole, and says where they are, in file order, in whole pages. [`Pool::unmap`] ends it. On a
    /// pool that is open read-only nothing is backed; holes are left out.
    ///
    /// # Errors
    /// [`Error::NotSupported`] at protection level `full`; [`Error::Invalid`] where the range is not inside the file's
    /// last page or is empty, and while something is staged: a commit frees pages that another map would still show.
    pub fn map(&self, file: &Handle<H>, offset: u64, len: u64) -> Result<Vec<MapExtent>> {
        let node = &file.node;
        let end = offset.checked_add(len).filter(|&end| end <= FILE_MAX).ok_or(Error::Invalid)?;
        let mut state = node.write(&self.store)?;
        regular(&state)?;
        let last = state.size.next_multiple_of(PAGE_BYTES);
        let staged = state.file()?.maps.as_ref().is_some_and(|maps| !maps.staged.is_empty());
        if self.store.geometry.strips.are_kept() {
            // (What a program stores by itself has no checksums.)
            return Err(Error::NotSupported);
        }
        if len == 0 || !offset.is_multiple_of(PAGE_BYTES) || end > last || staged {
            return Err(Error::Invalid);
        }
        let pages = (offset / PAGE_BYTES, end.div_ceil(PAGE_BYTES));
        let is_first = state.file()?.maps.is_none();
        if is_first {
            // No snapshot is being made: one that was is known of, one that comes asks for maps.
            let _still = self.store.snapshots.changing.lock();
            self.store.snapshots.mapped.fetch_add(1, SeqCst);
        }
        let mapped = self.map_pages(node, &mut state, pages);
        if mapped.is_err() && is_first {
            self.store.snapshots.mapped.fetch_sub(1, SeqCst);
        }
        mapped
    }

    fn map_pages(
        &self,
        node: &Node<H>,
        state: &mut State,
        pages: (u64, u64),
    ) -> Result<Vec<MapExtent>> {
        if self.store.writable().is_ok() {
            self.make_mappable(node, state, pages)?;
        } else if state.file()?.journal.is_pending() {
            // What is in the pool is older than what a read shows.
            return Err(Error::ReadOnly);
        }
        let extents = self.extents_of(state, pages)?;
        let maps = state.maps_mut()?;
        maps.count = maps.count.checked_add(1).ok_or(Error::Invalid)?;
        Ok(extents)
    }

    /// Ends a [`Pool::map`]. What is staged and was not committed is gone with the last one.
    pub fn unmap(&self, file: &Handle<H>) {
        if let Ok(mut state) = file.node.write(&self.store)
            && let Ok(file) = state.file_mut()
        {
            let was_mapped = file.is_mapped();
            file.end_map(&mut |run| self.store.give(run));
            if was_mapped && !file.is_mapped() {
                self.store.snapshots.mapped.fetch_sub(1, SeqCst);
            }
        }
    }

    /// Backs pages, brings journalled bytes home and zeroes what is behind the end of the file.
    fn make_mappable(
        &self,
        node: &Node<H>,
        state: &mut State,
        (from, to): (u64, u64),
    ) -> Result<()> {
        if !state.file()?.extents.covers(from, to) {
            self.allocate(node, state, (from * PAGE_BYTES, to * PAGE_BYTES), true)?;
        }
        self.retire_now(node, state)?;
        self.unshare(node, state, (from, to))?;
        // Its rest becomes zero, whether or not it is mapped.
        let last = state.size / PAGE_BYTES;
        self.unshare(node, state, (last, last + 1))?;
        let end = state.size.next_multiple_of(PAGE_BYTES);
        self.zero_behind_size(state, state.size, end)
    }

    /// Moves the file's pages `from .. to` that a snapshot sees: what is stored through a map goes to others.
    fn unshare(&self, node: &Node<H>, state: &mut State, (from, to): (u64, u64)) -> Result<()> {
        let (latest, mut page) = (self.store.latest(), from);
        while page < to
            && let Some(extent) = state.file()?.extents.next_from(page)
            && extent.file_page < to
        {
            let first = extent.file_page.max(from);
            page = extent.end().min(to);
            if extent.epoch > latest {
                continue;
            }
            let run = self.store.take_some(page - first, Purpose::Replaces)?;
            let given = &mut |ended, died| self.store.release(ended, died);
            if let Err(error) = self.relocate(node, state, first, run, given) {
                self.store.give(run);
                return Err(error);
            }
            page = first + run.pages;
        }
        Ok(())
    }

    /// Where the file's pages `from .. to` are.
    fn extents_of(&self, state: &State, (from, to): (u64, u64)) -> Result<Vec<MapExtent>> {
        let mut extents = Vec::new();
        let mut page = from;
        while page < to
            && let Some(extent) = state.file()?.extents.next_from(page)
            && extent.file_page < to
        {
            let first = extent.file_page.max(from);
            let end = extent.end().min(to);
            extents.try_reserve(1)?;
            extents.push(MapExtent {
                file_offset: first * PAGE_BYTES,
                pool_offset: (extent.page + (first - extent.file_page)) * PAGE_BYTES,
                bytes: (end - first) * PAGE_BYTES,
            });
            page = end;
        }
        Ok(extents)
    }

    /// Takes pages beside those of bytes `offset .. offset + len`, whole pages of a file that is
    /// mapped once, and says where they are. Nobody but the caller sees what is stored there before
    /// [`Pool::commit_staged`].
    ///
    /// # Errors
    /// [`Error::Invalid`] where the range is not of whole mapped pages, where part of it is
    /// staged already, or where the file is not mapped once.
    pub fn stage(
        &self,
        file: &Handle<H>,
        offset: u64,
        len: u64,
        how: Staging,
    ) -> Result<Vec<MapExtent>> {
        self.store.before_operation()?;
        let mut state = file.node.write(&self.store)?;
        let pages = self.may_stage(&mut state, offset, len)?;
        let taken = self.take_staged(&state, pages, how)?;
        let mut extents = Vec::new();
        let room = extents.try_reserve_exact(taken.len()).map_err(Error::from);
        let maps = state.maps_mut()?;
        if let Err(error) = room.and_then(|()| Ok(maps.staged.try_reserve(taken.len())?)) {
            taken.iter().for_each(|staged| self.store.give(staged.run));
            return Err(error);
        }
        for staged in &taken {
            extents.push(MapExtent {
                file_offset: staged.file_page * PAGE_BYTES,
                pool_offset: staged.run.page * PAGE_BYTES,
                bytes: staged.run.pages * PAGE_BYTES,
            });
        }
        let behind = maps.staged.partition_point(|staged| staged.file_page < pages.0);
        let count = taken.len();
        maps.staged.extend(taken);
        maps.staged.get_mut(behind..).unwrap_or_default().rotate_right(count);
        Ok(extents)
    }

    /// The pages of a range that can be staged.
    fn may_stage(&self, state: &mut State, offset: u64, len: u64) -> Result<(u64, u64)> {
        let whole = offset.is_multiple_of(PAGE_BYTES) && len.is_multiple_of(PAGE_BYTES);
        let end = offset.checked_add(len).filter(|_| whole && len > 0).ok_or(Error::Invalid)?;
        let (from, to) = (offset / PAGE_BYTES, end / PAGE_BYTES);
        let file = state.file()?;
        let maps = file.maps.as_deref().filter(|maps| maps.count == 1).ok_or(Error::Invalid)?;
        let overlaps =
            |staged: &Staged| staged.file_page < to && staged.file_page + staged.run.pages > from;
        if maps.staged.iter().any(overlaps) || !file.extents.covers(from, to) {
            return Err(Error::Invalid);
        }
        Ok((from, to))
    }

    /// Takes pages and fills them, through the cache: they are written back when they are committed.
    fn take_staged(&self, state: &State, pages: (u64, u64), how: Staging) -> Result<Vec<Staged>> {
        let mut taken: Vec<Staged> = Vec::new();
        let filled = self.take_all(pages, &mut taken).and_then(|()| {
            taken.iter().try_for_each(|staged| self.fill_staged(state, staged, how))
        });
        if let Err(error) = filled {
            taken.iter().for_each(|staged| self.store.give(staged.run));
            return Err(error);
        }
        Ok(taken)
    }

    fn fill_staged(&self, state: &State, staged: &Staged, how: Staging) -> Result<()> {
        let (offset, at) = (staged.file_page * PAGE_BYTES, staged.run.page * PAGE_BYTES);
        let mut done = 0;
        while done < staged.run.pages * PAGE_BYTES {
            let mut chunk = [0; CHUNK as usize];
            if how == Staging::Copied {
                self.read_pages(state, offset + done, &mut chunk)?;
            }
            self.store.door.window(CHUNK, self.store.counters()).store(at + done, &chunk);
            done += CHUNK;
        }
        Ok(())
    }

    fn take_all(&self, (from, to): (u64, u64), taken: &mut Vec<Staged>) -> Result<()> {
        let mut file_page = from;
        while file_page < to {
            taken.try_reserve(1)?;
            let run = self.store.take_some(to - file_page, Purpose::Replaces)?;
            taken.push(Staged { file_page, run });
            file_page += run.pages;
        }
        Ok(())
    }

    /// Puts the staged pages of all these ranges (offset and length in bytes, whole pages) in the
    /// place of the file's, as one atomic and durable operation. What was stored there, by any thread, is
    /// written back; what another thread has streamed there it has fenced. From then on they are the file's own, and mapped.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a page of a range is not staged; nothing has changed then.
    pub fn commit_staged(&self, file: &Handle<H>, ranges: &[(u64, u64)]) -> Result<()> {
        self.store.before_operation()?;
        let node = &file.node;
        let mut state = node.write(&self.store)?;
        let (chosen, rest) =
            choose(state.file()?.maps.as_deref().map(|maps| &*maps.staged), ranges)?;
        if chosen.is_empty() {
            return Ok(());
        }
        let state = &mut *state;
        if chosen.len() > usize::from(u16::MAX) / 2 {
            return Err(Error::NoSpace);
        }
        let mut origins = Vec::new();
        origins.try_reserve_exact(chosen.len())?;
        let plan = state.log.plan(core::iter::repeat_n(1, chosen.len()));
        state.log.reserve(&self.store, &plan, Purpose::Replaces)?;
        let held = self.store.hold_lane();
        for Staged { run, .. } in &chosen {
            let (at, len) = (run.page * PAGE_BYTES, run.pages * PAGE_BYTES);
            self.store.door.window(0, held.counters()).flush(at, len);
        }
        let (epoch, time_ns, size) = (held.epoch(), self.now_ns(), state.size);
        let mut tx = match self.store.begin_in(held, plan.lines, plan.extra_bytes(), true) {
            Ok(tx) => tx,
            Err(error) => {
                state.log.unreserve(&self.store);
                return Err(error);
            }
        };
        let class = PageClass::Small;
        for Staged { file_page, run: Run { page, pages } } in &chosen {
            let pages = *pages as u32;
            let (file_page, page) = (*file_page, *page);
            let map = Body::Map { class, pages, file_page, page, time_ns, size };
            origins.push(state.log.append(&mut tx, &self.store, &map).ordinal);
        }
        tx.send()?;
        tx.commit()?;
        node.slot.set_tail(state.log.tail.last_seal);
        let died = state.ends_in();
        // Nothing but the staged pages is mapped there: what they replace is nobody's.
        for (Staged { file_page, run: Run { page, pages } }, origin) in chosen.iter().zip(origins) {
            let (file_page, page, pages) = (*file_page, *page, *pages);
            let extent = Extent { file_page, page, pages, class, epoch, origin };
            state.map(extent, size, time_ns, &mut |ended| self.store.release(ended, died));
        }
        state.maps_mut()?.staged = rest;
        self.tidy(&node.slot, state);
        Ok(())
    }

    /// How many maps there are of a file.
    pub fn maps(&self, file: &Handle<H>) -> Result<u32> {
        let state = file.node.read(&self.store)?;
        Ok(state.file()?.maps.as_ref().map_or(0, |maps| maps.count))
    }

    /// What is staged: offsets and lengths in bytes.
    pub fn staged(&self, file: &Handle<H>) -> Result<Vec<(u64, u64)>> {
        let state = file.node.read(&self.store)?;
        let mut ranges = Vec::new();
        for staged in state.file()?.maps.iter().flat_map(|maps| &maps.staged) {
            ranges.try_reserve(1)?;
            ranges.push((staged.file_page * PAGE_BYTES, staged.run.pages * PAGE_BYTES));
        }
        Ok(ranges)
    }

    /// Where bytes `offset .. offset + len` of a file are, in whole pages; holes are left out.
    pub fn extents(&self, file: &Handle<H>, offset: u64, len: u64) -> Result<Vec<MapExtent>> {
        let state = file.node.read(&self.store)?;
        let end = offset.saturating_add(len);
        self.extents_of(&state, (offset / PAGE_BYTES, end.div_ceil(PAGE_BYTES)))
    }

    /// Gives staged pages back: the file's own count again.
    pub fn unstage(&self, file: &Handle<H>) -> Result<()> {
        let mut state = file.node.write(&self.store)?;
        if let Some(maps) = &mut state.file_mut()?.maps {
            for staged in maps.staged.drain(..) {
                self.store.give(staged.run);
            }
        }
        Ok(())
    }

    /// Forgets what is staged of bytes `offset .. offset + len`, whole pages. If a map still shows
    /// these pages (`shown`) they are nobody's until the last map has ended, otherwise free at once.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a page of the range is not staged; nothing has changed then.
    pub fn unstage_range(
        &self,
        file: &Handle<H>,
        offset: u64,
        len: u64,
        shown: bool,
    ) -> Result<()> {
        let mut state = file.node.write(&self.store)?;
        let maps = state.file_mut()?.maps.as_deref_mut().ok_or(Error::Invalid)?;
        let (chosen, rest) = choose(Some(&maps.staged), &[(offset, len)])?;
        maps.given_up.try_reserve(chosen.len())?;
        maps.staged = rest;
        for Staged { run, .. } in chosen {
            if shown { maps.given_up.push(run) } else { self.store.give(run) }
        }
        Ok(())
    }
}

/// Cuts what is staged into what the ranges choose and the rest.
fn choose(staged: Option<&[Staged]>, ranges: &[(u64, u64)]) -> Result<(Vec<Staged>, Vec<Staged>)> {
    let staged = staged.ok_or(Error::Invalid)?;
    let (mut chosen, mut rest) = (Vec::new(), Vec::new());
    rest.try_reserve(staged.len())?;
    rest.extend_from_slice(staged);
    for (offset, len) in ranges {
        let end = offset.checked_add(*len).ok_or(Error::Invalid)?;
        if !(offset | len).is_multiple_of(PAGE_BYTES) {
            return Err(Error::Invalid);
        }
        let (mut page, to) = (offset / PAGE_BYTES, end / PAGE_BYTES);
        while page < to {
            let holds =
                |one: &Staged| (one.file_page..one.file_page + one.run.pages).contains(&page);
            let at = rest.iter().position(holds).ok_or(Error::Invalid)?;
            let whole = rest.remove(at);
            let (skip, end) = (page - whole.file_page, whole.file_page + whole.run.pages);
            let take = end.min(to) - page;
            let part = |from: u64, pages: u64| Staged {
                file_page: whole.file_page + from,
                run: Run { page: whole.run.page + from, pages },
            };
            chosen.try_reserve(1)?;
            chosen.push(part(skip, take));
            rest.try_reserve(2)?;
            let tail = part(skip + take, whole.run.pages - skip - take);
            for left in [tail, part(0, skip)].into_iter().filter(|part| part.run.pages > 0) {
                rest.insert(at, left);
            }
            page += take;
        }
    }
    Ok((chosen, rest))
}
