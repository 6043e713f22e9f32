//! A raw region: read and written by blocks, each access opened for itself.
//!
//! What this file guarantees: no access leaves the region; between accesses it is as closed as [`ProtectIo`] says; what
//! was written is durable when the call returns, unless [`RawRegion::is_durable_when_written`] says that it waits for a
//! barrier. Nothing is atomic beyond aligned words.

use core::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::mapping::RawMapping;
use super::{ProtectIo, RawLines, RawMemory, Slowdown, WriteScheme};
use crate::region::Syncing;
use crate::{LINE_BYTES, MediaError, RegionError, RegionKind};

/// How a region is to be opened as a device of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawOptions {
    /// For reading alone, beside other readers.
    pub read_only: bool,
    /// What keeps others out. Chosen when `None`: a key where there are any free, else nothing.
    pub protect: Option<ProtectIo>,
    /// How what is written reaches the memory.
    pub scheme: WriteScheme,
    /// How much slower to read than this machine's memory.
    pub slow_read: Slowdown,
    /// How much slower to write.
    pub slow_write: Slowdown,
    /// Where sysfs is, which tells of the memory; `/sys` when `None`.
    pub sysfs: Option<&'static Path>,
}

impl Default for RawOptions {
    fn default() -> Self {
        let (slow_read, slow_write) = (Slowdown::NONE, Slowdown::NONE);
        Self {
            read_only: false,
            protect: None,
            scheme: WriteScheme::Nt,
            slow_read,
            slow_write,
            sysfs: None,
        }
    }
}

/// What a wrong pointer does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stray {
    /// It stores.
    Store,
    /// It loads.
    Load,
}

/// Why a raw region can't be read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum RawError {
    /// These are no whole lines of the region.
    Outside {
        /// The first byte.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// It was opened for reading.
    ReadOnly,
    /// The memory has failed.
    Media(MediaError),
    /// Somebody has made the file shorter: what is here is lost.
    Cut {
        /// The first byte that was asked for, and is not there.
        at: u64,
    },
    /// The file system has no space for it: somebody has taken that away.
    NoSpace {
        /// The first byte that was not stored.
        at: u64,
    },
    /// The pages could not be mapped.
    Mapping(io::Error),
    /// The system could not write what is below it.
    Unwritten(io::Error),
}

impl fmt::Display for RawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside { at, len } => {
                write!(f, "{len} bytes at {at:#x} are no whole lines of the region")
            }
            Self::ReadOnly => f.write_str("the region was opened for reading"),
            Self::Media(error) => error.fmt(f),
            Self::Cut { at } => {
                write!(f, "byte {at} is no part of the file any more, which was made shorter")
            }
            Self::NoSpace { at } => {
                write!(f, "byte {at} can't be stored: the file system has no space for it")
            }
            Self::Mapping(error) => write!(f, "pages can't be mapped: {error}"),
            Self::Unwritten(error) => write!(f, "what was written can't be made durable: {error}"),
        }
    }
}

impl core::error::Error for RawError {}

/// Why nothing was stored.
enum Unstored {
    NotBegun,
    Failed(RawError),
}

impl From<RawError> for Unstored {
    fn from(error: RawError) -> Self {
        Self::Failed(error)
    }
}

/// A region that is read and written by blocks, whole lines of it.
// (In this order: each access looks at the first two lines, which random reads drive out of the cache.)
#[repr(C, align(64))]
pub struct RawRegion<M = RawMapping> {
    options: RawOptions,
    memory: M,
    /// Of an ordinary file.
    syncing: Syncing,
}

impl RawRegion {
    /// Opens the file or device at `path`, all of it, locked as [`crate::Mapped::open`] does.
    ///
    /// # Errors
    /// As of [`crate::Mapped::open`]; the CPU has no protection keys, or not the instruction.
    pub fn open(path: impl AsRef<Path>, options: &RawOptions) -> Result<Self, RegionError> {
        Ok(Self::over(RawMapping::open(path.as_ref(), options)?, options))
    }

    /// What keeps others out.
    pub fn protect(&self) -> ProtectIo {
        self.memory.protect()
    }

    /// Does what a wrong pointer does: a load or a store at the region's first byte, past all that is here. The process dies of it where
    /// that is kept out. Where nothing is mapped, nothing can be hit.
    pub fn stray(&self, stray: Stray) {
        self.memory.stray(stray);
    }
}

impl<M: RawMemory> RawRegion<M> {
    /// A region of a memory that is open already: what the options say of opening, and of who is kept out, is the memory's.
    pub fn over(memory: M, options: &RawOptions) -> Self {
        Self { memory, options: *options, syncing: Syncing::default() }
    }

    /// What it is made of.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Bytes in it.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// What kind of memory that is.
    pub fn kind(&self) -> RegionKind {
        self.memory.kind()
    }

    /// How what is written reaches the memory.
    pub fn scheme(&self) -> WriteScheme {
        self.options.scheme
    }

    /// Whether it was opened for reading alone.
    pub fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    /// Whether what was written is durable when the call returns, or else at the next [`RawRegion::sync`], where before it what was
    /// written has been [written back](RawRegion::write_back).
    pub fn is_durable_when_written(&self) -> bool {
        self.scheme() != WriteScheme::Cached && self.kind() != RegionKind::File
    }

    /// Asks for the first lines of what is about to be read: they are on their way while it is looked at whether that may be.
    #[inline]
    pub fn prefetch(&self, at: u64, len: u64) {
        self.memory.prefetch(at, len);
    }

