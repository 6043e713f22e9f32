//! Rust's allocator.
use core::alloc::{GlobalAlloc, Layout};

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
        if layout.align() <= 16 {
            // SAFETY: the block is this allocator's.
            return unsafe { family::realloc(block.cast(), bytes, Source::BySize) }.cast();
        }
        let made = family::aligned(layout.align(), bytes, false, Source::BySize).cast::<u8>();
        if !made.is_null() {
            // SAFETY: both blocks have so many bytes.
            unsafe {
                core::ptr::copy_nonoverlapping(block, made, layout.size().min(bytes));
                family::free(block.cast());
            }
        }
        made
    }
}
