//! What a scrub passes over: pages that programs have mapped to store into.

use alloc::vec::Vec;

use super::step::Scrub;
use crate::inode::State;
use crate::{ExemptRange, PAGE_BYTES, Result};

/// Ranges that a scrub names; of more it tells how many pages they have.
const RANGES_MAX: usize = 100;

/// What was passed over.
#[derive(Debug, Default)]
pub(super) struct Exempt {
    pages: u64,
    /// Since somebody asked last.
    ranges: Vec<ExemptRange>,
    /// How many there were before.
    taken: usize,
}

impl Scrub {
    /// Pages that were passed over: programs have them mapped to store into, and nobody knows what they should hold.
    pub fn exempt_pages(&self) -> u64 {
        self.exempt.pages
    }

    /// Which these are, since this was asked last: the first 100 ranges in all, each as far as it is in front of its file's end.
    pub fn take_exempt(&mut self) -> Vec<ExemptRange> {
        self.exempt.taken += self.exempt.ranges.len();
        core::mem::take(&mut self.exempt.ranges)
    }

    /// Notes a page of a file.
    pub(super) fn note_exempt(&mut self, state: &State, page: u64) -> Result<()> {
        let Exempt { pages, ranges, taken } = &mut self.exempt;
        *pages += 1;
        let (ino, offset) = (state.log.ino | state.view, page * PAGE_BYTES);
        let bytes = PAGE_BYTES.min(state.size.saturating_sub(offset));
        let has_room = *taken + ranges.len() < RANGES_MAX;
        match ranges.last_mut() {
            Some(last) if (last.ino, last.offset + last.bytes) == (ino, offset) => {
                last.bytes += bytes;
            }
            _ if bytes > 0 && has_room => {
                ranges.try_reserve(1)?;
                ranges.push(ExemptRange { ino, offset, bytes });
            }
            _ => {}
        }
        Ok(())
    }
}
