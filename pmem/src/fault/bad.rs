//! Lines of a region that can't be loaded, whatever the memory gives for them.
//!
//! Why there are such: a store to a page that has failed is a SIGBUS, like a load. There is no error that it could
//! end with, but it need not end: the page is mapped anew, and the store done again. What else is in that page is
//! not to be believed then, until it is stored anew: so its lines are noted here as bad. (Where the memory
//! itself refuses the new mapping, too, the process dies, as it would have.)
//!
//! What this file guarantees: all that the signal handler calls here is safe in one (atomics, and system
//! calls). A page is noted before it is mapped anew: who has loaded what is there, and looks then, finds it noted.
//! A whole line that was stored is good again. Nothing is to be looked at while no page was ever noted.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, SeqCst},
};

use super::places;
use crate::LINE_BYTES;

const LINE: u64 = LINE_BYTES as u64;
const PAGE: u64 = 4096;
/// Pages that can be noted, a power of two; a store to one more that fails kills, as all did.
const PAGES_MAX: usize = 1024;
/// How often a page is mapped anew, at most: who stores to what stays bad does not try for ever.
const TRIES_MAX: u32 = 16;
/// How many stores to a page may fail that is there again by then.
const FAULTS_MAX: u32 = 10_000;

/// A page with bad lines; 0 where there is none, else its number and 1.
struct Page {
    number: AtomicU64,
    /// A bit for each line.
    lines: AtomicU64,
    /// How often it was mapped anew, and how often stores to it have failed.
    tries: AtomicU32,
    faults: AtomicU32,
    /// Somebody maps it anew just now.
    busy: AtomicBool,
}

/// How pages of a region are mapped anew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remapping {
    pub(crate) base: usize,
    pub(crate) file: c_int,
    /// `MAP_SHARED`, or what goes with `MAP_SYNC`.
    pub(crate) kind: c_int,
    /// The protection key, -1 for none.
    pub(crate) key: c_int,
}

/// The bad lines of a region.
pub(crate) struct BadLines {
    /// Pages that were ever noted.
    count: AtomicUsize,
    pages: [Page; PAGES_MAX],
    remapping: Remapping,
}

impl std::fmt::Debug for BadLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BadLines").field("pages", &self.count).finish_non_exhaustive()
    }
}

impl BadLines {
    /// None yet, of the region mapped as `remapping` says. It is known to the handler from now on until the
    /// region is unmapped; only then it may be dropped.
    pub(crate) fn attach(remapping: Remapping) -> Arc<Self> {
        let page = || Page {
            number: AtomicU64::new(0),
            lines: AtomicU64::new(0),
            tries: AtomicU32::new(0),
            faults: AtomicU32::new(0),
            busy: AtomicBool::new(false),
        };
        let pages = std::array::from_fn(|_| page());
        let bad = Arc::new(Self { count: AtomicUsize::new(0), pages, remapping });
        places::attach(remapping.base, Arc::as_ptr(&bad).cast_mut());
        bad
    }

