//! Mapped files at level `full`: pages that a program stores into are exempt from checksums.
//!
//! Before a map to store into is handed out, the log says of which pages it is (EXEMPT), and these are compared with
//! what is kept of them: what is damaged is not mapped. From then on nothing that is kept of them means anything. With
//! the last map of the file, or when the pool is opened after a crash, it is made again of what is there; fence;
//! then a record says that they are whole. So a crash leaves each page exempt or whole.
//!
//! A map that is only read exempts nothing. Its pages stay where they are: so when the file is changed all that its
//! maps show is exempt, too.
//!
//! What a snapshot sees is exempt in no file: it is made whole when the snapshot is made (`file::shown`), and becomes exempt
//! again in another page.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lode_pmem::Medium;

use super::change::Change;
use super::segment::{Overwrites, Rules, plan};
use crate::inode::{File, Node, Pages, Staged, State, pages_range, put_pages};
use crate::integrity::Whose;
use crate::layout::{Body, FEATURE_EXEMPT};
use crate::space::Ended;
use crate::store::{Purpose, Tx};
use crate::{
    Error, ExemptRange, Exemption, Handle, Host, Ino, MapExtent, PAGE_BYTES, Pool, Result, Rule,
};

/// What is stored behind the end of a file that is mapped.
static ZEROS: [u8; 256] = [0; 256];

/// Ranges of a file that a log is told of one by one.
const RANGES_TOLD: usize = 16;
/// Files that it is told of when a pool is opened.
const FILES_TOLD: usize = 100;

/// A page of a file, on the heap.
type PageBytes = Box<[u8; PAGE_BYTES as usize]>;

impl<M: Medium, H: Host> Pool<M, H> {
    /// As [`Pool::map`], for a program that stores nothing there. At level `full` its loads are compared with nothing, but the
    /// pages keep their checksums for others.
    ///
    /// # Errors
    /// As [`Pool::map`].
    pub fn map_to_read(&self, file: &Handle<H>, offset: u64, len: u64) -> Result<Vec<MapExtent>> {
        self.map_bare(file, (offset, len), false)
    }

    /// Makes the file's pages `from .. to`, which are all there, ready to be shown at level `full`: exempt, where `stores`.
    pub(super) fn make_shown(
        &self,
        node: &Node<H>,
        state: &mut State,
        (from, to): (u64, u64),
        stores: bool,
    ) -> Result<()> {
        self.leave_bad_memory(node, state, (from, to))?;
        if stores {
            self.exempt(node, state, (from, to))?;
        }
        // What is behind the end of the file in its last page becomes zero there.
        let last = state.size / PAGE_BYTES;
        let is_cut = !state.size.is_multiple_of(PAGE_BYTES);
        if is_cut && (from..to).contains(&last) && !self.zero_behind(state) {
            self.exempt(node, state, (last, last + 1))?;
            if let Some(page) = page_of(state.file()?, last) {
                self.zero_shown(page * PAGE_BYTES + state.size % PAGE_BYTES);
            }
        }
        let shown = &mut state.maps_mut()?.shown_pages;
        put_pages(shown, pages_range(from, to - from, 0), &mut |_| ());
        Ok(())
    }

    /// Stores zeros from `at` to the end of its page, through the cache: what is shown is written back when it is made whole.
    fn zero_shown(&self, at: u64) {
        let end = (at + 1).next_multiple_of(PAGE_BYTES);
        let mut window = self.store.door.window(end - at, self.store.counters());
        let mut at = at;
        while at < end {
            let zeros = ZEROS.get(..(end - at).min(ZEROS.len() as u64) as usize);
            let zeros = zeros.unwrap_or_default();
            window.store(at, zeros);
            at += zeros.len() as u64;
        }
    }

