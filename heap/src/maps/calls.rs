//! The calls but `mremap`.
use libc::{EINVAL, ENOMEM, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE};

use super::table::{FOREIGN, FREE, MINE, RIGHTS, UNFORKED, WIPED};
use super::{counted, meets};
use crate::memory::{self, Memory, PAGE};
use crate::sys::{self, Outcome};

/// What a program asks `mmap` for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Where: an address, or 0.
    pub at: usize,
    /// How much.
    pub bytes: usize,
    /// What may be done with it.
    pub rights: i32,
    /// How.
    pub flags: i32,
    /// Of which file.
    pub file: i32,
    /// From where on.
    pub offset: usize,
}

/// Flags that change nothing of what memory is.
const HARMLESS: i32 =
    libc::MAP_POPULATE | libc::MAP_NONBLOCK | libc::MAP_DENYWRITE | libc::MAP_EXECUTABLE;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

impl Wanted {
    fn raw(self) -> Outcome<usize> {
        let Self { at, bytes, rights, flags, file, offset } = self;
        sys::mmap_as(at, bytes, rights, flags, file, offset)
    }

    const fn is_private(&self, harmless: i32) -> bool {
        self.flags & !harmless == MAP_PRIVATE | MAP_ANONYMOUS && self.rights == READ_WRITE
    }

    /// Whether it is memory that can be the pool's.
    const fn is_heap(&self) -> bool {
        self.at == 0 && self.is_private(HARMLESS) && self.offset.is_multiple_of(PAGE)
    }
}

/// A range, as whole pages: its end. None where it isn't one.
pub(crate) fn whole(at: usize, bytes: usize) -> Option<usize> {
    at.checked_add(bytes.checked_next_multiple_of(PAGE)?).filter(|_| at.is_multiple_of(PAGE))
}

/// A piece of a range that is of one kind: where it ends, and its pages, where it lies in the area.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) at: usize,
    pub(super) end: usize,
    pub(super) state: u8,
    pub(super) pages: (usize, usize),
}

impl Memory {
    /// The piece of `at .. end` that is first.
    pub(super) fn piece(&self, at: usize, end: usize) -> Piece {
        let start = self.maps.address(0);
        let Some(page) = self.maps.page_of(at) else {
            let to = if at < start { end.min(start) } else { end };
            return Piece { at, end: to, state: FOREIGN, pages: (0, 0) };
        };
        let last = (end.min(self.maps.limit()) - start).div_ceil(PAGE);
        let to = self.maps.run(page, last);
        let (state, end) = (self.maps.state(page), self.maps.address(to));
        Piece { at, end, state, pages: (page, to) }
    }

    /// Calls `each` with the pieces of a range, until one fails.
    fn pieces(
        &mut self,
        mut at: usize,
        end: usize,
        mut each: impl FnMut(&mut Self, Piece) -> Outcome<()>,
    ) -> Outcome<()> {
        while at < end {
            let piece = self.piece(at, end);
            each(self, piece)?;
            at = piece.end;
        }
        Ok(())
    }

    /// Free pages with memory in them; the first of them.
    pub(super) fn map_new(&mut self, bytes: usize) -> Outcome<usize> {
        self.open_maps().map_err(|_| libc::EAGAIN)?;
        // (Whether a pool's memory can be mapped by pages is known when there is an owner.)
        let _ = self.meet();
        if self.maps_whole_chunks() {
            return Err(libc::EAGAIN);
        }
        let count = bytes.div_ceil(PAGE);
        let first = self.maps.find(count).ok_or(libc::EAGAIN)?;
        self.map_pages(first, first + count)?;
        Ok(first)
    }

    /// The program has put something of its own over a range.
    pub(super) fn cover(&mut self, at: usize, end: usize) {
        let _ = self.pieces(at, end, |memory, piece| {
            let (from, to) = piece.pages;
            if piece.state & MINE != 0 {
                memory.forget_pages(from, to, FOREIGN);
            } else if piece.state == FREE {
                memory.maps.set(from, to, FOREIGN);
            } else {
                memory.uncount_foreign(piece.at, piece.end - piece.at);
            }
            Ok(())
        });
    }
}

/// Whether a mapping is heap, of `from` bytes or more: the pool's, where it has some.
#[must_use]
pub fn takes(wanted: &Wanted, from: usize) -> bool {
    wanted.is_heap() && wanted.bytes >= from && wanted.bytes <= isize::MAX as usize
}

