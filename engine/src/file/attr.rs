//! Changing attributes and the size: one transaction of one or two lines.

use core::sync::atomic::Ordering::Relaxed;

use lode_pmem::Medium;

use super::claim::unclaimed;
use super::fresh::{FreshRun, Source};
use super::segment::Segment;
use super::write::regular;
use super::xattr::Staged;
use crate::index::Extent;
use crate::inode::{Node, State};
use crate::layout::Body;
use crate::log::Placed;
use crate::space::{Run, Use};
use crate::store::{Purpose, Tx};
use crate::{
    Attr, Error, FILE_MAX, Host, Ino, Op, PAGE_BYTES, PageClass, Pool, Result, Rule, SetAttr,
    XattrChange, mode,
};

/// What an ATTR record will say.
#[derive(Clone, Copy)]
struct NewAttr {
    mode: u32,
    owner: (u32, u32),
    /// Modification, change and access time.
    times: (i64, i64, i64),
}

impl NewAttr {
    fn record(&self) -> Body {
        Body::Attr {
            mode: self.mode as u16,
            uid: self.owner.0,
            gid: self.owner.1,
            mtime_ns: self.times.0,
            ctime_ns: self.times.1,
            atime_ns: self.times.2,
        }
    }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Changes attributes, the size among them: one atomic operation, whatever it changes.
    pub fn setattr(&self, ino: Ino, changes: &SetAttr) -> Result<Attr> {
        self.setattr_with(ino, changes, &[])
    }

