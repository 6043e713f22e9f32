//! The allocator of these tests: it counts what is held, and refuses what it is told to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

/// Allocations of at least so many bytes are refused when it is armed: small ones of fixed
/// size (a node, a box) may be taken as granted.
static LEAST: AtomicUsize = AtomicUsize::new(usize::MAX);
/// So many large allocations are granted before the first is refused.
static GRANTED: AtomicU64 = AtomicU64::new(0);
/// All later ones are refused too, not only that one.
static ALL_LATER: AtomicBool = AtomicBool::new(false);
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Bytes that are held.
static HELD: AtomicU64 = AtomicU64::new(0);

struct Watched;

impl Watched {
    fn refuses(bytes: usize) -> bool {
        if bytes < LEAST.load(SeqCst) {
            return false;
        }
        let before = GRANTED.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        if before.is_ok() {
            return false;
        }
        // Exactly one is refused, unless all later ones are.
        let refused = REFUSED.fetch_add(1, SeqCst);
        refused == 0 || ALL_LATER.load(SeqCst)
    }
}

// SAFETY: every call goes on to the system's allocator with the same layout, or returns null,
// which is how an allocator says that it has no memory.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Self::refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        HELD.fetch_add(layout.size() as u64, SeqCst);
        // SAFETY: the caller's promise for `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as u64, SeqCst);
        // SAFETY: `pointer` came from `System` with this layout, by this allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > layout.size() && Self::refuses(size) {
            return std::ptr::null_mut();
        }
        HELD.fetch_add(size as u64, SeqCst);
        HELD.fetch_sub(layout.size() as u64, SeqCst);
        // SAFETY: as for `dealloc`; the caller's promise for `size` is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// While it is held no other test of this program allocates anything.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|failed| failed.into_inner())
}

/// Bytes that are held now.
pub fn held() -> u64 {
    HELD.load(SeqCst)
}

/// Runs `work` with the allocator armed; says whether anything was refused.
pub fn armed<R>(
    least: usize,
    granted: u64,
    all_later: bool,
    work: impl FnOnce() -> R,
) -> (R, bool) {
    GRANTED.store(granted, SeqCst);
    ALL_LATER.store(all_later, SeqCst);
    REFUSED.store(0, SeqCst);
    LEAST.store(least, SeqCst);
    let result = work();
    LEAST.store(usize::MAX, SeqCst);
    (result, REFUSED.load(SeqCst) > 0)
}
