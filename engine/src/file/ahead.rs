//! What is looked at before a change stores in place.
//!
//! Guarantees: where a line that is stored in part may be bad, and that was promised to cost no more than what is in it, the
//! line is loaded first; what is bad then, what a snapshot sees and what has checksums gets another page.

use lode_pmem::Medium;

use super::change::Change;
use super::segment::{Segment, Way};
use crate::inode::State;
use crate::store::Looked;
use crate::{Host, PAGE_BYTES, Pool, Result};

impl<M: Medium, H: Host> Pool<M, H> {
    /// The file's last page, where it has to be replaced before its size becomes `size`: it has checksums, or a
    /// snapshot sees it, or it is bad behind the size, and bytes there are not known to be zero.
    #[inline(never)]
    pub(super) fn tail_to_replace(&self, state: &State, size: u64) -> Result<Option<Segment>> {
        let (from, to) = (state.size, state.size);
        let grows = size > from && !from.is_multiple_of(PAGE_BYTES);
        let (strips, latest) = (self.store.geometry.strips.are_kept(), self.store.latest());
        let twins = self.store.geometry.twin_pages != 0;
        let reasons = strips || latest > 0 || twins || self.store.bad.any();
        if !reasons || !grows || self.zero_behind(state) || self.tail_is_shown(state) {
            return Ok(None);
        }
        let Some(extent) = state.file()?.extents.find(from / PAGE_BYTES) else { return Ok(None) };
        let at = extent.page * PAGE_BYTES + (from - extent.file_page * PAGE_BYTES);
        let rest = PAGE_BYTES - at % PAGE_BYTES;
        if twins && !strips {
            self.store.look_ahead(at, rest.min(size - from), Looked::Parts)?;
        }
        let replaced = strips || extent.epoch <= latest || self.store.bad.touches(at, rest);
        Ok(replaced.then_some(Segment { way: Way::Fresh, from, to, at: 0 }))
    }

    /// Whether maps show the page that the file ends in, at level `full`: it stays where it is.
    pub(super) fn tail_is_shown(&self, state: &State) -> bool {
        let shown = state.file().ok().and_then(|file| file.shown());
        shown.is_some_and(|shown| shown.find(state.size / PAGE_BYTES).is_some())
    }

    /// Looks at what a change would store in place, where it is promised that bad memory costs no more than what is in
    /// it. (Strips are loaded anyway.)
    #[inline]
    pub(super) fn look_ahead(&self, state: &State, change: &Change<'_>) -> Result<()> {
        let geometry = &self.store.geometry;
        if geometry.twin_pages == 0 || geometry.strips.are_kept() {
            return Ok(());
        }
        self.tail_to_replace(state, change.new_size)?;
        for segment in change.segments.iter() {
            let lines = match segment.way {
                Way::Fresh => continue,
                // (What comes from a journal is stored through the cache: that loads each line.)
                Way::Journal => Looked::All,
                Way::Append | Way::InPlace => Looked::Parts,
            };
            self.store.look_ahead(segment.at, segment.to - segment.from, lines)?;
        }
        Ok(())
    }

    /// Whether a change would store in place what can't be loaded there. (What a program has mapped stays where it is.)
    #[cold]
    pub(super) fn meets_bad(&self, state: &State, change: &Change<'_>) -> Result<bool> {
        let is_in_place = |segment: &&Segment| segment.way != Way::Fresh;
        let mut in_place = change.segments.iter().filter(is_in_place).peekable();
        if in_place.peek().is_none() || state.file()?.is_mapped() {
            return Ok(false);
        }
        let bad = |segment: &Segment| self.store.bad.touches(segment.at, segment.to - segment.from);
        // (What is in front of it becomes zero, in place, too.)
        Ok(in_place.any(bad) || self.tail_to_replace(state, change.new_size)?.is_some())
    }
}
