//! Direct maps: the pages of a file as memory of the program.

mod attached;
mod kept;
mod log;
mod pieces;
mod shows;
mod stores;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use lode_engine::{MapExtent, Shown, Staging};
use lode_pmem::{Durability, MappedPages, MediaError, View, ViewOptions};
use parking_lot::Mutex;

use crate::access::Pass;
use crate::error::{Cause, Result};
use crate::file::{File, Open};
use shows::Shows;

pub(crate) use stores::{Asked, Stores};

pub use kept::KeptHeap;
pub use log::{Entries, Log, Position};

const PAGE: u64 = lode_engine::PAGE_BYTES;
/// Sizes of the pages that the system can map whole.
const HUGE: u64 = 2 << 20;
const GIANT: u64 = 1 << 30;

type Outcome<T> = std::result::Result<T, Cause>;

/// How to map a file.
#[derive(Clone, Debug, Default)]
pub struct MapOptions {
    write: bool,
    populate: bool,
}

impl MapOptions {
    /// To be read, its pages mapped when they are first touched.
    pub fn new() -> Self {
        Self::default()
    }

    /// It can be stored into. The file has to be open for reading and writing.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// All pages are mapped at once: no later access has to wait for the system.
    pub fn populate(&mut self, populate: bool) -> &mut Self {
        self.populate = populate;
        self
    }
}

/// Bytes of a file as memory of this process, from [`File::map`]. It keeps the file and the pool open.
///
/// Offsets are from the beginning of the map. Loads and stores by [`Map::as_ptr`] are the program's
/// own, from any thread; those of this type are the same with their bounds checked. A store is in the
/// file at once, for [`File::read_at`] too, and durable when [`Map::persist`] of its bytes has returned.
/// After a crash, of stores that were not persisted some may be there and others not, each aligned word wholly.
///
/// Rules, while a file is mapped:
/// * Its pages stay where they are, to the program's eyes. A write to them goes to them, and is seen in the map at once. It is durable
///   when it returns, as always, but not atomic: a crash may leave a part of it. What atomic
///   changes need is staged ([`Map::stage`]).
/// * Pages that the file gives up (it is truncated, punched, removed) stay as they are in the map and
///   belong to nobody until the last map of the file has ended: stores to them reach nothing. What the file
///   has at that place later is not in the map.
/// * What is stored behind the end of the file in its last page is no part of it, also when it
///   grows later.
/// * A snapshot has what was stored before it, and nothing that was stored later. From then on the first store to a page costs a fault and
///   a copy; where there is no space for that, it is a SIGSEGV. System calls that store there fail with `EFAULT` until the program has.
/// * At protection level `full`, what a map can be stored into is without checksums until the last map of the file ends: they are
///   computed then, of what is there, and after a crash when the pool is opened. What is damaged is not mapped: that
///   is an error. Loads through a map, one to read, too, are compared with nothing.
///   So they are when a snapshot is made, which has them with their checksums; that takes as long as reading these pages.
/// * Bad memory under the map is a SIGBUS by its pointer, an error of [`Map::load`].
/// * A child by `fork` does not have it.
pub struct Map {
    // In this order: nobody else gets the pages while the view is there.
    shows: Arc<Shows>,
    mapped: Mapped,
    len: u64,
    /// Held by who changes what is staged, until the view shows it.
    staging: Mutex<()>,
}

/// That the engine knows of a map, by its number.
struct Mapped(Arc<Open>, u64);

impl Drop for Mapped {
    fn drop(&mut self) {
        if let (Ok(pass), Ok(held)) = (self.0.enter(), self.0.held()) {
            pass.unmap_shown(held, self.1);
        }
    }
}

impl File {
    /// Maps bytes `offset .. offset + len` as memory; `offset` is a multiple of 4096. Holes are backed first. The address is
    /// aligned as the offset is, to 2 MiB from that length on, to 1 GiB from that length on, so that
    /// a file that was given its size in advance in a pool of such pages is mapped by them.
    ///
    /// # Errors
    /// `EBADF` if the file is not open for reading, and for writing too for a map to store into; `EINVAL` for a range
    /// that is empty, begins inside a page or ends behind the file's last one; `EOPNOTSUPP` where the pool is not in
    /// a file or device, or this part of it can't be mapped by itself (small pages on a device that maps 2 MiB only); `EROFS`
    /// in a pool that is open read-only, for a hole or what waits to be recovered; `EIO` at level `full`, for what is damaged of
    /// a map to store into; `ENOSPC`, `ENOMEM`.
    pub fn map(&self, offset: u64, len: u64, options: &MapOptions) -> Result<Map> {
        Ok(Map::new(&self.open, offset, len, options)?)
    }
}