/// `mmap`: memory of `from` bytes and more comes from the pool.
///
/// # Errors
/// As the call has them.
pub fn map(wanted: Wanted, from: usize) -> Outcome<usize> {
    let _errno = sys::KeepErrno::new();
    if takes(&wanted, from) {
        let mut memory = memory::lock();
        match memory.map_new(wanted.bytes) {
            Ok(first) => {
                let at = memory.maps.address(first);
                drop(memory);
                if wanted.flags & libc::MAP_POPULATE != 0 {
                    sys::populate(at, wanted.bytes.next_multiple_of(PAGE), false);
                }
                return Ok(at);
            }
            Err(ENOMEM) => return Err(ENOMEM),
            // The pool has nothing to do with it.
            Err(_) => {}
        }
    }
    let fixed = wanted.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    if fixed && meets(wanted.at, wanted.bytes) {
        return map_over(wanted);
    }
    let at = wanted.raw()?;
    if wanted.is_private(HARMLESS) && !fixed {
        counted::count(at, wanted.bytes.next_multiple_of(PAGE));
    }
    Ok(at)
}

/// Something at a place that may be ours: the program's own from then on.
fn map_over(mut wanted: Wanted) -> Outcome<usize> {
    let end = whole(wanted.at, wanted.bytes).ok_or(EINVAL)?;
    let mut memory = memory::lock();
    let place = memory.piece(wanted.at, end);
    if wanted.flags & MAP_FIXED == 0 && place.state == FREE && place.end == end {
        // What is reserved here is nothing to the program.
        wanted.flags = wanted.flags & !MAP_FIXED_NOREPLACE | MAP_FIXED;
    }
    let found = wanted.raw()?;
    if found == wanted.at && wanted.flags & MAP_FIXED != 0 {
        memory.cover(wanted.at, end);
        let harmless = HARMLESS | MAP_FIXED | MAP_FIXED_NOREPLACE;
        if wanted.is_private(harmless) {
            memory.count_foreign(found, end - found);
        }
    }
    Ok(found)
}

/// `munmap`.
///
/// # Errors
/// As the call has them.
pub fn unmap(at: usize, bytes: usize) -> Outcome<()> {
    let _errno = sys::KeepErrno::new();
    if !meets(at, bytes) {
        // (Counted no more before it is gone: another thread's may be there right after.)
        memory::lock().uncount_foreign(at, bytes);
        return sys::unmap(at, bytes);
    }
    let end = whole(at, bytes).filter(|end| *end > at).ok_or(EINVAL)?;
    let mut memory = memory::lock();
    memory.pieces(at, end, |memory, piece| {
        let (from, to) = piece.pages;
        match piece.state {
            FREE => {}
            FOREIGN if from == to => {
                memory.uncount_foreign(piece.at, piece.end - piece.at);
                sys::unmap(piece.at, piece.end - piece.at)?;
            }
            FOREIGN => {
                memory.uncount_foreign(piece.at, piece.end - piece.at);
                sys::vacate(piece.at, piece.end - piece.at)?;
                memory.maps.set(from, to, FREE);
            }
            _ => memory.unmap_pages(from, to)?,
        }
        Ok(())
    })
}

/// `mprotect`.
///
/// # Errors
/// As the call has them.
pub fn protect(at: usize, bytes: usize, rights: i32) -> Outcome<()> {
    let _errno = sys::KeepErrno::new();
    let end = whole(at, bytes).ok_or(EINVAL)?;
    let mut memory = memory::lock();
    memory.pieces(at, end, |memory, piece| {
        let bytes = piece.end - piece.at;
        match piece.state {
            FREE => return Err(ENOMEM),
            FOREIGN => return sys::protect(piece.at, bytes, rights),
            _ => {}
        }
        let (from, to) = piece.pages;
        match sys::protect(piece.at, bytes, rights) {
            // What comes from where nothing may be run.
            Err(libc::EACCES | libc::EPERM) if rights & libc::PROT_EXEC != 0 => {
                memory.make_foreign(from, to)?;
                sys::protect(piece.at, bytes, rights)
            }
            Ok(()) => {
                let kept = piece.state & !RIGHTS;
                memory.maps.set(from, to, kept | rights as u8 & RIGHTS);
                Ok(())
            }
            failed => failed,
        }
    })
}

