//! Bytes that are stored before their inode is locked.
//!
//! Who finds it locked would only wait, and who writes much would have others wait for long: both store whole pages where nobody
//! sees them, and fence them. With the inode locked, a record is all that is left to be done. So writers of one file come to its
//! end one after the other, and do the larger part side by side; and its readers wait for records alone.
//!
//! What is so stored is the writer's own until the record is there: given back where the write goes another way then.

use lode_pmem::Medium;

use super::fresh::near;
use crate::inode::Node;
use crate::space::{Near, Run};
use crate::{Host, PAGE_BYTES, Pool, Result};

/// So many bytes are stored first whether or not somebody has the inode.
const LARGE: usize = 64 << 10;

impl<M: Medium, H: Host> Pool<M, H> {
    /// Pages with these bytes, durably, for a write at this offset or at the end of an inode that others want, or not; `None` where it is better
    /// made as others are.
    #[inline]
    pub(super) fn store_unlocked(
        &self,
        node: &Node<H>,
        offset: Option<u64>,
        data: &[u8],
        is_wanted: bool,
    ) -> Result<Option<Run>> {
        if !(is_wanted || data.len() >= LARGE) || !self.may_be_whole(offset, data.len() as u64) {
            return Ok(None);
        }
        let near = if is_wanted { Some(Near::ANY) } else { self.near_of(node, offset, data)? };
        near.map_or(Ok(None), |near| self.store_now(near, data))
    }

    /// Where such pages are best taken, if that is how this write goes.
    #[inline(never)]
    fn near_of(&self, node: &Node<H>, offset: Option<u64>, data: &[u8]) -> Result<Option<Near>> {
        let (state, pages) = (node.read(&self.store)?, data.len() as u64 / PAGE_BYTES);
        let offset = offset.unwrap_or(state.size);
        let Some(end) = offset.checked_add(data.len() as u64) else { return Ok(None) };
        if !self.is_whole(&state, offset, end)? {
            return Ok(None);
        }
        Ok(Some(near(&state.file()?.extents, offset / PAGE_BYTES, pages)))
    }

    #[inline(never)]
    fn store_now(&self, near: Near, data: &[u8]) -> Result<Option<Run>> {
        let Some(run) = self.take_run(data.len() as u64 / PAGE_BYTES, near)? else {
            return Ok(None);
        };
        let held = self.store.hold_lane();
        // (Asked with the lane held: who ends the session waits for lanes.)
        let stored = self.store.writable();
        let stored = stored.and_then(|()| self.stream_run(run, data, held.counters()));
        let stored = stored.and_then(|()| Ok(self.store.door.fence(held.counters())?));
        drop(held);
        // (What was wrong is met again by the usual way.)
        Ok(stored.inspect_err(|_| self.store.give(run)).ok().map(|()| run))
    }
}
