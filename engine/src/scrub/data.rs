//! The data of files, and the values of extended attributes.

use lode_pmem::Medium;

use super::report::{Finding, Outcome, What};
use super::step::{PIECE_BYTES, Scrub};
use crate::index::Extent;
use crate::inode::{Body, State, load_xattr_value};
use crate::layout::LINE;
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
        if page == 0 {
            done += self.scrub_attributes(scrub, &state)?;
        }
        let Body::File(file) = &state.body else { return Ok((done, None)) };
        let mut page = page;
        while let Some(extent) = file.extents.next_from(page) {
            if done >= bytes {
                return Ok((done, Some(page)));
            }
            page = page.max(extent.file_page);
            let pages = (extent.end() - page).min(PIECE_BYTES / PAGE_BYTES);
            self.scrub_piece(scrub, &state, &extent, (page, pages))?;
            done += pages * PAGE_BYTES;
            page += pages;
        }
        Ok((done, None))
    }

    fn scrub_attributes(&self, scrub: &mut Scrub, state: &State) -> Result<u64> {
        let mut done = 0;
        for xattr in state.xattrs.iter().filter(|xattr| !xattr.runs.is_empty()) {
            done += xattr.runs.iter().map(|run| run.pages * PAGE_BYTES).sum::<u64>();
            if let Err(error) = load_xattr_value(&self.store, state, xattr) {
                scrub.note_error(error, What::Attribute, state.log.ino)?;
            }
        }
        Ok(done)
    }

    /// Loads pages of an extent, and then line by line what can't be loaded at once.
    fn scrub_piece(
        &self,
        scrub: &mut Scrub,
        state: &State,
        extent: &Extent,
        (page, pages): (u64, u64),
    ) -> Result<()> {
        let at = (extent.page + (page - extent.file_page)) * PAGE_BYTES;
        let bytes = pages * PAGE_BYTES;
        let piece = scrub.piece.get_mut(..bytes as usize).unwrap_or_default();
        if self.store.door.load(at, piece).is_ok() {
            return Ok(());
        }
        let (what, outcome, ino) = (What::Data, Outcome::Lost, state.log.ino);
        for from in (0..bytes).step_by(LINE as usize) {
            let offset = page * PAGE_BYTES + from;
            // What is behind the size is nothing yet.
            if offset < state.size && self.store.door.load_line(at + from).is_err() {
                let bytes = LINE.min(state.size - offset);
                scrub.note(Finding { what, outcome, ino, at: at + from, offset, bytes })?;
            }
        }
        Ok(())
    }
}