impl Map {
    fn new(open: &Arc<Open>, offset: u64, len: u64, options: &MapOptions) -> Outcome<Self> {
        let pass = open.readable()?;
        if options.write {
            open.writable()?;
        }
        let asked = if options.write { Some(open.stores()?) } else { None };
        let align = alignment(len);
        let (writable, phase) = (options.write, offset % align);
        let how = ViewOptions { writable, align, phase };
        let (mut made, mut refused) = (None, None);
        let mut make = |extents: &[MapExtent]| -> lode_engine::Result<Arc<dyn Shown>> {
            let backed: u64 = extents.iter().map(|extent| extent.bytes).sum();
            if backed < len {
                return Err(lode_engine::Error::ReadOnly);
            }
            let faults = asked.as_ref().map(|asked| &asked.faults);
            let view = pass.medium().view(&parts(extents), &how, faults).map_err(|error| {
                refused = Some(error);
                lode_engine::Error::NotSupported
            })?;
            let shows = Arc::new(Shows::new(view, open.ino(), offset, extents));
            made = Some(Arc::clone(&shows));
            Ok(shows)
        };
        let number = pass.map_shown(open.held()?, (offset, len), writable, &mut make);
        if let Some(error) = refused {
            return Err(error.into());
        }
        let (number, Some(shows)) = (number?, made) else {
            return Err(lode_engine::Error::Invalid.into());
        };
        let mapped = Mapped(Arc::clone(open), number);
        let map = Self { shows, mapped, len, staging: Mutex::default() };
        if let Some(asked) = asked {
            asked.add(&map.shows);
            pass.allow_stores(open.ino(), offset, map.view().bytes())?;
        }
        if options.populate {
            map.view().populate()?;
        }
        Ok(map)
    }

    #[inline]
    fn view(&self) -> &View {
        &self.shows.view
    }

    /// Where the map is. For stores it must have been made so; bytes up to [`Map::len`] may be used, for
    /// as long as the map is there.
    pub fn as_ptr(&self) -> *mut u8 {
        self.view().as_ptr()
    }

    /// Bytes in the map.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never: a map of nothing is refused.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What a crash leaves of what was persisted.
    pub fn durability(&self) -> Durability {
        self.view().durability()
    }

    /// By what pages the kernel has mapped what has been used of it so far: huge ones, or not. `None` where it does not tell
    /// (before Linux 6.7).
    pub fn mapped_pages(&self) -> Option<MappedPages> {
        self.view().mapped_pages()
    }

    /// Loads bytes from `at` on.
    ///
    /// # Errors
    /// `EFAULT` outside the map, `EIO` for bad memory.
    #[inline]
    pub fn load(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.inside(at, into.len() as u64)?;
        Ok(self.view().load(at, into).map_err(cause)?)
    }