    /// Reads `into.len()` bytes from `at`.
    ///
    /// # Errors
    /// [`RawError::Outside`], [`RawError::Media`], [`RawError::Cut`], [`RawError::Mapping`].
    #[inline]
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), RawError> {
        self.check(at, into.len() as u64)?;
        if into.is_empty() {
            return Ok(());
        }
        self.options.slow_read.of(|| self.memory.load(at, into))
    }

    /// Writes bytes from `at` on.
    ///
    /// # Errors
    /// [`RawError::Outside`], [`RawError::ReadOnly`], [`RawError::Cut`], [`RawError::NoSpace`], [`RawError::Mapping`].
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), RawError> {
        self.write_run(at, bytes.len() as u64, std::iter::once(bytes))
    }

    /// Writes bytes from `at` on, if `begin` lets it: it is called when the region is open, before anything is stored, and what it gives is
    /// given when all is fenced. Where it gives nothing, nothing is stored.
    ///
    /// # Errors
    /// As of [`RawRegion::write`].
    pub fn write_if<P>(
        &self,
        at: u64,
        bytes: &[u8],
        begin: impl FnOnce() -> Option<P>,
    ) -> Result<Option<P>, RawError> {
        let mut begun = None;
        let stored = self.store(at, bytes.len() as u64, |lines| {
            begun = Some(begin().ok_or(Unstored::NotBegun)?);
            self.scheme().store(lines, 0, bytes);
            Ok(())
        });
        match stored {
            Ok(()) => Ok(begun),
            Err(Unstored::NotBegun) => Ok(None),
            Err(Unstored::Failed(error)) => Err(error),
        }
    }

    /// Writes parts one behind the other, `len` bytes together, and opens the region once for all of them.
    ///
    /// # Errors
    /// As of [`RawRegion::write`]. Parts that are not whole lines, or not as long as was said, are [`RawError::Outside`].
    pub fn write_run<'b>(
        &self,
        at: u64,
        len: u64,
        parts: impl Iterator<Item = &'b [u8]>,
    ) -> Result<(), RawError> {
        self.store(at, len, |lines| {
            let mut done = 0u64;
            for part in parts {
                let end = done + part.len() as u64;
                if end > len || !part.len().is_multiple_of(LINE_BYTES) {
                    return Err(RawError::Outside { at: at + done, len: part.len() as u64 });
                }
                self.scheme().store(lines, done, part);
                done = end;
            }
            match done == len {
                true => Ok(()),
                false => Err(RawError::Outside { at: at + done, len: len - done }),
            }
        })
    }

    /// Writes zeros.
    ///
    /// # Errors
    /// As of [`RawRegion::write`].
    pub fn zero(&self, at: u64, len: u64) -> Result<(), RawError> {
        self.store(at, len, |lines| {
            self.scheme().zero(lines, len);
            Ok(())
        })
    }

    /// Writes bytes, and tells for how long the region was open for that: from before it is opened until it is closed.
    ///
    /// # Errors
    /// As of [`RawRegion::write`].
    pub fn write_watched(&self, at: u64, bytes: &[u8]) -> Result<Duration, RawError> {
        self.check_store(at, bytes.len() as u64)?;
        let begin = Instant::now();
        self.memory.for_stores(at, bytes.len() as u64, |lines| {
            self.scheme().store(lines, 0, bytes);
            Ok::<(), RawError>(())
        })?;
        let open = begin.elapsed();
        self.memory.fence();
        Ok(open)
    }

    #[inline]
    fn store<E: From<RawError>>(
        &self,
        at: u64,
        len: u64,
        store: impl FnOnce(&mut M::Lines) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check_store(at, len)?;
        self.options.slow_write.of(|| {
            self.memory.for_stores(at, len, store)?;
            if self.scheme() != WriteScheme::Cached {
                self.memory.fence();
            }
            Ok(())
        })
    }

    fn check_store(&self, at: u64, len: u64) -> Result<(), RawError> {
        self.check(at, len)?;
        if self.is_read_only() { Err(RawError::ReadOnly) } else { Ok(()) }
    }

    /// Starts the write-back of what was written through the cache: [`RawRegion::sync`] of the same thread completes it.
    ///
    /// # Errors
    /// [`RawError::Outside`], [`RawError::Cut`], [`RawError::Mapping`].
    pub fn write_back(&self, at: u64, len: u64) -> Result<(), RawError> {
        self.check(at, len)?;
        self.memory.for_write_back(at, len, |lines| lines.write_back(0, len))
    }

    /// Makes durable what this thread has written, or has begun to write back; of an ordinary file, what anybody has.
    ///
    /// # Errors
    /// [`RawError::Unwritten`], and from then on always.
    pub fn sync(&self) -> Result<(), RawError> {
        self.memory.fence();
        if self.kind() != RegionKind::File || self.is_read_only() {
            return Ok(());
        }
        let synced = self.syncing.call(|| self.memory.sync_file());
        synced.map_err(RawError::Unwritten)
    }

    #[inline]
    fn check(&self, at: u64, len: u64) -> Result<(), RawError> {
        let line = LINE_BYTES as u64;
        let is_whole = at.is_multiple_of(line) && len.is_multiple_of(line);
        match at.checked_add(len) {
            Some(end) if is_whole && end <= self.bytes() => Ok(()),
            _ => Err(RawError::Outside { at, len }),
        }
    }
}

/// `tmpfs file, 1048576 bytes, nt, protected by key`.
impl fmt::Display for RawRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, bytes, scheme) = (self.kind(), self.bytes(), self.scheme());
        write!(f, "{kind}, {bytes} bytes, {scheme}, protected by {}", self.protect())
    }
}
