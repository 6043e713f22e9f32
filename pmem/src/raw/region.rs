//! A raw region: read and written by blocks, each access opened for itself.
//!
//! What this file guarantees: no access leaves the region; between accesses it is as closed as [`ProtectIo`] says; what
//! was written is durable when the call returns, unless [`RawRegion::is_durable_when_written`] says that it waits for a
//! barrier. Nothing is atomic beyond aligned words.

use core::arch::asm;
use core::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::private::Window;
use super::stores::Stores;
use super::{ProtectIo, Slowdown, WriteScheme};
use crate::fault::{self, Handled, load};
use crate::flush::x86;
use crate::region::{ChosenGuard, Locked, Source, Syncing};
use crate::{
    FlushStrategy, LINE_BYTES, Mapped, MediaError, Medium, RegionError, RegionKind, RegionOptions,
};

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
            Self::Mapping(error) => write!(f, "pages can't be mapped: {error}"),
            Self::Unwritten(error) => write!(f, "what was written can't be made durable: {error}"),
        }
    }
}

impl core::error::Error for RawError {}

/// Pages are mapped for each access.
struct Private {
    locked: Locked,
    bytes: u64,
    page_bytes: u64,
    kind: RegionKind,
    flags: libc::c_int,
}

enum Access {
    Whole(Box<Mapped>),
    Private(Private),
}

/// A region that is read and written by blocks, whole lines of it.
pub struct RawRegion {
    access: Access,
    stores: Stores,
    protect: ProtectIo,
    options: RawOptions,
    /// Of an ordinary file.
    syncing: Syncing,
}

impl RawRegion {
    /// Opens the file or device at `path`, all of it, locked as [`Mapped::open`] does.
    ///
    /// # Errors
    /// As of [`Mapped::open`]; the CPU has no protection keys, or not the instruction.
    pub fn open(path: impl AsRef<Path>, options: &RawOptions) -> Result<Self, RegionError> {
        let path = path.as_ref();
        let (guard, protect) = choose(options.protect)?;
        let access = match guard {
            Some(guard) => Access::Whole(Box::new(open_whole(path, options, guard)?)),
            None => Access::Private(Private::open(path, options)?),
        };
        let caches_survive = match &access {
            Access::Whole(region) => region.memory().caches_survive(),
            Access::Private(_) => false,
        };
        let stores = Stores::new(options.scheme, caches_survive)?;
        Ok(Self { access, stores, protect, options: *options, syncing: Syncing::default() })
    }

    /// Bytes in it.
    pub fn bytes(&self) -> u64 {
        match &self.access {
            Access::Whole(region) => Medium::bytes(&**region),
            Access::Private(private) => private.bytes,
        }
    }

    /// What it is made of.
    pub fn kind(&self) -> RegionKind {
        match &self.access {
            Access::Whole(region) => region.kind(),
            Access::Private(private) => private.kind,
        }
    }

    /// What keeps others out.
    pub fn protect(&self) -> ProtectIo {
        self.protect
    }

    /// How what is written reaches the memory.
    pub fn scheme(&self) -> WriteScheme {
        self.stores.scheme()
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

    /// Does what a wrong pointer does: a load or a store at the region's first byte, past all that is here. The process dies of it where
    /// that is kept out. Where nothing is mapped, nothing can be hit.
    pub fn stray(&self, stray: Stray) {
        let Access::Whole(region) = &self.access else { return };
        let target = region.as_ptr();
        // SAFETY: a byte of the mapping, which no reference of the language is to; to die by a signal is what it is for.
        unsafe {
            match stray {
                Stray::Store => asm!("mov byte ptr [{to}], 1", to = in(reg) target),
                Stray::Load => {
                    asm!("mov {byte}, byte ptr [{from}]", from = in(reg) target, byte = out(reg_byte) _);
                }
            }
        }
    }

    /// Reads `into.len()` bytes from `at`.
    ///
    /// # Errors
    /// [`RawError::Outside`], [`RawError::Media`], [`RawError::Mapping`].
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), RawError> {
        self.check(at, into.len() as u64)?;
        if into.is_empty() {
            return Ok(());
        }
        self.options.slow_read.of(|| match &self.access {
            Access::Whole(region) if self.protect == ProtectIo::KeyRw => {
                region.in_window(|| region.load(at, into)).map_err(RawError::Media)
            }
            Access::Whole(region) => region.load(at, into).map_err(RawError::Media),
            Access::Private(private) => private.load(at, into),
        })
    }

