//! Fresh pages for a write: taking, filling, giving back.

use lode_pmem::{Counters, Line, Medium};

use super::segment::{List, Segment};
use crate::index::Extents;
use crate::inode::State;
use crate::integrity::Unstored;
use crate::layout::LINE;
use crate::space::{Near, Run};
use crate::store::{Held, Purpose};
use crate::{Error, Host, PAGE_BYTES, PageClass, Pool, Result, Rule};

/// Fresh pages for part of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreshRun {
    pub(crate) file_page: u64,
    pub(crate) run: Run,
    pub(crate) class: PageClass,
}

pub(crate) type FreshRuns = List<FreshRun, 4>;

/// Where the bytes of a write come from.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// From the caller; the first byte belongs at this offset of the file.
    Bytes { data: &'a [u8], offset: u64 },
    /// All zero.
    Zeros,
}

impl FreshRuns {
    /// No pages yet.
    pub(crate) fn none() -> Self {
        let run = Run { page: 0, pages: 0 };
        Self::new(FreshRun { file_page: 0, run, class: PageClass::Small })
    }
}

/// A file that begins may have so many pages soon.
const ROOM_FIRST: u64 = 32;
/// The most pages that a file is expected to grow by: 1 MiB.
const ROOM_MOST: u64 = 256;

