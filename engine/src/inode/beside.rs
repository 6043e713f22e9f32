//! What writers of one file know who go side by side: where its pages are.
//!
//! Guarantees: what is found in a version of the inode is so for as long as the inode has that version. It is set by who alone has the
//! right to change the inode, and found by who has no right at all: such a one looks at the version before, and once whoever changes the
//! inode would wait for it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use super::node::{Exclusive, Node};
use super::state::State;
use crate::index::Extents;
use crate::store::Room;
use crate::{Host, PAGE_BYTES};

/// Pages whose places are known at a time, at least and at most.
const PLACES: (u64, u64) = (1 << 6, 1 << 20);
/// Bits of a page of the pool in a place; above is which page of the file it is of those that share the place, one more than that.
const PAGE_BITS: u32 = 40;
/// Pages in a row that are looked for together.
const AROUND: u64 = 64;
/// No version.
const NEVER: u64 = u64::MAX;
/// No mode.
const NOT_PLAIN: u32 = u32::MAX;

/// How many places there are, in a byte: the power of two, and one more than that; 0 is none.
#[derive(Clone, Copy, Default)]
pub(super) struct Size(u8);

impl Size {
    /// For a file of so many bytes, where they may take so much memory.
    fn of(bytes: u64, most: u64) -> Self {
        let most = (most / size_of::<AtomicU64>() as u64).clamp(PLACES.0, PLACES.1);
        // (Not the next power of two: that may be more than may be taken.)
        Self((bytes / PAGE_BYTES).clamp(PLACES.0, most).ilog2() as u8 + 1)
    }

    fn places(self) -> usize {
        self.0.checked_sub(1).map_or(0, |power| 1 << power)
    }

    /// What they take, with all else.
    pub(super) fn memory_bytes(self) -> u64 {
        match self.places() {
            0 => 0,
            places => (size_of::<Beside>() + places * size_of::<AtomicU64>()) as u64,
        }
    }
}

/// One file's. Its first line is loaded by all writers, and stored to once in some milliseconds.
#[repr(align(128))]
pub(crate) struct Beside {
    /// The version of the inode that all this is of.
    version: AtomicU64,
    /// When its times were set last, by the coarse clock.
    since_ns: AtomicI64,
    /// The latest snapshot then: pages that are noted are younger.
    latest: AtomicU32,
    /// The inode's nonce.
    nonce: AtomicU64,
    /// The file's size.
    bytes: AtomicU64,
    /// Its mode where that tells all of its rights, else [`NOT_PLAIN`].
    mode: AtomicU32,
    /// A power of two of them; 0 is none.
    places: Vec<AtomicU64>,
}

/// What stays in a version.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// When the file's times were set last, by the coarse clock.
    pub(crate) since_ns: i64,
    /// The latest snapshot: pages that are written to are younger.
    pub(crate) latest: u32,
    /// The inode's nonce.
    pub(crate) nonce: u64,
    /// The file's size.
    pub(crate) bytes: u64,
    /// Its mode, where it has no extended attribute that could say more of its rights.
    pub(crate) plain_mode: Option<u32>,
}

impl Beside {
    /// With so many places, if there is memory for them.
    fn new(size: Size) -> Option<Self> {
        let mut places = Vec::new();
        places.try_reserve_exact(size.places()).ok()?;
        places.resize_with(size.places(), || AtomicU64::new(0));
        Some(Self {
            version: AtomicU64::new(NEVER),
            since_ns: AtomicI64::new(0),
            latest: AtomicU32::new(0),
            nonce: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            mode: AtomicU32::new(NOT_PLAIN),
            places,
        })
    }

    /// Whether this is of that version.
    #[inline]
    pub(crate) fn is_of(&self, version: u64) -> bool {
        self.version.load(Acquire) == version
    }

