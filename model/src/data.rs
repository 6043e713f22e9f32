//! The bytes of one file: a map of pages, absent pages read as zeros.

use std::collections::BTreeMap;

/// Bytes in a page of the map.
pub const PAGE: u64 = 4096;

/// Sparse contents. Bytes behind the size are kept zero.
#[derive(Clone, Debug, Default)]
pub struct Data {
    size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Data {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// First bytes of the pages that hold something, in order.
    pub fn page_offsets(&self) -> Vec<u64> {
        self.pages.keys().map(|page| page * PAGE).collect()
    }

    /// Reads from `offset`; fewer than asked only at the end of the file.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let len = self.size.saturating_sub(offset).min(into.len() as u64);
        for (page, start, from, to) in pieces(offset, len) {
            let part = &mut into[from..to];
            match self.pages.get(&page) {
                Some(bytes) => part.copy_from_slice(&bytes[start..start + (to - from)]),
                None => part.fill(0),
            }
        }
        len as usize
    }

    /// Writes `bytes` at `offset`; the file grows as needed.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, start, from, to) in pieces(offset, bytes.len() as u64) {
            let target = self.pages.entry(page).or_insert_with(|| vec![0; PAGE as usize]);
            target[start..start + (to - from)].copy_from_slice(&bytes[from..to]);
        }
        self.grow(offset + bytes.len() as u64);
    }

    /// Sets the size; what was behind a smaller one is gone.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            let keep = size.div_ceil(PAGE);
            self.pages.retain(|&page, _| page < keep);
            let tail = size % PAGE;
            if tail != 0
                && let Some(last) = self.pages.get_mut(&(size / PAGE))
            {
                last[tail as usize..].fill(0);
            }
        }
        self.size = size;
    }

    /// Makes the file at least `size` long.
    pub fn grow(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// Makes `offset .. offset + len` read as zeros; the size stays.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset + len;
        let (first, last) = (offset / PAGE, end.div_ceil(PAGE));
        for (&page, bytes) in self.pages.range_mut(first..last) {
            let from = offset.saturating_sub(page * PAGE);
            let to = (end - page * PAGE).min(PAGE);
            bytes[from as usize..to as usize].fill(0);
        }
        self.pages.retain(|&page, _| page * PAGE < offset || (page + 1) * PAGE > end);
    }

    /// First offset at or after `offset` with data, or without.
    pub fn seek(&self, offset: u64, data: bool) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let mut at = offset;
        if data {
            if !self.pages.contains_key(&(at / PAGE)) {
                at = self.pages.range(at / PAGE..).next()?.0 * PAGE;
            }
            return (at < self.size).then_some(at);
        }
        while at < self.size && self.pages.contains_key(&(at / PAGE)) {
            at = (at / PAGE + 1) * PAGE;
        }
        Some(at.min(self.size))
    }
}

/// Cuts a range into pages: page, first byte in it, and the range of the buffer.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let end = offset + len;
    (offset / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let from = offset.max(page * PAGE);
        let to = end.min((page + 1) * PAGE);
        (page, (from % PAGE) as usize, (from - offset) as usize, (to - offset) as usize)
    })
}