    /// As [`Pool::setattr`], with extended attributes: all of it is one atomic operation.
    ///
    /// # Errors
    /// Those of [`Pool::setxattr`], too; [`Error::Invalid`] where a name is there twice.
    pub fn setattr_with(
        &self,
        ino: Ino,
        changes: &SetAttr,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Attr> {
        self.count(if changes.size.is_some() { Op::Truncate } else { Op::Setattr });
        self.change_attributes(ino, changes, xattrs)
    }

    pub(super) fn change_attributes(
        &self,
        ino: Ino,
        changes: &SetAttr,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Attr> {
        self.store.before_operation()?;
        let node = self.node(ino)?;
        let mut state = node.write(&self.store)?;
        let state = &mut *state;
        let time_ns = self.now_ns();
        if self.change_locked(&node, state, changes, xattrs, time_ns)? {
            self.tidy(&node.slot, state);
        }
        Ok(state.attr())
    }

    /// The same of an inode that is locked, at this time; says whether it stored anything. (Not inlined: a
    /// kernel's stack is small.)
    #[inline(never)]
    pub(super) fn change_locked(
        &self,
        node: &Node<H>,
        state: &mut State,
        changes: &SetAttr,
        xattrs: &[XattrChange<'_>],
        time_ns: i64,
    ) -> Result<bool> {
        if changes.size.is_some() {
            regular(state)?;
            unclaimed(state)?;
        }
        let mapped = changes.size.is_some() && state.file()?.is_mapped();
        let _still = if mapped { self.move_seen_of_size(node, state, changes)? } else { None };
        if let Some(size) = changes.size {
            if size > FILE_MAX {
                return Err(Error::FileTooLarge);
            }
            state.file_mut()?.reserve_given_up(1)?;
            if state.file()?.is_mapped() {
                self.exempt_shown(node, state, (0, u64::MAX))?;
            }
            if size < state.size && self.store.geometry.strips.are_kept() {
                // What is kept is of whole strips, and of their page: all of that is home before a part is cut off.
                self.retire_now(node, state)?;
            }
        }
        let tail = changes.size.map_or(Ok(None), |size| self.tail_to_replace(state, size))?;
        let staged = self.stage_xattrs(state, xattrs, time_ns)?;
        let new_attr = new_attr(state, changes, time_ns);
        let twice = new_attr.is_some() && self.store.host.leaves_out(Rule::TimesInOne);
        let records = usize::from(changes.size.is_some())
            + usize::from(tail.is_some())
            + usize::from(new_attr.is_some())
            + usize::from(twice);
        if records + staged.len() == 0 {
            return Ok(false);
        }
        let plan = state.log.plan(staged.lines().chain(core::iter::repeat_n(1, records)));
        let cuts = changes.size.is_some_and(|size| {
            let end = size.div_ceil(PAGE_BYTES);
            size < state.size && state.file().is_ok_and(|it| it.extents.next_from(end).is_some())
        });
        // (A snapshot, or what was received, ends in a full pool, too.)
        let says_end = state.log.ino == self.store.snapshots.home() && staged.only_replaces();
        let purpose = match (staged.only_removes(), cuts || staged.frees_pages()) {
            _ if says_end => Purpose::Frees,
            (false, _) => Purpose::Grows,
            (true, true) => Purpose::Frees,
            (true, false) => Purpose::Changes,
        };
        let ready = state
            .log
            .reserve(&self.store, &plan, purpose)
            .and_then(|()| tail.map(|tail| self.replace_tail(state, &tail)).transpose())
            .and_then(|tail| match (changes.size, tail) {
                (Some(size), None) => self.zero_behind_size(state, state.size, size).map(|()| tail),
                // (Where there are checksums, all that is mapped behind the last page is zero.)
                (Some(size), Some(_)) if !self.store.geometry.strips.are_kept() => {
                    let behind = state.size.next_multiple_of(PAGE_BYTES);
                    self.zero_behind_size(state, behind, size).map(|()| tail)
                }
                _ => Ok(tail),
            });
        let begun = ready.and_then(|tail| match self.begin_plans(&[plan], 0) {
            Ok(tx) => Ok((tx, tail)),
            Err(error) => {
                tail.into_iter().for_each(|tail| self.store.give(tail.run));
                Err(error)
            }
        });
        match begun {
            Ok((mut tx, tail)) => {
                if twice {
                    tx.split(Rule::TimesInOne, plan.lines - 1);
                }
                tx.split(Rule::XattrInOne, plan.lines - records as u32);
                self.store_attributes(tx, node, state, changes, (staged, new_attr, tail))?;
            }
            Err(error) => {
                state.log.unreserve(&self.store);
                self.give_staged(&staged);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Stores the records of a change, and makes memory say the same. (Not inlined: as above.)
    #[inline(never)]
    fn store_attributes(
        &self,
        mut tx: Tx<'_, M, H>,
        node: &Node<H>,
        state: &mut State,
        changes: &SetAttr,
        (mut staged, new_attr, tail): (Staged, Option<NewAttr>, Option<FreshRun>),
    ) -> Result<()> {
        let time_ns = staged.time_ns;
        let class = self.class_for(state, changes.size);
        self.append_xattrs(&mut tx, state, &mut staged);
        let tail = tail.map(|tail| self.append_tail(&mut tx, state, &tail, time_ns));
        let mut resized: Option<(u64, Placed)> = None;
        if let Some(size) = changes.size {
            let unmaps = size > 0 || !self.store.host.leaves_out(Rule::TruncateToZero);
            let truncate = size <= state.size && unmaps;
            let record = Body::Size { class, truncate, size, time_ns };
            resized = Some((size, state.log.append(&mut tx, &self.store, &record)));
        }
        let changed = new_attr.map(|attr| {
            if self.store.host.leaves_out(Rule::TimesInOne) {
                let times = (attr.times.0, state.ctime_ns, attr.times.2);
                let half = NewAttr { times, ..attr }.record();
                state.log.append(&mut tx, &self.store, &half);
            }
            (state.log.append(&mut tx, &self.store, &attr.record()), attr)
        });
        let early = self.store.host.leaves_out(Rule::FreeAfterFence);
        if let (Some((size, placed)), true) = (&resized, early) {
            self.show_size(state, *size, placed, time_ns)?;
        }
        let (epoch, txid) = (tx.epoch(), tx.txid());
        tx.commit()?;
        node.slot.set_tail(state.log.tail.last_seal);
        self.show_xattrs(state, staged, epoch);
        if let Some(extent) = tail {
            let (size, died) = (state.size, state.ends_in());
            let give = &mut |ended| self.store.release(ended, died);
            // (What was journalled is home: it was written back with the page.)
            self.give_retired(state, txid, extent.origin, give)?;
            state.map(extent, size, time_ns, give);
            state.file_mut()?.zero_behind |= self.store.geometry.strips.are_kept();
        }
        if let (Some((size, placed)), false) = (&resized, early) {
            state.class = class;
            self.show_size(state, *size, placed, time_ns)?;
        }
        if let Some((placed, attr)) = changed {
            state.set_attr(placed.ordinal, attr.mode, attr.owner, attr.times);
        }
        Ok(())
    }

    /// Streams the file's last page to a fresh one, with zeros behind the size, and fences.
    fn replace_tail(&self, state: &State, tail: &Segment) -> Result<FreshRun> {
        let run = Run { page: self.store.take_page(Purpose::Replaces, Use::Data)?, pages: 1 };
        let class = PageClass::Small;
        let fresh = FreshRun { file_page: tail.from / PAGE_BYTES, run, class };
        let mut held = self.store.hold_lane();
        let place = (tail.from, tail.to);
        let filled = self.fill_fresh(state, &fresh, place, &Source::Zeros, &mut held);
        state.file()?.journal.flush(&self.store, held.counters());
        match filled.and_then(|()| Ok(self.store.door.fence(held.counters())?)) {
            Ok(()) => Ok(fresh),
            Err(error) => {
                self.store.give(run);
                Err(error)
            }
        }
    }

    /// Stores the record of the page that takes the last one's place.
    fn append_tail(
        &self,
        tx: &mut Tx<'_, M, H>,
        state: &mut State,
        tail: &FreshRun,
        time_ns: i64,
    ) -> Extent {
        let FreshRun { file_page, run: Run { page, pages }, class } = *tail;
        let (epoch, size) = (tx.epoch(), state.size);
        let map = Body::Map { class, pages: pages as u32, file_page, page, time_ns, size };
        let origin = state.log.append(tx, &self.store, &map).ordinal;
        Extent { file_page, page, pages, class, epoch, origin }
    }

    /// Growing an empty file to 2 MiB or more is a hint, where the pool could back all of it.
    fn class_for(&self, state: &State, size: Option<u64>) -> PageClass {
        let Some(size) = size else { return state.class };
        let empty = state.file().is_ok_and(|file| file.extents.is_empty());
        let room = self.store.space.free_pages();
        if empty && size > state.size && size.div_ceil(PAGE_BYTES) <= room {
            state.class.max(self.hint(size))
        } else {
            state.class
        }
    }

    /// Before the size grows, what is mapped from `from` on, at or behind it, becomes zero, and is fenced (I17).
    pub(super) fn zero_behind_size(&self, state: &mut State, from: u64, size: u64) -> Result<()> {
        if size <= state.size || self.zero_behind(state) {
            return Ok(());
        }
        let end = size.next_multiple_of(PAGE_BYTES);
        let behind = state.file()?.extents.next_from(from / PAGE_BYTES);
        if behind.is_some_and(|extent| extent.file_page * PAGE_BYTES < end) {
            self.zero_mapped(state, from, end, self.store.counters())?;
            self.store.door.fence(self.store.counters())?;
        }
        let rest = state.file()?.extents.next_from(end / PAGE_BYTES);
        state.file_mut()?.zero_behind = rest.is_none();
        Ok(())
    }

    /// Makes memory say what a SIZE record says.
    fn show_size(&self, state: &mut State, size: u64, placed: &Placed, time_ns: i64) -> Result<()> {
        let old = state.size;
        let died = state.ends_in();
        let give = &mut |ended| self.store.release(ended, died);
        state.giving_up(give, self.store.latest(), |state, give| {
            state.set_size(placed.ordinal, size <= old, size, time_ns, give);
        });
        if size < old {
            // Nothing is mapped behind, but for the rest of the last page.
            let last = state.file()?.extents.find(size / PAGE_BYTES);
            state.file_mut()?.zero_behind = size.is_multiple_of(PAGE_BYTES) || last.is_none();
        }
        Ok(())
    }
}

/// What the attributes will be, if any but the size changes.
fn new_attr(state: &State, changes: &SetAttr, now_ns: i64) -> Option<NewAttr> {
    let SetAttr { mode, uid, gid, size, atime_ns, mtime_ns } = *changes;
    let any = mode.is_some() || uid.is_some() || gid.is_some();
    if !any && atime_ns.is_none() && mtime_ns.is_none() {
        return None;
    }
    let mtime = if size.is_some() { now_ns } else { state.mtime_ns };
    let permissions = mode.unwrap_or(state.mode) & !mode::TYPE & 0o7777;
    Some(NewAttr {
        mode: state.kind() | permissions,
        owner: (uid.unwrap_or(state.uid), gid.unwrap_or(state.gid)),
        times: (
            mtime_ns.unwrap_or(mtime),
            now_ns,
            atime_ns.unwrap_or(state.atime_ns.load(Relaxed)),
        ),
    })
}
