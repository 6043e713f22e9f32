//! Files mapped into the memory of a test.
#![allow(unsafe_code)]

use std::fs::File;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// A mapping of the beginning of a file. What is used of it has to be inside the file: the rest
/// is not there.
pub struct Map {
    at: *mut u8,
    len: usize,
    writable: bool,
}

impl Map {
    /// One that others see the stores of.
    pub fn shared(file: &File, len: usize) -> Self {
        Self::of(file, len, true, MapFlags::SHARED)
    }

    /// One for loads alone.
    pub fn read_only(file: &File, len: usize) -> Self {
        Self::of(file, len, false, MapFlags::SHARED)
    }

    /// One whose stores nobody else sees.
    pub fn private(file: &File, len: usize) -> Self {
        Self::of(file, len, true, MapFlags::PRIVATE)
    }

    fn of(file: &File, len: usize, writable: bool, flags: MapFlags) -> Self {
        let rights = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at a place the kernel chooses touches nothing that exists.
        let at = unsafe { mmap(std::ptr::null_mut(), len, rights, flags, file, 0) };
        Self { at: at.unwrap().cast(), len, writable }
    }

    pub fn get(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: inside the mapping, which lives as long as self.
        unsafe { self.at.add(at).read_volatile() }
    }

    pub fn set(&self, at: usize, value: u8) {
        assert!(at < self.len && self.writable);
        // SAFETY: inside the mapping, which is writable and not borrowed anywhere.
        unsafe { self.at.add(at).write_volatile(value) }
    }

    /// What is in `len` bytes from `at` on.
    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        (at..at + len).map(|at| self.get(at)).collect()
    }

    /// Stores `bytes` from `at` on.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        bytes.iter().enumerate().for_each(|(i, byte)| self.set(at + i, *byte));
    }

    /// Whether the kernel has the page of `at` in its cache.
    pub fn is_cached(&self, at: usize) -> bool {
        assert!(at < self.len);
        let (page, mut there) = (4096, 0_u8);
        // SAFETY: a page of the mapping, which begins at one; it is not touched, and one byte is stored.
        let done =
            unsafe { libc::mincore(self.at.add(at / page * page).cast(), page, &raw mut there) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        there & 1 == 1
    }

    pub fn sync(&self) {
        // SAFETY: exactly the mapping.
        unsafe { msync(self.at.cast(), self.len, MsyncFlags::SYNC) }.unwrap();
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping, which nobody uses after this.
        unsafe { munmap(self.at.cast(), self.len) }.unwrap();
    }
}