    /// Moves pages with bad lines of which all is known: who maps them can't have that from their parity.
    fn leave_bad_memory(
        &self,
        node: &Node<H>,
        state: &mut State,
        (from, to): (u64, u64),
    ) -> Result<()> {
        if !self.store.bad.any() {
            return Ok(());
        }
        // (What is moved leaves pages that nobody is to get, after a crash neither.)
        self.store.keep_bad()?;
        for file_page in from..to {
            let file = state.file()?;
            let is_free = !file.is_exempt(file_page)
                && file.shown().is_none_or(|shown| shown.find(file_page).is_none());
            let page = page_of(file, file_page).filter(|_| is_free);
            if page.is_some_and(|page| self.store.bad.touches(page * PAGE_BYTES, PAGE_BYTES)) {
                let run = self.store.take_some(1, Purpose::Replaces)?;
                let given = &mut |ended: Ended, died| self.store.release(ended, died);
                if let Err(error) = self.relocate(node, state, file_page, run, given) {
                    self.store.give(run);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// What maps show of pages `from .. to` becomes exempt, as it is about to be changed in place: but for what a snapshot sees, which
    /// is not. (What that has is to be compared with what is kept of it, whatever becomes of the file.)
    #[cold]
    #[inline(never)]
    pub(super) fn exempt_shown(
        &self,
        node: &Node<H>,
        state: &mut State,
        (mut from, to): (u64, u64),
    ) -> Result<()> {
        let latest = self.store.latest();
        loop {
            let file = state.file()?;
            let Some(range) = file.shown().and_then(|shown| shown.next_from(from)) else { break };
            let first = range.file_page.max(from);
            let Some(extent) = file.extents.next_from(first).filter(|it| it.file_page < to) else {
                break;
            };
            let (first, end) = (extent.file_page.max(first), extent.end().min(range.end()).min(to));
            if first < end && extent.epoch > latest {
                self.exempt(node, state, (first, end))?;
            }
            from = end.max(from + 1);
        }
        Ok(())
    }

    /// Makes pages `from .. to` exempt, as far as they are not: they are right until then, and from then on nobody asks.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Media`] where they are damaged; [`Error::NoSpace`].
    fn exempt(&self, node: &Node<H>, state: &mut State, (from, to): (u64, u64)) -> Result<()> {
        let mut unsaid = Vec::new();
        add_unsaid(state.file()?, (from, to), &mut unsaid)?;
        if unsaid.is_empty() {
            return Ok(());
        }
        if unsaid.len() > usize::from(u16::MAX) / 2 {
            return Err(Error::NoSpace);
        }
        self.compare(state, &unsaid)?;
        self.say_exempts()?;
        let plan = state.log.plan(core::iter::repeat_n(1, unsaid.len()));
        state.log.reserve(&self.store, &plan, Purpose::Grows)?;
        let mut tx = match self.begin_plans(&[plan], 0) {
            Ok(tx) => tx,
            Err(error) => {
                state.log.unreserve(&self.store);
                return Err(error);
            }
        };
        self.say_exempt(&mut tx, state, &mut unsaid);
        tx.commit()?;
        node.slot.set_tail(state.log.tail.last_seal);
        self.show_exempt(state, &unsaid, false)?;
        self.tidy(&node.slot, state);
        Ok(())
    }

    /// Tells a log of pages that are exempt from now on: once, and not of each that is stored to after a snapshot again.
    fn tell_begun(&self, state: &mut State, said: &[Unsaid]) -> Result<()> {
        let ino = state.log.ino;
        let told = &mut state.maps_mut()?.told_pages;
        let ranges = said.iter().map(|said| (said.file_page, said.pages));
        let is_new = |range: &(u64, u64)| !told.covers(range.0, range.0 + range.1);
        self.tell_exempt(ino, Exemption::Begins, ranges.clone().filter(is_new));
        for (file_page, pages) in ranges {
            put_pages(told, pages_range(file_page, pages, 0), &mut |_| ());
        }
        Ok(())
    }

    /// Tells a log what becomes of all that is exempt of a file.
    pub(super) fn tell_all_exempt(&self, state: &State, what: Exemption) {
        let exempt = state.file().ok().and_then(|file| file.exempt.as_deref());
        let ranges = exempt.into_iter().flat_map(|exempt| exempt.pages.joined());
        let ranges = ranges.map(|range| (range.file_page, range.pages));
        self.tell_exempt(state.log.ino, what, ranges);
    }

    fn tell_exempt(&self, ino: Ino, what: Exemption, mut ranges: impl Iterator<Item = (u64, u64)>) {
        let tell = |(page, pages): (u64, u64)| {
            let (offset, bytes) = (page * PAGE_BYTES, pages * PAGE_BYTES);
            self.store.host.exemption(what, ExemptRange { ino, offset, bytes });
        };
        ranges.by_ref().take(RANGES_TOLD).for_each(tell);
        if let Some((first, pages)) = ranges.next() {
            let end = ranges.last().map_or(first + pages, |(last, pages)| last + pages);
            tell((first, end - first));
        }
    }

    /// What the log does not say of staged pages, which are about to be the file's: they have no checksums.
    pub(super) fn unsaid_of(&self, state: &State, chosen: &[Staged]) -> Result<Vec<Unsaid>> {
        let mut unsaid = Vec::new();
        if self.store.geometry.strips.are_kept() {
            for Staged { file_page, run } in chosen {
                let range = (*file_page, file_page + run.pages);
                add_unsaid(state.file()?, range, &mut unsaid)?;
            }
        }
        Ok(unsaid)
    }

    /// Stores the records that say of pages that they are exempt.
    pub(super) fn say_exempt(
        &self,
        tx: &mut Tx<'_, M, H>,
        state: &mut State,
        unsaid: &mut [Unsaid],
    ) {
        for Unsaid { file_page, pages, ordinal } in unsaid {
            let body = match self.store.host.leaves_out(Rule::ExemptSaid) {
                true => Body::Pad,
                false => Body::Exempt { file_page: *file_page, pages: *pages },
            };
            *ordinal = state.log.append(tx, &self.store, &body).ordinal;
        }
    }

    /// Makes memory say the same; these pages are `shown` from now on.
    pub(super) fn show_exempt(
        &self,
        state: &mut State,
        said: &[Unsaid],
        shown: bool,
    ) -> Result<()> {
        for Unsaid { file_page, pages, ordinal } in said {
            state.exempt(*ordinal, (*file_page, *pages));
            if shown {
                let range = pages_range(*file_page, *pages, 0);
                put_pages(&mut state.maps_mut()?.shown_pages, range, &mut |_| ());
            }
        }
        state.file_mut()?.count_exempt(&self.store.exempt);
        self.tell_begun(state, said)
    }

    /// The superblock says that there are, or were, such files. (Asked before the first record that tells of one.)
    fn say_exempts(&self) -> Result<()> {
        let mut superblock = self.store.superblock.lock();
        if superblock.features[2] & FEATURE_EXEMPT != 0 {
            return Ok(());
        }
        self.store.change_superblock(&mut superblock, |superblock| {
            superblock.features[2] |= FEATURE_EXEMPT;
        })
    }

    /// Loads pages of the file: what is damaged is made good, or an error.
    fn compare(&self, state: &State, ranges: &[Unsaid]) -> Result<()> {
        let mut bytes = page_bytes()?;
        for Unsaid { file_page: from, pages, .. } in ranges {
            for file_page in *from..from + pages {
                let Some(page) = page_of(state.file()?, file_page) else { continue };
                let size = state.size.saturating_sub(file_page * PAGE_BYTES);
                let of = Whose { ino: state.log.ino, end: page * PAGE_BYTES + size };
                self.store.load_data(of, page * PAGE_BYTES, bytes.as_mut_slice())?;
            }
        }
        Ok(())
    }

    /// Makes all that is exempt of a file whole, and says so; a log gets to know `why`. Nobody has maps of it that may still
    /// be stored into.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoMemory`], [`Error::Unwritten`]: all of it is exempt still.
    pub(crate) fn make_file_whole(
        &self,
        node: &Node<H>,
        state: &mut State,
        why: Option<Exemption>,
    ) -> Result<()> {
        let Some(exempt) = state.file()?.exempt.as_deref() else { return Ok(()) };
        let first = exempt.pages.next_from(0).map_or(0, |range| range.file_page);
        let end = exempt.pages.around(u64::MAX)[0].map_or(first, |range| range.end());
        let kept = self.store.geometry.strips.are_kept();
        if kept && !self.store.host.leaves_out(Rule::ExemptWhole) {
            let mut bytes = page_bytes()?;
            for range in exempt.pages.iter() {
                for file_page in range.file_page..range.end() {
                    if let Some(page) = page_of(state.file()?, file_page) {
                        self.store.make_whole(page, &mut bytes)?;
                    }
                }
            }
        }
        let plan = state.log.plan([1]);
        state.log.reserve(&self.store, &plan, Purpose::Frees)?;
        let begun = match self.store.door.fence(self.store.counters()) {
            Ok(()) => self.begin_plans(&[plan], 0),
            Err(error) => Err(error.into()),
        };
        let mut tx = match begun {
            Ok(tx) => tx,
            Err(error) => {
                state.log.unreserve(&self.store);
                return Err(error);
            }
        };
        let body = Body::Whole { file_page: first, pages: end - first };
        let ordinal = state.log.append(&mut tx, &self.store, &body).ordinal;
        tx.commit()?;
        node.slot.set_tail(state.log.tail.last_seal);
        if let Some(why) = why {
            self.tell_all_exempt(state, why);
        }
        state.whole(ordinal, (first, end - first));
        self.tidy(&node.slot, state);
        Ok(())
    }

    /// Makes what is exempt whole, as the last map ends. What there is no room for stays exempt until the next opening.
    pub(crate) fn end_exemption(&self, node: &Node<H>, state: &mut State) {
        if state.file().is_ok_and(|file| file.exempt.is_some())
            && self.store.writable().is_ok()
            && self.make_file_whole(node, state, Some(Exemption::Ends)).is_err()
        {
            self.tell_all_exempt(state, Exemption::Stays);
            self.store.leave_exempt();
        }
    }

    /// Makes what a crash has left exempt of these files whole: nobody has them mapped any more. What there is no room for stays so.
    pub(crate) fn make_all_whole(&self, inos: &[Ino]) -> Result<()> {
        for (number, ino) in inos.iter().enumerate() {
            let node = self.node(*ino)?;
            let mut state = node.write(&self.store)?;
            state.file_mut()?.count_exempt(&self.store.exempt);
            let is_told = number < FILES_TOLD;
            let why = is_told.then_some(Exemption::EndsAfterCrash);
            match self.make_file_whole(&node, &mut state, why) {
                Err(Error::NoSpace | Error::NoMemory | Error::Media { .. }) => {
                    if is_told {
                        self.tell_all_exempt(&state, Exemption::StaysAfterCrash);
                    }
                    self.store.leave_exempt()
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Tells a log of what a crash has left exempt of these files, where nothing can be stored: of those that can be loaded.
    pub(crate) fn tell_left_exempt(&self, inos: &[Ino]) {
        for ino in inos.iter().take(FILES_TOLD) {
            let Ok(node) = self.node(*ino) else { continue };
            if let Ok(state) = node.read(&self.store) {
                self.tell_all_exempt(&state, Exemption::StaysAfterCrash);
            }
        }
    }

    /// Reads bytes of a file of which some are exempt.
    #[cold]
    #[inline(never)]
    pub(super) fn read_exempt(&self, state: &State, offset: u64, into: &mut [u8]) -> Result<()> {
        let file = state.file()?;
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let page = at / PAGE_BYTES;
            let next = file.exempt.as_deref().and_then(|exempt| exempt.pages.next_from(page));
            let (is_exempt, end) = match next {
                Some(range) if range.file_page <= page => (true, page + 1),
                Some(range) => (false, range.file_page),
                None => (false, u64::MAX / PAGE_BYTES),
            };
            let len = (end * PAGE_BYTES - at).min(rest.len() as u64);
            let (bytes, more) = rest.split_at_mut(len as usize);
            match page_of(file, page).filter(|_| is_exempt) {
                Some(place) => {
                    self.store.load_exempt(place * PAGE_BYTES + at % PAGE_BYTES, bytes)?
                }
                None => self.read_home(state, file, at, bytes)?,
            }
            (at, rest) = (at + len, more);
        }
        Ok(())
    }
}

impl Change<'_> {
    /// Adds bytes `from .. to` of a file that is mapped, at level `full`, to what is written: in place where maps show them.
    #[cold]
    #[inline(never)]
    pub(super) fn write_shown(
        &mut self,
        file: &File,
        shown: &Pages,
        rules: Rules,
        (from, to): (u64, u64),
    ) -> Result<()> {
        let mut at = from;
        while at < to {
            let page = at / PAGE_BYTES;
            let (end, overwrites) = match shown.next_from(page) {
                Some(range) if range.file_page <= page => (range.end(), Overwrites::InPlace),
                Some(range) => (range.file_page, rules.overwrites),
                None => (u64::MAX / PAGE_BYTES, rules.overwrites),
            };
            let end = (end * PAGE_BYTES).min(to);
            let rules = Rules { overwrites, ..rules };
            plan(&file.extents, rules, at, end, &mut self.segments)?;
            at = end;
        }
        Ok(())
    }
}

/// Pages that are about to be exempt.
pub(super) struct Unsaid {
    file_page: u64,
    pages: u64,
    /// The log page whose record says so.
    ordinal: u32,
}

/// Adds what is not exempt of a file's pages `from .. to`.
fn add_unsaid(file: &File, (from, to): (u64, u64), unsaid: &mut Vec<Unsaid>) -> Result<()> {
    let mut page = from;
    while page < to {
        let exempt = file.exempt.as_deref();
        let next = exempt.and_then(|exempt| exempt.pages.next_from(page));
        let end = next.map_or(to, |next| next.file_page.clamp(page, to));
        if page < end {
            unsaid.try_reserve(1)?;
            unsaid.push(Unsaid { file_page: page, pages: end - page, ordinal: 0 });
        }
        page = next.map_or(to, |next| next.end());
    }
    Ok(())
}

/// Where a page of the file is.
fn page_of(file: &File, file_page: u64) -> Option<u64> {
    file.extents.find(file_page).map(|extent| extent.page + (file_page - extent.file_page))
}

fn page_bytes() -> Result<PageBytes> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(PAGE_BYTES as usize)?;
    bytes.resize(PAGE_BYTES as usize, 0u8);
    bytes.into_boxed_slice().try_into().map_err(|_| Error::NoMemory)
}
