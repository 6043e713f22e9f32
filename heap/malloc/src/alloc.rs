//! Rust's allocator: a whole program's, or single collections'.
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use crate::family::{self, Source};

/// Memory of the pool for a Rust program.
///
/// ```
/// #[global_allocator]
/// static MEMORY: lode_malloc::LodeAlloc = lode_malloc::LodeAlloc;
///
/// // What is asked for before this, or without an owner, is DRAM.
/// let settings = lode_malloc::Settings::new(b"/run/lode/heap.sock", lode_malloc::Method::Direct);
/// lode_malloc::configure(&settings.unwrap()).unwrap();
/// let many = vec![7_u64; 1 << 20];
/// assert_eq!(many[many.len() - 1], 7);
/// ```
///
/// Or for single collections of a program whose other memory is DRAM: those that are handed an [`Allocator`] as the crate `allocator-api2`
/// has it. Those of 8 MiB and more grow by their pages, which are not copied.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use lode_malloc::LodeAlloc;
///
/// let mut large: Vec<u64, LodeAlloc> = Vec::new_in(LodeAlloc);
/// large.extend(0..1 << 20);
/// assert_eq!(large[large.len() - 1], (1 << 20) - 1);
/// ```
///
/// It is `lode heap run`'s allocator in the program itself, and reads the same variables of the environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct LodeAlloc;

// SAFETY: blocks are as large and as aligned as the layouts say, and stay until they are freed.
unsafe impl GlobalAlloc for LodeAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        family::aligned(layout.align(), layout.size(), false, Source::BySize).cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        family::aligned(layout.align(), layout.size(), true, Source::BySize).cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the block is this allocator's.
        unsafe { family::free(block.cast()) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let align = layout.align();
        // SAFETY: the block is this allocator's.
        unsafe { family::realloc_aligned(block.cast(), bytes, align, Source::BySize) }.cast()
    }
}

/// A block of that layout at an address, which may be null: then there is no memory.
fn found(block: *mut u8, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    let block = NonNull::new(block).ok_or(AllocError)?;
    Ok(NonNull::slice_from_raw_parts(block, layout.size()))
}

/// What has no bytes is at no place.
fn nowhere(layout: Layout) -> NonNull<u8> {
    NonNull::new(core::ptr::without_provenance_mut(layout.align())).unwrap_or(NonNull::dangling())
}

impl LodeAlloc {
    fn take(&self, layout: Layout, zeros: bool) -> Result<NonNull<[u8]>, AllocError> {
        let block = match layout.size() {
            0 => nowhere(layout).as_ptr(),
            bytes => family::aligned(layout.align(), bytes, zeros, Source::BySize).cast(),
        };
        found(block, layout)
    }

    /// # Safety
    /// The block is this allocator's, of the layout `old`.
    unsafe fn change(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 || new.size() == 0 {
            let made = self.take(new, false)?;
            // SAFETY: as the caller says; what has no bytes is not freed.
            unsafe { self.deallocate(block, old) };
            return Ok(made);
        }
        let (block, align) = (block.as_ptr().cast(), new.align());
        // SAFETY: as the caller says.
        let made = unsafe { family::realloc_aligned(block, new.size(), align, Source::BySize) };
        found(made.cast(), new)
    }
}

// SAFETY: blocks are as large and as aligned as the layouts say, and stay until they are freed; all values of the type are one allocator.
unsafe impl Allocator for LodeAlloc {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.take(layout, false)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.take(layout, true)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: the block is this allocator's.
            unsafe { family::free(block.as_ptr().cast()) };
        }
    }

    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: as the caller says.
        unsafe { self.change(block, old, new) }
    }

    unsafe fn grow_zeroed(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 {
            return self.take(new, true);
        }
        // SAFETY: as the caller says; what is written behind the old bytes is the new block's.
        unsafe {
            let made = self.change(block, old, new)?;
            let more = new.size().saturating_sub(old.size());
            made.cast::<u8>().as_ptr().add(old.size().min(new.size())).write_bytes(0, more);
            Ok(made)
        }
    }

    unsafe fn shrink(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: as the caller says.
        unsafe { self.change(block, old, new) }
    }
}
