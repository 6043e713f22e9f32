//! Windows by `mprotect`, for debugging where there are no protection keys.
//!
//! What this file guarantees: a page is writable exactly while some window that
//! has stored into it is open, whichever threads the windows belong to.

use std::collections::HashMap;
use std::io;
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
    ///
    /// # Errors
    /// The system can't. What it could is closed with the window.
    #[cold]
    pub(crate) fn open(&self, held: &mut Vec<u64>, at: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let lacked = held.len();
        let wanted = at / self.page_bytes..=(at + len - 1) / self.page_bytes;
        // Stores mostly go on where the last one was.
        if held.last().is_some_and(|last| wanted.start() == last && wanted.end() == last) {
            return Ok(());
        }
        for page in wanted {
            if !held.get(..lacked).is_some_and(|held| held.contains(&page)) {
                held.push(page);
            }
        }
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let new = held.iter().skip(lacked).copied().filter(|page| {
            let count = holders.entry(*page).or_insert(0);
            *count += 1;
            *count == 1
        });
        let mut opened = Ok(());
        for_each_run(new, |page, pages| {
            if opened.is_ok() && !self.set(page, pages, libc::PROT_READ | libc::PROT_WRITE) {
                opened = Err(io::Error::last_os_error());
            }
        });
        opened
    }

    /// Gives back the pages that a window holds.
    #[cold]
    pub(crate) fn close(&self, held: &mut Vec<u64>) {
        held.sort_unstable();
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let last = held.drain(..).filter(|page| match holders.get_mut(page) {
            Some(1) => holders.remove(page).is_some(),
            Some(count) => {
                *count -= 1;
                false
            }
            None => false,
        });
        // Pages that can't be closed (the kernel is out of memory for
        // its bookkeeping) stay open: less guarded, not wrong.
        for_each_run(last, |page, pages| {
            self.set(page, pages, libc::PROT_READ);
        });
    }

    fn set(&self, page: u64, pages: u64, rights: libc::c_int) -> bool {
        let start = self.base + (page * self.page_bytes) as usize;
        let bytes = (pages * self.page_bytes) as usize;
        // SAFETY: the pages are of the mapping, as `new` was promised; only rights change.
        unsafe { libc::mprotect(start as *mut _, bytes, rights) == 0 }
    }
}

/// Calls `each` with the first and the number of pages that follow each other: the system is asked once for all of them.
fn for_each_run(pages: impl Iterator<Item = u64>, mut each: impl FnMut(u64, u64)) {
    let mut run: Option<(u64, u64)> = None;
    for page in pages {
        run = match run {
            Some((first, count)) if first + count == page => Some((first, count + 1)),
            Some((first, count)) => {
                each(first, count);
                Some((page, 1))
            }
            None => Some((page, 1)),
        };
    }
    if let Some((first, count)) = run {
        each(first, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_follow_each_other_are_one_run() {
        let mut runs = Vec::new();
        for_each_run([3, 4, 5, 9, 7, 8].into_iter(), |first, count| runs.push((first, count)));
        assert_eq!(runs, [(3, 3), (9, 1), (7, 2)]);
    }
}
