//! What a map shows, and how that follows the file.
//!
//! Guarantees: stores are let through to those pages only that are as the engine has said last. What the system
//! refused to show can't be stored to, nor committed, until it has been shown.
//!
//! Each piece of the file that lies elsewhere than the one before it is a mapping of the kernel's, of which a process may have
//! some 65,000 (`vm.max_map_count`). So the more there are, the larger is what one store moves ([`unit`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lode_engine::{Error, Ino, MapExtent, Result, Shown};
use lode_pmem::View;
use parking_lot::Mutex;

/// Pieces of all maps of the process, no fewer than there are.
static PIECES: AtomicUsize = AtomicUsize::new(0);
/// For each so many pieces one store moves four times as much; from the last step on all of its map.
const STEP: usize = 4096;
const STEPS_MAX: usize = 6;

/// Bytes that are moved together when one of them is stored to; all of a map for `None`.
pub(super) fn unit() -> Option<u64> {
    unit_of(PIECES.load(Relaxed))
}

fn unit_of(pieces: usize) -> Option<u64> {
    let steps = pieces / STEP;
    (steps < STEPS_MAX).then(|| super::PAGE << (2 * steps))
}

/// A view of a file, and what it shows.
pub(super) struct Shows {
    pub(super) view: View,
    pub(super) ino: Ino,
    /// Where it begins in the file.
    pub(super) offset: u64,
    parts: Mutex<Parts>,
}

struct Parts {
    /// By place in the view: the place in the pool and the length of what is to be shown.
    shown: BTreeMap<u64, (u64, u64)>,
    /// Ranges of the view, by beginning and end, where something else may be shown.
    in_doubt: Vec<(u64, u64)>,
    /// How often stores were allowed to a part since all were kept out.
    allowed: usize,
    /// What is counted of it in all.
    counted: usize,
}

impl Shows {
    /// A view that shows these pages, from `offset` of the file on.
    pub(super) fn new(view: View, ino: Ino, offset: u64, extents: &[MapExtent]) -> Self {
        let placed =
            |extent: &MapExtent| (extent.file_offset - offset, (extent.pool_offset, extent.bytes));
        let shown = extents.iter().map(placed).collect();
        let mut parts = Parts { shown, in_doubt: Vec::new(), allowed: 0, counted: 0 };
        parts.count();
        Self { view, ino, offset, parts: Mutex::new(parts) }
    }

    /// Shows these pages, which lie behind each other in the file, whatever was shown there. Nobody can store there yet.
    pub(super) fn put(
        &self,
        extents: &[MapExtent],
    ) -> std::result::Result<(), lode_pmem::RegionError> {
        let mut parts = self.parts.lock();
        for extent in extents {
            let at = extent.file_offset - self.offset;
            parts.set(at, extent.pool_offset, extent.bytes);
        }
        let places: Vec<_> = extents.iter().map(|it| (it.pool_offset, it.bytes)).collect();
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return Ok(()) };
        let from = first.file_offset - self.offset;
        let to = last.file_offset + last.bytes - self.offset;
        let put = self.view.replace(from, &places);
        parts.settle(from, to, put.is_ok());
        put
    }

    /// Whether part of `at .. at + len` may show something else than it is to show.
    pub(super) fn is_in_doubt(&self, at: u64, len: u64) -> bool {
        self.parts.lock().is_in_doubt(at, at.saturating_add(len))
    }

    /// The range of the view that bytes `offset .. offset + len` of the file are in.
    fn range(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        let end = offset.saturating_add(len).min(self.offset + self.view.bytes());
        let from = offset.max(self.offset);
        (from < end).then(|| (from - self.offset, end - self.offset))
    }
}

impl Shown for Shows {
    fn protect(&self) -> Result<()> {
        let mut parts = self.parts.lock();
        self.view.protect().map_err(|_| Error::NoMemory)?;
        parts.allowed = 0;
        parts.count();
        Ok(())
    }

    fn moved(&self, from: &MapExtent, to: u64) -> Result<()> {
        let Some((start, end)) = self.range(from.file_offset, from.bytes) else { return Ok(()) };
        let skipped = (start + self.offset) - from.file_offset;
        let (old, new) = (from.pool_offset + skipped, to + skipped);
        let mut parts = self.parts.lock();
        let mut result = Ok(());
        for (at, place, len) in parts.between(start, end) {
            if place != old + (at - start) {
                continue;
            }
            let place = new + (at - start);
            let shown = self.view.replace(at, &[(place, len)]);
            parts.settle(at, at + len, shown.is_ok());
            match shown {
                Ok(()) => parts.set(at, place, len),
                Err(_) => result = Err(Error::NoMemory),
            }
        }
        result
    }

