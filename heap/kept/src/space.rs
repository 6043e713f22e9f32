//! Which pages and slots are in use: in main memory, as the heap's own words say it.
//!
//! Free pages are runs that do not go from one chunk into the next. Nothing here changes the heap: what is found is taken when
//! the change that takes it is done.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::layout::{BIT_WORDS, CLASSES, PAGE, Shape, slot_at, slot_bytes, slots};

/// Bits of the used slots of a page.
pub(crate) type Bits = [u64; BIT_WORDS];

/// What begins at a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    Slots { class: u8, bits: Bits },
    Pages(u64),
}

/// A block, and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) page: u64,
    /// Its class, bits of the page, and number, if it is a slot.
    pub(crate) slot: Option<(u8, Bits, u64)>,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

pub(crate) struct Space {
    shape: Shape,
    chunks: u64,
    used: BTreeMap<u64, Piece>,
    /// By first page.
    free: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    /// Pages with slots both used and free, or the one that has only free ones.
    open: [BTreeSet<u64>; CLASSES],
}

impl Space {
    pub(crate) fn new(shape: Shape) -> Self {
        let open = Default::default();
        let (used, free) = (BTreeMap::new(), BTreeMap::new());
        Self { shape, chunks: 0, used, free, by_length: BTreeSet::new(), open }
    }

    pub(crate) fn chunks(&self) -> u64 {
        self.chunks
    }

    pub(crate) fn set_chunks(&mut self, chunks: u64) {
        self.chunks = chunks;
    }

    /// Chunks that so many pages from `page` on are in.
    pub(crate) fn chunks_of(&self, page: u64, pages: u64) -> u64 {
        let each = self.shape.chunk_pages();
        (page % each + pages).div_ceil(each)
    }

    /// The most pages of a block that leaves tables alone.
    pub(crate) fn most_in_chunk(&self) -> u64 {
        self.shape.chunk_pages() - 1
    }

    /// The shortest run of so many free pages.
    pub(crate) fn find_pages(&self, pages: u64) -> Option<u64> {
        self.by_length.range((pages, 0)..).next().map(|(_, page)| *page)
    }

    /// Chunks that are free, behind each other, with room for so many pages; where they begin, and the pages that they have in
    /// all. `is_seam` says where none may follow.
    pub(crate) fn find_chunks(
        &self,
        pages: u64,
        is_seam: &dyn Fn(u64) -> bool,
    ) -> Option<(u64, u64)> {
        let mut from = 0;
        for chunk in 0..self.chunks {
            let (first, end) = (self.shape.first_page(chunk), self.shape.end_page(chunk));
            if self.free.get(&first) != Some(&(end - first)) {
                from = chunk + 1;
                continue;
            }
            if is_seam(chunk * self.shape.chunk_bytes()) {
                from = chunk;
            }
            let page = self.shape.first_page(from);
            if end - page >= pages {
                return Some((page, end - page));
            }
        }
        None
    }

    /// A page with free slots of a class, its bits, and the first free one.
    pub(crate) fn find_slot(&self, class: u8) -> Option<(u64, Bits, u64)> {
        let page = *self.open.get(usize::from(class))?.first()?;
        let Some(Piece::Slots { bits, .. }) = self.used.get(&page) else { return None };
        let slot = first_free(bits)?;
        Some((page, *bits, slot))
    }

    /// Whether another page than this one has free slots of a class.
    pub(crate) fn has_other(&self, class: u8, page: u64) -> bool {
        let open = self.open.get(usize::from(class));
        open.is_some_and(|open| open.iter().take(2).any(|other| *other != page))
    }

    /// The block that the byte at `at` is in.
    pub(crate) fn find(&self, at: u64) -> Option<Found> {
        let (page, piece) = self.used.range(..=at / PAGE).next_back()?;
        let page = *page;
        match *piece {
            Piece::Pages(pages) => {
                let (start, bytes) = (page * PAGE, pages * PAGE);
                let is_inside = at < start + bytes;
                is_inside.then_some(Found { page, slot: None, at: start, bytes })
            }
            Piece::Slots { class, bits } => {
                let bytes = slot_bytes(class);
                let slot = at.checked_sub(slot_at(page, class, 0))? / bytes;
                let is_used = slot < slots(class) && is_set(&bits, slot);
                let start = slot_at(page, class, slot);
                is_used.then_some(Found { page, slot: Some((class, bits, slot)), at: start, bytes })
            }
        }
    }

