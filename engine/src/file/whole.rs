//! The shortest way of a write: whole pages, all of them to one run of fresh ones.
//!
//! Most appends and many overwrites are so. What the general way (`change`) finds out by lists of
//! segments is known here at once; steps, order and fences are the same. The bytes may be stored before (`unlocked`).
//!
//! What can be found out later is: bytes that were streamed take their time to become durable, and whatever is computed meanwhile,
//! loads that miss the caches included, costs none, up to the first locked instruction. So as little as can be comes before the bytes.

use lode_pmem::{Counters, Medium};

use super::fresh::{Source, near};
use crate::index::Extent;
use crate::inode::{Node, State};
use crate::layout::Body;
use crate::space::{Near, Run};
use crate::store::{Held, Purpose};
use crate::{Error, FILE_MAX, Host, PAGE_BYTES, PageClass, Pool, Result, Rule};

/// The most bytes that go this way.
const MOST: u64 = 2 << 20;

impl<M: Medium, H: Host> Pool<M, H> {
    /// Writes `data` at `offset`, if this is a write of whole pages that one run takes; else says
    /// that nothing was done. `stored`: pages that have the bytes already, durably; taken out where they are used.
    #[inline(never)]
    pub(super) fn write_whole(
        &self,
        node: &Node<H>,
        state: &mut State,
        offset: u64,
        data: &[u8],
        stored: &mut Option<Run>,
    ) -> Result<bool> {
        let end = offset + data.len() as u64;
        if !self.is_whole(state, offset, end)? {
            return Ok(false);
        }
        if let Some(run) = stored.take() {
            self.map_run(node, state, self.store.hold_lane(), (offset, run, true))?;
            return Ok(true);
        }
        let pages = (end - offset) / PAGE_BYTES;
        let near = near(&state.file()?.extents, offset / PAGE_BYTES, pages);
        let Some(run) = self.take_run(pages, near)? else { return Ok(false) };
        let held = self.store.hold_lane();
        if let Err(error) = self.stream_run(run, data, held.counters()) {
            self.store.give(run);
            // (The general way takes other pages.)
            return if matches!(error, Error::Media { .. }) { Ok(false) } else { Err(error) };
        }
        self.map_run(node, state, held, (offset, run, false))?;
        Ok(true)
    }

    /// Takes so many pages in one run, if that can be.
    #[inline]
    pub(super) fn take_run(&self, pages: u64, near: Near) -> Result<Option<Run>> {
        match self.store.take_near(pages, Purpose::Grows, near) {
            Ok(run) if run.pages == pages => Ok(Some(run)),
            Ok(less) => {
                self.store.give(less);
                Ok(None)
            }
            // The general way knows what can be done then.
            Err(Error::NoSpace) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Streams bytes to pages that nobody sees, with their checksums.
    #[inline]
    pub(super) fn stream_run(&self, run: Run, data: &[u8], counters: &Counters) -> Result<()> {
        if self.store.geometry.strips.are_kept() {
            return self.store.stream_pages(run.page, data, counters);
        }
        let (source, all) = (Source::Bytes { data, offset: 0 }, (0, data.len() as u64));
        self.stream(&source, all, run.page * PAGE_BYTES, counters)
    }

    /// Maps pages at an offset, whose bytes are durable, or on their way.
    #[inline]
    fn map_run(
        &self,
        node: &Node<H>,
        state: &mut State,
        held: Held<'_, H>,
        (offset, run, is_durable): (u64, Run, bool),
    ) -> Result<()> {
        // Asked while the bytes are on their way.
        let around = state.file()?.extents.around(offset / PAGE_BYTES);
        let Run { page, pages } = run;
        let mut extent = Extent {
            file_page: offset / PAGE_BYTES,
            page,
            pages,
            class: PageClass::Small,
            epoch: held.epoch(),
            origin: 0,
        };
        let (time_ns, size) = (self.now_ns(), state.size.max(offset + pages * PAGE_BYTES));
        let mut tx = match self.store.begin_in(held, 1, 0, !is_durable) {
            Ok(tx) => tx,
            Err(error) => {
                self.store.give(run);
                return Err(error);
            }
        };
        let Extent { file_page, class, .. } = extent;
        let map = Body::Map { class, pages: pages as u32, file_page, page, time_ns, size };
        extent.origin = state.log.append(&mut tx, &self.store, &map).ordinal;
        tx.send()?;
        let died = state.ends_in();
        state.map_among(extent, around, size, time_ns, &mut |ended| {
            // (Should that fail, it fails below.)
            if tx.land().is_ok() {
                self.store.release(ended, died);
            }
        });
        tx.commit()?;
        node.slot.set_tail(state.log.tail.last_seal);
        self.tidy(&node.slot, state);
        Ok(())
    }

    /// Whether bytes `offset .. end` are whole pages for fresh ones, with nothing else to be done.
    pub(super) fn is_whole(&self, state: &State, offset: u64, end: u64) -> Result<bool> {
        let plain = state.class == PageClass::Small;
        if !(plain && self.may_be_whole(Some(offset), end - offset)) || offset > state.size {
            return Ok(false);
        }
        let file = state.file()?;
        if file.journal.is_pending() || file.is_mapped() || state.log.tail.left == 0 {
            return Ok(false);
        }
        // Pages of large classes stay together; mapped ones behind the size are appended to.
        if end <= state.size && !file.has_large {
            return Ok(true);
        }
        let mut page = offset / PAGE_BYTES;
        while page < end / PAGE_BYTES
            && let Some(extent) = file.extents.next_from(page)
            && extent.file_page < end / PAGE_BYTES
        {
            let behind = extent.end() * PAGE_BYTES > state.size && end > state.size;
            if extent.class > PageClass::Small || behind {
                return Ok(false);
            }
            page = extent.end();
        }
        Ok(true)
    }

    /// Whether so many bytes at this offset, or at the end, may be such, by what is known without their file.
    #[inline]
    pub(super) fn may_be_whole(&self, offset: Option<u64>, len: u64) -> bool {
        let host = &self.store.host;
        let usual = !host.leaves_out(Rule::OverwrittenAfterFence)
            && !host.leaves_out(Rule::JournalUsed)
            && !host.leaves_out(Rule::SizeInMap);
        let offset = offset.unwrap_or(0);
        let whole = offset.is_multiple_of(PAGE_BYTES) && len.is_multiple_of(PAGE_BYTES);
        let fits = (1..=MOST).contains(&len) && offset <= FILE_MAX - len;
        whole && fits && usual && !self.options.relaxed
    }
}
