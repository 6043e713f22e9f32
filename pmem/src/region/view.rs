//! Views: parts of a region mapped once more, one behind the other, for a program to use as memory.
//!
//! What this file guarantees: a view shows exactly the parts it was made of, and is writable by the
//! whole process where it was asked to be: it is what a program asks for by name, and no window
//! guards it. Its memory goes to the program's own pages only; who makes it says which those are.
//! No child of `fork` inherits it.

use super::dirty::{Dirty, Syncing};
use super::mapping::{Mapping, Part, Place};
use super::{Durability, Mapped, RegionError};
use crate::flush::FlushStrategy;
use crate::windows::Guard;
use crate::{Counters, Door, MediaError, Medium};

/// How a view is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViewOptions {
    /// The program may store into it.
    pub writable: bool,
    /// All of it is there at once: no access has to wait for the system.
    pub populate: bool,
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
    door: Door<Mapped>,
    counters: Counters,
    /// What it shares with the region that it is of.
    syncing: Syncing,
}

impl View {
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

    /// Shows other parts of `region`, the one that the view is of, from offset `at` on, with the view's
    /// own rights. Other threads see the one or the other. If it fails, any of them may be shown.
    pub fn replace(
        &self,
        region: &Mapped,
        at: u64,
        parts: &[(u64, u64)],
    ) -> Result<(), RegionError> {
        let parts = region.parts(parts)?;
        let bytes: u64 = parts.iter().map(|part| part.len as u64).sum();
        let path = region.path.as_deref().unwrap_or("".as_ref());
        let end = at.checked_add(bytes).filter(|&end| end <= self.bytes());
        let aligned = at.is_multiple_of(self.region().page_bytes);
        let Some(file) = region.file().filter(|_| end.is_some() && aligned) else {
            return Err(region.unviewable());
        };
        let (to, rights) = (&self.region().mapping, rights(self.is_writable()));
        let put = to.put(file, at as usize, &parts, rights, region.is_sync());
        put.map_err(|source| RegionError::io("mapping parts of", path, source))
    }

    fn end(&self, at: u64, len: u64) -> Result<u64, MediaError> {
        let end = at.checked_add(len).filter(|&end| end <= self.region().bytes);
        end.ok_or(MediaError::OutOfBounds { at, len })
    }
}

/// What a view is mapped with.
fn rights(writable: bool) -> libc::c_int {
    libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 }
}

impl Mapped {
    /// A view of `parts` of the region, each an offset and a length in bytes, whole pages, one
    /// behind the other.
    ///
    /// # Errors
    /// [`RegionError::Unviewable`] for memory that has no file, and where a part does not begin and end
    /// with pages in which the region can be mapped.
    pub fn view(&self, parts: &[(u64, u64)], options: &ViewOptions) -> Result<View, RegionError> {
        let (Some(file), Some(path)) = (self.file(), self.path.as_deref()) else {
            return Err(self.unviewable());
        };
        let parts = self.parts(parts)?;
        let writable = options.writable && !self.is_read_only();
        let place = Place { align: options.align, phase: options.phase };
        let mapping = Mapping::of_parts(file, &parts, rights(writable), self.is_sync(), &place)
            .map_err(|source| RegionError::io("mapping parts of", path, source))?;
        if self.kind == super::RegionKind::Tmpfs {
            mapping.prefer_huge_pages();
        }
        if options.populate {
            mapping
                .populate(writable)
                .map_err(|source| RegionError::io("populating a map of", path, source))?;
        }
        let bytes = mapping.len() as u64;
        let door = Door::new(Mapped {
            bytes,
            bytes_writable: if writable { bytes } else { 0 },
            strategy: self.strategy,
            guard: Guard::None,
            bad: None,
            // Who fences says what for.
            dirty: None,
            page_bytes: self.page_bytes,
            kind: self.kind,
            durability: self.durability,
            path: self.path.clone(),
            _locked: None,
            emulation: self.emulation.clone(),
            mapping,
        });
        let syncing = self.dirty.as_ref().map(Dirty::syncing).cloned().unwrap_or_default();
        Ok(View { door, counters: Counters::new(), syncing })
    }

    fn file(&self) -> Option<&std::fs::File> {
        self._locked.as_ref().map(super::lock::Locked::file)
    }

    /// Whether its mappings are `MAP_SYNC`.
    fn is_sync(&self) -> bool {
        self.kind == super::RegionKind::DaxFile
    }

    fn unviewable(&self) -> RegionError {
        RegionError::Unviewable { kind: self.kind, page_bytes: self.page_bytes }
    }

    /// Parts that can be mapped; those that go on in each other are one.
    fn parts(&self, parts: &[(u64, u64)]) -> Result<Vec<Part>, RegionError> {
        let mut joined: Vec<Part> = Vec::new();
        for &(at, len) in parts {
            let end = at.checked_add(len).filter(|&end| len > 0 && end <= self.bytes);
            if end.is_none()
                || !at.is_multiple_of(self.page_bytes)
                || !len.is_multiple_of(self.page_bytes)
            {
                return Err(self.unviewable());
            }
            match joined.last_mut() {
                Some(last) if last.at + last.len as u64 == at => last.len += len as usize,
                _ => joined.push(Part { at, len: len as usize }),
            }
        }
        if joined.is_empty() { Err(self.unviewable()) } else { Ok(joined) }
    }
}
