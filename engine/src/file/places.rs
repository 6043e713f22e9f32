//! Where a file that is open has its pages, for those who read it all the time.
//!
//! Who reads by a handle takes no lock and stores to nothing that another reader loads, where the bytes are of one part of the file that was
//! found before, in one place or in two: it looks whether the inode has the version that the place was noted in, loads them,
//! and looks whether it has it still (and, where a file is written by sectors, whether nobody has stored these meanwhile). Else they
//! are read with the inode locked, and the place is noted.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, fence};

use lode_pmem::Medium;
use once_cell::race::OnceBox;

use super::read::RELATIME_NS;
use crate::inode::{File, State};
use crate::{AccessTimes, Handle, Host, Op, PAGE_BYTES, PageClass, Pool, Result};

/// Bytes whose place is noted in one: as large as pages of large files are.
const CHUNK: u64 = CHUNK_PAGES * PAGE_BYTES;
const CHUNK_PAGES: u64 = PageClass::Huge.pages();
/// Places that are noted of a file, at least and at most (of 128 GiB): chunks of larger ones take turns.
const PLACES: (u64, u64) = (1 << 6, 1 << 16);
/// Bits of a word of a place: the page, whether it is written by sectors, whether the chunk's end is elsewhere, and which chunk of those
/// that take turns.
const PAGE_BITS: u32 = 40;
const TURN_AT: u32 = PAGE_BITS + 2;
const BY_SECTORS: u64 = 1 << PAGE_BITS;
const IN_TWO: u64 = 1 << (PAGE_BITS + 1);
/// Bits of the word of a chunk's end: its page, how many pages of the chunk are in front of it, and which chunk it is of.
const END_TURN_AT: u32 = PAGE_BITS + CHUNK_PAGES.trailing_zeros();
/// The page of a chunk that is in more than two extents, or not all in any. (No region is so large.)
const NOWHERE: u64 = BY_SECTORS - 1;

/// What was noted in a version of the inode.
#[derive(Default)]
struct Noted {
    /// One more than that version (which is even: nobody was changing it); else 0.
    version: AtomicU64,
    word: AtomicU64,
    /// Where the chunk's end is, if that is elsewhere: it says itself of which chunk it is, as the word does.
    end: AtomicU64,
    /// The epoch that the oldest of the chunk's pages was born in, and behind it which chunk that is.
    born: AtomicU64,
}

impl Noted {
    /// What was noted in this version, if anything was.
    #[inline]
    fn get(&self, version: u64) -> Option<u64> {
        // (That of an inode which somebody changes just now is odd, and nobody notes that.)
        (self.version.load(Acquire) == version + 1).then(|| self.word.load(Acquire))
    }

    /// Notes it, by who has the right to look at the inode, which has this version for so long: all that others note meanwhile
    /// is as right.
    fn set(&self, version: u64, word: u64, end: u64, born: u64) {
        let is_other = self.version.load(Acquire) != version + 1;
        if is_other {
            self.version.store(0, Relaxed);
            fence(Release);
        }
        self.born.store(born, Release);
        self.end.store(end, Release);
        self.word.store(word, Release);
        if is_other {
            self.version.store(version + 1, Release);
        }
    }
}

/// What is known of a file by who has it open.
#[derive(Default)]
pub(crate) struct Places {
    /// Where the file begins, with `end` bytes that are in one place from there on: a file in one piece is found in this alone, without
    /// the table, whose lines of the cache are not those of the read before.
    first: Noted,
    /// A power of two of them, once one is known.
    table: OnceBox<Vec<Noted>>,
    /// Until when the access time need not move.
    fresh_until: Fresh,
    /// That the file takes sectors: the inode's nonce, and behind it the file's size.
    takes_sectors: Noted,
}

/// Where sectors go, as of a version of the inode.
pub(super) struct SectorPlace {
    /// That version.
    pub(super) version: u64,
    /// The inode's nonce.
    pub(super) nonce: u64,
    /// Offset in the pool.
    pub(super) at: u64,
    /// Bytes from there on that are in one place.
    pub(super) len: u64,
    /// The epoch that the oldest page around was born in.
    pub(super) born: u32,
}

