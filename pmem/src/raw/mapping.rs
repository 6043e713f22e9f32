//! A raw region's memory as this machine has it: mapped wholly and guarded, or mapped where it is touched.
//!
//! What this file guarantees: no access leaves what it has opened; between accesses the memory is as closed as [`ProtectIo`] says.

use core::arch::asm;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::private::Window;
use super::{ProtectIo, RawError, RawLines, RawMemory, RawOptions, Stray};
use crate::fault::bad::Lost;
use crate::fault::{self, Handled, cut, load};
use crate::flush::{LineStore, WriteBack, x86};
use crate::region::{ChosenGuard, Locked, Source};
use crate::{
    FlushStrategy, LINE_BYTES, Mapped, MediaError, Medium, RegionError, RegionKind, RegionOptions,
};

/// Lines that are asked for before a load is looked at.
const PREFETCHED_LINES: u64 = 16;

/// Pages are mapped for each access.
struct Private {
    locked: Locked,
    bytes: u64,
    page_bytes: u64,
    kind: RegionKind,
    flags: libc::c_int,
}

// (What it is stands in front of what each load looks at, which a box would put in a line of its own.)
#[allow(clippy::large_enum_variant)]
#[repr(C, u8)]
enum Access {
    Whole(Mapped),
    Private(Private),
}

/// A file or device that is mapped, and the instructions that it is stored to by.
#[repr(C)]
pub struct RawMapping {
    protect: ProtectIo,
    line_store: LineStore,
    write_back: WriteBack,
    access: Access,
}

/// Lines of a mapping.
pub struct MappedLines {
    base: *mut u8,
    len: u64,
    line_store: LineStore,
    write_back: WriteBack,
}

impl MappedLines {
    #[inline(always)]
    fn place(&self, at: u64, len: u64) -> *mut u8 {
        let end = at.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "lines that are not open");
        self.base.wrapping_add(at as usize)
    }
}

impl RawLines for MappedLines {
    #[inline(always)]
    fn stream(&mut self, at: u64, lines: &[[u8; LINE_BYTES]]) {
        let to = self.place(at, (lines.len() * LINE_BYTES) as u64);
        // SAFETY: lines of a mapping that is open for stores; the CPU was asked for the instruction.
        unsafe { x86::stream_lines(self.line_store, to, lines) };
    }

    #[inline(always)]
    fn store(&mut self, at: u64, words: &[[u8; 8]]) {
        let to = self.place(at, words.len() as u64 * 8);
        // SAFETY: words of a mapping that is open for stores.
        unsafe { x86::store_words(to, words) };
    }

    #[inline(always)]
    fn write_back(&mut self, at: u64, len: u64) {
        let from = self.place(at, len);
        for line in (0..len as usize).step_by(LINE_BYTES) {
            // SAFETY: a line of the mapping; the CPU was asked for the instruction.
            unsafe { x86::write_back(self.write_back, from.wrapping_add(line)) };
        }
    }
}

impl RawMapping {
    /// Opens the file or device at `path`, all of it.
    pub(super) fn open(path: &Path, options: &RawOptions) -> Result<Self, RegionError> {
        let (guard, protect) = choose(options.protect)?;
        let access = match guard {
            Some(guard) => Access::Whole(open_whole(path, options, guard)?),
            None => Access::Private(Private::open(path, options)?),
        };
        let caches_survive = match &access {
            Access::Whole(region) => region.memory().caches_survive(),
            Access::Private(_) => false,
        };
        let (line_store, write_back) = options.scheme.instructions(caches_survive)?;
        Ok(Self { access, protect, line_store, write_back })
    }

    pub(super) fn protect(&self) -> ProtectIo {
        self.protect
    }

    /// Loads what is to be opened first. (Not in the way of loads that need not: what is not there need not come from memory.)
    #[inline(never)]
    fn load_opened(&self, at: u64, into: &mut [u8]) -> Result<(), RawError> {
        match &self.access {
            Access::Whole(region) => {
                let loaded = region.in_window(|| region.load(at, into));
                loaded.map_err(|error| unloaded(region, error))
            }
            Access::Private(private) => private.load(at, into),
        }
    }

    #[inline(always)]
    fn lines(&self, base: *mut u8, len: u64) -> MappedLines {
        MappedLines { base, len, line_store: self.line_store, write_back: self.write_back }
    }

    /// Does what a wrong pointer does.
    pub(super) fn stray(&self, stray: Stray) {
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
}

impl RawMemory for RawMapping {
    type Lines = MappedLines;

    fn bytes(&self) -> u64 {
        match &self.access {
            Access::Whole(region) => Medium::bytes(region),
            Access::Private(private) => private.bytes,
        }
    }