/// Makes what is ours of a range the program's own: anonymous memory, with the same contents.
///
/// # Errors
/// As `mmap` has them.
pub fn leave(at: usize, bytes: usize) -> Outcome<()> {
    let _errno = sys::KeepErrno::new();
    let end = whole(at, bytes).ok_or(EINVAL)?;
    let mut memory = memory::lock();
    memory.pieces(at, end, |memory, piece| match piece.state {
        FREE => Err(ENOMEM),
        FOREIGN => Ok(()),
        _ => memory.make_foreign(piece.pages.0, piece.pages.1),
    })
}

/// `madvise`.
///
/// # Errors
/// As the call has them.
pub fn advise(at: usize, bytes: usize, advice: i32) -> Outcome<()> {
    let _errno = sys::KeepErrno::new();
    let end = whole(at, bytes).ok_or(EINVAL)?;
    let mut memory = memory::lock();
    let mut hole = false;
    memory.pieces(at, end, |memory, piece| match piece.state {
        FREE => {
            hole = true;
            Ok(())
        }
        FOREIGN => match sys::advise(piece.at, piece.end - piece.at, advice) {
            Err(ENOMEM) => {
                hole = true;
                Ok(())
            }
            done => done,
        },
        _ => memory.advise_mine(piece, advice),
    })?;
    if hole { Err(ENOMEM) } else { Ok(()) }
}

/// `MADV_DONTNEED_LOCKED`.
const DONTNEED_LOCKED: i32 = 24;
/// `MADV_COLLAPSE`.
const COLLAPSE: i32 = 25;

impl Memory {
    fn advise_mine(&mut self, piece: Piece, advice: i32) -> Outcome<()> {
        let (from, to) = piece.pages;
        let mut mark = |set: u8, clear: u8| {
            self.maps.set(from, to, piece.state & !clear | set);
            self.maps.any_forked |= set != 0;
            Ok(())
        };
        match advice {
            libc::MADV_DONTNEED | DONTNEED_LOCKED => self.clear_pages(from, to),
            libc::MADV_DONTFORK => mark(UNFORKED, 0),
            libc::MADV_DOFORK => mark(0, UNFORKED),
            libc::MADV_WIPEONFORK => mark(WIPED, 0),
            libc::MADV_KEEPONFORK => mark(0, WIPED),
            // Those that say nothing of what is in the pages; what is old may stay in them.
            libc::MADV_FREE | libc::MADV_COLD | libc::MADV_PAGEOUT | COLLAPSE => Ok(()),
            // A file's pages would be gone.
            libc::MADV_REMOVE | libc::MADV_HWPOISON | libc::MADV_SOFT_OFFLINE => Err(EINVAL),
            _ => sys::advise(piece.at, piece.end - piece.at, advice),
        }
    }
}

/// `msync`: there is no file, as far as the program knows.
///
/// # Errors
/// As the call has them.
pub fn sync(at: usize, bytes: usize, flags: i32) -> Outcome<()> {
    let _errno = sys::KeepErrno::new();
    let both = libc::MS_SYNC | libc::MS_ASYNC;
    if flags & !(both | libc::MS_INVALIDATE) != 0 || flags & both == both {
        return Err(EINVAL);
    }
    let end = at.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE));
    let end = end.filter(|_| at.is_multiple_of(PAGE)).ok_or(EINVAL)?;
    let mut next = at;
    let mut hole = false;
    while next < end {
        // (Not below the lock: a file's pages may take their time.)
        let piece = memory::lock().piece(next, end);
        match piece.state {
            FREE => hole = true,
            FOREIGN => match sys::msync(piece.at, piece.end - piece.at, flags) {
                Err(ENOMEM) => hole = true,
                done => done?,
            },
            _ => {}
        }
        next = piece.end;
    }
    if hole { Err(ENOMEM) } else { Ok(()) }
}

/// Whether there is something, for `mincore`, in all of a range: where nothing is mapped, the call fails.
pub fn is_resident(at: usize, bytes: usize) -> bool {
    let Some(end) = whole(at, bytes) else {
        return true;
    };
    let mut memory = memory::lock();
    let look = |_: &mut Memory, piece: Piece| {
        if piece.state == FREE { Err(ENOMEM) } else { Ok(()) }
    };
    memory.pieces(at, end, look).is_ok()
}
