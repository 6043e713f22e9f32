//! Pages of a device of blocks for which the file system has no space, as somebody has taken away again what they had.
//!
//! Why that is not death there: as with what is cut off (`cut`), whoever stores blocks can be told. A store can't end with an error, so
//! the page becomes memory of nobody, and that it did is seen afterwards.
//!
//! What this file guarantees: all that the signal handler calls here is safe in one. A page is noted before memory of nobody is
//! there: who has loaded from it or stored to it, and looks then, finds it noted. It stays so: others may be at it.

use std::ffi::c_int;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::cut::put_nobodys;

const PAGE: u64 = 4096;
const WORD_BITS: u64 = u64::BITS as u64;
/// How often a store is done again as its page has its space by then.
const RETRIES_MAX: u64 = 10_000;
/// The pages of a region that have no space.
pub(super) struct Full {
    /// A bit for each; nothing where to have no space is death.
    pages: OnceLock<Box<[AtomicU64]>>,
    /// The page, and 1, that had its space when it was asked for last.
    had_space: AtomicU64,
    /// How often one had.
    retries: AtomicU64,
}

impl Full {
    pub(super) const fn none() -> Self {
        Self { pages: OnceLock::new(), had_space: AtomicU64::new(0), retries: AtomicU64::new(0) }
    }

    /// From now on stores to pages without space, of `len` bytes that are mapped, are no death.
    pub(super) fn survive(&self, len: u64) {
        let words = len.div_ceil(PAGE * WORD_BITS);
        self.pages.get_or_init(|| (0..words).map(|_| AtomicU64::new(0)).collect());
    }

    fn word(&self, page: u64) -> Option<(&AtomicU64, u64)> {
        let word = self.pages.get()?.get((page / WORD_BITS) as usize)?;
        Some((word, 1 << (page % WORD_BITS)))
    }

    /// The pages that `at .. at + len` touches and that have none.
    pub(super) fn pages(&self, at: u64, len: u64) -> impl Iterator<Item = u64> {
        let is_noted =
            |page: &u64| self.word(*page).is_some_and(|(word, bit)| word.load(SeqCst) & bit != 0);
        let all = self.pages.get().map_or(0, |words| words.len() as u64 * WORD_BITS);
        (at / PAGE..at.saturating_add(len).div_ceil(PAGE).min(all)).filter(is_noted)
    }

    /// The first byte of `at .. at + len` that is in one.
    pub(super) fn first(&self, at: u64, len: u64) -> Option<u64> {
        self.pages(at, len).next().map(|page| at.max(page * PAGE))
    }

    /// In the handler: puts memory of nobody at the page at `offset` of the region at `base`, if the file has no space for it. Says whether
    /// there is memory now; `note` is called before.
    pub(super) fn take(
        &self,
        file: c_int,
        (base, key): (usize, c_int),
        offset: u64,
        note: impl FnOnce(),
    ) -> bool {
        let page = offset / PAGE;
        let Some((word, bit)) = self.word(page).filter(|_| file >= 0) else { return false };
        if word.load(SeqCst) & bit == 0 {
            match allocate(file, page) {
                // (One that has its space, and fails again, fails for another reason: a page that files share, which needs space to be
                // written, or memory that is bad.)
                None => {
                    let is_new = self.had_space.swap(page + 1, SeqCst) != page + 1;
                    return is_new && self.retries.fetch_add(1, SeqCst) < RETRIES_MAX;
                }
                Some(libc::ENOSPC | libc::EDQUOT) => {}
                Some(_) => return false,
            }
        }
        self.give_up((base, key), offset, note)
    }

    /// The same, where nothing else helps: whatever the reason is, the page is no memory any more.
    pub(super) fn give_up(
        &self,
        (base, key): (usize, c_int),
        offset: u64,
        note: impl FnOnce(),
    ) -> bool {
        let page = offset / PAGE;
        let Some((word, bit)) = self.word(page) else { return false };
        if word.fetch_or(bit, SeqCst) & bit == 0 {
            note();
        }
        put_nobodys(base + (page * PAGE) as usize, PAGE as usize, key)
    }
}

/// Has the file system give a page its space; why it does not.
fn allocate(file: c_int, page: u64) -> Option<c_int> {
    let (at, len) = ((page * PAGE) as libc::off_t, PAGE as libc::off_t);
    loop {
        // SAFETY: a descriptor and numbers; no more than a system call.
        if unsafe { libc::fallocate(file, libc::FALLOC_FL_KEEP_SIZE, at, len) } == 0 {
            return None;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            error => return Some(error.unwrap_or(0)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn pages_without_space_are_found_and_no_others() {
        let full = Full::none();
        assert_eq!((full.first(0, u64::MAX), full.word(0).is_some()), (None, false));
        full.survive(100 * PAGE);
        for page in [3, 63, 64] {
            let (word, bit) = full.word(page).unwrap();
            word.fetch_or(bit, SeqCst);
        }
        assert_eq!(full.first(0, 3 * PAGE), None);
        assert_eq!(full.first(0, 3 * PAGE + 1), Some(3 * PAGE));
        assert_eq!(full.first(3 * PAGE + 512, 512), Some(3 * PAGE + 512));
        assert_eq!(full.first(4 * PAGE, 59 * PAGE), None);
        assert_eq!(full.pages(0, 100 * PAGE).collect::<Vec<_>>(), [3, 63, 64]);
        // Nobody's memory is put where nothing is survived.
        assert!(!full.take(-1, (0, -1), 0, || panic!("it is noted")));
    }

    #[test]
    fn a_page_that_fails_though_it_has_its_space_is_tried_once_more_and_then_given_up() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * PAGE).unwrap();
        let (full, fd) = (Full::none(), std::os::fd::AsRawFd::as_raw_fd(&file));
        full.survive(8 * PAGE);
        let take = |page: u64| full.take(fd, (0, -1), page * PAGE, || panic!("it is noted"));
        assert!(take(2) && take(3) && take(2), "each is tried again");
        assert!(!take(2), "and not for ever");
    }
}
