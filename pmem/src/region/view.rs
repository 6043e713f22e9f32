//! Views: parts of a region mapped once more, one behind the other, for a program to use as memory.
//!
//! What this file guarantees: a view shows exactly the parts it was made of, and is writable by the
//! whole process where that was allowed: it is what a program asks for by name, and no window
//! guards it. Its memory goes to the program's own pages only; who makes it says which those are.
//! No child of `fork` inherits it. Where stores are kept from it again, who stores waits for an answer (`fault::stores`).

use super::dirty::{Dirty, Syncing};
use super::mapping::{Mapping, Part, Place};
use super::memory::Memory;
use super::pages::MappedPages;
use super::{Durability, Mapped, RegionError};
use crate::fault::stores::{Guarded, StoreFaults};
use crate::flush::FlushStrategy;
use crate::windows::Guard;
use crate::{Counters, Door, MediaError, Medium};

/// How a view is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViewOptions {
    /// The program may store into it, once [`View::allow`] was called.
    pub writable: bool,
    /// A power of two, of which the view's address is a multiple but for `phase`: pages of this size
    /// can be mapped whole then.
    pub align: u64,
    /// What the address is more than a multiple of `align`, in bytes.
    pub phase: u64,
}

/// Parts of a region as memory. It must not outlive the region that it shows: its maker keeps that.
///
/// Loads and stores by its pointer are the program's own. A load from memory that is bad is an error
/// of [`View::load`], and a SIGBUS through the pointer.
#[derive(Debug)]
pub struct View {
    // First: the handler forgets where it is before it is unmapped.
    guarded: Option<Guarded>,
    door: Door<Mapped>,
    counters: Counters,
    /// What it shares with the region that it is of.
    syncing: Syncing,
    region_bytes: u64,
}

impl View {
    /// A view of a mapping that is all it shows.
    pub(super) fn over(region: Mapped) -> Self {
        let region_bytes = region.bytes;
        let (door, counters) = (Door::new(region), Counters::new());
        Self { guarded: None, door, counters, syncing: Syncing::default(), region_bytes }
    }

    pub(super) fn mapping(&self) -> &Mapping {
        &self.region().mapping
    }

    /// Where it is. What may be done by it: loads, and stores if it was made writable, by any thread,
    /// inside of [`View::bytes`] and as long as the view is there.
    pub fn as_ptr(&self) -> *mut u8 {
        self.region().mapping.base()
    }

    fn region(&self) -> &Mapped {
        self.door.medium()
    }

    /// Bytes in it.
    pub fn bytes(&self) -> u64 {
        self.region().bytes
    }

    /// What survives which events of what was made durable.
    pub fn durability(&self) -> Durability {
        self.region().durability
    }

    /// By what pages the kernel has mapped what has been used of it so far; `None` where it does not tell.
    pub fn mapped_pages(&self) -> Option<MappedPages> {
        self.region().mapped_pages()
    }

    /// Whether it can be stored into.
    pub fn is_writable(&self) -> bool {
        !self.region().is_read_only()
    }