    fn kind(&self) -> RegionKind {
        match &self.access {
            Access::Whole(region) => region.kind(),
            Access::Private(private) => private.kind,
        }
    }

    #[inline]
    fn prefetch(&self, at: u64, len: u64) {
        if let Access::Whole(region) = &self.access {
            region.prefetch_lines(at, (len / LINE_BYTES as u64).min(PREFETCHED_LINES));
        }
    }

    #[inline]
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), RawError> {
        match &self.access {
            Access::Whole(region) if self.protect != ProtectIo::KeyRw => {
                region.load(at, into).map_err(|error| unloaded(region, error))
            }
            _ => self.load_opened(at, into),
        }
    }

    #[inline]
    fn for_stores<E: From<RawError>>(
        &self,
        at: u64,
        len: u64,
        store: impl FnOnce(&mut MappedLines) -> Result<(), E>,
    ) -> Result<(), E> {
        match &self.access {
            Access::Whole(region) => {
                let stored = region.store_by(at, len, |to| store(&mut self.lines(to, len)));
                stored.map_err(RawError::Mapping)??;
                Ok(kept(region, at, len)?)
            }
            Access::Private(private) => {
                let window = private.map_to_store(at, len)?;
                store(&mut self.lines(window.at(), len))
            }
        }
    }

    fn for_write_back(
        &self,
        at: u64,
        len: u64,
        write_back: impl FnOnce(&mut MappedLines),
    ) -> Result<(), RawError> {
        match &self.access {
            Access::Whole(region) => {
                let base = region.as_ptr().wrapping_add(at as usize).cast_mut();
                let before = region.pages_without_space(at, len);
                region.in_window(|| write_back(&mut self.lines(base, len)));
                match kept(region, at, len) {
                    // (Of pages that had none before, who has stored there was told.)
                    Err(RawError::NoSpace { .. })
                        if region.pages_without_space(at, len) == before =>
                    {
                        Ok(())
                    }
                    other => other,
                }
            }
            Access::Private(private) => {
                let window = private.map(at, len, libc::PROT_READ)?;
                write_back(&mut self.lines(window.at(), len));
                Ok(())
            }
        }
    }

    #[inline(always)]
    fn fence(&self) {
        x86::fence();
    }

    fn sync_file(&self) -> std::io::Result<()> {
        match &self.access {
            Access::Whole(region) => region.sync_file(),
            Access::Private(private) => private.locked.file().sync_data(),
        }
    }
}

/// Whether what was stored is where it was to be.
#[inline(always)]
fn kept(region: &Mapped, at: u64, len: u64) -> Result<(), RawError> {
    match region.lost(at, len) {
        Some(lost) => Err(lost.into()),
        None => Ok(()),
    }
}

impl From<Lost> for RawError {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Cut { at } => Self::Cut { at },
            Lost::NoSpace { at } => Self::NoSpace { at },
        }
    }
}

/// Why bytes could not be loaded.
#[cold]
#[inline(never)]
fn unloaded(region: &Mapped, error: MediaError) -> RawError {
    let MediaError::Poisoned { at } = error else { return RawError::Media(error) };
    match region.lost(at, 1) {
        Some(lost) => lost.into(),
        None if region.file().is_some_and(|file| ends_before(file, at)) => RawError::Cut { at },
        None => RawError::Media(error),
    }
}

/// Whether it is a file that does not have this byte.
fn ends_before(file: &File, at: u64) -> bool {
    cut::file_bytes(file.as_raw_fd()).is_some_and(|bytes| bytes <= at)
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
    let mut opened = Mapped::open_guarded(path, &region, guard)?;
    opened.survive_losses();
    Ok(opened)
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
        // (Beside what it costs to map pages and to take them away again, to ask costs little.)
        let bytes = cut::file_bytes(self.locked.file().as_raw_fd()).unwrap_or(u64::MAX);
        if bytes < at + len {
            return Err(RawError::Cut { at: bytes.max(at) });
        }
        Window::open(self.locked.file(), self.page_bytes, (at, len), (rights, self.flags))
            .map_err(RawError::Mapping)
    }

    /// The same, for stores: they find memory there.
    fn map_to_store(&self, at: u64, len: u64) -> Result<Window, RawError> {
        let window = self.map(at, len, libc::PROT_READ | libc::PROT_WRITE)?;
        match window.populate().map_err(|error| error.raw_os_error()) {
            Ok(()) => Ok(window),
            Err(Some(libc::EHWPOISON)) => Err(RawError::Media(MediaError::Poisoned { at })),
            Err(_) if ends_before(self.locked.file(), at + len - 1) => Err(RawError::Cut { at }),
            Err(_) => Err(RawError::NoSpace { at }),
        }
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