    /// Writes bytes from `at` on.
    ///
    /// # Errors
    /// [`RawError::Outside`], [`RawError::ReadOnly`], [`RawError::Mapping`].
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), RawError> {
        self.write_run(at, bytes.len() as u64, std::iter::once(bytes))
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
        self.store(at, len, |to| {
            let mut done = 0u64;
            for part in parts {
                let end = done + part.len() as u64;
                if end > len || !part.len().is_multiple_of(LINE_BYTES) {
                    return Err(RawError::Outside { at: at + done, len: part.len() as u64 });
                }
                // SAFETY: the part is inside of what was opened for stores.
                unsafe { self.stores.store(to.wrapping_add(done as usize), part) };
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
        self.store(at, len, |to| {
            // SAFETY: what was opened for stores.
            unsafe { self.stores.zero(to, len as usize) };
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
        self.in_open(at, bytes.len() as u64, |to| {
            // SAFETY: what was opened for stores.
            unsafe { self.stores.store(to, bytes) };
            Ok(())
        })?;
        let open = begin.elapsed();
        x86::fence();
        Ok(open)
    }

    #[inline]
    fn store(
        &self,
        at: u64,
        len: u64,
        store: impl FnOnce(*mut u8) -> Result<(), RawError>,
    ) -> Result<(), RawError> {
        self.check_store(at, len)?;
        self.options.slow_write.of(|| {
            self.in_open(at, len, store)?;
            if self.scheme() != WriteScheme::Cached {
                x86::fence();
            }
            Ok(())
        })
    }

    /// Opens the region for stores there, and closes it again.
    #[inline]
    fn in_open(
        &self,
        at: u64,
        len: u64,
        store: impl FnOnce(*mut u8) -> Result<(), RawError>,
    ) -> Result<(), RawError> {
        match &self.access {
            Access::Whole(region) => region.store_by(at, len, store).map_err(RawError::Mapping)?,
            Access::Private(private) => {
                let window = private.map(at, len, libc::PROT_READ | libc::PROT_WRITE)?;
                store(window.at())
            }
        }
    }

    fn check_store(&self, at: u64, len: u64) -> Result<(), RawError> {
        self.check(at, len)?;
        if self.is_read_only() { Err(RawError::ReadOnly) } else { Ok(()) }
    }

    /// Starts the write-back of what was written through the cache: [`RawRegion::sync`] of the same thread completes it.
    ///
    /// # Errors
    /// [`RawError::Outside`], [`RawError::Mapping`].
    pub fn write_back(&self, at: u64, len: u64) -> Result<(), RawError> {
        self.check(at, len)?;
        // SAFETY: lines of the mapping.
        let lines = |base: *mut u8| unsafe { self.stores.write_back(base, len as usize) };
        match &self.access {
            Access::Whole(region) => {
                region.in_window(|| lines(region.as_ptr().wrapping_add(at as usize).cast_mut()));
            }
            Access::Private(private) => lines(private.map(at, len, libc::PROT_READ)?.at()),
        }
        Ok(())
    }

    /// Makes durable what this thread has written, or has begun to write back; of an ordinary file, what anybody has.
    ///
    /// # Errors
    /// [`RawError::Unwritten`], and from then on always.
    pub fn sync(&self) -> Result<(), RawError> {
        x86::fence();
        if self.kind() != RegionKind::File || self.is_read_only() {
            return Ok(());
        }
        let synced = self.syncing.call(|| match &self.access {
            Access::Whole(region) => region.sync_file(),
            Access::Private(private) => private.locked.file().sync_data(),
        });
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
        write!(f, "{kind}, {bytes} bytes, {scheme}, protected by {}", self.protect)
    }
}

/// The guard, `None` for pages that are mapped when they are wanted, and what it is.
fn choose(protect: Option<ProtectIo>) -> Result<(Option<ChosenGuard>, ProtectIo), RegionError> {
    let Some(protect) = protect else {
        return Ok(match ChosenGuard::key() {
            Ok(guard) => (Some(guard), ProtectIo::Key),
            Err(_) => (Some(ChosenGuard::None), ProtectIo::None),
        });
    };
    let guard = match protect {
        ProtectIo::None => Some(ChosenGuard::None),
        ProtectIo::Key => Some(ChosenGuard::key()?),
        ProtectIo::KeyRw => Some(ChosenGuard::key_for_loads()?),
        ProtectIo::Mprotect => Some(ChosenGuard::Mprotect),
        ProtectIo::PrivateMap => None,
    };
    Ok((guard, protect))
}

fn open_whole(
    path: &Path,
    options: &RawOptions,
    guard: ChosenGuard,
) -> Result<Mapped, RegionError> {
    // (Barriers see to an ordinary file themselves.)
    let (line_store, write_back) = options.scheme.instructions(false)?;
    let flush = FlushStrategy::Instructions { line_store, write_back };
    let region =
        RegionOptions::new().read_only(options.read_only).flush(flush).sysfs(options.sysfs);
    Mapped::open_guarded(path, &region, guard)
}

impl Private {
    fn open(path: &Path, options: &RawOptions) -> Result<Self, RegionError> {
        let io = |source| RegionError::io("mapping", path, source);
        fault::install(Handled::Bus).map_err(io)?;
        let (locked, source) = Source::open(
            path,
            &RegionOptions::new().read_only(options.read_only).sysfs(options.sysfs),
        )?;
        let page_bytes = source.page_bytes;
        let bytes = source.bytes - source.bytes % page_bytes;
        let sync = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
        let may_sync = matches!(source.kind, RegionKind::File | RegionKind::DeviceDax);
        let first = (0, page_bytes);
        let is_sync = may_sync
            && Window::open(locked.file(), page_bytes, first, (libc::PROT_READ, sync)).is_ok();
        let flags = if is_sync { sync } else { libc::MAP_SHARED };
        let kind = match source.kind {
            RegionKind::File if is_sync => RegionKind::DaxFile,
            kind => kind,
        };
        Ok(Self { locked, bytes, page_bytes, kind, flags })
    }

    fn map(&self, at: u64, len: u64, rights: libc::c_int) -> Result<Window, RawError> {
        if len == 0 {
            return Err(RawError::Outside { at, len });
        }
        Window::open(self.locked.file(), self.page_bytes, (at, len), (rights, self.flags))
            .map_err(RawError::Mapping)
    }

    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), RawError> {
        let window = self.map(at, into.len() as u64, libc::PROT_READ)?;
        // SAFETY: the bytes are in the window; the handler was installed when the region was opened.
        let loaded = unsafe { load::bytes(window.at(), 0, into) };
        loaded.map_err(|error| {
            RawError::Media(match error {
                MediaError::Poisoned { at: in_window } => {
                    MediaError::Poisoned { at: at + in_window }
                }
                other => other,
            })
        })
    }
}