    /// Stores bytes at `at`, through the caches.
    ///
    /// # Errors
    /// `EFAULT` outside the map, and where it can't be stored into.
    #[inline]
    pub fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.inside(at, bytes.len() as u64)?;
        Ok(self.view().store(at, bytes).map_err(cause)?)
    }

    /// Streams bytes to `at`, past the caches: the fastest way for what is not read soon. They are
    /// durable after [`Map::fence`] of them by the same thread.
    ///
    /// # Errors
    /// As [`Map::store`].
    #[inline]
    pub fn stream(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.inside(at, bytes.len() as u64)?;
        Ok(self.view().stream(at, bytes).map_err(cause)?)
    }

    /// Makes bytes durable, whoever stored them: writes back the lines they are in, and fences.
    ///
    /// # Errors
    /// `EFAULT` outside the map; `EIO` where the medium could not be written, and from then on always: the pool
    /// has to be opened again.
    #[inline]
    pub fn persist(&self, range: Range<u64>) -> Result<()> {
        let len = self.length(&range)?;
        Ok(self.view().persist(range.start, len).map_err(cause)?)
    }

    /// Starts the write-back of the lines that bytes are in; [`Map::fence`] by the same thread completes it,
    /// for many ranges at once.
    ///
    /// # Errors
    /// As [`Map::persist`].
    #[inline]
    pub fn write_back(&self, range: Range<u64>) -> Result<()> {
        let len = self.length(&range)?;
        Ok(self.view().write_back(range.start, len).map_err(cause)?)
    }

    /// Completes what this thread has streamed to, and written back of, these bytes.
    ///
    /// # Errors
    /// As [`Map::persist`].
    #[inline]
    pub fn fence(&self, range: Range<u64>) -> Result<()> {
        let len = self.length(&range)?;
        Ok(self.view().fence(range.start, len).map_err(cause)?)
    }

    /// Puts pages of the map's own in the place of those of `range`, whole pages: from now on stores there are
    /// seen in this map alone, until [`Map::commit`] makes them the file's. They hold what the file
    /// does, or zeros for those who will store all of it. The map must be the only one of the file. A crash, or
    /// the end of the map, forgets them.
    ///
    /// # Errors
    /// `EBADF` where the map can't be stored into; `EINVAL` for a range that is not of whole pages of the map,
    /// or staged in part already, or where the file is mapped more than once; `ENOSPC`, `ENOMEM`. What was
    /// staged before stays so.
    pub fn stage(&self, range: Range<u64>, how: Staging) -> Result<()> {
        let _staging = self.staging.lock();
        let pass = self.storable()?;
        let (at, len) = self.pages(&range)?;
        let (held, from) = (self.mapped.0.held()?, self.shows.offset + at);
        let extents = pass.stage(held, from, len, how).map_err(Cause::from)?;
        let shown = self.shows.put(&extents).map_err(Cause::from);
        let shown = shown.and_then(|()| Ok(pass.allow_stores(self.shows.ino, from, len)?));
        if let Err(error) = shown {
            // (What can't be taken back is in doubt.)
            let _ = self.take_back(&pass, (from, len));
            return Err(error.into());
        }
        Ok(())
    }

    /// Makes all that was stored to these staged ranges the file's, in one atomic, durable step, without a
    /// copy: it is durable when this returns, and a crash leaves all of it or nothing. What other threads
    /// have *streamed* there they have fenced. From then on these pages are the file's own, and
    /// stores to them are again in the file at once.
    ///
    /// # Errors
    /// `EBADF` where the map can't be stored into; `EINVAL` where a page of a range is not staged, or lies behind the file's end by now; nothing has
    /// changed then. `ENOSPC`, `EIO`.
    pub fn commit(&self, ranges: &[Range<u64>]) -> Result<()> {
        let _staging = self.staging.lock();
        let pass = self.storable()?;
        let mut placed = Vec::with_capacity(ranges.len());
        for range in ranges {
            let (at, len) = self.pages(range)?;
            // (The view may show the file's own pages there, which would be nobody's.)
            if self.shows.is_in_doubt(at, len) {
                return Err(Cause::Number(libc::EINVAL).into());
            }
            self.view().settle(at, len).map_err(cause)?;
            placed.push((self.shows.offset + at, len));
        }
        Ok(pass.commit_staged(self.mapped.0.held()?, &placed)?)
    }

    /// Forgets all that is staged and was not committed: the map shows the file again. Where the file
    /// has given up its pages since, what was staged stays in the map as they would, and belongs to nobody.
    ///
    /// # Errors
    /// `ENOMEM`: some of it is forgotten, some is still staged and can be discarded again.
    pub fn discard(&self) -> Result<()> {
        let _staging = self.staging.lock();
        let pass = self.mapped.0.enter()?;
        for staged in pass.staged(self.mapped.0.held()?).map_err(Cause::from)? {
            self.take_back(&pass, staged)?;
        }
        Ok(())
    }

    /// Shows the file again where this range of it is staged, and forgets that.
    fn take_back(&self, pass: &Pass<'_>, (from, len): (u64, u64)) -> Outcome<()> {
        pass.discard_staged(self.mapped.0.held()?, from, len)?;
        Ok(pass.allow_stores(self.shows.ino, from, len)?)
    }

    /// Lets a call in that changes the file.
    fn storable(&self) -> Outcome<Pass<'_>> {
        if self.view().is_writable() {
            self.mapped.0.writable()
        } else {
            Err(Cause::Number(libc::EBADF))
        }
    }

    fn inside(&self, at: u64, len: u64) -> Outcome<()> {
        let end = at.checked_add(len).filter(|&end| end <= self.len);
        end.map(|_| ()).ok_or(Cause::Number(libc::EFAULT))
    }

    fn length(&self, range: &Range<u64>) -> Outcome<u64> {
        let len = range.end.checked_sub(range.start).ok_or(Cause::Number(libc::EFAULT))?;
        self.inside(range.start, len)?;
        Ok(len)
    }

    /// The whole pages of a range; one that ends with the map ends with its last page.
    fn pages(&self, range: &Range<u64>) -> Outcome<(u64, u64)> {
        let invalid = Cause::Number(libc::EINVAL);
        let end = if range.end == self.len { self.view().bytes() } else { range.end };
        let whole = range.start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE);
        let len =
            end.checked_sub(range.start).filter(|&len| whole && len > 0 && range.end <= self.len);
        len.map(|len| (range.start, len)).ok_or(invalid)
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_struct("Map");
        map.field("ino", &self.mapped.0.ino())
            .field("offset", &self.shows.offset)
            .field("len", &self.len);
        map.finish()
    }
}

fn parts(extents: &[MapExtent]) -> Vec<(u64, u64)> {
    extents.iter().map(|extent| (extent.pool_offset, extent.bytes)).collect()
}

fn cause(error: MediaError) -> Cause {
    match error {
        MediaError::OutOfBounds { .. } => Cause::Number(libc::EFAULT),
        other => Cause::Engine(other.into()),
    }
}

/// What pages a map of so many bytes is to be mapped by, if the file lies in such.
fn alignment(len: u64) -> u64 {
    [GIANT, HUGE].into_iter().find(|size| len >= *size).unwrap_or(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_aligned_to_the_largest_pages_that_they_fill() {
        let pages = |len| alignment(len);
        assert_eq!([1, (2 << 20) - 1].map(pages), [4096; 2]);
        assert_eq!([2 << 20, (1 << 30) - 1].map(pages), [2 << 20; 2]);
        assert_eq!([1 << 30, 1 << 40].map(pages), [1 << 30; 2]);
    }
}
