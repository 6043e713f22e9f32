//! Where a file's pages are: an ordered map from file pages to pool pages.
//!
//! Guarantees: extents never overlap; extents that go on in each other, in the file and in the
//! pool, and agree in class, epoch and origin are one extent; every operation is O(log n) for
//! each extent it touches; no input makes it overflow or panic. An `Extents` takes 48 bytes,
//! with no heap memory for a file of at most one extent; larger files take 40 bytes for each
//! extent plus the slack of the map's nodes.

use super::sorted::Sorted;
use crate::types::PageClass;
use alloc::boxed::Box;

#[cfg(test)]
mod tests;

/// Contiguous pages of a file, contiguous in the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// First page in the file.
    pub file_page: u64,
    /// First page in the pool.
    pub page: u64,
    /// How many pages.
    pub pages: u64,
    /// Size and alignment in which the pages were taken.
    pub class: PageClass,
    /// Epoch of birth.
    pub epoch: u32,
    /// Ordinal of the log page whose record made the extent.
    pub origin: u32,
}

impl Extent {
    /// The file page behind the last.
    pub(crate) fn end(&self) -> u64 {
        self.file_page.saturating_add(self.pages)
    }

    /// The part of the extent inside `file_page..end`; empty parts have no pages.
    fn part(&self, file_page: u64, end: u64) -> Self {
        let low = self.file_page.max(file_page);
        let high = self.end().min(end);
        let page = self.page.saturating_add(low - self.file_page);
        Self { file_page: low, page, pages: high.saturating_sub(low), ..*self }
    }

    /// Whether `next` goes on where this extent ends, and they agree in the rest.
    fn goes_on_in(&self, next: &Self) -> bool {
        self.end() == next.file_page
            && self.page.checked_add(self.pages) == Some(next.page)
            && self.class == next.class
            && self.epoch == next.epoch
            && self.origin == next.origin
    }
}

/// An extent in the map, where its first file page is the key.
#[derive(Clone, Copy)]
struct Place {
    page: u64,
    pages: u64,
    epoch: u32,
    origin: u32,
    class: PageClass,
}

impl Place {
    fn of(extent: &Extent) -> Self {
        let Extent { page, pages, epoch, origin, class, .. } = *extent;
        Self { page, pages, epoch, origin, class }
    }

    fn at(&self, file_page: u64) -> Extent {
        let Self { page, pages, epoch, origin, class } = *self;
        Extent { file_page, page, pages, class, epoch, origin }
    }
}

/// How the extents are kept, by their number.
#[derive(Default)]
enum Store {
    #[default]
    Empty,
    One(Extent),
    Many(Box<Sorted<Place>>),
}

/// The extents of one file.
#[derive(Default)]
pub(crate) struct Extents {
    store: Store,
    /// Pages in all extents.
    mapped: u64,
}

const _: () = assert!(size_of::<Extents>() == 48 && size_of::<Place>() == 32);