/// A time in nanoseconds, as of a version of the inode.
#[derive(Default)]
struct Fresh(Noted);

impl Fresh {
    #[inline]
    fn holds(&self, version: u64, now_ns: impl FnOnce() -> i64) -> bool {
        self.0.get(version).is_some_and(|until| now_ns() < until as i64)
    }
}

/// Where bytes are.
struct Place {
    /// Offset in the pool.
    at: u64,
    /// Bytes from there on that are in one place.
    len: u64,
    by_sectors: bool,
}

/// Where the byte `skip` bytes into a chunk of this turn is, by what was noted.
#[inline]
fn place_of(word: u64, end: impl FnOnce() -> u64, turn: u64, skip: u64) -> Option<Place> {
    let page = word % BY_SECTORS;
    if word >> TURN_AT != turn || page == NOWHERE {
        return None;
    }
    let by_sectors = word & BY_SECTORS != 0;
    let whole = Place { at: page * PAGE_BYTES + skip, len: CHUNK - skip, by_sectors };
    if word & IN_TWO == 0 {
        return Some(whole);
    }
    // (Another chunk may have been noted in its place meanwhile: one with an end elsewhere, or without, which is 0.)
    let end = end();
    let begin = (end >> PAGE_BITS) % CHUNK_PAGES * PAGE_BYTES;
    if end >> END_TURN_AT != turn || begin == 0 {
        return None;
    }
    Some(match skip.checked_sub(begin) {
        None => Place { len: begin - skip, ..whole },
        Some(skip) => Place { at: end % BY_SECTORS * PAGE_BYTES + skip, ..whole },
    })
}

/// When the oldest page of a chunk of this turn was born, by what was noted.
#[inline]
fn born_of(word: u64, turn: u64) -> Option<u32> {
    (word >> u32::BITS == turn).then_some(word as u32)
}

impl Places {
    /// Where the byte at `offset` was in this version, if that is known.
    #[inline]
    fn get(&self, version: u64, offset: u64) -> Option<Place> {
        if let Some(word) = self.first.get(version) {
            // (It may have become longer, or shorter, meanwhile: as far as it is said to go, it goes.)
            if let len @ 1.. = self.first.end.load(Acquire).saturating_sub(offset) {
                let at = word % BY_SECTORS * PAGE_BYTES + offset;
                return Some(Place { at, len, by_sectors: word & BY_SECTORS != 0 });
            }
        }
        self.get_with(version, offset).map(|(place, ..)| place)
    }

    /// Makes the place that the file begins in longer by the chunks that go on there, as far as they are known in this version: by
    /// each of them once. What several threads do so says the same, if not as much of it.
    fn lengthen(&self, version: u64, by_sectors: u64, table: &[Noted]) {
        let page_of = |chunk: u64| {
            // (In their first turn: who asks for more chunks than the table has is told nothing.)
            let word = table.get(chunk as usize)?.get(version)?;
            let page = word % BY_SECTORS;
            (word >> TURN_AT == 0 && word & IN_TWO == 0 && page != NOWHERE).then_some(page)
        };
        let before = match self.first.get(version) {
            Some(word) => Some((word % BY_SECTORS, self.first.end.load(Acquire) / CHUNK)),
            None => page_of(0).map(|page| (page, 0)),
        };
        let Some((page, known)) = before else { return };
        let mut chunks = known;
        while page_of(chunks) == Some(page + chunks * CHUNK_PAGES) {
            chunks += 1;
        }
        if chunks > known {
            self.first.set(version, by_sectors | page, chunks * CHUNK, 0);
        }
    }

    /// The same, with what is noted of the chunk, and its turn.
    #[inline]
    fn get_with(&self, version: u64, offset: u64) -> Option<(Place, &Noted, u64)> {
        let table = self.table.get()?;
        let (chunk, places) = (offset / CHUNK, table.len() as u64);
        let noted = table.get((chunk & (places - 1)) as usize)?;
        let (word, turn) = (noted.get(version)?, chunk >> places.trailing_zeros());
        let place = place_of(word, || noted.end.load(Acquire), turn, offset % CHUNK)?;
        Some((place, noted, turn))
    }