    /// Loads `into.len()` bytes from offset `at`.
    pub fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.door.load(at, into)
    }

    /// Streams `bytes` to offset `at`, past the caches. [`View::fence`] by the same thread makes
    /// them durable.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`] outside of the view, and where it is not writable.
    pub fn stream(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let len = self.may_store(at, bytes)?;
        self.door.window(len, &self.counters).copy_nt(at, bytes);
        Ok(())
    }

    /// Stores `bytes` at offset `at`, through the caches.
    ///
    /// # Errors
    /// As of [`View::stream`].
    pub fn store(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let len = self.may_store(at, bytes)?;
        self.door.window(len, &self.counters).store(at, bytes);
        Ok(())
    }

    fn may_store(&self, at: u64, bytes: &[u8]) -> Result<u64, MediaError> {
        let len = bytes.len() as u64;
        let end = at.checked_add(len).filter(|&end| end <= self.region().bytes_writable);
        end.map(|_| len).ok_or(MediaError::OutOfBounds { at, len })
    }

    /// Starts the write-back of the lines that hold bytes `at .. at + len`, whoever stored them.
    /// [`View::fence`] by the same thread completes it.
    pub fn write_back(&self, at: u64, len: u64) -> Result<(), MediaError> {
        self.end(at, len)?;
        self.door.window(0, &self.counters).flush(at, len);
        Ok(())
    }

    /// Completes the write-backs and streamed stores of this thread to bytes `at .. at + len`:
    /// they are durable when this returns `Ok`.
    ///
    /// # Errors
    /// [`MediaError::Unwritten`] where the system could not write them, and from then on always, for the
    /// region and all of its views; [`MediaError::OutOfBounds`].
    pub fn fence(&self, at: u64, len: u64) -> Result<(), MediaError> {
        let end = self.end(at, len)?;
        match self.region().strategy {
            FlushStrategy::Instructions { .. } => self.region().fence(),
            FlushStrategy::Msync => {
                let page = self.region().page_bytes;
                let from = at - at % page;
                let msync = || self.region().mapping.msync(from, end - from);
                self.syncing.call(msync).map_err(|_| MediaError::Unwritten)
            }
        }
    }

    /// Whether one [`View::fence`] completes all that its thread has written back, whatever bytes it names, of all views of a region:
    /// an instruction does, a system call does not.
    pub fn fences_all(&self) -> bool {
        matches!(self.region().strategy, FlushStrategy::Instructions { .. })
    }

    /// Writes bytes `at .. at + len` to the disk, where fences of the *region* do not: they know of the
    /// stores through the region alone. (Where stores need an instruction alone, nothing is to be done.)
    pub fn settle(&self, at: u64, len: u64) -> Result<(), MediaError> {
        match self.region().strategy {
            FlushStrategy::Instructions { .. } => Ok(()),
            FlushStrategy::Msync => self.fence(at, len),
        }
    }

    /// Makes bytes `at .. at + len` durable, whoever stored them: write-back and fence.
    pub fn persist(&self, at: u64, len: u64) -> Result<(), MediaError> {
        self.write_back(at, len)?;
        self.fence(at, len)
    }

    /// Shows other parts of the region that the view is of, from offset `at` on; nobody can store there until
    /// [`View::allow`]. Other threads see the one or the other. If it fails, any of them may be shown, or nothing.
    pub fn replace(&self, at: u64, parts: &[(u64, u64)]) -> Result<(), RegionError> {
        let view = self.region();
        self.arm()?;
        let parts = view.parts(parts, self.region_bytes)?;
        let bytes: u64 = parts.iter().map(|part| part.len as u64).sum();
        let end = at.checked_add(bytes).filter(|&end| end <= self.bytes());
        let aligned = at.is_multiple_of(view.page_bytes);
        let Some(file) = view.file().filter(|_| end.is_some() && aligned) else {
            return Err(view.unviewable());
        };
        let put = view.mapping.put(file, at as usize, &parts, libc::PROT_READ, view.is_sync());
        put.map_err(|source| self.failed("mapping parts of", source))
    }

    /// Keeps all threads from storing into it. When this returns, what they have stored is there, and who stores waits until
    /// that was answered, where it was made with somebody who does. Nothing is to be kept from what is not writable.
    pub fn protect(&self) -> Result<(), RegionError> {
        if !self.is_writable() {
            return Ok(());
        }
        let view = self.region();
        self.arm()?;
        let protect = view.mapping.protect(0, view.bytes as usize, libc::PROT_READ);
        protect.map_err(|source| self.failed("protecting a map of", source))?;
        crate::fault::stores::drain();
        Ok(())
    }

    /// From now on who stores where that is not allowed waits.
    fn arm(&self) -> Result<(), RegionError> {
        let armed = self.guarded.as_ref().map_or(Ok(()), Guarded::arm);
        armed.map_err(|source| self.failed("guarding a map of", source))
    }

    /// Lets all threads store to bytes `at .. at + len`, whole pages, if it is writable.
    pub fn allow(&self, at: u64, len: u64) -> Result<(), RegionError> {
        let end = at.checked_add(len).filter(|&end| end <= self.bytes());
        if end.is_none() {
            return Err(self.region().unviewable());
        }
        if !self.is_writable() || len == 0 {
            return Ok(());
        }
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let allowed = self.region().mapping.protect(at as usize, len as usize, rights);
        allowed.map_err(|source| self.failed("opening a map of", source))
    }

    /// Has all of it there at once: no access has to wait for the system. (For stores where they are allowed.)
    pub fn populate(&self) -> Result<(), RegionError> {
        // (Where stores wait, as a snapshot is made meanwhile, it is there for loads.)
        let mapping = &self.region().mapping;
        let writable = self.is_writable();
        let populated = mapping.populate(writable).or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL) if writable => mapping.populate(false),
            _ => Err(error),
        });
        populated.map_err(|source| self.failed("populating a map of", source))
    }

    fn failed(&self, what: &'static str, source: std::io::Error) -> RegionError {
        RegionError::io(what, self.region().path.as_deref().unwrap_or("".as_ref()), source)
    }

    fn end(&self, at: u64, len: u64) -> Result<u64, MediaError> {
        let end = at.checked_add(len).filter(|&end| end <= self.region().bytes);
        end.ok_or(MediaError::OutOfBounds { at, len })
    }
}

