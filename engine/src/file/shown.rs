//! Maps whose makers are told where pages move to: snapshots can be made while there are such.
//!
//! Who makes a snapshot first keeps programs from storing through them (`store::shows`). From then on a page that the snapshot
//! sees is moved before anybody stores to it: by a program, which waits for [`Pool::allow_stores`], or by a change of the
//! file, which would put another page in its place and leave the maps behind. Each move is a transaction of its own, with a copy
//! of the page; the maps show the copy when it is durable, and only then the page is the snapshot's alone.
//!
//! Nobody makes a snapshot between the look at what one sees and the store: [`Still`] keeps it out.

use alloc::sync::Arc;

use lock_api::RwLockReadGuard;
use lode_pmem::Medium;

use super::change::Change;
use crate::inode::{Node, State};
use crate::space::Ended;
use crate::store::{Purpose, Shows, take_show};
use crate::{
    Error, Exemption, Handle, Host, Ino, MakeShown, MapExtent, PAGE_BYTES, Pool, Result, Rule,
    SetAttr, Shown,
};

/// While there is one, no snapshot is made.
pub(super) type Still<'a, H> = RwLockReadGuard<'a, <H as Host>::RwLock, Shows>;

impl<M: Medium, H: Host> Pool<M, H> {
    /// As [`Pool::map`], of a map that `make` makes of these pages, which nobody can store to before
    /// [`Pool::allow_stores`] has said so. `stores` says whether that is wanted: what a snapshot sees is moved first then.
    /// Returns the map's number, for [`Pool::unmap_shown`].
    ///
    /// # Errors
    /// Those of [`Pool::map`], and of `make`.
    pub fn map_shown(
        &self,
        file: &Handle<H>,
        (offset, len): (u64, u64),
        stores: bool,
        make: &mut MakeShown<'_>,
    ) -> Result<u64> {
        let mut state = file.node.write(&self.store)?;
        let pages = self.may_map(&state, offset, len)?;
        let ready = self.ready_to_map(&file.node, &mut state, pages, stores);
        let made = ready.and_then(|extents| self.add_shown(&mut state, &mut || make(&extents)));
        if made.is_err() {
            self.end_unmapped(&file.node, &mut state);
        }
        made
    }

    fn add_shown(
        &self,
        state: &mut State,
        make: &mut dyn FnMut() -> Result<Arc<dyn Shown>>,
    ) -> Result<u64> {
        let ino = state.log.ino;
        let maps = state.maps_mut()?;
        let count = maps.count.checked_add(1).ok_or(Error::Invalid)?;
        maps.shown.try_reserve(1)?;
        let shown = make()?;
        let number = self.store.snapshots.shows.write().add(ino, &shown)?;
        maps.shown.push((number, shown));
        maps.count = count;
        Ok(number)
    }

    /// Ends a [`Pool::map_shown`], of which nothing is shown any more.
    pub fn unmap_shown(&self, file: &Handle<H>, number: u64) {
        self.store.snapshots.shows.write().remove(number);
        if let Ok(mut state) = file.node.write(&self.store)
            && let Ok(of) = state.file_mut()
            && let Some(maps) = &mut of.maps
        {
            take_show(&mut maps.shown, number);
            self.end_map(&file.node, &mut state);
        }
    }

    /// Lets programs store to bytes `offset .. offset + len` of a file that they have mapped, as they waited for: what a
    /// snapshot sees there is moved first. At level `full` what is moved is exempt from checksums from then on.
    ///
    /// # Errors
    /// [`Error::NoSpace`], those of the medium and of the maps. Nobody can store then to what is not moved.
    pub fn allow_stores(&self, ino: Ino, offset: u64, len: u64) -> Result<()> {
        let exempts = self.store.geometry.strips.are_kept();
        // (While a snapshot is being made what it is to have with its checksums stays as it is.)
        let _unchanged = exempts.then(|| self.store.snapshots.changing.lock());
        let node = self.node(ino)?;
        let mut state = node.write(&self.store)?;
        let end = offset.checked_add(len).ok_or(Error::Invalid)?;
        let pages = (offset / PAGE_BYTES, end.div_ceil(PAGE_BYTES));
        self.store.writable()?;
        let still = self.still();
        self.unshare_shown(&node, &mut state, pages, &still)?;
        if exempts {
            self.exempt_shown(&node, &mut state, pages)?;
        }
        let Some(maps) = &state.file()?.maps else { return Ok(()) };
        let mut result = Ok(());
        for (_, shown) in &maps.shown {
            result = shown.allow(offset, len).and(result);
        }
        result
    }

    /// Moves what a snapshot sees of pages `from .. to`, but for those that others are staged for: these are not shown.
    #[inline(never)]
    fn unshare_shown(
        &self,
        node: &Node<H>,
        state: &mut State,
        (mut from, to): (u64, u64),
        still: &Still<'_, H>,
    ) -> Result<()> {
        let staged = |state: &State, number: usize| {
            let maps = state.file().ok().and_then(|file| file.maps.as_ref())?;
            maps.staged.get(number).map(|staged| (staged.file_page, staged.run.pages))
        };
        let mut number = 0;
        while let Some((page, pages)) = staged(state, number) {
            self.unshare(node, state, (from, to.min(page)), still)?;
            from = from.max(page + pages);
            number += 1;
        }
        self.unshare(node, state, (from, to), still)
    }

