//! Bytes of a region that can't be loaded, whatever the memory gives for them.
//!
//! Why there are such: a store to a page that has failed is a SIGBUS, like a load. There is no error that it could
//! end with, but it need not end: the page is mapped anew, and the store done again. What else is in that page is
//! not to be believed then, until it is stored anew: so its bytes are noted here as bad. Where the kernel refuses that
//! page, as it does with DAX until the memory was written by a system call, it is filled with zeros by one first. (Where
//! that is of no use either, the process dies, as it would have.)
//!
//! What this file guarantees: all that the signal handler calls here is safe in one (atomics, and system
//! calls). A page is noted before it is mapped anew: who has loaded what is there, and looks then, finds it noted.
//! A byte that was stored is good again, so that a line that is stored in parts is. Nothing is to be looked at while no page was ever noted.

use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, SeqCst},
};

use super::cut::{self, Cut};
use super::full::Full;
use super::places;
use crate::LINE_BYTES;

const LINE: u64 = LINE_BYTES as u64;
const PAGE: u64 = 4096;
const PAGE_LINES: usize = (PAGE / LINE) as usize;
/// Pages that can be noted besides those that are known from the start; a store to one more that fails kills, as all did.
const PAGES_MAX: usize = 1024;
/// Pages that can be known from the start: 128 MiB, which is all that Linux lists of one device. Of more, loads tell.
const LISTED_MAX: u64 = 1 << 15;
/// How often a page is mapped anew, at most: who stores to what stays bad does not try for ever.
const TRIES_MAX: u32 = 16;
/// How many stores to a page may fail that is there again by then.
const FAULTS_MAX: u32 = 10_000;

/// A page with bad bytes; 0 where there is none, else its number and 1.
struct Page {
    number: AtomicU64,
    /// A bit for each byte of each line.
    lines: [AtomicU64; PAGE_LINES],
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
    /// -1 where they are not.
    pub(crate) file: c_int,
    /// `MAP_SHARED`, or what goes with `MAP_SYNC`.
    pub(crate) kind: c_int,
    /// The protection key, -1 for none.
    pub(crate) key: c_int,
}

/// Why what was stored is lost, and the first byte of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    /// It was cut off the file.
    Cut { at: u64 },
    /// The file system has no space for it.
    NoSpace { at: u64 },
}

/// The bad bytes of a region.
pub(crate) struct BadBytes {
    /// Pages that were ever noted.
    count: AtomicUsize,
    pages: Box<[Page]>,
    remapping: Remapping,
    cut: Cut,
    full: Full,
}

impl std::fmt::Debug for BadBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BadBytes").field("pages", &self.count).finish_non_exhaustive()
    }
}

impl BadBytes {
    /// These, of the region mapped as `remapping` says. It is known to the handler from now on until the
    /// region is unmapped; only then it may be dropped.
    pub(crate) fn attach(remapping: Remapping, listed: &[Range<u64>]) -> Arc<Self> {
        let page = || Page {
            number: AtomicU64::new(0),
            lines: [const { AtomicU64::new(0) }; PAGE_LINES],
            tries: AtomicU32::new(0),
            faults: AtomicU32::new(0),
            busy: AtomicBool::new(false),
        };
        let pages_of = |piece: &Range<u64>| piece.end.div_ceil(PAGE) - piece.start / PAGE;
        let listed_pages: u64 = listed.iter().map(pages_of).sum();
        // (With room to spare: who looks for a page that is none of them finds a free place soon.)
        let room = PAGES_MAX + listed_pages.min(LISTED_MAX) as usize * 5 / 4;
        let pages = std::iter::repeat_with(page).take(room).collect();
        let (count, cut, full) = (AtomicUsize::new(0), Cut::none(), Full::none());
        let bad = Arc::new(Self { count, pages, remapping, cut, full });
        let mut left = LISTED_MAX;
        for piece in listed {
            let end = piece.end.min((piece.start / PAGE + left) * PAGE);
            if piece.start < end {
                let _ = bad.note_range(piece.start, end - piece.start);
            }
            left = left.saturating_sub(pages_of(piece));
        }
        places::attach(remapping.base, Arc::as_ptr(&bad).cast_mut());
        bad
    }

    /// From now on a store to what somebody has cut off the region's file, of which `len` bytes are mapped, or to what that has no space
    /// for, is done, and lost: [`BadBytes::lost`] says so.
    pub(crate) fn survive_losses(&self, file: c_int, len: u64) {
        self.full.survive(len);
        self.cut.survive(file, len);
    }