    /// What is so in the version that it is of.
    #[inline]
    pub(crate) fn terms(&self) -> Terms {
        let mode = self.mode.load(Acquire);
        Terms {
            plain_mode: (mode != NOT_PLAIN).then_some(mode),
            since_ns: self.since_ns.load(Acquire),
            latest: self.latest.load(Acquire),
            nonce: self.nonce.load(Acquire),
            bytes: self.bytes.load(Acquire),
        }
    }

    /// The place of a page of the file, and what a word of it says besides.
    #[inline]
    fn place(&self, file_page: u64) -> Option<(&AtomicU64, u64)> {
        let count = self.places.len() as u64;
        let place = self.places.get((file_page & (count - 1)) as usize)?;
        let mark = (file_page >> count.trailing_zeros()) + 1;
        (mark >> (u64::BITS - PAGE_BITS) == 0).then_some((place, mark))
    }

    /// The page of the pool that a page of the file is in, if that is known.
    #[inline]
    pub(crate) fn find(&self, file_page: u64) -> Option<u64> {
        let (place, mark) = self.place(file_page)?;
        let word = place.load(Acquire);
        (word >> PAGE_BITS == mark).then_some(word & ((1 << PAGE_BITS) - 1))
    }

    /// Notes the places of a page and of those around it that no snapshot sees, by who has the right to look at the inode. Where that has a
    /// later version than this is of, who finds them finds it, too; and they are forgotten before this is of another one. (One at a time the right to look would be asked for as often, which all writers do at one word.)
    pub(crate) fn note(&self, file_page: u64, extents: &Extents) {
        let latest = self.latest.load(Acquire);
        let begin = file_page - file_page % AROUND;
        let end = begin + AROUND;
        let all = extents.iter_from(begin).take_while(|extent| extent.file_page < end);
        for extent in all.filter(|extent| extent.epoch > latest) {
            for file_page in extent.file_page.max(begin)..extent.end().min(end) {
                let page = extent.page + (file_page - extent.file_page);
                let place = self.place(file_page).filter(|_| page >> PAGE_BITS == 0);
                if let Some((place, mark)) = place {
                    place.store(mark << PAGE_BITS | page, Release);
                }
            }
        }
    }

    /// Has nothing noted that was noted in another version but that of before this change, which gave some pages other places; nor what an earlier
    /// snapshot was the latest for.
    fn forget(&self, before: u64, latest: u32, changed: core::ops::Range<u64>) {
        let is_kept = self.is_of(before) && self.latest.load(Acquire) == latest;
        if !is_kept {
            self.places.iter().for_each(|place| place.store(0, Release));
            return;
        }
        for (place, _) in changed.filter_map(|file_page| self.place(file_page)) {
            place.store(0, Release);
        }
    }
}

impl<H: Host> Node<H> {
    /// What is known to writers who go side by side, if any ever did.
    #[inline]
    pub(crate) fn beside(&self) -> Option<&Beside> {
        self.beside.get()
    }

    /// The same, made if it was not yet and there is memory for it.
    pub(crate) fn make_beside(&self, state: &mut State, room: &Room) -> Option<&Beside> {
        if self.beside().is_none() {
            let most = if room.limit().is_some() { room.slack() } else { u64::MAX };
            let size = Size::of(state.size, most);
            let beside = Beside::new(size)?;
            state.file_mut().ok()?.beside_size = size;
            state.put_in(room);
            // (Who makes it has the inode alone.)
            let _ = self.beside.set(Box::new(beside));
        }
        self.beside()
    }
}

