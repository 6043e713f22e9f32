//! Where the kernel writes what it wants: memory of the driver's, mapped for reading.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::param::page_size;

use crate::wire::{Descriptor, MAX_DEPTH};

/// The descriptors of a queue, one for each of its tags.
pub struct Descriptors {
    start: NonNull<Descriptor>,
    depth: u16,
    bytes: usize,
}

impl Descriptors {
    /// Those of a queue of the device that this file is of.
    ///
    /// # Errors
    /// Those of mmap.
    #[allow(unsafe_code)]
    pub fn map(device: impl AsFd, queue: u16, depth: u16) -> io::Result<Self> {
        let one = size_of::<Descriptor>();
        let bytes = (usize::from(depth) * one).next_multiple_of(page_size());
        let apart = u64::from(MAX_DEPTH) * one as u64;
        let at = u64::from(queue) * apart;
        // SAFETY: the system chooses a place where nothing else is.
        let start =
            unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, device, at) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapped = Self { start, depth, bytes };
        // SAFETY: that is all of what was mapped, and a child has no use for it.
        unsafe { madvise(mapped.place(), bytes, Advice::LinuxDontFork) }?;
        Ok(mapped)
    }

    fn place(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }

    /// What the kernel wants by this tag, once the tag's command has completed.
    #[allow(unsafe_code)]
    pub fn get(&self, tag: u16) -> Option<Descriptor> {
        if tag >= self.depth {
            return None;
        }
        // SAFETY: there are `depth` of them, from the start of a page on, until `self` is dropped. The kernel writes to
        // those whose commands wait for requests, not to one that has completed; and any bytes are a descriptor.
        Some(unsafe { self.start.as_ptr().add(tag.into()).read_volatile() })
    }
}

impl Drop for Descriptors {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: that was mapped by `map`, and nobody has a reference to it.
        if let Err(error) = unsafe { munmap(self.place(), self.bytes) } {
            tracing::debug!(%error, "descriptors stay mapped");
        }
    }
}
