//! Segments: how each part of a write gets to the medium.

use alloc::vec::Vec;

use crate::index::{Extent, Extents};
use crate::{JOURNAL_HALF, PAGE_BYTES, PageClass, Result};

/// The way of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// To fresh pages; what was mapped is freed after the fence.
    Fresh,
    /// In place behind the end of the file, where nobody sees it before the record.
    Append,
    /// Through the journal, then in place.
    Journal,
    /// In place at once: relaxed mode.
    InPlace,
}

/// Bytes `from .. to` of the file, all going the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) way: Way,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Offset in the pool of byte `from`, of ways in place.
    pub(crate) at: u64,
}

/// Segments of one call: few of them without touching the heap.
#[derive(Debug)]
pub(crate) struct List<T, const N: usize> {
    few: [T; N],
    len: usize,
    more: Vec<T>,
}

impl<T: Copy, const N: usize> List<T, N> {
    /// An empty list; `filler` stands in unused places.
    pub(crate) fn new(filler: T) -> Self {
        Self { few: [filler; N], len: 0, more: Vec::new() }
    }

    pub(crate) fn push(&mut self, item: T) -> Result<()> {
        match self.few.get_mut(self.len) {
            Some(place) => {
                *place = item;
                self.len += 1;
            }
            None => {
                self.more.try_reserve(1)?;
                self.more.push(item);
            }
        }
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.more.clear();
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut T> {
        if self.more.is_empty() {
            self.len.checked_sub(1).and_then(|last| self.few.get_mut(last))
        } else {
            self.more.last_mut()
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.few.iter().take(self.len).chain(&self.more)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.few.iter_mut().take(self.len).chain(&mut self.more)
    }

    pub(crate) fn len(&self) -> usize {
        self.len + self.more.len()
    }
}

pub(crate) type Segments = List<Segment, 6>;

impl Segments {
    /// No segments yet.
    pub(crate) fn none() -> Self {
        Self::new(Segment { way: Way::Fresh, from: 0, to: 0, at: 0 })
    }

    fn add(&mut self, segment: Segment) -> Result<()> {
        if let Some(last) = self.last_mut()
            && last.way == Way::Fresh
            && segment.way == Way::Fresh
            && last.to == segment.from
        {
            last.to = segment.to;
            return Ok(());
        }
        self.push(segment)
    }
}

/// How bytes are overwritten that a file has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Overwrites {
    /// In the cheapest way that is atomic.
    Atomic,
    /// In place, without atomicity: asked for, or the file is mapped.
    InPlace,
    /// Within a page by whole strips of so many bytes through the journal, else by fresh pages: pages have checksums.
    Strips(u64),
    /// By fresh pages alone.
    Replacing,
}

/// What decides the way of a write.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) overwrites: Overwrites,
    /// The epoch in which these rules hold.
    pub(crate) epoch: u32,
    /// The latest snapshot: only pages born after it may be stored to in place (PROTOCOL I17).
    pub(crate) latest: u32,
    /// Size before the write.
    pub(crate) size: u64,
}

/// Cuts bytes `from .. to` into segments.
pub(crate) fn plan(
    extents: &Extents,
    rules: Rules,
    from: u64,
    to: u64,
    segments: &mut Segments,
) -> Result<()> {
    let whole = to - from;
    let mut at = from;
    while at < to {
        let segment = match extents.next_from(at / PAGE_BYTES) {
            Some(extent) if extent.file_page * PAGE_BYTES <= at => {
                mapped(&extent, rules, at, to, whole)
            }
            Some(extent) => fresh(at, to.min(extent.file_page * PAGE_BYTES)),
            None => fresh(at, to),
        };
        at = segment.to;
        segments.add(segment)?;
    }
    Ok(())
}

fn fresh(from: u64, to: u64) -> Segment {
    Segment { way: Way::Fresh, from, to, at: 0 }
}

/// The first segment of a write to bytes that are mapped by `extent`.
fn mapped(extent: &Extent, rules: Rules, from: u64, to: u64, whole: u64) -> Segment {
    let to = to.min(extent.end() * PAGE_BYTES);
    let at = extent.page * PAGE_BYTES + (from - extent.file_page * PAGE_BYTES);
    let in_place = |way, to| Segment { way, from, to, at };
    if rules.overwrites == Overwrites::Replacing {
        return fresh(from, to);
    }
    if extent.epoch <= rules.latest {
        return fresh(from, to);
    }
    if let Overwrites::Strips(strip) = rules.overwrites {
        let (first, end) = (from - from % strip, to.next_multiple_of(strip));
        let one_page = first / PAGE_BYTES == (end - 1) / PAGE_BYTES;
        let small = extent.class == PageClass::Small && whole == to - from;
        let fits = small && one_page && end - first <= JOURNAL_HALF && end <= rules.size;
        return if fits { in_place(Way::Journal, to) } else { fresh(from, to) };
    }
    if from >= rules.size {
        return in_place(Way::Append, to);
    }
    let below = to.min(rules.size);
    if rules.overwrites == Overwrites::InPlace {
        return in_place(Way::InPlace, below);
    }
    if extent.class > PageClass::Small {
        let chunk = extent.class.pages() * PAGE_BYTES;
        let covers = from.is_multiple_of(chunk) && to - from >= chunk;
        return if covers { fresh(from, to - to % chunk) } else { in_place(Way::Journal, below) };
    }
    let one_page = from / PAGE_BYTES == (to - 1) / PAGE_BYTES;
    if one_page && below == to && whole == to - from && whole <= JOURNAL_HALF {
        return in_place(Way::Journal, to);
    }
    // Up to the end of the page that the size is in; whole pages behind it are appended to.
    fresh(from, to.min(rules.size.next_multiple_of(PAGE_BYTES)))
}
