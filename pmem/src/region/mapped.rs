//! The mapped region as a [`Medium`].
//!
//! What this file guarantees: no load or store leaves the region, whatever the
//! caller asks for; every store is seen by the guard before and, under `msync`, by
//! the list of what is dirty after.

use core::fmt;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dirty::Dirty;
use super::lock::Locked;
use super::mapping::Mapping;
use super::memory::Memory;
use super::pages::{self, MappedPages};
use super::{Durability, RegionKind};
use crate::crc32c::wide::{self, PART};
use crate::emulation::{Emulated, Emulation};
use crate::fault::bad::{BadBytes, Lost, Remapping};
use crate::fault::{compared, load};
use crate::flush::{FlushStrategy, summed, x86};
use crate::medium::{load_compared_plainly, store_summed_plainly};
use crate::windows::{Guard, MappedWindow, WindowMode};
use crate::{LINE_BYTES, Line, Losses, MediaError, Medium};

const WORD_BYTES: u64 = 8;
const CRC_BYTES: u64 = 4;

/// A region in this process's address space: a file, a device or memory.
///
/// A load from memory that is bad, or that was cut off the file by somebody else,
/// gives [`MediaError::Poisoned`]. For a store there the page is mapped anew, and what else was in it
/// can't be loaded until it is stored, too; where that does not help, SIGBUS kills the process. A
/// child of `fork` does not inherit the mapping.
///
/// It can take the times of a slower medium ([`RegionOptions::emulate`](super::RegionOptions::emulate)),
/// for what goes through the door: who loads and stores by [`Mapped::as_ptr`] finds this machine's memory.
// (In this order: a load looks at no more than the first 64 bytes.)
#[derive(Debug)]
#[repr(C)]
pub struct Mapped {
    // Dropped in this order: unmapped, then what the handler knows of it, then the key given back, then the lock.
    pub(super) mapping: Mapping,
    /// Lines that are not to be believed; none is known of what has no file, and of views.
    pub(crate) bad: Option<Arc<BadBytes>>,
    pub(crate) bytes: u64,
    /// 0 if read-only.
    pub(super) bytes_writable: u64,
    pub(super) emulation: Option<Arc<Emulation>>,
    pub(super) strategy: FlushStrategy,
    pub(super) guard: Guard,
    pub(super) dirty: Option<Dirty>,
    pub(super) page_bytes: u64,
    pub(super) kind: RegionKind,
    pub(super) memory: Memory,
    pub(super) durability: Durability,
    pub(super) path: Option<PathBuf>,
    /// Of a view, that of its region.
    pub(super) locked: Option<Arc<Locked>>,
}

impl Mapped {
    /// What it is made of.
    pub fn kind(&self) -> RegionKind {
        self.kind
    }

    /// What the system knows of the memory below it.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// By what pages the kernel has mapped what has been used of it so far; `None` where it does not tell.
    pub fn mapped_pages(&self) -> Option<MappedPages> {
        if self.page_bytes > super::kind::PAGE_BYTES {
            // All of it, by these. (To ask the kernel would have it take apart what it has mapped by pages of 1 GiB.)
            return Some(MappedPages { bytes: self.bytes, huge_bytes: self.bytes });
        }
        pages::mapped(self.as_ptr(), self.bytes).ok()
    }

    /// How stores reach the memory.
    pub fn strategy(&self) -> FlushStrategy {
        self.strategy
    }

    /// What guards it against stores outside windows.
    pub fn window_mode(&self) -> WindowMode {
        self.guard.mode()
    }

    /// The worst event that what was fenced survives.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Whether it was opened for loads alone.
    pub fn is_read_only(&self) -> bool {
        self.bytes_writable == 0
    }

    /// Bytes of the pages that it is mapped and guarded in.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// The file or device, if it is one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The slower medium whose times it takes; `None` if it is as fast as it is.
    pub fn emulated(&self) -> Option<Emulated> {
        self.emulation.as_ref().map(|emulation| emulation.emulated())
    }