impl Extents {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        match &self.store {
            Store::Empty => 0,
            Store::One(_) => 1,
            Store::Many(map) => map.len(),
        }
    }

    /// Bytes of memory that they take, besides `Self`.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match &self.store {
            Store::Empty | Store::One(_) => 0,
            Store::Many(map) => size_of::<Sorted<Place>>() as u64 + map.memory_bytes(),
        }
    }

    /// Pages in all of them.
    pub(crate) fn pages(&self) -> u64 {
        self.mapped
    }

    /// The extent that `file_page` is in, whole.
    pub(crate) fn find(&self, file_page: u64) -> Option<Extent> {
        self.last_before(file_page.checked_add(1)?).filter(|extent| extent.end() > file_page)
    }

    /// The last extent that starts before `file_page`.
    fn last_before(&self, file_page: u64) -> Option<Extent> {
        match &self.store {
            Store::Empty => None,
            Store::One(extent) => Some(*extent).filter(|extent| extent.file_page < file_page),
            Store::Many(map) => {
                let (key, place) = map.last_to(file_page.checked_sub(1)?)?;
                Some(place.at(key))
            }
        }
    }

    /// The first extent that ends behind `file_page`: the one it is in, or the next one.
    pub(crate) fn next_from(&self, file_page: u64) -> Option<Extent> {
        if let Some(extent) = self.find(file_page) {
            return Some(extent);
        }
        match &self.store {
            Store::Empty => None,
            Store::One(extent) => Some(*extent).filter(|extent| extent.file_page >= file_page),
            Store::Many(map) => map.first_from(file_page).map(|(key, place)| place.at(key)),
        }
    }

    /// Whether all of file pages `from .. to` are mapped.
    pub(crate) fn covers(&self, from: u64, to: u64) -> bool {
        let mut page = from;
        while page < to {
            match self.find(page) {
                Some(extent) => page = extent.end(),
                None => return false,
            }
        }
        true
    }

    /// All extents, in file order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        let (one, many) = match &self.store {
            Store::Empty => (None, None),
            Store::One(extent) => (Some(*extent), None),
            Store::Many(map) => (None, Some(map.iter())),
        };
        let many = many.into_iter().flatten().map(|(key, place)| place.at(key));
        one.into_iter().chain(many)
    }

    /// Stores an extent, as it is.
    fn put(&mut self, extent: Extent) {
        if extent.pages == 0 {
            return;
        }
        match &mut self.store {
            Store::Empty => self.store = Store::One(extent),
            Store::One(other) if other.file_page == extent.file_page => *other = extent,
            Store::One(other) => {
                let mut map = Box::new(Sorted::default());
                map.insert(other.file_page, Place::of(other));
                map.insert(extent.file_page, Place::of(&extent));
                self.store = Store::Many(map);
            }
            Store::Many(map) => {
                map.insert(extent.file_page, Place::of(&extent));
            }
        }
    }

    /// Removes the extent that starts at `file_page`.
    fn pull(&mut self, file_page: u64) {
        match &mut self.store {
            Store::Empty => {}
            Store::One(extent) => {
                if extent.file_page == file_page {
                    self.store = Store::Empty;
                }
            }
            Store::Many(map) => {
                map.remove(file_page);
            }
        }
    }

    /// Gives the map up where at most one extent is left.
    fn compact(&mut self) {
        if let Store::Many(map) = &self.store
            && map.len() <= 1
        {
            self.store = match map.first_from(0) {
                Some((key, place)) => Store::One(place.at(key)),
                None => Store::Empty,
            };
        }
    }

    /// Maps an extent. None of its file pages may be mapped: whoever maps over something
    /// removes that first.
    pub(crate) fn insert(&mut self, extent: Extent) {
        debug_assert!(
            extent.pages == 0
                || self
                    .next_from(extent.file_page)
                    .is_none_or(|next| next.file_page >= extent.end()),
            "mapped twice"
        );
        if extent.pages == 0 {
            return;
        }
        let mut joined = extent;
        if let Some(before) = self.last_before(extent.file_page)
            && before.goes_on_in(&joined)
        {
            self.pull(before.file_page);
            joined = Extent { pages: before.pages.saturating_add(joined.pages), ..before };
        }
        if let Some(behind) = self.next_from(extent.end())
            && joined.goes_on_in(&behind)
        {
            self.pull(behind.file_page);
            joined.pages = joined.pages.saturating_add(behind.pages);
        }
        self.put(joined);
        self.compact();
        self.mapped = self.mapped.saturating_add(extent.pages);
    }

    /// Maps an extent over what is mapped there. Calls `removed` with every piece that was.
    pub(crate) fn replace(&mut self, extent: Extent, removed: &mut dyn FnMut(Extent)) {
        if let Some(old) = self.swap(&extent) {
            return removed(old);
        }
        self.remove(extent.file_page, extent.pages, removed);
        self.insert(extent);
    }

    /// Puts an extent in the place of one with the same pages of the file, where it is not going
    /// to be one with a neighbour (which is known here only if that lies beside it).
    fn swap(&mut self, extent: &Extent) -> Option<Extent> {
        let Store::Many(map) = &mut self.store else { return None };
        let leaf = map.leaf_mut(extent.file_page);
        let at = leaf.binary_search_by_key(&extent.file_page, |entry| entry.0).ok()?;
        let [before, own, behind] = leaf.get_mut(at.checked_sub(1)?..at + 2)? else { return None };
        let alone =
            !before.1.at(before.0).goes_on_in(extent) && !extent.goes_on_in(&behind.1.at(behind.0));
        if own.1.pages != extent.pages || !alone {
            return None;
        }
        Some(core::mem::replace(&mut own.1, Place::of(extent)).at(own.0))
    }

    /// Unmaps `pages` pages from `file_page` on. Calls `removed` with every piece that was
    /// mapped, cut to the range, in file order.
    pub(crate) fn remove(&mut self, file_page: u64, pages: u64, removed: &mut dyn FnMut(Extent)) {
        let end = file_page.saturating_add(pages);
        while let Some(extent) = self.next_from(file_page).filter(|next| next.file_page < end) {
            let piece = extent.part(file_page, end);
            if piece.pages == 0 {
                break;
            }
            if extent.file_page >= file_page {
                self.pull(extent.file_page);
            }
            self.put(extent.part(0, file_page));
            self.put(extent.part(end, u64::MAX));
            self.mapped = self.mapped.saturating_sub(piece.pages);
            removed(piece);
        }
        self.compact();
    }
}
