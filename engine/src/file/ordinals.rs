//! In which pages of the log the records of a change are.

use crate::PAGE_BYTES;
use crate::inode::State;
use crate::layout::{INLINE_LINES, LINE, SLOT_BYTES};
use crate::log::{INLINE, Placed};

/// The ordinals of a change's records, which follow each other in the log.
pub(super) struct Ordinals {
    ordinal: u32,
    left: u32,
}

impl Ordinals {
    /// From the place of the first record.
    pub(super) fn new(state: &State, first: &Placed) -> Self {
        let line = (first.at % PAGE_BYTES) / LINE;
        let left = if first.ordinal == INLINE {
            let slot_line = (first.at % SLOT_BYTES) / LINE;
            INLINE_LINES + 1 - slot_line as u32
        } else {
            state.log.page_lines() + 1 - line as u32
        };
        Self { ordinal: first.ordinal, left }
    }

    /// The ordinal of the next record, which stays the next one.
    pub(super) fn peek(&self) -> u32 {
        self.ordinal
    }

    /// The ordinal of the next record, each of one line.
    pub(super) fn next(&mut self, state: &State) -> u32 {
        if self.left == 0 {
            let next = state.log.pages.iter().find(|page| page.ordinal > self.ordinal);
            self.ordinal = next.map_or(self.ordinal, |page| page.ordinal);
            self.left = state.log.page_lines();
        }
        self.left -= 1;
        self.ordinal
    }
}