    /// Calls of `msync` that fences have made.
    pub fn msync_calls(&self) -> u64 {
        self.dirty.as_ref().map_or(0, Dirty::calls)
    }

    /// Where the region is in this process's address space: for what must name its
    /// memory to the system or to another library. Stores through it outside windows
    /// are what the guard is there to stop.
    pub fn as_ptr(&self) -> *const u8 {
        self.mapping.base()
    }

    /// Where a store of this window to `at .. at + len` goes.
    #[inline(always)]
    #[track_caller]
    fn target(&self, window: &mut MappedWindow, at: u64, len: u64) -> *mut u8 {
        let end = at.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.bytes_writable),
            "store of {len} bytes at {at:#x} outside the writable region"
        );
        self.guard.before_store(window, at, len);
        self.mapping.base().wrapping_add(at as usize)
    }

    /// Opens the region for stores to `at .. at + len`, whose address `store` is given, and closes it again. What it has stored
    /// is all of that, unless it fails.
    ///
    /// # Errors
    /// The pages can't be opened.
    #[inline]
    pub(crate) fn store_by<E>(
        &self,
        at: u64,
        len: u64,
        store: impl FnOnce(*mut u8) -> Result<(), E>,
    ) -> std::io::Result<Result<(), E>> {
        let end = at.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.bytes_writable), "stores outside the region");
        let mut window = self.guard.open();
        let opened = self.guard.try_before_store(&mut window, at, len);
        let done = opened.map(|()| store(self.mapping.base().wrapping_add(at as usize)));
        self.guard.close(&mut window);
        if matches!(done, Ok(Ok(()))) {
            self.stored_bytes(at, len);
        }
        done
    }

    /// Does what needs the region to be open, though it stores nothing.
    #[inline]
    pub(crate) fn in_window<R>(&self, load: impl FnOnce() -> R) -> R {
        let mut window = self.guard.open();
        let done = load();
        self.guard.close(&mut window);
        done
    }

    /// From now on stores to what is cut off its file, or what that has no space for, kill nobody: [`Mapped::lost`] tells of them.
    pub(crate) fn survive_losses(&mut self) {
        let Some(locked) = self.locked.as_ref().filter(|_| !self.is_read_only()) else { return };
        let (file, base) = (locked.file().as_raw_fd(), self.mapping.base() as usize);
        let remapping = Remapping { base, file: -1, kind: 0, key: self.guard.key_number() };
        let bad = self.bad.get_or_insert_with(|| BadBytes::attach(remapping, &[]));
        bad.survive_losses(file, self.bytes);
    }

    /// After stores: the first of these bytes that are lost, and nobody has stored.
    #[inline(always)]
    pub(crate) fn lost(&self, at: u64, len: u64) -> Option<Lost> {
        self.bad.as_ref().filter(|bad| bad.any())?.lost(at, len)
    }

    /// How many pages of these bytes the file system has no space for.
    #[inline(always)]
    pub(crate) fn pages_without_space(&self, at: u64, len: u64) -> usize {
        let bad = self.bad.as_ref().filter(|bad| bad.any());
        bad.map_or(0, |bad| bad.pages_without_space(at, len))
    }

    /// Has the system write the file below it.
    pub(crate) fn sync_file(&self) -> std::io::Result<()> {
        self.locked.as_ref().map_or(Ok(()), |locked| locked.file().sync_data())
    }

    #[inline(always)]
    fn stored(&self, at: u64) {
        if let Some(dirty) = &self.dirty {
            dirty.mark(at);
        }
    }

    /// After a load: whether what it has given is to be believed.
    #[inline(always)]
    fn believed(&self, at: u64, len: u64) -> Result<(), MediaError> {
        match &self.bad {
            Some(bad) if bad.any() => match bad.first(at, len) {
                Some(at) => Err(MediaError::Poisoned { at }),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// After a store.
    #[inline(always)]
    fn stored_bytes(&self, at: u64, len: u64) {
        if let Some(bad) = self.bad.as_ref().filter(|bad| bad.any()) {
            bad.stored(at, len);
        }
    }

    #[cold]
    fn msync(&self) -> Result<(), MediaError> {
        let Some(dirty) = &self.dirty else { return Ok(()) };
        dirty.sync(|at, len| self.mapping.msync(at, len)).map_err(|_| MediaError::Unwritten)
    }
}

impl Medium for Mapped {
    type Window = MappedWindow;

    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn losses(&self) -> Option<Losses> {
        self.memory.losses
    }

    fn for_each_listed_bad(&self, each: &mut dyn FnMut(u64, u64)) {
        for piece in &self.memory.listed_bad {
            each(piece.start, piece.end - piece.start);
        }
    }

    fn for_each_held(&self, each: &mut dyn FnMut(u64, u64)) {
        // (Where the system has no such locks nobody holds any; nor does anybody of memory without a file.)
        let _ = self.for_each_locked((0, self.bytes), each);
    }

    #[inline]
    fn open(&self) -> MappedWindow {
        let mut window = self.guard.open();
        if let Some(emulation) = &self.emulation {
            window.taken = emulation.opened();
        }
        window
    }

    #[inline]
    fn close(&self, window: &mut MappedWindow) {
        self.guard.close(window);
        if let Some(emulation) = &self.emulation {
            emulation.closed(&window.taken);
        }
    }

    #[inline]
    fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        let end = at.checked_add(WORD_BYTES);
        if end.is_none_or(|end| end > self.bytes) {
            let len = WORD_BYTES;
            return Err(MediaError::OutOfBounds { at, len });
        }
        if let Some(emulation) = &self.emulation {
            emulation.before_load(WORD_BYTES);
        }
        // SAFETY: the word is in the mapping; opening a region installs the handler.
        let word = unsafe { load::word(self.mapping.base(), at) }?;
        self.believed(at, WORD_BYTES)?;
        Ok(word)
    }

    #[inline]
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        let len = into.len() as u64;
        let end = at.checked_add(len);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(MediaError::OutOfBounds { at, len });
        }
        if let Some(emulation) = &self.emulation {
            emulation.before_load(len);
        }
        // SAFETY: the bytes are in the mapping; opening a region installs the handler.
        unsafe { load::bytes(self.mapping.base(), at, into) }?;
        self.believed(at, len)
    }

    #[inline]
    fn load_compared(
        &self,
        at: u64,
        into: &mut [u8],
        piece: usize,
        crcs_at: u64,
        ahead: u64,
    ) -> Result<bool, MediaError> {
        let (len, strips) = (into.len() as u64, into.len() / PART);
        let is_whole = (at % LINE_BYTES as u64, into.len() % PART) == (0, 0);
        let is_taken = piece == PART && is_whole && strips > 0;
        let kept = strips as u64 * CRC_BYTES;
        let is_within = |at: u64, len| at.checked_add(len).is_some_and(|end| end <= self.bytes);
        let is_there = is_within(at, len) && is_within(crcs_at, kept);
        if !(is_taken && is_there && self.emulation.is_none() && wide::takes(PART)) {
            return load_compared_plainly(self, at, into, piece, crcs_at, ahead);
        }
        let base = self.mapping.base();
        // SAFETY: all of it is in the mapping, whole strips; opening a region installs the handler.
        let are_same = unsafe { compared::strips(base, at, into, crcs_at, ahead) }?;
        self.believed(at, len)?;
        Ok(are_same && self.believed(crcs_at, kept).is_ok())
    }

    #[inline]
    fn prefetch(&self, at: u64) {
        // (What takes its time by emulation would have it taken off again.)
        if at < self.bytes && self.emulation.is_none() {
            crate::prefetch::address(self.mapping.base().wrapping_add(at as usize));
        }
    }

    #[inline]
    fn prefetch_lines(&self, at: u64, lines: u64) {
        let end = at.saturating_add(lines.saturating_mul(LINE_BYTES as u64));
        if end > self.bytes || self.emulation.is_some() {
            return;
        }
        for line in 0..lines as usize {
            crate::prefetch::address(
                self.mapping.base().wrapping_add(at as usize + line * LINE_BYTES),
            );
        }
    }

    #[inline]
    #[track_caller]
    fn store_word(&self, window: &mut MappedWindow, at: u64, value: u64) {
        assert!(at.is_multiple_of(WORD_BYTES), "word store at unaligned offset {at:#x}");
        let to = self.target(window, at, WORD_BYTES);
        // SAFETY: an aligned word of the mapping.
        unsafe { x86::store_word(to, value) };
        self.stored(at);
        self.stored_bytes(at, WORD_BYTES);
    }

    #[inline]
    #[track_caller]
    fn store_words(&self, window: &mut MappedWindow, at: u64, words: &[[u8; 8]]) {
        assert!(at.is_multiple_of(WORD_BYTES), "word store at unaligned offset {at:#x}");
        let len = words.as_flattened().len() as u64;
        let to = self.target(window, at, len);
        // SAFETY: aligned words of the mapping.
        unsafe { x86::store_words(to, words) };
        if self.dirty.is_some() {
            let first = at / LINE_BYTES as u64;
            for line in first..(at + len).div_ceil(LINE_BYTES as u64) {
                self.stored(line * LINE_BYTES as u64);
            }
        }
        self.stored_bytes(at, len);
    }

    #[inline]
    #[track_caller]
    fn store_bytes(&self, window: &mut MappedWindow, at: u64, bytes: &[u8]) {
        let in_word = WORD_BYTES - at % WORD_BYTES;
        assert!(bytes.len() as u64 <= in_word, "bytes beyond the word at {at:#x}");
        let to = self.target(window, at, bytes.len() as u64);
        for (i, &byte) in bytes.iter().enumerate() {
            // SAFETY: a byte of the mapping.
            unsafe { x86::store_byte(to.wrapping_add(i), byte) };
        }
        self.stored(at);
        self.stored_bytes(at, bytes.len() as u64);
    }

    #[inline]
    #[track_caller]
    fn store_line(&self, window: &mut MappedWindow, at: u64, line: &Line) {
        let len = LINE_BYTES as u64;
        assert!(at.is_multiple_of(len), "line store at unaligned offset {at:#x}");
        let to = self.target(window, at, len);
        window.taken.add(len);
        match self.strategy {
            // SAFETY: an aligned line of the mapping; the CPU was asked for the instruction.
            FlushStrategy::Instructions { line_store, .. } => unsafe {
                x86::stream_lines(line_store, to, std::slice::from_ref(&line.0));
            },
            FlushStrategy::Msync => {
                // SAFETY: an aligned line of the mapping.
                unsafe { x86::store_line(to, line) };
                self.stored(at);
            }
        }
        self.stored_bytes(at, len);
    }

    #[inline]
    #[track_caller]
    fn store_lines(&self, window: &mut MappedWindow, at: u64, lines: &[[u8; LINE_BYTES]]) {
        let FlushStrategy::Instructions { line_store, .. } = self.strategy else {
            for (i, line) in lines.iter().enumerate() {
                self.store_line(window, at + (i * LINE_BYTES) as u64, &Line(*line));
            }
            return;
        };
        assert!(at.is_multiple_of(LINE_BYTES as u64), "line store at unaligned offset {at:#x}");
        let len = lines.as_flattened().len() as u64;
        let to = self.target(window, at, len);
        window.taken.add(len);
        let how = if lines.len() > 1 { line_store.of_many() } else { line_store };
        // SAFETY: aligned lines of the mapping; the CPU was asked for the instruction.
        unsafe { x86::stream_lines(how, to, lines) };
        self.stored_bytes(at, len);
    }

    #[inline]
    #[track_caller]
    fn store_summed(
        &self,
        window: &mut MappedWindow,
        (at, parity_at): (u64, u64),
        lines: &[[u8; LINE_BYTES]],
        piece: usize,
        each: impl FnMut(u32),
    ) {
        let (len, parity) = (lines.as_flattened().len(), piece * LINE_BYTES);
        let is_taken = len.is_multiple_of(parity) && summed::takes(len / parity, parity);
        let FlushStrategy::Instructions { line_store, .. } = self.strategy else {
            return store_summed_plainly(self, window, (at, parity_at), lines, piece, each);
        };
        if !is_taken {
            return store_summed_plainly(self, window, (at, parity_at), lines, piece, each);
        }
        for (at, len) in [(at, len as u64), (parity_at, parity as u64)] {
            assert!(at.is_multiple_of(LINE_BYTES as u64), "line store at unaligned offset {at:#x}");
            self.target(window, at, len);
            window.taken.add(len);
        }
        let base = self.mapping.base();
        let to = [at, parity_at].map(|at| base.wrapping_add(at as usize));
        // SAFETY: aligned lines of the mapping, whole strips and room for the sum of these; the CPU was asked for the
        // instructions.
        unsafe { summed::stream(line_store, to, lines, parity, each) };
        self.stored_bytes(at, len as u64);
        self.stored_bytes(parity_at, parity as u64);
    }

    #[inline]
    #[track_caller]
    fn stream_word(&self, window: &mut MappedWindow, at: u64, value: u64) {
        assert!(at.is_multiple_of(WORD_BYTES), "word store at unaligned offset {at:#x}");
        let to = self.target(window, at, WORD_BYTES);
        window.taken.add(WORD_BYTES);
        match self.strategy {
            // SAFETY: an aligned word of the mapping.
            FlushStrategy::Instructions { .. } => unsafe { x86::stream_word(to, value) },
            FlushStrategy::Msync => {
                // SAFETY: an aligned word of the mapping.
                unsafe { x86::store_word(to, value) };
                self.stored(at);
            }
        }
        self.stored_bytes(at, WORD_BYTES);
    }

    #[inline]
    #[track_caller]
    fn write_back(&self, window: &mut MappedWindow, at: u64) {
        assert!(at < self.bytes, "write-back at {at:#x} outside the region");
        window.taken.add(LINE_BYTES as u64);
        if let FlushStrategy::Instructions { write_back, .. } = self.strategy {
            let line = self.mapping.base().wrapping_add(at as usize);
            // SAFETY: an address of the mapping; the CPU was asked for the instruction.
            unsafe { x86::write_back(write_back, line) };
        }
    }

    #[inline]
    fn fence(&self) -> Result<(), MediaError> {
        match self.strategy {
            FlushStrategy::Instructions { .. } => x86::fence(),
            FlushStrategy::Msync => self.msync()?,
        }
        if let Some(emulation) = &self.emulation {
            emulation.fenced();
        }
        Ok(())
    }

    #[inline]
    fn fence_can_fail(&self) -> bool {
        matches!(self.strategy, FlushStrategy::Msync)
    }
}

/// What a region says of itself wherever it is printed:
/// `tmpfs file /dev/shm/pool, 67108864 bytes, avx512+clwb, windows: key, durability: process crash`,
/// and what it emulates, if anything.
impl fmt::Display for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(path) = &self.path {
            write!(f, " {}", path.display())?;
        }
        write!(f, ", {} bytes, {}", self.bytes, self.strategy)?;
        if self.is_read_only() {
            write!(f, ", read-only")?;
        } else {
            write!(f, ", windows: {}", self.window_mode())?;
        }
        write!(f, ", durability: {}", self.durability)?;
        match self.emulated() {
            Some(emulated) => write!(f, ", emulated: {emulated}"),
            None => Ok(()),
        }
    }
}