    /// All blocks, by their offsets: offset and bytes.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.used.iter().flat_map(blocks_of)
    }

    /// The first block that begins behind `at`.
    pub(crate) fn block_behind(&self, at: u64) -> Option<(u64, u64)> {
        let from = self.used.range(..=at / PAGE).next_back().map_or(0, |(page, _)| *page);
        let pieces = self.used.range(from..);
        pieces.flat_map(blocks_of).find(|(block, _)| *block > at)
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.values().sum::<u64>() * PAGE
    }

    /// From now on this begins at `page`, in free pages or in what was there.
    pub(crate) fn put(&mut self, page: u64, piece: Piece) {
        match piece {
            Piece::Slots { class, bits } => {
                let has_free = first_free(&bits).is_some_and(|slot| slot < slots(class));
                if let Some(open) = self.open.get_mut(usize::from(class)) {
                    if has_free {
                        open.insert(page)
                    } else {
                        open.remove(&page)
                    };
                }
            }
            Piece::Pages(_) => {}
        }
        self.used.insert(page, piece);
    }

    /// Takes free pages.
    pub(crate) fn take(&mut self, page: u64, pages: u64) {
        let Some((&start, &length)) = self.free.range(..=page).next_back() else { return };
        self.remove_run(start, length);
        self.add_run(start, page - start);
        self.add_run(page + pages, (start + length).saturating_sub(page + pages));
    }

    /// Takes chunks that are free, all of them.
    pub(crate) fn take_chunks(&mut self, page: u64, pages: u64) {
        for (first, length) in self.runs_of(page, pages) {
            self.remove_run(first, length);
        }
    }

    /// What begins at `page` has ended, and its pages are free.
    pub(crate) fn end(&mut self, page: u64) {
        match self.used.remove(&page) {
            Some(Piece::Slots { class, .. }) => {
                if let Some(open) = self.open.get_mut(usize::from(class)) {
                    open.remove(&page);
                }
                self.give(page, 1);
            }
            Some(Piece::Pages(pages)) => self.give(page, pages),
            None => {}
        }
    }

    /// What begins at `page` has ended, and its pages are not free yet.
    pub(crate) fn forget(&mut self, page: u64) {
        self.used.remove(&page);
    }

    /// These pages are free, but for the tables among them.
    pub(crate) fn give(&mut self, page: u64, pages: u64) {
        if self.chunks_of(page, pages) > 1 {
            for (first, length) in self.runs_of(page, pages) {
                self.add_run(first, length);
            }
            return;
        }
        let (mut start, mut length) = (page, pages);
        let each = self.shape.chunk_pages();
        let in_chunk = |other: u64| other / each == page / each;
        let before = self.free.range(..page).next_back().map(|(at, len)| (*at, *len));
        if let Some((at, len)) = before.filter(|(at, len)| at + len == page && in_chunk(*at)) {
            self.remove_run(at, len);
            (start, length) = (at, len + length);
        }
        let end = page + pages;
        if let Some(&len) = self.free.get(&end).filter(|_| in_chunk(end)) {
            self.remove_run(end, len);
            length += len;
        }
        self.add_run(start, length);
    }

    /// The pages of whole chunks that may be blocks': first and number of each chunk's.
    fn runs_of(&self, page: u64, pages: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (shape, chunk) = (self.shape, page / self.shape.chunk_pages());
        (chunk..chunk + self.chunks_of(page, pages)).map(move |chunk| {
            let first = shape.first_page(chunk);
            (first, shape.end_page(chunk) - first)
        })
    }

    fn add_run(&mut self, page: u64, pages: u64) {
        if pages > 0 {
            self.free.insert(page, pages);
            self.by_length.insert((pages, page));
        }
    }

    fn remove_run(&mut self, page: u64, pages: u64) {
        self.free.remove(&page);
        self.by_length.remove(&(pages, page));
    }
}

/// The blocks of what begins at a page: offset and bytes.
fn blocks_of((page, piece): (&u64, &Piece)) -> impl Iterator<Item = (u64, u64)> + use<> {
    let (class, bits, whole) = match *piece {
        Piece::Slots { class, bits } => (class, bits, None),
        Piece::Pages(pages) => (0, Bits::default(), Some((page * PAGE, pages * PAGE))),
    };
    let used = (0..slots(class)).filter(move |slot| is_set(&bits, *slot));
    let page = *page;
    let each = used.map(move |slot| (slot_at(page, class, slot), slot_bytes(class)));
    whole.into_iter().chain(each)
}

/// The first bit that is not set.
fn first_free(bits: &Bits) -> Option<u64> {
    let word = bits.iter().position(|word| *word != u64::MAX)?;
    let bit = bits.get(word).map_or(0, |word| word.trailing_ones());
    Some(word as u64 * 64 + u64::from(bit))
}

pub(crate) fn is_set(bits: &Bits, slot: u64) -> bool {
    bits.get((slot / 64) as usize).is_some_and(|word| word >> (slot % 64) & 1 == 1)
}

/// The same bits but for that of a slot; the number of the word that it is in, and what that is then.
pub(crate) fn turned(bits: &Bits, slot: u64) -> (Bits, u64, u64) {
    let (mut turned, number) = (*bits, slot / 64);
    let mut value = 0;
    if let Some(word) = turned.get_mut(number as usize) {
        *word ^= 1 << (slot % 64);
        value = *word;
    }
    (turned, number, value)
}