/// Where pages for a file are best taken from `file_page` on: where it grows by them, in one piece with what it
/// has, or with room for as much again. So its log says where it is in few records. (Single pages that are
/// ready lie in one piece anyway.)
#[inline]
pub(super) fn near(extents: &Extents, file_page: u64, pages: u64) -> Near {
    if pages < 2 {
        return Near::ANY;
    }
    match extents.around(file_page) {
        [None, None] if file_page == 0 => Near { behind: 0, room: ROOM_FIRST },
        [Some(last), None] if last.end() == file_page && last.class == PageClass::Small => Near {
            behind: last.page + last.pages,
            room: extents.pages().clamp(ROOM_FIRST, ROOM_MOST),
        },
        _ => Near::ANY,
    }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Takes pages for a segment: aligned chunks where the file's class asks for them and
    /// the chunk has nothing in it yet (or all of it is replaced), else page by page.
    pub(crate) fn take_fresh(
        &self,
        extents: &Extents,
        class: PageClass,
        segment: &Segment,
        purpose: Purpose,
        runs: &mut FreshRuns,
    ) -> Result<()> {
        let mut page = segment.from / PAGE_BYTES;
        let end = segment.to.div_ceil(PAGE_BYTES);
        while page < end {
            let taken = self.take_chunk(extents, class, page, end);
            let run = match taken {
                Some(run) => run,
                None => {
                    let pages = next_chunk(class, page).min(end) - page;
                    let near = near(extents, page, pages);
                    let run = self.store.take_near(pages, purpose, near)?;
                    FreshRun { file_page: page, run, class: PageClass::Small }
                }
            };
            page = run.file_page + run.run.pages;
            if let Err(error) = runs.push(run) {
                self.store.give(run.run);
                return Err(error);
            }
        }
        Ok(())
    }

    /// An aligned chunk around `page`, of the largest class that fits.
    fn take_chunk(
        &self,
        extents: &Extents,
        class: PageClass,
        page: u64,
        end: u64,
    ) -> Option<FreshRun> {
        for class in [PageClass::Giant, PageClass::Huge].into_iter().filter(|&c| c <= class) {
            let pages = class.pages();
            let first = page - page % pages;
            let covered = first == page && page + pages <= end;
            let mapped = extents.next_from(first);
            let empty = mapped.is_none_or(|extent| extent.file_page >= first + pages);
            if !(covered || empty) {
                continue;
            }
            if let Some(run) = self.store.take_chunk(class) {
                return Some(FreshRun { file_page: first, run, class });
            }
        }
        None
    }

    /// Streams what belongs in the fresh pages: new bytes, around them what the file had,
    /// zeros where it had nothing and behind the new size.
    pub(crate) fn fill_fresh(
        &self,
        state: &State,
        fresh: &FreshRun,
        segment: (u64, u64),
        source: &Source<'_>,
        held: &mut Held<'_, H>,
    ) -> Result<()> {
        if self.store.geometry.strips.are_kept() {
            return self.fill_with_strips(state, fresh, segment, source, held);
        }
        let counters = held.counters();
        let start = fresh.file_page * PAGE_BYTES;
        let end = start + fresh.run.pages * PAGE_BYTES;
        let at = |offset: u64| fresh.run.page * PAGE_BYTES + (offset - start);
        let new = (segment.0.max(start), segment.1.min(end));
        let whole = (new.0.next_multiple_of(LINE), new.1 - new.1 % LINE);
        let (head, tail) = (new.0 - new.0 % LINE, new.1.next_multiple_of(LINE));
        self.keep_old(state, (start, head), at(start), held)?;
        // (Whole lines alone: the memory may be bad, and be good again.)
        let mix = |offset: u64| -> Result<()> {
            let mut line = Line::ZERO;
            self.compose(state, offset, new, source, &mut line.0)?;
            self.store.door.window(LINE, counters).copy_nt(at(offset), &line.0);
            Ok(())
        };
        if head < whole.0 {
            mix(head)?;
        }
        if whole.1 < tail && (whole.1 != head || head == whole.0) {
            mix(whole.1)?;
        }
        self.stream(source, whole, at(whole.0.min(end)), counters)?;
        self.keep_old(state, (tail, end), at(tail), held)
    }

    /// What belongs in bytes `start ..` of a file of which `segment` is new: that, around it what the file had, and
    /// zeros where it had nothing and behind the new size.
    fn compose(
        &self,
        state: &State,
        start: u64,
        segment: (u64, u64),
        source: &Source<'_>,
        bytes: &mut [u8],
    ) -> Result<()> {
        let end = start + bytes.len() as u64;
        let (from, to) = (segment.0.clamp(start, end), segment.1.clamp(start, end));
        let [before, from_here, to_here, behind] =
            [state.size.clamp(start, from), from, to, state.size.clamp(to, end)]
                .map(|at| (at - start) as usize);
        let (old, rest) = bytes.split_at_mut(before);
        let (hole, rest) = rest.split_at_mut(from_here - before);
        let (new, rest) = rest.split_at_mut(to_here - from_here);
        let (more, rest) = rest.split_at_mut(behind - to_here);
        self.read_pages(state, start, old)?;
        hole.fill(0);
        match source {
            Source::Bytes { data, offset } if from < to => {
                let data = data.get((from - offset) as usize..(to - offset) as usize);
                let data = self.all_but_tail(data.ok_or(Error::Invalid)?);
                let (head, tail) = new.split_at_mut(data.len());
                head.copy_from_slice(data);
                tail.fill(0);
            }
            _ => new.fill(0),
        }
        self.read_pages(state, to, more)?;
        rest.fill(0);
        Ok(())
    }

    /// All of some bytes, but for a rule.
    fn all_but_tail<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        match self.store.host.leaves_out(Rule::CopyTail) {
            true => bytes.as_chunks::<8>().0.as_flattened(),
            false => bytes,
        }
    }

    /// The same, where checksums are kept: page by page, as these are of whole ones, and those of all pages stored together.
    #[inline(never)]
    fn fill_with_strips(
        &self,
        state: &State,
        fresh: &FreshRun,
        segment: (u64, u64),
        source: &Source<'_>,
        held: &mut Held<'_, H>,
    ) -> Result<()> {
        let counters = held.counters();
        let (mut number, mut unstored) = (0, Unstored::none());
        while number < fresh.run.pages {
            let start = (fresh.file_page + number) * PAGE_BYTES;
            let (page, end) = (fresh.run.page + number, start + PAGE_BYTES);
            let (from, to) = (segment.0.clamp(start, end), segment.1.clamp(start, end));
            number += 1;
            match source {
                Source::Bytes { data, offset } if (from, to) == (start, end) => {
                    let whole = (segment.1 - end) / PAGE_BYTES;
                    let more = whole.min(fresh.run.pages - number);
                    let end = end + more * PAGE_BYTES;
                    let bytes = data.get((start - offset) as usize..(end - offset) as usize);
                    number += more;
                    let is_last = number == fresh.run.pages;
                    let bytes = bytes.ok_or(Error::Invalid)?;
                    self.store.stream_on(&mut unstored, page, bytes, is_last, counters)?;
                }
                _ => {
                    let bytes = held.page();
                    self.compose(state, start, segment, source, bytes)?;
                    let is_last = number == fresh.run.pages;
                    self.store.stream_on(&mut unstored, page, bytes, is_last, counters)?;
                }
            }
        }
        Ok(())
    }

    /// Streams bytes `from .. to` of the source to `at`.
    pub(crate) fn stream(
        &self,
        source: &Source<'_>,
        (from, to): (u64, u64),
        at: u64,
        counters: &Counters,
    ) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let mut window = self.store.door.window(to - from, counters);
        match source {
            Source::Zeros => window.zero_nt(at, to - from),
            Source::Bytes { data, offset } => {
                let bytes = data.get((from - offset) as usize..(to - offset) as usize);
                let bytes = bytes.ok_or(Error::Invalid)?;
                if self.options.relaxed && self.store.host.leaves_out(Rule::RelaxedWriteBack) {
                    window.store(at, bytes);
                } else {
                    window.copy_nt(at, self.all_but_tail(bytes));
                }
            }
        }
        Ok(())
    }

    /// Streams bytes `from .. to` of the source to `at`, which begins a line, and zeros behind them in their last line,
    /// which is nobody's.
    pub(super) fn stream_lines(
        &self,
        source: &Source<'_>,
        (from, to): (u64, u64),
        at: u64,
        counters: &Counters,
    ) -> Result<()> {
        let len = (to - from).next_multiple_of(LINE);
        let mut window = self.store.door.window(len, counters);
        match source {
            Source::Zeros => window.zero_nt(at, len),
            Source::Bytes { data, offset } => {
                let bytes = data.get((from - offset) as usize..(to - offset) as usize);
                window.copy_lines(at, self.all_but_tail(bytes.ok_or(Error::Invalid)?));
            }
        }
        Ok(())
    }

    /// Copies bytes `from .. to` of the file as it is to `at`; zeros behind its size. (All four begin and end lines, and what
    /// is stored does: the memory may be bad, and be good again.)
    fn keep_old(
        &self,
        state: &State,
        (from, to): (u64, u64),
        at: u64,
        held: &mut Held<'_, H>,
    ) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let counters = held.counters();
        let file = state.file()?;
        let (mut from, mut at) = (from, at);
        let below = to.min(state.size);
        let lines = |end: u64| end.next_multiple_of(LINE).min(to);
        let chunk = held.page();
        while from < below {
            let extent = file.extents.next_from(from / PAGE_BYTES);
            let mapped_from = extent.map_or(u64::MAX, |extent| extent.file_page * PAGE_BYTES);
            if mapped_from > from {
                break_to_hole(&mut from, &mut at, lines(below.min(mapped_from)), &mut |at, len| {
                    self.store.door.window(len, counters).zero_nt(at, len);
                });
                continue;
            }
            let old = (below - from).min(PAGE_BYTES - from % PAGE_BYTES);
            let len = lines(from + old) - from;
            let bytes = chunk.get_mut(..len as usize).unwrap_or_default();
            let (there, behind) = bytes.split_at_mut_checked(old as usize).unwrap_or_default();
            self.read_pages(state, from, there)?;
            behind.fill(0);
            self.store.door.window(len, counters).copy_nt(at, bytes);
            from += len;
            at += len;
        }
        if from < to {
            let len = to - from;
            self.store.door.window(len, counters).zero_nt(at, len);
        }
        Ok(())
    }

    /// Gives back fresh pages that nothing speaks of.
    pub(crate) fn give_fresh(&self, runs: &FreshRuns) {
        for fresh in runs.iter() {
            self.store.give(fresh.run);
        }
    }
}

fn break_to_hole(from: &mut u64, at: &mut u64, end: u64, zero: &mut dyn FnMut(u64, u64)) {
    let len = end - *from;
    zero(*at, len);
    *from += len;
    *at += len;
}

/// The page where the next aligned chunk of a file of this class begins.
fn next_chunk(class: PageClass, page: u64) -> u64 {
    match class {
        PageClass::Small => u64::MAX,
        _ => (page / PageClass::Huge.pages() + 1) * PageClass::Huge.pages(),
    }
}