    fn allow(&self, offset: u64, len: u64) -> Result<()> {
        let Some((start, end)) = self.range(offset, len) else { return Ok(()) };
        if !self.view.is_writable() {
            return Ok(());
        }
        let mut parts = self.parts.lock();
        if parts.is_in_doubt(start, end) {
            return Err(Error::NoMemory);
        }
        // (Pages are mapped whole.)
        let end = end.next_multiple_of(super::PAGE).min(self.view.bytes());
        self.view.allow(start, end - start).map_err(|_| Error::NoMemory)?;
        parts.allowed = if end - start == self.view.bytes() { 0 } else { parts.allowed + 1 };
        parts.count();
        Ok(())
    }
}

impl Parts {
    /// What is to be shown in `start .. end`: place in the view, in the pool, and length.
    fn between(&self, start: u64, end: u64) -> Vec<(u64, u64, u64)> {
        let before = self.shown.range(..start).next_back();
        let parts = before.into_iter().chain(self.shown.range(start..end));
        let cut = |(&at, &(place, len)): (&u64, &(u64, u64))| {
            let (from, to) = (at.max(start), (at + len).min(end));
            (from < to).then(|| (from, place + (from - at), to - from))
        };
        parts.filter_map(cut).collect()
    }

    /// From now on this is to be shown.
    fn set(&mut self, at: u64, place: u64, len: u64) {
        let end = at + len;
        let before = self.shown.range(..at).next_back().map(|(at, part)| (*at, *part));
        if let Some((other, (of, bytes))) = before.filter(|(other, (_, bytes))| other + bytes > at)
        {
            self.shown.insert(other, (of, at - other));
            if other + bytes > end {
                self.shown.insert(end, (of + (end - other), other + bytes - end));
            }
        }
        while let Some((&other, &(of, bytes))) = self.shown.range(at..end).next() {
            self.shown.remove(&other);
            if other + bytes > end {
                self.shown.insert(end, (of + (end - other), other + bytes - end));
            }
        }
        self.shown.insert(at, (place, len));
        self.join(at);
        self.join(end);
        self.count();
    }

    /// Joins what begins at `at` to what is before it, if it goes on in it.
    fn join(&mut self, at: u64) {
        let Some(&(place, len)) = self.shown.get(&at) else { return };
        if let Some((&other, &(of, bytes))) = self.shown.range(..at).next_back()
            && other + bytes == at
            && of + bytes == place
        {
            self.shown.remove(&at);
            self.shown.insert(other, (of, bytes + len));
        }
    }

    /// Notes whether the system shows what it is to show in `start .. end`.
    fn settle(&mut self, start: u64, end: u64, is_shown: bool) {
        if !is_shown {
            self.in_doubt.push((start, end));
            return;
        }
        let doubts = std::mem::take(&mut self.in_doubt);
        for (from, to) in doubts {
            let left = [(from, to.min(start)), (from.max(end), to)];
            self.in_doubt.extend(left.into_iter().filter(|(from, to)| from < to));
        }
    }

    fn is_in_doubt(&self, start: u64, end: u64) -> bool {
        self.in_doubt.iter().any(|&(from, to)| from < end && start < to)
    }

    fn count(&mut self) {
        let now = self.shown.len() + 2 * self.allowed;
        PIECES.fetch_add(now.wrapping_sub(self.counted), Relaxed);
        self.counted = now;
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        PIECES.fetch_sub(self.counted, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_cut_and_joined() {
        let mut parts = Parts {
            shown: BTreeMap::from([(0, (100, 10)), (10, (200, 10))]),
            in_doubt: Vec::new(),
            allowed: 0,
            counted: 0,
        };
        parts.count();
        parts.set(4, 300, 2);
        assert_eq!(parts.between(0, 20), [(0, 100, 4), (4, 300, 2), (6, 106, 4), (10, 200, 10)]);
        assert_eq!(parts.between(5, 7), [(5, 301, 1), (6, 106, 1)]);
        parts.set(6, 302, 8);
        assert_eq!(parts.between(0, 20), [(0, 100, 4), (4, 300, 10), (14, 204, 6)]);
        parts.set(4, 104, 10);
        assert_eq!(parts.between(0, 20), [(0, 100, 14), (14, 204, 6)]);
        parts.set(0, 500, 20);
        assert_eq!(parts.between(0, 30), [(0, 500, 20)]);
        parts.settle(3, 9, false);
        assert!(parts.is_in_doubt(8, 10) && !parts.is_in_doubt(9, 10) && !parts.is_in_doubt(0, 3));
        parts.settle(4, 6, true);
        assert!(parts.is_in_doubt(3, 4) && !parts.is_in_doubt(4, 6) && parts.is_in_doubt(6, 7));
    }

    #[test]
    fn the_more_pieces_there_are_the_more_is_moved_at_once() {
        assert_eq!(unit_of(0), Some(4096));
        assert_eq!(unit_of(2 * STEP), Some(16 * 4096));
        assert_eq!(unit_of(STEP * STEPS_MAX - 1), Some(4 << 20));
        assert_eq!(unit_of(STEP * STEPS_MAX), None);
    }
}