    /// Where the sector at `offset` of a file of `size` bytes at least was in this version, if the file took sectors then, and that is known.
    #[inline]
    pub(super) fn for_sectors(&self, version: u64, offset: u64, size: u64) -> Option<SectorPlace> {
        let nonce = self.takes_sectors.get(version)?;
        if self.takes_sectors.end.load(Acquire) < size {
            return None;
        }
        let (Place { at, len, .. }, noted, turn) = self.get_with(version, offset)?;
        // (Another chunk may have been noted in its place meanwhile.)
        let born = born_of(noted.born.load(Acquire), turn)?;
        Some(SectorPlace { version, nonce, at, len, born })
    }

    /// Room for places of a file of so many bytes; `None` where there is no memory.
    fn table(&self, size: u64) -> Option<&Vec<Noted>> {
        if let Some(table) = self.table.get() {
            return Some(table);
        }
        let count = (size / CHUNK).clamp(PLACES.0, PLACES.1).next_power_of_two() as usize;
        let mut table = Vec::new();
        table.try_reserve_exact(count).ok()?;
        table.resize_with(count, Noted::default);
        // (Who was slower finds that of another one.)
        let _ = self.table.set(Box::new(table));
        self.table.get()
    }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// As [`Pool::read`].
    ///
    /// # Errors
    /// The same.
    #[inline]
    pub fn read_held(&self, file: &Handle<H>, offset: u64, into: &mut [u8]) -> Result<usize> {
        let is_fresh = |version| match self.options.atime {
            AccessTimes::Never => true,
            AccessTimes::Always => false,
            AccessTimes::Relative => {
                file.places.fresh_until.holds(version, || self.store.host.coarse_now_ns())
            }
        };
        if self.read_known(file, offset, into, is_fresh) {
            return Ok(into.len());
        }
        let len = into.len() as u64;
        self.read_node(&file.node, offset, into, |state| {
            self.touch(state);
            if state.size >= CHUNK {
                self.note_access(file, state);
                self.note_places(file, state, offset, len);
            }
        })
    }

