//! Memory that is touched: mapped, stored to page by page, and given back.
//!
//! What this file guarantees: a [`Block`] is memory of this process, of the bytes it says, from when it is made to when it is
//! dropped; nobody else has it.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs;
use std::io;
use std::ptr::NonNull;

use lode_heap::Provider;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::subject::Pages;

/// Bytes of a page that is touched.
pub(super) const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;
/// Bytes that are swapped out at a time.
const PIECE: usize = 1 << 20;

/// Whose it is.
enum Owner {
    /// Mapped here: where, how many bytes.
    Mapped(*mut c_void, usize),
    Lent(Provider),
}

/// Memory of this process.
pub(super) struct Block {
    start: NonNull<c_void>,
    bytes: usize,
    owner: Owner,
}

impl Block {
    /// Anonymous memory on such pages, all of it there already where `populated` says so.
    pub(super) fn anonymous(bytes: usize, pages: Pages, populated: bool) -> io::Result<Self> {
        let room = bytes + HUGE;
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: new memory, wherever the kernel puts it.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), room, rights, flags) }?;
        let start = at.wrapping_byte_add(at.align_offset(HUGE));
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        let block = Self { start, bytes, owner: Owner::Mapped(at, room) };
        let how = match pages {
            Pages::Small => Advice::LinuxNoHugepage,
            Pages::Huge => Advice::LinuxHugepage,
        };
        block.advise(0, bytes, how)?;
        if populated {
            block.advise(0, bytes, Advice::LinuxPopulateWrite)?;
        }
        Ok(block)
    }

    /// Memory of this process's provider: all of it the pool's.
    pub(super) fn lent(provider: Provider, bytes: usize) -> io::Result<Self> {
        let before = provider.stats();
        let start = provider.alloc(bytes, HUGE, true);
        let start = start.map_err(|error| io::Error::other(error.to_string()))?;
        let block = Self { start, bytes, owner: Owner::Lent(provider) };
        if provider.stats().pool - before.pool < bytes as u64 {
            return Err(io::Error::other("the memory is not the pool's"));
        }
        Ok(block)
    }

    fn advise(&self, at: usize, bytes: usize, how: Advice) -> io::Result<()> {
        let start = self.start.as_ptr().wrapping_byte_add(at);
        // SAFETY: a part of memory that is this block's; none of these changes what is in it.
        Ok(unsafe { madvise(start, bytes, how) }?)
    }

    fn page(&self, at: usize) -> *mut u8 {
        self.start.as_ptr().cast::<u8>().wrapping_add(at)
    }

    /// Stores to each page once.
    pub(super) fn touch(&self) {
        self.touch_part(0, self.bytes);
    }

    fn touch_part(&self, from: usize, to: usize) {
        for at in (from..to).step_by(PAGE) {
            // SAFETY: a byte of the block.
            unsafe { self.page(at).write_volatile(1) };
        }
    }

    /// The same, where there is room for `room` bytes alone: what was touched before is swapped out.
    pub(super) fn touch_with_room(&self, room: usize) -> io::Result<()> {
        for at in (0..self.bytes).step_by(PIECE) {
            let end = (at + PIECE).min(self.bytes);
            self.touch_part(at, end);
            if let Some(old) = at.checked_sub(room) {
                self.advise(old, PIECE, Advice::LinuxPageOut)?;
            }
        }
        Ok(())
    }

    /// Whether all of it is zeros, as new memory is.
    pub(super) fn is_zeros(&self) -> bool {
        (0..self.bytes).step_by(8).all(|at| {
            // SAFETY: a word of the block, at a multiple of its size.
            unsafe { self.page(at).cast::<u64>().read_volatile() == 0 }
        })
    }

    /// The part of it that is mapped by pages of 2 MiB.
    pub(super) fn huge_part(&self) -> io::Result<f64> {
        let maps = fs::read_to_string("/proc/self/smaps")?;
        let start = self.start.as_ptr() as usize;
        Ok((huge_bytes(&maps, start, start + self.bytes) as f64 / self.bytes as f64).min(1.0))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.owner {
            // SAFETY: what was mapped for this block, which nobody has any more. (That can't fail.)
            Owner::Mapped(at, bytes) => drop(unsafe { munmap(at, bytes) }),
            Owner::Lent(provider) => {
                // SAFETY: nobody has the block any more.
                let _ = unsafe { provider.free(self.start) };
                provider.purge();
            }
        }
    }
}

/// Bytes that are mapped by huge pages, by `/proc/PID/smaps`, of mappings that begin in a range of addresses, or have it in them.
fn huge_bytes(maps: &str, start: usize, end: usize) -> usize {
    let (mut ours, mut kib) = (false, 0);
    for line in maps.lines() {
        let word = line.split(' ').next().unwrap_or_default();
        let name = word.strip_suffix(':');
        if let Some((from, to)) = word.split_once('-').filter(|_| name.is_none()) {
            let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            ours = number(from) < end && number(to) > start;
        } else if let Some("AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped") =
            name.filter(|_| ours)
        {
            kib += line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        }
    }
    kib << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_zeros_until_it_is_touched() {
        for (pages, populated) in
            [(Pages::Small, false), (Pages::Small, true), (Pages::Huge, false)]
        {
            let block = Block::anonymous(4 << 20, pages, populated).unwrap();
            assert!(block.is_zeros());
            block.touch();
            assert!(!block.is_zeros());
            let part = block.huge_part().unwrap();
            assert!(part <= if pages == Pages::Small { 0.0 } else { 1.0 }, "{part}");
        }
        let block = Block::anonymous(4 << 20, Pages::Small, false).unwrap();
        block.touch_with_room(1 << 20).unwrap();
        assert!(!block.is_zeros());
    }

    #[test]
    fn huge_pages_are_those_of_the_addresses_that_are_asked_for() {
        let maps = "1000-3000 rw-p 00000000 00:00 0\nAnonHugePages:      4 kB\n\
                    3000-5000 rw-s 00000000 00:1c 3 /pool\nShmemPmdMapped:     8 kB\nRss: 100 kB\n\
                    7000-8000 rw-p 00000000 00:00 0\nAnonHugePages:     16 kB\n";
        assert_eq!(huge_bytes(maps, 0x1000, 0x5000), 12 << 10);
        assert_eq!(huge_bytes(maps, 0x4000, 0x7000), 8 << 10);
        assert_eq!(huge_bytes(maps, 0x5000, 0x7000), 0);
    }
}