    /// Whether there may be any.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Acquire) != 0
    }

    /// Where the entry of a page is, or could be, one behind the other.
    fn candidates(&self, page: u64) -> impl Iterator<Item = &Page> {
        let start = (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % PAGES_MAX;
        let (before, after) = self.pages.split_at(start);
        after.iter().chain(before)
    }

    fn find(&self, page: u64) -> Option<&Page> {
        let mut candidates = self.candidates(page);
        let found = candidates.find(|entry| [0, page + 1].contains(&entry.number.load(SeqCst)))?;
        (found.number.load(SeqCst) == page + 1).then_some(found)
    }

    /// The entry of a page, which is made if there is none; `None` where there is no room.
    fn add(&self, page: u64) -> Option<&Page> {
        self.candidates(page).find(|entry| {
            match entry.number.compare_exchange(0, page + 1, SeqCst, SeqCst) {
                Ok(_) => true,
                Err(number) => number == page + 1,
            }
        })
    }

    /// From now on these lines of a page are bad. Says whether there was room to note it.
    fn note(&self, page: u64, lines: u64) -> bool {
        let Some(entry) = self.add(page) else { return false };
        entry.lines.fetch_or(lines, SeqCst);
        self.count.fetch_add(1, SeqCst);
        true
    }

    /// From now on the lines that `at .. at + len` touches are bad.
    #[cfg(feature = "inject")]
    pub(crate) fn note_range(&self, at: u64, len: u64) -> bool {
        pieces(at, len).all(|(page, lines)| self.note(page, lines))
    }

    /// The first bad byte of `at .. at + len`.
    #[cold]
    #[inline(never)]
    pub(crate) fn first(&self, at: u64, len: u64) -> Option<u64> {
        pieces(at, len).find_map(|(page, lines)| {
            let bad = self.find(page)?.lines.load(SeqCst) & lines;
            let line = page * PAGE + u64::from(bad.trailing_zeros()) * LINE;
            (bad != 0).then_some(line.max(at))
        })
    }

    /// The whole lines `at .. at + len` have been stored.
    #[cold]
    #[inline(never)]
    pub(crate) fn stored(&self, at: u64, len: u64) {
        for (page, lines) in pieces(at, len) {
            if let Some(entry) = self.find(page) {
                entry.lines.fetch_and(!lines, SeqCst);
            }
        }
    }

    /// In the handler: maps the page at `offset` anew, all of which is bad then. Says whether it did.
    fn renew(&self, offset: u64) -> bool {
        let page = offset / PAGE;
        let Some(entry) = self.add(page) else { return false };
        while entry.busy.swap(true, SeqCst) {
            std::hint::spin_loop();
        }
        // (Several may have met it at once: the first has done all that there is to do, and what was stored since is good.)
        let met = entry.faults.fetch_add(1, SeqCst) < FAULTS_MAX && entry.tries.load(SeqCst) > 0;
        let renewed = met && self.is_there(page)
            || entry.tries.fetch_add(1, SeqCst) < TRIES_MAX
                && self.note(page, u64::MAX)
                && self.map_anew(page);
        entry.busy.store(false, SeqCst);
        renewed
    }

    /// Whether the kernel finds something at a page.
    fn is_there(&self, page: u64) -> bool {
        let mut byte = 0_u8;
        let from = (self.remapping.base + (page * PAGE) as usize) as *mut libc::c_void;
        let (here, there) = (
            libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 },
            libc::iovec { iov_base: from, iov_len: 1 },
        );
        // SAFETY: the kernel copies one byte of this process to the stack, or says that there is none.
        unsafe {
            libc::process_vm_readv(libc::getpid(), &raw const here, 1, &raw const there, 1, 0) == 1
        }
    }

    /// Maps a page anew. Says whether it could.
    fn map_anew(&self, page: u64) -> bool {
        let to = (self.remapping.base + (page * PAGE) as usize) as *mut libc::c_void;
        let (len, rights) = (PAGE as usize, libc::PROT_READ | libc::PROT_WRITE);
        let Remapping { file, kind, key, .. } = self.remapping;
        // SAFETY: a page of the region takes the place of itself: what it shows is the same part of the same file,
        // with the same rights and key. The calls are no more than system calls.
        unsafe {
            let flags = kind | libc::MAP_FIXED;
            let put = libc::mmap(to, len, rights, flags, file, (page * PAGE) as libc::off_t);
            put == to
                && (key < 0 || libc::syscall(libc::SYS_pkey_mprotect, to, len, rights, key) == 0)
                && libc::madvise(to, len, libc::MADV_DONTFORK) == 0
        }
    }
}

/// The lines that `at .. at + len` touches: numbers of pages, with a bit for each line.
fn pieces(at: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let (first, end) = (at / LINE, (at + len).div_ceil(LINE));
    let a_page = PAGE / LINE;
    (first / a_page..end.div_ceil(a_page)).map(move |page| {
        let from = first.max(page * a_page) - page * a_page;
        let to = end.min((page + 1) * a_page) - page * a_page;
        let below = |bits: u64| if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        (page, below(to) & !below(from))
    })
}

/// In the handler: what a store to `address` needs to be done again. Says whether it has it now.
pub(super) fn renew(address: usize) -> bool {
    let Some((offset, bad)) = places::find(address) else { return false };
    // SAFETY: where a region's lines are noted is dropped after the place was forgotten, and a thread that stores
    // to a region keeps it.
    let Some(bad) = (unsafe { bad.as_ref() }) else { return false };
    bad.renew(offset as u64)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    fn none() -> Arc<BadLines> {
        let remapping = Remapping { base: 0, file: -1, kind: 0, key: -1 };
        BadLines::attach(remapping)
    }

    #[test]
    fn lines_are_bad_until_they_are_stored() {
        let bad = none();
        assert!(!bad.any());
        for (at, len) in [(64, 1), (4096 + 4000, 200), (20 * 4096, 2 * 4096)] {
            assert!(pieces(at, len).all(|(page, lines)| bad.note(page, lines)));
        }
        assert!(bad.any());
        assert_eq!(
            (bad.first(0, 64), bad.first(0, 65), bad.first(100, 8)),
            (None, Some(64), Some(100))
        );
        assert_eq!(bad.first(128, 8000), Some(4096 + 3968));
        bad.stored(4096 + 3968, 64);
        assert_eq!(bad.first(128, 8000), None);
        assert_eq!(bad.first(128, 8100), Some(8128));
        bad.stored(20 * 4096, 4096);
        assert_eq!(bad.first(19 * 4096, 5 * 4096), Some(21 * 4096));
    }

    #[test]
    fn there_is_room_for_so_many_pages_and_no_more() {
        let bad = none();
        assert!((0..PAGES_MAX as u64).all(|page| bad.note(7 * page, 1)));
        assert!(!bad.note(1, 1));
        assert_eq!((bad.first(7 * 4096, 1), bad.first(4096, 4096)), (Some(7 * 4096), None));
    }
}
