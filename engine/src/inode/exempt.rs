//! Pages of a file that are exempt: programs have them mapped and store into them, and what is kept of them at
//! level `full` is not of what they hold.
//!
//! Guarantees: exempt is what the log says. An EXEMPT record adds pages; a WHOLE record takes them away, and so do
//! a hole and a truncation. While a record says it of a page still, its log page is alive.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::file::File;
use super::state::{Body, State};
use crate::PageClass;
use crate::index::{Extent, Extents};
use crate::log::Log;

/// Ranges of a file's pages: each lies where it is.
pub(crate) type Pages = Extents;

/// Pages of a file, as a range of [`Pages`].
pub(crate) fn range(file_page: u64, pages: u64, origin: u32) -> Extent {
    Extent { file_page, page: file_page, pages, class: PageClass::Small, epoch: 0, origin }
}

/// Puts a range where some of it may be already.
pub(crate) fn put(pages: &mut Pages, range: Extent, ended: &mut dyn FnMut(Extent)) {
    let around = pages.around(range.file_page);
    pages.replace(range, around, ended);
}

/// What is exempt of a file.
#[derive(Default)]
pub(crate) struct Exempt {
    pub(crate) pages: Pages,
    /// Where those of all files are counted.
    count: Option<Arc<AtomicU64>>,
}

impl Exempt {
    fn changed(&self, before: u64) {
        if let Some(count) = &self.count {
            // (In this order it is never below what there is.)
            count.fetch_add(self.pages.pages(), Relaxed);
            count.fetch_sub(before, Relaxed);
        }
    }
}

impl Drop for Exempt {
    fn drop(&mut self) {
        if let Some(count) = &self.count {
            count.fetch_sub(self.pages.pages(), Relaxed);
        }
    }
}

impl File {
    /// How many pages are exempt.
    pub(crate) fn exempt_pages(&self) -> u64 {
        self.exempt.as_deref().map_or(0, |exempt| exempt.pages.pages())
    }

    /// Whether this page is.
    pub(crate) fn is_exempt(&self, file_page: u64) -> bool {
        self.exempt.as_deref().is_some_and(|exempt| exempt.pages.find(file_page).is_some())
    }

    /// Counts what is exempt of it in `count` from now on.
    pub(crate) fn count_exempt(&mut self, count: &Arc<AtomicU64>) {
        if let Some(exempt) = &mut self.exempt
            && exempt.count.is_none()
        {
            exempt.count = Some(Arc::clone(count));
            exempt.changed(0);
        }
    }

    /// The file has given up these pages, by the last record, in page `by` of the log.
    pub(super) fn show_no_more(&mut self, log: &mut Log, by: u32, pages: (u64, u64)) {
        if let Some(maps) = &mut self.maps {
            maps.shown_pages.remove(pages.0, pages.1, &mut |_| ());
            maps.told_pages.remove(pages.0, pages.1, &mut |_| ());
        }
        self.end_exempt(log, by, pages);
    }

    /// Pages are exempt no more.
    fn end_exempt(&mut self, log: &mut Log, by: u32, (file_page, pages): (u64, u64)) {
        let Some(exempt) = self.exempt.as_deref_mut() else { return };
        let before = exempt.pages.pages();
        exempt.pages.remove(file_page, pages, &mut |piece| {
            log.end_live(piece.origin, piece.pages, by);
        });
        exempt.changed(before);
        if exempt.pages.is_empty() {
            self.exempt = None;
        }
    }

    /// The places of what is exempt are those that the records at `places` say, of a new log.
    pub(super) fn move_exempt(&mut self, log: &mut Log, places: &mut dyn Iterator<Item = u32>) {
        let Some(exempt) = self.exempt.as_deref_mut() else { return };
        let mut moved = Pages::default();
        for (piece, origin) in exempt.pages.joined().zip(places) {
            moved.insert(Extent { origin, ..piece });
            log.add_live(origin, piece.pages);
        }
        exempt.pages = moved;
    }
}

impl State {
    /// EXEMPT.
    pub(crate) fn exempt(&mut self, ordinal: u32, (file_page, pages): (u64, u64)) {
        let Body::File(file) = &mut self.body else { return };
        let log = &mut self.log;
        let exempt = file.exempt.get_or_insert_with(|| Box::new(Exempt::default()));
        let before = exempt.pages.pages();
        put(&mut exempt.pages, range(file_page, pages, ordinal), &mut |piece| {
            log.replace_live(piece.origin, piece.pages, ordinal);
        });
        exempt.changed(before);
        log.add_live(ordinal, pages);
    }

    /// WHOLE.
    pub(crate) fn whole(&mut self, ordinal: u32, pages: (u64, u64)) {
        if let Body::File(file) = &mut self.body {
            file.end_exempt(&mut self.log, ordinal, pages);
        }
    }

    /// Records that say what is exempt, at most.
    pub(crate) fn exempt_records(&self) -> usize {
        match &self.body {
            Body::File(File { exempt: Some(exempt), .. }) => exempt.pages.joined().count(),
            _ => 0,
        }
    }
}
