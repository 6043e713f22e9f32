//! The data of files, and the values of extended attributes.

use lode_pmem::{Medium, crc32c};

use super::kept::has_waiting;
use super::report::{Finding, Outcome, What};
use super::step::{PIECE_BYTES, Scrub};
use crate::index::{Extent, Xattr};
use crate::inode::{Body, State, load_xattr_value};
use crate::integrity::{PageFound, Whose};
use crate::layout::LINE;
use crate::space::Run;
use crate::{Error, Host, Ino, PAGE_BYTES, Pool, Result};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Loads about `bytes` bytes of a file from `page` on, and its attributes' values first. Returns how many it
    /// has loaded, and the page to go on with, if there is more.
    pub(super) fn scrub_data(
        &self,
        scrub: &mut Scrub,
        ino: Ino,
        page: u64,
        bytes: u64,
    ) -> Result<(u64, Option<u64>)> {
        let node = match self.node(ino) {
            Err(Error::Stale) => return Ok((0, None)),
            node => node?,
        };
        // (Where it can't be loaded, that has been told.)
        let Ok(state) = node.read(&self.store) else { return Ok((0, None)) };
        let mut done = 0;
        let waits = self.store.writable().is_err();
        if page == 0 {
            done += self.scrub_attributes(scrub, &state)?;
            if waits {
                done += self.scrub_waiting(scrub, &state)?;
            }
        }
        let file = match &state.body {
            Body::File(file) => file,
            Body::Directory(_) => {
                scrub.note_directory(ino)?;
                return Ok((done, None));
            }
            _ => return Ok((done, None)),
        };
        let mut page = page;
        while let Some(extent) = file.extents.next_from(page) {
            page = page.max(extent.file_page);
            // (What waits is read where it does as long as nothing is stored, and was looked at there.)
            if waits && has_waiting(file, page) {
                page += 1;
                continue;
            }
            let most = (extent.end() - page).min(PIECE_BYTES / PAGE_BYTES);
            let is_next = |skip: &u64| waits && has_waiting(file, page + skip);
            let pages = (1..most).find(is_next).unwrap_or(most);
            self.scrub_piece(scrub, &state, &extent, (page, pages))?;
            done += pages * PAGE_BYTES;
            page += pages;
            // (Not before: attributes alone must not be all of each step.)
            if done >= bytes {
                return Ok((done, Some(page)));
            }
        }
        Ok((done, None))
    }

    fn scrub_attributes(&self, scrub: &mut Scrub, state: &State) -> Result<u64> {
        let mut done = 0;
        for xattr in state.xattrs.iter().filter(|xattr| !xattr.runs.is_empty()) {
            done += self.scrub_value(scrub, state, xattr)?;
        }
        Ok(done)
    }

    /// Looks at a value that has pages of its own, and at what is kept of these; returns how many bytes that were.
    pub(super) fn scrub_value(
        &self,
        scrub: &mut Scrub,
        state: &State,
        xattr: &Xattr,
    ) -> Result<u64> {
        let store = &self.store;
        let (ino, pages) = (state.log.ino, xattr.runs.iter().flat_map(|run| run.page..run.end()));
        let done = pages.clone().count() as u64 * PAGE_BYTES;
        let (mut rest, mut crc) = (u64::from(xattr.value_len), 0);
        let mut found = PageFound::default();
        for page in pages.clone().filter(|_| store.geometry.strips.are_kept()) {
            let piece = scrub.piece.get_mut(..PAGE_BYTES as usize).unwrap_or_default();
            let of = Whose { ino, end: page * PAGE_BYTES + rest };
            let one = store.look_at_page(of, page, piece);
            self.flush_mended(page, one);
            found.add(one);
            crc = crc32c(crc, piece.get(..rest.min(PAGE_BYTES) as usize).unwrap_or_default());
            rest = rest.saturating_sub(PAGE_BYTES);
        }
        let (what, seen) = (What::Attribute, ino | state.view);
        // (Where all of it was right it is not loaded once more.)
        let is_right = rest == 0 && found.lost == 0 && crc == xattr.crc;
        if !is_right && let Err(error) = load_xattr_value(store, state, xattr) {
            scrub.note_error(error, what, seen)?;
            return Ok(done);
        }
        if found.lost != 0 {
            // (The value is right, by its own checksum: so it is what is kept of its strips that is not.)
            let piece = scrub.piece.as_mut_slice();
            let is_kept = pages.clone().all(|page| store.keep_again(page, piece));
            (found.mended, found.left) = (found.mended || is_kept, !is_kept);
        }
        if found.left && state.view == 0 && store.writable().is_ok() {
            // (As of file data: what is in bad memory is moved, and told of then.)
            store.take_met()?;
            found.left &= !pages.clone().any(|page| self.is_page_bad(page));
        }
        let at = xattr.runs.first().map_or(xattr.at, |run| run.page * PAGE_BYTES);
        for (is_so, outcome) in [(found.mended, Outcome::Repaired), (found.left, Outcome::Left)] {
            if is_so {
                scrub.note(Finding { what, outcome, ino: seen, at, offset: 0, bytes: 0 })?;
            }
        }
        Ok(done)
    }

    /// Looks at pages of an extent.
    pub(super) fn scrub_piece(
        &self,
        scrub: &mut Scrub,
        state: &State,
        extent: &Extent,
        (page, pages): (u64, u64),
    ) -> Result<()> {
        if !self.store.geometry.strips.are_kept() {
            return self.scrub_lines(scrub, state, extent, (page, pages));
        }
        let is_lent = |page: u64| {
            let page = extent.page + (page - extent.file_page);
            self.store.lent.touches(Run { page, pages: 1 })
        };
        (page..page + pages).try_for_each(|page| match state.file()?.is_exempt(page) {
            // What a program has as memory is compared with nothing.
            false if is_lent(page) => Ok(()),
            true => {
                scrub.note_exempt(state, page)?;
                self.scrub_lines(scrub, state, extent, (page, 1))
            }
            false => self.scrub_strips(scrub, state, extent, page),
        })
    }

    /// Loads pages of an extent, all of them exempt from checksums or none, and then line by line what can't be loaded at once.
    fn scrub_lines(
        &self,
        scrub: &mut Scrub,
        state: &State,
        extent: &Extent,
        (page, pages): (u64, u64),
    ) -> Result<()> {
        let at = (extent.page + (page - extent.file_page)) * PAGE_BYTES;
        let bytes = pages * PAGE_BYTES;
        let of =
            Whose { ino: state.log.ino, end: at + state.size.saturating_sub(page * PAGE_BYTES) };
        let is_exempt = state.file()?.is_exempt(page);
        let load = |at: u64, into: &mut [u8]| match is_exempt {
            true => self.store.load_exempt(at, into),
            false => self.store.load_data(of, at, into),
        };
        let piece = scrub.piece.get_mut(..bytes as usize).unwrap_or_default();
        if load(at, piece).is_ok() {
            return Ok(());
        }
        for from in (0..bytes).step_by(LINE as usize) {
            let offset = page * PAGE_BYTES + from;
            // What is behind the size is nothing yet.
            let mut line = [0; LINE as usize];
            if offset < state.size && load(at + from, &mut line).is_err() {
                self.note_data(scrub, state, Outcome::Lost, (at + from, offset, LINE))?;
            }
        }
        Ok(())
    }

    /// Compares a page with what is kept of it.
    fn scrub_strips(
        &self,
        scrub: &mut Scrub,
        state: &State,
        extent: &Extent,
        page: u64,
    ) -> Result<()> {
        let place = extent.page + (page - extent.file_page);
        let piece = scrub.piece.get_mut(..PAGE_BYTES as usize).unwrap_or_default();
        let (at, offset) = (place * PAGE_BYTES, page * PAGE_BYTES);
        let of = Whose { ino: state.log.ino, end: at + state.size.saturating_sub(offset) };
        let found = self.store.look_at_page(of, place, piece);
        let strip = self.store.geometry.strips.bytes();
        for skip in (0..PAGE_BYTES).step_by(strip as usize) {
            if found.lost & 1 << (skip / strip) != 0 {
                self.note_data(scrub, state, Outcome::Lost, (at + skip, offset + skip, strip))?;
            }
        }
        let mut found = found;
        // (A page that only snapshots see stays where it is.)
        let moves = state.view == 0 && self.store.writable().is_ok();
        if found.left && found.lost == 0 && moves {
            // What is in bad memory is moved, and told of, when all of the inode has been looked at.
            self.store.take_met()?;
            found.left &= !self.store.bad.touches(at, PAGE_BYTES);
        }
        self.flush_mended(place, found);
        for (is_so, outcome) in [(found.mended, Outcome::Repaired), (found.left, Outcome::Left)] {
            if is_so {
                self.note_data(scrub, state, outcome, (at, offset, PAGE_BYTES))?;
            }
        }
        Ok(())
    }

    /// Starts the write-back of what has been made right of a page, which was stored through the cache.
    fn flush_mended(&self, page: u64, found: PageFound) {
        if found.mended {
            let mut window = self.store.door.window(0, self.store.counters());
            window.flush(page * PAGE_BYTES, PAGE_BYTES);
            self.store.flush_kept(&mut window, page * PAGE_BYTES, PAGE_BYTES);
        }
    }

    /// Notes bytes of a file, as far as they are in front of its end.
    pub(super) fn note_data(
        &self,
        scrub: &mut Scrub,
        state: &State,
        outcome: Outcome,
        (at, offset, bytes): (u64, u64, u64),
    ) -> Result<()> {
        let (what, ino) = (What::Data, state.log.ino | state.view);
        match bytes.min(state.size.saturating_sub(offset)) {
            0 => Ok(()),
            bytes => scrub.note(Finding { what, outcome, ino, at, offset, bytes }),
        }
    }
}
