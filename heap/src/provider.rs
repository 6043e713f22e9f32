//! The provider: memory of the pool in the shape of Intel's UMF: allocate, free, purge, figures.
use core::ffi::c_void;
use core::fmt;
use core::ptr::NonNull;

use crate::memory::{self, Area, SLOT, Stats};
use crate::settings::Settings;
use crate::{fork, keeper, sys};

/// Why there is no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The owner lends no more, or the system has none.
    NoMemory,
    /// No block begins at this address.
    NoBlock,
    /// Memory is had of another owner already: there is one for a process.
    OtherOwner,
    /// No owner answers there.
    NoOwner,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMemory => "no memory is left",
            Self::NoBlock => "no block begins at this address",
            Self::OtherOwner => "this process has memory of another owner",
            Self::NoOwner => "no owner of a pool answers at this socket",
        })
    }
}

impl core::error::Error for Error {}

/// Says where this process's memory is to come from. Nobody is asked for any until some is wanted.
///
/// # Errors
/// [`Error::OtherOwner`] where it is said already, otherwise.
pub fn configure(settings: &Settings) -> Result<(), Error> {
    fork::install();
    let mut memory = memory::lock();
    let said = memory.settings.socket.bytes();
    if !said.is_empty() && said != settings.socket.bytes() {
        return Err(Error::OtherOwner);
    }
    memory.settings = *settings;
    Ok(())
}

/// Memory by whole chunks ([`SLOT`] bytes). There is one for a process: all values of this type are the same one.
#[derive(Clone, Copy, Debug)]
pub struct Provider(());

impl Provider {
    /// Memory of an owner that is there.
    ///
    /// # Errors
    /// [`Error::NoOwner`], [`Error::OtherOwner`].
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let _errno = sys::KeepErrno::new();
        configure(settings)?;
        memory::lock().meet().map_err(|_| Error::NoOwner)?;
        Ok(Self(()))
    }

    /// A block of at least `bytes` at a multiple of `align`, a power of two; zeros where `zeros` says so.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn alloc(self, bytes: usize, align: usize, zeros: bool) -> Result<NonNull<c_void>, Error> {
        alloc(bytes, align, zeros)
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// Nobody uses the block any more.
    ///
    /// # Errors
    /// [`Error::NoBlock`] where none begins there.
    pub unsafe fn free(self, block: NonNull<c_void>) -> Result<(), Error> {
        // SAFETY: as the caller says.
        if unsafe { free(block.as_ptr() as usize) } { Ok(()) } else { Err(Error::NoBlock) }
    }

    /// Gives back to the owner what nobody uses: bytes.
    pub fn purge(self) -> u64 {
        purge()
    }

    /// Figures of now.
    pub fn stats(self) -> Stats {
        stats()
    }
}

/// As [`Provider::alloc`]; DRAM, where there is no owner.
///
/// # Errors
/// [`Error::NoMemory`].
pub fn alloc(bytes: usize, align: usize, zeros: bool) -> Result<NonNull<c_void>, Error> {
    let _errno = sys::KeepErrno::new();
    let block = memory::lock().alloc(bytes, align, zeros).map_err(|_| Error::NoMemory)?;
    keeper::tend();
    NonNull::new(block.populated() as *mut c_void).ok_or(Error::NoMemory)
}

/// Takes back the block that begins at an address; whether one does.
///
/// # Safety
/// Nobody uses it any more.
pub unsafe fn free(address: usize) -> bool {
    let _errno = sys::KeepErrno::new();
    memory::lock().free(address)
}

/// Makes a block larger or smaller, by its pages: what is in it is copied nowhere, and may be elsewhere afterwards.
///
/// # Safety
/// Nobody uses the block by its old address any more, unless this fails.
///
/// # Errors
/// [`Error::NoMemory`]; the block is as it was then.
pub unsafe fn resize(address: usize, bytes: usize) -> Result<NonNull<c_void>, Error> {
    let _errno = sys::KeepErrno::new();
    let block = memory::lock().resize(address, bytes).map_err(|_| Error::NoMemory)?;
    keeper::tend();
    NonNull::new(block.populated() as *mut c_void).ok_or(Error::NoMemory)
}

/// Bytes of the block that begins at an address.
pub fn block_bytes(address: usize) -> Option<usize> {
    memory::lock().block_bytes(address)
}

/// Has the allocator give up what it keeps, and gives back to the owner all chunks that nobody uses then: bytes. Not to be
/// called from below an allocator's locks.
pub fn purge() -> u64 {
    let _errno = sys::KeepErrno::new();
    keeper::purge_allocator();
    memory::lock().trim(usize::MAX, false) as u64 * SLOT as u64
}

/// Figures of now.
pub fn stats() -> Stats {
    memory::lock().stats()
}

/// Addresses where the areas begin and end.
#[derive(Clone, Copy, Debug)]
pub struct Borders {
    /// [`Area::Pages`] begins.
    pub pages: usize,
    /// [`Area::Dram`] begins.
    pub dram: usize,
    /// [`Area::Blocks`] begins.
    pub blocks: usize,
    /// It ends.
    pub end: usize,
}

/// Reserves the address space; where it is. None where the system has none.
pub fn reserve() -> Option<Borders> {
    let _errno = sys::KeepErrno::new();
    let mut memory = memory::lock();
    memory.space.reserve().ok()?;
    let ((pages, end), (dram, blocks)) = (memory.space.ends(), memory.space.borders());
    Some(Borders { pages, dram, blocks, end })
}

/// Address space for an allocator, `bytes` of whole pages at a multiple of `align`; there is no memory in it.
pub fn cut(area: Area, bytes: usize, align: usize) -> Option<usize> {
    let _errno = sys::KeepErrno::new();
    memory::lock().cut(area, bytes, align)
}

/// Puts memory into whole pages of it, which had none: zeros. Whether there is some.
pub fn commit(start: usize, bytes: usize) -> bool {
    let _errno = sys::KeepErrno::new();
    memory::lock().commit(start, bytes).is_ok()
}

/// Takes the memory of whole pages back, which had some. Whether it did.
///
/// # Safety
/// Nobody uses these pages.
pub unsafe fn decommit(start: usize, bytes: usize) -> bool {
    let _errno = sys::KeepErrno::new();
    memory::lock().decommit(start, bytes).is_ok()
}

/// What is in use of DRAM by now is the allocator's own, and is not counted; `bytes` from elsewhere are.
pub fn count_dram_from(bytes: u64) {
    let mut memory = memory::lock();
    (memory.stats.dram, memory.stats.dram_peak) = (bytes, bytes);
}