    /// At level `full`: what programs have stored through maps gets its checksums, so that a snapshot that is about to be
    /// made has them. Who stores there waits until it is made, as the list of snapshots is locked. What there is no room
    /// for, and what is written to such a file meanwhile, is exempt in the snapshot as it is in the file.
    ///
    /// # Errors
    /// What the maps say; those of the medium.
    #[inline(never)]
    pub(crate) fn make_shown_whole(&self) -> Result<()> {
        if !self.store.geometry.strips.are_kept() {
            return Ok(());
        }
        // (Behind inodes: not while one is locked.)
        let files = self.store.snapshots.shows.read().files()?;
        for ino in files {
            let node = self.node(ino)?;
            let mut state = node.write(&self.store)?;
            let maps = state.file()?.maps.iter();
            maps.flat_map(|maps| &maps.shown).try_for_each(|(_, shown)| shown.protect())?;
            match self.make_file_whole(&node, &mut state, Some(Exemption::EndsForSnapshot)) {
                Err(Error::NoSpace | Error::NoMemory | Error::Media { .. } | Error::Unwritten) => {
                    self.tell_all_exempt(&state, Exemption::Stays);
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Whether there are snapshots: what no snapshot sees need not be moved.
    pub fn has_snapshots(&self) -> bool {
        self.store.snapshots.latest() > 0
    }

    /// Waits until no snapshot is being made, and keeps others out.
    pub(super) fn still(&self) -> Still<'_, H> {
        self.store.snapshots.shows.read()
    }

    /// Moves the file's pages `from .. to` that a snapshot sees, and lets its maps follow: what is stored there goes to others.
    #[cold]
    #[inline(never)]
    pub(super) fn unshare(
        &self,
        node: &Node<H>,
        state: &mut State,
        (from, to): (u64, u64),
        _still: &Still<'_, H>,
    ) -> Result<()> {
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
            let mut left: Option<(Ended, u32)> = None;
            let given = &mut |ended, died| left = Some((ended, died));
            if let Err(error) = self.relocate(node, state, first, run, given) {
                self.store.give(run);
                return Err(error);
            }
            page = first + run.pages;
            let old = extent.page + (first - extent.file_page);
            let (bytes, pool_offset) = (run.pages * PAGE_BYTES, old * PAGE_BYTES);
            let from = MapExtent { file_offset: first * PAGE_BYTES, pool_offset, bytes };
            let followed = show_moved(state, &from, run.page * PAGE_BYTES);
            // (What nobody shows any more may become another's.)
            if let Some((ended, died)) = left {
                self.store.release(ended, died);
            }
            followed?;
        }
        Ok(())
    }

    /// Before a mapped file is changed: moves what a snapshot sees of the pages that get others, or none.
    #[cold]
    #[inline(never)]
    pub(super) fn move_seen(
        &self,
        node: &Node<H>,
        state: &mut State,
        change: &mut Change<'_>,
        plan: super::change::Planner<'_>,
    ) -> Result<Option<Still<'_, H>>> {
        if self.store.host.leaves_out(Rule::MapsFollow) {
            return Ok(None);
        }
        let still = self.still();
        if self.store.latest() > 0 {
            plan(state, self.rules(state), change)?;
            let end = state.size.div_ceil(PAGE_BYTES);
            let grows = change.new_size > state.size;
            let tail = grows.then_some((state.size / PAGE_BYTES, end));
            let unmapped = change.unmap.map(|(page, pages)| (page, page + pages));
            for pages in tail.into_iter().chain(unmapped) {
                self.unshare(node, state, pages, &still)?;
            }
            for at in 0..change.segments.len() {
                let Some(segment) = change.segments.iter().nth(at).copied() else { break };
                let pages = (segment.from / PAGE_BYTES, segment.to.div_ceil(PAGE_BYTES));
                self.unshare(node, state, pages, &still)?;
            }
            change.start_over();
        }
        Ok(Some(still))
    }

    /// The same before attributes change, the size of a file among them.
    #[cold]
    #[inline(never)]
    pub(super) fn move_seen_of_size(
        &self,
        node: &Node<H>,
        state: &mut State,
        changes: &SetAttr,
    ) -> Result<Option<Still<'_, H>>> {
        let Some(size) = changes.size.filter(|_| !self.store.host.leaves_out(Rule::MapsFollow))
        else {
            return Ok(None);
        };
        let still = self.still();
        if self.store.latest() > 0 {
            let last = state.size / PAGE_BYTES;
            let pages = if size > state.size { last } else { size.div_ceil(PAGE_BYTES) };
            let end = if size > state.size { last + 1 } else { u64::MAX };
            self.unshare(node, state, (pages, end), &still)?;
        }
        Ok(Some(still))
    }
}

/// Lets the maps of a file show what has moved.
pub(super) fn show_moved(state: &State, from: &MapExtent, to: u64) -> Result<()> {
    let Some(maps) = &state.file()?.maps else { return Ok(()) };
    let mut result = Ok(());
    for (_, shown) in &maps.shown {
        result = shown.moved(from, to).and(result);
    }
    result
}
