//! Windows by `mprotect`, for debugging where there are no protection keys.
//!
//! What this file guarantees: a page is writable exactly while some window that
//! has stored into it is open, whichever threads the windows belong to.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Counts the windows that hold each page open.
#[derive(Debug)]
pub(crate) struct Protect {
    base: usize,
    page_bytes: u64,
    holders: Mutex<HashMap<u64, u64>>,
}

impl Protect {
    /// For a mapping at `base` of pages of `page_bytes`, which is closed now.
    ///
    /// # Safety
    /// `base` is a mapping of ours for as long as pages are opened and closed in it.
    pub(crate) unsafe fn new(base: *mut u8, page_bytes: u64) -> Self {
        Self { base: base as usize, page_bytes, holders: Mutex::new(HashMap::new()) }
    }

    /// Opens the pages of `at .. at + len` that a window with `held` pages lacks.
    #[cold]
    pub(crate) fn open(&self, held: &mut Vec<u64>, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        for page in at / self.page_bytes..=(at + len - 1) / self.page_bytes {
            // Stores mostly go on where the last one was.
            if held.last() == Some(&page) || held.contains(&page) {
                continue;
            }
            held.push(page);
            let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
            let count = holders.entry(page).or_insert(0);
            *count += 1;
            if *count == 1 {
                let opened = self.set(page, libc::PROT_READ | libc::PROT_WRITE);
                assert!(opened, "mprotect can't open page {page} of a region");
            }
        }
    }

    /// Gives back the pages that a window holds.
    #[cold]
    pub(crate) fn close(&self, held: &mut Vec<u64>) {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        for page in held.drain(..) {
            if let Some(count) = holders.get_mut(&page) {
                *count -= 1;
                if *count == 0 {
                    holders.remove(&page);
                    // A page that can't be closed (the kernel is out of memory for
                    // its bookkeeping) stays open: less guarded, not wrong.
                    self.set(page, libc::PROT_READ);
                }
            }
        }
    }

    fn set(&self, page: u64, rights: libc::c_int) -> bool {
        let start = self.base + (page * self.page_bytes) as usize;
        // SAFETY: the page is one of the mapping, as `new` was promised; only rights change.
        unsafe { libc::mprotect(start as *mut _, self.page_bytes as usize, rights) == 0 }
    }
}