    /// What of `at .. at + len` is lost: was cut off, as far as somebody has stored behind the end, or has no space. What was stored to
    /// these is given back.
    #[cold]
    #[inline(never)]
    pub(crate) fn lost(&self, at: u64, len: u64) -> Option<Lost> {
        let Some(first) = self.cut.first(at, len) else {
            let first = self.full.first(at, len)?;
            for page in self.full.pages(at, len) {
                cut::forget(self.remapping.base + (page * PAGE) as usize, PAGE as usize);
            }
            return Some(Lost::NoSpace { at: first });
        };
        let whole = first.next_multiple_of(PAGE);
        if whole < at + len {
            cut::forget(self.remapping.base + whole as usize, (at + len - whole) as usize);
        }
        Some(Lost::Cut { at: first })
    }

    /// Whether there may be any.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Acquire) != 0
    }

    /// Where the entry of a page is, or could be, one behind the other.
    fn candidates(&self, page: u64) -> impl Iterator<Item = &Page> {
        let start = (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % self.pages.len();
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

    /// From now on these bytes of a page are bad. Says whether there was room to note it.
    fn note(&self, page: u64, from: u64, len: u64) -> bool {
        let Some(entry) = self.add(page) else { return false };
        for (bad, bytes) in entry.lines_of(from, len) {
            bad.fetch_or(bytes, SeqCst);
        }
        self.count.fetch_add(1, SeqCst);
        true
    }

    /// From now on the lines that `at .. at + len` touches are bad.
    pub(crate) fn note_range(&self, at: u64, len: u64) -> bool {
        let (from, to) = (at / LINE * LINE, (at + len).next_multiple_of(LINE));
        pieces(from, to - from).all(|(page, from, len)| self.note(page, from, len))
    }

    /// The first bad byte of `at .. at + len`.
    #[cold]
    #[inline(never)]
    pub(crate) fn first(&self, at: u64, len: u64) -> Option<u64> {
        let mut noted = pieces(at, len).filter_map(|(page, from, len)| {
            let lines = self.find(page)?.lines_of(from, len);
            let mut line = page * PAGE + from / LINE * LINE;
            for (bad, bytes) in lines {
                let bad = bad.load(SeqCst) & bytes;
                if bad != 0 {
                    return Some(line + u64::from(bad.trailing_zeros()));
                }
                line += LINE;
            }
            None
        });
        let (noted, cut, full) = (noted.next(), self.cut.first(at, len), self.full.first(at, len));
        noted.into_iter().chain(cut).chain(full).min()
    }

    /// The bytes `at .. at + len` have been stored.
    #[cold]
    #[inline(never)]
    pub(crate) fn stored(&self, at: u64, len: u64) {
        for (page, from, len) in pieces(at, len) {
            for (bad, bytes) in self.find(page).iter().flat_map(|entry| entry.lines_of(from, len)) {
                bad.fetch_and(!bytes, SeqCst);
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
                && self.note(page, 0, PAGE)
                && self.map_anew(page)
                && (self.is_there(page) || self.clear(page));
        entry.busy.store(false, SeqCst);
        renewed
    }

    /// In the handler: memory of nobody for what was cut off the file. Says whether there is some at `offset` now.
    fn renew_cut(&self, offset: u64) -> bool {
        let Remapping { base, key, .. } = self.remapping;
        self.cut.take(base, key, offset, || {
            self.count.fetch_add(1, SeqCst);
        })
    }

    /// In the handler: memory of nobody for a page that the file has no space for. Says whether there is some at `offset` now.
    fn renew_full(&self, offset: u64) -> bool {
        let Remapping { base, key, .. } = self.remapping;
        self.full.take(self.cut.file(), (base, key), offset, || {
            self.count.fetch_add(1, SeqCst);
        })
    }

    /// In the handler: memory of nobody for a page that nothing else helps, as for one without space.
    fn give_up(&self, offset: u64) -> bool {
        let Remapping { base, key, .. } = self.remapping;
        self.full.give_up((base, key), offset, || {
            self.count.fetch_add(1, SeqCst);
        })
    }

    /// How many pages of `at .. at + len` have no space.
    #[cold]
    #[inline(never)]
    pub(crate) fn pages_without_space(&self, at: u64, len: u64) -> usize {
        self.full.pages(at, len).count()
    }

    /// Whether the kernel finds something at a page, or does not say that it finds nothing.
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
                || *libc::__errno_location() != libc::EFAULT
        }
    }

    /// Writes zeros to a page by a system call: the kernel has the memory forget its poison then. Says whether it could.
    fn clear(&self, page: u64) -> bool {
        static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
        let (file, at) = (self.remapping.file, page * PAGE);
        // SAFETY: a zeroed stat is a valid value, which the call fills; the other reads a page that never changes.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            // (What somebody has cut off is not put there again.)
            libc::fstat(file, &raw mut stat) == 0
                && at + PAGE <= stat.st_size as u64
                && libc::pwrite(file, ZEROS.as_ptr().cast(), PAGE as usize, at as libc::off_t)
                    == PAGE as libc::ssize_t
        }
    }

    /// Maps a page anew. Says whether it could.
    fn map_anew(&self, page: u64) -> bool {
        let to = (self.remapping.base + (page * PAGE) as usize) as *mut libc::c_void;
        let (len, rights) = (PAGE as usize, libc::PROT_READ | libc::PROT_WRITE);
        let Remapping { file, kind, key, .. } = self.remapping;
        if file < 0 {
            return false;
        }
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

impl Page {
    /// The lines that the bytes `from .. from + len` of the page touch, each with a bit for each of these bytes.
    fn lines_of(&self, from: u64, len: u64) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let first = from / LINE;
        let lines = self.lines.iter().skip(first as usize).zip(first..(from + len).div_ceil(LINE));
        lines.map(move |(bad, line)| {
            let start = from.max(line * LINE) - line * LINE;
            let end = (from + len).min((line + 1) * LINE) - line * LINE;
            (bad, u64::MAX << start & u64::MAX >> (LINE - end))
        })
    }
}

/// The pages that `at .. at + len` touches: the number of each, and which of its bytes.
fn pieces(at: u64, len: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    (at / PAGE..(at + len).div_ceil(PAGE)).map(move |page| {
        let from = at.max(page * PAGE);
        let to = (at + len).min((page + 1) * PAGE);
        (page, from - page * PAGE, to - from)
    })
}

/// In the handler: what an access to `address` needs to be done again. Says whether it has it now.
pub(super) fn renew(address: usize, is_store: bool, is_poison: bool) -> bool {
    let Some((offset, bad)) = places::find(address) else { return false };
    // SAFETY: where a region's lines are noted is dropped after the place was forgotten, and a thread that accesses
    // a region keeps it.
    let Some(bad) = (unsafe { bad.as_ref() }) else { return false };
    let offset = offset as u64;
    bad.renew_cut(offset)
        || !is_poison && bad.renew_full(offset)
        || is_store && bad.renew(offset)
        || !is_poison && bad.give_up(offset)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    fn none() -> Arc<BadBytes> {
        let remapping = Remapping { base: 0, file: -1, kind: 0, key: -1 };
        BadBytes::attach(remapping, &[])
    }

    #[test]
    fn bytes_are_bad_until_they_are_stored() {
        let bad = none();
        assert!(!bad.any());
        for (at, len) in [(64, 64), (4096 + 3968, 128), (8192, 128), (20 * 4096, 2 * 4096)] {
            assert!(pieces(at, len).all(|(page, from, len)| bad.note(page, from, len)));
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
    fn a_line_that_was_stored_in_parts_is_good_and_so_is_each_part() {
        let bad = none();
        assert!(bad.note(1, 0, PAGE));
        bad.stored(4096, 64 + 5);
        assert_eq!((bad.first(4096, 69), bad.first(4096, 70)), (None, Some(4096 + 69)));
        bad.stored(4096 + 72, 56);
        assert_eq!((bad.first(4096 + 72, 56), bad.first(4096, 128)), (None, Some(4096 + 69)));
        bad.stored(4096 + 69, 3);
        assert_eq!((bad.first(4096, 128), bad.first(4096, 129)), (None, Some(4096 + 128)));
        bad.stored(0, 3 * 4096);
        assert_eq!(bad.first(0, 3 * 4096), None);
    }

    #[test]
    fn what_is_listed_is_bad_from_the_start_however_much_it_is() {
        let remapping = Remapping { base: 0, file: -1, kind: 0, key: -1 };
        let most = LISTED_MAX * PAGE;
        let bad = BadBytes::attach(remapping, &[512..1024, 3 * PAGE..2 * most]);
        assert_eq!((bad.first(0, 512), bad.first(0, 4096)), (None, Some(512)));
        assert_eq!((bad.first(1024, 2 * PAGE), bad.first(0, 1024)), (None, Some(512)));
        assert_eq!(bad.first(most - PAGE, 64), Some(most - PAGE));
        // Nobody looks for long for what is not there.
        let start = std::time::Instant::now();
        assert!((0..100_000).all(|page| bad.first(2 * most + page * PAGE, 64).is_none()));
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    }

    #[test]
    fn there_is_room_for_so_many_pages_and_no_more() {
        let bad = none();
        assert!((0..PAGES_MAX as u64).all(|page| bad.note(7 * page, 0, 64)));
        assert!(!bad.note(1, 0, 64));
        assert_eq!((bad.first(7 * 4096, 1), bad.first(4096, 4096)), (Some(7 * 4096), None));
    }
}
