//! Where a file's pages are: an ordered map from file pages to pool pages.
//!
//! Guarantees: extents never overlap; extents that go on in each other, in the file and in the
//! pool, and agree in class, epoch and origin are one extent; every operation is O(log n) for
//! each extent it touches, and O(1) at the end of the file; no input makes it overflow or panic.
//! An `Extents` takes 56 bytes, with no heap memory for a file of at most one extent; larger files
//! take 40 bytes for each extent plus the slack of the map's nodes.

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

/// The extents of one file.
#[derive(Default)]
pub(crate) struct Extents {
    /// The last one, which an append makes longer.
    last: Option<Extent>,
    /// Those before it. Not there while there are none, but after an overwrite, as the next one may
    /// well part the file again.
    others: Option<Box<Sorted<Place>>>,
    /// Pages in all extents.
    mapped: u64,
}

const _: () = assert!(size_of::<Extents>() == 56 && size_of::<Place>() == 32);

impl Extents {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.last.is_some()) + self.others.as_ref().map_or(0, |map| map.len())
    }

    /// Bytes of memory that they take, besides `Self`.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let of_map = |map: &Sorted<Place>| size_of::<Sorted<Place>>() as u64 + map.memory_bytes();
        self.others.as_deref().map_or(0, of_map)
    }

    /// Pages in all of them.
    pub(crate) fn pages(&self) -> u64 {
        self.mapped
    }

    /// The extent that `file_page` is in, whole.
    #[inline]
    pub(crate) fn find(&self, file_page: u64) -> Option<Extent> {
        self.around(file_page)[0].filter(|extent| extent.end() > file_page)
    }

    /// The first extent that ends behind `file_page`: the one it is in, or the next one.
    #[inline]
    pub(crate) fn next_from(&self, file_page: u64) -> Option<Extent> {
        let [before, behind] = self.around(file_page);
        before.filter(|extent| extent.end() > file_page).or(behind)
    }

    /// The last extent that starts at `file_page` or before it, and the first one that starts
    /// behind it.
    #[inline]
    pub(crate) fn around(&self, file_page: u64) -> [Option<Extent>; 2] {
        match &self.last {
            Some(last) if last.file_page > file_page => self.around_others(file_page),
            last => [*last, None],
        }
    }

    fn around_others(&self, file_page: u64) -> [Option<Extent>; 2] {
        let Some(map) = &self.others else { return [None, self.last] };
        let [before, behind] = map.around(file_page);
        let extent = |entry: Option<(u64, Place)>| entry.map(|(key, place)| place.at(key));
        [extent(before), extent(behind).or(self.last)]
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
        let others = self.others.as_deref().map(Sorted::iter).into_iter().flatten();
        others.map(|(key, place)| place.at(key)).chain(self.last)
    }

    /// Those that end behind a page of the file, in file order.
    pub(crate) fn iter_from(&self, file_page: u64) -> impl Iterator<Item = Extent> + '_ {
        let first = self.next_from(file_page);
        let behind = first.map_or(u64::MAX, |first| first.end());
        let others = self.others.as_deref().map(|others| others.iter_from(behind));
        let last = self.last.filter(|last| last.file_page >= behind);
        let others = others.into_iter().flatten().map(|(key, place)| place.at(key));
        first.into_iter().chain(others).chain(last)
    }

    /// All extents, where those that go on in each other but for their origin are one, of as many
    /// pages as 31 bits can say.
    pub(crate) fn joined(&self) -> impl Iterator<Item = Extent> + '_ {
        let mut extents = self.iter().peekable();
        core::iter::from_fn(move || {
            let mut joined = extents.next()?;
            while let Some(next) = extents.next_if(|next| {
                let pages = joined.pages.saturating_add(next.pages);
                let next = Extent { origin: joined.origin, ..*next };
                joined.goes_on_in(&next) && pages < 1 << 31
            }) {
                joined.pages += next.pages;
            }
            Some(joined)
        })
    }

    /// Whether they map the same pages as others.
    pub(crate) fn are_those_of(&self, others: &Self) -> bool {
        let places = |one: Extent| (one.file_page, one.page, one.pages);
        self.joined().map(places).eq(others.joined().map(places))
    }

    /// Stores an extent, as it is, in the place of one that starts at the same page, if there is one.
    fn put(&mut self, extent: Extent) {
        if extent.pages == 0 {
            return;
        }
        let before = match &mut self.last {
            Some(last) if last.file_page > extent.file_page => extent,
            Some(last) if last.file_page < extent.file_page => core::mem::replace(last, extent),
            last => {
                *last = Some(extent);
                return;
            }
        };
        self.others.get_or_insert_default().insert(before.file_page, Place::of(&before));
    }

    /// Removes the extent that starts at `file_page`.
    fn pull(&mut self, file_page: u64) {
        let is_last = self.last.is_some_and(|last| last.file_page == file_page);
        let Some(map) = &mut self.others else {
            if is_last {
                self.last = None;
            }
            return;
        };
        let key =
            if is_last { map.around(u64::MAX)[0].map(|(key, _)| key) } else { Some(file_page) };
        let removed = key.and_then(|key| Some((key, map.remove(key)?)));
        if is_last {
            self.last = removed.map(|(key, place)| place.at(key));
        }
    }

    /// Calls `each` with pages, epoch and origin of all, the latter to be changed, in file order. (Extents that are one
    /// but for their origin stay apart.)
    pub(crate) fn for_each_origin_mut(&mut self, each: &mut dyn FnMut(u64, &mut u32, &mut u32)) {
        if let Some(others) = &mut self.others {
            others.for_each_mut(&mut |_, place| {
                each(place.pages, &mut place.epoch, &mut place.origin)
            });
        }
        if let Some(last) = &mut self.last {
            each(last.pages, &mut last.epoch, &mut last.origin);
        }
    }

    /// Maps an extent. None of its file pages may be mapped: whoever maps over something
    /// removes that first.
    pub(crate) fn insert(&mut self, extent: Extent) {
        if extent.pages > 0 {
            self.insert_between(extent, self.around(extent.file_page));
            self.give_back();
        }
    }

    /// Gives the list of others back while there are none.
    fn give_back(&mut self) {
        if self.others.as_ref().is_some_and(|others| others.len() == 0) {
            self.others = None;
        }
    }

    /// Maps an extent between two others, of which either may go on in it.
    fn insert_between(&mut self, extent: Extent, [before, behind]: [Option<Extent>; 2]) {
        debug_assert!(before.is_none_or(|before| before.end() <= extent.file_page), "mapped twice");
        debug_assert!(behind.is_none_or(|behind| behind.file_page >= extent.end()), "mapped twice");
        let mut joined = extent;
        if let Some(behind) = behind.filter(|behind| extent.goes_on_in(behind)) {
            self.pull(behind.file_page);
            joined.pages = joined.pages.saturating_add(behind.pages);
        }
        if let Some(before) = before.filter(|before| before.goes_on_in(&extent)) {
            joined = Extent { pages: before.pages.saturating_add(joined.pages), ..before };
        }
        self.put(joined);
        self.mapped = self.mapped.saturating_add(extent.pages);
    }

    /// Maps an extent over what is mapped there. Calls `removed` with every piece that was.
    /// [`Extents::around`] its first page is known already.
    pub(crate) fn replace(
        &mut self,
        extent: Extent,
        [before, behind]: [Option<Extent>; 2],
        removed: &mut dyn FnMut(Extent),
    ) {
        if extent.pages == 0 {
            return;
        }
        let free_before = before.is_none_or(|before| before.end() <= extent.file_page);
        if free_before && behind.is_none_or(|behind| behind.file_page >= extent.end()) {
            return self.insert_between(extent, [before, behind]);
        }
        if before.is_some_and(|before| before.pages == extent.pages)
            && let Some(old) = self.swap(&extent, behind)
        {
            return removed(old);
        }
        match before.filter(|before| before.file_page < extent.file_page) {
            Some(before) if before.end() >= extent.end() => {
                self.cut(&before, &extent, behind);
                removed(before.part(extent.file_page, extent.end()));
            }
            _ => {
                self.take_out(extent.file_page, extent.pages, removed);
                self.insert_between(extent, self.around(extent.file_page));
            }
        }
    }

    /// Puts an extent into another one, behind its first page; `behind` comes after that one.
    fn cut(&mut self, whole: &Extent, extent: &Extent, behind: Option<Extent>) {
        let (left, right) = (whole.part(0, extent.file_page), whole.part(extent.end(), u64::MAX));
        self.put(left);
        self.put(right);
        self.mapped = self.mapped.saturating_sub(extent.pages);
        let behind = if right.pages > 0 { Some(right) } else { behind };
        self.insert_between(*extent, [Some(left), behind]);
    }

    /// Puts an extent in the place of one with the same pages of the file, where it is not going
    /// to be one with a neighbour; `behind` comes after it.
    fn swap(&mut self, extent: &Extent, behind: Option<Extent>) -> Option<Extent> {
        let map = self.others.as_mut()?;
        let alone = |before: Option<Extent>, behind: Option<Extent>| {
            !before.is_some_and(|before| before.goes_on_in(extent))
                && !behind.is_some_and(|behind| extent.goes_on_in(&behind))
        };
        let own = if let Some([before, own, behind]) = map.beside_mut(extent.file_page) {
            let at = |(key, place): &(u64, Place)| Some(place.at(*key));
            if alone(at(before), at(behind)) { &mut own.1 } else { return None }
        } else {
            let before = extent.file_page.checked_sub(1).and_then(|page| map.around(page)[0]);
            let before = before.map(|(key, place)| place.at(key));
            if alone(before, behind) { map.value_mut(extent.file_page)? } else { return None }
        };
        if own.pages != extent.pages {
            return None;
        }
        Some(core::mem::replace(own, Place::of(extent)).at(extent.file_page))
    }

    /// Unmaps `pages` pages from `file_page` on. Calls `removed` with every piece that was
    /// mapped, cut to the range, in file order.
    pub(crate) fn remove(&mut self, file_page: u64, pages: u64, removed: &mut dyn FnMut(Extent)) {
        self.take_out(file_page, pages, removed);
        self.give_back();
    }

    fn take_out(&mut self, file_page: u64, pages: u64, removed: &mut dyn FnMut(Extent)) {
        let end = file_page.saturating_add(pages);
        while let Some(extent) = self.next_from(file_page).filter(|next| next.file_page < end) {
            let piece = extent.part(file_page, end);
            if piece.pages == 0 {
                break;
            }
            // What stays before the piece takes the extent's place.
            if extent.file_page >= file_page {
                self.pull(extent.file_page);
            }
            self.put(extent.part(0, file_page));
            self.put(extent.part(end, u64::MAX));
            self.mapped = self.mapped.saturating_sub(piece.pages);
            removed(piece);
        }
    }
}
