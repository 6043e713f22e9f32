//! The shortest way of a write: whole pages, all of them to one run of fresh ones.
//!
//! Most appends and many overwrites are so. What the general way (`change`) finds out by lists of
//! segments is known here at once; steps, order and fences are the same.

use lode_pmem::Medium;

use super::fresh::{Source, near};
use crate::index::Extent;
use crate::inode::{Node, State};
use crate::layout::Body;
use crate::store::Purpose;
use crate::{Error, Host, PAGE_BYTES, PageClass, Pool, Result, Rule};

/// The most bytes that go this way.
const MOST: u64 = 2 << 20;

impl<M: Medium, H: Host> Pool<M, H> {
    /// Writes `data` at `offset`, if this is a write of whole pages that one run takes; else says
    /// that nothing was done.
    #[inline(never)]
    pub(super) fn write_whole(
        &self,
        node: &Node<H>,
        state: &mut State,
        offset: u64,
        data: &[u8],
    ) -> Result<bool> {
        let end = offset + data.len() as u64;
        if !self.is_whole(state, offset, end)? {
            return Ok(false);
        }
        state.file()?.extents.expect(offset / PAGE_BYTES);
        let pages = (end - offset) / PAGE_BYTES;
        let near = near(&state.file()?.extents, offset / PAGE_BYTES, pages);
        let run = match self.store.take_near(pages, Purpose::Grows, near) {
            Ok(run) if run.pages == pages => run,
            Ok(less) => {
                self.store.give(less);
                return Ok(false);
            }
            // The general way knows what can be done then.
            Err(Error::NoSpace) => return Ok(false),
            Err(error) => return Err(error),
        };
        let held = self.store.hold_lane();
        let at = run.page * PAGE_BYTES;
        let streamed = match self.store.geometry.strips.are_kept() {
            true => self.store.stream_pages(run.page, data, held.counters()),
            false => {
                let source = Source::Bytes { data, offset };
                self.stream(&source, (offset, end), at, held.counters())
            }
        };
        if let Err(error) = streamed {
            self.store.give(run);
            // (The general way takes other pages.)
            return if matches!(error, Error::Media { .. }) { Ok(false) } else { Err(error) };
        }
        // Asked while the bytes are on their way.
        let around = state.file()?.extents.around(offset / PAGE_BYTES);
        let mut extent = Extent {
            file_page: offset / PAGE_BYTES,
            page: run.page,
            pages,
            class: PageClass::Small,
            epoch: held.epoch(),
            origin: 0,
        };
        let (time_ns, size) = (self.now_ns(), state.size.max(end));
        let mut tx = match self.store.begin_in(held, 1, 0, true) {
            Ok(tx) => tx,
            Err(error) => {
                self.store.give(run);
                return Err(error);
            }
        };
        let Extent { file_page, page, class, .. } = extent;
        let pages = pages as u32;
        let map = Body::Map { class, pages, file_page, page, time_ns, size };
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
        Ok(true)
    }

    /// Whether bytes `offset .. end` are whole pages for fresh ones, with nothing else to be done.
    fn is_whole(&self, state: &State, offset: u64, end: u64) -> Result<bool> {
        let whole = offset.is_multiple_of(PAGE_BYTES) && end.is_multiple_of(PAGE_BYTES);
        let plain = state.class == PageClass::Small && !self.options.relaxed;
        let host = &self.store.host;
        let usual = !host.leaves_out(Rule::OverwrittenAfterFence)
            && !host.leaves_out(Rule::JournalUsed)
            && !host.leaves_out(Rule::SizeInMap);
        if !(whole && plain && usual) || end - offset > MOST || offset > state.size {
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
}