    /// As [`Pool::read_quietly`].
    ///
    /// # Errors
    /// The same.
    #[inline]
    pub fn read_held_quietly(
        &self,
        file: &Handle<H>,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize> {
        if self.read_known(file, offset, into, |_| true) {
            return Ok(into.len());
        }
        self.read_noting(file, offset, into)
    }

    /// Reads bytes whose place is not known, and notes it. (Not in line: what it keeps in registers, who knows the place would save on
    /// the stack.)
    #[inline(never)]
    fn read_noting(&self, file: &Handle<H>, offset: u64, into: &mut [u8]) -> Result<usize> {
        let len = into.len() as u64;
        self.read_node(&file.node, offset, into, |state| {
            if state.size >= CHUNK {
                self.note_places(file, state, offset, len);
            }
        })
    }

    /// Reads bytes of one chunk where their place is known, and `may` allows it in this version; says whether it did.
    #[inline]
    fn read_known(
        &self,
        file: &Handle<H>,
        offset: u64,
        into: &mut [u8],
        may: impl FnOnce(u64) -> bool,
    ) -> bool {
        let (store, node, len) = (&self.store, &file.node, into.len() as u64);
        let version = node.version();
        let Some(place) = file.places.get(version, offset).filter(|_| !store.bad.any()) else {
            return false;
        };
        // (Before anything else is done: who reads all the time waits for memory, and this is where the next wait can begin while the one
        // before goes on.)
        let lane = store.lane();
        let follows = self.counts.reads_on(lane, place.at, len);
        store.prefetch_data(place.at, len, follows);
        // (One version for all: no write is seen in part.)
        if len == 0 || len > place.len || !may(version) {
            return false;
        }
        // (While that comes, not behind the load, where the next read's would be asked for later by so much.)
        self.counts.add_here(lane, Op::Read);
        // (What can't be loaded is met again by who tells of it.)
        let is_loaded = match place.by_sectors {
            true => self.load_sectors(node.slot.ino(), offset, place.at, into),
            false => store.load_quietly(place.at, into),
        };
        fence(Acquire);
        let is_read = is_loaded && node.version() == version;
        if !is_read {
            // (Who reads it after all counts it.)
            self.counts.take_back(store.lane(), Op::Read);
        }
        is_read
    }

    /// Loads bytes that are written by sectors; says whether none of those is torn.
    #[inline]
    fn load_sectors(&self, ino: crate::Ino, offset: u64, place: u64, into: &mut [u8]) -> bool {
        if offset % PAGE_BYTES + into.len() as u64 > PAGE_BYTES {
            return self.load_pages(ino, offset, place, into);
        }
        let load = || self.store.door.load(place, into).is_ok();
        self.store.sectors.stripes.is_one_whole(ino, offset, load)
    }

    /// The same of more than a page's, as they were at one time. (Not in line: what is kept in registers for it, the other way would put on
    /// the stack.)
    #[inline(never)]
    fn load_pages(&self, ino: crate::Ino, offset: u64, place: u64, into: &mut [u8]) -> bool {
        let all = (offset, offset + into.len() as u64);
        let load = || self.store.door.load(place, into).is_ok();
        self.store.sectors.stripes.are_whole(ino, all, load)
    }

    /// Notes until when reads need not move the access time, by who has just seen to it.
    fn note_access(&self, file: &Handle<H>, state: &State) {
        let version = file.node.version();
        let atime_ns = state.atime_ns.load(Relaxed);
        let is_fresh = atime_ns > state.mtime_ns && atime_ns > state.ctime_ns;
        let until = match is_fresh {
            true => atime_ns.saturating_add(RELATIME_NS),
            false if self.store.writable().is_err() => i64::MAX,
            false => return,
        };
        if state.view == 0 && version.is_multiple_of(2) {
            file.places.fresh_until.0.set(version, until as u64, 0, 0);
        }
    }

    /// Notes that a file takes sectors, and where these bytes are, by who has the right to look at the inode, and has said that lines may
    /// tell of it.
    pub(super) fn note_sectors(&self, handle: &Handle<H>, state: &State, offset: u64, len: u64) {
        let version = handle.node.version();
        if state.size >= CHUNK && version.is_multiple_of(2) {
            self.note_places(handle, state, offset, len);
            handle.places.takes_sectors.set(version, state.log.nonce, state.size, 0);
        }
    }

    /// Notes where bytes are, by who has the right to look at the inode.
    fn note_places(&self, handle: &Handle<H>, state: &State, offset: u64, len: u64) {
        let Ok(file) = state.file() else { return };
        let version = handle.node.version();
        // (Else something is to be asked besides the pages.)
        let is_home = file.journal.pending().is_empty() || self.store.writable().is_ok();
        let is_plain = is_home && file.exempt.is_none();
        if !is_plain || state.view != 0 || len == 0 || !version.is_multiple_of(2) {
            return;
        }
        let last = offset.saturating_add(len - 1).min(state.size.saturating_sub(1));
        let Some(table) = handle.places.table(state.size) else { return };
        let places = table.len() as u64;
        let by_sectors = if file.is_read_by_sectors() { BY_SECTORS } else { 0 };
        for chunk in offset / CHUNK..=last / CHUNK {
            let turn = chunk >> places.trailing_zeros();
            let Some(place) = table.get((chunk & (places - 1)) as usize) else { return };
            // (It has been looked at: that it is nowhere in one, too.)
            if place.get(version).is_some_and(|word| word >> TURN_AT == turn) {
                continue;
            }
            if turn >> (u64::BITS - TURN_AT) == 0 {
                let is_all = (chunk + 1) * CHUNK <= state.size;
                let (page, end, born) =
                    if is_all { two_of(file, chunk, turn) } else { (NOWHERE, 0, 0) };
                let born = turn << u32::BITS | u64::from(born);
                place.set(version, turn << TURN_AT | by_sectors | page, end, born);
            }
        }
        handle.places.lengthen(version, by_sectors, table);
    }
}

/// Where a chunk is, as it is noted, and its end, if it is in two extents: so each is where the tables of a group of pages lie between; and the
/// epoch that the older of them was born in.
fn two_of(file: &File, chunk: u64, turn: u64) -> (u64, u64, u32) {
    let (from, end) = (chunk * CHUNK_PAGES, (chunk + 1) * CHUNK_PAGES);
    // The place of a page, the page of the file that its extent ends in front of, and when that was born.
    let found = |page: u64| {
        let extent = file.extents.find(page)?;
        let place = extent.page + page - extent.file_page;
        (place < NOWHERE).then(|| (place, extent.end(), extent.epoch))
    };
    match found(from) {
        Some((page, until, born)) if until >= end => (page, 0, born),
        Some((page, until, born)) if turn >> (u64::BITS - END_TURN_AT) == 0 => match found(until) {
            Some((rest, to, other)) if to >= end => {
                let end = turn << END_TURN_AT | (until - from) << PAGE_BITS | rest;
                (IN_TWO | page, end, born.min(other))
            }
            _ => (NOWHERE, 0, 0),
        },
        _ => (NOWHERE, 0, 0),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_another_chunks_or_none_is_no_place() {
        let place = |end: u64, turn: u64, skip: u64| {
            let place = place_of(turn << TURN_AT | IN_TWO | 700, || end, turn, skip);
            place.map(|place| (place.at, place.len))
        };
        for turn in [0, 3] {
            let end = turn << END_TURN_AT | 5 << PAGE_BITS | 900;
            let begin = 5 * PAGE_BYTES;
            assert_eq!(place(end, turn, 100), Some((700 * PAGE_BYTES + 100, begin - 100)));
            assert_eq!(place(end, turn, begin), Some((900 * PAGE_BYTES, CHUNK - begin)));
            assert_eq!(place(end, turn + 1, begin), None);
            // What is noted of a chunk in one place.
            assert_eq!(place(0, turn, begin), None);
        }
    }

    #[test]
    fn a_file_in_one_piece_is_found_as_far_as_its_chunks_are_known() {
        const VERSION: u64 = 4;
        let places = Places::default();
        let table = places.table(4 * CHUNK).unwrap();
        let note = |chunk: u64, page: u64, version: u64| {
            table[chunk as usize].set(version, BY_SECTORS | page, 0, 0);
            places.lengthen(version, BY_SECTORS, table);
        };
        let first = |version: u64| {
            let word = places.first.get(version)?;
            Some((word % BY_SECTORS, places.first.end.load(Acquire) / CHUNK))
        };
        note(1, 700 + CHUNK_PAGES, VERSION);
        note(2, 700 + 2 * CHUNK_PAGES, VERSION);
        assert_eq!(first(VERSION), None, "nobody knows where it begins");
        note(0, 700, VERSION);
        assert_eq!(first(VERSION), Some((700, 3)));
        // What lies elsewhere is found by its own.
        note(3, 9000, VERSION);
        assert_eq!(first(VERSION), Some((700, 3)));
        let place = |offset: u64| {
            let place = places.get(VERSION, offset)?;
            Some((place.at, place.len, place.by_sectors))
        };
        assert_eq!(place(CHUNK + 5), Some((700 * PAGE_BYTES + CHUNK + 5, 2 * CHUNK - 5, true)));
        assert_eq!(place(3 * CHUNK + 5), Some((9000 * PAGE_BYTES + 5, CHUNK - 5, true)));
        assert_eq!(place(4 * CHUNK), None);
        // In another version all is known anew.
        assert!(first(VERSION + 2).is_none() && places.get(VERSION + 2, 0).is_none());
        note(0, 100, VERSION + 2);
        assert_eq!(
            first(VERSION + 2),
            Some((100, 1)),
            "its second chunk was known in another version"
        );
    }

    #[test]
    fn when_another_chunk_was_born_says_nothing_of_this_one() {
        let word = 3 << u32::BITS | 7;
        assert_eq!((born_of(word, 3), born_of(word, 0), born_of(7, 0)), (Some(7), None, Some(7)));
    }
}