impl<H: Host> Exclusive<'_, H> {
    /// With the version that the inode gets with the end of this right its writers may go side by side, until somebody has the right again: on
    /// these terms. What was known of places stays known if it was of the version before, but for those of pages that were `changed`.
    pub(crate) fn go_beside(
        &mut self,
        beside: &Beside,
        terms: Terms,
        changed: core::ops::Range<u64>,
    ) {
        let now = self.version();
        beside.forget(now - 1, terms.latest, changed);
        beside.since_ns.store(terms.since_ns, Release);
        beside.latest.store(terms.latest, Release);
        beside.nonce.store(terms.nonce, Release);
        beside.bytes.store(terms.bytes, Release);
        beside.mode.store(terms.plain_mode.unwrap_or(NOT_PLAIN), Release);
        if let Ok(file) = self.file_mut() {
            file.side_by_side = true;
            // (Whoever has the right next looks for them.)
            *file.sector_lines.get_mut() = true;
        }
        beside.version.store(now + 1, Release);
    }

    /// If they did in the version before, they go on so: nothing has changed since.
    pub(crate) fn stay_beside(&mut self, node: &Node<H>) {
        if let Some(beside) = node.beside().filter(|it| it.is_of(self.version() - 1)) {
            self.go_beside(beside, beside.terms(), 0..0);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::PageClass;
    use crate::index::Extent;

    /// Pages of the file with their places, and the epoch that they were born in.
    fn extents(all: &[(u64, u64, u64, u32)]) -> Extents {
        let mut extents = Extents::default();
        for (file_page, page, pages, epoch) in all.iter().copied() {
            extents.insert(Extent {
                file_page,
                page,
                pages,
                class: PageClass::Small,
                epoch,
                origin: 0,
            });
        }
        extents
    }

    fn known(beside: &Beside, pages: core::ops::Range<u64>) -> Vec<(u64, u64)> {
        pages.filter_map(|page| Some((page, beside.find(page)?))).collect()
    }

    #[test]
    fn a_place_is_one_pages_alone() {
        let beside = Beside::new(Size::of(64 * PAGE_BYTES, u64::MAX)).unwrap();
        let all = extents(&[(4, 900, 2, 1), (5 + 64, 7, 1, 1), (6 + (64 << 24), 8, 1, 1)]);
        beside.note(5, &all);
        assert_eq!(known(&beside, 0..128), [(4, 900), (5, 901)]);
        beside.note(5 + 64, &all);
        assert_eq!(known(&beside, 0..128), [(4, 900), (5 + 64, 7)]);
        // (No word has room for it.)
        beside.note(6 + (64 << 24), &all);
        assert_eq!((beside.find(6 + (64 << 24)), beside.find(6)), (None, None));
    }

    #[test]
    fn what_is_noted_around_is_of_one_row_and_no_snapshot_sees_it() {
        let beside = Beside::new(Size::of(1024 * PAGE_BYTES, u64::MAX)).unwrap();
        let all = [(60, 5000, 8, 3), (70, 9, 1, 2), (71, 30, 1, 3), (90, 600, 400, 3)];
        beside.latest.store(2, Release);
        beside.note(70, &extents(&all));
        let mut expected: Vec<_> = (64..68).map(|page| (page, 4940 + page)).collect();
        expected.push((71, 30));
        expected.extend((90..128).map(|page| (page, 510 + page)));
        assert_eq!(known(&beside, 0..1024), expected);
    }

    #[test]
    fn after_another_version_or_snapshot_nothing_is_known() {
        let beside = Beside::new(Size::of(0, u64::MAX)).unwrap();
        let all = extents(&[(0, 100, 8, 1)]);
        beside.version.store(4, Release);
        beside.note(1, &all);
        beside.forget(4, 0, 2..4);
        let pages: Vec<_> = known(&beside, 0..64).into_iter().map(|(page, _)| page).collect();
        assert_eq!(pages, [0, 1, 4, 5, 6, 7]);
        for (before, latest) in [(6, 0), (4, 1)] {
            beside.note(1, &all);
            beside.forget(before, latest, 2..3);
            assert_eq!(known(&beside, 0..64), []);
        }
    }

    #[test]
    fn memory_is_as_little_as_it_may_take() {
        let places = |pages: u64, most| Size::of(pages * PAGE_BYTES, most).places();
        assert_eq!([0, 1000, 1 << 30].map(|pages| places(pages, u64::MAX)), [64, 512, 1 << 20]);
        assert_eq!((places(1 << 30, 5000), places(1 << 30, 4096)), (512, 512));
        assert_eq!((Size::default().places(), Size::default().memory_bytes()), (0, 0));
    }
}
