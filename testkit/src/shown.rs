//! The memory that a program has a file mapped in, on any medium: what it shows, and where it can be stored to.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use lode_engine::{Ino, MapExtent, PAGE_BYTES, Result, Shown};
use parking_lot::Mutex;

/// A page that is shown.
#[derive(Clone, Copy)]
struct Page {
    /// Where it is in the pool.
    at: u64,
    /// The program can store to it.
    is_open: bool,
}

/// A map of a file: its pages by their place in the file.
#[derive(Default)]
pub(crate) struct Memory {
    number: Mutex<u64>,
    pages: Mutex<BTreeMap<u64, Page>>,
}

/// All maps there are: the pool, which is known by where it is, the inode, and the map.
static MAPS: Mutex<Vec<(usize, Ino, Weak<Memory>)>> = Mutex::new(Vec::new());

/// The maps of a file.
pub(crate) fn maps_of(pool: usize, ino: Ino) -> Vec<Arc<Memory>> {
    let maps = MAPS.lock();
    let of_file = maps.iter().filter(|(at, of, _)| (*at, *of) == (pool, ino));
    of_file.filter_map(|(_, _, map)| map.upgrade()).collect()
}

impl Memory {
    /// What shows these pages; nobody can store to them.
    pub(crate) fn new(pool: usize, ino: Ino, extents: &[MapExtent]) -> Arc<Self> {
        let memory = Arc::new(Self::default());
        memory.put(extents);
        let mut maps = MAPS.lock();
        maps.retain(|(_, _, map)| map.strong_count() > 0);
        maps.push((pool, ino, Arc::downgrade(&memory)));
        memory
    }

    pub(crate) fn number(&self) -> u64 {
        *self.number.lock()
    }

    pub(crate) fn set_number(&self, number: u64) {
        *self.number.lock() = number;
    }

    /// Shows these pages, to which nobody can store.
    pub(crate) fn put(&self, extents: &[MapExtent]) {
        let mut pages = self.pages.lock();
        for extent in extents {
            for at in (0..extent.bytes).step_by(PAGE_BYTES as usize) {
                let page = Page { at: extent.pool_offset + at, is_open: false };
                pages.insert(extent.file_offset + at, page);
            }
        }
    }

    /// Whether each page of bytes `offset .. offset + len` is shown, and `fits`: of it, where it is shown, and where the file has
    /// it, whose extents there these are.
    pub(crate) fn shows(
        &self,
        extents: &[MapExtent],
        (offset, len): (u64, u64),
        fits: &dyn Fn(u64, u64) -> bool,
    ) -> bool {
        let pages = self.pages.lock();
        let first = offset - offset % PAGE_BYTES;
        (first..offset + len).step_by(PAGE_BYTES as usize).all(|at| {
            let holds = |extent: &&MapExtent| {
                (extent.file_offset..extent.file_offset + extent.bytes).contains(&at)
            };
            let there = extents.iter().find(holds);
            let there = there.map(|extent| extent.pool_offset + (at - extent.file_offset));
            there.zip(pages.get(&at)).is_some_and(|(there, page)| fits(page.at, there))
        })
    }

    /// Where bytes `offset .. offset + len` are that can be stored to: the file's offset, the pool's and the length of each piece.
    /// `None` if there is a page among them that can't be.
    pub(crate) fn open_pieces(&self, offset: u64, len: u64) -> Option<Vec<(u64, u64, u64)>> {
        let pages = self.pages.lock();
        let (mut pieces, mut at) = (Vec::new(), offset);
        while at < offset + len {
            let start = at - at % PAGE_BYTES;
            let page = pages.get(&start).filter(|page| page.is_open)?;
            let end = (start + PAGE_BYTES).min(offset + len);
            pieces.push((at, page.at + (at - start), end - at));
            at = end;
        }
        Some(pieces)
    }
}

impl Shown for Memory {
    fn protect(&self) -> Result<()> {
        self.pages.lock().values_mut().for_each(|page| page.is_open = false);
        Ok(())
    }

    fn moved(&self, from: &MapExtent, to: u64) -> Result<()> {
        let mut pages = self.pages.lock();
        for at in (0..from.bytes).step_by(PAGE_BYTES as usize) {
            if let Some(page) = pages.get_mut(&(from.file_offset + at))
                && page.at == from.pool_offset + at
            {
                *page = Page { at: to + at, is_open: false };
            }
        }
        Ok(())
    }

    fn allow(&self, offset: u64, len: u64) -> Result<()> {
        let mut pages = self.pages.lock();
        let from = offset - offset % PAGE_BYTES;
        pages.range_mut(from..offset + len).for_each(|(_, page)| page.is_open = true);
        Ok(())
    }
}
