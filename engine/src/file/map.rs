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
use lode_pmem::Medium;

use super::shown::show_moved;
use super::write::regular;
use crate::index::Extent;
use crate::inode::{File, Node, Staged, State};
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
    /// pool that is open read-only nothing is backed; holes are left out. While there is such a map no snapshot can be
    /// made, as nobody keeps its program from storing: see [`Pool::map_shown`].
    ///
    /// # Errors
    /// [`Error::Invalid`] where the range is not inside the file's
    /// last page or is empty, and while something is staged: a commit frees pages that another map would still show. At level `full`
    /// [`Error::Corrupt`] and [`Error::Media`] where it is damaged.
    pub fn map(&self, file: &Handle<H>, offset: u64, len: u64) -> Result<Vec<MapExtent>> {
        self.map_bare(file, (offset, len), true)
    }

    /// The same, of a map that is for `stores` or not.
    pub(super) fn map_bare(
        &self,
        file: &Handle<H>,
        (offset, len): (u64, u64),
        stores: bool,
    ) -> Result<Vec<MapExtent>> {
        let node = &file.node;
        let mut state = node.write(&self.store)?;
        let pages = self.may_map(&state, offset, len)?;
        // From now on no snapshot is made.
        self.store.snapshots.shows.write().add_bare();
        let mapped = self.ready_to_map(node, &mut state, pages, stores).and_then(|extents| {
            let maps = state.maps_mut()?;
            maps.count = maps.count.checked_add(1).ok_or(Error::Invalid)?;
            Ok(extents)
        });
        if mapped.is_err() {
            self.end_unmapped(node, &mut state);
            self.store.snapshots.shows.write().remove_bare();
        }
        mapped
    }

    /// Ends what was made ready for a map that is not to be, where there is no other.
    pub(super) fn end_unmapped(&self, node: &Node<H>, state: &mut State) {
        let is_left = |file: &File| file.maps.as_ref().is_some_and(|maps| maps.count == 0);
        if state.file().is_ok_and(is_left) {
            self.end_exemption(node, state);
            if let Ok(file) = state.file_mut() {
                file.end_all_maps(&mut |run| self.store.give(run));
            }
        }
    }

    /// The pages of a range that can be mapped.
    pub(super) fn may_map(&self, state: &State, offset: u64, len: u64) -> Result<(u64, u64)> {
        let end = offset.checked_add(len).filter(|&end| end <= FILE_MAX).ok_or(Error::Invalid)?;
        regular(state)?;
        let last = state.size.next_multiple_of(PAGE_BYTES);
        let staged = state.file()?.maps.as_ref().is_some_and(|maps| !maps.staged.is_empty());
        if len == 0 || !offset.is_multiple_of(PAGE_BYTES) || end > last || staged {
            return Err(Error::Invalid);
        }
        Ok((offset / PAGE_BYTES, end.div_ceil(PAGE_BYTES)))
    }

    /// Makes pages ready to be mapped, for `stores` or not, and says where they are.
    pub(super) fn ready_to_map(
        &self,
        node: &Node<H>,
        state: &mut State,
        pages: (u64, u64),
        stores: bool,
    ) -> Result<Vec<MapExtent>> {
        if self.store.writable().is_ok() {
            self.make_mappable(node, state, pages, stores)?;
        } else if state.file()?.journal.is_pending() {
            // What is in the pool is older than what a read shows.
            return Err(Error::ReadOnly);
        }
        self.extents_of(state, pages)
    }

    /// Ends a [`Pool::map`]. What is staged and was not committed is gone with the last one.
    pub fn unmap(&self, file: &Handle<H>) {
        if let Ok(mut state) = file.node.write(&self.store)
            && state.file().is_ok_and(File::is_mapped)
        {
            self.end_map(&file.node, &mut state);
            self.store.snapshots.shows.write().remove_bare();
        }
    }

    /// Ends one map.
    pub(super) fn end_map(&self, node: &Node<H>, state: &mut State) {
        if state.file().is_ok_and(File::has_one_map) {
            self.end_exemption(node, state);
        }
        if let Ok(file) = state.file_mut() {
            file.end_map(&mut |run| self.store.give(run));
        }
    }

    /// Backs pages, brings journalled bytes home and zeroes what is behind the end of the file. For `stores`, what a
    /// snapshot sees of these pages is moved.
    fn make_mappable(
        &self,
        node: &Node<H>,
        state: &mut State,
        (from, to): (u64, u64),
        stores: bool,
    ) -> Result<()> {
        if !state.file()?.extents.covers(from, to) {
            self.allocate(node, state, (from * PAGE_BYTES, to * PAGE_BYTES), true)?;
        }
        self.retire_now(node, state)?;
        let (still, strips) = (self.still(), self.store.geometry.strips.are_kept());
        if stores || strips {
            self.unshare(node, state, (from, to), &still)?;
        }
        if strips {
            return self.make_shown(node, state, (from, to), stores);
        }
        // Its rest becomes zero, whether or not it is mapped.
        let last = state.size / PAGE_BYTES;
        self.unshare(node, state, (last, last + 1), &still)?;
        let end = state.size.next_multiple_of(PAGE_BYTES);
        self.zero_behind_size(state, state.size, end)
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
    /// [`Error::Invalid`] where a page of a range is not staged, or lies behind the file's end by now; nothing has changed then.
    pub fn commit_staged(&self, file: &Handle<H>, ranges: &[(u64, u64)]) -> Result<()> {
        self.store.before_operation()?;
        let node = &file.node;
        let mut state = node.write(&self.store)?;
        let (chosen, rest) =
            choose(state.file()?.maps.as_deref().map(|maps| &*maps.staged), ranges)?;
        if chosen.is_empty() {
            return Ok(());
        }
        // What is mapped behind the last page is zero, for who makes the file longer: the file may have become shorter since.
        let pages = state.size.div_ceil(PAGE_BYTES);
        if chosen.iter().any(|staged| staged.file_page + staged.run.pages > pages) {
            return Err(Error::Invalid);
        }
        let state = &mut *state;
        if chosen.len() > usize::from(u16::MAX) / 2 {
            return Err(Error::NoSpace);
        }
        let mut origins = Vec::new();
        origins.try_reserve_exact(chosen.len())?;
        let mut unsaid = self.unsaid_of(state, &chosen)?;
        let plan = state.log.plan(core::iter::repeat_n(1, chosen.len() + unsaid.len()));
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
        self.say_exempt(&mut tx, state, &mut unsaid);
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
        self.show_exempt(state, &unsaid, true)?;
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

    /// Forgets what is staged of bytes `offset .. offset + len`, whole pages: the file's map shows the file again, where nobody can
    /// store before [`Pool::allow_stores`]. Where the file has given up its pages since, what was staged stays in the map, and is nobody's until
    /// the last one has ended.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a page of the range is not staged, and nothing has changed; what the map says, and the rest
    /// is still staged.
    pub fn discard_staged(&self, file: &Handle<H>, offset: u64, len: u64) -> Result<()> {
        let mut state = file.node.write(&self.store)?;
        let maps = state.file_mut()?.maps.as_deref_mut().ok_or(Error::Invalid)?;
        let (chosen, _) = choose(Some(&maps.staged), &[(offset, len)])?;
        for Staged { file_page, run } in chosen {
            let end = file_page + run.pages;
            let mut page = file_page;
            while page < end {
                let next = state.file()?.extents.next_from(page).filter(|it| it.file_page < end);
                let is_there = next.is_some_and(|extent| extent.file_page <= page);
                let to =
                    next.map_or(end, |it| if is_there { it.end().min(end) } else { it.file_page });
                let part = Run { page: run.page + (page - file_page), pages: to - page };
                if let Some(extent) = next.filter(|_| is_there) {
                    let (file_offset, bytes) = (page * PAGE_BYTES, part.pages * PAGE_BYTES);
                    let from =
                        MapExtent { file_offset, pool_offset: part.page * PAGE_BYTES, bytes };
                    let place = extent.page + (page - extent.file_page);
                    show_moved(&state, &from, place * PAGE_BYTES)?;
                }
                let maps = state.maps_mut()?;
                maps.given_up.try_reserve(1)?;
                let range = [(page * PAGE_BYTES, part.pages * PAGE_BYTES)];
                maps.staged = choose(Some(&maps.staged), &range)?.1;
                if is_there {
                    self.store.give(part)
                } else {
                    maps.given_up.push(part)
                }
                page = to;
            }
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
