//! Moving what a file keeps in pages of its own to other pages: nothing of the file changes.
//!
//! The bytes are copied to fresh pages and fenced, as those of a write are; the record that says so
//! goes with one that keeps the times as they were.

use core::sync::atomic::Ordering::Relaxed;

use alloc::boxed::Box;

use lode_pmem::{Counters, Medium};

use crate::index::Extent;
use crate::inode::{Body as Kind, Node, State, find_xattr, load_xattr_value};
use crate::integrity::Whose;
use crate::layout::Body;
use crate::space::{Ended, Run};
use crate::store::Purpose;
use crate::{Error, Host, PAGE_BYTES, PageClass, Pool, Result, SetAttr, XattrChange, XattrWhen};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Moves the pages of a file from `file_page` on to the run `to`, which is the caller's: all of them are
    /// mapped, and nothing is journalled. `given` gets the pages that they were in, and the epoch that ended their time there.
    ///
    /// # Errors
    /// Those of the medium; `NoSpace`. Then nothing has changed, and `to` is the caller's still.
    pub(crate) fn relocate(
        &self,
        node: &Node<H>,
        state: &mut State,
        file_page: u64,
        to: Run,
        given: &mut dyn FnMut(Ended, u32),
    ) -> Result<()> {
        state.file_mut()?.reserve_given_up(1)?;
        let plan = state.log.plan([1, 1]);
        state.log.reserve(&self.store, &plan, Purpose::Changes)?;
        let held = self.store.hold_lane();
        let copied = self.copy_pages(state, file_page, to, held.counters());
        let begun =
            copied.and_then(|()| self.store.begin_in(held, plan.lines, plan.extra_bytes(), true));
        let mut tx = match begun {
            Ok(tx) => tx,
            Err(error) => {
                state.log.unreserve(&self.store);
                return Err(error);
            }
        };
        let (size, time_ns) = (state.size, state.mtime_ns);
        let class = PageClass::Small;
        let Run { page, pages } = to;
        let map = Body::Map { class, pages: pages as u32, file_page, page, time_ns, size };
        let origin = state.log.append(&mut tx, &self.store, &map).ordinal;
        let times = (state.mtime_ns, state.ctime_ns, state.atime_ns.load(Relaxed));
        let attr = state.attr_record();
        let ordinal = state.log.append(&mut tx, &self.store, &attr).ordinal;
        let epoch = tx.epoch();
        tx.commit()?;
        node.slot.set_tail(state.log.tail.last_seal);
        let extent = Extent { file_page, page, pages, class, epoch, origin };
        let (latest, died) = (self.store.latest(), state.ends_in());
        let given = &mut |ended| given(ended, died);
        state.giving_up(given, latest, |state, give| state.map(extent, size, time_ns, give));
        state.set_attr(ordinal, state.mode, (state.uid, state.gid), times);
        Ok(())
    }

    /// Streams what is in pages of a file to a run.
    fn copy_pages(
        &self,
        state: &State,
        file_page: u64,
        to: Run,
        counters: &Counters,
    ) -> Result<()> {
        let extents = &state.file()?.extents;
        let mut page_bytes = Box::new([0u8; PAGE_BYTES as usize]);
        for step in 0..to.pages {
            let extent = extents.find(file_page + step).ok_or(Error::Invalid)?;
            let from = extent.page + (file_page + step - extent.file_page);
            let bytes = page_bytes.as_mut_slice();
            let end = state.size.saturating_sub((file_page + step) * PAGE_BYTES);
            let of = Whose { ino: state.log.ino, end: from * PAGE_BYTES + end };
            match state.file()?.is_exempt(file_page + step) {
                true => self.store.load_exempt(from * PAGE_BYTES, bytes)?,
                false => self.store.load_data(of, from * PAGE_BYTES, bytes)?,
            }
            self.store.stream_pages(to.page + step, bytes, counters)?;
        }
        Ok(())
    }

    /// Ends what a file's journal still says, and gives back its pages.
    pub(crate) fn empty_journal(&self, node: &Node<H>, state: &mut State) -> Result<()> {
        self.retire_now(node, state)?;
        let Kind::File(file) = &mut state.body else { return Ok(()) };
        file.journal.release_idle(&self.store)
    }

    /// Stores the value of an extended attribute anew, in other pages.
    pub(crate) fn relocate_xattr(
        &self,
        node: &Node<H>,
        state: &mut State,
        name: &[u8],
    ) -> Result<()> {
        let xattr = find_xattr(&self.store, state, name)?.ok_or(Error::NoAttribute)?;
        let value = load_xattr_value(&self.store, state, xattr)?;
        let change = XattrChange { name, value: Some(&value), when: XattrWhen::Present };
        let changes = core::slice::from_ref(&change);
        self.change_locked(node, state, &SetAttr::default(), changes, state.ctime_ns).map(|_| ())
    }
}