impl Mapped {
    /// A view of `parts` of the region, each an offset and a length in bytes, whole pages, one
    /// behind the other. Nobody can store into it before [`View::allow`]. `faults` get the stores that wait where
    /// [`View::protect`] keeps them out later.
    ///
    /// # Errors
    /// [`RegionError::Unviewable`] for memory that has no file, and where a part does not begin and end
    /// with pages in which the region can be mapped.
    pub fn view(
        &self,
        parts: &[(u64, u64)],
        options: &ViewOptions,
        faults: Option<&StoreFaults>,
    ) -> Result<View, RegionError> {
        let (Some(file), Some(path)) = (self.file(), self.path.as_deref()) else {
            return Err(self.unviewable());
        };
        let parts = self.parts(parts, self.bytes)?;
        let writable = options.writable && !self.is_read_only();
        let place = Place { align: options.align, phase: options.phase };
        let mapping = Mapping::of_parts(file, &parts, libc::PROT_READ, self.is_sync(), &place)
            .map_err(|source| RegionError::io("mapping parts of", path, source))?;
        if self.kind == super::RegionKind::Tmpfs {
            mapping.prefer_huge_pages();
        }
        let bytes = mapping.len() as u64;
        let region = Mapped {
            bytes,
            bytes_writable: if writable { bytes } else { 0 },
            strategy: self.strategy,
            guard: Guard::None,
            bad: None,
            // Who fences says what for.
            dirty: None,
            page_bytes: self.page_bytes,
            kind: self.kind,
            memory: Memory::default(),
            durability: self.durability,
            path: self.path.clone(),
            locked: self.locked.clone(),
            emulation: self.emulation.clone(),
            mapping,
        };
        let base = region.mapping.base() as usize;
        let syncing = self.dirty.as_ref().map(Dirty::syncing).cloned().unwrap_or_default();
        let guarded = faults.filter(|_| writable).map(|it| it.guard(base, bytes as usize));
        Ok(View { guarded, syncing, region_bytes: self.bytes, ..View::over(region) })
    }

    pub(crate) fn file(&self) -> Option<&std::fs::File> {
        self.locked.as_ref().map(|locked| locked.file())
    }

    /// Whether its mappings are `MAP_SYNC`.
    fn is_sync(&self) -> bool {
        self.kind == super::RegionKind::DaxFile
    }

    fn unviewable(&self) -> RegionError {
        RegionError::Unviewable { kind: self.kind, page_bytes: self.page_bytes }
    }

    /// Parts of a region of so many bytes that can be mapped; those that go on in each other are one.
    fn parts(&self, parts: &[(u64, u64)], of: u64) -> Result<Vec<Part>, RegionError> {
        parts_within(parts, of, self.page_bytes).ok_or_else(|| self.unviewable())
    }
}

/// These parts, whole pages of a region of `of` bytes, or nothing where one is not; those that go on in each other are one.
pub(super) fn parts_within(parts: &[(u64, u64)], of: u64, page_bytes: u64) -> Option<Vec<Part>> {
    let mut joined: Vec<Part> = Vec::new();
    for &(at, len) in parts {
        at.checked_add(len).filter(|&end| len > 0 && end <= of)?;
        if !at.is_multiple_of(page_bytes) || !len.is_multiple_of(page_bytes) {
            return None;
        }
        match joined.last_mut() {
            Some(last) if last.at + last.len as u64 == at => last.len += len as usize,
            _ => joined.push(Part { at, len: len as usize }),
        }
    }
    (!joined.is_empty()).then_some(joined)
}
